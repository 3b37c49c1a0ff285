//! Memory of which garbage has a view, but which something in use has too: no collection frees it.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::found::{Found, say_shared};
use super::live::{Depth, Live};

/// Pieces of memory that something in use has, each by its device and address.
pub(super) struct InUse(FxHashSet<(String, u64)>);

impl InUse {
    pub fn has(&self, device: &str, pointer: u64) -> bool {
        self.0.contains(&(device.to_owned(), pointer))
    }

    /// Drops from each leak the buffers that are in use, and leaks that have none left.
    pub fn drop_from(&self, found: &mut Vec<Found>) {
        for entry in found.iter_mut() {
            for occurrence in &mut entry.occurrences {
                occurrence
                    .buffers
                    .retain(|held| !self.has(&held.buffer.device, held.buffer.pointer));
            }
            entry
                .occurrences
                .retain(|occurrence| !occurrence.buffers.is_empty());
        }
        found.retain(|entry| !entry.occurrences.is_empty());
        say_shared(found);
    }
}

impl Inspector {
    /// The memory that something in use has; nothing of garbage is held meanwhile.
    pub(super) fn in_use(&self, py: Python<'_>) -> PyResult<InUse> {
        let depth = match self.is_backward_running(py) {
            true => Depth::Gradients,
            false => Depth::Graphs,
        };
        let live = Live::take(self, py, None, depth)?;
        let paths = live.shortest_paths();
        let used = live.buffers.iter().filter(|it| paths.reaches(it.node));
        let used = used.map(|it| (it.buffer.device.clone(), it.buffer.pointer));
        Ok(InUse(used.collect()))
    }

    /// Drops from leaks, found without a collection, what something in use has too.
    pub(super) fn drop_in_use(&self, py: Python<'_>, found: &mut Vec<Found>) -> PyResult<()> {
        if !found.is_empty() {
            self.in_use(py)?.drop_from(found);
        }
        Ok(())
    }
}
