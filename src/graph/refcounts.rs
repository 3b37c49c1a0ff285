//! What goes by reference counts alone when references are removed, and what waits for the garbage collector.

use petgraph::algo::kosaraju_scc;
use petgraph::graphmap::DiGraphMap;
use rustc_hash::{FxHashMap, FxHashSet};

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

/// For each node whether it stays for ever if the references to `objects`, each the only way to its object, are removed:
/// it is in a cycle that passes one of the `hidden` references, which the collector does not know, or such a cycle leads
/// to it. `freed` is what [`freed_at_once`] says.
pub fn never_freed(
    graph: &Csr,
    dominators: &Dominators,
    objects: impl IntoIterator<Item = u32>,
    freed: &[bool],
    hidden: impl IntoIterator<Item = (u32, u32)>,
) -> Vec<bool> {
    let mut never = vec![false; graph.node_count()];
    // Of each node, as far as known, whether one of the objects dominates it.
    let mut under: Vec<Option<bool>> = vec![None; graph.node_count()];
    for object in objects {
        under[object as usize] = Some(true);
    }
    let mut waits = |node: u32| {
        let mut way = vec![node];
        let mut found = under[node as usize];
        for above in dominators.above(node) {
            if found.is_some() {
                break;
            }
            found = under[above as usize];
            way.push(above);
        }
        let found = found.unwrap_or_default();
        way.into_iter()
            .for_each(|it| under[it as usize] = Some(found));
        found && !freed[node as usize]
    };
    let hidden = hidden.into_iter();
    let hidden: Vec<(u32, u32)> = hidden.filter(|&(a, b)| waits(a) && waits(b)).collect();
    let mut pending: Vec<u32> = components_with(graph, &hidden, &mut waits).concat();
    while let Some(node) = pending.pop() {
        if !std::mem::replace(&mut never[node as usize], true) {
            pending.extend(graph.targets(node).iter().copied().filter(|&it| waits(it)));
        }
    }
    never
}

/// The strongly connected components that have one of some references, among the nodes that `is_in` takes.
///
/// Where both ends of a reference are in one component, it is in a cycle.
pub fn components_with(
    graph: &Csr,
    references: &[(u32, u32)],
    mut is_in: impl FnMut(u32) -> bool,
) -> Vec<Vec<u32>> {
    let mut reached: FxHashSet<u32> = references.iter().map(|&(_, to)| to).collect();
    let mut pending: Vec<u32> = reached.iter().copied().collect();
    let mut among = DiGraphMap::<u32, ()>::new();
    while let Some(node) = pending.pop() {
        for &target in graph.targets(node) {
            if is_in(target) {
                among.add_edge(node, target, ());
                if reached.insert(target) {
                    pending.push(target);
                }
            }
        }
    }
    // Not `tarjan_scc`, which goes by recursion: a graph may be deep.
    let mut components = kosaraju_scc(&among);
    let mut component_of: FxHashMap<u32, usize> = FxHashMap::default();
    for (number, component) in components.iter().enumerate() {
        component_of.extend(component.iter().map(|&node| (node, number)));
    }
    let within = references.iter().filter_map(|(from, to)| {
        let number = *component_of.get(from)?;
        (component_of.get(to) == Some(&number)).then_some(number)
    });
    let within: FxHashSet<usize> = within.collect();
    let mut number = 0..;
    components.retain(|_| number.next().is_some_and(|it| within.contains(&it)));
    components
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_by_a_hidden_reference_stays() {
        // Node 1 leads to a cycle of 2 and 3, and to one of 4 and 5; only 3 -> 2 is hidden, and 3 leads to 6.
        let edges = [
            (0, 1),
            (1, 2),
            (2, 3),
            (3, 2),
            (3, 6),
            (1, 4),
            (4, 5),
            (5, 4),
        ];
        let graph = Csr::from_edges(8, &edges);
        let dominators = Dominators::new(&graph, &[0]);
        let freed = freed_at_once(&graph, &dominators, [(0, 1)]);
        let never = never_freed(&graph, &dominators, [1], &freed, [(3, 2), (0, 1), (1, 4)]);
        let never: Vec<u32> = (0..8).filter(|&node| never[node as usize]).collect();
        assert_eq!(never, [2, 3, 6]);
    }

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
