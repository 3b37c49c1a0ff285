//! Which references to remove to free the buffers.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use super::buffer_paths::paths_to_buffers;
use super::cycle::{Cycle, cycle_through, first_cycle};
use super::leak_graph::LeakGraph;
use super::links::Links;
use super::mocks::{held_by_mocks, is_of_mocks};
use super::preference::{LIBRARY, PLUMBING, is_content, points_back, preference};
use crate::capture::{Place, ReferenceName};
use crate::cpython::ObjectKind;

/// Maximum number of causes of one group: nobody would remove more.
const CAUSE_LIMIT: usize = 32;
/// Maximum number of causes that are reported.
const TOLD_LIMIT: usize = 8;
/// Maximum number of references to try in a long cycle, best first.
const CANDIDATE_LIMIT: usize = 64;
/// Of more cuts of one cause than these, which one line makes, it is not tried whether each is needed, but all.
const TRIED_LIMIT: usize = 32;
/// So many objects and references are visited in search of the cuts, in all trials together. Where everything refers to
/// everything, no few cuts free anything, and each trial is long.
const VISIT_LIMIT: usize = 4_000_000;
/// Of more functions than these, each stored by a line of its own, nobody wants to read one by one.
const FUNCTIONS_OF_ONE_LINE: usize = 8;
/// To find the next cycle, and what to cut of it, visits the graph so often.
const PASSES: usize = 16;
/// Added for a reference outside the cycle, which is cut only if the cycle is all plumbing.
const OUTSIDE_CYCLE: u32 = 500;
/// Added for a reference that libraries made, where what others set on their objects can be cut.
const MADE_BY_LIBRARY: u32 = 500;

/// A cycle that keeps a buffer, and the references to remove from it.
#[derive(Clone, Debug)]
pub struct Cause {
    pub cycle: Cycle,
    /// Those of the cycle first.
    pub cuts: Vec<EdgeIndex>,
    /// Which strongly connected component of the graph the cycle is in.
    pub component: usize,
    /// False if the reference to remove is the interpreter's, or the cycle is known to be a library's making.
    pub is_own: bool,
    /// True if the cycle is known to be a library's making, and none of its objects is of the program's code.
    pub is_of_library: bool,
}

/// What is known of the part that libraries have in a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LibrarysPart {
    /// Nothing: the program has made it, or nobody knows who.
    #[default]
    None,
    /// A library stores what it was given.
    Stored,
    /// A library has made it of its own accord.
    Made,
}

/// Says of each reference of a cycle what part libraries have in it.
pub type MadeByLibrary<'a> = dyn Fn(&Cycle) -> Vec<LibrarysPart> + 'a;

/// Why the buffers are kept.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    /// In the order in which they were found. The first has the cycle nearest to a buffer.
    pub causes: Vec<Cause>,
    /// True if no cycle of the graph reaches a buffer without the references of all causes.
    pub frees: bool,
}

/// How many trials are left, each a visit of the whole graph.
struct Trials(usize);

impl Trials {
    fn of(graph: &LeakGraph) -> Self {
        Self(VISIT_LIMIT / (graph.node_count() + graph.edge_count()).max(1))
    }

    /// False if there are not so many left to take.
    fn take(&mut self, count: usize) -> bool {
        let left = self.0.checked_sub(count);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }
}

/// The cycles that keep a buffer, each with the references to remove from it.
///
/// From the nearest cycle removes one reference: the best, in the order of `preference`, after which no cycle
/// reaches a buffer; if there is none, the best of all with those that the same line made elsewhere. Then
/// continues with the next cycle that still reaches a buffer. Finally drops what the others make unnecessary.
///
/// `made_by_library` says of a cycle, for each of its references, what part libraries have in it. It is
/// asked only of cycles in which no object is the program's.
pub fn find_causes(graph: &LeakGraph, made_by_library: &MadeByLibrary<'_>) -> Causes {
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
            true => Some((false, held_by_mocks(&rest))),
            false => best_cuts(&rest, &cycle, made_by_library, &mut trials),
        });
        let Some((is_own, cuts)) = best.flatten() else {
            found.frees = false;
            found.causes.truncate(TOLD_LIMIT);
            break;
        };
        for &cut in &cuts {
            rest.remove_edge(cut);
        }
        let first = cycle.nodes.first();
        found.causes.push(Cause {
            component: first.map_or(0, |node| components[node.index()]),
            is_of_library: is_of_mocks
                || is_of_library(graph, &cycle)
                    && is_made_by_library(&cycle, &cuts, made_by_library),
            cycle,
            cuts,
            is_own,
        });
    }
    if found.frees {
        found.frees = drop_needless(graph, &mut found.causes, &mut trials);
    }
    for cause in &mut found.causes {
        let Cause { cycle, cuts, .. } = cause;
        cuts.sort_by_key(|edge| !cycle.edges.contains(edge));
    }
    found
}

/// A reference that may be cut, by its rank, the lowest being the best. Of equally good references the last of the cycle
/// as it is shown, which leads back: the order of the heap, which is not the same on each Python, decides nothing.
type Candidate = (u32, Reverse<usize>, EdgeIndex);

