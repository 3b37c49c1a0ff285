//! What goes by reference counts alone when references are removed, and what waits for the garbage collector.

use super::dominators::Dominators;
use crate::capture::Csr;

/// For each node whether it goes at once if the references, as pairs of owner and object, are removed.
///
/// Each is the only way to its object (see [`super::Bridges`]). Then all that the object dominates has lost its
/// last root; but an object in a cycle, or one that such an object or garbage refers to, still has references.
/// One pass over all references.
pub fn freed_at_once(
    graph: &Csr,
    dominators: &Dominators,
    references: impl IntoIterator<Item = (u32, u32)>,
) -> Vec<bool> {
    let mut counts = vec![0u32; graph.node_count()];
    for node in 0..graph.node_count() as u32 {
        for &target in graph.targets(node) {
            counts[target as usize] += 1;
        }
    }
    let mut freed = vec![false; graph.node_count()];
    let mut pending: Vec<u32> = Vec::new();
    let mut remove = |object: u32, pending: &mut Vec<u32>| {
        let count = &mut counts[object as usize];
        *count = count.saturating_sub(1);
        // What has no dominator may be held from outside.
        if *count == 0 && dominators.immediate(object) < Dominators::ROOT {
            pending.push(object);
        }
    };
    for (_, object) in references {
        remove(object, &mut pending);
    }
    while let Some(node) = pending.pop() {
        freed[node as usize] = true;
        for &target in graph.targets(node) {
            remove(target, &mut pending);
        }
    }
    freed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(edges: &[(u32, u32)], reference: (u32, u32)) -> Vec<u32> {
        let graph = Csr::from_edges(8, edges);
        let dominators = Dominators::new(&graph, &[0]);
        let freed = freed_at_once(&graph, &dominators, [reference]);
        (0..8).filter(|&node| freed[node as usize]).collect()
    }

    #[test]
    fn a_tree_goes_at_once() {
        assert_eq!(
            freed(&[(0, 1), (1, 2), (1, 3), (2, 3), (0, 4)], (0, 1)),
            [1, 2, 3]
        );
        // An object that is referred to twice has two references.
        assert_eq!(freed(&[(0, 1), (1, 2), (1, 2)], (0, 1)), [1, 2]);
    }

    #[test]
    fn a_cycle_and_what_it_holds_waits() {
        assert!(freed(&[(0, 1), (1, 2), (2, 1), (2, 3)], (0, 1)).is_empty());
        assert_eq!(
            freed(&[(0, 1), (1, 2), (2, 2), (2, 3), (1, 4)], (0, 1)),
            [1, 4]
        );
        // What garbage refers to, too.
        assert_eq!(freed(&[(0, 1), (1, 2), (5, 5), (5, 2)], (0, 1)), [1]);
    }
}
