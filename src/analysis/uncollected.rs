//! Garbage that no collection frees.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::live::Live;
use crate::capture::Csr;

/// Why no collection frees an object that nothing holds.
pub(super) enum Uncollected {
    /// An object that leads to it is in the permanent generation (`gc.freeze`).
    Frozen,
    /// A loop leads to it, from an object back to the same, by a reference that the collector does not know:
    /// it takes the object for one in use.
    Loop(Vec<u32>),
}

impl Live<'_> {
    /// Why no collection will free `targets` once some references are removed; `None` if one will.
    ///
    /// What only C++ refers by is freed too where the object that has the reference is. So it takes a loop
    /// with such a reference in it: without one, each is freed when its holder is.
    pub(super) fn uncollected(
        &self,
        inspector: &Inspector,
        targets: &[u32],
        removed: &FxHashSet<(u32, u32)>,
    ) -> Option<Uncollected> {
        let frozen = inspector.gc.frozen(self.py());
        let frozen: FxHashSet<u32> = frozen
            .into_iter()
            .filter_map(|object| self.objects.number_at(object as usize))
            .collect();
        if frozen.is_empty() && self.hidden.is_empty() {
            return None;
        }
        let paths = self.shortest_paths_without(removed);
        let back = self.graph().reversed();
        // What leads to the targets and nothing in use leads to.
        let leads = closure(&back, targets.iter().copied(), |node| !paths.reaches(node));
        if targets.iter().any(|target| !leads.contains(target)) {
            return None;
        }
        if leads.iter().any(|node| frozen.contains(node)) {
            return Some(Uncollected::Frozen);
        }
        let hidden = self.hidden.keys().copied();
        let mut within: Vec<(u32, u32)> = hidden
            .filter(|(from, to)| leads.contains(from) && leads.contains(to))
            .filter(|(from, _)| !self.is_frame(*from))
            .collect();
        within.sort_unstable();
        within.into_iter().find_map(|(from, to)| {
            let nodes = shortest(self.graph(), to, from, |node| leads.contains(&node))?;
            Some(Uncollected::Loop(nodes))
        })
    }
}

/// All nodes that some lead to through nodes that `passes` lets through, themselves included.
fn closure(
    graph: &Csr,
    from: impl Iterator<Item = u32>,
    passes: impl Fn(u32) -> bool,
) -> FxHashSet<u32> {
    let mut pending: Vec<u32> = from.filter(|&node| passes(node)).collect();
    let mut seen: FxHashSet<u32> = pending.iter().copied().collect();
    while let Some(node) = pending.pop() {
        let targets = graph.targets(node).iter().copied();
        pending.extend(targets.filter(|&target| passes(target) && seen.insert(target)));
    }
    seen
}

/// A shortest path from one node to another through nodes that `passes` lets through, and the first again.
fn shortest(graph: &Csr, from: u32, to: u32, passes: impl Fn(u32) -> bool) -> Option<Vec<u32>> {
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
            if passes(target) && !before.contains_key(&target) {
                before.insert(target, node);
                order.push(target);
            }
        }
    }
    None
}
