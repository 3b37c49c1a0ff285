//! The dominator tree of a heap, and the retained size of each object.
//!
//! An object dominates another if every path from the roots to the other passes through it. Then, and
//! only then, freeing the first frees the second.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use rustc_hash::FxHashMap;

use crate::capture::Csr;
use crate::memory::array::{Array, Growing, prefetch};

/// The dominator tree, with a virtual root above all roots.
pub struct Dominators {
    /// By node.
    places: Array<Place>,
    /// The node with each number; the virtual root's entry means nothing.
    order: Array<u32>,
    /// By number: the number of the immediate dominator.
    idom: Array<u32>,
    peak_bytes: usize,
}

/// The state of a node. Nodes are visited in no order, so it is kept together.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Place {
    /// Preorder number, from 1; 0 if not reached.
    number: u32,
    /// The last of the references in [`Walk::late`] that lead here; 0 if none does.
    late: u32,
    /// The lowest of the nodes above that refer to it, or the virtual root.
    highest: u32,
}

/// A reference from a node with a higher number than its target's, in a list with the others of that
/// target.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Late {
    source: u32,
    /// The one before it, as [`Place::late`] has it.
    before: u32,
}

/// The state of a node that [`semi_dominators`] has processed, by number.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Link {
    ancestor: u32,
    /// The lowest semi-dominator from the node upwards, the ancestor's not counted.
    lowest: u32,
}

/// The places of nodes in a walk through the dominator tree: those below a node follow it.
pub struct DominatorTree<'a> {
    pub dominators: &'a Dominators,
    first: Vec<u32>,
    size: Vec<u32>,
    depth: Vec<u32>,
}

impl DominatorTree<'_> {
    fn number(&self, node: u32) -> Option<usize> {
        let place = self.dominators.places.get(node as usize)?;
        (place.number > 0).then_some(place.number as usize)
    }

    /// How many nodes dominate this one, itself among them; 0 for what is not reached.
    pub fn depth(&self, node: u32) -> u32 {
        self.number(node).map_or(0, |it| self.depth[it])
    }

    /// The places of a node and of all that it dominates.
    pub fn places(&self, node: u32) -> Range<u32> {
        self.number(node)
            .map_or(0..0, |it| self.first[it]..self.first[it] + self.size[it])
    }

    /// True if each path from a root to `node` passes `above`, which may be the node itself.
    pub fn is_above(&self, above: u32, node: u32) -> bool {
        let places = self.places(node);
        !places.is_empty() && self.places(above).contains(&places.start)
    }
}

impl Dominators {
    /// The virtual root, as an immediate dominator.
    pub const ROOT: u32 = u32::MAX - 1;
    /// In place of the immediate dominator of a node that no root reaches.
    pub const UNREACHED: u32 = u32::MAX;

    /// The dominator tree of the nodes reachable from `roots`.
    ///
    /// Semi-NCA (Georgiadis, Tarjan and Werneck, "Finding Dominators in Practice", 2006): the
    /// semi-dominators of Lengauer and Tarjan by path compression, then each immediate dominator as the
    /// nearest ancestor above the semi-dominator. Nothing recurses, so a list of a million objects cannot
    /// overflow the stack.
    ///
    /// A large heap does not fit into any cache, so the time is spent waiting for memory. The walk itself
    /// therefore settles most references: the one by which it enters a node, and those from its
    /// ancestors. Only the others are stored, and the graph is not reversed.
    pub fn new(graph: &Csr, roots: &[u32]) -> Self {
        let Walk {
            places,
            order,
            count,
            parent,
            late,
            late_count,
            depth,
        } = depth_first(graph, roots);
        let semi = semi_dominators(&places, &order[..count], &parent, &late);
        // Beside what is kept: the semi-dominators, the links, the references and the walk.
        let peak_bytes = size_of::<Place>() * places.len()
            + (3 * size_of::<u32>() + size_of::<Link>()) * count
            + size_of::<Late>() * late_count
            + size_of::<Within>() * depth;
        drop(late);

        // From here on `parent` becomes the immediate dominators, still in numbers.
        let mut idom = parent;
        let numbers = &mut idom[..count];
        for node in 1..count {
            let mut candidate = numbers[node];
            while candidate > semi[node] {
                candidate = numbers[candidate as usize];
            }
            numbers[node] = candidate;
        }
        Self {
            places,
            order,
            idom,
            peak_bytes,
        }
    }

