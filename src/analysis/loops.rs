//! Cycles that no collection frees: a reference in each is one that only C or C++ knows, so the collector takes what it
//! leads to for an object in use.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::grown::{Diagnosis, Grouping, Kept, Look, Name};
use super::live::{Live, Loop};
use crate::capture::{Classes, Place, describe, function_code, is_library_file};
use crate::cpython::ObjectKind;
use crate::device::Frameworks;
use crate::diagnose::cohorts::Member;
use crate::diagnose::growth::{self, GrowthPattern};
use crate::graph::{ShortestPaths, components_with, hide_unless_code};
use crate::model::redact::shorten;
use crate::model::report::Location;
use crate::model::retention::UNCOLLECTABLE;
use crate::model::words::short_location;

const EXPLAINED: &str = "An uncollectable cycle passes through C or C++, as where a hook captures its tensor: no \
    collection frees it. Remove one of its references, such as the hook.";

/// What a tensor of no class of its own is called.
const TENSOR: &str = "torch.Tensor";
/// So many objects of a cycle are described, to name it by one of them.
const DESCRIBED: usize = 64;
/// Fewer ages than these are no growth.
const FEW: usize = 3;

impl Live<'_> {
    /// As [`Live::shortest_paths`]. An object of each cycle that no collection frees is a root from now on.
    pub(super) fn paths_with_loops(&mut self, inspector: &Inspector) -> ShortestPaths {
        let mut paths = self.shortest_paths();
        let is_external = |&(from, to): &(u32, u32)| {
            !paths.reaches(from)
                && !paths.reaches(to)
                && (self.counted.contains(&to) || self.arrays.contains(&from))
        };
        let hidden: Vec<(u32, u32)> = self.unknown_to_collector().filter(is_external).collect();
        if hidden.is_empty() {
            return paths;
        }
        let mut classes = Classes::default();
        let is_in = |node| !paths.reaches(node) && !self.is_own(node);
        for members in components_with(self.graph(), &hidden, is_in) {
            let told = self.likeliest(inspector, members).into_iter().map(|node| {
                let (rank, told) = self.described(inspector, &mut classes, node);
                (rank, node, told)
            });
            // By the same one of its objects in each of many cycles of one kind.
            let first = told.min_by_key(|(rank, node, told)| {
                let memory = self.memory_of(*node);
                let bytes = memory.map_or(0, |at| self.buffers[at].buffer.bytes);
                (*rank, told.words.clone(), Reverse(bytes), *node)
            });
            if let Some((_, root, told)) = first {
                if !self.notes.iter().any(|note| note == EXPLAINED) {
                    self.notes.push(EXPLAINED.to_owned());
                }
                self.add_library_root(root, format!("{UNCOLLECTABLE}{}", told.words));
                self.loops.insert(root, told);
                paths.extend(self.graph(), [root], |_, _| true);
            }
        }
        paths
    }

    /// A few of some objects: functions and methods, or else other objects of classes.
    fn likeliest(&self, inspector: &Inspector, mut members: Vec<u32>) -> Vec<u32> {
        members.sort_by_cached_key(|&node| {
            let kind = self.object(node).map(|object| inspector.kind(&object));
            let rank = match kind {
                Some(ObjectKind::Function | ObjectKind::Method) => 0,
                Some(ObjectKind::Instance) => 1,
                Some(_) => 2,
                None => 3,
            };
            (rank, node)
        });
        members.truncate(DESCRIBED);
        members
    }

    fn is_tensor(&self, node: u32) -> bool {
        let at = self.objects.holders.binary_search_by_key(&node, |it| it.0);
        at.is_ok_and(|at| Frameworks::is_tensor(self.objects.holders[at].1))
    }

    /// What an object is, and how much it tells of where its cycle was made: the program's functions tell most.
    pub(super) fn described(
        &self,
        inspector: &Inspector,
        classes: &mut Classes,
        node: u32,
    ) -> (u8, Loop) {
        let Some(object) = self.object(node) else {
            let words = "an object".to_owned();
            return (u8::MAX, Loop { words, cause: 0 });
        };
        let kind = inspector.kind(&object);
        let told = describe(&inspector.builtins, classes, kind, &object);
        let is_programs = |place: &Place| !is_library_file(&place.file);
        let place = told.place.filter(is_programs);
        let rank = match (kind, &place) {
            (ObjectKind::Function, Some(_)) => 0,
            (ObjectKind::Method, Some(_)) => 1,
            (ObjectKind::Instance, Some(_)) => 2,
            (ObjectKind::Function | ObjectKind::Method, None) => 3,
            // A parameter says more than the gradient that leads back to it.
            _ if self.is_tensor(node) => 4 + u8::from(told.label == TENSOR),
            _ => 6,
        };
        let mut label = told.label;
        let place = place.map(|mut place| {
            if inspector.redacts() {
                shorten(&mut place.file);
            }
            format!(" ({})", short_location(&Location::from(&place)))
        });
        if inspector.redacts() {
            hide_unless_code(&mut label);
        }
        let cause = cause_of(inspector, &object);
        let words = format!("{label}{}", place.unwrap_or_default());
        (rank, Loop { words, cause })
    }

    /// The cycle that no collection frees to which a path leads.
    pub(super) fn loop_to(&self, paths: &ShortestPaths, node: u32) -> Option<&Loop> {
        if self.loops.is_empty() {
            return None;
        }
        let first = std::iter::successors(Some(node), |&it| paths.before(it)).last()?;
        self.loops.get(&first)
    }
}

