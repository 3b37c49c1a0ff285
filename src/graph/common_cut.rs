//! One cause in place of several, where one change in the program does for all of them.

use std::collections::BTreeSet;

use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use super::cause::{Cause, Code, LibrarysPart, Trials};
use super::leak_graph::LeakGraph;
use super::links::Links;
use super::preference::{LIBRARY, PLUMBING, is_content, points_back, preference};
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;

/// How an attribute that is in the cycles of several causes was made.
#[derive(PartialEq)]
enum Shared {
    /// It keeps a function of the program's, and is cut if nothing better is.
    Function,
    /// The program has set it on a library's object.
    OnLibrarys,
    /// It points back to an owner by its name.
    Back,
}

/// Where one attribute does instead of the cuts of several causes, as it is in all their cycles, it is one cause: what
/// stores a method on another object, or sets an attribute on a library's object, closes a cycle by each reference that
/// leads on from there. True if there was such an attribute.
pub(super) fn cut_in_common(
    graph: &LeakGraph,
    causes: &mut Vec<Cause>,
    code: &dyn Code,
    trials: &mut Trials,
) -> bool {
    let before = causes.len();
    let links = Links::of(graph);
    let rank_of_cuts = |cause: &Cause| cause.cuts.iter().map(|&cut| preference(graph, cut)).max();
    let mut at = 0;
    while at < causes.len() {
        let first = &causes[at];
        let steps = first.cycle.edges.iter().copied().enumerate();
        let shared = steps.filter_map(|(step, edge)| Some((step, edge, shared(graph, edge)?)));
        let found = shared.into_iter().find(|(step, edge, shared)| {
            let is_better = |cause: &&Cause| Some(preference(graph, *edge)) <= rank_of_cuts(cause);
            let (same, others): (Vec<&Cause>, Vec<&Cause>) = causes
                .iter()
                .partition(|cause| cause.cycle.edges.contains(edge));
            if same.len() < 2 {
                return false;
            }
            let part = || code.librarys_parts(&first.cycle).get(*step).copied();
            let is_stored = || code.are_stored_by_owner(&first.cycle).get(*step) == Some(&true);
            let is_wanted = match shared {
                Shared::Function => same.iter().any(is_better),
                Shared::OnLibrarys => {
                    part().unwrap_or_default() == LibrarysPart::None && !is_stored()
                }
                Shared::Back => true,
            };
            let mut cuts: Vec<EdgeIndex> = others.iter().flat_map(|it| &it.cuts).copied().collect();
            cuts.push(*edge);
            is_wanted && trials.take(1) && links.are_freed_without(&cuts)
        });
        if let Some((_, edge, shared)) = found {
            let mut first = causes.remove(at);
            first.cuts = vec![edge];
            first.is_own |= shared == Shared::OnLibrarys;
            causes.retain(|cause| !cause.cycle.edges.contains(&edge));
            at = at.min(causes.len());
            causes.insert(at, first);
        }
        at += 1;
    }
    causes.len() < before
}

/// How an attribute was made that may be cut in common; `None` for what else a reference is.
fn shared(graph: &LeakGraph, edge: EdgeIndex) -> Option<Shared> {
    let (owner, target) = graph.edge_endpoints(edge)?;
    let (owner, target) = (&graph[owner], &graph[target]);
    let ReferenceName::Attribute(name) = &graph[edge].name else {
        return None;
    };
    use ObjectKind::{Function, Instance, Method, Partial};
    let rank = preference(graph, edge);
    match target.description.kind {
        Function | Method | Partial => (rank < LIBRARY).then_some(Shared::Function),
        Instance if owner.description.kind == Instance && !is_content(graph, edge) => {
            match target.is_library() {
                false if owner.is_library() && rank < LIBRARY => Some(Shared::OnLibrarys),
                _ => (points_back(name) && rank < PLUMBING).then_some(Shared::Back),
            }
        }
        _ => None,
    }
}

