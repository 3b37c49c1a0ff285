//! The destruction of garbage that leaked, and how much memory that gives back.

use pyo3::prelude::*;

use crate::device::{DeviceSelection, allocated_bytes};
use crate::heap::Snapshot;
use crate::hook::Garbage;
use crate::inspector::Examination;

/// Destroys garbage one leak at a time, reading the allocator's counters before and after each.
///
/// An object that something outside of the garbage refers to again is left alone, and so is what
/// it refers to.
pub fn destroy_leak_by_leak(
    py: Python<'_>,
    garbage: &mut Garbage<'_>,
    examination: &mut Examination,
) {
    if !garbage.is_ours() {
        return;
    }
    let snapshot = &examination.snapshot;
    let count = garbage.len();
    let alive = closure(
        snapshot,
        (0..count).filter(|&i| snapshot.objects[i].outside_references > 0),
        |_| true,
    );
    for &i in &alive {
        garbage.keep(i);
    }
    let mut taken = vec![false; count];
    for entry in &mut examination.found {
        let starts = entry
            .occurrences
            .iter()
            .flat_map(|o| &o.members)
            .map(|&i| i as usize);
        let mut indices = closure(snapshot, starts.filter(|&i| i < count && !taken[i]), |i| {
            !taken[i]
        });
        indices.sort_unstable();
        for &i in &indices {
            taken[i] = true;
        }
        let devices = entry.devices();
        let before = counters(py, &devices);
        garbage.clear(indices);
        let after = counters(py, &devices);
        if let (Some(before), Some(after)) = (before, after) {
            entry.set_freed(before.saturating_sub(after));
        }
    }
}

/// The objects of the garbage that can be reached from `starts` through objects that `enter` allows.
fn closure(
    snapshot: &Snapshot,
    starts: impl Iterator<Item = usize>,
    enter: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let mut seen = vec![false; snapshot.len()];
    let mut pending: Vec<usize> = starts.collect();
    for &start in &pending {
        seen[start] = true;
    }
    let mut found = Vec::new();
    while let Some(object) = pending.pop() {
        if snapshot.objects[object].in_garbage {
            found.push(object);
        }
        for &target in snapshot.targets(object) {
            let target = target as usize;
            let allowed = !snapshot.objects[target].in_garbage || enter(target);
            if allowed && !std::mem::replace(&mut seen[target], true) {
                pending.push(target);
            }
        }
    }
    found
}

/// The sum of the allocator's counts of some devices; `None` if there are none.
fn counters(py: Python<'_>, devices: &[String]) -> Option<u64> {
    devices
        .iter()
        .filter_map(|device| allocated_bytes(py, device))
        .reduce(|a, b| a + b)
}

/// The allocator's counts of the CUDA devices that are watched.
pub fn allocated(py: Python<'_>, devices: &DeviceSelection) -> Vec<(String, u64)> {
    if !devices.includes_kind("cuda") {
        return Vec::new();
    }
    (0..16)
        .map(|i| format!("cuda:{i}"))
        .map_while(|device| allocated_bytes(py, &device).map(|bytes| (device, bytes)))
        .collect()
}

/// How many bytes fewer are allocated now, over all devices.
pub fn freed_since(py: Python<'_>, before: &[(String, u64)]) -> u64 {
    before
        .iter()
        .filter_map(|(device, bytes)| Some(bytes.saturating_sub(allocated_bytes(py, device)?)))
        .sum()
}