    /// The immediate dominator of `node`, [`Self::ROOT`] or [`Self::UNREACHED`].
    pub fn immediate(&self, node: u32) -> u32 {
        match self.places.get(node as usize) {
            None | Some(Place { number: 0, .. }) => Self::UNREACHED,
            Some(place) => match self.idom[place.number as usize] {
                0 => Self::ROOT,
                dominator => self.order[dominator as usize],
            },
        }
    }

    /// A node and all that dominate it, from below.
    pub fn above(&self, node: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(node), |&node| Some(self.immediate(node)))
            .take_while(|&node| node < Self::ROOT)
    }

    /// The tree, to be asked which of two nodes is above the other.
    pub fn tree(&self) -> DominatorTree<'_> {
        let count = self.order.len().min(self.idom.len());
        // A dominator has a smaller number than what it dominates.
        let mut size = vec![1_u32; count];
        for number in (1..count).rev() {
            size[self.idom[number] as usize] += size[number];
        }
        let (mut first, mut next, mut depth) = (vec![0; count], vec![1; count], vec![0; count]);
        for number in 1..count {
            let above = self.idom[number] as usize;
            first[number] = next[above];
            next[above] += size[number];
            next[number] = first[number] + 1;
            depth[number] = depth[above] + 1;
        }
        DominatorTree {
            dominators: self,
            first,
            size,
            depth,
        }
    }

    /// True if a root reaches the node.
    pub fn reaches(&self, node: u32) -> bool {
        self.immediate(node) != Self::UNREACHED
    }

    /// Peak memory of the computation, in bytes, without the graph.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }

    /// Retained sizes: for each node that has a size or dominates a node with one, the sums of both kinds
    /// of sizes over itself and all nodes that it dominates. Unreachable nodes do not count.
    ///
    /// Takes time and memory for those nodes only, and few objects of a heap hold a buffer.
    pub fn retained(&self, sizes: &[(u32, [u64; 2])]) -> FxHashMap<u32, [u64; 2]> {
        let mut sums: FxHashMap<u32, [u64; 2]> = FxHashMap::default();
        // Of how many of its children the sums are still to come.
        let mut pending: FxHashMap<u32, u32> = FxHashMap::default();
        for &(node, size) in sizes.iter().filter(|(node, _)| self.reaches(*node)) {
            let mut current = node;
            while current < Self::ROOT && !sums.contains_key(&current) {
                sums.insert(current, [0, 0]);
                current = self.immediate(current);
                *pending.entry(current).or_insert(0) += 1;
            }
            add(sums.entry(node).or_default(), size);
        }
        let leaf = |node: &u32| !pending.contains_key(node);
        let mut ready: Vec<u32> = sums.keys().copied().filter(leaf).collect();
        while let Some(node) = ready.pop() {
            let above = self.immediate(node);
            let size = sums.get(&node).copied().unwrap_or_default();
            if let Some(sum) = sums.get_mut(&above) {
                add(sum, size);
            }
            if let Some(left) = pending.get_mut(&above) {
                *left -= 1;
                if *left == 0 && above < Self::ROOT {
                    ready.push(above);
                }
            }
        }
        sums
    }
}

fn add(sum: &mut [u64; 2], more: [u64; 2]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}

