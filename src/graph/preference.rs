//! How good each reference is as a cut: whose it is, and what becomes of the program without it.

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use super::leak_graph::{LeakEdge, LeakGraph, LeakNode};
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;

/// Added for a reference of a library's own making.
pub(super) const LIBRARY: u32 = 300;
/// The rank of an object's reference that by its name points back to an owner.
pub(super) const WAY_BACK: u32 = 5;
/// The rank of one to what the object has made and has passed itself to: after variables, before items.
pub(super) const WAY_FORTH: u32 = 36;
/// From this rank on, a reference is the interpreter's.
pub(super) const PLUMBING: u32 = 1000;

/// True for a variable with an object that a function of the program captures: one line makes it for each such function.
pub(super) fn captures_object(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    let ends = graph.edge_endpoints(edge);
    matches!(graph[edge].name, ReferenceName::Closure(_))
        && ends.is_some_and(|(from, to)| {
            !graph[from].is_library() && graph[to].description.kind == ObjectKind::Instance
        })
}

/// Rank of a reference as a cut; lower is better.
///
/// The program's own code before a library's, both before the interpreter's plumbing. An attribute
/// of an object is easiest to change, most of all one that by its name points back to an owner, and
/// one that keeps a function, or the `self` of one, before one that keeps another object; then
/// other variables that a closure or a frame holds, then attributes that hold a whole container, then
/// what is in containers.
pub fn preference(graph: &LeakGraph, edge: EdgeIndex) -> u32 {
    let Some((from, to)) = graph.edge_endpoints(edge) else {
        return u32::MAX;
    };
    let (owner, target) = (&graph[from], &graph[to]);
    if let Some(rank) = callback_rank(graph, edge, from, to) {
        return rank;
    }
    let base = match &graph[edge].name {
        // `self.__dict__ = self`
        ReferenceName::Attribute(name) if name == "__dict__" && from == to => 45,
        _ if graph[edge].is_plumbing() => PLUMBING,
        _ if is_read_only(owner, &graph[edge].name) => PLUMBING,
        _ if cannot_be_assigned(owner, &graph[edge].name, target) => 80,
        ReferenceName::Attribute(name) if owner.description.frozen => match points_back(name) {
            true => 45,
            false => 57,
        },
        ReferenceName::Attribute(name) => match owner.description.kind {
            ObjectKind::Instance if points_back(name) => WAY_BACK,
            ObjectKind::Instance if holds_others(target) => 27,
            ObjectKind::Instance if owner.is_library() => 15,
            ObjectKind::Instance if is_code(target) => 9,
            ObjectKind::Instance => 11,
            ObjectKind::Class => 28,
            ObjectKind::Exception => 60,
            // `__self__` cannot be assigned.
            ObjectKind::Method | ObjectKind::BuiltinFunction => PLUMBING,
            ObjectKind::Partial => 70,
            ObjectKind::Traceback | ObjectKind::Frame => 90,
            _ => 40,
        },
        ReferenceName::Closure(name) if name == "self" && !owner.is_library() => 10,
        ReferenceName::Closure(_) => 20,
        ReferenceName::Local(_) => 30,
        ReferenceName::Default(_) => 35,
        ReferenceName::Key(_) if is_copy_of_locals(graph, from) => 65,
        ReferenceName::Key(key) if points_back(key.trim_matches('\'')) => 45,
        ReferenceName::Key(_) | ReferenceName::Index(_) => 50,
        ReferenceName::Member => 55,
        ReferenceName::KeyItself
        | ReferenceName::Type
        | ReferenceName::ContextVariable(_)
        | ReferenceName::Cached
        | ReferenceName::Function
        | ReferenceName::Stack
        | ReferenceName::Unnamed
        | ReferenceName::Omitted => PLUMBING,
    };
    // A reference between a library's object and the program's own is the program's making.
    let library = owner.is_library() && (target.is_library() || target.description.place.is_none());
    base + if library { LIBRARY } else { 0 } + if target.stands_for > 0 { 2000 } else { 0 }
}

