//! Tensors in garbage that waits for the garbage collector: what grows where that is disabled, or seldom runs.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::grown::{Diagnosis, Grouping, Kept, Look};
use super::live::Loop;
use super::loops::{Cause, Located, cause_of};
use super::uncollected::closure;
use crate::capture::Classes;
use crate::cpython::ObjectKind;
use crate::diagnose::growth;

/// How many references away from a tensor is looked for what names its garbage. A function that captures the tensor's owner
/// is five away where the owner has a dict, as on 3.10: dict, owner, cell, tuple of cells, function.
const LEVELS: usize = 5;
/// So many objects are looked at for that.
const FEW: usize = 16;

impl Look<'_, '_> {
    /// The members of a group that no root leads to, as [`Look::diagnose`] says of what accumulates some.
    pub(super) fn diagnose_garbage(
        &self,
        group: &Grouping,
        found: &[Located],
    ) -> (Vec<Diagnosis>, Vec<Kept>) {
        let graph = self.live.graph();
        let is_garbage = |node: u32| !self.ways.reaches(node) && !self.live.is_own(node);
        // What frozen garbage leads to waits for nothing: no collection frees it.
        let frozen = self.live.frozen.iter().copied();
        let frozen = closure(graph, frozen.filter(|&it| is_garbage(it)), |_, to| {
            is_garbage(to)
        });
        let members = found.iter();
        let members = members.filter(|(node, _)| is_garbage(*node) && !frozen.contains(node));
        let members: Vec<&Located> = members.collect();
        if members.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let mut holders: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for from in (0..graph.node_count() as u32).filter(|&it| is_garbage(it)) {
            for &to in graph.targets(from).iter().filter(|&&to| to != from) {
                holders.entry(to).or_default().push(from);
            }
        }
        let mut classes = Classes::default();
        // Of the functions of one code, and of the instances of a class, one tells as much as all.
        let mut known: FxHashMap<usize, (u8, Loop)> = FxHashMap::default();
        let mut by_cause: BTreeMap<Cause, Vec<Located>> = BTreeMap::new();
        for &&(node, member) in &members {
            let told = near(&holders, node).into_iter().filter_map(|near| {
                let object = self.live.object(near)?;
                let mut described = || self.live.described(self.inspector, &mut classes, near);
                let (rank, told) = match self.inspector.kind(&object) {
                    ObjectKind::Function | ObjectKind::Instance => known
                        .entry(cause_of(self.inspector, &object))
                        .or_insert_with(described)
                        .clone(),
                    _ => described(),
                };
                Some((rank, told.words, told.cause))
            });
            if let Some((_, words, cause)) = told.min_by_key(|it| it.0) {
                let members = by_cause.entry((words, cause)).or_default();
                members.push((node, member));
            }
        }
        self.of_causes(group, found, by_cause, growth::GARBAGE_ACCUMULATES)
    }
}

/// What leads to a node, the nearest first.
fn near(holders: &FxHashMap<u32, Vec<u32>>, node: u32) -> Vec<u32> {
    let mut seen: FxHashSet<u32> = FxHashSet::from_iter([node]);
    let (mut found, mut level) = (Vec::new(), vec![node]);
    for _ in 0..LEVELS {
        let above = level
            .iter()
            .flat_map(|it| holders.get(it).into_iter().flatten());
        let above = above.copied().filter(|&it| seen.insert(it));
        level = above.take(FEW - found.len()).collect();
        found.extend(&level);
    }
    found
}
