//! Which references to remove to free the buffers.

use std::cmp::Reverse;

use petgraph::Direction;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, EdgeIndex, NodeIndex};
use petgraph::visit::{IntoNeighborsDirected, IntoNodeIdentifiers, NodeCount, VisitMap, Visitable};
use rustc_hash::FxHashSet;

use super::buffer_paths::paths_to_buffers;
use super::cycle::{Cycle, cycle_through, first_cycle};
use super::group::{Group, is_cyclic};
use super::leak_graph::{LeakEdge, LeakGraph, LeakNode};
use crate::capture::{ReferenceName, Snapshot};
use crate::cpython::ObjectKind;

/// Maximum number of cuts to search for: nobody would make more.
const CUT_LIMIT: usize = 8;
/// Maximum number of references to try in a long cycle, best first.
const CANDIDATE_LIMIT: usize = 64;
/// Maximum number of similar references to cut together.
const ALIKE_LIMIT: usize = 32;
/// Added for a reference outside the cycle, which is cut only if the cycle is all plumbing.
const OUTSIDE_CYCLE: u32 = 500;
/// Added for a reference of a library's own making.
const LIBRARY: u32 = 300;
/// Added for a reference that libraries made, where what others set on their objects can be cut.
const MADE_BY_LIBRARY: u32 = 500;
/// From this rank on, a reference is the interpreter's.
pub(super) const PLUMBING: u32 = 1000;

/// A cycle that keeps a buffer, and the references to remove from it.
#[derive(Clone, Debug)]
pub struct Cause {
    pub cycle: Cycle,
    /// Those of the cycle first.
    pub cuts: Vec<EdgeIndex>,
    /// Which strongly connected component of the graph the cycle is in.
    pub component: usize,
    /// True if the reference to remove is of the program's making, and not of a library's or the interpreter's.
    pub is_own: bool,
    /// True if no object of the cycle is of the program's code, and some is of a library's.
    pub is_of_library: bool,
}

/// Says of each reference of a cycle whether libraries are known to have made it.
pub type MadeByLibrary<'a> = dyn Fn(&Cycle) -> Vec<bool> + 'a;

/// Why the buffers are kept.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    /// In the order in which they were found. The first has the cycle nearest to a buffer.
    pub causes: Vec<Cause>,
    /// True if no cycle of the graph reaches a buffer without the references of all causes.
    pub frees: bool,
}

/// The cycles that keep a buffer, each with the references to remove from it.
///
/// From the nearest cycle removes one reference: the best, in the order of `preference`, after which no cycle
/// reaches a buffer; if there is none, the best of all with those that the same line made elsewhere. Then
/// continues with the next cycle that still reaches a buffer. Finally drops what the others make unnecessary.
///
/// `made_by_library` says of a cycle, for each of its references, whether libraries are known to have made it. It is
/// asked only of cycles in which no object is the program's.
pub fn find_causes(graph: &LeakGraph, made_by_library: &MadeByLibrary<'_>) -> Causes {
    let components = component_of(graph);
    let mut rest = graph.clone();
    let mut found = Causes {
        causes: Vec::new(),
        frees: true,
    };
    while let Some(cycle) = first_cycle(&rest) {
        let best =
            (found.causes.len() < CUT_LIMIT).then(|| best_cuts(&rest, &cycle, made_by_library));
        let Some((is_own, cuts)) = best.flatten() else {
            found.frees = false;
            break;
        };
        rest = without(&rest, &cuts);
        let first = cycle.nodes.first();
        found.causes.push(Cause {
            component: first.map_or(0, |node| components[node.index()]),
            is_of_library: is_of_library(graph, &cycle),
            cycle,
            cuts,
            is_own,
        });
    }
    if found.frees {
        drop_needless(graph, &mut found.causes);
    }
    for cause in &mut found.causes {
        let Cause { cycle, cuts, .. } = cause;
        cuts.sort_by_key(|edge| !cycle.edges.contains(edge));
    }
    found
}

