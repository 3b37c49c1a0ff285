//! A compact graph: the references of all objects in one array (compressed sparse rows, CSR).

use std::fmt;

use rustc_hash::FxHashSet;

use crate::memory::array::{Growing, prefetch};

/// Number of references to scan at once.
const BLOCK: usize = 256;

/// The references between objects with the numbers 0 to `node_count() - 1`, each once per reference.
///
/// A million objects with three references each take 16 MB.
pub struct Csr {
    /// The targets of node `i` are `targets[first[i]..first[i + 1]]`.
    first: Growing<u32>,
    targets: Growing<u32>,
}

impl Default for Csr {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl PartialEq for Csr {
    fn eq(&self, other: &Self) -> bool {
        self.first[..] == other.first[..] && self.targets[..] == other.targets[..]
    }
}

impl fmt::Debug for Csr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = 0..self.node_count() as u32;
        f.debug_map()
            .entries(nodes.map(|node| (node, self.targets(node))))
            .finish()
    }
}

impl Csr {
    /// An empty graph with capacity for this many nodes and references.
    pub fn with_capacity(nodes: usize, references: usize) -> Self {
        let mut first = Growing::with_capacity(nodes + 1);
        first.push(0);
        Self {
            first,
            targets: Growing::with_capacity(references),
        }
    }

    /// A graph with `nodes` nodes and these references. Those of each node keep their order.
    pub fn from_edges(nodes: usize, edges: &[(u32, u32)]) -> Self {
        let mut graph = Self::with_capacity(nodes, 0);
        graph.insert(nodes, edges);
        graph
    }

    /// Adds a node for each of `ends`: its references are those of `targets` from the end of the node
    /// before up to its own. Past 2^32 references of all nodes the rest is left out.
    pub fn push_nodes(&mut self, targets: &[u32], ends: &[usize]) {
        let before = self.targets.len();
        let room = u32::MAX as usize - before;
        self.targets.push_all(&targets[..targets.len().min(room)]);
        let first = ends.iter().map(|&end| (before + end.min(room)) as u32);
        self.first.extend(first);
    }

    pub fn node_count(&self) -> usize {
        self.first.len() - 1
    }

    pub fn edge_count(&self) -> usize {
        self.targets.len()
    }

    /// The range of a node's references, for [`Csr::at`].
    #[inline(always)]
    pub(crate) fn span(&self, node: u32) -> (u32, u32) {
        match self.first.get(node as usize..node as usize + 2) {
            Some(&[from, to]) => (from, to),
            _ => (0, 0),
        }
    }

    /// The references in a half-open range.
    #[inline(always)]
    pub(crate) fn at(&self, from: u32, to: u32) -> &[u32] {
        &self.targets[from as usize..to as usize]
    }

    /// The referents of a node, in order; empty for an index that no node has.
    #[inline]
    pub fn targets(&self, node: u32) -> &[u32] {
        let (from, to) = self.span(node);
        self.at(from, to)
    }

    /// Prefetches the range of a node's references.
    #[inline(always)]
    pub(crate) fn prefetch_node(&self, node: u32) {
        prefetch(&self.first, node as usize);
    }

    /// Prefetches the references of a node.
    #[inline(always)]
    pub(crate) fn prefetch_targets(&self, node: u32) {
        self.prefetch_at(self.span(node).0);
    }

    /// Prefetches the reference at an index.
    #[inline(always)]
    pub(crate) fn prefetch_at(&self, place: u32) {
        prefetch(&self.targets, place as usize);
    }

