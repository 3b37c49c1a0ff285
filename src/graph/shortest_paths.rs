//! Shortest paths from the GC roots of a heap.

use std::mem;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::capture::Csr;
use crate::memory::array::{Array, prefetch};

/// A shortest path from a root to each reachable object.
pub struct ShortestPaths {
    /// By node: its predecessor on the path, [`ROOT`] or [`NOWHERE`].
    before: Array<u32>,
    /// The nodes reached, ordered by distance within each [`ShortestPaths::extend`].
    order: Array<u32>,
    count: usize,
    /// Nodes with references that `follow` refused, in order.
    refused: Vec<u32>,
    /// The search stops once these are reached.
    wanted: Option<Vec<u32>>,
}

/// The ends of paths. The middle of each is walked once, however many paths it is part of: those to all nodes of a chain
/// take time in proportion to their number.
pub struct Ends<'a> {
    paths: &'a ShortestPaths,
    each: usize,
    /// By node on a long path: the length of its own, and the last one of the first `each` on it.
    known: FxHashMap<u32, (u64, u32)>,
}

/// What is left out of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The position of the first node behind it.
    pub before: usize,
    /// Number of nodes.
    pub omitted: u64,
}

impl Ends<'_> {
    /// A path, without its middle if it is long.
    pub fn path_to(&mut self, node: u32) -> (Vec<u32>, Option<Gap>) {
        let back = || std::iter::successors(Some(node), |&it| self.paths.before(it));
        if back().nth(2 * self.each).is_none() {
            return (self.paths.path_to(node), None);
        }
        let mut tail: Vec<u32> = back().take(self.each).collect();
        tail.reverse();
        let (length, head) = self.head_of(node);
        let mut nodes = self.paths.path_to(head);
        nodes.extend(tail);
        let gap = Gap {
            before: self.each,
            omitted: length - 2 * self.each as u64,
        };
        (nodes, Some(gap))
    }

    fn head_of(&mut self, node: u32) -> (u64, u32) {
        let mut way = Vec::new();
        let mut current = Some(node);
        let mut last = (0, node);
        while let Some(node) = current {
            if let Some(&known) = self.known.get(&node) {
                last = known;
                break;
            }
            way.push(node);
            current = self.paths.before(node);
        }
        for node in way.into_iter().rev() {
            let (length, head) = (last.0 + 1, last.1);
            last = (
                length,
                if length <= self.each as u64 {
                    node
                } else {
                    head
                },
            );
            self.known.insert(node, last);
        }
        last
    }

    /// True if the path to a node passes another one. Takes time in proportion to its length.
    pub fn passes(&self, node: u32, other: u32) -> bool {
        let mut back = std::iter::successors(Some(node), |&it| self.paths.before(it));
        back.any(|it| it == other)
    }
}

const ROOT: u32 = u32::MAX - 1;
const NOWHERE: u32 = u32::MAX;

/// Prefetch distance, in objects.
const STRIDE: usize = 8;
/// Maximum number of references to prefetch per object.
const AHEAD: usize = 8;
/// Number of objects between two checks whether the search is done.
const STRETCH: usize = 1 << 12;

impl ShortestPaths {
    /// No node is reached yet.
    pub fn new(nodes: usize) -> Self {
        let mut before = Array::zeroed(nodes);
        before.fill(NOWHERE);
        Self {
            before,
            order: Array::zeroed(nodes),
            count: 0,
            refused: Vec::new(),
            wanted: None,
        }
    }

    /// No node is reached yet. The search will stop once all of `wanted` are reached.
    pub fn until(nodes: usize, wanted: Vec<u32>) -> Self {
        Self {
            wanted: Some(wanted),
            ..Self::new(nodes)
        }
    }

    /// True if all wanted nodes are reached.
    fn is_done(&mut self) -> bool {
        let Some(wanted) = &mut self.wanted else {
            return false;
        };
        while let Some(&last) = wanted.last() {
            if self.before[last as usize] == NOWHERE {
                return false;
            }
            wanted.pop();
        }
        true
    }

