//! Finds the groups of cycles that hold a buffer.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::unionfind::UnionFind;
use petgraph::visit::{EdgeRef, IntoNeighbors};
use petgraph::{Direction, EdgeType, Graph};
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::capture::Snapshot;

/// Connected cycles and the buffers that they hold: one occurrence of each leak in them.
#[derive(Debug)]
pub struct Group {
    /// The objects of the cycles and those between them and the buffers, buffers included: indices
    /// in the snapshot, ascending.
    pub nodes: Vec<u32>,
    /// The strongly connected components that have a cycle, as indices in the snapshot, ascending.
    pub components: Vec<Vec<u32>>,
    /// The buffers' holders, as indices in the snapshot, ascending.
    pub buffers: Vec<u32>,
    /// Equal for similar groups: the same types and code in the same arrangement.
    pub fingerprint: u64,
}

impl Group {
    /// The buffers that these components hold, as indices in the snapshot.
    pub fn buffers_of(&self, snapshot: &Snapshot, components: &[usize]) -> Cow<'_, [u32]> {
        if components.len() == self.components.len() {
            return Cow::Borrowed(&self.buffers);
        }
        let start = components.iter().filter_map(|&i| self.components.get(i));
        let mut pending: Vec<u32> = start.flatten().copied().collect();
        let mut seen: FxHashSet<u32> = pending.iter().copied().collect();
        while let Some(object) = pending.pop() {
            for &target in snapshot.targets(object as usize) {
                if self.nodes.binary_search(&target).is_ok() && seen.insert(target) {
                    pending.push(target);
                }
            }
        }
        let held = self.buffers.iter().copied();
        Cow::Owned(held.filter(|buffer| seen.contains(buffer)).collect())
    }

    /// The fingerprint of each component; not worked out where there is but one.
    pub fn component_prints(&self, snapshot: &Snapshot) -> Vec<u64> {
        let [_, _, ..] = self.components[..] else {
            return vec![0];
        };
        let print = |component: &Vec<u32>| {
            let makes = component.iter().map(|&object| make_of(snapshot, object));
            makes.fold(0, u64::wrapping_add)
        };
        self.components.iter().map(print).collect()
    }
}

/// The groups of cycles from which a buffer can be reached, in the order of the snapshot.
///
/// Objects from which no buffer can be reached are left out first. Among the rest, the strongly
/// connected components with a cycle hold everything that they reach. Groups are the weakly connected
/// parts of that. Every step is iterative, so a ring of a million objects cannot overflow the stack
/// (petgraph's Tarjan recurses; its Kosaraju does not).
pub fn find_groups(snapshot: &Snapshot, is_buffer: &[bool]) -> Vec<Group> {
    let mut whole: DiGraph<(), ()> = Graph::with_capacity(snapshot.len(), snapshot.targets.len());
    for _ in 0..snapshot.len() {
        whole.add_node(());
    }
    for from in 0..snapshot.len() {
        for &to in snapshot.targets(from) {
            whole.add_edge(NodeIndex::new(from), NodeIndex::new(to as usize), ());
        }
    }
    let buffers = (0..snapshot.len()).filter(|&i| is_buffer.get(i) == Some(&true));
    let holds = reached(&whole, buffers.map(NodeIndex::new), Direction::Incoming);
    let relevant = induced(&whole, |i| holds[i.index()]);

    let cyclic: Vec<Vec<NodeIndex>> = kosaraju_scc(&relevant)
        .into_iter()
        .filter(|component| is_cyclic(&relevant, component))
        .collect();
    let members = cyclic.iter().flatten().copied();
    let held = reached(&relevant, members, Direction::Outgoing);
    let graph = induced(&relevant, |i| held[i.index()]);
    let original = |i: NodeIndex| relevant[NodeIndex::new(graph[i] as usize)];

    let mut parts = UnionFind::<usize>::new(graph.node_count());
    for edge in graph.edge_references() {
        parts.union(edge.source().index(), edge.target().index());
    }
    // Groups get their numbers in the order of their first objects.
    let mut number = vec![usize::MAX; graph.node_count()];
    let mut groups: Vec<Group> = Vec::new();
    for i in graph.node_indices() {
        let root = parts.find(i.index());
        if number[root] == usize::MAX {
            number[root] = groups.len();
            groups.push(Group {
                nodes: Vec::new(),
                components: Vec::new(),
                buffers: Vec::new(),
                fingerprint: 0,
            });
        }
        let group = &mut groups[number[root]];
        let object = original(i);
        group.nodes.push(object);
        if is_buffer[object as usize] {
            group.buffers.push(object);
        }
        group.fingerprint = group.fingerprint.wrapping_add(make_of(snapshot, object));
    }
    let mut group_of = vec![usize::MAX; relevant.node_count()];
    for i in graph.node_indices() {
        group_of[graph[i] as usize] = number[parts.find(i.index())];
    }
    for component in cyclic {
        let Some(&any) = component.first() else {
            continue;
        };
        let mut objects: Vec<u32> = component.iter().map(|&i| relevant[i]).collect();
        objects.sort_unstable();
        groups[group_of[any.index()]].components.push(objects);
    }
    for group in &mut groups {
        group.components.sort_unstable();
    }
    groups
}

/// A hash of an object's type and code, and of its referents, one level deep.
fn make_of(snapshot: &Snapshot, object: u32) -> u64 {
    let own = |i: u32| {
        snapshot
            .objects
            .get(i as usize)
            .map(|object| (object.type_address, object.salt))
    };
    let mut hasher = FxBuildHasher.build_hasher();
    own(object).hash(&mut hasher);
    for &target in snapshot.targets(object as usize) {
        own(target).hash(&mut hasher);
    }
    hasher.finish()
}

/// Which nodes can be reached from `starts` along edges of the given direction.
fn reached<N, E, Ty: EdgeType>(
    graph: &Graph<N, E, Ty>,
    starts: impl Iterator<Item = NodeIndex>,
    direction: Direction,
) -> Vec<bool> {
    let mut seen = vec![false; graph.node_count()];
    let mut pending = VecDeque::new();
    for start in starts {
        if !std::mem::replace(&mut seen[start.index()], true) {
            pending.push_back(start);
        }
    }
    while let Some(node) = pending.pop_front() {
        for next in graph.neighbors_directed(node, direction) {
            if !std::mem::replace(&mut seen[next.index()], true) {
                pending.push_back(next);
            }
        }
    }
    seen
}

/// The sub-graph of the nodes that are kept; each node carries its index in `graph`.
fn induced<N>(graph: &DiGraph<N, ()>, keep: impl Fn(NodeIndex) -> bool) -> DiGraph<u32, ()> {
    let mut result = DiGraph::default();
    let mut place = vec![NodeIndex::end(); graph.node_count()];
    for node in graph.node_indices().filter(|&node| keep(node)) {
        place[node.index()] = result.add_node(node.index() as u32);
    }
    for edge in graph.edge_references() {
        let (from, to) = (place[edge.source().index()], place[edge.target().index()]);
        if from != NodeIndex::end() && to != NodeIndex::end() {
            result.add_edge(from, to, ());
        }
    }
    result
}

/// True if a strongly connected component has a cycle: more than one node, or one with a loop.
pub(super) fn is_cyclic<G>(graph: G, component: &[NodeIndex]) -> bool
where
    G: IntoNeighbors<NodeId = NodeIndex>,
{
    match component {
        [] => false,
        [only] => graph.neighbors(*only).any(|next| next == *only),
        _ => true,
    }
}