/// A depth-first walk: numbers in the order in which nodes are entered, 0 being the virtual root.
struct Walk {
    places: Array<Place>,
    order: Array<u32>,
    /// The number of nodes entered.
    count: usize,
    /// By number: the number of its parent in the walk.
    parent: Array<u32>,
    /// From 1 on.
    late: Array<Late>,
    late_count: usize,
    /// Maximum depth of the walk.
    depth: usize,
}

/// A node that the walk is within, and where the rest of its references are.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Within {
    number: u32,
    next: u32,
    end: u32,
}

impl Walk {
    fn new(graph: &Csr) -> Self {
        let room = graph.node_count() + 1;
        Self {
            places: Array::zeroed(graph.node_count()),
            order: Array::zeroed(room),
            count: 1,
            parent: Array::zeroed(room),
            late: Array::zeroed(graph.edge_count() + 1),
            late_count: 1,
            depth: 0,
        }
    }
}

fn depth_first(graph: &Csr, roots: &[u32]) -> Walk {
    let mut walk = Walk::new(graph);
    let (places, order) = (&mut *walk.places, &mut *walk.order);
    let (parent, late) = (&mut *walk.parent, &mut *walk.late);
    let (mut count, mut late_count) = (1, 1);
    let mut within: Growing<Within> = Growing::default();
    for &root in roots {
        let place = &mut places[root as usize];
        if place.number != 0 {
            place.highest = 0;
            continue;
        }
        let mut entering = Some(root);
        // The node that the walk is at, and its references from one place to another.
        let mut current = Within::default();
        loop {
            if let Some(node) = entering.take() {
                let own = count as u32;
                places[node as usize] = Place {
                    number: own,
                    late: 0,
                    highest: current.number,
                };
                order[count] = node;
                parent[count] = current.number;
                count += 1;
                let (next, end) = graph.span(node);
                if next != end {
                    within.push(current);
                    current = Within {
                        number: own,
                        next,
                        end,
                    };
                    for &target in graph.at(next, end).iter().take(AHEAD) {
                        prefetch(places, target as usize);
                        graph.prefetch_node(target);
                    }
                }
            }
            if current.next == current.end {
                match within.pop() {
                    Some(above) => current = above,
                    None => break,
                }
                if let Some(far) = within.len().checked_sub(2 * STRIDE) {
                    graph.prefetch_at(within[far].next);
                    let Within { next, end, .. } = within[far + STRIDE];
                    for &target in graph.at(next, end).iter().take(AHEAD) {
                        prefetch(places, target as usize);
                    }
                }
                continue;
            }
            let target = graph.at(current.next, current.end)[0];
            current.next += 1;
            if let Some(&later) = graph.at(current.next, current.end).get(AHEAD) {
                prefetch(places, later as usize);
                graph.prefetch_node(later);
            }
            let place = &mut places[target as usize];
            match place.number {
                0 => entering = Some(target),
                number if number < current.number => {
                    late[late_count] = Late {
                        source: current.number,
                        before: place.late,
                    };
                    place.late = late_count as u32;
                    late_count += 1;
                }
                // The walk is within the source, or it would have a higher number.
                _ => place.highest = place.highest.min(current.number),
            }
        }
    }
    (walk.count, walk.late_count, walk.depth) = (count, late_count, within.capacity());
    walk
}

/// Number of references of a node to prefetch.
const AHEAD: usize = 16;
/// Prefetch distance, in nodes.
const STRIDE: usize = 8;

