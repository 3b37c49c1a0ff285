//! The parts of CPython's `gc` module that are used, called without detours.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::builtin_function::BuiltinFunction;
use super::gc_state::GcState;
use super::world::frozen;

/// The program keeps all garbage in `gc.garbage` (`gc.DEBUG_SAVEALL`; Include/internal/pycore_gc.h).
const DEBUG_SAVEALL: i64 = 1 << 5;

/// The `gc` module: its lists and functions, and where known the collector's state.
pub struct GcModule {
    /// `gc.callbacks`.
    pub callbacks: Py<PyList>,
    /// `None` where the collector is not a generational one, or not laid out as known.
    pub state: Option<GcState>,
    collect: Py<PyAny>,
    get_objects: Py<PyAny>,
    get_stats: Py<PyAny>,
    get_debug: BuiltinFunction,
    /// `None` if the program has replaced it.
    get_freeze_count: Option<BuiltinFunction>,
}

impl GcModule {
    /// # Errors
    /// If the module's functions have been replaced.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("gc")?;
        let callbacks = module.getattr("callbacks")?.cast_into::<PyList>()?;
        let garbage = module.getattr("garbage")?.cast_into::<PyList>()?;
        let get_debug = BuiltinFunction::of(&module, "get_debug", ffi::METH_NOARGS)?;
        let (first, second, third) = module.getattr("get_threshold")?.call0()?.extract()?;
        let thresholds = [first, second, third];
        let get_freeze_count =
            BuiltinFunction::of(&module, "get_freeze_count", ffi::METH_NOARGS).ok();
        let is_any_frozen = count_frozen(py, get_freeze_count) > 0;
        Ok(Self {
            state: GcState::find(
                py,
                &garbage,
                &callbacks,
                thresholds,
                get_debug,
                is_any_frozen,
            ),
            callbacks: callbacks.unbind(),
            collect: module.getattr("collect")?.unbind(),
            get_objects: module.getattr("get_objects")?.unbind(),
            get_stats: module.getattr("get_stats")?.unbind(),
            get_debug,
            get_freeze_count,
        })
    }

    /// The objects of the permanent generation, which `gc.freeze()` excluded from collections. None if it is not known
    /// where they are, or there is no memory to list them.
    pub fn frozen<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        if self.state.is_none() {
            let count = count_frozen(py, self.get_freeze_count);
            return if count > 0 {
                frozen(py, count)
            } else {
                Vec::new()
            };
        }
        let borrowed = self.frozen_in_place(py).into_iter();
        // SAFETY: attached; what is frozen is alive.
        borrowed
            .map(|it| unsafe { Bound::from_borrowed_ptr(py, it) })
            .collect()
    }

    /// As [`GcModule::frozen`], borrowed, and none where there are no lists of generations. A reference to an object
    /// writes to its memory, which processes share that were forked after `gc.freeze()`.
    pub fn frozen_in_place(&self, py: Python<'_>) -> Vec<*mut ffi::PyObject> {
        match (&self.state, count_frozen(py, self.get_freeze_count)) {
            (Some(state), count @ 1..) => state.frozen(py, count).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// True if the program has garbage saved in place of destroyed.
    pub fn saves_garbage(&self, py: Python<'_>) -> bool {
        self.debug_flags(py) & DEBUG_SAVEALL != 0
    }

    /// The flags that `gc.set_debug` set.
    pub fn debug_flags(&self, _py: Python<'_>) -> i64 {
        // SAFETY: attached.
        unsafe { self.get_debug.call_unchecked(std::ptr::null_mut()) }
    }

    /// Runs a collection of the generations up to `oldest`, also where automatic collection is off. How many
    /// unreachable objects it found; `None` if none took place: one was under way already.
    ///
    /// # Errors
    /// If the interpreter is shutting down.
    pub fn collect(&self, py: Python<'_>, oldest: u32) -> PyResult<Option<u64>> {
        let before = self.collections(py)?;
        let unreachable = self.collect.bind(py).call1((oldest,))?.extract()?;
        Ok((self.collections(py)? != before).then_some(unreachable))
    }

    /// How many full collections there were.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn full_collections(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.collections(py)?.last().copied().unwrap_or(0))
    }

    /// How many collections there were, of all generations. None begins meanwhile.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn all_collections(&self, py: Python<'_>) -> PyResult<u64> {
        without_collections(py, || Ok(self.collections(py)?.iter().sum()))
    }

    /// How many collections there were, by generation.
    fn collections(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let generations = self.get_stats.bind(py).call0()?;
        let name = intern!(py, "collections");
        let collections = |of: PyResult<Bound<'_, PyAny>>| of?.get_item(name)?.extract();
        generations.try_iter()?.map(collections).collect()
    }

    /// The objects of the generations up to `oldest`, or of all, as `gc.get_objects` lists them.
    ///
    /// # Errors
    /// If the interpreter has no such generation, or not enough memory for the list.
    pub fn listed<'py>(
        &self,
        py: Python<'py>,
        generation: Option<u32>,
    ) -> PyResult<Bound<'py, PyList>> {
        let generation = generation.into_pyobject(py)?;
        // Not `call1`: the tuple of arguments would be among the objects, and gone afterwards, so
        // that it would look like garbage.
        // SAFETY: attached; the arguments are borrowed, and their end is marked.
        let objects = unsafe {
            let end = std::ptr::null_mut::<ffi::PyObject>();
            let objects = ffi::PyObject_CallFunctionObjArgs(
                self.get_objects.as_ptr(),
                generation.as_ptr(),
                end,
            );
            Bound::from_owned_ptr_or_err(py, objects)?
        };
        Ok(objects.cast_into::<PyList>()?)
    }
}

/// How many objects are frozen, as `gc.get_freeze_count` says; 0 if that cannot be asked.
fn count_frozen(_py: Python<'_>, get_freeze_count: Option<BuiltinFunction>) -> usize {
    // SAFETY: attached. It makes no object but a number.
    let count = get_freeze_count.map(|ask| unsafe { ask.call_unchecked(std::ptr::null_mut()) });
    count.map_or(0, |count| usize::try_from(count).unwrap_or(0))
}

/// Calls `f`, in which no allocation begins a collection, and so runs a finalizer: before CPython 3.12 each one may
/// (`gc_alloc` in Modules/gcmodule.c). A collection that is due begins afterwards.
///
/// `f` must run no Python code and let no other thread run: nobody is to see that collections are off meanwhile.
pub fn without_collections<R>(_py: Python<'_>, f: impl FnOnce() -> R) -> R {
    struct Enable;
    impl Drop for Enable {
        fn drop(&mut self) {
            // SAFETY: attached, as within `without_collections`.
            unsafe { ffi::PyGC_Enable() };
        }
    }
    // SAFETY: attached.
    let was_enabled = unsafe { ffi::PyGC_Disable() } != 0;
    let _enable = was_enabled.then(|| Enable);
    f()
}
