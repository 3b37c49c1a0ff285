//! Folding the interpreter's plumbing into the references that a person writes.

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, Graph, NodeIndex};
use petgraph::visit::EdgeRef;

use super::leak_graph::{Hop, LeakEdge, LeakGraph, LeakNode};
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;

/// Folds away instance dictionaries, closure tuples, cells, default tuples and generator frames.
///
/// `object → __dict__ → ['x'] → value` becomes `object → .x → value`, and so on, so that the graph
/// has the same shape on every version of CPython (instance dictionaries exist or not, generators
/// refer to their variables themselves or through a frame). An object is folded only if every
/// reference to it is of the kind that is folded with it; otherwise the program itself refers to it.
pub fn fold(mut graph: LeakGraph) -> LeakGraph {
    lead_to_classes(&mut graph);
    // Instance dictionaries first, whatever the order of the objects: `_parameters` is an attribute only then. Tuples
    // before cells: a closure's cells are named by its tuple's references.
    for pass in [
        Pass::Dictionaries,
        Pass::Containers,
        Pass::Cells,
        Pass::Executors,
    ] {
        let nodes: Vec<NodeIndex> = graph.node_indices().collect();
        for node in nodes {
            fold_node(&mut graph, node, pass);
        }
    }
    graph.retain_nodes(|graph, node| graph[node].stands_for != FOLDED);
    numbered_anew(graph)
}

/// Lets cells that refer to the dictionary of a class refer to the class. From 3.14 on, the function that makes the
/// annotations of a class has such a cell (`__classdict__`), and nothing of the program's own refers to the dictionary.
pub(super) fn lead_to_classes(graph: &mut LeakGraph) {
    let is_attribute = |name: &ReferenceName, attribute: &str| matches!(name, ReferenceName::Attribute(name) if name == attribute);
    for dict in graph.node_indices().collect::<Vec<_>>() {
        if graph[dict].description.kind != ObjectKind::Dict {
            continue;
        }
        let referrers = graph.edges_directed(dict, Direction::Incoming);
        let (mut classes, mut cells) = (Vec::new(), Vec::new());
        let is_own = referrers.into_iter().all(|edge| {
            let kind = graph[edge.source()].description.kind;
            let name = &edge.weight().name;
            if kind == ObjectKind::Class && is_attribute(name, "__dict__") {
                classes.push(edge.source());
                return true;
            }
            cells.push((edge.id(), edge.source()));
            kind == ObjectKind::Cell && is_attribute(name, "cell_contents")
        });
        if let (true, [class]) = (is_own, &classes[..]) {
            for (edge, cell) in cells {
                graph.remove_edge(edge);
                let name = ReferenceName::Attribute("cell_contents".to_owned());
                graph.add_edge(cell, *class, LeakEdge::new(name));
            }
        }
    }
}

/// The graph without gaps in its numbers. Of references of equal cost the first is shown, so defaults come last: which
/// of a function's parts is visited first differs between versions.
fn numbered_anew(graph: LeakGraph) -> LeakGraph {
    let (nodes, mut edges) = Graph::from(graph).into_nodes_edges();
    edges.sort_by_key(|edge| matches!(edge.weight.name, ReferenceName::Default(_)));
    let mut ordered = LeakGraph::with_capacity(nodes.len(), edges.len());
    for node in nodes {
        ordered.add_node(node.weight);
    }
    for edge in edges {
        ordered.add_edge(edge.source(), edge.target(), edge.weight);
    }
    ordered
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Dictionaries,
    Containers,
    Cells,
    /// The function in which a `ThreadPoolExecutor` keeps its initializer from 3.14 on.
    Executors,
}

/// Marks a node whose references were taken over by its referrers.
const FOLDED: u64 = u64::MAX;

fn fold_node(graph: &mut LeakGraph, node: NodeIndex, pass: Pass) {
    let is_plumbing = match graph[node].description.kind {
        ObjectKind::Cell => pass == Pass::Cells,
        ObjectKind::Dict => matches!(pass, Pass::Dictionaries | Pass::Containers),
        ObjectKind::Tuple | ObjectKind::Frame => pass == Pass::Containers,
        ObjectKind::Function => pass == Pass::Executors && graph[node].is_library(),
        _ => false,
    };
    if graph[node].is_buffer || !is_plumbing {
        return;
    }
    let incoming: Vec<(NodeIndex, LeakEdge)> = graph
        .edges_directed(node, Direction::Incoming)
        .map(|edge| (edge.source(), edge.weight().clone()))
        .collect();
    let outgoing: Vec<(NodeIndex, LeakEdge)> = graph
        .edges(node)
        .map(|edge| (edge.target(), edge.weight().clone()))
        .collect();
    let foldable = !incoming.is_empty()
        && !outgoing.is_empty()
        && (pass == Pass::Cells || incoming.len() == 1)
        && incoming.iter().all(|(from, edge)| {
            *from != node && combined(&graph[*from], &edge.name, &graph[node], None, pass).is_some()
        });
    if !foldable {
        return;
    }
    for (from, first) in &incoming {
        for (to, second) in &outgoing {
            let (from_node, middle) = (&graph[*from], &graph[node]);
            let name = combined(from_node, &first.name, middle, Some(&second.name), pass);
            let joined = LeakEdge {
                name: name.unwrap_or(ReferenceName::Unnamed),
                through: joined(first, middle, second),
            };
            graph.add_edge(*from, *to, joined);
        }
    }
    let folded: Vec<EdgeIndex> = graph
        .edges_directed(node, Direction::Incoming)
        .chain(graph.edges(node))
        .map(|edge| edge.id())
        .collect();
    for edge in folded {
        graph.remove_edge(edge);
    }
    graph[node].stands_for = FOLDED;
}

