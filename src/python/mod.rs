//! The Python module `cyclescope._native`: thin bindings.
//!
//! While a program ends, CPython before 3.14 ends a daemon thread as soon as it would run Python code, with
//! `pthread_exit` (`PyThread_exit_thread` in Python/thread_pthread.h). That cannot unwind a Rust function: the process
//! would abort. So what any thread may call at any time, [`watches::start_watch`] (but for the first),
//! [`watches::stop_watch`] and [`watches::tallies`], runs no Python code, not even a finalizer in a collection of its own.

mod attach;
mod derived;
mod device_memory;
mod epochs;
mod frameworks;
mod heap;
mod live;
mod lock;
mod pages;
mod pending;
mod pipes;
mod post_mortem;
mod report;
mod retention;
mod signals;
mod state;
mod values;
mod watches;

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyImportError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use report::CycleReport;
use state::{State, state, state_for_look};

use crate::analysis::Inspector;
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
use crate::model::report::Leak;
use crate::model::report::{Buffer, Cut, Known, Library, Process, Step};
use crate::model::retention::{Keeper, Path, Retention};
use crate::model::shared::Shared;
use crate::model::source::{LineEdit, Patch, SourceLines};
use crate::watch::Ignored;

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
    macro_rules! classes {
        ($($class:ty,)+) => { $(module.add_class::<$class>()?;)+ };
    }
    classes! {
        CycleReport, report::Leak, Buffer, Cut, Known, Library, LineEdit, Patch, SourceLines, Step,
        Shared, LeakTally, Process, Rank, Heap, HeapBuffer, Row, Table, Diff, Retention, Keeper, Path,
        Growth, GrowthReport, live::GrowthWatch, DeviceMemory, MemoryRow, MemoryHolder, PostMortem,
        Finding, Numbers, post_mortem::Examination,
    }
    Ok(())
}

fn add_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! functions {
        ($($function:path,)+) => { $(module.add_function(wrap_pyfunction!($function, module)?)?;)+ };
    }
    functions! {
        attach::attached_cycles, attach::attached_heap, attach::attached_why,
        device_memory::device_memory, heap::framed, heap::heap, live::is_backward_running,
        pending::call_in_main_thread, post_mortem::memory_in_use, retention::why_alive,
        pipes::is_full_pipe, signals::arm_signal, signals::disarm_signal, signals::end_by_interrupt, signals::ignore,
        signals::next_signal, check_devices, watches::close, cuda_driver_present, current_rank,
        device_kinds, frameworks::add_device_kind, frameworks::register_framework,
        watches::drop_deliveries, watches::relieve_teller, empty_report, report_of_run, epochs::begin_epoch, epochs::epochs, find,
        epochs::find_new, epochs::forget_epochs, fix, watches::flush, is_distributed, look,
        derived::merge, derived::merge_processes, watches::next_delivery, pages::patterns, redact,
        redacts, derived::select, shown_name, shown_place, watches::start_watch,
        watches::stop_watch, watches::tallies, human_bytes, watches::total_bytes,
        unreachable_objects, watches::unseen_collections, watches::uninspected_collections, derived::with_allocations,
        derived::with_counts, derived::with_occurrences, watches::change_watch, pages::explanations,
        derived::ignored, pages::known_leaks, derived::without_details,
    }
    Ok(())
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

/// A number of bytes in words, such as `1.5 MiB`.
#[pyfunction]
fn human_bytes(count: u64) -> String {
    crate::model::human_bytes(count)
}

/// Leaves values and strings of the program, and folders, out of all reports of this process from now on.
#[pyfunction]
fn redact(py: Python<'_>) -> PyResult<()> {
    state(py)?.watcher.redact();
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

/// A report of the run of this process in which no leak was reported, with what may have been left out.
#[pyfunction]
fn report_of_run(
    py: Python<'_>,
    devices: Vec<String>,
    notes: Vec<String>,
) -> PyResult<CycleReport> {
    let mut report = state(py)?.watcher.inspector().report_of_run(py);
    report.collection.devices = devices;
    report.notes.splice(0..0, notes);
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
    let state = state_for_look(py)?;
    if let Some(note) = off(py)? {
        return Ok(nothing(py, &state, note));
    }
    let mut report = state.check(py, |watcher| watcher.find(py, &devices, frozen))?;
    let ignored = Ignored::new(ignore);
    let redacted = state.watcher.inspector().redacts();
    let asked = Inspector::ask(py);
    let keep = |leak: &Leak| !ignored.contains(leak);
    py.detach(|| Inspector::finish(&mut report, redacted, &asked, keep));
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
    let state = state_for_look(py)?;
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

/// The objects that a full collection would find unreachable, before finalizers.
#[pyfunction]
fn unreachable_objects(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    state_for_look(py)?.watcher.inspector().unreachable(py)
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
