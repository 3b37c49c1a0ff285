//! The leaks found so far in garbage, and what groups that look alike leak.

use rustc_hash::{FxHashMap, FxHashSet};

use super::assemble::Described;
use super::found::Found;
use crate::model::report::Buffer;

/// The leaks found so far.
#[derive(Default)]
pub(super) struct Leaks {
    pub found: Vec<Found>,
    by_signature: FxHashMap<String, usize>,
    /// By the fingerprint of groups: what they leak.
    pub alike: FxHashMap<u64, Alike>,
    /// What the groups that were described leak, by their shape.
    pub shaped: FxHashMap<u64, Shaped>,
    /// How many groups were described in all.
    pub described: usize,
}

/// A leak that a group has, with the numbers of the components that it is in, and the buffers as described.
pub(super) type Leaking = (usize, Vec<usize>, Vec<Buffer>);

/// What groups of one shape leak.
pub(super) struct Shaped {
    /// All of it is only to be counted.
    pub is_known: bool,
    /// The leaks, each with the numbers of the components that it is in.
    pub leaks: Vec<(usize, Vec<usize>)>,
}

/// What groups leaked that earlier collections met, by their shape.
#[derive(Default)]
pub struct Met(FxHashMap<u64, Vec<(Described, Vec<usize>)>>);

/// So many shapes are remembered; then it starts afresh.
const MOST_MET: usize = 64;

impl Met {
    /// Forgets them: the addresses that shapes are made from may stand for something else now.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What groups of one fingerprint leak.
#[derive(Default)]
pub(super) struct Alike {
    /// How many of them were described.
    pub described: usize,
    /// The leaks of the first, each with the fingerprints of the components that it is in.
    pub leaks: Vec<(usize, Vec<u64>)>,
}

/// Adds to the leaks of a group of which only a part was described the components that look like theirs, unless two of
/// the leaks look alike.
pub(super) fn add_alike(leaking: &mut [Leaking], prints: &[u64]) {
    let of_leak = |components: &[usize]| -> FxHashSet<u64> {
        components.iter().map(|&i| prints[i]).collect()
    };
    let own: Vec<FxHashSet<u64>> = leaking.iter().map(|it| of_leak(&it.1)).collect();
    let mut seen = FxHashSet::default();
    if own.iter().flatten().all(|print| seen.insert(print)) {
        for ((_, components, _), own) in leaking.iter_mut().zip(&own) {
            *components = (0..prints.len())
                .filter(|&i| own.contains(&prints[i]))
                .collect();
        }
    }
}

/// True if no two fingerprints are equal.
pub(super) fn are_distinct(prints: &[u64]) -> bool {
    let mut seen = FxHashSet::default();
    prints.iter().all(|print| seen.insert(print))
}

impl Leaks {
    /// Adds a leak, unless it is there already; says which it is.
    pub fn add(&mut self, leak: Described) -> usize {
        self.add_as(leak, false)
    }

    fn add_as(&mut self, leak: Described, is_counted_only: bool) -> usize {
        let signature = &leak.diagnosis.signature;
        if let Some(&index) = self.by_signature.get(signature) {
            return index;
        }
        let index = self.found.len();
        self.by_signature.insert(signature.clone(), index);
        self.found.push(Found {
            leak,
            freed: None,
            shared: Vec::new(),
            is_counted_only,
            occurrences: Vec::new(),
        });
        index
    }

    /// Adds what a group of this shape leaks, if it was met earlier and all of it is only to be counted.
    pub fn add_met(
        &mut self,
        met: &Met,
        shape: u64,
        is_known: &dyn Fn(&str) -> bool,
    ) -> Option<&Shaped> {
        let met = met.0.get(&shape)?;
        if !met
            .iter()
            .all(|(leak, _)| is_known(&leak.diagnosis.signature))
        {
            return None;
        }
        let leaks = met.iter();
        let leaks =
            leaks.map(|(leak, components)| (self.add_as(leak.clone(), true), components.clone()));
        let shaped = Shaped {
            is_known: true,
            leaks: leaks.collect(),
        };
        Some(self.shaped.entry(shape).insert_entry(shaped).into_mut())
    }

    /// Remembers what a group of this shape leaks.
    pub fn remember(&self, met: &mut Met, shape: u64, shaped: &Shaped) {
        if met.0.len() >= MOST_MET {
            met.forget();
        }
        let leaks = shaped.leaks.iter();
        let leaks =
            leaks.map(|(leak, components)| (self.found[*leak].leak.clone(), components.clone()));
        met.0.insert(shape, leaks.collect());
    }
}
