//! One reference to a function of the program's, in place of those by which a library's objects refer to one another.

use std::collections::BTreeSet;

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use super::buffer_paths::paths_to_buffers;
use super::cause::{Cause, Code, LibrarysPart, Trials};
use super::cycle::{Cycle, cycle_through};
use super::leak_graph::LeakGraph;
use super::links::Links;
use super::same_line::alike;
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;

/// How many references are tried of each component.
const TRIED: usize = 12;

/// Which causes are replaced, and how many they are.
type Replaced<'a> = (&'a dyn Fn(&Cause) -> bool, usize);

/// Where a library's objects keep what the program gave them, and that leads back to them, the program has closed a cycle:
/// `self.parser.add_argument("--n", type=self.parse)`. If without the reference to its function or object, and those that
/// the same line made, no cycle of the component keeps a buffer, that is the one to remove, and the library's own are not;
/// nor are several others. If only the program's other causes are left, it is in the place of the library's.
///
/// True if there was one.
pub(super) fn prefer_programs(
    graph: &LeakGraph,
    causes: &mut Vec<Cause>,
    components: &[usize],
    code: &dyn Code,
    trials: &mut Trials,
) -> bool {
    let links = Links::of(graph);
    let mut is_changed = false;
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while at < causes.len() {
        let component = causes[at].component;
        at += 1;
        let is_in = |it: &Cause| it.component == component;
        let is_librarys = |it: &Cause| is_in(it) && it.is_of_library;
        let all = causes.iter().filter(|it| is_in(it)).count();
        let librarys = causes.iter().filter(|it| is_librarys(it)).count();
        if !seen.insert(component) || all < 2 && librarys == 0 {
            continue;
        }
        let given = given_by_program(graph, causes, component, components);
        let kinds: [Replaced<'_>; 2] = [(&is_in, all), (&is_librarys, librarys)];
        let found = kinds.into_iter().find_map(|(is_replaced, count)| {
            let others = causes.iter().filter(|it| !is_replaced(it));
            let others: Vec<EdgeIndex> = others.flat_map(|it| &it.cuts).copied().collect();
            let mut given = given.iter().filter(|_| count > 0);
            given.find_map(|&edge| {
                let cuts = with_same(graph, components, edge);
                let is_enough =
                    trials.take(1) && links.are_freed_without(&[&others[..], &cuts].concat());
                // To ask the code takes longer.
                let cycle = is_enough.then(|| cycle_of_given(graph, edge, code))??;
                Some((is_replaced, cuts, cycle))
            })
        });
        if let Some((is_replaced, cuts, cycle)) = found {
            let first = causes.iter().position(is_replaced).unwrap_or_default();
            causes.retain(|it| !is_replaced(it));
            let cause = Cause {
                cycle,
                cuts,
                component,
                is_own: true,
                is_of_library: false,
                is_for_others: false,
            };
            causes.insert(first.min(causes.len()), cause);
            is_changed = true;
        }
    }
    is_changed
}

/// A cycle through a reference that the program has given, if the program can take it back.
fn cycle_of_given(graph: &LeakGraph, edge: EdgeIndex, code: &dyn Code) -> Option<Cycle> {
    // What a mock keeps of a call, it keeps of every call.
    let is_mocks = |&node: &NodeIndex| {
        let name = &graph[node].description.type_name;
        name.starts_with("unittest.mock.")
    };
    let cycle = cycle_through(graph, edge).filter(|it| !it.nodes.iter().any(is_mocks))?;
    let step = cycle.edges.iter().position(|&it| it == edge)?;
    let (owner, target) = graph.edge_endpoints(edge)?;
    let target = &graph[target].description;
    let is_instance = target.kind == ObjectKind::Instance;
    let is_item = graph[owner].description.kind == ObjectKind::Tuple
        || !matches!(graph[edge].name, ReferenceName::Attribute(_));
    let can_be_taken = match code.librarys_parts(&cycle).get(step) {
        // Nobody can take back what a library's constructor has stored.
        Some(LibrarysPart::None) => {
            !is_instance || code.are_stored_by_owner(&cycle).get(step) != Some(&true)
        }
        Some(LibrarysPart::Stored) => is_item || !is_instance,
        // A library has made the container, but no object of a class that knows of no library.
        Some(LibrarysPart::Made) | None => is_item && target.of_program,
    };
    can_be_taken.then_some(cycle)
}

/// The reference, those that the same line made elsewhere, and those of the same name to the same object.
fn with_same(graph: &LeakGraph, components: &[usize], edge: EdgeIndex) -> Vec<EdgeIndex> {
    let mut all = alike(graph, components, edge);
    let target = graph.edge_endpoints(edge).map(|(_, target)| target);
    let referrers = target
        .into_iter()
        .flat_map(|target| graph.edges_directed(target, Direction::Incoming));
    for other in referrers {
        if other.weight().name == graph[edge].name
            && components[other.source().index()] == components[other.target().index()]
            && !all.contains(&other.id())
        {
            all.push(other.id());
        }
    }
    all
}

/// The references from a library's objects, or a container in the place of one, to functions and objects of the program's
/// that are in the cycles of a component, or lead from these to a buffer and back.
fn given_by_program(
    graph: &LeakGraph,
    causes: &[Cause],
    component: usize,
    components: &[usize],
) -> Vec<EdgeIndex> {
    use ObjectKind::{Function, Instance, Method, Partial, Tuple};
    use ReferenceName::{Attribute, Index, Key, Member};
    let mut found = Vec::new();
    for cause in causes.iter().filter(|it| it.component == component) {
        let paths = paths_to_buffers(graph, &cause.cycle);
        let on_paths = paths.iter().flat_map(|path| &path.edges);
        for &edge in cause.cycle.edges.iter().chain(on_paths) {
            let Some((from, to)) = graph.edge_endpoints(edge) else {
                continue;
            };
            let is_within = [from, to]
                .iter()
                .all(|it| components[it.index()] == component);
            let (owner, given) = (&graph[from], &graph[to].description);
            let is_kept = match graph[edge].name {
                // A tuple with names has its items as attributes.
                Attribute(_) => owner.is_library() || owner.description.kind == Tuple,
                Key(_) | Index(_) | Member => {
                    owner.description.place.is_none() || owner.is_library()
                }
                _ => false,
            };
            let can_be_given = match given.kind {
                Function | Method | Partial => owner.description.kind != Instance || is_kept,
                Instance => is_kept,
                _ => false,
            };
            if is_within
                && can_be_given
                && (given.place.is_some() || given.of_program)
                && !graph[to].is_library()
                && !found.contains(&edge)
                && found.len() < TRIED
            {
                found.push(edge);
            }
        }
    }
    found
}
