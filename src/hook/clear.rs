//! Garbage that a collection saved, and its destruction.

use std::ffi::c_void;
use std::mem;
use std::ops::Range;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashSet;

use crate::heap::reference_count;

/// The garbage of one collection, in the collector's order.
///
/// Dropping it destroys what has been neither [cleared](Garbage::clear) nor
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
}

impl<'py> Garbage<'py> {
    /// The objects in a part of a list, to be looked at only.
    pub(super) fn new(list: &Bound<'py, PyList>, part: Range<isize>) -> Self {
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
        }
    }

    /// Objects that are in no list any more, each with its reference: they are to be destroyed.
    pub(super) fn taken(py: Python<'py>, objects: Vec<*mut ffi::PyObject>) -> Self {
        Self {
            py,
            objects,
            kept: FxHashSet::default(),
            ours: true,
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
        let mut slots = ClearSlots::default();
        for index in indices {
            if !self.kept.is_empty() && self.kept.contains(&index) {
                continue;
            }
            let Some(object) = self.objects.get_mut(index) else {
                continue;
            };
            let object = mem::replace(object, ptr::null_mut());
            // SAFETY: attached, as `py` shows, and the object, if there is one, is alive by the
            // reference that was taken out with it, and given up only at the end.
            unsafe {
                // What nobody else holds would be dead in the collector's hands by now.
                if !object.is_null()
                    && reference_count(object) > 1
                    && ffi::PyObject_GC_IsTracked(object) != 0
                {
                    slots.clear(self.py, object);
                }
                ffi::Py_XDECREF(object);
            }
        }
        slots.note_error();
    }
}

impl Drop for Garbage<'_> {
    fn drop(&mut self) {
        self.clear(0..self.len());
        for object in self.objects.drain(..) {
            // SAFETY: attached, as `py` shows; gives up the reference that this structure has.
            unsafe { ffi::Py_XDECREF(object) };
        }
    }
}

/// The `tp_clear` of each type met lately: garbage consists of few types, and objects of one type
/// come in rows.
#[derive(Default)]
struct ClearSlots<'py> {
    /// The type of the row, which is held in `recent`; null before the first.
    row: *mut ffi::PyTypeObject,
    clear: Option<ffi::inquiry>,
    may_fail: bool,
    recent: [Option<ClearSlot<'py>>; RECENT],
    /// How many types have taken a place in `recent`, each the one after the last.
    taken: usize,
}

const RECENT: usize = 8;

struct ClearSlot<'py> {
    /// Held, so that no other type can be born at its address.
    of: Bound<'py, PyAny>,
    clear: Option<ffi::inquiry>,
    may_fail: bool,
}

impl ClearSlot<'_> {
    fn is_of(&self, ty: *mut ffi::PyTypeObject) -> bool {
        self.of.as_ptr() == ty.cast()
    }
}

impl<'py> ClearSlots<'py> {
    /// Calls the `tp_clear` of an object's type, as the collector does.
    ///
    /// # Safety
    /// The object is alive, and the caller holds a reference to it.
    unsafe fn clear(&mut self, py: Python<'py>, object: *mut ffi::PyObject) {
        // SAFETY: attached, as `py` shows; the object is held across its own `tp_clear`, which the
        // collector would have called just so.
        unsafe {
            let ty = ffi::Py_TYPE(object);
            if ty != self.row {
                self.begin_row(py, ty);
            }
            if let Some(clear) = self.clear {
                clear(object);
            }
        }
    }

    /// # Safety
    /// The type is alive.
    unsafe fn begin_row(&mut self, py: Python<'py>, ty: *mut ffi::PyTypeObject) {
        // CPython's own never fail; what another leaves behind is written when its row ends, or in the
        // end.
        if self.may_fail {
            self.note_error();
        }
        let known = self.recent.iter().flatten().find(|slot| slot.is_of(ty));
        let (clear, may_fail) = match known {
            Some(slot) => (slot.clear, slot.may_fail),
            // SAFETY: attached, as `py` shows, and the type is alive.
            None => unsafe { self.meet(py, ty) },
        };
        self.row = ty;
        self.clear = clear;
        self.may_fail = may_fail;
    }

    /// # Safety
    /// The type is alive.
    #[cold]
    #[inline(never)]
    unsafe fn meet(
        &mut self,
        py: Python<'py>,
        ty: *mut ffi::PyTypeObject,
    ) -> (Option<ffi::inquiry>, bool) {
        // SAFETY: attached, as `py` shows, and the type is alive; the slot has the type that
        // CPython documents.
        let slot = unsafe {
            ClearSlot {
                of: Bound::from_borrowed_ptr(py, ty.cast()),
                clear: mem::transmute::<*mut c_void, Option<ffi::inquiry>>(ffi::PyType_GetSlot(
                    ty,
                    ffi::Py_tp_clear,
                )),
                may_fail: ffi::PyType_GetFlags(ty) & ffi::Py_TPFLAGS_HEAPTYPE != 0,
            }
        };
        let found = (slot.clear, slot.may_fail);
        self.recent[self.taken % RECENT] = Some(slot);
        self.taken += 1;
        found
    }

    /// Writes an exception that a `tp_clear` left behind to standard error, as the collector does;
    /// asked once per row, since a `tp_clear` that fails is all but unknown.
    fn note_error(&self) {
        if !self.row.is_null() {
            // SAFETY: attached, as the slots show, and the type of the row is held by its slot.
            unsafe {
                if !ffi::PyErr_Occurred().is_null() {
                    ffi::PyErr_WriteUnraisable(self.row.cast());
                }
            }
        }
    }
}
