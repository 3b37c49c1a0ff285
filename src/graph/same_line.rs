//! References that one line of code makes, or makes again.

use std::collections::BTreeSet;

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;
use rustc_hash::FxHashSet;

use super::leak_graph::LeakGraph;
use super::preference::points_back;
use crate::capture::{Place, ReferenceName};
use crate::cpython::ObjectKind;

/// Of more functions than these, each stored by a line of its own, nobody wants to read one by one.
const FUNCTIONS_OF_ONE_LINE: usize = 8;

/// The reference and all others of the same line of code that are in cycles. Attributes, variables and keys that point
/// back only, not other items of containers.
pub(super) fn alike(graph: &LeakGraph, components: &[usize], edge: EdgeIndex) -> Vec<EdgeIndex> {
    use ReferenceName::{Attribute, Closure, Local};
    if !matches!(&graph[edge].name, Attribute(_) | Closure(_) | Local(_))
        && !is_way_back(graph, edge)
    {
        return vec![edge];
    }
    let in_a_cycle = |edge: EdgeIndex| {
        let ends = graph.edge_endpoints(edge);
        ends.is_some_and(|(from, to)| components[from.index()] == components[to.index()])
    };
    let of_type = |owner: NodeIndex| &*graph[owner].description.type_name;
    let mut all = of_one_line(graph, edge, of_type);
    all.retain(|&other| other == edge || in_a_cycle(other));
    all.sort_unstable_by_key(|&other| other != edge);
    all
}

/// The references of one name between objects of the same owner's type and code, which one line of code makes.
pub fn of_same_line(graph: &LeakGraph, edge: EdgeIndex) -> Vec<EdgeIndex> {
    use ReferenceName::{Attribute, Closure, Default, Local};
    match &graph[edge].name {
        Attribute(_) | Closure(_) | Default(_) | Local(_) => {
            of_one_line(graph, edge, |owner| &*graph[owner].description.label)
        }
        _ if is_way_back(graph, edge) => {
            of_one_line(graph, edge, |owner| &*graph[owner].description.type_name)
        }
        _ => vec![edge],
    }
}

/// The references of the same name, from owners with the same `kind` and code, that store the same functions: two lines
/// store two functions, but one line may store many.
fn of_one_line<'a>(
    graph: &'a LeakGraph,
    edge: EdgeIndex,
    kind: impl Fn(NodeIndex) -> &'a str,
) -> Vec<EdgeIndex> {
    let line = |edge: EdgeIndex| {
        let (from, _) = graph.edge_endpoints(edge)?;
        Some((
            &graph[edge].name,
            kind(from),
            &graph[from].description.place,
        ))
    };
    // The exceptions that one function has caught are of whatever class; those of another function are another line's.
    let handler = caught_in(graph, edge);
    let same = graph
        .edge_indices()
        .filter(|&other| match (handler, caught_in(graph, other)) {
            (Some(own), Some(others)) => own == others,
            _ => line(other) == line(edge),
        });
    let all: Vec<(EdgeIndex, BTreeSet<Stored<'_>>)> = same
        .map(|other| (other, stored_code(graph, other)))
        .collect();
    let stored: BTreeSet<_> = all.iter().map(|(_, stored)| stored).collect();
    let is_one = stored.len() > FUNCTIONS_OF_ONE_LINE;
    let own = stored_code(graph, edge);
    let same = all.iter().filter(|(_, stored)| is_one || *stored == own);
    same.map(|&(other, _)| other).collect()
}

/// Of the reference to a traceback the function in which the exception was caught; `None` for one that another exception
/// keeps as its cause or context, or in a group: who keeps that does not have this one at hand.
fn caught_in(graph: &LeakGraph, edge: EdgeIndex) -> Option<Stored<'_>> {
    let (exception, traceback) = graph
        .edge_endpoints(edge)
        .filter(|_| is_traceback(graph, edge))?;
    let keepers = |node: NodeIndex| graph.neighbors_directed(node, Direction::Incoming);
    let kind = |node: NodeIndex| graph[node].description.kind;
    let is_part = keepers(exception).any(|keeper| match kind(keeper) {
        ObjectKind::Tuple => keepers(keeper).any(|it| kind(it) == ObjectKind::Exception),
        keeper => keeper == ObjectKind::Exception,
    });
    let mut frames = graph.neighbors(traceback);
    let frame = frames.find(|&node| kind(node) == ObjectKind::Frame && !is_part)?;
    let frame = &graph[frame].description;
    Some((&frame.label, frame.place.as_ref()))
}

