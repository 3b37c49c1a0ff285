//! What a collection saved in `gc.garbage`: where it begins there, and how it is taken out.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::super::clear::Garbage;
use super::Shared;

/// What `gc.garbage` held when the collection began.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Older {
    pub(super) length: isize,
    /// The last entry, to compare by address only; null if there was none.
    last: *mut ffi::PyObject,
}

impl Shared {
    /// Takes out of `gc.garbage` what was saved, and what came after that and is no garbage.
    pub(super) fn take<'py>(
        &self,
        py: Python<'py>,
        start: isize,
        end: isize,
    ) -> Option<Garbage<'py>> {
        let list = self.gc.garbage.bind(py);
        let after = self.garbage_length(py);
        if after == end
            && let Some(layout) = &self.layout
        {
            let mut objects = self.memory.take();
            if layout.split_off(list, start, &mut objects) {
                return Some(Garbage::taken(py, objects, self.types));
            }
        }
        let mut garbage = Garbage::new(list, start..end, self.types);
        let uncollectable = (after > end).then(|| self.slice(py, end, after)).flatten();
        // SAFETY: attached; removes the tail, which `garbage` and `uncollectable` hold.
        let removed = unsafe { ffi::PyList_SetSlice(list.as_ptr(), start, after, ptr::null_mut()) };
        if removed != 0 {
            // SAFETY: attached.
            unsafe { ffi::PyErr_Clear() };
            return None;
        }
        garbage.take_over();
        if let Some(uncollectable) = uncollectable {
            self.put_back_uncollectable(py, &uncollectable);
        }
        Some(garbage)
    }

    /// Where in `gc.garbage` begins what the collection saved, given where it ends.
    ///
    /// Directly after the older entries, as a rule. How many there are cannot be told for certain:
    /// CPython counts as collected also the weak references that died of their callbacks
    /// (`handle_weakrefs`). If a finalizer or a weak reference's callback changed the list, the
    /// saved objects still come last, since the collector saves after it has run those.
    pub(super) fn start_of_saved(
        &self,
        py: Python<'_>,
        older: Older,
        end: isize,
        collected: isize,
    ) -> isize {
        let untouched = end >= older.length
            && end - older.length <= collected
            && self.garbage_entry(py, older.length - 1) == older.last;
        if untouched {
            older.length
        } else {
            (end - collected).max(0)
        }
    }

    /// Puts back what CPython keeps in `gc.garbage` without `DEBUG_SAVEALL` too: the objects with a
    /// finalizer of the old kind, but not what they refer to (`handle_legacy_finalizers`).
    pub(super) fn put_back_uncollectable(&self, py: Python<'_>, uncollected: &Bound<'_, PyList>) {
        for object in uncollected.iter() {
            // SAFETY: attached, and the object and its type are alive.
            let legacy =
                unsafe { ffi::PyType_GetSlot(ffi::Py_TYPE(object.as_ptr()), ffi::Py_tp_del) };
            if !legacy.is_null() {
                let appended = self.gc.garbage.bind(py).append(object);
                drop(appended);
            }
        }
    }

    /// What `gc.garbage` holds now.
    pub(super) fn older(&self, py: Python<'_>) -> Older {
        let length = self.garbage_length(py);
        let last = self.garbage_entry(py, length - 1);
        Older { length, last }
    }

    pub(super) fn garbage_length(&self, _py: Python<'_>) -> isize {
        // SAFETY: attached; this is a list.
        unsafe { ffi::PyList_Size(self.gc.garbage.as_ptr()) }
    }

    /// The entry at an index, borrowed; null if there is none.
    pub(super) fn garbage_entry(&self, py: Python<'_>, index: isize) -> *mut ffi::PyObject {
        if index < 0 || index >= self.garbage_length(py) {
            return ptr::null_mut();
        }
        // SAFETY: attached; this is a list, and the index is within it.
        unsafe { ffi::PyList_GetItem(self.gc.garbage.as_ptr(), index) }
    }

    pub(super) fn slice<'py>(
        &self,
        py: Python<'py>,
        from: isize,
        to: isize,
    ) -> Option<Bound<'py, PyList>> {
        // SAFETY: attached; a new list, or null with an exception set.
        let slice = unsafe {
            let slice = ffi::PyList_GetSlice(self.gc.garbage.as_ptr(), from, to);
            Bound::from_owned_ptr_or_opt(py, slice)
        };
        if slice.is_none() {
            // SAFETY: attached.
            unsafe { ffi::PyErr_Clear() };
        }
        slice?.cast_into::<PyList>().ok()
    }
}
