//! The most telling cycle of a leak.

use petgraph::Direction;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use super::distances::{cost, distances};
use super::group::is_cyclic;
use super::leak_graph::LeakGraph;
use crate::capture::ReferenceName;

/// A cycle: `nodes[i]` refers to `nodes[i + 1]` by `edges[i]`, the last to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub nodes: Vec<NodeIndex>,
    pub edges: Vec<EdgeIndex>,
}

/// The cycle to show: the shortest through the member nearest to a buffer, plumbing last.
///
/// The shortest of all would often be the interpreter's own: a class made at run time is in
/// its own `__mro__`. `None` if no cycle reaches a buffer.
pub fn first_cycle(graph: &LeakGraph) -> Option<Cycle> {
    let mut component_of: Vec<Option<usize>> = vec![None; graph.node_count()];
    for (number, component) in kosaraju_scc(graph).iter().enumerate() {
        if is_cyclic(graph, component) {
            for node in component {
                component_of[node.index()] = Some(number);
            }
        }
    }
    let buffers: Vec<NodeIndex> = graph
        .node_indices()
        .filter(|&node| graph[node].is_buffer)
        .collect();
    let to_buffer = distances(graph, &buffers, Direction::Incoming, |_| true);
    let mut candidates: Vec<(u32, NodeIndex)> = graph
        .node_indices()
        .filter(|node| component_of[node.index()].is_some())
        .filter_map(|node| Some((to_buffer.distance[node.index()]?, node)))
        .collect();
    candidates.sort_unstable();
    // The nearest member may be on no cycle but one of plumbing; then a farther one may do better.
    let nearest = candidates.first()?.0;
    candidates
        .iter()
        .filter(|(distance, _)| *distance <= nearest.saturating_add(100))
        .take(16)
        .filter_map(|&(distance, anchor)| {
            let (length, cycle) = shortest_through(graph, anchor, |node| {
                component_of[node.index()] == component_of[anchor.index()]
            })?;
            Some((length.saturating_add(distance), anchor, cycle))
        })
        // What decides between the equally long is the same on each Python; the order of the heap is not.
        .min_by(
            |(total, anchor, cycle), (other_total, other_anchor, other)| {
                total
                    .cmp(other_total)
                    .then_with(|| steps(graph, cycle).cmp(steps(graph, other)))
                    .then_with(|| anchor.cmp(other_anchor))
            },
        )
        .map(|(_, _, cycle)| cycle)
}

/// The steps of a cycle as shown.
fn steps<'a>(
    graph: &'a LeakGraph,
    cycle: &'a Cycle,
) -> impl Iterator<Item = (&'a str, &'a ReferenceName)> {
    let types = cycle
        .nodes
        .iter()
        .map(|&node| &*graph[node].description.type_name);
    types.zip(cycle.edges.iter().map(|&edge| &graph[edge].name))
}

/// How many references of a cycle are attributes that a user of their owner does not know.
fn private_names(graph: &LeakGraph, cycle: &Cycle) -> usize {
    let names = cycle.edges.iter().map(|&edge| &graph[edge].name);
    names
        .filter(|name| match name {
            ReferenceName::Attribute(name) => name.starts_with('_') && !name.starts_with("__"),
            _ => false,
        })
        .count()
}

/// A shortest cycle through a reference; `None` if it is in none.
pub fn cycle_through(graph: &LeakGraph, edge: EdgeIndex) -> Option<Cycle> {
    let (from, to) = graph.edge_endpoints(edge)?;
    let back = distances(graph, &[to], Direction::Outgoing, |_| true);
    back.distance[from.index()]?;
    let mut edges = vec![edge];
    edges.extend(back.path_to(graph, from));
    let sources = edges.iter();
    let nodes = sources.filter_map(|&edge| Some(graph.edge_endpoints(edge)?.0));
    Some(Cycle {
        nodes: nodes.collect(),
        edges,
    })
}

/// A shortest cycle through `anchor` among the nodes that `inside` allows, and its cost.
fn shortest_through(
    graph: &LeakGraph,
    anchor: NodeIndex,
    inside: impl Fn(NodeIndex) -> bool,
) -> Option<(u32, Cycle)> {
    let from_anchor = distances(graph, &[anchor], Direction::Outgoing, inside);
    let closing: Vec<_> = graph
        .edges_directed(anchor, Direction::Incoming)
        .filter_map(|edge| {
            let distance = from_anchor.distance[edge.source().index()]?;
            let total = distance.saturating_add(cost(graph, edge.id()));
            Some((total, edge.id(), edge.source()))
        })
        .collect();
    let least = closing.iter().map(|(total, _, _)| *total).min()?;
    closing
        .into_iter()
        .filter(|(total, _, _)| *total == least)
        .map(|(_, closing, last)| {
            let mut edges = from_anchor.path_to(graph, last);
            edges.push(closing);
            let nodes = edges
                .iter()
                .filter_map(|&edge| Some(graph.edge_endpoints(edge)?.0))
                .collect();
            (closing, Cycle { nodes, edges })
        })
        .min_by(|(closing, cycle), (other_closing, other)| {
            private_names(graph, cycle)
                .cmp(&private_names(graph, other))
                .then_with(|| steps(graph, cycle).cmp(steps(graph, other)))
                .then_with(|| closing.cmp(other_closing))
        })
        .map(|(_, cycle)| (least, cycle))
}
