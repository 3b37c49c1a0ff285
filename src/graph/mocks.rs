//! Cycles that `unittest.mock` makes by itself: of a mock, its class, its parent, its children, and the function that stands
//! for it.

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;
use rustc_hash::FxHashSet;

use super::cycle::Cycle;
use super::distances::distances;
use super::leak_graph::{LeakGraph, LeakNode};
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;

/// True if every object of a cycle is a mock, of the making of one, or a container in which mocks keep each other.
pub fn is_of_mocks(graph: &LeakGraph, cycle: &Cycle) -> bool {
    let is_mocks = |node: &NodeIndex| is_part_of_mock(graph, *node);
    cycle.nodes.iter().any(is_mocks)
        && cycle
            .nodes
            .iter()
            .all(|node| is_mocks(node) || is_plain_container(&graph[*node]))
}

/// The references by which mocks hold what is not theirs, and through which a buffer is reached: recorded arguments, what
/// a mock returns, raises or wraps, and what the program has stored on it.
pub fn held_by_mocks(graph: &LeakGraph) -> Vec<EdgeIndex> {
    let nodes = graph.node_indices();
    let mut own: FxHashSet<NodeIndex> =
        nodes.filter(|&node| is_part_of_mock(graph, node)).collect();
    // Containers of mocks, such as the dict of a mock's children; not one that only holds what was given.
    let mut added = true;
    while added {
        let containers = graph.node_indices().filter(|&node| {
            let mut keepers = graph.neighbors_directed(node, Direction::Incoming);
            let mut items = graph.neighbors(node);
            is_plain_container(&graph[node])
                && keepers.all(|keeper| own.contains(&keeper))
                && items.any(|item| own.contains(&item))
        });
        let found: Vec<NodeIndex> = containers.collect();
        let before = own.len();
        own.extend(found);
        added = own.len() > before;
    }
    let buffers: Vec<NodeIndex> = graph
        .node_indices()
        .filter(|&node| graph[node].is_buffer)
        .collect();
    let reach = distances(graph, &buffers, Direction::Incoming, |_| true);
    let mut held: Vec<EdgeIndex> = own
        .iter()
        .flat_map(|&node| graph.edges(node))
        .filter(|edge| !own.contains(&edge.target()))
        .filter(|edge| reach.distance[edge.target().index()].is_some())
        .map(|edge| edge.id())
        .collect();
    held.sort_unstable();
    held
}

/// True for a mock, for what `unittest.mock` makes for one, and for a class or a function that it has made for one.
fn is_part_of_mock(graph: &LeakGraph, node: NodeIndex) -> bool {
    let description = &graph[node].description;
    let is_named = |name: &str| name.starts_with("unittest.mock.");
    let file = description.place.as_ref().map(|place| &*place.file);
    match description.kind {
        ObjectKind::Class => description
            .label
            .strip_prefix("class ")
            .is_some_and(is_named),
        // What stands for a function by its signature is made by `exec` (Lib/unittest/mock.py, `_set_signature`).
        ObjectKind::Function if file == Some("<string>") => graph.edges(node).any(|edge| {
            matches!(&edge.weight().name, ReferenceName::Attribute(name) if name == "mock")
                && is_named(&graph[edge.target()].description.type_name)
        }),
        ObjectKind::Function => {
            file.is_some_and(|file| file.replace('\\', "/").ends_with("/unittest/mock.py"))
        }
        _ => is_named(&description.type_name),
    }
}

fn is_plain_container(node: &LeakNode) -> bool {
    node.stands_for == 0 && matches!(&*node.description.type_name, "dict" | "list" | "tuple")
}
