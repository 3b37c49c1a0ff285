//! Garbage that no collection frees, as `gc.freeze()` has excluded it.

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::found::{Behind, Found};
use super::room::{ROOM_FOR_OBJECT, ask_for_room, no_room};
use super::unreachable::Garbage;
use crate::cpython::StoppedWorld;
use crate::device::DeviceSelection;

impl Inspector {
    /// The leaks that are unreachable but no collection would find: an unreachable object in the permanent generation
    /// is in the cycle, or keeps it.
    ///
    /// Takes about as long as a full collection of all objects, the frozen ones too; no time if nothing is frozen. None
    /// where the permanent generation cannot be read: with the incremental collector of CPython 3.14.0 to 3.14.4.
    pub(crate) fn look_at_frozen(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
    ) -> PyResult<Vec<Found>> {
        if !self.frameworks_known() {
            return Ok(Vec::new());
        }
        let Some(kept) = self.unreachable_and_frozen(py)? else {
            return Ok(Vec::new());
        };
        let (own, behind) = (kept.own_references(), Behind::Ignored);
        let mut found = self.leaks_in(py, &kept.objects, own, devices, usize::MAX, behind)?;
        drop(kept);
        self.drop_in_use(py, &mut found)?;
        Ok(found)
    }

    /// The unreachable objects, without those that a collection would find; `None` if nothing is frozen.
    fn unreachable_and_frozen<'py>(&self, py: Python<'py>) -> PyResult<Option<Garbage<'py>>> {
        if let Some(state) = &self.gc.state {
            let frozen = self.gc.frozen_in_place(py);
            if frozen.is_empty() {
                return Ok(None);
            }
            let mut objects = state.objects(py, u32::MAX).ok_or_else(no_room)?;
            let tracked = objects.len();
            ask_for_room(tracked + frozen.len(), ROOM_FOR_OBJECT)?;
            objects.extend(frozen);
            let stopped = StoppedWorld::new(py);
            // SAFETY: attached; nothing that runs here destroys an object, and each is in one list, once.
            let unreachable = unsafe { self.not_collected(&objects, tracked, 0)? };
            return Ok(Some(Garbage::new(
                stopped,
                unreachable,
                Vec::new(),
                Vec::new(),
            )));
        }
        let frozen = self.gc.frozen(py);
        if frozen.is_empty() {
            return Ok(None);
        }
        let listed = self.gc.listed(py, None)?;
        let stopped = StoppedWorld::new(py);
        ask_for_room(listed.len() + frozen.len(), ROOM_FOR_OBJECT)?;
        let mut objects: Vec<_> = listed.iter().map(|object| object.as_ptr()).collect();
        let tracked = objects.len();
        objects.extend(frozen.iter().map(Bound::as_ptr));
        // SAFETY: each object is held once.
        let unreachable = unsafe { self.not_collected(&objects, tracked, 1)? };
        Ok(Some(Garbage::new(
            stopped,
            unreachable,
            vec![listed],
            frozen,
        )))
    }

    /// The unreachable ones among objects of which the first `tracked` are not frozen, without those that are unreachable
    /// among these alone.
    ///
    /// # Safety
    /// As for [`Inspector::unreachable_among`].
    unsafe fn not_collected(
        &self,
        objects: &[*mut ffi::PyObject],
        tracked: usize,
        own_references: i64,
    ) -> PyResult<Vec<*mut ffi::PyObject>> {
        // SAFETY: by this function's contract.
        let mut unreachable = unsafe { self.unreachable_among(objects, own_references)? };
        if !unreachable.is_empty() {
            // SAFETY: as above.
            let freed = unsafe { self.unreachable_among(&objects[..tracked], own_references)? };
            let freed: FxHashSet<_> = freed.into_iter().collect();
            unreachable.retain(|object| !freed.contains(object));
        }
        Ok(unreachable)
    }
}