    /// The memory of the graph, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<u32>() * (self.first.capacity() + self.targets.capacity())
    }

    /// Removes the references of some nodes, in place.
    pub fn clear(&mut self, nodes: &FxHashSet<u32>) {
        if nodes.is_empty() {
            return;
        }
        let mut end = 0;
        for node in 0..self.node_count() as u32 {
            let (from, to) = self.span(node);
            self.first[node as usize] = end;
            if !nodes.contains(&node) {
                let (from, to) = (from as usize, to as usize);
                self.targets.copy_within(from..to, end as usize);
                end += (to - from) as u32;
            }
        }
        self.targets.truncate(end as usize);
        if let Some(last) = self.first.last_mut() {
            *last = end;
        }
    }

    /// Adds `nodes` nodes at the end and these references, behind those that their sources have, in
    /// place.
    pub fn insert(&mut self, nodes: usize, edges: &[(u32, u32)]) {
        let end = self.targets.len() as u32;
        self.first.extend(std::iter::repeat_n(end, nodes));
        if edges.is_empty() {
            return;
        }
        let mut edges: Vec<(u32, u32)> = edges.to_vec();
        edges.sort_by_key(|edge| edge.0);
        let mut old_end = self.targets.len();
        let mut end = old_end + edges.len();
        self.targets.resize(end);
        let mut last = self.node_count();
        // From the last node to the first, so that nothing is overwritten before it has moved. What lies
        // between two nodes with new references moves at once.
        while let Some(&(node, _)) = edges.last() {
            let behind = node as usize + 1;
            let shift = edges.len() as u32;
            let start = self.first[behind] as usize;
            end -= old_end - start;
            self.targets.copy_within(start..old_end, end);
            old_end = start;
            for first in &mut self.first[behind..=last] {
                *first += shift;
            }
            last = node as usize;
            while let Some((_, target)) = edges.pop_if(|edge| edge.0 == node) {
                end -= 1;
                self.targets[end] = target;
            }
        }
    }

    /// The referrers of `node`, each once, in order. Scans all references.
    pub fn sources(&self, node: u32) -> Vec<u32> {
        let source = |place| self.first.partition_point(|&first| first as usize <= place) - 1;
        let mut found: Vec<u32> = Vec::new();
        for (block, targets) in self.targets.chunks(BLOCK).enumerate() {
            // Few blocks have it, and those that have not are told fast.
            if targets.contains(&node) {
                let places = targets.iter().enumerate();
                let places = places.filter(|(_, target)| **target == node);
                found.extend(places.map(|(place, _)| source(block * BLOCK + place) as u32));
            }
        }
        found.dedup();
        found
    }

    /// The transposed graph: each reference reversed.
    pub fn reversed(&self) -> Self {
        Self::collected(self.node_count(), |put| {
            for from in 0..self.node_count() as u32 {
                for &to in self.targets(from) {
                    put(to, from);
                }
            }
        })
    }

    /// A graph of references that `all` gives, twice in the same order, each with its node first.
    pub(crate) fn collected(nodes: usize, all: impl Fn(&mut dyn FnMut(u32, u32))) -> Self {
        // Counted two places later, so that after the sums each row's start stands one place later,
        // and after filling it is the next row's.
        let mut first = Growing::default();
        first.resize(nodes + 2);
        all(&mut |node, _| first[node as usize + 2] += 1);
        for i in 2..first.len() {
            first[i] += first[i - 1];
        }
        let mut targets = Growing::default();
        targets.resize(first.last().copied().unwrap_or(0) as usize);
        all(&mut |node, target| {
            let place = &mut first[node as usize + 1];
            targets[*place as usize] = target;
            *place += 1;
        });
        first.pop();
        Self { first, targets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stay_in_order_where_more_are_inserted() {
        let mut graph = Csr::from_edges(3, &[(0, 1), (2, 0), (0, 2)]);
        assert_eq!(graph.targets(0), [1, 2]);
        graph.insert(1, &[(3, 0), (0, 3), (0, 3), (1, 1)]);
        assert_eq!(graph.targets(0), [1, 2, 3, 3]);
        assert_eq!(graph.targets(1), [1]);
        assert_eq!(graph.targets(2), [0]);
        assert_eq!(graph.targets(3), [0]);
        assert_eq!(graph.targets(4), [0u32; 0]);
        assert_eq!((graph.node_count(), graph.edge_count()), (4, 7));
    }

    #[test]
    fn references_turn_round() {
        let graph = Csr::from_edges(3, &[(0, 1), (2, 1), (1, 2), (1, 1)]);
        let turned = graph.reversed();
        assert_eq!(turned.targets(1), [0, 1, 2]);
        assert_eq!(turned.targets(0), [0u32; 0]);
        assert_eq!(turned.reversed().targets(1), [1, 2]);
        assert_eq!(graph.sources(1), [0, 1, 2]);
        assert_eq!(graph.sources(0), [0u32; 0]);
    }
}
