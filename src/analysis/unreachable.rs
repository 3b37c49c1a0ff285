//! What a collection would find, without one.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::busy::busy;
use super::room::{ROOM_FOR_OBJECT, ask_for_room, no_room};
use crate::collector::unreachable;
use crate::cpython::StoppedWorld;

/// Unreachable objects; none dies as long as this lives, if no code of the program's runs.
pub(super) struct Garbage<'py> {
    /// Before the lists, so that they are released when the other threads run again.
    _stopped: StoppedWorld<'py>,
    pub objects: Vec<*mut ffi::PyObject>,
    /// What the objects were listed in.
    lists: Vec<Bound<'py, PyList>>,
    /// Those that were in no list.
    _frozen: Vec<Bound<'py, PyAny>>,
}

impl<'py> Garbage<'py> {
    /// What is in lists, or frozen, is there once.
    pub fn new(
        stopped: StoppedWorld<'py>,
        objects: Vec<*mut ffi::PyObject>,
        lists: Vec<Bound<'py, PyList>>,
        frozen: Vec<Bound<'py, PyAny>>,
    ) -> Self {
        Self {
            _stopped: stopped,
            objects,
            lists,
            _frozen: frozen,
        }
    }

    /// How many references to each object this has.
    pub fn own_references(&self) -> i64 {
        self.lists.len().min(1) as i64
    }
}

/// A look that took more memory than this for its marks, in bytes, gives it back.
const MARKS: usize = 2 << 20;

impl Inspector {
    /// The objects that a full collection would find unreachable, before it ran any finalizer.
    ///
    /// # Errors
    /// As [`Inspector::find`].
    pub fn unreachable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let garbage = self.unreachable_up_to(py, None)?;
        let result = PyList::empty(py);
        for &object in &garbage.objects {
            result.append(self.object(py, object as usize))?;
        }
        Ok(result)
    }

    /// The unreachable ones among the objects of the generations up to `oldest`, or of all.
    pub(super) fn unreachable_up_to<'py>(
        &self,
        py: Python<'py>,
        oldest: Option<u32>,
    ) -> PyResult<Garbage<'py>> {
        let Some(state) = &self.gc.state else {
            return self.unreachable_listed(py, oldest);
        };
        let objects = state.objects(py, oldest.unwrap_or(u32::MAX));
        let objects = objects.ok_or_else(no_room)?;
        ask_for_room(objects.len(), ROOM_FOR_OBJECT)?;
        let stopped = StoppedWorld::new(py);
        // SAFETY: nothing that runs here destroys an object, and each is in one list, once.
        let unreachable = unsafe { self.unreachable_among(&objects, 0)? };
        Ok(Garbage::new(stopped, unreachable, Vec::new(), Vec::new()))
    }

    /// As `unreachable_up_to`, where it is not known how the collector has its lists.
    fn unreachable_listed<'py>(
        &self,
        py: Python<'py>,
        oldest: Option<u32>,
    ) -> PyResult<Garbage<'py>> {
        let lists = match oldest {
            Some(oldest) if oldest < 2 => (0..=oldest)
                .map(|generation| self.gc.listed(py, Some(generation)))
                .collect::<PyResult<Vec<_>>>()?,
            _ => vec![self.gc.listed(py, None)?],
        };
        let stopped = StoppedWorld::new(py);
        let count = lists.iter().map(|list| list.len()).sum();
        ask_for_room(count, ROOM_FOR_OBJECT)?;
        let mut objects: Vec<*mut ffi::PyObject> = Vec::with_capacity(count);
        for list in &lists {
            // SAFETY: attached; within the list, which lends its items.
            objects.extend(
                (0..list.len() as ffi::Py_ssize_t)
                    .map(|i| unsafe { ffi::PyList_GetItem(list.as_ptr(), i) }),
            );
        }
        // One list may be among the objects of another.
        objects.retain(|&object| lists.iter().all(|list| list.as_ptr() != object));
        // SAFETY: the lists hold each object, once.
        let unreachable = unsafe { self.unreachable_among(&objects, 1)? };
        Ok(Garbage::new(stopped, unreachable, lists, Vec::new()))
    }

    /// The addresses of all objects that the collector knows; `None` if that is not to be had.
    pub(crate) fn tracked_addresses(&self, py: Python<'_>) -> Option<FxHashSet<usize>> {
        let objects = self.gc.state?.objects(py, u32::MAX)?;
        ask_for_room(objects.len(), ROOM_FOR_OBJECT).ok()?;
        Some(objects.iter().map(|&object| object as usize).collect())
    }

    /// # Safety
    /// As for [`unreachable`].
    pub(super) unsafe fn unreachable_among(
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
