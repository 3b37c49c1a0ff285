//! Which references to remove to free the buffers.

use std::cmp::Reverse;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;
use rustc_hash::FxHashMap;

use super::buffer_paths::paths_to_buffers;
use super::cause::{Cause, Code, LibrarysPart, Trials, Way};
use super::common_cut::{cut_in_common, join_given, join_namespaces};
use super::cycle::{Cycle, cycle_through, first_cycle};
use super::leak_graph::LeakGraph;
use super::links::Links;
use super::mocks::{held_by_mocks, is_of_mocks};
use super::preference::{
    LIBRARY, PLUMBING, WAY_BACK, WAY_FORTH, captures_object, is_content, keeps_container,
    preference,
};
use super::programs_cut::prefer_programs;
use super::same_line::{alike, is_item, is_traceback, is_way_back, made_again};
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;

/// Maximum number of causes of one group: nobody would remove more.
const CAUSE_LIMIT: usize = 32;
/// Maximum number of causes that are reported.
const TOLD_LIMIT: usize = 8;
/// Maximum number of references to try in a long cycle, best first.
const CANDIDATE_LIMIT: usize = 64;
/// Of more cuts of one cause than these, which one line makes, it is not tried whether each is needed, but all.
const TRIED_LIMIT: usize = 32;
/// To find the next cycle, and what to cut of it, visits the graph so often.
const PASSES: usize = 16;
/// Added for a reference outside the cycle, which is cut only if the cycle is all plumbing.
const OUTSIDE_CYCLE: u32 = 500;
/// Added for what an object has to which another reference outside of the cycle leads: it is none of the cycle's.
const BEYOND: u32 = 20;
/// Added for a reference that libraries made, where what others set on their objects can be cut.
const MADE_BY_LIBRARY: u32 = 500;

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
/// The code is asked only of cycles that a library has a part in, and of those in which several attributes can be cut.
pub fn find_causes(graph: &LeakGraph, code: &dyn Code) -> Causes {
    let components = component_of(graph);
    let mut rest = graph.clone();
    let mut found = Causes {
        causes: Vec::new(),
        frees: true,
    };
    let mut trials = Trials::of(graph);
    while let Some(cycle) = first_cycle(&rest) {
        let goes_on =
            found.causes.is_empty() || found.causes.len() < CAUSE_LIMIT && trials.take(PASSES);
        let is_of_mocks = is_of_mocks(graph, &cycle);
        let best = goes_on.then(|| match is_of_mocks {
            true => Some(Cuts::of_mocks(&rest)),
            false => best_cuts(&rest, &cycle, code, &mut trials),
        });
        let Some(best) = best.flatten() else {
            found.frees = false;
            found.causes.truncate(TOLD_LIMIT);
            break;
        };
        let cuts = best.cuts;
        for &cut in &cuts {
            rest.remove_edge(cut);
        }
        let first = cycle.nodes.first();
        found.causes.push(Cause {
            component: first.map_or(0, |node| components[node.index()]),
            is_of_library: is_of_mocks || is_of_library(graph, &cycle, &cuts, code),
            cycle,
            cuts,
            is_own: best.is_own,
            is_for_others: best.is_for_others,
        });
    }
    if found.frees {
        found.frees = drop_needless(graph, &mut found.causes, &mut trials);
    }
    if found.frees && cut_in_common(graph, &mut found.causes, code, &mut trials) {
        found.frees = drop_needless(graph, &mut found.causes, &mut trials);
    }
    if found.frees && prefer_programs(graph, &mut found.causes, &components, code, &mut trials) {
        found.frees = drop_needless(graph, &mut found.causes, &mut trials);
    }
    if found.frees {
        join_namespaces(graph, &mut found.causes, &mut trials);
        join_given(graph, &mut found.causes);
    }
    for cause in &mut found.causes {
        let Cause { cycle, cuts, .. } = cause;
        cuts.sort_by_key(|edge| !cycle.edges.contains(edge));
    }
    found
}

/// The references to remove so that a cycle keeps no buffer.
struct Cuts {
    cuts: Vec<EdgeIndex>,
    /// True if they may be of the program's making.
    is_own: bool,
    /// See [`Cause::is_for_others`].
    is_for_others: bool,
}

impl Cuts {
    fn of_mocks(graph: &LeakGraph) -> Self {
        Self {
            cuts: held_by_mocks(graph),
            is_own: false,
            is_for_others: false,
        }
    }
}

/// A reference that may be cut, by its rank, the lowest being the best. Of equally good references the last of the cycle
/// as it is shown, which leads back: the order of the heap, which is not the same on each Python, decides nothing.
type Candidate = (u32, Reverse<usize>, EdgeIndex);

