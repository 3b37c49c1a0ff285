//! What a collection would find, without one.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashSet;

use super::room::{ROOM_FOR_OBJECT, ask_for_room};
use super::{Inspector, busy};
use crate::heap::unreachable;

/// A look that took more memory than this for its marks, in bytes, gives it back.
const MARKS: usize = 2 << 20;

impl Inspector {
    /// The objects that a full collection would find unreachable, before it ran any finalizer.
    ///
    /// # Errors
    /// As [`Inspector::find`].
    pub fn unreachable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let lists = [self.gc.objects(py, None)?];
        let garbage = self.unreachable_in(&lists)?;
        let result = PyList::empty(py);
        for object in garbage {
            result.append(self.object(py, object as usize))?;
        }
        Ok(result)
    }

    /// The unreachable ones among the objects of some lists.
    pub(super) fn unreachable_in(
        &self,
        lists: &[Bound<'_, PyList>],
    ) -> PyResult<Vec<*mut ffi::PyObject>> {
        let count = lists.iter().map(|list| list.len()).sum();
        ask_for_room(count, ROOM_FOR_OBJECT)?;
        let mut objects: Vec<*mut ffi::PyObject> = Vec::with_capacity(count);
        for list in lists {
            match self.layouts.lists {
                // SAFETY: attached; nothing changes the list while it is copied.
                Some(layout) => objects.extend_from_slice(unsafe { layout.items(list.as_ptr()) }),
                // SAFETY: attached; within the list, which lends its items.
                None => objects.extend(
                    (0..list.len() as ffi::Py_ssize_t)
                        .map(|i| unsafe { ffi::PyList_GetItem(list.as_ptr(), i) }),
                ),
            }
        }
        // One list may be among the objects of another.
        objects.retain(|&object| lists.iter().all(|list| list.as_ptr() != object));
        // SAFETY: the lists hold each object, once.
        unsafe { self.unreachable_among(&objects, 1) }
    }

    /// Which of the objects, by index, something outside of them refers to, directly or through
    /// others of them; all if the inspector is at work already.
    pub(crate) fn held(
        &self,
        _py: Python<'_>,
        objects: &[*mut ffi::PyObject],
        own_references: i64,
    ) -> Vec<usize> {
        // SAFETY: attached; the caller holds the objects, which are distinct.
        let Ok(free) = (unsafe { self.unreachable_among(objects, own_references) }) else {
            return (0..objects.len()).collect();
        };
        let free: FxHashSet<_> = free.into_iter().collect();
        (0..objects.len())
            .filter(|&index| !free.contains(&objects[index]))
            .collect()
    }

    /// # Safety
    /// As for [`unreachable`].
    unsafe fn unreachable_among(
        &self,
        objects: &[*mut ffi::PyObject],
        own_references: i64,
    ) -> PyResult<Vec<*mut ffi::PyObject>> {
        let mut table = self.table.try_borrow_mut().map_err(|_| busy())?;
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        // SAFETY: attached, by this function's contract; the types that are classified are alive.
        let classify = |ty| unsafe { frameworks.classify(ty) };
        let mut marks = self.marks.take().unwrap_or_default();
        // SAFETY: by this function's contract.
        let free = unsafe {
            unreachable(
                &mut table,
                &self.builtins,
                &classify,
                &mut marks,
                objects,
                own_references,
            )
        };
        if marks.bytes() <= MARKS {
            for &object in objects {
                marks.forget(object as usize);
            }
            self.marks.set(Some(marks));
        }
        Ok(free)
    }
}
