//! What a leak keeps in C++, where the collector does not follow: gradients, and tensors to which C++ has a reference
//! too.
//!
//! What is found here may have other owners, which no reference count shows. A leak held it if it went with the leak,
//! so it counts only where that is confirmed ([`super::found::confirm_gone`]).

use std::cell::{Cell, OnceCell};

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::found::Behind;
use crate::capture::Snapshot;
use crate::device::{DeviceBuffer, DeviceSelection, Frameworks};
use crate::graph::Group;
use crate::model::report::{CPP, GRADIENT};

/// A gradient may have one itself, and so on.
const GRADIENTS: usize = 4;
/// For each object of the garbage, so many are visited at most in the search for tensors that C++ refers to: leaks of
/// one lot of garbage may share what they hold.
const VISITS: usize = 8;

/// The search for what leaks of one lot of garbage keep in C++.
pub(super) struct Search<'a> {
    snapshot: &'a Snapshot,
    frameworks: &'a Frameworks,
    devices: &'a DeviceSelection,
    behind: Behind,
    /// Of each object of the snapshot whether a tensor that C++ refers to can be reached from it.
    leads: OnceCell<Vec<bool>>,
    /// How many more objects may be visited.
    visits: Cell<usize>,
    /// No other thread uses gradients.
    calm: OnceCell<bool>,
}

/// A tensor that a leak keeps in C++.
pub(super) struct Kept<'py> {
    pub tensor: Bound<'py, PyAny>,
    pub buffer: DeviceBuffer,
    /// As [`crate::model::report::Buffer::kept_by`].
    pub by: &'static str,
}

impl<'a> Search<'a> {
    pub fn new(
        snapshot: &'a Snapshot,
        frameworks: &'a Frameworks,
        devices: &'a DeviceSelection,
        behind: Behind,
    ) -> Self {
        Self {
            snapshot,
            frameworks,
            devices,
            behind,
            leads: OnceCell::new(),
            visits: Cell::new(VISITS * snapshot.len()),
            calm: OnceCell::new(),
        }
    }

    /// What these components of a group keep in C++; `buffers` are the tensors that are theirs for certain.
    pub fn kept<'py>(
        &self,
        inspector: &Inspector,
        py: Python<'py>,
        group: &Group,
        components: &[usize],
        buffers: &[u32],
    ) -> Vec<Kept<'py>> {
        if self.behind == Behind::Ignored {
            return Vec::new();
        }
        let tensor = |object: u32| {
            let address = self.snapshot.objects[object as usize].address;
            inspector.object(py, address)
        };
        let mut kept = Vec::new();
        for &buffer in buffers {
            self.add_gradients(&tensor(buffer), false, &mut kept);
        }
        for shared in self.shared(group, components) {
            let shared = tensor(shared);
            if let Some(buffer) = self.buffer(&shared) {
                kept.push(Kept {
                    tensor: shared.clone(),
                    buffer,
                    by: CPP,
                });
            }
            if self.behind == Behind::CountedByRequest
                && *self
                    .calm
                    .get_or_init(|| !inspector.are_gradients_in_use(py))
            {
                self.add_gradients(&shared, true, &mut kept);
            }
        }
        kept
    }

    /// The memory of a tensor, if it is on one of the devices.
    fn buffer(&self, tensor: &Bound<'_, PyAny>) -> Option<DeviceBuffer> {
        let verdict = self.frameworks.verdict_of(tensor);
        self.frameworks.buffer(verdict, tensor, self.devices)
    }

    /// Adds the gradient of a tensor, which may be `shared` with C++, and the gradient's own.
    fn add_gradients<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        shared: bool,
        kept: &mut Vec<Kept<'py>>,
    ) {
        let mut tensor = tensor.clone();
        for _ in 0..GRADIENTS {
            let Some(gradient) = self.frameworks.gradient_of(&tensor, shared) else {
                break;
            };
            // To take a sparse one apart runs operators of PyTorch's.
            let parts = match self.behind {
                Behind::CountedByRequest => self.frameworks.dense_parts(&gradient),
                _ => vec![gradient.clone()],
            };
            for tensor in parts {
                if let Some(buffer) = self.buffer(&tensor) {
                    let by = GRADIENT;
                    kept.push(Kept { tensor, buffer, by });
                }
            }
            tensor = gradient;
        }
    }

    /// The tensors that components of a group refer to and C++ does too, as indices in the snapshot.
    fn shared(&self, group: &Group, components: &[usize]) -> Vec<u32> {
        let leads = self.leads.get_or_init(|| self.leading_to_shared());
        if leads.is_empty() {
            return Vec::new();
        }
        let members = components.iter().filter_map(|&i| group.components.get(i));
        let mut pending: Vec<u32> = members.flatten().copied().collect();
        let mut seen: FxHashSet<u32> = pending.iter().copied().collect();
        let mut shared = Vec::new();
        while let Some(object) = pending.pop() {
            let Some(visits) = self.visits.get().checked_sub(1) else {
                break;
            };
            self.visits.set(visits);
            if self.is_shared(object) {
                shared.push(object);
            }
            for &target in self.snapshot.targets(object as usize) {
                if leads[target as usize] && seen.insert(target) {
                    pending.push(target);
                }
            }
        }
        shared.sort_unstable();
        shared
    }

    /// Of each object whether it leads to a tensor that C++ refers to; empty if there is none.
    fn leading_to_shared(&self) -> Vec<bool> {
        let count = self.snapshot.len() as u32;
        let mut pending: Vec<u32> = (0..count).filter(|&i| self.is_shared(i)).collect();
        if pending.is_empty() {
            return Vec::new();
        }
        let mut referrers: Vec<Vec<u32>> = vec![Vec::new(); count as usize];
        for object in 0..count {
            for &target in self.snapshot.targets(object as usize) {
                referrers[target as usize].push(object);
            }
        }
        let mut leads = vec![false; count as usize];
        while let Some(object) = pending.pop() {
            if !std::mem::replace(&mut leads[object as usize], true) {
                pending.extend(&referrers[object as usize]);
            }
        }
        leads
    }

    /// True for a tensor with references from outside of the garbage: of live objects, or of C++.
    fn is_shared(&self, object: u32) -> bool {
        let object = &self.snapshot.objects[object as usize];
        Frameworks::is_tensor(object.verdict) && !object.in_garbage && object.outside_references > 0
    }
}
