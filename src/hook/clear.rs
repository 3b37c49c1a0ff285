//! Garbage that a collection saved, and its destruction.

use std::mem;
use std::ops::Range;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashSet;

use crate::heap::{TypeLayout, reference_count};

/// The garbage of one collection, in the collector's order.
///
/// Dropping it [destroys](Garbage::destroy) what has been neither [cleared](Garbage::clear) nor
/// [kept](Garbage::keep), as the last phase of the collector would have (`delete_garbage` in
/// `Modules/gcmodule.c`, since 3.13 in `Python/gc.c`): each object that is still tracked gets its
/// type's `tp_clear`, which breaks the cycles, and reference counts do the rest. No second
/// collection is needed.
pub struct Garbage<'py> {
    py: Python<'py>,
    /// Each with one reference of ours; null for what has been let go.
    objects: Vec<*mut ffi::PyObject>,
    /// What is to be left alone, by index.
    kept: FxHashSet<usize>,
    /// False if the program set `DEBUG_SAVEALL` itself and wants to keep its garbage.
    ours: bool,
    /// Objects are being destroyed. If that never comes to its end, because the interpreter has ended
    /// and with it this thread (`PyThread_exit_thread`), nothing may be touched any more.
    destroying: bool,
    layout: TypeLayout,
}

impl<'py> Garbage<'py> {
    /// The objects in a part of a list, to be looked at only.
    pub(super) fn new(list: &Bound<'py, PyList>, part: Range<isize>, layout: TypeLayout) -> Self {
        let objects = part
            // SAFETY: attached; the list lends its items, and null for what is not there.
            .map(|i| unsafe {
                let object = ffi::PyList_GetItem(list.as_ptr(), i);
                ffi::Py_XINCREF(object);
                object
            })
            .collect();
        Self {
            py: list.py(),
            objects,
            kept: FxHashSet::default(),
            ours: false,
            destroying: false,
            layout,
        }
    }

    /// Objects that are in no list any more, each with its reference: they are to be destroyed.
    pub(super) fn taken(
        py: Python<'py>,
        objects: Vec<*mut ffi::PyObject>,
        layout: TypeLayout,
    ) -> Self {
        Self {
            py,
            objects,
            kept: FxHashSet::default(),
            ours: true,
            destroying: false,
            layout,
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

    /// The objects, as borrowed pointers; null for those that were let go. Each holds exactly
    /// [`Garbage::own_references`] references of this structure and its surroundings.
    pub fn pointers(&self) -> &[*mut ffi::PyObject] {
        &self.objects
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

    /// Destroys some of the objects now, in the given order. Each is let go in its turn, not all at
    /// the end: what only the garbage holds (a file, an object with a `__del__`) then dies in about
    /// the order in which the collector would have let it die.
    pub fn clear(&mut self, indices: impl IntoIterator<Item = usize>) {
        if !self.ours {
            return;
        }
        self.destroying = true;
        for index in indices {
            if self.kept.contains(&index) {
                continue;
            }
            if let Some(object) = self.objects.get_mut(index) {
                let object = mem::replace(object, ptr::null_mut());
                // SAFETY: attached, as `py` shows; the reference was taken out with the object.
                unsafe { destroy(self.py, self.layout, object) };
            }
        }
        self.destroying = false;
    }

    /// Destroys what is left.
    pub fn destroy(&mut self) {
        self.destroying = true;
        let (py, layout, kept) = (self.py, self.layout, &self.kept);
        let all_go = self.ours && kept.is_empty();
        for (index, object) in self.objects.drain(..).enumerate() {
            // SAFETY: attached, as `py` shows; the reference was taken out with the object.
            unsafe {
                if all_go || self.ours && !kept.contains(&index) {
                    destroy(py, layout, object);
                } else {
                    ffi::Py_XDECREF(object);
                }
            }
        }
        self.destroying = false;
    }

    /// Destroys what is left, and gives the memory that held it for the next garbage.
    pub(super) fn into_memory(mut self) -> Vec<*mut ffi::PyObject> {
        self.destroy();
        mem::take(&mut self.objects)
    }
}

impl Drop for Garbage<'_> {
    fn drop(&mut self) {
        if !self.destroying {
            self.destroy();
        }
    }
}

/// Clears an object, if it is alive by more than the one reference given up here, as the collector
/// does.
///
/// # Safety
/// The object is null, or alive by a reference that the caller has and no longer uses.
#[inline]
unsafe fn destroy(_py: Python<'_>, layout: TypeLayout, object: *mut ffi::PyObject) {
    // SAFETY: attached, as `_py` shows; the object is held across its own `tp_clear`, which the
    // collector would have called just so, and holds its type.
    unsafe {
        if object.is_null() {
            return;
        }
        // What nobody else holds would be dead in the collector's hands by now.
        if reference_count(object) > 1 && ffi::PyObject_GC_IsTracked(object) != 0 {
            let ty = ffi::Py_TYPE(object);
            if let Some(clear) = layout.clear(ty) {
                clear(object);
                // CPython's own types never fail.
                if layout.is_heap_type(ty) && !ffi::PyErr_Occurred().is_null() {
                    ffi::PyErr_WriteUnraisable(ty.cast());
                }
            }
        }
        ffi::Py_DECREF(object);
    }
}
