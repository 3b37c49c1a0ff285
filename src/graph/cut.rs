//! Which references to remove to free the buffers.

use std::cmp::Reverse;

use petgraph::Direction;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, EdgeIndex, NodeIndex};
use petgraph::visit::{IntoNeighborsDirected, IntoNodeIdentifiers, NodeCount, VisitMap, Visitable};
use rustc_hash::FxHashSet;

use super::buffer_paths::paths_to_buffers;
use super::cycle::{Cycle, first_cycle};
use super::group::{Group, is_cyclic};
use super::leak_graph::{LeakGraph, LeakNode};
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

/// The references to remove.
#[derive(Clone, Debug, Default)]
pub struct CutSet {
    /// In the order in which they were found. The first is in the cycle that is shown.
    pub edges: Vec<EdgeIndex>,
    /// True if no cycle of the graph reaches a buffer without these references.
    pub frees: bool,
}

/// The references to remove, best first.
///
/// Searches the shown cycle, in the order of [`preference`], for one reference that is enough; or the
/// path from it to a buffer, if the cycle is all plumbing (a class is always a cycle). The back
/// references to an owner, which one line creates in every node of a tree, count as one. If none is
/// enough, cuts the best one with all similar ones, and continues with the next cycle that still reaches
/// a buffer. Finally drops cuts that the others make unnecessary.
pub fn find_cuts(graph: &LeakGraph, cycle: &Cycle) -> CutSet {
    let mut rest = graph.clone();
    let mut cuts = CutSet::default();
    let mut next = Some(cycle.clone());
    let mut rounds = 0;
    while let Some(cycle) = next {
        if rounds == CUT_LIMIT {
            return cuts;
        }
        rounds += 1;
        // Of equally good references the last of the cycle as it is shown, which leads back: the order of
        // the heap, which is not the same on each Python, decides nothing.
        let mut candidates: Vec<(u32, Reverse<usize>, EdgeIndex)> = cycle
            .edges
            .iter()
            .enumerate()
            .map(|(step, &edge)| (preference(&rest, edge), Reverse(step), edge))
            .collect();
        let paths = paths_to_buffers(&rest, &cycle);
        candidates.extend(paths.iter().flat_map(|path| &path.edges).map(|&edge| {
            let preference = preference(&rest, edge).saturating_add(OUTSIDE_CYCLE);
            (preference, Reverse(0), edge)
        }));
        candidates.sort_unstable();
        candidates.dedup();
        candidates.truncate(CANDIDATE_LIMIT);
        let Some(&(.., best)) = candidates.first() else {
            return cuts;
        };
        let enough = candidates.iter().find_map(|&(.., edge)| {
            let all = alike(&rest, edge);
            let together = all.len() > 1 && is_way_back(&rest, edge);
            let frees = |edges: &Vec<EdgeIndex>| !cycle_reaches_buffer(&without(&rest, edges));
            Some(vec![edge])
                .filter(frees)
                .or_else(|| Some(all).filter(|all| together && frees(all)))
        });
        let cut = enough.unwrap_or_else(|| alike(&rest, best));
        rest = without(&rest, &cut);
        cuts.edges.extend(cut);
        next = first_cycle(&rest);
    }
    drop_needless(graph, &mut cuts.edges);
    cuts.edges.sort_by_key(|edge| !cycle.edges.contains(edge));
    cuts.frees = true;
    cuts
}

/// The reference and all similar ones: same name, between objects of the same types, so made by the same
/// line of code. Attributes and variables only, not the items of containers.
fn alike(graph: &LeakGraph, edge: EdgeIndex) -> Vec<EdgeIndex> {
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
                .filter(|&other| other != edge && kind(other) == kind(edge)),
        );
    }
    if all.len() > ALIKE_LIMIT {
        all.truncate(1);
    }
    all
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

/// Drops unnecessary cuts, last first: those without which the others still free every buffer.
fn drop_needless(graph: &LeakGraph, cuts: &mut Vec<EdgeIndex>) {
    for index in (0..cuts.len()).rev() {
        let mut others = cuts.clone();
        others.remove(index);
        if !others.is_empty() && !cycle_reaches_buffer(&without(graph, &others)) {
            *cuts = others;
        }
    }
}

/// Rank of a reference as a cut; lower is better.
///
/// The program's own code before a library's, both before the interpreter's plumbing. An attribute
/// of an object is easiest to change, most of all one that by its name points back to an owner, and
/// one that keeps a function before one that keeps another object; then
/// variables that a closure or a frame holds, then attributes that hold a whole container, then
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
        _ if graph[edge].is_plumbing() => 1000,
        ReferenceName::Attribute(name) => match owner.description.kind {
            ObjectKind::Instance | ObjectKind::Class if points_back(name) => 5,
            ObjectKind::Instance if holds_others(target) => 27,
            ObjectKind::Instance if owner.is_library() => 15,
            ObjectKind::Instance if is_code(target) => 9,
            ObjectKind::Instance => 10,
            ObjectKind::Class => 25,
            ObjectKind::Exception => 60,
            ObjectKind::Method | ObjectKind::Partial => 70,
            ObjectKind::Traceback | ObjectKind::Frame => 90,
            _ => 40,
        },
        ReferenceName::Closure(_) => 20,
        ReferenceName::Local(_) => 30,
        ReferenceName::Default(_) => 35,
        ReferenceName::Key(key) if points_back(key.trim_matches('\'')) => 45,
        ReferenceName::Key(_) | ReferenceName::Index(_) => 50,
        ReferenceName::Member => 55,
        ReferenceName::KeyItself
        | ReferenceName::Type
        | ReferenceName::Unnamed
        | ReferenceName::Omitted => 1000,
    };
    // A reference between a library's object and the program's own is the program's making.
    let library = owner.is_library() && (target.is_library() || target.description.place.is_none());
    base + if library { 300 } else { 0 } + if target.stands_for > 0 { 2000 } else { 0 }
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
    !reaches_buffer(&graph, |node| graph[node])
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
    reaches_buffer(graph, |node| graph[node].is_buffer)
}

fn reaches_buffer<G>(graph: G, is_buffer: impl Fn(NodeIndex) -> bool) -> bool
where
    G: IntoNeighborsDirected<NodeId = NodeIndex>
        + Visitable<NodeId = NodeIndex>
        + IntoNodeIdentifiers
        + NodeCount,
    G::Map: VisitMap<NodeIndex>,
{
    // Kosaraju's components come in an order in which each is after those it can reach.
    let mut reaches = vec![false; graph.node_count()];
    for component in kosaraju_scc(graph) {
        let hit = component.iter().any(|&node| {
            is_buffer(node) || graph.neighbors(node).any(|next| reaches[next.index()])
        });
        if hit {
            if is_cyclic(graph, &component) {
                return true;
            }
            for node in component {
                reaches[node.index()] = true;
            }
        }
    }
    false
}
