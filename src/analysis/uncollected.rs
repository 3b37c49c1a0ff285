//! Garbage that no collection frees.

use std::cell::OnceCell;

use rustc_hash::{FxHashMap, FxHashSet};

use super::live::Live;
use crate::capture::Csr;

/// The references of a heap turned round, once somebody asks for them.
pub(super) struct Reversed<'a> {
    graph: &'a Csr,
    reversed: OnceCell<Csr>,
}

impl<'a> Reversed<'a> {
    pub fn of(graph: &'a Csr) -> Self {
        Self {
            graph,
            reversed: OnceCell::new(),
        }
    }

    pub fn get(&self) -> &Csr {
        self.reversed.get_or_init(|| self.graph.reversed())
    }
}

/// Why no collection frees an object that nothing holds.
pub(super) enum Uncollected {
    /// A cycle that leads to it is in the permanent generation (`gc.freeze`).
    Frozen,
    /// A loop leads to it, from an object back to the same, by a reference that the collector does not know:
    /// it takes the object for one in use.
    Loop(Vec<u32>),
}

impl Live<'_> {
    /// The references that only C++ knows: no collection frees a cycle that passes one.
    pub(super) fn unknown_to_collector(&self) -> impl Iterator<Item = (u32, u32)> {
        let hidden = self.hidden.keys().copied();
        hidden.filter(|&(from, _)| !self.is_frame(from))
    }

    /// Why no collection will free `targets` once some references are removed, after which nothing in use
    /// leads to them; `None` if one will.
    ///
    /// What only C++ refers by is freed too where the object that has the reference is. So it takes a loop
    /// with such a reference in it: without one, each is freed when its holder is.
    pub(super) fn uncollected(
        &self,
        targets: &[u32],
        removed: &FxHashSet<(u32, u32)>,
        reversed: &Reversed<'_>,
    ) -> Option<Uncollected> {
        let hidden = self.unknown_to_collector();
        let mut within: Vec<(u32, u32)> = hidden.filter(|it| !removed.contains(it)).collect();
        if self.frozen.is_empty() && within.is_empty() {
            return None;
        }
        let leads = closure(reversed.get(), targets.iter().copied(), |to, from| {
            !removed.contains(&(from, to)) && !self.is_own(from)
        });
        let passes = |from: u32, to: u32| leads.contains(&to) && !removed.contains(&(from, to));
        let is_in_cycle = |node: u32| {
            let mut targets = self.graph().targets(node).iter().copied();
            targets.any(|to| passes(node, to) && shortest(self.graph(), to, node, passes).is_some())
        };
        let mut frozen = leads
            .iter()
            .copied()
            .filter(|node| self.frozen.contains(node));
        if frozen.any(is_in_cycle) {
            return Some(Uncollected::Frozen);
        }
        within.retain(|(from, to)| leads.contains(from) && leads.contains(to));
        within.sort_unstable();
        within
            .into_iter()
            .find_map(|(from, to)| shortest(self.graph(), to, from, passes).map(Uncollected::Loop))
    }
}

/// All nodes that some lead to by references that `passes` lets through, themselves included.
pub(super) fn closure(
    graph: &Csr,
    from: impl Iterator<Item = u32>,
    passes: impl Fn(u32, u32) -> bool,
) -> FxHashSet<u32> {
    let mut pending: Vec<u32> = from.collect();
    let mut seen: FxHashSet<u32> = pending.iter().copied().collect();
    while let Some(node) = pending.pop() {
        let targets = graph.targets(node).iter().copied();
        pending.extend(targets.filter(|&target| passes(node, target) && seen.insert(target)));
    }
    seen
}

/// A shortest path from one node to another by references that `passes` lets through, and the first again.
fn shortest(
    graph: &Csr,
    from: u32,
    to: u32,
    passes: impl Fn(u32, u32) -> bool,
) -> Option<Vec<u32>> {
    let mut before = FxHashMap::from_iter([(from, from)]);
    let mut order = vec![from];
    let mut next = 0;
    while let Some(&node) = order.get(next) {
        next += 1;
        if node == to {
            let above = |&node: &u32| before.get(&node).copied().filter(|&above| above != node);
            let mut path: Vec<u32> = std::iter::successors(Some(node), above).collect();
            path.reverse();
            path.push(from);
            return Some(path);
        }
        for &target in graph.targets(node) {
            if passes(node, target) && !before.contains_key(&target) {
                before.insert(target, node);
                order.push(target);
            }
        }
    }
    None
}
