//! How the objects of a heap are come to from its roots.

use super::csr::Csr;
use crate::array::prefetch;

/// A shortest way from a root to each object that roots reach.
pub struct Ways {
    /// By node: the node before it on the way, [`ROOT`] or [`NOWHERE`].
    before: Vec<u32>,
    /// The nodes reached, in the order of their distance within each [`Ways::extend`].
    order: Vec<u32>,
}

const ROOT: u32 = u32::MAX - 1;
const NOWHERE: u32 = u32::MAX;

/// So many objects before its turn each part of what is known of one is fetched.
const STRIDE: usize = 8;
/// So many of an object's references are fetched.
const AHEAD: usize = 8;

impl Ways {
    /// Reaches nothing yet.
    pub fn new(nodes: usize) -> Self {
        Self {
            before: vec![NOWHERE; nodes],
            order: Vec::with_capacity(nodes),
        }
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
        let start = self.order.len();
        for root in roots {
            let before = &mut self.before[root as usize];
            if *before == NOWHERE {
                *before = ROOT;
                self.order.push(root);
            }
        }
        self.spread(graph, start, follow);
    }

    /// Goes on from everything reached so far, along references that were refused before.
    pub fn resume(&mut self, graph: &Csr, follow: impl FnMut(u32, u32) -> bool) {
        self.spread(graph, 0, follow);
    }

    fn spread(&mut self, graph: &Csr, start: usize, mut follow: impl FnMut(u32, u32) -> bool) {
        let mut next = start;
        while let Some(&node) = self.order.get(next) {
            next += 1;
            // Each step needs what the one before it has fetched.
            if let Some(&later) = self.order.get(next + 2 * STRIDE) {
                graph.prefetch(later);
            }
            if let Some(&soon) = self.order.get(next + STRIDE) {
                for &target in graph.targets(soon).iter().take(AHEAD) {
                    prefetch(&self.before, target as usize);
                }
            }
            for &target in graph.targets(node) {
                if self.before[target as usize] == NOWHERE && follow(node, target) {
                    self.before[target as usize] = node;
                    self.order.push(target);
                }
            }
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
        self.order.len()
    }

    pub fn bytes(&self) -> usize {
        size_of::<u32>() * (self.before.capacity() + self.order.capacity())
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
}