    /// Adds the nodes reachable from `roots` that are not reached yet, breadth first.
    ///
    /// References that `follow` refuses are skipped. Among paths of equal length, the one from the
    /// first root wins.
    pub fn extend(
        &mut self,
        graph: &Csr,
        roots: impl IntoIterator<Item = u32>,
        follow: impl FnMut(u32, u32) -> bool,
    ) {
        let start = self.count;
        for root in roots {
            let before = &mut self.before[root as usize];
            if *before == NOWHERE {
                *before = ROOT;
                self.order[self.count] = root;
                self.count += 1;
            }
        }
        self.spread(graph, start, follow);
    }

    /// Continues from all nodes reached so far, along references that were refused before.
    pub fn resume(&mut self, graph: &Csr, mut follow: impl FnMut(u32, u32) -> bool) {
        let start = self.count;
        for node in mem::take(&mut self.refused) {
            if self.is_done() {
                return;
            }
            self.reach_from(node, graph, &mut follow);
        }
        self.spread(graph, start, follow);
    }

    fn spread(&mut self, graph: &Csr, start: usize, mut follow: impl FnMut(u32, u32) -> bool) {
        let mut next = start;
        while next < self.count && !self.is_done() {
            let stretch = next + STRETCH;
            while next < self.count.min(stretch) {
                let node = self.order[next];
                // Each stage needs what the previous one fetched. Behind the last node reached lie
                // zeros; prefetching node 0 is harmless.
                if let Some(&last) = self.order.get(next + 1 + 3 * STRIDE) {
                    graph.prefetch_node(last);
                    graph.prefetch_targets(self.order[next + 1 + 2 * STRIDE]);
                }
                if let Some(&soon) = self.order.get(next + 1 + STRIDE) {
                    for &target in graph.targets(soon).iter().take(AHEAD) {
                        prefetch(&self.before, target as usize);
                    }
                }
                next += 1;
                self.reach_from(node, graph, &mut follow);
            }
        }
    }

    #[inline]
    fn reach_from(&mut self, node: u32, graph: &Csr, follow: &mut impl FnMut(u32, u32) -> bool) {
        let (before, order) = (&mut *self.before, &mut *self.order);
        let mut refused = false;
        for &target in graph.targets(node) {
            if before[target as usize] == NOWHERE {
                if follow(node, target) {
                    before[target as usize] = node;
                    order[self.count] = target;
                    self.count += 1;
                } else {
                    refused = true;
                }
            }
        }
        if refused {
            self.refused.push(node);
        }
    }

    pub fn reaches(&self, node: u32) -> bool {
        self.before
            .get(node as usize)
            .is_some_and(|&it| it != NOWHERE)
    }

    /// The path to a node, from its root; empty if the node is not reached.
    pub fn path_to(&self, node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut current = node;
        while let Some(&before) = self.before.get(current as usize) {
            if before == NOWHERE {
                break;
            }
            path.push(current);
            current = before;
        }
        path.reverse();
        path
    }

    /// The node before another on its path; `None` for a root, and for what is not reached.
    pub fn before(&self, node: u32) -> Option<u32> {
        let before = *self.before.get(node as usize)?;
        (before != ROOT && before != NOWHERE).then_some(before)
    }

    /// By node: how many nodes its path has; 0 for what is not reached.
    pub fn lengths(&self) -> Vec<u32> {
        let mut lengths = vec![0; self.before.len()];
        // What comes before a node on its path was reached before it.
        for &node in &self.order[..self.count] {
            let before = self.before(node).map_or(0, |it| lengths[it as usize]);
            lengths[node as usize] = before + 1;
        }
        lengths
    }

