//! Watches: what starts, changes and ends one, and hands out what it has found.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::report::CycleReport;
use super::selection;
use super::state::state;
use crate::analysis::Inspector;
use crate::collector::may_need_mending;
use crate::cpython::{new_text, without_collections};
use crate::model::counts::LeakTally;
use crate::model::shared::total;
use crate::watch::{Frequency, Ignored, Least, News, Next, WatchId};

/// Starts a watch and returns its number.
///
/// With `keep_all`, none of its reports is dropped while there is memory for it.
#[pyfunction]
pub fn start_watch(
    py: Python<'_>,
    devices: &Bound<'_, PyTuple>,
    once_per_leak: bool,
    ignore: &Bound<'_, PyTuple>,
    keep_all: bool,
    min_host_bytes: u64,
    min_device_bytes: u64,
) -> PyResult<WatchId> {
    let devices = selection(&strings(devices)?)?;
    let ignore = strings(ignore)?;
    let frequency = if once_per_leak {
        Frequency::OncePerLeak
    } else {
        Frequency::EveryCollection
    };
    let state = state(py)?;
    // When the program ends, the hook must be gone before modules are torn down.
    if !state.watcher.deliveries().is_closed() {
        state.ensure_hook(py)?;
    }
    let least = Least {
        host: min_host_bytes,
        device: min_device_bytes,
    };
    let ignored = Ignored::new(ignore);
    let watcher = &state.watcher;
    Ok(watcher.add_watch(devices, frequency, ignored, least, keep_all))
}

/// Changes what a watch reports from now on, and forgets its counts of some leaks.
#[pyfunction]
pub fn change_watch(
    py: Python<'_>,
    watch: WatchId,
    devices: &Bound<'_, PyTuple>,
    ignore: &Bound<'_, PyTuple>,
    min_host_bytes: u64,
    min_device_bytes: u64,
    forget: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    let devices = selection(&strings(devices)?)?;
    let least = Least {
        host: min_host_bytes,
        device: min_device_bytes,
    };
    let ignored = Ignored::new(strings(ignore)?);
    let watcher = &state(py)?.watcher;
    watcher.change_watch(watch, devices, ignored, least, &strings(forget)?);
    Ok(())
}