/// Makes one cause of those that one namespace is in which was made at run time: it refers to each of its functions, and
/// each of them back to it. What is cut is its items, if that is enough: then those causes too are in it whose cycle
/// passes through the namespace by whatever else.
pub(super) fn join_namespaces(graph: &LeakGraph, causes: &mut Vec<Cause>, trials: &mut Trials) {
    let mut at = 0;
    while at < causes.len() {
        if let Some(namespace) = namespace_of(graph, &causes[at]) {
            let through = |cause: &Cause| cause.cycle.nodes.contains(&namespace);
            let all = items_of(graph, namespace, causes);
            let others = causes.iter().filter(|it| !through(it));
            let others: Vec<EdgeIndex> = others.flat_map(|it| &it.cuts).copied().collect();
            let links = Links::of(graph);
            let mut frees = |cuts: &[EdgeIndex]| {
                trials.take(1) && links.are_freed_without(&[&others, cuts].concat())
            };
            let everything: Vec<EdgeIndex> = graph.edges(namespace).map(|it| it.id()).collect();
            let are_enough = frees(&all);
            let is_one = are_enough || frees(&everything);
            let is_same = |cause: &Cause| match is_one {
                true => through(cause),
                false => namespace_of(graph, cause) == Some(namespace),
            };
            let mut first = causes.remove(at);
            let (same, others): (Vec<Cause>, Vec<Cause>) =
                std::mem::take(causes).into_iter().partition(is_same);
            *causes = others;
            first = join(graph, &first, same);
            if are_enough {
                first.cuts = all;
            }
            at = at.min(causes.len());
            causes.insert(at, first);
        }
        at += 1;
    }
}

/// The references of a namespace by which the cycles of causes go on.
fn items_of(graph: &LeakGraph, namespace: NodeIndex, causes: &[Cause]) -> Vec<EdgeIndex> {
    let edges = causes.iter().flat_map(|cause| &cause.cycle.edges).copied();
    let is_item = |edge: &EdgeIndex| {
        let ends = graph.edge_endpoints(*edge);
        ends.is_some_and(|(owner, _)| owner == namespace)
    };
    Vec::from_iter(BTreeSet::from_iter(edges.filter(is_item)))
}

/// Makes one cause of those that one bound method or partial is in which a library keeps more than once: the program has
/// given it once.
pub(super) fn join_given(graph: &LeakGraph, causes: &mut Vec<Cause>) {
    let given = |cause: &Cause| {
        let [cut] = cause.cuts[..] else {
            return None;
        };
        use ObjectKind::{Method, Partial};
        let (owner, target) = graph.edge_endpoints(cut)?;
        let kind = graph[target].description.kind;
        let is_kept = graph[owner].is_library() || graph[owner].description.place.is_none();
        (is_kept && matches!(kind, Method | Partial)).then_some(target)
    };
    let mut at = 0;
    while at < causes.len() {
        if let Some(target) = given(&causes[at]) {
            let rest = causes.split_off(at + 1);
            let (same, others) = rest.into_iter().partition(|it| given(it) == Some(target));
            causes[at] = join(graph, &causes[at], same);
            causes.extend(others);
        }
        at += 1;
    }
}

/// One cause of several, with the shortest of their cycles.
fn join(graph: &LeakGraph, first: &Cause, others: Vec<Cause>) -> Cause {
    let mut joined = first.clone();
    for cause in others {
        let is_plain =
            namespace_of(graph, first).is_none() || namespace_of(graph, &cause).is_some();
        if is_plain && cause.cycle.edges.len() < joined.cycle.edges.len() {
            joined.cycle = cause.cycle;
        }
        joined.cuts.extend(cause.cuts);
        joined.is_own |= cause.is_own;
    }
    joined
}

/// The globals of a function in the cycle, if nothing but functions, classes and those globals is in it.
fn namespace_of(graph: &LeakGraph, cause: &Cause) -> Option<NodeIndex> {
    use ObjectKind::{Class, Dict, Function};
    let nodes = &cause.cycle.nodes;
    let is_plain =
        |&node: &NodeIndex| matches!(graph[node].description.kind, Class | Dict | Function);
    let globals = |&edge: &EdgeIndex| {
        let is_globals =
            matches!(&graph[edge].name, ReferenceName::Attribute(name) if name == "__globals__");
        let (from, to) = graph.edge_endpoints(edge)?;
        (is_globals
            && graph[from].description.kind == Function
            && graph[to].description.kind == Dict)
            .then_some(to)
    };
    nodes
        .iter()
        .all(is_plain)
        .then(|| cause.cycle.edges.iter().find_map(globals))?
}
