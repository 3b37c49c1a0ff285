//! The paths to the objects that were asked about.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use super::super::keepers::{Keeper, Keepers, Search};
use super::super::live::{Live, Root};
use super::super::naming::Naming;
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::model::retention::Path;
use crate::model::words::without_indices;

/// Where one object alone holds what was asked about, so many times it is asked who holds that.
const UPWARDS: usize = 6;

/// A path to an object that was asked about.
pub(super) struct PathTo {
    pub nodes: Vec<u32>,
    target: u32,
    /// One of several references between two of the nodes: the position of the first, and its name.
    by: Option<(usize, ReferenceName)>,
}

impl PathTo {
    fn new(nodes: Vec<u32>, target: u32) -> Self {
        Self {
            nodes,
            target,
            by: None,
        }
    }
}

/// The paths to the targets, those from what has a name first, then the shortest.
pub(super) fn find_paths(
    search: Search<'_, '_>,
    targets: &[u32],
    nearest: &Keepers,
) -> Vec<PathTo> {
    let live = search.live;
    let mut found: Vec<PathTo> = Vec::new();
    match targets {
        &[target] => found.extend(paths_to(search, target, nearest)),
        several => {
            for &target in several {
                let nearest = search.keepers(&[target], &[]);
                found.extend(paths_to(search, target, &nearest));
            }
        }
    }
    found.sort_by_key(|path| {
        let root = path
            .nodes
            .first()
            .map_or(Root::Nothing, |&first| live.root(first));
        let starts_in_c = matches!(path.nodes[..], [first, next, ..] if live.is_of_c(first, next));
        let rank = match root {
            _ if starts_in_c => 1,
            Root::Module(_) | Root::Library(_) | Root::Frame(_) => 0,
            Root::Outside | Root::Uncounted => 1,
            Root::Nothing => 2,
        };
        (rank, path.nodes.len())
    });
    found
}

/// A path through each of the references that keep one target. Where there is only one, the paths to what
/// has it are told apart, and so on upwards.
fn paths_to(search: Search<'_, '_>, target: u32, nearest: &Keepers) -> Vec<PathTo> {
    let live = search.live;
    let mut suffix = vec![target];
    let mut found: Vec<PathTo> = Vec::new();
    for level in 0..UPWARDS {
        let above = (level > 0).then(|| search.keepers(&suffix[..1], &suffix[1..]));
        let keepers = above.as_ref().unwrap_or(nearest);
        if !keepers.found.is_empty() || found.is_empty() {
            let behind = &suffix[1..];
            found = keepers
                .found
                .iter()
                .map(|keeper| PathTo {
                    nodes: [&keeper.nodes, behind].concat(),
                    target,
                    by: Some((keeper.at, keeper.name.clone())),
                })
                .collect();
        }
        let is_named = |path: &PathTo| {
            let first = path.nodes.first().map(|&first| live.root(first));
            matches!(
                first,
                Some(Root::Module(_) | Root::Library(_) | Root::Frame(_))
            )
        };
        // A reference from outside to the object itself, which may be that of an expression, counts only where
        // nothing else is known of it.
        let is_known = found.iter().any(is_named);
        let outside = keepers.fixed.iter();
        let outside = outside.filter(|nodes| !is_known || nodes.len() > 1);
        let outside = outside.map(|nodes| [nodes, &suffix[1..]].concat());
        let outside = outside.filter(|nodes| found.iter().all(|known| known.nodes != *nodes));
        let outside: Vec<Vec<u32>> = outside.collect();
        found.extend(outside.into_iter().map(|nodes| PathTo::new(nodes, target)));
        match keepers.found.as_slice() {
            [only] if keepers.fixed.is_empty() && only.at > search.above_owner(only) => {
                suffix = [&only.nodes[only.at..], &suffix[1..]].concat();
            }
            _ => break,
        }
    }
    if !found.is_empty() {
        return found;
    }
    // Some references are no way upwards, such as those to the classes of objects. Only what none reaches is garbage.
    let paths = live.shortest_paths();
    match paths.reaches(target) {
        true => vec![PathTo::new(paths.path_to(target), target)],
        false => garbage_paths(live, &suffix, target),
    }
}

