//! Which references are the only way to an object.

use rustc_hash::FxHashMap;

use super::dominators::Dominators;
use crate::capture::Csr;

/// So many steps up the dominator tree are made in all. Past them a reference counts as no bridge.
const STEPS: usize = 20_000_000;

/// The references without which no root reaches their object, of those that were asked about: removing
/// one frees the object, and all that the object dominates.
///
/// A reference is one if its owner is the immediate dominator of the object, refers to it once, and whatever
/// else refers to it is reached through the object only.
#[derive(Default)]
pub struct Bridges {
    owners: FxHashMap<u32, u32>,
}

impl Bridges {
    /// Which of some references, as pairs of owner and object, are bridges. One pass over all references.
    pub fn new(
        graph: &Csr,
        dominators: &Dominators,
        references: impl Iterator<Item = (u32, u32)>,
    ) -> Self {
        let mut owners: FxHashMap<u32, u32> = references
            .filter(|&(owner, object)| dominators.immediate(object) == owner)
            .map(|(owner, object)| (object, owner))
            .collect();
        if owners.is_empty() {
            return Self { owners };
        }
        let mut wanted = vec![false; graph.node_count()];
        for &object in owners.keys() {
            wanted[object as usize] = true;
        }
        let mut steps = 0;
        let mut comes_from = |from: u32, object: u32| {
            let mut above = dominators.above(from);
            let found = above.any(|node| {
                steps += 1;
                node == object || steps >= STEPS
            });
            found && steps < STEPS
        };
        let mut once = vec![false; graph.node_count()];
        for from in 0..graph.node_count() as u32 {
            for &object in graph.targets(from) {
                if !wanted[object as usize] || !dominators.reaches(from) {
                    continue;
                }
                let is_first = owners.get(&object) == Some(&from)
                    && !std::mem::replace(&mut once[object as usize], true);
                if !is_first && !comes_from(from, object) {
                    owners.remove(&object);
                    wanted[object as usize] = false;
                }
            }
        }
        Self { owners }
    }

    /// True if a reference is a bridge.
    pub fn contains(&self, (owner, object): (u32, u32)) -> bool {
        self.owners.get(&object) == Some(&owner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The nodes that roots reach when one reference is not there.
    fn reached(edges: &[(u32, u32)], roots: &[u32], without: Option<usize>) -> Vec<bool> {
        let mut seen = vec![false; 16];
        let mut pending: Vec<u32> = roots.to_vec();
        while let Some(node) = pending.pop() {
            if std::mem::replace(&mut seen[node as usize], true) {
                continue;
            }
            let there = edges
                .iter()
                .enumerate()
                .filter(|(i, _)| Some(*i) != without);
            pending.extend(there.filter(|(_, it)| it.0 == node).map(|(_, it)| it.1));
        }
        seen
    }

    proptest! {
        #[test]
        fn without_a_bridge_its_object_is_not_reached(
            edges in vec((0u32..16, 0u32..16), 0..48), roots in vec(0u32..16, 1..4),
        ) {
            let graph = Csr::from_edges(16, &edges);
            let dominators = Dominators::new(&graph, &roots);
            let whole = reached(&edges, &roots, None);
            let bridges = |all: &[(u32, u32)]| Bridges::new(&graph, &dominators, all.iter().copied());
            for (i, &edge) in edges.iter().enumerate().filter(|(_, it)| whole[it.1 as usize]) {
                let is_bridge = !reached(&edges, &roots, Some(i))[edge.1 as usize];
                prop_assert_eq!(bridges(&[edge]).contains(edge), is_bridge);
            }
            for &edge in edges.iter().filter(|it| whole[it.1 as usize]) {
                prop_assert_eq!(bridges(&edges).contains(edge), bridges(&[edge]).contains(edge));
            }
        }
    }
}
