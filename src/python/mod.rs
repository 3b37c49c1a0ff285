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
use state::{State, state};

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
use crate::model::report::{Buffer, Cut, Known, Library, Step};
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
    module.add_function(wrap_pyfunction!(watches::close, module)?)?;
    module.add_function(wrap_pyfunction!(cuda_driver_present, module)?)?;
    module.add_function(wrap_pyfunction!(current_rank, module)?)?;
    module.add_function(wrap_pyfunction!(device_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::add_device_kind, module)?)?;
    module.add_function(wrap_pyfunction!(frameworks::register_framework, module)?)?;
    module.add_function(wrap_pyfunction!(watches::drop_deliveries, module)?)?;
    module.add_function(wrap_pyfunction!(empty_report, module)?)?;
    module.add_function(wrap_pyfunction!(epochs::begin_epoch, module)?)?;
    module.add_function(wrap_pyfunction!(epochs::epochs, module)?)?;
    module.add_function(wrap_pyfunction!(find, module)?)?;
    module.add_function(wrap_pyfunction!(epochs::find_new, module)?)?;
    module.add_function(wrap_pyfunction!(epochs::forget_epochs, module)?)?;
    module.add_function(wrap_pyfunction!(fix, module)?)?;
    module.add_function(wrap_pyfunction!(watches::flush, module)?)?;
    module.add_function(wrap_pyfunction!(is_distributed, module)?)?;
    module.add_function(wrap_pyfunction!(look, module)?)?;
    module.add_function(wrap_pyfunction!(derived::merge, module)?)?;
    module.add_function(wrap_pyfunction!(derived::merge_processes, module)?)?;
    module.add_function(wrap_pyfunction!(watches::next_delivery, module)?)?;
    module.add_function(wrap_pyfunction!(pages::patterns, module)?)?;
    module.add_function(wrap_pyfunction!(redact, module)?)?;
    module.add_function(wrap_pyfunction!(redacts, module)?)?;
    module.add_function(wrap_pyfunction!(derived::select, module)?)?;
    module.add_function(wrap_pyfunction!(shown_name, module)?)?;
    module.add_function(wrap_pyfunction!(shown_place, module)?)?;
    module.add_function(wrap_pyfunction!(watches::start_watch, module)?)?;
    module.add_function(wrap_pyfunction!(watches::stop_watch, module)?)?;
    module.add_function(wrap_pyfunction!(watches::tallies, module)?)?;
    module.add_function(wrap_pyfunction!(human_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(watches::total_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(unreachable_objects, module)?)?;
    module.add_function(wrap_pyfunction!(watches::unseen_collections, module)?)?;
    module.add_function(wrap_pyfunction!(derived::with_allocations, module)?)?;
    module.add_function(wrap_pyfunction!(derived::with_counts, module)?)?;
    module.add_function(wrap_pyfunction!(derived::with_occurrences, module)?)?;
    module.add_function(wrap_pyfunction!(watches::change_watch, module)?)?;
    module.add_function(wrap_pyfunction!(pages::explanations, module)?)?;
    module.add_function(wrap_pyfunction!(derived::ignored, module)?)?;
    module.add_function(wrap_pyfunction!(pages::known_leaks, module)?)?;
    module.add_function(wrap_pyfunction!(derived::without_details, module)?)?;
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

/// The objects that a full collection would find unreachable, before finalizers.
#[pyfunction]
fn unreachable_objects(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    state(py)?.watcher.inspector().unreachable(py)
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