/// True for the dict that reading the `f_locals` of a function's frame has made, up to Python 3.12: no code of the
/// program has it. That of a module, or of what `exec` runs, is its namespace.
fn is_copy_of_locals(graph: &LeakGraph, dict: NodeIndex) -> bool {
    let mut referrers = graph.edges_directed(dict, Direction::Incoming);
    referrers.any(|edge| {
        let frame = &graph[edge.source()].description;
        frame.kind == ObjectKind::Frame
            && frame.label != "frame of <module>"
            && matches!(&edge.weight().name, ReferenceName::Attribute(name) if name == "f_locals")
    })
}

/// What a special method of a type in C is when bound to an object, such as `x.__repr__`.
const METHOD_WRAPPER: &str = "method-wrapper";

/// True for the reference of a traceback to its frame, of a frame to the one that called it, and of a bound special method
/// to its object.
fn is_read_only(owner: &LeakNode, name: &ReferenceName) -> bool {
    let attribute = match owner.description.kind {
        ObjectKind::Traceback => "tb_frame",
        ObjectKind::Frame => "f_back",
        _ if owner.description.type_name == METHOD_WRAPPER => "__self__",
        // What `_io` shows of its objects is read only (Modules/_io/bufferedio.c, textio.c).
        ObjectKind::Instance if owner.description.type_name.starts_with("_io.") => {
            return matches!(name, ReferenceName::Attribute(_));
        }
        _ => return false,
    };
    matches!(name, ReferenceName::Attribute(name) if name == attribute)
}

/// True for a reference that no assignment of the program can change: an item of a tuple, a variable of a
/// generator that is suspended, the exception or result with which a future or task ended.
pub fn cannot_be_assigned(owner: &LeakNode, name: &ReferenceName, target: &LeakNode) -> bool {
    match owner.description.kind {
        ObjectKind::Tuple => true,
        ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator => {
            matches!(name, ReferenceName::Local(_))
        }
        ObjectKind::Instance => {
            let is = |attribute: &str| matches!(name, ReferenceName::Attribute(name) if name == attribute);
            // What `_asyncio` shows of its tasks and futures is read only (Modules/_asynciomodule.c).
            is("_exception") && target.description.kind == ObjectKind::Exception
                || matches!(name, ReferenceName::Attribute(_))
                    && owner.description.type_name.starts_with("_asyncio.")
        }
        _ => false,
    }
}

/// The rank of a reference by which a library keeps a callback, or the callback what it captures.
///
/// Before all others: the owner needs its model or its loader, and what can go is the callback's
/// reference to the owner, or the callback. `None` for any other reference.
fn callback_rank(
    graph: &LeakGraph,
    edge: EdgeIndex,
    from: NodeIndex,
    to: NodeIndex,
) -> Option<u32> {
    let target = &graph[to];
    match (&graph[edge].name, graph[from].description.kind) {
        (ReferenceName::Closure(_) | ReferenceName::Default(_), ObjectKind::Function) => {
            is_callback(graph, from).then_some(2)
        }
        (name @ ReferenceName::Attribute(_), ObjectKind::Instance) if target.stands_for == 0 => {
            let hooks = is_hooks(name) && holds_others(target);
            let given = is_installed(&graph[from]) && !target.is_library() && is_code(target);
            (hooks || given).then_some(3)
        }
        // A tensor refers to its hooks twice: what `remove()` takes out is the item.
        (ReferenceName::Key(_), ObjectKind::Dict) => is_registry(graph, from).then_some(4),
        _ => None,
    }
}

/// True for a function of the program that a library's object or a registry of hooks keeps.
fn is_callback(graph: &LeakGraph, function: NodeIndex) -> bool {
    let keepers = |node| graph.neighbors_directed(node, Direction::Incoming);
    let is_library = |node: NodeIndex| graph[node].is_library();
    !is_library(function)
        && keepers(function).any(|keeper| {
            is_library(keeper)
                || is_registry(graph, keeper)
                || (holds_others(&graph[keeper]) && keepers(keeper).any(is_library))
        })
}