/// A function by its name and place.
type Stored<'a> = (&'a str, Option<&'a Place>);

/// The functions that a reference leads to, itself or as items of a container.
fn stored_code(graph: &LeakGraph, edge: EdgeIndex) -> BTreeSet<Stored<'_>> {
    let Some((_, to)) = graph.edge_endpoints(edge) else {
        return BTreeSet::new();
    };
    let code = |node: NodeIndex| {
        let description = &graph[node].description;
        let is_code = matches!(description.kind, ObjectKind::Function | ObjectKind::Method);
        is_code.then(|| (&*description.label, description.place.as_ref()))
    };
    let items = graph.edges(to).filter(|item| is_item(graph, item.id()));
    code(to)
        .into_iter()
        .chain(items.filter_map(|item| code(item.target())))
        .collect()
}

/// True for an item of a container, which is as much the program's as the container.
pub(super) fn is_item(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    use ReferenceName::{Index, Key, Member};
    let owner = graph.edge_endpoints(edge).map(|(from, _)| &graph[from]);
    matches!(graph[edge].name, Key(_) | Index(_) | Member)
        && owner.is_some_and(|owner| owner.description.place.is_none())
}

/// True for the reference of an exception to its traceback. What catches several exceptions stores all of them alike.
pub(super) fn is_traceback(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    matches!(&graph[edge].name, ReferenceName::Attribute(name) if name == "__traceback__")
}

/// True for a reference from an exception to a traceback, or on to the next, if a function has raised it once more while
/// a variable of its kept it: to raise it gives it a traceback again, so it is of no use to remove that.
///
/// Only `raise error` adds a second traceback for one frame (`PyTraceBack_Here` in Python/traceback.c); `raise` alone adds
/// none.
fn is_made_again(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    let is_named = |edge: EdgeIndex, name: &str| matches!(&graph[edge].name, ReferenceName::Attribute(it) if it == name);
    let is_part = |edge: EdgeIndex| leads_to_traceback(graph, edge);
    if !is_part(edge) {
        return false;
    }
    let mut seen = BTreeSet::from([edge]);
    let up = std::iter::successors(Some(edge), |&it| {
        let (from, _) = graph.edge_endpoints(it)?;
        let mut above = graph.edges_directed(from, Direction::Incoming);
        let above = above.find(|it| is_part(it.id()))?.id();
        seen.insert(above).then_some(above)
    });
    let Some((exception, first)) = up.last().and_then(|it| graph.edge_endpoints(it)) else {
        return false;
    };
    let target = |from: NodeIndex, name: &str| {
        let mut edges = graph.edges(from);
        let found = edges.find(|it| is_named(it.id(), name));
        found.map(|it| it.target())
    };
    let mut seen = BTreeSet::from([first]);
    let tracebacks = std::iter::successors(Some(first), |&it| {
        target(it, "tb_next").filter(|&next| seen.insert(next))
    });
    let mut frames = BTreeSet::new();
    let mut twice = tracebacks
        .filter_map(|it| target(it, "tb_frame"))
        .filter(|&frame| !frames.insert(frame));
    twice.any(|frame| graph.contains_edge(frame, exception))
}

/// True for the reference of an exception to its traceback, or of a traceback to the next.
fn leads_to_traceback(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    is_traceback(graph, edge)
        || matches!(&graph[edge].name, ReferenceName::Attribute(name) if name == "tb_next")
}

/// Those of some references, in their order, of which [`is_made_again`] is true. It is asked once for the tracebacks that
/// follow each other: a deep recursion has a thousand.
pub(super) fn made_again(
    graph: &LeakGraph,
    edges: impl Iterator<Item = EdgeIndex>,
) -> FxHashSet<EdgeIndex> {
    let mut found = FxHashSet::default();
    // The traceback that the last of them leads to.
    let mut last: Option<(NodeIndex, bool)> = None;
    for edge in edges.filter(|&edge| leads_to_traceback(graph, edge)) {
        let Some((from, to)) = graph.edge_endpoints(edge) else {
            continue;
        };
        let is_again = match last {
            Some((traceback, is_again)) if traceback == from => is_again,
            _ => is_made_again(graph, edge),
        };
        last = Some((to, is_again));
        if is_again {
            found.insert(edge);
        }
    }
    found
}

pub(super) fn is_way_back(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    match &graph[edge].name {
        ReferenceName::Attribute(name) => points_back(name),
        ReferenceName::Key(key) => points_back(key.trim_matches('\'')),
        _ => false,
    }
}
