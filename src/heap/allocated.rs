//! Where objects were allocated, as far as the program has `tracemalloc` trace that.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use super::Place;
use super::read::{int_value, items, text_of};
use crate::device::imported;
use crate::graph::is_library_file;

/// The look-up of allocation traces; empty-handed where the program does not trace.
///
/// `_tracemalloc._get_object_traceback` is C code that reads a hash table by the object's address
/// and makes tuples of file and line (`Modules/_tracemalloc.c`; `Python/tracemalloc.c` since 3.12).
/// It calls nothing of the object's, and no collection begins within a collection, so it may be
/// called from `gc.callbacks`. CPython 3.11 looks for instances that have a `__dict__` at an address
/// that is never traced (it forgets the words before the collector's header), so they have no line
/// there.
pub struct AllocationTraces<'py> {
    traceback: Option<Bound<'py, PyCFunction>>,
}

impl<'py> AllocationTraces<'py> {
    /// Asks the module, if the program has imported it, whether it is tracing.
    pub fn new(py: Python<'py>) -> Self {
        let find = || {
            let module = imported(intern!(py, "_tracemalloc"))?;
            // Only what is C code: a program may have put something of its own there.
            let function = |name| module.get_item(name).ok()??.cast_into::<PyCFunction>().ok();
            let tracing = function(intern!(py, "is_tracing"))?.call0().ok()?;
            tracing.is_truthy().ok()?.then_some(())?;
            function(intern!(py, "_get_object_traceback"))
        };
        Self { traceback: find() }
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
