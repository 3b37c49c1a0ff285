//! Shortest paths through a leak's graph, which avoid the interpreter's plumbing.

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};

use super::cycle::Cycle;
use super::distances::distances;
use super::leak_graph::LeakGraph;

/// The references from a cycle to a buffer.
#[derive(Clone, Debug)]
pub struct PathToBuffer {
    /// The buffer's holder.
    pub buffer: NodeIndex,
    /// Position in the cycle of the object at which the path starts.
    pub from_step: usize,
    /// The references in order; empty if the holder is in the cycle itself.
    pub edges: Vec<EdgeIndex>,
}

/// A shortest path from the cycle to each buffer that it reaches.
pub fn paths_to_buffers(graph: &LeakGraph, cycle: &Cycle) -> Vec<PathToBuffer> {
    let found = distances(graph, &cycle.nodes, Direction::Outgoing, |_| true);
    graph
        .node_indices()
        .filter(|&node| graph[node].is_buffer && found.distance[node.index()].is_some())
        .map(|buffer| {
            let edges = found.path_to(graph, buffer);
            let start = edges
                .first()
                .and_then(|&edge| graph.edge_endpoints(edge))
                .map_or(buffer, |(from, _)| from);
            let from_step = cycle
                .nodes
                .iter()
                .position(|&node| node == start)
                .unwrap_or(0);
            PathToBuffer {
                buffer,
                from_step,
                edges,
            }
        })
        .collect()
}
