//! The references of a graph alone, on which it is tried what removing some would free.

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::stable_graph::StableDiGraph;
use petgraph::visit::{EdgeRef, NodeIndexable};
use rustc_hash::{FxHashMap, FxHashSet};

use super::group::{Group, is_cyclic};
use super::leak_graph::LeakGraph;
use crate::capture::Snapshot;
use crate::cpython::ObjectKind;

/// Objects, of each whether it is a buffer, and references, numbered as in the graph that they come from.
#[derive(Clone)]
pub struct Links(StableDiGraph<bool, ()>);

impl Links {
    /// The objects and references of a graph.
    pub fn of(graph: &LeakGraph) -> Self {
        Links(graph.map(|_, node| node.is_buffer, |_, _| ()))
    }

    /// All without these references.
    pub fn without(&self, removed: &[EdgeIndex]) -> Self {
        let removed = FxHashSet::from_iter(removed);
        // Removing one by one takes as many steps each as its ends have references.
        Links(self.0.filter_map(
            |_, &is_buffer| Some(is_buffer),
            |edge, ()| (!removed.contains(&edge)).then_some(()),
        ))
    }

    /// True if no cycle reaches a buffer without these references.
    pub fn are_freed_without(&self, removed: &[EdgeIndex]) -> bool {
        self.without(removed).in_cycles_to_buffers() == 0
    }

    /// The number of objects in strongly connected components that have a cycle and reach a buffer.
    pub fn in_cycles_to_buffers(&self) -> usize {
        self.components_to_buffers().iter().map(Vec::len).sum()
    }

    /// The references of some cycle that reaches a buffer, in its order.
    pub fn cycle_to_buffer(&self) -> Option<Vec<EdgeIndex>> {
        let component = self.components_to_buffers().into_iter().next()?;
        let inside = FxHashSet::from_iter(component.iter().copied());
        // From each object of a component a reference leads on in it, sooner or later to one seen before.
        let mut walk = Vec::new();
        let mut seen_at = FxHashMap::default();
        let mut object = *component.first()?;
        loop {
            if let Some(start) = seen_at.insert(object, walk.len()) {
                return Some(walk.split_off(start));
            }
            let next = self
                .0
                .edges(object)
                .find(|edge| inside.contains(&edge.target()))?;
            walk.push(next.id());
            object = next.target();
        }
    }

    /// The strongly connected components that have a cycle and reach a buffer.
    fn components_to_buffers(&self) -> Vec<Vec<NodeIndex>> {
        // Kosaraju's components come in an order in which each is after those it can reach.
        let mut reaches = vec![false; self.0.node_bound()];
        let mut found = Vec::new();
        for component in kosaraju_scc(&self.0) {
            let hit = component.iter().any(|&node| {
                let mut next = self.0.neighbors(node);
                self.0[node] || next.any(|next| reaches[next.index()])
            });
            if hit {
                for &node in &component {
                    reaches[node.index()] = true;
                }
                if is_cyclic(&self.0, &component) {
                    found.push(component);
                }
            }
        }
        found
    }
}

/// True if no cycle of a whole group reaches a buffer without these references.
///
/// For groups too large to be described: `cuts` are the objects at either end of references between
/// described objects. Such a reference may stand for a way through the owner's plumbing (its
/// `__dict__`, a closure's tuple and cell), so the last step of that way is what is removed.
pub fn frees_group(
    snapshot: &Snapshot,
    group: &Group,
    is_buffer: &[bool],
    cuts: &[(u32, u32)],
) -> bool {
    let mut place = vec![NodeIndex::end(); snapshot.len()];
    for (i, &node) in group.nodes.iter().enumerate() {
        place[node as usize] = NodeIndex::new(i);
    }
    let removed: Vec<(FxHashSet<u32>, u32)> = cuts
        .iter()
        .map(|&(from, to)| (with_plumbing(snapshot, from), to))
        .collect();
    let mut graph = StableDiGraph::with_capacity(group.nodes.len(), 0);
    for &node in &group.nodes {
        graph.add_node(is_buffer[node as usize]);
    }
    for &node in &group.nodes {
        for &target in snapshot.targets(node as usize) {
            let cut = removed
                .iter()
                .any(|(owners, to)| *to == target && owners.contains(&node));
            let (from, to) = (place[node as usize], place[target as usize]);
            if !cut && to != NodeIndex::end() {
                graph.add_edge(from, to, ());
            }
        }
    }
    Links(graph).in_cycles_to_buffers() == 0
}

/// An object, and the dicts, tuples and cells within two references of it.
fn with_plumbing(snapshot: &Snapshot, object: u32) -> FxHashSet<u32> {
    let mut all = FxHashSet::from_iter([object]);
    for _ in 0..2 {
        let next: Vec<u32> = all
            .iter()
            .flat_map(|&object| snapshot.targets(object as usize))
            .copied()
            .filter(|&target| {
                let kind = snapshot.objects[target as usize].kind;
                matches!(
                    kind,
                    ObjectKind::Dict | ObjectKind::Tuple | ObjectKind::Cell
                )
            })
            .collect();
        all.extend(next);
    }
    all
}