/// The objects that `first → middle → second` passes, in order.
fn joined(first: &LeakEdge, middle: &LeakNode, second: &LeakEdge) -> Vec<Hop> {
    let into = first.through.last().map_or(&first.name, |hop| &hop.onwards);
    let onwards = second.through.first().map_or(&second.name, |hop| &hop.into);
    let hop = Hop {
        object: middle.object,
        label: middle.description.label.clone(),
        into: into.clone(),
        onwards: onwards.clone(),
    };
    let before = first.through.iter().cloned();
    let after = second.through.iter().cloned();
    before.chain([hop]).chain(after).collect()
}

/// The name of `from → middle → target` as one reference; `None` if the two do not fold.
///
/// Without `second`, says whether `middle` is of the kind that folds, with any name.
fn combined(
    from: &LeakNode,
    first: &ReferenceName,
    middle: &LeakNode,
    second: Option<&ReferenceName>,
    pass: Pass,
) -> Option<ReferenceName> {
    use ReferenceName::{Attribute, Closure, Default, Index, Key, Local, Unnamed};
    let second = second.unwrap_or(&Unnamed);
    let kind = middle.description.kind;
    if pass == Pass::Cells {
        return match (kind, first) {
            (ObjectKind::Cell, Closure(_) | Local(_)) => Some(first.clone()),
            _ => None,
        };
    }
    let Attribute(part) = first else { return None };
    if pass == Pass::Dictionaries && part != "__dict__" {
        return None;
    }
    if pass == Pass::Executors {
        let kept = part == "_create_worker_context" && kind == ObjectKind::Function;
        return kept.then(|| match second {
            Closure(name) => Attribute(format!("_{name}")),
            other => other.clone(),
        });
    }
    match (from.description.kind, part.as_str(), kind) {
        (_, "__dict__", ObjectKind::Dict) => Some(match second {
            Key(key) => Attribute(unquoted(key)),
            other => other.clone(),
        }),
        (ObjectKind::Function, "__closure__", ObjectKind::Tuple) => Some(match second {
            Index(i) => Closure(nth(&from.description.free_variables, *i)),
            other => other.clone(),
        }),
        (ObjectKind::Function, "__defaults__", ObjectKind::Tuple) => Some(match second {
            Index(i) => Default(nth(&from.description.default_arguments, *i)),
            other => other.clone(),
        }),
        (ObjectKind::Function, "__kwdefaults__", ObjectKind::Dict) => Some(match second {
            Key(key) => Default(unquoted(key)),
            other => other.clone(),
        }),
        (ObjectKind::Class, "__mro__" | "__bases__", ObjectKind::Tuple) => Some(first.clone()),
        (ObjectKind::Partial | ObjectKind::Exception, "args", ObjectKind::Tuple)
        | (ObjectKind::Exception, "exceptions", ObjectKind::Tuple) => Some(match second {
            Index(i) => Attribute(format!("{part}[{i}]")),
            other => other.clone(),
        }),
        (ObjectKind::Partial, "keywords", ObjectKind::Dict) => Some(match second {
            Key(key) => Attribute(format!("keywords[{key}]")),
            other => other.clone(),
        }),
        (
            ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator,
            "gi_frame" | "cr_frame" | "ag_frame",
            ObjectKind::Frame,
        ) => Some(second.clone()),
        // `nn.Module` keeps what is assigned to an attribute in one of these.
        (ObjectKind::Instance, "_parameters" | "_buffers" | "_modules", ObjectKind::Dict) => {
            Some(match second {
                Key(key) => Attribute(unquoted(key)),
                other => other.clone(),
            })
        }
        _ => None,
    }
}

/// The text of a quoted key, as an attribute's name; the key itself if it is not a string.
fn unquoted(key: &str) -> String {
    let Some(quoted) = key
        .strip_prefix('\'')
        .and_then(|key| key.strip_suffix('\''))
    else {
        return key.to_owned();
    };
    let mut text = String::with_capacity(quoted.len());
    let mut rest = quoted.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.next_if(|next| c == '\\' && matches!(next, '\\' | '\'')) {
            Some(escaped) => text.push(escaped),
            None => text.push(c),
        }
    }
    text
}

/// The `i`th of some names; the number itself where there are fewer.
fn nth(names: &[String], i: usize) -> String {
    names.get(i).cloned().unwrap_or_else(|| i.to_string())
}
