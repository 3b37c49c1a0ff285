//! The autograd graphs in a live heap.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::live::Live;
use crate::capture::ReferenceName;
use crate::device::{Autograd, Frameworks};

/// The autograd functions of a heap and what they refer to.
pub(super) struct Graphs<'a, 'py> {
    live: &'a Live<'py>,
    inspector: &'a Inspector,
    autograd: Option<&'a Autograd>,
    functions: FxHashSet<u32>,
}

impl<'a, 'py> Graphs<'a, 'py> {
    pub fn new(inspector: &'a Inspector, frameworks: &'a Frameworks, live: &'a Live<'py>) -> Self {
        Self {
            live,
            inspector,
            autograd: frameworks.autograd(),
            functions: live.functions.iter().copied().collect(),
        }
    }

    /// What a node refers to by a reference in C++ whose name is one of some.
    fn hidden(&self, node: u32, is_it: impl Fn(&str) -> bool) -> impl Iterator<Item = u32> {
        let targets = self.live.graph().targets(node).iter().copied();
        targets.filter(move |&target| {
            matches!(self.live.hidden.get(&(node, target)),
                Some(ReferenceName::Attribute(name)) if is_it(name))
        })
    }

    /// The function that made a tensor; `None` for a leaf.
    pub fn function_of(&self, tensor: u32) -> Option<u32> {
        self.next(tensor).next()
    }

    /// The functions that a gradient passes on its way back from some functions, themselves included; about
    /// `limit` of them at most.
    pub fn behind(&self, roots: impl IntoIterator<Item = u32>, limit: usize) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        let mut seen = FxHashSet::default();
        found.extend(roots.into_iter().filter(|root| seen.insert(*root)));
        let mut next = 0;
        while let Some(&function) = found.get(next) {
            next += 1;
            if found.len() >= limit {
                break;
            }
            let following = self.next(function);
            found.extend(following.filter(|following| seen.insert(*following)));
        }
        found
    }

    /// The functions that a function passes gradients on to.
    pub fn next(&self, function: u32) -> impl Iterator<Item = u32> {
        let targets = self.live.graph().targets(function).iter().copied();
        targets.filter(|target| self.functions.contains(target))
    }

    /// The memory that a function keeps for the backward pass, by index in [`Live::buffers`]; none once
    /// that has released it.
    pub fn saved(&self, function: u32) -> impl Iterator<Item = usize> {
        let saved = self.hidden(function, |name| name.starts_with("saved "));
        saved.filter_map(|tensor| self.live.memory_of(tensor))
    }

    /// The leaf whose gradient a function accumulates.
    pub fn leaf(&self, function: u32) -> Option<u32> {
        self.hidden(function, |name| name == "variable").next()
    }

    /// The place of a function in time, from 1 on; `None` for one that accumulates a gradient.
    pub fn number(&self, function: u32) -> Option<u64> {
        let object: Bound<'py, PyAny> = self.live.object(function)?;
        let number = self
            .autograd?
            .sequence_number(&self.inspector.builtins, &object)?;
        number.checked_add(1).filter(|_| number != Autograd::LEAF)
    }
}
