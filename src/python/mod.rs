//! The Python module `cyclescope._native`: thin bindings.

mod report;
mod state;

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::device::{DeviceSelection, driver_present};
use crate::watch::{Frequency, News, Tally, WatchId};
use report::CycleReport;
use state::{deliveries, with_state};

/// The native half of cyclescope. Use the package `cyclescope`, not this module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::report::{Buffer, Cut, CycleReport, Leak, Step};
    #[pymodule_export]
    use super::{
        check_devices, close_deliveries, cuda_driver_present, find, flush, last_look,
        next_delivery, start_watch, stop_watch, tallies, unreachable_objects,
    };
}

/// `(signature, summary, count, bytes, largest, first_seen, last_seen)`.
type TallyRow = (String, String, u64, u64, u64, f64, f64);

fn row(tally: Tally) -> TallyRow {
    let Tally {
        signature,
        summary,
        count,
        bytes,
        largest,
        first_seen,
        last_seen,
    } = tally;
    (
        signature, summary, count, bytes, largest, first_seen, last_seen,
    )
}

fn selection(devices: &[String]) -> PyResult<DeviceSelection> {
    if devices.is_empty() {
        return Err(PyValueError::new_err(
            "devices is empty: write 'any' for all memory, 'cuda' for all GPUs, or a list of devices",
        ));
    }
    DeviceSelection::parse(devices.iter().map(String::as_str))
        .map_err(|error| PyValueError::new_err(format!("devices: {error}")))
}

/// Raises ValueError if some name is not a device.
#[pyfunction]
fn check_devices(devices: Vec<String>) -> PyResult<()> {
    selection(&devices).map(drop)
}

/// True if the CUDA driver's library is on this machine.
#[pyfunction]
fn cuda_driver_present(py: Python<'_>) -> bool {
    py.detach(driver_present)
}

/// Starts a watch and returns its number.
#[pyfunction]
fn start_watch(py: Python<'_>, devices: Vec<String>, once_per_leak: bool) -> PyResult<WatchId> {
    let devices = selection(&devices)?;
    let frequency = if once_per_leak {
        Frequency::OncePerLeak
    } else {
        Frequency::EveryCollection
    };
    with_state(py, |state| {
        state.ensure_hook(py)?;
        Ok(state.watcher.add_watch(devices, frequency))
    })
}

/// Ends a watch and returns what it saw.
#[pyfunction]
fn stop_watch(py: Python<'_>, watch: WatchId) -> PyResult<Vec<TallyRow>> {
    with_state(py, |state| {
        let tallies = state.watcher.remove_watch(watch);
        if state.watcher.is_idle() {
            state.remove_hook(py);
        }
        Ok(tallies.into_iter().map(row).collect())
    })
}

/// What a watch has seen so far.
#[pyfunction]
#[pyo3(name = "tallies")]
fn tallies(py: Python<'_>, watch: WatchId) -> PyResult<Vec<TallyRow>> {
    with_state(py, |state| {
        Ok(state.watcher.tallies(watch).into_iter().map(row).collect())
    })
}

/// `(watch, report, None)`, or `(0, None, reason)` if the hook had to be disabled.
type DeliveryRow = (WatchId, Option<CycleReport>, Option<String>);

/// Waits for the next thing to tell; None at the end.
#[pyfunction]
fn next_delivery(py: Python<'_>) -> PyResult<Option<DeliveryRow>> {
    let deliveries = deliveries(py)?;
    let next = py.detach(|| deliveries.next());
    Ok(next.map(|delivery| match delivery.news {
        News::Report(report) => (delivery.watch, Some(CycleReport::new(report)), None),
        News::Stopped(reason) => (delivery.watch, None, Some(reason)),
    }))
}

/// Waits until everything found so far has been told; False if that took longer than `seconds`.
#[pyfunction]
fn flush(py: Python<'_>, seconds: f64) -> PyResult<bool> {
    let patience = Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!(
            "timeout: {seconds} is not a number of seconds to wait"
        ))
    })?;
    let deliveries = deliveries(py)?;
    Ok(py.detach(|| deliveries.flush(patience)))
}

/// Makes `next_delivery` return None once everything has been told.
#[pyfunction]
fn close_deliveries(py: Python<'_>) -> PyResult<()> {
    deliveries(py)?.close();
    Ok(())
}

/// Collects now and reports the leaks that it found.
#[pyfunction]
fn find(py: Python<'_>, devices: Vec<String>) -> PyResult<CycleReport> {
    let devices = selection(&devices)?;
    let (watcher, hook) = with_state(py, |state| {
        state.ensure_hook(py)?;
        Ok((std::rc::Rc::clone(&state.watcher), state.hook()))
    })?;
    let report = match hook {
        Some(hook) => watcher.find(py, &hook, devices),
        None => Err(PyValueError::new_err(
            "cyclescope: the hook could not be installed",
        )),
    };
    with_state(py, |state| {
        if state.watcher.is_idle() {
            state.remove_hook(py);
        }
        Ok(())
    })?;
    Ok(CycleReport::new(std::sync::Arc::new(report?)))
}

/// Reports what is garbage now to all watches, without collecting.
#[pyfunction]
fn last_look(py: Python<'_>) -> PyResult<()> {
    with_state(py, |state| Ok(std::rc::Rc::clone(&state.watcher)))?.last_look(py);
    Ok(())
}

/// The objects that a full collection would find unreachable, before finalizers.
#[pyfunction]
fn unreachable_objects(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    with_state(py, |state| Ok(std::rc::Rc::clone(&state.watcher)))?
        .inspector()
        .unreachable(py)
}