/// For what no root reaches: a path that begins with an object that holds it, which may be itself.
fn garbage_paths(live: &Live<'_>, suffix: &[u32], target: u32) -> Vec<PathTo> {
    let Some(&head) = suffix.first() else {
        return Vec::new();
    };
    live.graph()
        .sources(head)
        .into_iter()
        .filter(|&referrer| referrer == head || !suffix.contains(&referrer))
        .filter(|&referrer| !live.is_own(referrer))
        .map(|referrer| {
            let mut nodes = vec![referrer];
            nodes.extend(suffix);
            PathTo::new(nodes, target)
        })
        .collect()
}

impl Search<'_, '_> {
    /// How many nodes a path begins with whose other holders are of no interest, less one: the root, and the dictionary of
    /// its variables.
    fn above_owner(self, keeper: &Keeper) -> usize {
        let is_dict = |&node: &u32| self.live.is_kind(self.inspector, node, ObjectKind::Dict);
        match self.live.root(keeper.nodes[0]) {
            Root::Module(_) => 1,
            Root::Library(_) if keeper.nodes.get(1).is_some_and(is_dict) => 1,
            _ => 0,
        }
    }
}

/// The paths in words, in the order to show them in, each once, with how many are alike but for indices and which targets they lead to.
pub(super) fn distinct_paths<'a>(
    paths: &'a [PathTo],
    targets: &[u32],
    naming: &Naming<'_, '_>,
) -> Vec<(Path, &'a PathTo)> {
    let mut distinct: Vec<(Path, &PathTo)> = Vec::new();
    let mut by_words: FxHashMap<String, usize> = FxHashMap::default();
    for path_to in paths {
        let PathTo { nodes, target, by } = path_to;
        let by = by.as_ref().map(|(at, name)| (*at, name));
        let mut path = naming.path_by(nodes, &naming.root(nodes), by).path;
        path.leads_to = places(Some(target), targets);
        match by_words.get(&without_indices(&path.words)) {
            Some(&index) => {
                let (known, _) = &mut distinct[index];
                known.alike += 1;
                for target in path.leads_to {
                    if !known.leads_to.contains(&target) {
                        known.leads_to.push(target);
                    }
                }
            }
            None => {
                by_words.insert(without_indices(&path.words), distinct.len());
                distinct.push((path, path_to));
            }
        }
    }
    distinct.sort_by(|(one, _), (other, _)| in_order(one, other));
    distinct
}

impl Keeper {
    /// The same reference, reached by the first of the paths that passes it, as that is the one that is shown first.
    pub(super) fn on_first(&self, paths: &[(Path, &PathTo)]) -> Self {
        let reference = [self.holder(), self.held()];
        let passing = paths.iter().find_map(|(_, path)| {
            let same_end = path.nodes.last() == self.nodes.last();
            let at = path.nodes.windows(2).position(|it| it == reference)?;
            same_end.then(|| (path.nodes.clone(), at))
        });
        let (nodes, at) = passing.unwrap_or_else(|| (self.nodes.clone(), self.at));
        let name = self.name.clone();
        Self { nodes, at, name }
    }
}

/// Where an object is among those asked about, if it is.
pub(super) fn places(object: Option<&u32>, targets: &[u32]) -> Vec<u32> {
    let place = targets.iter().position(|it| Some(it) == object);
    place.map(|index| index as u32).into_iter().collect()
}

/// The order to show paths in: those through what a running expression or the C code of a module holds come last.
pub(super) fn in_order(one: &Path, other: &Path) -> Ordering {
    let last = [ReferenceName::Stack, ReferenceName::Unnamed].map(|it| it.to_string());
    let is_last = |path: &Path| {
        path.steps
            .first()
            .is_some_and(|step| last.contains(&step.edge))
    };
    (is_last(one), one.order()).cmp(&(is_last(other), other.order()))
}
