//! One reference to a function of the program's, in place of those by which a library's objects refer to one another.

use petgraph::graph::EdgeIndex;

use super::buffer_paths::paths_to_buffers;
use super::cause::{Cause, Code, LibrarysPart, Trials};
use super::cycle::cycle_through;
use super::leak_graph::LeakGraph;
use super::links::Links;
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;

/// How many references are tried of each cause.
const TRIED: usize = 8;

/// Where a cycle of a library's own objects keeps what the program gave it, and that leads back into the cycle, the
/// program has closed a cycle too: `self.parser.add_argument("--n", type=self.parse)`. If without the reference to its
/// function or object no cycle keeps a buffer but those of other causes, that reference is the one to remove, and the
/// library's are not.
pub(super) fn prefer_programs(
    graph: &LeakGraph,
    causes: &mut Vec<Cause>,
    components: &[usize],
    code: &dyn Code,
    trials: &mut Trials,
) {
    let links = Links::of(graph);
    let mut at = 0;
    while at < causes.len() {
        let component = causes[at].component;
        let is_librarys = |it: &Cause| it.component == component && it.is_of_library;
        if is_librarys(&causes[at]) {
            let others = causes.iter().filter(|it| !is_librarys(it));
            let others: Vec<EdgeIndex> = others.flat_map(|it| &it.cuts).copied().collect();
            let is_enough = |edge: EdgeIndex| {
                let cuts = [&others[..], &[edge]].concat();
                links.are_freed_without(&cuts)
            };
            let found = given_by_program(graph, &causes[at], components)
                .into_iter()
                .filter_map(|edge| Some((edge, cycle_through(graph, edge)?)))
                .find(|(edge, cycle)| {
                    let step = cycle.edges.iter().position(|it| it == edge);
                    let part = step.and_then(|step| code.librarys_parts(cycle).get(step).copied());
                    part.is_some_and(|part| part != LibrarysPart::Made)
                        && trials.take(1)
                        && is_enough(*edge)
                });
            if let Some((edge, cycle)) = found {
                let first = causes.iter().position(is_librarys);
                causes.retain(|it| !is_librarys(it));
                let cause = Cause {
                    cycle,
                    cuts: vec![edge],
                    component,
                    is_own: true,
                    is_of_library: false,
                    is_for_others: false,
                };
                causes.insert(first.unwrap_or_default().min(causes.len()), cause);
            }
        }
        at += 1;
    }
}

/// The references from a library's objects to functions of the program's, and the attributes by which they keep its
/// objects, that lead from a cause's cycle to a buffer, and back into the cycle.
fn given_by_program(graph: &LeakGraph, cause: &Cause, components: &[usize]) -> Vec<EdgeIndex> {
    use ObjectKind::{Function, Instance, Method, Partial};
    let paths = paths_to_buffers(graph, &cause.cycle);
    let mut found = Vec::new();
    for edge in paths.iter().flat_map(|path| path.edges.iter().copied()) {
        let Some((from, to)) = graph.edge_endpoints(edge) else {
            continue;
        };
        let is_within = [from, to]
            .iter()
            .all(|it| components[it.index()] == cause.component);
        let given = &graph[to].description;
        let is_attribute =
            || graph[from].is_library() && matches!(graph[edge].name, ReferenceName::Attribute(_));
        let can_be_given = match given.kind {
            Function | Method | Partial => true,
            Instance => is_attribute(),
            _ => false,
        };
        if is_within
            && can_be_given
            && given.place.is_some()
            && !graph[to].is_library()
            && !found.contains(&edge)
            && found.len() < TRIED
        {
            found.push(edge);
        }
    }
    found
}