/// The semi-dominators, by number: the lowest number from which a path leads to the node whose inner
/// nodes all have higher numbers than the node.
fn semi_dominators(places: &[Place], order: &[u32], parent: &[u32], late: &[Late]) -> Array<u32> {
    let mut semi = Array::zeroed(order.len());
    let mut links: Array<Link> = Array::zeroed(order.len());
    let (known, all) = (&mut *links, &mut *semi);
    let mut stack = Vec::new();
    for node in (1..order.len()).rev() {
        // Each step needs what the one before it has fetched.
        if node > 3 * STRIDE {
            prefetch(places, order[node - 3 * STRIDE] as usize);
            let first = |node: usize| places[order[node] as usize].late as usize;
            prefetch(late, first(node - 2 * STRIDE));
            prefetch(known, late[first(node - STRIDE)].source as usize);
        }
        let Place {
            late: mut next,
            highest: mut lowest,
            ..
        } = places[order[node] as usize];
        while next != 0 && lowest != 0 {
            let Late { source, before } = late[next as usize];
            lowest = lowest.min(lowest_above(source, node as u32, known, &mut stack));
            next = before;
        }
        all[node] = lowest;
        known[node] = Link {
            ancestor: parent[node],
            lowest,
        };
    }
    semi
}

/// The lowest semi-dominator on the path from `node` up to the end of the linked nodes, which are those
/// above `last`. Compresses that path.
#[inline]
fn lowest_above(mut node: u32, last: u32, links: &mut [Link], stack: &mut Vec<u32>) -> u32 {
    let own = links[node as usize];
    if own.ancestor <= last {
        return own.lowest;
    }
    loop {
        let link = links[node as usize];
        if link.ancestor <= last {
            let (ancestor, mut lowest) = (link.ancestor, link.lowest);
            while let Some(below) = stack.pop() {
                let own = &mut links[below as usize];
                own.ancestor = ancestor;
                lowest = lowest.min(own.lowest);
                own.lowest = lowest;
            }
            return lowest;
        }
        stack.push(node);
        node = link.ancestor;
    }
}

#[cfg(test)]
mod tests {
    use petgraph::graph::{DiGraph, NodeIndex};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The nodes that roots reach when `without` is not there.
    fn reached(graph: &Csr, roots: &[u32], without: Option<u32>) -> Vec<bool> {
        let mut seen = vec![false; graph.node_count()];
        let mut pending: Vec<u32> = roots.to_vec();
        while let Some(node) = pending.pop() {
            if Some(node) != without && !std::mem::replace(&mut seen[node as usize], true) {
                pending.extend(graph.targets(node));
            }
        }
        seen
    }

    fn graphs() -> impl Strategy<Value = (Csr, Vec<u32>)> {
        (1usize..16).prop_flat_map(|nodes| {
            let node = 0..nodes as u32;
            (
                vec((node.clone(), node.clone()), 0..4 * nodes),
                vec(node, 0..4),
            )
                .prop_map(move |(edges, roots)| (Csr::from_edges(nodes, &edges), roots))
        })
    }

    /// Larger than what is fetched ahead: long lists, and paths as long as there are nodes.
    fn large_graphs() -> impl Strategy<Value = (Csr, Vec<u32>)> {
        (100u32..600, any::<bool>(), any::<bool>()).prop_flat_map(|(nodes, chain, list)| {
            let node = 0..nodes;
            (
                vec((node.clone(), node.clone()), 0..2 * nodes as usize),
                vec(node, 1..4),
            )
                .prop_map(move |(mut edges, roots)| {
                    let steps = if chain { 1..nodes } else { 0..0 };
                    edges.extend(steps.map(|node| (node - 1, node)));
                    let items = if list { 0..nodes } else { 0..0 };
                    edges.extend(items.map(|node| (nodes / 2, node)));
                    (Csr::from_edges(nodes as usize, &edges), roots)
                })
        })
    }