/// Ends a watch and returns what it saw.
#[pyfunction]
pub fn stop_watch(py: Python<'_>, watch: WatchId) -> PyResult<Bound<'_, PyList>> {
    let state = state(py)?;
    let tallies = state.watcher.remove_watch(watch);
    state.rest(py);
    without_collections(py, || PyList::new(py, tallies))
}

/// What a watch has seen so far.
#[pyfunction]
pub fn tallies(py: Python<'_>, watch: WatchId) -> PyResult<Bound<'_, PyList>> {
    let tallies = state(py)?.watcher.tallies(watch);
    without_collections(py, || PyList::new(py, tallies))
}

/// How many collections no watch was told of, because the program changed `gc.callbacks`; None if there was no watch.
#[pyfunction]
pub fn unseen_collections(py: Python<'_>) -> PyResult<Option<u64>> {
    Ok(state(py)?.hook().map(|hook| hook.untold(py)))
}

/// How many collections were not inspected because of a debug flag of the collector's.
#[pyfunction]
pub fn uninspected_collections(py: Python<'_>) -> PyResult<u64> {
    Ok(state(py)?.watcher.uninspected())
}

/// The bytes of several leaks together, what they share once.
#[pyfunction]
pub fn total_bytes(tallies: Vec<LeakTally>) -> u64 {
    let leaks = tallies.iter();
    total(leaks.map(|leak| (&*leak.signature, leak.bytes, &*leak.shared)))
}

/// Waits for the next report or trouble; None at the end. If there is none for so many seconds, a row of neither.
#[pyfunction]
pub fn next_delivery(py: Python<'_>, seconds: Option<f64>) -> PyResult<Py<PyAny>> {
    let deliveries = state(py)?.watcher.deliveries();
    let started = Instant::now();
    let is_late = || seconds.is_some_and(|it| started.elapsed().as_secs_f64() >= it);
    let next = loop {
        match py.detach(|| deliveries.next(|| may_need_mending() || is_late())) {
            Next::Delivery(delivery) => break Some(delivery),
            Next::Closed => break None,
            Next::Elsewhere => {
                if let Some(hook) = state(py)?.hook() {
                    hook.mend(py);
                }
                if is_late() {
                    return news_row(py, 0, None, None);
                }
            }
        }
    };
    let Some(delivery) = next else {
        return Ok(py.None());
    };
    match delivery.news {
        News::Report(report) => {
            let watcher = &state(py)?.watcher;
            let redacted = watcher.inspector().redacts();
            let asked = Inspector::ask(py);
            let ignored = delivery.ignored;
            let mut report = py.detach(|| {
                let mut report = Arc::unwrap_or_clone(report);
                Inspector::finish(&mut report, redacted, &asked, |leak| {
                    !ignored.contains(leak)
                });
                report
            });
            watcher.recall(delivery.watch, &mut report);
            if report.leaks.is_empty() {
                return news_row(py, 0, None, None);
            }
            let report = CycleReport::new(Arc::new(report));
            news_row(py, delivery.watch, Some(report), None)
        }
        News::Trouble(reason) => news_row(py, delivery.watch, None, Some(&reason)),
    }
}

/// `(watch, report, None)` or `(0, None, reason)`.
///
/// Made by hand: where there is no memory, PyO3's conversions panic, and end the process if there is
/// none for the exception either. The program's own is to be the thread that finds out.
///
/// # Errors
/// `MemoryError`.
fn news_row(
    py: Python<'_>,
    watch: WatchId,
    report: Option<CycleReport>,
    reason: Option<&str>,
) -> PyResult<Py<PyAny>> {
    let report = match report {
        Some(report) => without_collections(py, || Bound::new(py, report))?.into_any(),
        None => py.None().into_bound(py),
    };
    let reason = match reason {
        Some(reason) => new_text(py, reason)
            .ok_or_else(|| PyMemoryError::new_err(()))?
            .into_any(),
        None => py.None().into_bound(py),
    };
    // SAFETY: attached; each is a new reference or null, with an exception, and the tuple takes
    // references of its own to as many objects as said.
    unsafe {
        let watch = Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromUnsignedLongLong(watch))?;
        let row = ffi::PyTuple_Pack(3, watch.as_ptr(), report.as_ptr(), reason.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(py, row)?.unbind())
    }
}

/// The strings of a tuple, for which Python makes no iterator.
fn strings(tuple: &Bound<'_, PyTuple>) -> PyResult<Vec<String>> {
    tuple.iter().map(|item| item.extract()).collect()
}

/// Waits until everything found so far has been delivered; False if that takes longer than `timeout` seconds.
#[pyfunction]
pub fn flush(py: Python<'_>, timeout: &Bound<'_, PyAny>) -> PyResult<bool> {
    let asked = "timeout must be a non-negative number of seconds, not";
    let seconds: f64 = timeout
        .extract()
        .map_err(|_| PyTypeError::new_err(format!("{asked} {timeout:?}")))?;
    let patience = Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{asked} {seconds}")))?;
    let deliveries = state(py)?.watcher.deliveries();
    deliveries.flush(py, patience)
}

/// Reports what is garbage now, without collecting, and watches no more. `next_delivery` returns None
/// once everything has been delivered.
#[pyfunction]
pub fn close(py: Python<'_>) -> PyResult<()> {
    let state = state(py)?;
    state.watcher.last_look(py);
    state.watcher.deliveries().close();
    if let Some(hook) = state.hook() {
        hook.remove(py);
    }
    Ok(())
}

/// Has `next_delivery` return None from now on, or no longer.
#[pyfunction]
pub fn relieve_teller(py: Python<'_>, is_relieved: bool) -> PyResult<()> {
    state(py)?.watcher.deliveries().relieve(is_relieved);
    Ok(())
}

/// Drops what has not been delivered yet.
#[pyfunction]
pub fn drop_deliveries(py: Python<'_>) -> PyResult<()> {
    state(py)?.watcher.deliveries().drop_waiting();
    Ok(())
}