/// The references to remove so that this cycle keeps no buffer, and whether they are of the program's making.
///
/// They are in the cycle, unless it is all plumbing, as that of a class is: then they are on a path from it to a
/// buffer.
fn best_cuts(
    graph: &LeakGraph,
    cycle: &Cycle,
    made_by_library: &MadeByLibrary<'_>,
) -> Option<(bool, Vec<EdgeIndex>)> {
    // Of equally good references the last of the cycle as it is shown, which leads back: the order of
    // the heap, which is not the same on each Python, decides nothing.
    let mut candidates: Vec<(u32, Reverse<usize>, EdgeIndex)> = cycle
        .edges
        .iter()
        .enumerate()
        .map(|(step, &edge)| (preference(graph, edge), Reverse(step), edge))
        .collect();
    if candidates.iter().all(|&(rank, ..)| rank >= PLUMBING) {
        let paths = paths_to_buffers(graph, cycle);
        candidates.extend(paths.iter().flat_map(|path| &path.edges).map(|&edge| {
            let rank = preference(graph, edge).saturating_add(OUTSIDE_CYCLE);
            (rank, Reverse(0), edge)
        }));
    } else {
        candidates.retain(|&(rank, ..)| rank < PLUMBING);
    }
    // What the program wants to keep is not cut as long as another reference of the program can be. Those of a class
    // are none: it needs its attributes, and is a cycle anyhow.
    let is_of_class = |edge: EdgeIndex| {
        let owner = graph.edge_endpoints(edge).map(|(from, _)| &graph[from]);
        owner.is_some_and(|owner| owner.description.kind == ObjectKind::Class)
    };
    let can_be_cut = |&(rank, .., edge): &(u32, Reverse<usize>, EdgeIndex)| {
        rank < PLUMBING && !is_content(graph, edge)
    };
    if candidates
        .iter()
        .any(|candidate| can_be_cut(candidate) && !is_of_class(candidate.2))
    {
        candidates.retain(can_be_cut);
    }
    let is_of_program = |&(rank, _, edge): &(u32, Reverse<usize>, EdgeIndex)| {
        rank < LIBRARY && !is_item(graph, edge)
    };
    if candidates.len() > 1 && !candidates.iter().any(is_of_program) {
        let made = made_by_library(cycle);
        for (rank, Reverse(step), _) in &mut candidates {
            if *rank < PLUMBING && made.get(*step) == Some(&true) {
                *rank += MADE_BY_LIBRARY;
            }
        }
    }
    candidates.sort_unstable();
    candidates.dedup();
    candidates.truncate(CANDIDATE_LIMIT);
    let &(lowest, ..) = candidates.first()?;
    let enough = candidates.iter().find_map(|&(.., edge)| {
        let all = alike(graph, edge);
        let together = all.len() > 1 && is_way_back(graph, edge);
        let frees = |edges: &Vec<EdgeIndex>| !cycle_reaches_buffer(&without(graph, edges));
        Some(vec![edge])
            .filter(frees)
            .or_else(|| Some(all).filter(|all| together && frees(all)))
    });
    // Of equally good ones that are not enough, that which leaves the least to cut.
    let cuts = enough.or_else(|| {
        let equal = candidates.iter().filter(|&&(rank, ..)| rank == lowest);
        let all = equal.map(|&(.., edge)| alike(graph, edge));
        all.min_by_key(|cuts| {
            let rest = without(graph, cuts);
            in_cycles_to_buffers(&rest, |node| rest[node].is_buffer)
        })
    })?;
    let is_own = cuts
        .first()
        .is_some_and(|&cut| preference(graph, cut) < LIBRARY);
    Some((is_own, cuts))
}

/// True for an item of a container, which is as much the program's as the container.
fn is_item(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    use ReferenceName::{Index, Key, Member};
    let owner = graph.edge_endpoints(edge).map(|(from, _)| &graph[from]);
    matches!(graph[edge].name, Key(_) | Index(_) | Member)
        && owner.is_some_and(|owner| owner.description.place.is_none())
}

fn is_of_library(graph: &LeakGraph, cycle: &Cycle) -> bool {
    let is_library = |&node: &NodeIndex| graph[node].is_library();
    let is_nobodys = |&node: &NodeIndex| graph[node].description.place.is_none();
    let nodes = &cycle.nodes;
    nodes.iter().any(is_library)
        && nodes
            .iter()
            .all(|node| is_library(node) || is_nobodys(node))
}