    proptest! {
        #[test]
        fn who_dominates_whom_is_who_cuts_whom_off((graph, roots) in graphs()) {
            let found = Dominators::new(&graph, &roots);
            let whole = reached(&graph, &roots, None);
            for node in 0..graph.node_count() as u32 {
                prop_assert_eq!(found.reaches(node), whole[node as usize]);
                if !whole[node as usize] {
                    continue;
                }
                let cuts_off: Vec<u32> = (0..graph.node_count() as u32)
                    .filter(|&other| other != node && whole[other as usize])
                    .filter(|&other| !reached(&graph, &roots, Some(other))[node as usize])
                    .collect();
                let mut chain = Vec::new();
                let mut above = found.immediate(node);
                while above != Dominators::ROOT {
                    chain.push(above);
                    above = found.immediate(above);
                }
                chain.sort_unstable();
                prop_assert_eq!(chain, cuts_off);
            }
        }

        #[test]
        fn the_tree_says_who_is_above((graph, roots) in graphs()) {
            let dominators = Dominators::new(&graph, &roots);
            let tree = dominators.tree();
            let reached = (0..graph.node_count() as u32).filter(|&node| dominators.reaches(node));
            for node in reached {
                let above: Vec<u32> = dominators.above(node).collect();
                prop_assert_eq!(tree.depth(node) as usize, above.len());
                for other in 0..graph.node_count() as u32 {
                    prop_assert_eq!(tree.is_above(other, node), above.contains(&other));
                }
            }
        }

        #[test]
        fn retained_is_what_goes_with_an_object(
            (graph, roots) in graphs(), sizes in vec(0u64..100, 16),
        ) {
            let sizes = sizes[..graph.node_count()].to_vec();
            let found = Dominators::new(&graph, &roots);
            let given: Vec<(u32, [u64; 2])> =
                (0..).zip(&sizes).map(|(node, &size)| (node, [size, 2 * size])).collect();
            let retained = found.retained(&given);
            let sum = |seen: &[bool]| -> u64 {
                sizes.iter().zip(seen).filter(|(_, seen)| **seen).map(|(size, _)| size).sum()
            };
            let whole = reached(&graph, &roots, None);
            for node in (0..graph.node_count() as u32).filter(|&node| whole[node as usize]) {
                let rest = reached(&graph, &roots, Some(node));
                let expected = sum(&whole) - sum(&rest);
                prop_assert_eq!(retained[&node], [expected, 2 * expected]);
            }
        }

        #[test]
        fn petgraph_agrees((graph, roots) in prop_oneof![graphs(), large_graphs()]) {
            let mut other = DiGraph::<(), ()>::new();
            for _ in 0..=graph.node_count() {
                other.add_node(());
            }
            let top = NodeIndex::new(graph.node_count());
            for from in 0..graph.node_count() as u32 {
                for &to in graph.targets(from) {
                    other.add_edge(NodeIndex::new(from as usize), NodeIndex::new(to as usize), ());
                }
            }
            for &root in &roots {
                other.add_edge(top, NodeIndex::new(root as usize), ());
            }
            let theirs = petgraph::algo::dominators::simple_fast(&other, top);
            let ours = Dominators::new(&graph, &roots);
            for node in 0..graph.node_count() {
                let ours = match ours.immediate(node as u32) {
                    Dominators::UNREACHED => None,
                    Dominators::ROOT => Some(top),
                    other => Some(NodeIndex::new(other as usize)),
                };
                prop_assert_eq!(ours, theirs.immediate_dominator(NodeIndex::new(node)));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn a_list_of_a_million_needs_no_stack() {
        let count = 1_000_000u32;
        let edges: Vec<(u32, u32)> = (1..count).map(|node| (node - 1, node)).collect();
        let graph = Csr::from_edges(count as usize, &edges);
        let found = Dominators::new(&graph, &[0]);
        assert_eq!(found.immediate(count - 1), count - 2);
        let retained = found.retained(&[(count - 1, [3, 4]), (count / 2, [1, 0])]);
        assert_eq!((retained[&0], retained[&(count - 1)]), ([4, 4], [3, 4]));
    }

    #[test]
    fn without_roots_nothing_is_reached() {
        let found = Dominators::new(&Csr::from_edges(2, &[(0, 1)]), &[]);
        assert!(!found.reaches(0) && !found.reaches(1));
    }
}
