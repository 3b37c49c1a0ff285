//! The Python module `cyclescope._native`: thin bindings.
//!
//! While a program ends, CPython before 3.14 ends a daemon thread as soon as it would run Python code, with
//! `pthread_exit` (`PyThread_exit_thread` in Python/thread_pthread.h). That cannot unwind a Rust function: the process
//! would abort. So what any thread may call at any time, [`start_watch`] (but for the first), [`stop_watch`] and
//! [`tallies`], runs no Python code, not even a finalizer in a collection of its own.

mod attach;
mod device_memory;
mod epochs;
mod frameworks;
mod heap;
mod live;
mod lock;
mod pages;
mod pending;
mod post_mortem;
mod report;
mod retention;
mod signals;
mod state;
mod values;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyImportError, PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use report::{CycleReport, Frame};
use state::{State, state};

use crate::analysis::Inspector;
use crate::collector::may_need_mending;
use crate::cpython::{new_text, without_collections};
use crate::device::{DeviceSelection, driver_present, kinds};
use crate::diagnose::source;
use crate::graph::hide_unless_code;
use crate::model::counts::LeakTally;
use crate::model::device_memory::{DeviceMemory, MemoryHolder, MemoryRow};
use crate::model::diff::Diff;
use crate::model::growth::{Growth, GrowthReport};
use crate::model::heap::{Buffer as HeapBuffer, Heap, Row, Table};
use crate::model::post_mortem::{Finding, Numbers, PostMortem};
use crate::model::rank::Rank;
use crate::model::redact::shorten;
use crate::model::report::{Buffer, Cut, Known, Library, Step};
use crate::model::retention::{Keeper, Path, Retention};
use crate::model::shared::{Shared, total};
use crate::model::source::{LineEdit, Patch, SourceLines};
use crate::watch::{Frequency, Ignored, Least, News, Next, WatchId};

/// The native half of cyclescope. Use the package `cyclescope`, not this module.
///
/// A function that adds what there is, rather than a module of it, for which PyO3 adds all before it asks: the types
/// would belong to a sub-interpreter that may end, and the main interpreter would then be given them.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_subinterpreters()?;
    source::remember_start();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    add_types(module)?;
    add_functions(module)
}

fn add_types(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CycleReport>()?;
    module.add_class::<report::Leak>()?;
    module.add_class::<Buffer>()?;
    module.add_class::<Cut>()?;
    module.add_class::<Known>()?;
    module.add_class::<Library>()?;
    module.add_class::<LineEdit>()?;
    module.add_class::<Patch>()?;
    module.add_class::<SourceLines>()?;
    module.add_class::<Step>()?;
    module.add_class::<Shared>()?;
    module.add_class::<LeakTally>()?;
    module.add_class::<Rank>()?;
    module.add_class::<Heap>()?;
    module.add_class::<HeapBuffer>()?;
    module.add_class::<Row>()?;
    module.add_class::<Table>()?;
    module.add_class::<Diff>()?;
    module.add_class::<Retention>()?;
    module.add_class::<Keeper>()?;
    module.add_class::<Path>()?;
    module.add_class::<Growth>()?;
    module.add_class::<GrowthReport>()?;
    module.add_class::<live::GrowthWatch>()?;
    module.add_class::<DeviceMemory>()?;
    module.add_class::<MemoryRow>()?;
    module.add_class::<MemoryHolder>()?;
    module.add_class::<PostMortem>()?;
    module.add_class::<Finding>()?;
    module.add_class::<Numbers>()?;
    module.add_class::<post_mortem::Examination>()
}

