//! Garbage that a collection saved, and its destruction.

use std::ffi::c_void;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// The garbage of one collection, in the collector's order.
///
/// Dropping it destroys what has been neither [cleared](Garbage::clear) nor
/// [kept](Garbage::keep), as the last phase of the collector would have (`delete_garbage` in
/// `Modules/gcmodule.c`, since 3.13 in `Python/gc.c`): each object that is still tracked gets its
/// type's `tp_clear`, which breaks the cycles, and reference counts do the rest. No second
/// collection is needed.
pub struct Garbage<'py> {
    objects: Bound<'py, PyList>,
    /// What is still to be cleared; empty if the garbage is not ours to destroy.
    pending: Vec<bool>,
    /// False if the program set `DEBUG_SAVEALL` itself and wants to keep its garbage.
    ours: bool,
}

impl<'py> Garbage<'py> {
    /// Garbage to be destroyed; the list must be referred to by nobody else.
    pub(super) fn to_destroy(objects: Bound<'py, PyList>) -> Self {
        let pending = vec![true; objects.len()];
        Self {
            objects,
            pending,
            ours: true,
        }
    }

    /// Garbage to be looked at only.
    pub(super) fn to_observe(objects: Bound<'py, PyList>) -> Self {
        Self {
            objects,
            pending: Vec::new(),
            ours: false,
        }
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

    /// The objects, as borrowed pointers; each holds exactly [`Garbage::own_references`] references
    /// of this structure and its surroundings.
    pub fn pointers(&self) -> Vec<*mut ffi::PyObject> {
        (0..self.len()).map(|i| self.pointer(i)).collect()
    }

    /// How many references to each object are not the garbage's own: one by this structure's list,
    /// and one by `gc.garbage` where the program keeps its garbage.
    pub fn own_references(&self) -> i64 {
        if self.ours { 1 } else { 2 }
    }

    fn pointer(&self, index: usize) -> *mut ffi::PyObject {
        // SAFETY: attached; the list lends its items, and nobody else changes it.
        unsafe { ffi::PyList_GetItem(self.objects.as_ptr(), index as ffi::Py_ssize_t) }
    }

    /// Leaves an object alone: somebody has got hold of it again.
    pub fn keep(&mut self, index: usize) {
        if let Some(pending) = self.pending.get_mut(index) {
            *pending = false;
        }
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
        let Some(pending) = self.pending.get_mut(index) else {
            return;
        };
        if !std::mem::replace(pending, false) {
            return;
        }
        let object = self.take(index);
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

    /// Takes an object out of the list, which has None in its place from then on.
    fn take(&self, index: usize) -> Bound<'py, PyAny> {
        let py = self.objects.py();
        // SAFETY: attached; the object is held before the list gives up its reference, and the list
        // takes over the new reference to None.
        unsafe {
            let object = Bound::from_borrowed_ptr(py, self.pointer(index));
            let none = py.None().into_ptr();
            ffi::PyList_SetItem(self.objects.as_ptr(), index as ffi::Py_ssize_t, none);
            object
        }
    }
}

impl Drop for Garbage<'_> {
    fn drop(&mut self) {
        for index in 0..self.pending.len() {
            self.clear_one(index);
        }
    }
}