/// What the same code has made: the address of a function's code, or of the class of another object.
pub(super) fn cause_of(inspector: &Inspector, object: &Bound<'_, PyAny>) -> usize {
    let code = function_code(&inspector.builtins, object);
    code.map_or(object.get_type_ptr() as usize, |it| it.as_ptr() as usize)
}

/// A member of a group, and where it is in the heap.
pub(super) type Located = (u32, Member<Name>);
/// What to call the cause of a cycle, and its address.
pub(super) type Cause = (String, usize);

impl Look<'_, '_> {
    /// The members of a group in cycles that no collection frees, as [`Look::diagnose`] says of what accumulates some.
    pub(super) fn diagnose_loops(
        &self,
        group: &Grouping,
        found: &[Located],
    ) -> (Vec<Diagnosis>, Vec<Kept>) {
        let mut by_cause: BTreeMap<Cause, Vec<Located>> = BTreeMap::new();
        let nodes: Vec<u32> = found.iter().map(|(node, _)| *node).collect();
        let held = self.live.held_by_python(&self.ways, &nodes);
        for (at, &(node, member)) in found.iter().enumerate() {
            // What names the cycle may be in C++ alone, as a parameter whose model has gone.
            if held.binary_search(&at).is_err() && !self.live.loops.contains_key(&node) {
                continue;
            }
            if let Some(told) = self.live.loop_to(&self.ways, node) {
                let key = (told.words.clone(), told.cause);
                by_cause.entry(key).or_default().push((node, member));
            }
        }
        self.of_causes(group, found, by_cause, growth::UNCOLLECTABLE_CYCLES)
    }

    /// The members of a group by what caused them to stay.
    pub(super) fn of_causes(
        &self,
        group: &Grouping,
        found: &[Located],
        by_cause: BTreeMap<Cause, Vec<Located>>,
        pattern: GrowthPattern,
    ) -> (Vec<Diagnosis>, Vec<Kept>) {
        let lately = found.iter().filter(|(_, it)| it.age.is_some()).count();
        let (mut all, mut keep) = (Vec::new(), Vec::new());
        for ((words, cause), members) in by_cause {
            let window = members.iter().filter(|(_, it)| it.age.is_some());
            let window: Vec<Located> = window.copied().collect();
            let nodes: Vec<u32> = window.iter().map(|(node, _)| *node).collect();
            let counting = members.iter().filter(|(_, it)| it.counts);
            let counting: Vec<u32> = counting.map(|(node, _)| *node).collect();
            let (hidden, bytes) = self.memory_of(&counting);
            let keeps = Kept {
                holder: cause,
                count: counting.len() as u64,
                bytes,
                hidden,
                share: window.len() as f64 / lately.max(1) as f64,
                ..Kept::default()
            };
            if group.known.contains(&cause) {
                keep.push(keeps);
            }
            let ages: FxHashSet<usize> = window.iter().filter_map(|(_, it)| it.age).collect();
            if let (true, Some(&(first, _))) = (ages.len() >= FEW, window.first()) {
                all.push(Diagnosis {
                    tensors: window.len(),
                    ages: ages.into_iter().max().unwrap_or_default(),
                    members: window.iter().map(|(_, it)| it.name).collect(),
                    bytes: match nodes == counting {
                        true => bytes,
                        false => self.memory_of(&nodes).1,
                    },
                    keeps,
                    ..self.about(pattern, words, first)
                });
            }
        }
        (all, keep)
    }
}