/// The references to remove so that this cycle keeps no buffer.
///
/// They are in the cycle, unless it is all plumbing, as that of a class is: then they are on a path from it to a
/// buffer.
fn best_cuts(
    graph: &LeakGraph,
    cycle: &Cycle,
    code: &dyn Code,
    trials: &mut Trials,
) -> Option<Cuts> {
    let (mut candidates, ways_back) = candidates(graph, cycle, code);
    drop_what_libraries_need(graph, cycle, code, &mut candidates);
    let &(lowest, ..) = candidates.first()?;
    let links = Links::of(graph);
    let components = component_of(graph);
    // Each cycle that a trial leaves rules out all references that leave it, too.
    let mut left: Vec<Vec<EdgeIndex>> = Vec::new();
    let mut frees = |cuts: &[EdgeIndex]| {
        let cuts_it = |cycle: &Vec<EdgeIndex>| cuts.iter().any(|cut| cycle.contains(cut));
        if !left.iter().all(cuts_it) || !trials.take(1) {
            return false;
        }
        let cycle = links.without(cuts).cycle_to_buffer();
        left.extend(cycle.clone());
        cycle.is_none()
    };
    let keeps_traceback = candidates
        .iter()
        .any(|&(.., edge)| is_traceback(graph, edge));
    // Of an object that points back twice, both are cut, and not what it is kept by.
    let points_back = lowest == WAY_BACK;
    let tried = candidates
        .iter()
        .take_while(|&&(rank, ..)| !points_back || rank == WAY_BACK);
    let enough = tried.into_iter().find_map(|&(rank, _, edge)| {
        if frees(&[edge]) {
            return Some((rank > lowest, vec![edge]));
        }
        // Calls of one function each keep their exception in a variable of the same name.
        let is_made_alike = is_way_back(graph, edge)
            || captures_object(graph, edge)
            || ways_back.contains(&edge)
            || keeps_traceback
                && (is_traceback(graph, edge)
                    || matches!(graph[edge].name, ReferenceName::Local(_)));
        let all = is_made_alike.then(|| alike(graph, &components, edge))?;
        let is_enough = all.len() > 1 && frees(&all);
        is_enough.then_some((rank > lowest, all))
    });
    // Of equally good ones that are not enough, that which leaves the least to cut.
    let (is_for_others, cuts) = enough.or_else(|| {
        let equal = candidates.iter().filter(|&&(rank, ..)| rank == lowest);
        let all = equal.map(|&(.., edge)| alike(graph, &components, edge));
        let best = all.min_by_key(|cuts| match trials.take(1) {
            true => links.without(cuts).in_cycles_to_buffers(),
            false => usize::MAX,
        });
        best.map(|cuts| (false, cuts))
    })?;
    let is_own = match cuts.first().map(|&cut| preference(graph, cut)) {
        Some(..LIBRARY) => true,
        Some(..PLUMBING) => !is_made_by_library(cycle, &cuts, code),
        _ => false,
    };
    Some(Cuts {
        cuts,
        is_own,
        is_for_others,
    })
}

/// Leaves out what a library's object was given and its own code has stored, as that needs it: not even if to cut that
/// alone would do. But for functions, in the place of which another can be given.
fn drop_what_libraries_need(
    graph: &LeakGraph,
    cycle: &Cycle,
    code: &dyn Code,
    candidates: &mut Vec<Candidate>,
) {
    let can_be = |&(rank, _, edge): &Candidate| {
        let ends = graph.edge_endpoints(edge);
        rank < PLUMBING
            && matches!(graph[edge].name, ReferenceName::Attribute(_))
            && ends.is_some_and(|(owner, target)| {
                let is_instance =
                    |it: NodeIndex| graph[it].description.kind == ObjectKind::Instance;
                let is_between = graph[owner].is_library() && !graph[target].is_library();
                is_between && is_instance(owner) && is_instance(target)
            })
    };
    if !candidates.iter().any(can_be) {
        return;
    }
    let stored = code.are_stored_by_owner(cycle);
    let is_needed = |candidate: &Candidate| {
        let Reverse(step) = candidate.1;
        can_be(candidate) && stored.get(step) == Some(&true)
    };
    let mut others = candidates.iter().filter(|it| !is_needed(it));
    if others.any(|&(rank, ..)| rank < LIBRARY) {
        candidates.retain(|candidate| !is_needed(candidate));
    }
}