/// The references to remove so that this cycle keeps no buffer, and whether they may be of the program's making.
///
/// They are in the cycle, unless it is all plumbing, as that of a class is: then they are on a path from it to a
/// buffer.
fn best_cuts(
    graph: &LeakGraph,
    cycle: &Cycle,
    made_by_library: &MadeByLibrary<'_>,
    trials: &mut Trials,
) -> Option<(bool, Vec<EdgeIndex>)> {
    let candidates = candidates(graph, cycle, made_by_library);
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
    let enough = candidates.iter().find_map(|&(.., edge)| {
        if frees(&[edge]) {
            return Some(vec![edge]);
        }
        // Calls of one function each keep their exception in a variable of the same name.
        let is_made_alike = is_way_back(graph, edge)
            || keeps_traceback
                && (is_traceback(graph, edge)
                    || matches!(graph[edge].name, ReferenceName::Local(_)));
        let all = is_made_alike.then(|| alike(graph, &components, edge))?;
        Some(all).filter(|all| all.len() > 1 && frees(all))
    });
    // Of equally good ones that are not enough, that which leaves the least to cut.
    let cuts = enough.or_else(|| {
        let equal = candidates.iter().filter(|&&(rank, ..)| rank == lowest);
        let all = equal.map(|&(.., edge)| alike(graph, &components, edge));
        all.min_by_key(|cuts| match trials.take(1) {
            true => links.without(cuts).in_cycles_to_buffers(),
            false => usize::MAX,
        })
    })?;
    let is_own = match cuts.first().map(|&cut| preference(graph, cut)) {
        Some(..LIBRARY) => true,
        Some(..PLUMBING) => !is_made_by_library(cycle, &cuts, made_by_library),
        _ => false,
    };
    Some((is_own, cuts))
}

/// The references that may be cut, the best first.
fn candidates(
    graph: &LeakGraph,
    cycle: &Cycle,
    made_by_library: &MadeByLibrary<'_>,
) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = cycle
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
    // Nobody deletes the `self` of a method that runs.
    let is_own_argument = |edge: EdgeIndex| {
        let owner = graph.edge_endpoints(edge).map(|(from, _)| &graph[from]);
        owner.is_some_and(|owner| owner.description.kind == ObjectKind::Frame)
            && matches!(&graph[edge].name, ReferenceName::Local(name) if name == "self")
    };
    let can_be_cut = |&(rank, .., edge): &Candidate| {
        rank < PLUMBING && !is_content(graph, edge) && !is_own_argument(edge)
    };
    if candidates
        .iter()
        .any(|candidate| can_be_cut(candidate) && !is_of_class(candidate.2))
    {
        candidates.retain(can_be_cut);
    }
    let is_of_program = |&(rank, _, edge): &Candidate| rank < LIBRARY && !is_item(graph, edge);
    if candidates.len() > 1 && !candidates.iter().any(is_of_program) {
        let made = made_by_library(cycle);
        for (rank, Reverse(step), _) in &mut candidates {
            if *rank < PLUMBING
                && made
                    .get(*step)
                    .is_some_and(|part| *part != LibrarysPart::None)
            {
                *rank += MADE_BY_LIBRARY;
            }
        }
    }
    candidates.sort_unstable();
    candidates.dedup();
    candidates.truncate(CANDIDATE_LIMIT);
    candidates
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

/// True if a library has made a reference of the cycle of its own accord, or the first of the cuts that is in it.
fn is_made_by_library(
    cycle: &Cycle,
    cuts: &[EdgeIndex],
    made_by_library: &MadeByLibrary<'_>,
) -> bool {
    let made = made_by_library(cycle);
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

/// The reference and all others of the same line of code that are in cycles. Attributes, variables and keys that point
/// back only, not other items of containers.
fn alike(graph: &LeakGraph, components: &[usize], edge: EdgeIndex) -> Vec<EdgeIndex> {
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
    let same = graph
        .edge_indices()
        .filter(|&other| line(other) == line(edge));
    let all: Vec<(EdgeIndex, BTreeSet<Code<'_>>)> = same
        .map(|other| (other, stored_code(graph, other)))
        .collect();
    let stored: BTreeSet<_> = all.iter().map(|(_, stored)| stored).collect();
    let is_one = stored.len() > FUNCTIONS_OF_ONE_LINE;
    let own = stored_code(graph, edge);
    let same = all.iter().filter(|(_, stored)| is_one || *stored == own);
    same.map(|&(other, _)| other).collect()
}

/// A function by its name and place.
type Code<'a> = (&'a str, Option<&'a Place>);

/// The functions that a reference leads to, itself or as items of a container.
fn stored_code(graph: &LeakGraph, edge: EdgeIndex) -> BTreeSet<Code<'_>> {
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

/// True if no cycle reaches a buffer without these references.
pub fn frees(graph: &LeakGraph, removed: &[EdgeIndex]) -> bool {
    Links::of(graph).are_freed_without(removed)
}

/// True for the reference of an exception to its traceback. What catches several exceptions stores all of them alike.
fn is_traceback(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    matches!(&graph[edge].name, ReferenceName::Attribute(name) if name == "__traceback__")
}

fn is_way_back(graph: &LeakGraph, edge: EdgeIndex) -> bool {
    match &graph[edge].name {
        ReferenceName::Attribute(name) => points_back(name),
        ReferenceName::Key(key) => points_back(key.trim_matches('\'')),
        _ => false,
    }
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
