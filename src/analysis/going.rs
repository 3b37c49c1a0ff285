//! The memory that goes with garbage.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use crate::capture::{Snapshot, SnapshotObject};
use crate::device::{DeviceBuffer, DeviceSelection, Frameworks, Reading};

impl Inspector {
    /// What each object of a snapshot holds, if nothing else keeps the object alive; or if C++ does, and the storage is
    /// one of an object that nothing else keeps: it is a view of it, or the other way round.
    pub(super) fn buffers_in(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        frameworks: &Frameworks,
        reading: Reading,
        devices: &DeviceSelection,
    ) -> Vec<Vec<DeviceBuffer>> {
        let buffers = |object: &SnapshotObject| {
            let held = self.object(py, object.address);
            frameworks.buffers_read(reading, object.verdict, &held, devices)
        };
        let is_shared =
            |object: &SnapshotObject| !object.in_garbage && object.outside_references > 0;
        let objects = snapshot.objects.iter();
        let held = objects.map(|object| match object.verdict != 0 && !is_shared(object) {
            true => buffers(object),
            false => Vec::new(),
        });
        let mut held: Vec<Vec<DeviceBuffer>> = held.collect();
        let storage = |buffer: &DeviceBuffer| (buffer.device.clone(), buffer.pointer);
        let going: FxHashSet<(String, u64)> = held.iter().flatten().map(storage).collect();
        if going.is_empty() {
            return held;
        }
        for (object, held) in snapshot.objects.iter().zip(&mut held) {
            if is_shared(object)
                && frameworks.may_be_held_by_cpp(object.verdict, &self.object(py, object.address))
            {
                let all = buffers(object);
                if all.iter().all(|it| going.contains(&storage(it))) {
                    *held = all;
                }
            }
        }
        held
    }
}