    /// The ends of paths, of so many nodes each.
    pub fn ends(&self, each: usize) -> Ends<'_> {
        Ends {
            paths: self,
            each,
            known: FxHashMap::default(),
        }
    }

    /// The last node that the paths to some nodes, all of them reached, have in common. `lengths` are
    /// [`ShortestPaths::lengths`]. Takes time in proportion to the number of nodes on the paths.
    pub fn last_in_common(
        &self,
        lengths: &[u32],
        nodes: impl IntoIterator<Item = u32>,
    ) -> Option<u32> {
        let mut nodes = nodes.into_iter();
        let mut common = nodes.next()?;
        // These lie behind it.
        let mut passed = FxHashSet::default();
        for mut node in nodes {
            while node != common {
                let (own, its) = (lengths[node as usize], lengths[common as usize]);
                if own >= its && !passed.insert(node) {
                    break;
                }
                if its >= own {
                    passed.insert(common);
                    common = self.before(common)?;
                }
                if own >= its {
                    node = self.before(node)?;
                }
            }
        }
        Some(common)
    }

    /// The number of nodes reached.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn bytes(&self) -> usize {
        size_of::<u32>() * (self.before.len() + self.count + self.refused.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_path_wins_and_refused_references_come_last() {
        let graph = Csr::from_edges(6, &[(0, 1), (1, 2), (0, 3), (3, 2), (2, 4), (5, 4)]);
        let mut paths = ShortestPaths::new(6);
        paths.extend(&graph, [0], |from, to| (from, to) != (1, 2));
        assert_eq!(paths.path_to(4), [0, 3, 2, 4]);
        assert!(!paths.reaches(5) && paths.path_to(5).is_empty());
        paths.extend(&graph, [5, 5], |_, _| true);
        assert_eq!(paths.path_to(5), [5]);
        assert_eq!(paths.count(), 6);

        let mut paths = ShortestPaths::new(6);
        paths.extend(&graph, [0], |from, _| from != 2);
        assert!(!paths.reaches(4));
        paths.resume(&graph, |_, _| true);
        assert_eq!(paths.path_to(4), [0, 1, 2, 4]);
    }

    #[test]
    fn long_paths_are_known_by_their_ends() {
        // A chain, with a branch near its beginning and one near its end.
        let mut edges: Vec<(u32, u32)> = (1..100).map(|node| (node - 1, node)).collect();
        edges.extend([(2, 100), (90, 101)]);
        let graph = Csr::from_edges(103, &edges);
        let mut paths = ShortestPaths::new(103);
        paths.extend(&graph, [0], |_, _| true);
        let mut ends = paths.ends(4);
        for node in 0..103 {
            let whole = paths.path_to(node);
            let (nodes, gap) = ends.path_to(node);
            if whole.len() <= 8 {
                assert_eq!((nodes, gap), (whole.clone(), None));
            } else {
                assert_eq!(nodes, [&whole[..4], &whole[whole.len() - 4..]].concat());
                let omitted = whole.len() as u64 - 8;
                assert_eq!(gap, Some(Gap { before: 4, omitted }));
            }
            for other in 0..103 {
                assert_eq!(
                    ends.passes(node, other) && paths.reaches(node),
                    whole.contains(&other)
                );
            }
        }
    }

    #[test]
    fn paths_have_a_part_in_common() {
        // Two chains that fork from a third, and another root.
        let edges = [(0, 1), (1, 2), (2, 3), (3, 4), (2, 5), (5, 6), (7, 8)];
        let graph = Csr::from_edges(9, &edges);
        let mut paths = ShortestPaths::new(9);
        paths.extend(&graph, [0, 7], |_, _| true);
        let lengths = paths.lengths();
        assert_eq!(lengths, [1, 2, 3, 4, 5, 4, 5, 1, 2]);
        let all: Vec<Vec<u32>> = (0..9).map(|node| paths.path_to(node)).collect();
        for one in 0..9u32 {
            for two in 0..9u32 {
                for three in 0..9u32 {
                    let same = |a: &[u32], b: &[u32]| -> Vec<u32> {
                        let both = a.iter().zip(b).take_while(|(a, b)| a == b);
                        both.map(|(a, _)| *a).collect()
                    };
                    let expected = same(&all[one as usize], &all[two as usize]);
                    let expected = same(&expected, &all[three as usize]);
                    let found = paths.last_in_common(&lengths, [one, two, three]);
                    assert_eq!(found, expected.last().copied(), "{one} {two} {three}");
                }
            }
        }
    }

    #[test]
    fn the_search_stops_once_all_wanted_nodes_are_reached() {
        let count = 10 * STRETCH as u32;
        let edges: Vec<(u32, u32)> = (1..count).map(|node| (node - 1, node)).collect();
        let graph = Csr::from_edges(count as usize, &edges);
        let mut paths = ShortestPaths::until(graph.node_count(), vec![9, 3]);
        paths.extend(&graph, [0], |_, _| true);
        assert_eq!(paths.path_to(9).len(), 10);
        assert!(paths.count() < 2 * STRETCH);
        // An unreachable wanted node does not stop the search early.
        let mut paths = ShortestPaths::until(graph.node_count(), vec![9, 3]);
        paths.extend(&graph, [5], |_, _| true);
        assert_eq!(paths.count(), graph.node_count() - 5);
    }
}
