//! Shortest distances in a leak's graph, in which plumbing costs more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use super::leak_graph::LeakGraph;
use crate::capture::ReferenceName;

/// Cost of a step along an ordinary reference.
const STEP: u32 = 10;
/// Extra cost of a step that uses, or leads to, the interpreter's plumbing.
const PLUMBING: u32 = 1000;
/// Extra cost of a step to an object of a library.
const LIBRARY: u32 = 3;
/// Extra cost of `__wrapped__` (`functools.update_wrapper`): a wrapper commonly refers to the wrapped
/// object by another name too, and which comes first differs by version.
const NOTE: u32 = 1;

/// The cost of following one reference.
pub(super) fn cost(graph: &LeakGraph, edge: EdgeIndex) -> u32 {
    let Some((_, to)) = graph.edge_endpoints(edge) else {
        return STEP;
    };
    // Charged for both, so that a class is entered through an attribute rather than `__mro__`.
    let plumbing = u32::from(graph[edge].is_plumbing()) + u32::from(graph[to].is_plumbing());
    let is_note = matches!(&graph[edge].name, ReferenceName::Attribute(n) if n == "__wrapped__");
    STEP + plumbing * PLUMBING
        + if graph[to].is_library() { LIBRARY } else { 0 }
        + if is_note { NOTE } else { 0 }
}

/// Distances from a set of starts, and the last reference of a shortest path to each node.
pub(super) struct Distances {
    pub distance: Vec<Option<u32>>,
    pub last_edge: Vec<Option<EdgeIndex>>,
}

/// Dijkstra's algorithm along or against the references, among the nodes that `inside` allows.
///
/// Among paths of equal cost, the first in the order of nodes and references wins, so the result
/// depends only on the graph.
pub(super) fn distances(
    graph: &LeakGraph,
    starts: &[NodeIndex],
    direction: Direction,
    inside: impl Fn(NodeIndex) -> bool,
) -> Distances {
    let mut distance: Vec<Option<u32>> = vec![None; graph.node_count()];
    let mut last_edge = vec![None; graph.node_count()];
    let mut queue = BinaryHeap::new();
    for &start in starts {
        distance[start.index()] = Some(0);
        queue.push(Reverse((0, start)));
    }
    while let Some(Reverse((so_far, node))) = queue.pop() {
        if distance[node.index()].is_some_and(|best| best < so_far) {
            continue;
        }
        let mut edges: Vec<_> = graph.edges_directed(node, direction).collect();
        edges.sort_by_key(|edge| edge.id());
        for edge in edges {
            let next = match direction {
                Direction::Outgoing => edge.target(),
                Direction::Incoming => edge.source(),
            };
            let is_nearer = |total: u32| distance[next.index()].is_none_or(|best| total < best);
            // What even the cheapest reference does not bring nearer needs no look at this one.
            if !is_nearer(so_far.saturating_add(STEP)) || !inside(next) {
                continue;
            }
            let total = so_far.saturating_add(cost(graph, edge.id()));
            if is_nearer(total) {
                distance[next.index()] = Some(total);
                last_edge[next.index()] = Some(edge.id());
                queue.push(Reverse((total, next)));
            }
        }
    }
    Distances {
        distance,
        last_edge,
    }
}

impl Distances {
    /// The references of the shortest path from a start to `end`, in order.
    pub fn path_to(&self, graph: &LeakGraph, end: NodeIndex) -> Vec<EdgeIndex> {
        let mut edges = Vec::new();
        let mut node = end;
        while let Some(edge) = self.last_edge[node.index()] {
            edges.push(edge);
            match graph.edge_endpoints(edge) {
                Some((from, _)) => node = from,
                None => break,
            }
        }
        edges.reverse();
        edges
    }
}
