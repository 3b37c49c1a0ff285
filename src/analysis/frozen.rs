//! Garbage that no collection frees, as `gc.freeze()` has excluded it.

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::found::{Behind, Detail, Found};
use super::room::{ROOM_FOR_OBJECT, ask_for_room, no_room};
use crate::device::DeviceSelection;
use crate::memory::array::in_turn;

impl Inspector {
    /// The leaks that are unreachable but no collection would find: an unreachable object in the permanent generation
    /// is in the cycle, or keeps it.
    ///
    /// Takes about as long as a full collection of all objects, the frozen ones too; no time if nothing is frozen. None
    /// where the permanent generation cannot be read: with the incremental collector of CPython 3.14.0 to 3.14.4, and
    /// in free-threaded builds.
    ///
    /// # Errors
    /// As [`Inspector::find`].
    pub(crate) fn look_at_frozen(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
    ) -> PyResult<Vec<Found>> {
        if !self.frameworks_known() {
            return Ok(Vec::new());
        }
        let kept = self.unreachable_and_frozen(py)?;
        // As in `look`.
        let _held: Vec<Bound<'_, PyAny>> = kept
            .iter()
            .map(|&object| self.object(py, object as usize))
            .collect();
        if !self.triage(py, in_turn(&kept), devices)?.holds_buffer {
            return Ok(Vec::new());
        }
        let (found, _) = self.examine(
            py,
            &kept,
            1,
            devices,
            Detail::of(usize::MAX),
            Behind::Ignored,
        )?;
        Ok(found)
    }

    /// The unreachable objects, without those that a collection would find.
    fn unreachable_and_frozen(&self, py: Python<'_>) -> PyResult<Vec<*mut ffi::PyObject>> {
        let frozen = self.gc.frozen(py);
        let Some(state) = self.gc.state.filter(|_| !frozen.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut objects = state.objects(py, u32::MAX).ok_or_else(no_room)?;
        let tracked = objects.len();
        ask_for_room(tracked + frozen.len(), ROOM_FOR_OBJECT)?;
        objects.extend(frozen);
        // SAFETY: attached; nothing that runs here destroys an object, and each is in one list, once.
        let mut unreachable = unsafe { self.unreachable_among(&objects, 0)? };
        if !unreachable.is_empty() {
            // SAFETY: as above.
            let freed = unsafe { self.unreachable_among(&objects[..tracked], 0)? };
            let freed: FxHashSet<_> = freed.into_iter().collect();
            unreachable.retain(|object| !freed.contains(object));
        }
        Ok(unreachable)
    }
}