/// The number of each node's strongly connected component.
fn component_of(graph: &LeakGraph) -> Vec<usize> {
    let mut numbers = vec![0; graph.node_count()];
    for (number, component) in kosaraju_scc(graph).into_iter().enumerate() {
        for node in component {
            numbers[node.index()] = number;
        }
    }
    numbers
}

/// The reference and all similar ones in cycles: same name, between objects of the same types, so made by the
/// same line of code. Attributes and variables only, not the items of containers.
fn alike(graph: &LeakGraph, edge: EdgeIndex) -> Vec<EdgeIndex> {
    let components = component_of(graph);
    let in_a_cycle = |edge: EdgeIndex| {
        let ends = graph.edge_endpoints(edge);
        ends.is_some_and(|(from, to)| components[from.index()] == components[to.index()])
    };
    let kind = |edge: EdgeIndex| {
        let (from, _) = graph.edge_endpoints(edge)?;
        let owner = &graph[from].description;
        Some((&graph[edge].name, &owner.type_name, &owner.place))
    };
    let mut all = vec![edge];
    if matches!(
        &graph[edge].name,
        ReferenceName::Attribute(_) | ReferenceName::Closure(_) | ReferenceName::Local(_)
    ) {
        all.extend(
            graph
                .edge_indices()
                .filter(|&other| other != edge && kind(other) == kind(edge) && in_a_cycle(other)),
        );
    }
    if all.len() > ALIKE_LIMIT {
        all.truncate(1);
    }
    all
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

/// The references of one name between objects of the same owner's type and code, which one line of code makes.
pub fn of_same_line(graph: &LeakGraph, edge: EdgeIndex) -> Vec<EdgeIndex> {
    let line = |edge: EdgeIndex| {
        let (from, _) = graph.edge_endpoints(edge)?;
        let owner = &graph[from].description;
        Some((&graph[edge].name, &owner.label, &owner.place))
    };
    match &graph[edge].name {
        ReferenceName::Attribute(_)
        | ReferenceName::Closure(_)
        | ReferenceName::Default(_)
        | ReferenceName::Local(_) => graph
            .edge_indices()
            .filter(|&other| line(other) == line(edge))
            .collect(),
        _ => vec![edge],
    }
}

/// True if no cycle reaches a buffer without these references.
pub fn frees(graph: &LeakGraph, removed: &[EdgeIndex]) -> bool {
    !cycle_reaches_buffer(&without(graph, removed))
}

fn is_way_back(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    matches!(&graph[edge].name, ReferenceName::Attribute(name) if points_back(name))
}

fn without(graph: &LeakGraph, edges: &[EdgeIndex]) -> LeakGraph {
    let mut rest = graph.clone();
    for &edge in edges {
        rest.remove_edge(edge);
    }
    rest
}

/// Drops unnecessary cuts, last first: those without which the others still free every buffer. A cause whose
/// cycle is no longer cut gets one through a cut that is left.
fn drop_needless(graph: &LeakGraph, causes: &mut Vec<Cause>) {
    let all: Vec<EdgeIndex> = causes
        .iter()
        .flat_map(|cause| &cause.cuts)
        .copied()
        .collect();
    let mut needed = all.clone();
    for &cut in all.iter().rev() {
        let others: Vec<EdgeIndex> = needed
            .iter()
            .copied()
            .filter(|&other| other != cut)
            .collect();
        if !others.is_empty() && !cycle_reaches_buffer(&without(graph, &others)) {
            needed = others;
        }
    }
    for cause in causes.iter_mut() {
        cause.cuts.retain(|cut| needed.contains(cut));
    }
    causes.retain(|cause| !cause.cuts.is_empty());
    for cause in causes.iter_mut() {
        let Cause { cycle, cuts, .. } = cause;
        let is_cut = cuts.iter().any(|cut| cycle.edges.contains(cut));
        if !is_cut && let Some(other) = cuts.iter().find_map(|&cut| cycle_through(graph, cut)) {
            *cycle = other;
        }
    }
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
        _ if graph[edge].is_plumbing() => PLUMBING,
        _ if cannot_be_assigned(owner, &graph[edge].name, target) => 80,
        ReferenceName::Attribute(name) if owner.description.frozen => match points_back(name) {
            true => 45,
            false => 57,
        },
        ReferenceName::Attribute(name) => match owner.description.kind {
            ObjectKind::Instance if points_back(name) => 5,
            ObjectKind::Instance if holds_others(target) => 27,
            ObjectKind::Instance if owner.is_library() => 15,
            ObjectKind::Instance if is_code(target) => 9,
            ObjectKind::Instance => 11,
            ObjectKind::Class => 25,
            ObjectKind::Exception => 60,
            ObjectKind::Method | ObjectKind::Partial => 70,
            ObjectKind::Traceback | ObjectKind::Frame => 90,
            _ => 40,
        },
        ReferenceName::Closure(name) if name == "self" => 10,
        ReferenceName::Closure(_) => 20,
        ReferenceName::Local(_) => 30,
        ReferenceName::Default(_) => 35,
        ReferenceName::Key(key) if points_back(key.trim_matches('\'')) => 45,
        ReferenceName::Key(_) | ReferenceName::Index(_) => 50,
        ReferenceName::Member => 55,
        ReferenceName::KeyItself
        | ReferenceName::Type
        | ReferenceName::ContextVariable(_)
        | ReferenceName::Cached
        | ReferenceName::Unnamed
        | ReferenceName::Omitted => PLUMBING,
    };
    // A reference between a library's object and the program's own is the program's making.
    let library = owner.is_library() && (target.is_library() || target.description.place.is_none());
    base + if library { LIBRARY } else { 0 } + if target.stands_for > 0 { 2000 } else { 0 }
}

