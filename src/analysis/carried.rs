//! Tensors that carry a graph from one step to the next, such as the state of a network that nobody detaches.

use std::cmp::Reverse;

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::grown::{Diagnosis, Look, MAX_FUNCTIONS, Name};
use crate::diagnose::growth;

/// How many tensors may carry a state from step to step: the last ones that were made.
const MAX_CARRIERS: usize = 64;
/// The graph of what is carried has functions of so many intervals between samples at least. That of a tensor which was
/// made in one step, and is kept, has those of one; and of two if it was computed from what was made long ago.
const INTERVALS: usize = 3;
/// What the name of an owner has that leads through a graph.
const GRAPH: &str = ".grad_fn";
/// So many other tensors with such a graph are named.
const NAMED_TOO: usize = 2;

/// A tensor with a graph that reaches back to earlier steps.
struct Carrier {
    node: u32,
    may_be_state: bool,
    /// How many functions of its graph are older than the last sample.
    older: usize,
    /// One of these is like the tensor's own.
    has_earlier_like: bool,
    behind: Vec<u32>,
    /// The tensor whose gradient it is.
    of: Option<u32>,
}

impl Look<'_, '_> {
    /// What is carried from step to step, if the graph of one of `roots` reaches back through several of the intervals
    /// that begin with the functions of these numbers.
    pub fn diagnose_state(&self, roots: &[(Name, bool)], marks: &[u64]) -> Option<Diagnosis> {
        let mark = *marks.last()?;
        let carriers = self.carriers(roots, marks);
        let (first, others) = carriers.split_first()?;
        let numbered = first.behind.iter().copied();
        let numbered = numbered.filter(|&it| self.graphs.number(it).is_some());
        let (old, new): (Vec<u32>, Vec<u32>) = numbered.partition(|&it| self.is_older(it, mark));
        let saved = |functions: Vec<u32>| -> FxHashSet<usize> {
            let saved = functions.into_iter().flat_map(|it| self.graphs.saved(it));
            saved.collect()
        };
        // Weights are saved in each step, and are the same memory.
        let (old, mut new) = (saved(old), saved(new));
        new.retain(|index| !old.contains(index));
        let sharing = self.sharing(first, mark);
        let kept = self.live.memory_only_of(&self.ways, sharing);
        let kept: FxHashSet<usize> = kept.into_iter().collect();
        let (pattern, owner) = match first.of {
            Some(parameter) => (
                growth::variants::GRADIENT_WITH_GRAPH,
                format!("{} → .grad", self.name_of_leaf(parameter)),
            ),
            None => (growth::STATE_NOT_DETACHED, self.owner(first.node)),
        };
        let about = self.about(pattern, owner.clone(), first.node);
        let all = self.bytes_of(&kept);
        Some(Diagnosis {
            bytes_per_sample: self.bytes_of(&new),
            hidden: self.hidden_bytes(&kept),
            kept: all,
            bytes: all.max(about.bytes),
            evidence: format!(
                "at least {} of its {} autograd nodes are from earlier steps{}",
                first.older,
                first.behind.len(),
                match first.of {
                    // What is computed from it has its graph.
                    Some(_) => String::new(),
                    None => self.as_are(first, others, &owner),
                }
            ),
            ..about
        })
    }

    /// The tensors that may be carried on and that Python holds, the likeliest first. What only C++ holds is part of the
    /// graph.
    fn carriers(&self, roots: &[(Name, bool)], marks: &[u64]) -> Vec<Carrier> {
        let mark = marks.last().copied().unwrap_or_default();
        let last = &roots[roots.len().saturating_sub(MAX_CARRIERS)..];
        let found = last.iter().filter_map(|&(name, may_be_state)| {
            let node = self.node(name)?;
            if self.live.loop_to(&self.ways, node).is_some() {
                return None;
            }
            let behind = self.behind(node);
            let older = behind.iter().filter(|&&it| self.is_older(it, mark)).count();
            (older > 0 && self.reaches_back(&behind, marks)).then(|| Carrier {
                node,
                may_be_state,
                older,
                has_earlier_like: self.has_earlier_like(node, &behind, mark),
                of: self.tensor_of_gradient(node),
                behind,
            })
        });
        let found: Vec<Carrier> = found.collect();
        let nodes: Vec<u32> = found.iter().map(|it| it.node).collect();
        let held = self.live.held_by_python(&self.ways, &nodes);
        let places = found.into_iter().zip(0..);
        let held = places.filter(|(it, at)| it.of.is_some() || held.binary_search(at).is_ok());
        let mut held: Vec<Carrier> = held.map(|(carrier, _)| carrier).collect();
        held.sort_by_key(|it| {
            let size = Reverse(it.behind.len());
            let is_gradient = it.of.map(|leaf| !self.owner(leaf).contains(GRAPH));
            Reverse((
                is_gradient,
                it.may_be_state,
                it.older,
                it.has_earlier_like,
                size,
            ))
        });
        held
    }

