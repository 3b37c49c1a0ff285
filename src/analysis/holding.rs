//! What holds some objects in common, and what to call it.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::live::{Live, Root};
use super::naming::Naming;
use crate::cpython::{ObjectKind, dict_items, find_item};
use crate::device::Frameworks;
use crate::graph::ShortestPaths;

/// How many objects are looked at to see whether a function has another at hand.
const REACH: usize = 1_000;
/// How many references away that may be: function, closure, cell, instance, dictionary.
const REACH_LEVELS: usize = 6;

/// Objects, each with the positions of the members that it leads to.
pub(super) type Reaching = FxHashMap<u32, Vec<u32>>;

impl Live<'_> {
    /// What refers to the objects of `reaching` and is itself reached from a root. What C++ alone refers
    /// by, such as an autograd function, does not count. One pass over all references.
    pub(super) fn referrers(&self, paths: &ShortestPaths, reaching: &Reaching) -> Reaching {
        let graph = self.graph();
        let mut wanted = vec![false; graph.node_count()];
        for &node in reaching.keys() {
            wanted[node as usize] = true;
        }
        let mut found = Reaching::default();
        for from in 0..graph.node_count() as u32 {
            for &to in graph.targets(from) {
                if !wanted[to as usize] || !paths.reaches(from) || from == to {
                    continue;
                }
                let in_cpp = self.hidden.contains_key(&(from, to))
                    && !self.is_frame(from)
                    && !self.arrays.contains(&from);
                if in_cpp || self.objects.is_type_reference(from, to) {
                    continue;
                }
                let members = found.entry(from).or_default();
                members.extend(reaching.get(&to).into_iter().flatten());
            }
        }
        for members in found.values_mut() {
            members.sort_unstable();
            members.dedup();
        }
        found
    }

    /// Which of some objects a Python object or a local variable holds, by position; the rest only C++ does.
    pub(super) fn held_by_python(&self, paths: &ShortestPaths, members: &[u32]) -> Vec<usize> {
        let positions = members.iter().zip(0..);
        let reaching: Reaching = positions.map(|(&node, at)| (node, vec![at])).collect();
        let above = self.referrers(paths, &reaching);
        let mut held: Vec<usize> = above.values().flatten().map(|&at| at as usize).collect();
        held.sort_unstable();
        held.dedup();
        held
    }

    /// A way to memory of some objects without these objects and some references, to what a program knows of it: a view,
    /// or another object that has the memory. `None` if there is none, or that is not known for certain.
    pub(super) fn other_way_to_memory(
        &self,
        objects: &[u32],
        removed: &FxHashSet<(u32, u32)>,
    ) -> Option<Vec<u32>> {
        let memory: Vec<usize> = objects
            .iter()
            .filter_map(|&it| self.memory_of(it))
            .collect();
        if memory.is_empty() || !self.functions_are_complete {
            return None;
        }
        let gone: FxHashSet<u32> = objects.iter().copied().collect();
        let mut rest = ShortestPaths::new(self.graph().node_count());
        let has_memory = |node: u32| self.memory_of(node).is_some_and(|it| memory.contains(&it));
        let nodes: Vec<u32> = memory.iter().map(|&it| self.buffers[it].node).collect();
        // What wraps an object, by an attribute that is removed, may have the memory by that alone.
        let to_objects = removed.iter().filter(|(_, to)| gone.contains(to));
        let from: FxHashSet<u32> = to_objects.map(|(from, _)| *from).collect();
        let is_wrapping = |node: u32| {
            let parts = self.graph().targets(node);
            has_memory(node) && parts.iter().chain([&node]).any(|it| from.contains(it))
        };
        let holders = self.objects.holders.iter().map(|(node, _)| *node);
        let wrapping: FxHashSet<u32> = holders.filter(|node| is_wrapping(*node)).collect();
        let is_left = |from: u32, to: u32| {
            !gone.contains(&to)
                && !removed.contains(&(from, to))
                && !(wrapping.contains(&from) && (nodes.contains(&to) || has_memory(to)))
        };
        // What the program has a name for goes before what C has as well.
        let found = [self.named_roots().collect(), self.roots()]
            .into_iter()
            .find_map(|roots| {
                let roots = roots.into_iter().filter(|root| !gone.contains(root));
                rest.extend(self.graph(), roots, is_left);
                nodes.iter().copied().find(|&node| rest.reaches(node))
            });
        let mut way = rest.path_to(found?);
        while let [.., before, _] = way[..]
            && has_memory(before)
        {
            way.pop();
        }
        Some(way)
    }

    /// False for what is never what a program keeps things in: frames, modules and classes.
    pub(super) fn can_hold(&self, inspector: &Inspector, node: u32) -> bool {
        if self.is_frame(node) || matches!(self.root(node), Root::Module(_)) {
            return false;
        }
        let Some(object) = self.object(node) else {
            return false;
        };
        match inspector.kind(&object) {
            ObjectKind::Frame | ObjectKind::Module | ObjectKind::Class => false,
            // The variables of a module.
            ObjectKind::Dict => find_item("__builtins__", |f| dict_items(&object, f)).is_none(),
            _ => true,
        }
    }

    /// True for what may lead up to what a program keeps things in: classes, such as those in a registry, and the frames of
    /// calls that have ended, which tracebacks keep, as well. What paths are to lead through last does not.
    pub(super) fn may_lead_up(&self, inspector: &Inspector, node: u32) -> bool {
        !self.late.contains(&node)
            && (self.can_hold(inspector, node)
                || self.is_kind(inspector, node, ObjectKind::Class)
                || !self.is_frame(node) && self.is_kind(inspector, node, ObjectKind::Frame))
    }

    pub(super) fn is_kind(&self, inspector: &Inspector, node: u32, kind: ObjectKind) -> bool {
        self.object(node)
            .is_some_and(|object| inspector.kind(&object) == kind)
    }

    /// True if a function has one of some objects at hand: captures it, is a method of what has it, or has
    /// it as a default argument or a variable of its module.
    pub(super) fn has_at_hand(
        &self,
        inspector: &Inspector,
        function: u32,
        wanted: &FxHashSet<u32>,
    ) -> bool {
        let mut seen = FxHashSet::from_iter([function]);
        let mut level = vec![function];
        for _ in 0..REACH_LEVELS {
            let mut below = Vec::new();
            for &node in &level {
                if wanted.contains(&node) {
                    return true;
                }
                let Some(object) = self.object(node) else {
                    continue;
                };
                let kind = inspector.kind(&object);
                if kind == ObjectKind::Function {
                    let globals = inspector.globals_used(&object);
                    let nodes = globals.iter().filter_map(|it| self.objects.number_of(it));
                    if nodes.into_iter().any(|node| wanted.contains(&node)) {
                        return true;
                    }
                }
                let passes = matches!(
                    kind,
                    ObjectKind::Function
                        | ObjectKind::Method
                        | ObjectKind::Partial
                        | ObjectKind::Tuple
                        | ObjectKind::Cell
                        | ObjectKind::Dict
                        | ObjectKind::Instance
                ) && self.can_hold(inspector, node);
                if passes && seen.len() < REACH {
                    let targets = self.graph().targets(node).iter().copied();
                    below.extend(targets.filter(|target| seen.insert(*target)));
                }
            }
            level = below;
        }
        level.iter().any(|node| wanted.contains(node))
    }

    /// Where the program has each of some objects, in the words in which every report has it, without what
    /// the object is.
    pub(super) fn owners(
        &self,
        inspector: &Inspector,
        frameworks: &Frameworks,
        paths: &ShortestPaths,
        nodes: &[u32],
    ) -> Vec<String> {
        let all: Vec<Vec<u32>> = nodes.iter().map(|&node| paths.path_to(node)).collect();
        let naming = Naming::new(inspector, frameworks, self, &all);
        let owners = all.iter().map(|nodes| naming.owner(nodes));
        owners.map(Option::unwrap_or_default).collect()
    }
}