/// The references that may be cut, the best first, and those that by the code lead back to what made their owner.
fn candidates(
    graph: &LeakGraph,
    cycle: &Cycle,
    code: &dyn Code,
) -> (Vec<Candidate>, Vec<EdgeIndex>) {
    let is_of = |kind, edge| is_of(graph, kind, edge);
    let mut candidates: Vec<Candidate> = cycle
        .edges
        .iter()
        .enumerate()
        .map(|(step, &edge)| (preference(graph, edge), Reverse(step), edge))
        .collect();
    if candidates.iter().all(|&(rank, ..)| rank >= PLUMBING) {
        candidates.extend(candidates_on_paths(graph, cycle));
        // Nobody can remove this one, and up to 3.14 a class has other references to itself as well.
        let is_mro = |edge: EdgeIndex| matches!(&graph[edge].name, ReferenceName::Attribute(name) if name == "__mro__");
        if candidates.iter().any(|&(.., edge)| !is_mro(edge)) {
            candidates.retain(|&(.., edge)| !is_mro(edge));
        }
    } else {
        candidates.retain(|&(rank, ..)| rank < PLUMBING);
    }
    if candidates.len() > 1 {
        let again = made_again(graph, candidates.iter().map(|&(.., edge)| edge));
        candidates.retain(|(.., edge)| !again.contains(edge));
    }
    // What the program wants to keep is not cut as long as another reference of the program can be. Those of a class
    // are none: it needs its attributes, and is a cycle anyhow.
    // Nobody deletes the `self` of a method that runs.
    let is_own_argument = |edge: EdgeIndex| {
        is_of(ObjectKind::Frame, edge)
            && matches!(&graph[edge].name, ReferenceName::Local(name) if name == "self")
    };
    let can_be_cut = |&(rank, .., edge): &Candidate| {
        rank < PLUMBING && !is_content(graph, edge) && !is_own_argument(edge)
    };
    if candidates
        .iter()
        .any(|candidate| can_be_cut(candidate) && !is_of(ObjectKind::Class, candidate.2))
    {
        candidates.retain(can_be_cut);
    }
    // A container of the object may be the library's that its class derives from, as `UserDict.data` is.
    let is_shared = |edge| is_item(graph, edge) || keeps_container(graph, edge);
    let is_of_program = |&(rank, _, edge): &Candidate| rank < LIBRARY && !is_shared(edge);
    let has_library = cycle.nodes.iter().any(|&node| graph[node].is_library());
    if candidates.len() > 1 && (has_library || !candidates.iter().any(is_of_program)) {
        let made = code.librarys_parts(cycle);
        for (rank, Reverse(step), edge) in &mut candidates {
            // A library keeps each callback, and who has passed it can take it back. Its class needs the container.
            if (WAY_BACK..PLUMBING).contains(rank)
                && made
                    .get(*step)
                    .is_some_and(|part| *part != LibrarysPart::None)
            {
                *rank += MADE_BY_LIBRARY + LIBRARY * u32::from(keeps_container(graph, *edge));
            }
        }
    }
    let ways = ways(graph, cycle, &candidates, code);
    let is_known = ways.values().any(|way| *way == Way::Back);
    for (rank, _, edge) in &mut candidates {
        match ways.get(edge) {
            Some(Way::Back) => *rank = WAY_BACK,
            Some(Way::Forth) => *rank = (*rank).max(WAY_FORTH),
            // What the code says goes before what a name may mean.
            _ if is_known && *rank == WAY_BACK => *rank += 1,
            _ => {}
        }
    }
    candidates.sort_unstable();
    candidates.dedup();
    candidates.truncate(CANDIDATE_LIMIT);
    let ways_back = ways.iter().filter(|&(_, way)| *way == Way::Back);
    let ways_back = ways_back.map(|(&edge, _)| edge).collect();
    (candidates, ways_back)
}

/// The references on the paths from a cycle that is all plumbing to buffers. What an object has to which another
/// reference on the path leads is cut only if that cannot be: but a class needs its instances no less than what they have.
fn candidates_on_paths(graph: &LeakGraph, cycle: &Cycle) -> Vec<Candidate> {
    let is_instance_of_cycle = |edge: EdgeIndex| {
        let owner = graph.edge_endpoints(edge).map(|(from, _)| from);
        owner.is_some_and(|owner| {
            graph.edges(owner).any(|class| {
                class.weight().name == ReferenceName::Type && cycle.nodes.contains(&class.target())
            })
        })
    };
    let mut candidates = Vec::new();
    for path in paths_to_buffers(graph, cycle) {
        let mut is_beyond = false;
        candidates.extend(path.edges.iter().map(|&edge| {
            let rank = preference(graph, edge);
            let is_anothers = is_beyond
                && is_of(graph, ObjectKind::Instance, edge)
                && !keeps_container(graph, edge)
                && !is_instance_of_cycle(edge);
            let beyond = if is_anothers { BEYOND } else { 0 };
            is_beyond |= rank < PLUMBING;
            (
                rank.saturating_add(OUTSIDE_CYCLE + beyond),
                Reverse(0),
                edge,
            )
        }));
    }
    candidates
}