    /// The owner of a tensor that a graph leads to as well, or its class where only the graph does.
    fn name_of_leaf(&self, leaf: u32) -> String {
        let owner = self.owner(leaf);
        match self.live.object(leaf) {
            Some(tensor) if owner.contains(GRAPH) => self.inspector.type_name(&tensor),
            _ => owner,
        }
    }

    /// The tensor whose `.grad` this one is.
    fn tensor_of_gradient(&self, node: u32) -> Option<u32> {
        let own = self.live.object(node)?;
        let mut above = self.live.graph().sources(node).into_iter();
        above.find(|&it| {
            let tensor = self.live.object(it).filter(|_| self.is_tensor(it));
            let gradient = tensor.and_then(|tensor| self.frameworks.gradient(&tensor));
            gradient.is_some_and(|(gradient, _)| gradient.is(&own))
        })
    }

    /// True if functions are of several intervals. Of a graph that was not walked to its end, that is not known.
    fn reaches_back(&self, functions: &[u32], marks: &[u64]) -> bool {
        let numbers = functions.iter().filter_map(|&it| self.graphs.number(it));
        let interval = |number: u64| marks.partition_point(|&mark| mark < number);
        let intervals: FxHashSet<usize> = numbers.map(interval).collect();
        intervals.len() >= INTERVALS || functions.len() >= MAX_FUNCTIONS
    }

    /// Names other tensors whose graphs reach back as far: which of them is carried on is not always to be told.
    fn as_are(&self, first: &Carrier, others: &[Carrier], owner: &str) -> String {
        let mut named: Vec<String> = Vec::new();
        for other in others {
            let name = self.owner(other.node);
            if other.older * 10 >= first.older * 9 && name != owner && !named.contains(&name) {
                named.push(name);
            }
        }
        named.truncate(NAMED_TOO);
        match named.is_empty() {
            true => String::new(),
            false => format!(", as are nodes of {}", named.join(" and ")),
        }
    }

    /// A tensor and others that lead to functions of earlier steps that it leads to. They share a graph, which none of them
    /// keeps alone.
    fn sharing(&self, first: &Carrier, mark: u64) -> Vec<u32> {
        let older = first.behind.iter().copied();
        let older: FxHashSet<u32> = older.filter(|&it| self.is_older(it, mark)).collect();
        let tensors = self.live.tensors().into_iter().map(|(node, ..)| node);
        let with_graphs = tensors
            .filter(|it| *it != first.node && !self.live.made.contains(it))
            .filter(|&it| self.graphs.function_of(it).is_some());
        let with_graphs: Vec<u32> = with_graphs.collect();
        let gradients = self.live.tensors().into_iter().map(|(node, ..)| node);
        let gradients = gradients.filter(|it| {
            first.of.is_some()
                && self.graphs.function_of(*it).is_some()
                && self.tensor_of_gradient(*it).is_some()
        });
        let held = self.live.held_by_python(&self.ways, &with_graphs);
        let others = held.into_iter().map(|at| with_graphs[at]);
        let leads = |other: &u32| self.behind(*other).iter().any(|it| older.contains(it));
        let others = others.take(MAX_CARRIERS).filter(leads);
        std::iter::once(first.node)
            .chain(others)
            .chain(gradients)
            .collect()
    }

    /// Whether some function of an earlier step is like that of a tensor: it made what is carried on, if that tensor is.
    fn has_earlier_like(&self, tensor: u32, behind: &[u32], mark: u64) -> bool {
        let kind = |function: u32| {
            let class = self.live.object(function)?.get_type();
            Some((class.as_ptr(), self.graphs.next(function).count()))
        };
        let own = self.graphs.function_of(tensor).and_then(kind);
        let mut older = behind.iter().filter(|&&it| self.is_older(it, mark));
        own.is_some() && older.any(|&it| kind(it) == own)
    }

    fn is_older(&self, function: u32, mark: u64) -> bool {
        self.graphs.number(function).is_some_and(|it| it <= mark)
    }
}
