//! Where objects were allocated, as far as the program has `tracemalloc` trace that.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyModule};

use super::{Place, is_library_file};
use crate::cpython::{imported, int_value, items, text_of};

/// The look-up of allocation traces; empty-handed where the program does not trace.
///
/// `_tracemalloc._get_object_traceback` may be called from `gc.callbacks`
/// (`_tracemalloc__get_object_traceback` and `tracemalloc_get_traceback` in `Modules/_tracemalloc.c` up
/// to 3.11, `_PyTraceMalloc_GetObjectTraceback` in `Python/tracemalloc.c` since 3.12):
///
/// - Of the object it uses the address and the type's flags, and calls nothing; file names are strings
///   that its own table keeps.
/// - The lock of its tables is one that `free` takes on any thread, so nobody holds it for long, and
///   nobody who holds it can be in a collection: up to 3.11 the tuples of file and line are made without
///   it; where newer releases make them with it, an allocation only asks for a collection, which the
///   evaluation loop begins (`_Py_RunGC`, since 3.12).
/// - It is C code of the interpreter's own; what a program puts in its place is not called.
///
/// CPython 3.11 looks for instances that have a `__dict__` at an address that is never traced (it
/// forgets the words before the collector's header), so they have no line there.
pub struct AllocationTraces<'py> {
    traceback: Option<Bound<'py, PyCFunction>>,
}

impl<'py> AllocationTraces<'py> {
    /// Asks the module, if the program has imported it, whether it is tracing.
    pub fn new(py: Python<'py>) -> Self {
        let find = || {
            let module = imported(intern!(py, "_tracemalloc"))?;
            let function = |name| own_function(&module, name);
            let tracing = function("is_tracing")?.call0().ok()?;
            tracing.is_truthy().ok()?.then_some(())?;
            function("_get_object_traceback")
        };
        Self { traceback: find() }
    }

    /// True if the program has allocations traced.
    pub fn are_taken(&self) -> bool {
        self.traceback.is_some()
    }

    /// The innermost line of the program's own that allocated an object, or else of a library; `None`
    /// if its allocation was not traced.
    pub fn place_of(&self, object: &Bound<'py, PyAny>) -> Option<Place> {
        let frames = self.traceback.as_ref()?.call1((object,)).ok()?;
        if frames.is_none() {
            return None;
        }
        let mut places = items(&frames).into_iter().filter_map(|frame| {
            let parts = items(&frame);
            Some(Place {
                file: text_of(parts.first()?)?,
                line: u32::try_from(int_value(parts.get(1)?)?).ok()?,
            })
        });
        let innermost = places.next()?;
        if !is_library_file(&innermost.file) {
            return Some(innermost);
        }
        let own = places.find(|place| !is_library_file(&place.file));
        Some(own.unwrap_or(innermost))
    }
}

/// A built-in function that is the module's own, under the name that it was made with; `None` for what a
/// program put there, be it another built-in function.
fn own_function<'py>(module: &Bound<'py, PyDict>, name: &str) -> Option<Bound<'py, PyCFunction>> {
    let function = module.get_item(name).ok()??;
    let function = function.cast_into_exact::<PyCFunction>().ok()?;
    // Both are getters of the exact type `builtin_function_or_method`, in C.
    let of = function.getattr(intern!(module.py(), "__self__")).ok()?;
    let written = function.getattr(intern!(module.py(), "__name__")).ok()?;
    let is_own = of.cast_exact::<PyModule>().ok()?.dict().is(module);
    (is_own && text_of(&written)? == name).then_some(function)
}