/// True for a reference that an object of this kind has.
fn is_of(graph: &LeakGraph, kind: ObjectKind, edge: EdgeIndex) -> bool {
    let ends = graph.edge_endpoints(edge);
    ends.is_some_and(|(owner, _)| graph[owner].description.kind == kind)
}

/// Where the attributes of the program's objects lead by the code. It is asked where several could be cut.
fn ways(
    graph: &LeakGraph,
    cycle: &Cycle,
    candidates: &[Candidate],
    code: &dyn Code,
) -> FxHashMap<EdgeIndex, Way> {
    let is_attribute = |&&(rank, _, edge): &&Candidate| {
        let owner = graph.edge_endpoints(edge).map(|(from, _)| &graph[from]);
        use ObjectKind::{Class, Function, Method, Module, Partial};
        rank < LIBRARY
            && owner.is_some_and(|owner| {
                !owner.is_library()
                    && !matches!(
                        owner.description.kind,
                        Class | Function | Method | Module | Partial
                    )
            })
            && matches!(graph[edge].name, ReferenceName::Attribute(_))
    };
    let attributes = candidates.iter().filter(is_attribute);
    let attributes: Vec<EdgeIndex> = attributes.map(|&(.., edge)| edge).collect();
    if attributes.len() < 2 || candidates.iter().any(|&(rank, ..)| rank < WAY_BACK) {
        return FxHashMap::default();
    }
    let ways = cycle.edges.iter().copied().zip(code.ways(cycle));
    ways.filter(|(edge, _)| attributes.contains(edge)).collect()
}

/// True if libraries have made a cycle: of their own objects, or, where one is of a class that the program derives from
/// theirs, each of its references.
fn is_of_library(graph: &LeakGraph, cycle: &Cycle, cuts: &[EdgeIndex], code: &dyn Code) -> bool {
    let is_library = |&node: &NodeIndex| graph[node].is_library();
    let is_nobodys = |&node: &NodeIndex| graph[node].description.place.is_none();
    let nodes = &cycle.nodes;
    nodes.iter().any(is_library)
        && match nodes
            .iter()
            .all(|node| is_library(node) || is_nobodys(node))
        {
            true => is_made_by_library(cycle, cuts, code),
            false => {
                let parts = code.librarys_parts(cycle);
                parts.contains(&LibrarysPart::Made) && !parts.contains(&LibrarysPart::None)
            }
        }
}

/// True if a library has made a reference of the cycle of its own accord, or the first of the cuts that is in it.
fn is_made_by_library(cycle: &Cycle, cuts: &[EdgeIndex], code: &dyn Code) -> bool {
    let made = code.librarys_parts(cycle);
    let at = |cut: &EdgeIndex| cycle.edges.iter().position(|edge| edge == cut);
    let cut = cuts.iter().find_map(at).and_then(|step| made.get(step));
    made.contains(&LibrarysPart::Made) || cut.is_some_and(|part| *part != LibrarysPart::None)
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

/// True if no cycle reaches a buffer without these references.
pub fn frees(graph: &LeakGraph, removed: &[EdgeIndex]) -> bool {
    Links::of(graph).are_freed_without(removed)
}

/// Drops unnecessary cuts, last first: those without which the others still free every buffer. A cause whose
/// cycle is no longer cut gets one through a cut that is left. False if it was not tried of all.
fn drop_needless(graph: &LeakGraph, causes: &mut Vec<Cause>, trials: &mut Trials) -> bool {
    let links = Links::of(graph);
    let all = causes.iter().flat_map(|cause| &cause.cuts);
    let mut needed: Vec<EdgeIndex> = all.copied().collect();
    for cause in causes.iter().rev() {
        let size = match cause.cuts.len() {
            ..=TRIED_LIMIT => 1,
            many => many,
        };
        for part in cause.cuts.chunks(size).rev() {
            let others = needed.iter().filter(|cut| !part.contains(cut));
            let others: Vec<EdgeIndex> = others.copied().collect();
            if others.is_empty() {
                continue;
            }
            if !trials.take(1) {
                return false;
            }
            if links.are_freed_without(&others) {
                needed = others;
            }
        }
    }
    for cause in causes.iter_mut() {
        cause.cuts.retain(|cut| needed.contains(cut));
    }
    causes.retain(|cause| !cause.cuts.is_empty());
    for cause in causes.iter_mut() {
        let Cause { cycle, cuts, .. } = cause;
        let is_cut = cuts.iter().any(|cut| cycle.edges.contains(cut));
        if !is_cut
            && !is_of_mocks(graph, cycle)
            && let Some(other) = cuts.iter().find_map(|&cut| cycle_through(graph, cut))
        {
            *cycle = other;
        }
    }
    true
}
