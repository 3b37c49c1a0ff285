//! The memory that goes with garbage.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use crate::capture::{Snapshot, SnapshotObject};
use crate::device::{DeviceBuffer, DeviceSelection, Frameworks, Reading};

impl Inspector {
    /// What each object of a snapshot holds, if nothing else keeps the object alive; or if only views do that go, or
    /// C++, and the storage is one of an object that nothing else keeps: it is a view of it, or the other way round.
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
        // Each storage on the memory of an array has a reference to it, or to a view of it, in C++.
        let lent: Vec<(u64, DeviceBuffer)> = snapshot
            .objects
            .iter()
            .zip(&held)
            .filter(|(_, held)| held.iter().any(|it| it.is_lent))
            .filter_map(|(object, held)| {
                let tensor = self.object(py, object.address);
                let identity = frameworks.storage_identity(&tensor)?;
                Some((identity, held.first()?.clone()))
            })
            .collect();
        let storages_on = |whole: &[DeviceBuffer]| match whole {
            [whole] => {
                let on_it = lent.iter().filter(|(_, part)| whole.contains(part));
                let on_it: FxHashSet<u64> = on_it.map(|(identity, _)| *identity).collect();
                on_it.len() as i64
            }
            _ => 0,
        };
        // How often views that go refer to each array: the collector does not know of that.
        let mut views: FxHashMap<usize, i64> = FxHashMap::default();
        let of_views = snapshot.objects.iter().zip(&held);
        for (object, _) in of_views.filter(|(_, held)| !held.is_empty()) {
            let view = self.object(py, object.address);
            if let Some(base) = frameworks.base(object.verdict, &view) {
                *views.entry(base).or_default() += 1;
            }
        }
        for (object, held) in snapshot.objects.iter().zip(&mut held) {
            let of_views = views.get(&object.address).copied().unwrap_or_default();
            let may_go = || {
                of_views > 0 && object.outside_references <= of_views
                    || frameworks
                        .may_be_held_by_cpp(object.verdict, &self.object(py, object.address))
            };
            if object.verdict == 0 || !is_shared(object) {
                continue;
            }
            if may_go() {
                let all = buffers(object);
                if all.iter().all(|it| going.contains(&storage(it))) {
                    *held = all;
                }
            } else if !lent.is_empty() && object.outside_references <= lent.len() as i64 + of_views
            {
                let all = buffers(object);
                if object.outside_references <= storages_on(&all) + of_views {
                    *held = all;
                }
            }
        }
        held
    }
}