/// True for a dict in which an object keeps its hooks.
fn is_registry(graph: &LeakGraph, dict: NodeIndex) -> bool {
    graph[dict].description.kind == ObjectKind::Dict
        && graph
            .edges_directed(dict, Direction::Incoming)
            .any(|edge| is_hooks(&edge.weight().name))
}

/// True for an object of an installed package: of those, and not of the standard library's threads
/// and executors, the program keeps many and gives callbacks to each.
fn is_installed(node: &LeakNode) -> bool {
    node.is_library()
        && node.description.place.as_ref().is_some_and(|place| {
            let file = place.file.replace('\\', "/");
            file.contains("/site-packages/") || file.contains("/dist-packages/")
        })
}

fn is_hooks(name: &ReferenceName) -> bool {
    matches!(name, ReferenceName::Attribute(name) if name.ends_with("_hooks"))
}

/// True for what can be called and was made by a line of code.
fn is_code(node: &LeakNode) -> bool {
    matches!(
        node.description.kind,
        ObjectKind::Function | ObjectKind::Method | ObjectKind::Partial
    )
}

/// True for objects between an owner and several others that it keeps: a cut there would remove more.
fn holds_others(node: &LeakNode) -> bool {
    matches!(
        node.description.kind,
        ObjectKind::Dict
            | ObjectKind::List
            | ObjectKind::Tuple
            | ObjectKind::Set
            | ObjectKind::Deque
            | ObjectKind::Weakref
    )
}

/// True for an attribute by which an object keeps a container.
pub(super) fn keeps_container(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    let target = graph.edge_endpoints(edge).map(|(_, target)| &graph[target]);
    matches!(graph[edge].name, ReferenceName::Attribute(_)) && target.is_some_and(holds_others)
}

/// True for common names of back references to an owner or a predecessor.
pub fn points_back(name: &str) -> bool {
    let name = name.trim_matches('_').to_ascii_lowercase();
    const NAMES: [&str; 28] = [
        "up",
        "parent",
        "parents",
        "owner",
        "owners",
        "ancestor",
        "ancestors",
        "predecessor",
        "predecessors",
        "prev",
        "previous",
        "before",
        "enclosing",
        "outer",
        "back",
        "backref",
        "root",
        "container",
        "holder",
        "parent_module",
        "trainer",
        "model",
        "module",
        "manager",
        "pool",
        "engine",
        "session",
        "app",
    ];
    NAMES.contains(&name.as_str())
}

/// True for the reference of an object or container to its tensor, and of a module to what is registered in it.
pub fn is_content(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    let Some((from, to)) = graph.edge_endpoints(edge) else {
        return false;
    };
    let reference = &graph[edge];
    if matches!(
        reference.name,
        ReferenceName::Closure(_) | ReferenceName::Default(_) | ReferenceName::Local(_)
    ) {
        return false;
    }
    let folded = || reference.through.iter().map(|hop| &hop.into);
    let in_registry = |node| {
        graph
            .edges_directed(node, Direction::Incoming)
            .any(|edge| is_registry_of_module(&edge.weight().name))
    };
    graph[to].is_tensor
        || graph[to].is_buffer
        || is_registry_of_module(&reference.name)
        || folded().any(is_registry_of_module)
        || (graph[from].description.kind == ObjectKind::Dict && in_registry(from))
}

/// True for an attribute of a module that is one of its submodules.
pub fn registers_submodule(edge: &LeakEdge) -> bool {
    edge.through.iter().any(|hop| match &hop.into {
        ReferenceName::Attribute(name) => name == "_modules",
        ReferenceName::Key(key) => key.trim_matches('\'') == "_modules",
        _ => false,
    })
}

/// True for the attributes in which `nn.Module` keeps its parameters, buffers and submodules.
fn is_registry_of_module(name: &ReferenceName) -> bool {
    let registries = ["_modules", "_parameters", "_buffers"];
    match name {
        ReferenceName::Attribute(name) => registries.contains(&name.as_str()),
        // Where it was not folded yet.
        ReferenceName::Key(key) => registries.contains(&key.trim_matches('\'')),
        _ => false,
    }
}
