//! How the objects of a heap are come to from its roots.

use std::mem;

use crate::capture::Csr;
use crate::memory::array::{Array, prefetch};

/// A shortest way from a root to each object that roots reach.
pub struct Ways {
    /// By node: the node before it on the way, [`ROOT`] or [`NOWHERE`].
    before: Array<u32>,
    /// The nodes reached, in the order of their distance within each [`Ways::extend`].
    order: Array<u32>,
    count: usize,
    /// Nodes with references that were refused, in the order in which they were.
    refused: Vec<u32>,
    /// Once these are reached, no more is looked for.
    wanted: Option<Vec<u32>>,
}

const ROOT: u32 = u32::MAX - 1;
const NOWHERE: u32 = u32::MAX;

/// So many objects before its turn each part of what is known of one is fetched.
const STRIDE: usize = 8;
/// So many of an object's references are fetched.
const AHEAD: usize = 8;
/// After so many objects it is asked whether more is wanted.
const STRETCH: usize = 1 << 12;

impl Ways {
    /// Reaches nothing yet.
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

    /// Reaches nothing yet; once it reaches all of `wanted`, it reaches for no more.
    pub fn until(nodes: usize, wanted: Vec<u32>) -> Self {
        Self {
            wanted: Some(wanted),
            ..Self::new(nodes)
        }
    }

    /// True if all that is wanted is reached.
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

    /// Adds the nodes that `roots` reach and nothing has reached so far, breadth first.
    ///
    /// A reference that `follow` refuses is passed over, so what comes first decides which ways
    /// are taken. Of equally short ways the one from the first root is taken.
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

    /// Goes on from everything reached so far, along references that were refused before.
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
                // Each step needs what the one before it has fetched. Behind the last node reached lie
                // zeros, and to fetch what node 0 has does no harm.
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

    /// The way to a node, from its root; empty if there is none.
    pub fn to(&self, node: u32) -> Vec<u32> {
        let mut way = Vec::new();
        let mut current = node;
        while let Some(&before) = self.before.get(current as usize) {
            if before == NOWHERE {
                break;
            }
            way.push(current);
            current = before;
        }
        way.reverse();
        way
    }

    /// How many nodes are reached.
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
    fn the_shortest_way_wins_and_refused_references_come_last() {
        let graph = Csr::from_edges(6, &[(0, 1), (1, 2), (0, 3), (3, 2), (2, 4), (5, 4)]);
        let mut ways = Ways::new(6);
        ways.extend(&graph, [0], |from, to| (from, to) != (1, 2));
        assert_eq!(ways.to(4), [0, 3, 2, 4]);
        assert!(!ways.reaches(5) && ways.to(5).is_empty());
        ways.extend(&graph, [5, 5], |_, _| true);
        assert_eq!(ways.to(5), [5]);
        assert_eq!(ways.count(), 6);

        let mut ways = Ways::new(6);
        ways.extend(&graph, [0], |from, _| from != 2);
        assert!(!ways.reaches(4));
        ways.resume(&graph, |_, _| true);
        assert_eq!(ways.to(4), [0, 1, 2, 4]);
    }
    #[test]
    fn no_more_is_looked_for_once_all_that_is_wanted_is_reached() {
        let count = 10 * STRETCH as u32;
        let edges: Vec<(u32, u32)> = (1..count).map(|node| (node - 1, node)).collect();
        let graph = Csr::from_edges(count as usize, &edges);
        let mut ways = Ways::until(graph.node_count(), vec![9, 3]);
        ways.extend(&graph, [0], |_, _| true);
        assert_eq!(ways.to(9).len(), 10);
        assert!(ways.count() < 2 * STRETCH);
        // What is wanted and out of reach leaves nothing out.
        let mut ways = Ways::until(graph.node_count(), vec![9, 3]);
        ways.extend(&graph, [5], |_, _| true);
        assert_eq!(ways.count(), graph.node_count() - 5);
    }
}