/// True for a reference that no assignment of the program can change: an item of a tuple, a variable of a
/// generator that is suspended, the exception with which a future or task ended.
pub fn cannot_be_assigned(owner: &LeakNode, name: &ReferenceName, target: &LeakNode) -> bool {
    match owner.description.kind {
        ObjectKind::Tuple => true,
        ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator => {
            matches!(name, ReferenceName::Local(_))
        }
        ObjectKind::Instance => {
            matches!(name, ReferenceName::Attribute(name) if name == "_exception")
                && target.description.kind == ObjectKind::Exception
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

/// True for common names of back references to an owner or a predecessor.
pub fn points_back(name: &str) -> bool {
    let name = name.trim_start_matches('_').to_ascii_lowercase();
    const NAMES: [&str; 20] = [
        "parent",
        "owner",
        "prev",
        "previous",
        "before",
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
    let mut graph: DiGraph<bool, ()> = DiGraph::with_capacity(group.nodes.len(), 0);
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
    in_cycles_to_buffers(&graph, |node| graph[node]) == 0
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

/// True if some cycle of the graph reaches a buffer.
fn cycle_reaches_buffer(graph: &LeakGraph) -> bool {
    in_cycles_to_buffers(graph, |node| graph[node].is_buffer) > 0
}

/// The number of objects in strongly connected components that have a cycle and reach a buffer.
fn in_cycles_to_buffers<G>(graph: G, is_buffer: impl Fn(NodeIndex) -> bool) -> usize
where
    G: IntoNeighborsDirected<NodeId = NodeIndex>
        + Visitable<NodeId = NodeIndex>
        + IntoNodeIdentifiers
        + NodeCount,
    G::Map: VisitMap<NodeIndex>,
{
    // Kosaraju's components come in an order in which each is after those it can reach.
    let mut reaches = vec![false; graph.node_count()];
    let mut count = 0;
    for component in kosaraju_scc(graph) {
        let hit = component.iter().any(|&node| {
            is_buffer(node) || graph.neighbors(node).any(|next| reaches[next.index()])
        });
        if hit {
            if is_cyclic(graph, &component) {
                count += component.len();
            }
            for node in component {
                reaches[node.index()] = true;
            }
        }
    }
    count
}