fn add_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(attach::attached_cycles, module)?)?;
    module.add_function(wrap_pyfunction!(attach::attached_heap, module)?)?;
    module.add_function(wrap_pyfunction!(attach::attached_why, module)?)?;
    module.add_function(wrap_pyfunction!(device_memory::device_memory, module)?)?;
    module.add_function(wrap_pyfunction!(heap::framed, module)?)?;
    module.add_function(wrap_pyfunction!(heap::heap, module)?)?;
    module.add_function(wrap_pyfunction!(live::is_backward_running, module)?)?;
    module.add_function(wrap_pyfunction!(pending::call_in_main_thread, module)?)?;
    module.add_function(wrap_pyfunction!(post_mortem::memory_in_use, module)?)?;
    module.add_function(wrap_pyfunction!(retention::why_alive, module)?)?;
    module.add_function(wrap_pyfunction!(signals::arm_signal, module)?)?;
    module.add_function(wrap_pyfunction!(signals::disarm_signal, module)?)?;
    module.add_function(wrap_pyfunction!(signals::end_by_interrupt, module)?)?;
    module.add_function(wrap_pyfunction!(signals::ignore, module)?)?;
    module.add_function(wrap_pyfunction!(signals::next_signal, module)?)?;
    module.add_function(wrap_pyfunction!(check_devices, module)?)?;
    module.add_function(wrap_pyfunction!(close, module)?)?;
    module.add_function(wrap_pyfunction!(cuda_driver_present, module)?)?;
    module.add_function(wrap_pyfunction!(current_rank, module)?)?;
    module.add_function(wrap_pyfunction!(device_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::add_device_kind, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::register_framework, module)?)?;
    module.add_function(wrap_pyfunction!(drop_deliveries, module)?)?;
    module.add_function(wrap_pyfunction!(empty_report, module)?)?;
    module.add_function(wrap_pyfunction!(epochs::begin_epoch, module)?)?;
    module.add_function(wrap_pyfunction!(epochs::epochs, module)?)?;
    module.add_function(wrap_pyfunction!(find, module)?)?;
    module.add_function(wrap_pyfunction!(epochs::find_new, module)?)?;
    module.add_function(wrap_pyfunction!(epochs::forget_epochs, module)?)?;
    module.add_function(wrap_pyfunction!(fix, module)?)?;
    module.add_function(wrap_pyfunction!(flush, module)?)?;
    module.add_function(wrap_pyfunction!(is_distributed, module)?)?;
    module.add_function(wrap_pyfunction!(look, module)?)?;
    module.add_function(wrap_pyfunction!(merge, module)?)?;
    module.add_function(wrap_pyfunction!(merge_processes, module)?)?;
    module.add_function(wrap_pyfunction!(next_delivery, module)?)?;
    module.add_function(wrap_pyfunction!(pages::patterns, module)?)?;
    module.add_function(wrap_pyfunction!(redact, module)?)?;
    module.add_function(wrap_pyfunction!(redacts, module)?)?;
    module.add_function(wrap_pyfunction!(select, module)?)?;
    module.add_function(wrap_pyfunction!(shown_name, module)?)?;
    module.add_function(wrap_pyfunction!(shown_place, module)?)?;
    module.add_function(wrap_pyfunction!(start_watch, module)?)?;
    module.add_function(wrap_pyfunction!(stop_watch, module)?)?;
    module.add_function(wrap_pyfunction!(tallies, module)?)?;
    module.add_function(wrap_pyfunction!(human_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(total_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(unreachable_objects, module)?)?;
    module.add_function(wrap_pyfunction!(unseen_collections, module)?)?;
    module.add_function(wrap_pyfunction!(with_allocations, module)?)?;
    module.add_function(wrap_pyfunction!(with_counts, module)?)?;
    module.add_function(wrap_pyfunction!(with_occurrences, module)?)?;
    module.add_function(wrap_pyfunction!(change_watch, module)?)?;
    module.add_function(wrap_pyfunction!(pages::explanations, module)?)?;
    module.add_function(wrap_pyfunction!(ignored, module)?)?;
    module.add_function(wrap_pyfunction!(pages::known_leaks, module)?)?;
    module.add_function(wrap_pyfunction!(without_details, module)?)?;
    Ok(())
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

/// There is one watcher in a process, and each interpreter has a collector of its own.
fn refuse_subinterpreters() -> PyResult<()> {
    // SAFETY: attached: called while a module is being loaded.
    let interpreter = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if interpreter == 0 {
        Ok(())
    } else {
        Err(PyImportError::new_err(
            "cyclescope works in the main interpreter only, not in sub-interpreters, because each \
             has a garbage collector of its own.",
        ))
    }
}

fn selection(devices: &[String]) -> PyResult<DeviceSelection> {
    if devices.is_empty() {
        return Err(PyValueError::new_err(
            "devices is empty: use 'any' for all memory, 'cuda' for all GPUs, or a list of devices",
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

/// The kinds of device that there are names for.
#[pyfunction]
fn device_kinds() -> Vec<String> {
    kinds()
}

/// True if the CUDA driver's library is on this machine.
#[pyfunction]
fn cuda_driver_present(py: Python<'_>) -> bool {
    py.detach(driver_present)
}

/// Starts a watch and returns its number.
///
/// With `keep_all`, none of its reports is dropped while there is memory for it.
#[pyfunction]
fn start_watch(
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
fn change_watch(
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

/// The signatures of those leaks of a report that have one of the names.
#[pyfunction]
fn ignored(py: Python<'_>, report: &CycleReport, names: Vec<String>) -> Vec<String> {
    let ignored = Ignored::new(names);
    py.detach(|| report.signatures(|leak| ignored.contains(leak)))
}

/// Ends a watch and returns what it saw.
#[pyfunction]
fn stop_watch(py: Python<'_>, watch: WatchId) -> PyResult<Bound<'_, PyList>> {
    let state = state(py)?;
    let tallies = state.watcher.remove_watch(watch);
    state.rest(py);
    without_collections(py, || PyList::new(py, tallies))
}

/// How many collections no watch was told of, because the program changed `gc.callbacks`; None if there was no watch.
#[pyfunction]
fn unseen_collections(py: Python<'_>) -> PyResult<Option<u64>> {
    Ok(state(py)?.hook().map(|hook| hook.untold(py)))
}

/// What a watch has seen so far.
#[pyfunction]
fn tallies(py: Python<'_>, watch: WatchId) -> PyResult<Bound<'_, PyList>> {
    let tallies = state(py)?.watcher.tallies(watch);
    without_collections(py, || PyList::new(py, tallies))
}

/// A number of bytes in words, such as `1.5 MiB`.
#[pyfunction]
fn human_bytes(count: u64) -> String {
    crate::model::human_bytes(count)
}

/// The bytes of several leaks together, what they share once.
#[pyfunction]
fn total_bytes(tallies: Vec<LeakTally>) -> u64 {
    let leaks = tallies.iter();
    total(leaks.map(|leak| (&*leak.signature, leak.bytes, &*leak.shared)))
}

/// The strings of a tuple, for which Python makes no iterator.
fn strings(tuple: &Bound<'_, PyTuple>) -> PyResult<Vec<String>> {
    tuple.iter().map(|item| item.extract()).collect()
}

/// Waits for the next report or trouble; None at the end. If there is none for so many seconds, a row of neither.
#[pyfunction]
fn next_delivery(py: Python<'_>, seconds: Option<f64>) -> PyResult<Py<PyAny>> {
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
            let redacted = state(py)?.watcher.inspector().redacts();
            let asked = Inspector::ask(py);
            let report = py.detach(|| {
                let mut report = Arc::unwrap_or_clone(report);
                Inspector::finish(&mut report, redacted, &asked);
                Arc::new(report)
            });
            news_row(py, delivery.watch, Some(CycleReport::new(report)), None)
        }
        News::Trouble(reason) => news_row(py, delivery.watch, None, Some(&reason)),
    }
}

/// Waits until everything found so far has been delivered; False if that takes longer than `seconds`.
#[pyfunction]
fn flush(py: Python<'_>, seconds: f64) -> PyResult<bool> {
    let patience = Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!(
            "timeout must be a non-negative number of seconds, not {seconds}"
        ))
    })?;
    let deliveries = state(py)?.watcher.deliveries();
    deliveries.flush(py, patience)
}

/// Leaves values and strings of the program, and folders, out of all reports of this process from now on.
#[pyfunction]
fn redact(py: Python<'_>) -> PyResult<()> {
    state(py)?.watcher.inspector().redact();
    Ok(())
}

/// Whether `redact` was called in this process.
#[pyfunction]
fn redacts(py: Python<'_>) -> PyResult<bool> {
    Ok(state(py)?.watcher.inspector().redacts())
}

/// A name as reports of this process have it: see [`crate::graph::hide_unless_code`].
#[pyfunction]
fn shown_name(py: Python<'_>, mut name: String) -> PyResult<String> {
    if redacts(py)? {
        hide_unless_code(&mut name);
    }
    Ok(name)
}

/// A place in a file as reports of this process have it.
#[pyfunction]
fn shown_place(py: Python<'_>, mut place: String) -> PyResult<String> {
    if redacts(py)? {
        shorten(&mut place);
    }
    Ok(place)
}

/// Reports what is garbage now, without collecting, and watches no more. `next_delivery` returns None
/// once everything has been delivered.
#[pyfunction]
fn close(py: Python<'_>) -> PyResult<()> {
    let state = state(py)?;
    state.watcher.last_look(py);
    state.watcher.deliveries().close();
    if let Some(hook) = state.hook() {
        hook.remove(py);
    }
    Ok(())
}

/// Drops what has not been delivered yet.
#[pyfunction]
fn drop_deliveries(py: Python<'_>) -> PyResult<()> {
    state(py)?.watcher.deliveries().drop_waiting();
    Ok(())
}

/// What to say in place of looking, where `CYCLESCOPE_OFF` is set: see `cyclescope._off`.
///
/// # Errors
/// If that module cannot be imported.
fn off(py: Python<'_>) -> PyResult<Option<&'static str>> {
    static NOTE: PyOnceLock<Option<String>> = PyOnceLock::new();
    let note = NOTE.get_or_try_init(py, || {
        py.import("cyclescope._off")?.getattr("NOTE")?.extract()
    })?;
    Ok(note.as_deref())
}

/// A report of this process without leaks, for which nothing is looked at.
fn nothing(py: Python<'_>, state: &State, note: &str) -> CycleReport {
    let mut report = state.watcher.inspector().empty_report(py);
    report.notes.insert(0, note.to_owned());
    CycleReport::new(Arc::new(report))
}

/// A report of this process without leaks, for which nothing is looked at.
#[pyfunction]
fn empty_report(py: Python<'_>) -> PyResult<CycleReport> {
    let report = state(py)?.watcher.inspector().empty_report(py);
    Ok(CycleReport::new(Arc::new(report)))
}

/// Collects now and reports the leaks that it found; with `frozen`, those too that no collection frees.
#[pyfunction]
#[pyo3(signature = (devices, ignore=Vec::new(), frozen=false))]
fn find(
    py: Python<'_>,
    devices: Vec<String>,
    ignore: Vec<String>,
    frozen: bool,
) -> PyResult<CycleReport> {
    let devices = selection(&devices)?;
    let state = state(py)?;
    if let Some(note) = off(py)? {
        return Ok(nothing(py, &state, note));
    }
    let mut report = state.check(py, |watcher| watcher.find(py, &devices, frozen))?;
    let ignored = Ignored::new(ignore);
    report.leaks.retain(|leak| !ignored.contains(leak));
    let redacted = state.watcher.inspector().redacts();
    let asked = Inspector::ask(py);
    py.detach(|| Inspector::finish(&mut report, redacted, &asked));
    Ok(CycleReport::new(Arc::new(report)))
}

/// Reports what a collection of generations up to `oldest` would find, without collecting.
#[pyfunction]
#[pyo3(signature = (devices, ignore=Vec::new(), oldest=None))]
fn look(
    py: Python<'_>,
    devices: Vec<String>,
    ignore: Vec<String>,
    oldest: Option<u32>,
) -> PyResult<CycleReport> {
    let devices = selection(&devices)?;
    let state = state(py)?;
    if let Some(note) = off(py)? {
        return Ok(nothing(py, &state, note));
    }
    let mut report = state.watcher.inspector().find_up_to(py, &devices, oldest)?;
    let ignored = Ignored::new(ignore);
    report.leaks.retain(|leak| !ignored.contains(leak));
    Ok(CycleReport::new(Arc::new(report)))
}

/// The rank of this process in a distributed job; None if it is of none.
#[pyfunction]
fn current_rank(py: Python<'_>) -> Option<Rank> {
    Inspector::rank(py)
}

/// True if the program has initialised the process group of `torch.distributed`.
#[pyfunction]
fn is_distributed(py: Python<'_>) -> bool {
    Inspector::is_distributed(py)
}

/// One report of all that some reports found.
#[pyfunction]
fn merge(py: Python<'_>, reports: Vec<Py<CycleReport>>) -> PyResult<CycleReport> {
    CycleReport::merged(py, &reports, crate::model::merge::merge)
}

/// One report of the processes of a job, which says what each of them held.
#[pyfunction]
fn merge_processes(py: Python<'_>, reports: Vec<Py<CycleReport>>) -> PyResult<CycleReport> {
    CycleReport::merged(py, &reports, crate::model::merge::merge_processes)
}

/// The report with only those of its leaks that have one of the signatures.
#[pyfunction]
fn select(report: &Bound<'_, CycleReport>, signatures: Vec<String>) -> CycleReport {
    report.get().with_only(&signatures)
}

/// The objects that a full collection would find unreachable, before finalizers.
#[pyfunction]
fn unreachable_objects(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    state(py)?.watcher.inspector().unreachable(py)
}

/// The report with the stacks that allocated its buffers, by device and pointer.
#[pyfunction]
fn with_allocations(
    py: Python<'_>,
    report: &Bound<'_, CycleReport>,
    stacks: HashMap<(String, u64), Vec<Frame>>,
) -> PyResult<CycleReport> {
    let redacted = state(py)?.watcher.inspector().redacts();
    Ok(report.get().with_allocations(&stacks, redacted))
}

/// The report with all that a watch has seen of its leaks so far.
#[pyfunction]
fn with_occurrences(
    py: Python<'_>,
    report: &Bound<'_, CycleReport>,
    watch: WatchId,
) -> PyResult<CycleReport> {
    let mut occurrences = state(py)?.watcher.occurrences(watch);
    let rank = Inspector::rank(py).map(|rank| rank.rank);
    let seen = occurrences.values_mut().flatten();
    seen.for_each(|seen| seen.rank = rank);
    Ok(report
        .get()
        .map(|report| report.with_occurrences(occurrences)))
}

/// The patch for a reference that a line of a file makes.
///
/// # Errors
/// `ValueError`, with a clause that says why there is none.
#[pyfunction]
fn fix(py: Python<'_>, file: PathBuf, line: usize) -> PyResult<Patch> {
    py.detach(|| source::fix(&file, line))
        .map_err(PyValueError::new_err)
}

/// The report with all that a watch has counted of its leaks.
#[pyfunction]
fn with_counts(
    py: Python<'_>,
    report: &Bound<'_, CycleReport>,
    tallies: Vec<LeakTally>,
) -> CycleReport {
    // The program may have initialised its process group since.
    let rank = Inspector::rank(py);
    report.get().map(|mut report| {
        report.set_rank(rank.map(|rank| rank.rank));
        report.with_counts(&tallies)
    })
}

/// The report with no more than the counts of the leaks with these signatures, to merge it with one that
/// has their details.
#[pyfunction]
fn without_details(report: &Bound<'_, CycleReport>, signatures: HashSet<String>) -> CycleReport {
    report
        .get()
        .map(|report| report.without_details(&signatures))
}
