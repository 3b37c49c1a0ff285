//! Loops through objects that no collection frees.

use rustc_hash::FxHashSet;

use super::super::keepers::{Keeper, Search};
use super::super::live::{Live, Root};
use super::super::naming::Naming;
use super::super::uncollected::{Reversed, Uncollected};
use crate::cpython::ObjectKind;
use crate::cpython::read::referents;
use crate::diagnose::NamedRoot;
use crate::graph::ShortestPaths;
use crate::model::retention::Path;

impl Search<'_, '_> {
    /// Loops through the targets that no collection frees.
    pub(super) fn loops(
        self,
        targets: &[u32],
        reversed: &Reversed<'_>,
        uncollected: Option<&Uncollected>,
    ) -> Vec<Vec<u32>> {
        let variables = self.variables();
        let through = |&target| self.loop_through_outside(target, &variables, reversed);
        let found: Vec<Vec<u32>> = targets.iter().filter_map(through).collect();
        match uncollected {
            Some(Uncollected::Loop(nodes)) if found.is_empty() => vec![nodes.clone()],
            _ => found,
        }
    }

    /// True if the variables of a running function that keeps the targets lead back to its frame, as the traceback of an
    /// exception does that one of them keeps: only a collection frees them then, once the function has returned.
    pub(super) fn has_frame_in_cycle(self, keepers: &[Keeper]) -> bool {
        let live = self.live;
        let holders: FxHashSet<u32> = keepers.iter().map(Keeper::holder).collect();
        let mut frames = live
            .program_frames()
            .filter(|(node, _)| holders.contains(node))
            .peekable();
        if frames.peek().is_none() {
            return false;
        }
        let variables = self.variables();
        let passes = |from: u32, to: u32| {
            !live.objects.is_type_reference(from, to) && !variables.contains(&to)
        };
        frames.any(|(node, frame)| {
            let mut reached = ShortestPaths::new(live.graph().node_count());
            reached.extend(live.graph(), [node], passes);
            // The collector does not track the frame of a running call, so the graph has no reference to it.
            (0..live.objects.len() as u32).any(|it| {
                let object = live
                    .object(it)
                    .filter(|_| it != node && reached.reaches(it));
                object.is_some_and(|it| referents(&it).contains(&frame.address))
            })
        })
    }

    /// What has the variables of modules and of running functions.
    fn variables(self) -> FxHashSet<u32> {
        let live = self.live;
        let roots = live.roots().into_iter();
        let namespaces = roots.filter(|&root| {
            live.is_frame(root) || matches!(live.root(root), Root::Module(_) | Root::Frame(_))
        });
        let is_dict = |node: &u32| live.is_kind(self.inspector, *node, ObjectKind::Dict);
        let mut found: FxHashSet<u32> = FxHashSet::default();
        for namespace in namespaces {
            found.insert(namespace);
            if matches!(live.root(namespace), Root::Module(_)) {
                let targets = live.graph().targets(namespace).iter().copied();
                found.extend(targets.filter(is_dict));
            }
        }
        found
    }

    /// A shortest path from an object back to itself that uses a reference which only C++ knows, and no variable of a
    /// module or a running function: what holds only by that goes with the variable. The collector takes an object
    /// with such a reference for one in use, so it never frees the loop.
    fn loop_through_outside(
        self,
        target: u32,
        variables: &FxHashSet<u32>,
        reversed: &Reversed<'_>,
    ) -> Option<Vec<u32>> {
        let live = self.live;
        let hidden: Vec<(u32, u32)> = live.unknown_to_collector().collect();
        if hidden.is_empty() {
            return None;
        }
        let graph = live.graph();
        let passes = |from: u32, to: u32| {
            !live.objects.is_type_reference(from, to) && !variables.contains(&from)
        };
        let mut forth = ShortestPaths::new(graph.node_count());
        forth.extend(graph, [target], passes);
        let mut back = ShortestPaths::new(graph.node_count());
        back.extend(reversed.get(), [target], |to, from| passes(from, to));
        shortest_loop(&forth, &back, hidden.into_iter())
            .or_else(|| supposed_loop(live, &forth, &back))
    }
}

pub(super) fn named_loop(nodes: &[u32], targets: &[u32], naming: &Naming<'_, '_>) -> Path {
    let passed = (0..).zip(targets).filter(|(_, it)| nodes.contains(it));
    let leads_to: Vec<u32> = passed.map(|(index, _)| index).collect();
    let mut path = naming.path(nodes, &NamedRoot::Itself).path;
    if leads_to.is_empty() {
        path.words = path.words.replacen("itself", "a loop", 1);
    }
    Path { leads_to, ..path }
}

/// The shortest path out and back that uses one of some references and passes no node twice.
fn shortest_loop(
    forth: &ShortestPaths,
    back: &ShortestPaths,
    references: impl Iterator<Item = (u32, u32)>,
) -> Option<Vec<u32>> {
    references
        .filter(|&(from, to)| forth.reaches(from) && back.reaches(to))
        .map(|(from, to)| {
            let mut nodes = forth.path_to(from);
            nodes.extend(back.path_to(to).into_iter().rev());
            nodes
        })
        .filter(|nodes| {
            let inner: FxHashSet<u32> = nodes[1..].iter().copied().collect();
            inner.len() == nodes.len() - 1
        })
        .min_by(|a, b| (a.len(), a).cmp(&(b.len(), b)))
}

/// True if a path uses a reference that [`supposed_loop`] takes for granted.
pub(super) fn passes_supposed(live: &Live<'_>, nodes: &[u32]) -> bool {
    nodes.windows(2).any(|pair| {
        live.functions.contains(&pair[0])
            && live.hook_dictionaries.contains(&pair[1])
            && !live.graph().targets(pair[0]).contains(&pair[1])
    })
}

/// A loop through the hooks of an autograd function. Which function has which hooks is not to be seen
/// from Python; but where the object leads to every function that there is, it leads to that one.
fn supposed_loop(live: &Live<'_>, forth: &ShortestPaths, back: &ShortestPaths) -> Option<Vec<u32>> {
    if !live
        .functions
        .iter()
        .all(|&function| forth.reaches(function))
    {
        return None;
    }
    let references = live.functions.iter().flat_map(|&function| {
        live.hook_dictionaries
            .iter()
            .map(move |&hooks| (function, hooks))
    });
    shortest_loop(forth, back, references)
}
