//! Garbage that a collection saved, and its destruction.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashSet;

/// The garbage of one collection, in the collector's order.
///
/// Dropping it destroys what has been neither [cleared](Garbage::clear) nor
/// [kept](Garbage::keep), as the last phase of the collector would have (`delete_garbage` in
/// `Modules/gcmodule.c`, since 3.13 in `Python/gc.c`): each object that is still tracked gets its
/// type's `tp_clear`, which breaks the cycles, and reference counts do the rest. No second
/// collection is needed.
pub struct Garbage<'py> {
    /// None for what has been cleared and let go.
    objects: Vec<Option<Bound<'py, PyAny>>>,
    /// What is to be left alone, by index.
    kept: FxHashSet<usize>,
    /// False if the program set `DEBUG_SAVEALL` itself and wants to keep its garbage.
    ours: bool,
}

impl<'py> Garbage<'py> {
    /// The objects in a part of a list, to be looked at only.
    pub(super) fn new(list: &Bound<'py, PyList>, part: Range<isize>) -> Self {
        let py = list.py();
        let objects = part
            // SAFETY: attached; the list lends its items, and null for what is not there.
            .map(|i| unsafe {
                Bound::from_borrowed_ptr_or_opt(py, ffi::PyList_GetItem(list.as_ptr(), i))
            })
            .collect();
        Self {
            objects,
            kept: FxHashSet::default(),
            ours: false,
        }
    }

    /// From now on the garbage is to be destroyed: it is no longer in the list.
    pub(super) fn take_over(&mut self) {
        self.ours = true;
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the garbage will be destroyed, false if the program keeps it in `gc.garbage`.
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// The objects, as borrowed pointers; null for those that were cleared. Each holds exactly
    /// [`Garbage::own_references`] references of this structure and its surroundings.
    pub fn pointers(&self) -> Vec<*mut ffi::PyObject> {
        self.objects
            .iter()
            .map(|object| object.as_ref().map_or(ptr::null_mut(), Bound::as_ptr))
            .collect()
    }

    /// How many references to each object are not the garbage's own: one by this structure, and one
    /// by `gc.garbage` where the program keeps its garbage.
    pub fn own_references(&self) -> i64 {
        if self.ours { 1 } else { 2 }
    }

    /// Leaves an object alone: somebody has got hold of it again.
    pub fn keep(&mut self, index: usize) {
        self.kept.insert(index);
    }

    /// Destroys some of the objects now, in the given order.
    pub fn clear(&mut self, indices: &[usize]) {
        for &index in indices {
            self.clear_one(index);
        }
    }

    /// Clears an object and lets it go. Each is let go in its turn, not all at the end: what only
    /// the garbage holds (a file, an object with a `__del__`) then dies in about the order in which
    /// the collector would have let it die.
    fn clear_one(&mut self, index: usize) {
        if !self.ours || (!self.kept.is_empty() && self.kept.contains(&index)) {
            return;
        }
        let Some(object) = self.objects.get_mut(index).and_then(Option::take) else {
            return;
        };
        let object = object.as_ptr();
        // SAFETY: attached, and `object` is held across its own `tp_clear`, which the collector
        // would have called just so. The slot has the type that CPython documents.
        unsafe {
            if ffi::PyObject_GC_IsTracked(object) == 0 {
                return;
            }
            let clear = std::mem::transmute::<*mut c_void, Option<ffi::inquiry>>(
                ffi::PyType_GetSlot(ffi::Py_TYPE(object), ffi::Py_tp_clear),
            );
            if let Some(clear) = clear {
                clear(object);
                if !ffi::PyErr_Occurred().is_null() {
                    ffi::PyErr_WriteUnraisable(ffi::Py_TYPE(object).cast());
                }
            }
        }
    }
}

impl Drop for Garbage<'_> {
    fn drop(&mut self) {
        for index in 0..self.len() {
            self.clear_one(index);
        }
    }
}
