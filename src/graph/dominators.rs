//! What keeps what alive, alone: the dominator tree of a heap, and the bytes that each object retains.
//!
//! An object dominates another if every way from the roots to that other passes through it. Then, and
//! only then, letting go of the one frees the other.

use rustc_hash::FxHashMap;

use super::csr::Csr;

/// Who dominates whom, with a virtual root above all roots.
pub struct Dominators {
    /// The immediate dominator of each node: another node, [`Dominators::ROOT`] or
    /// [`Dominators::UNREACHED`].
    idom: Vec<u32>,
    /// The nodes that can be reached, each after its dominators.
    order: Vec<u32>,
    peak_bytes: usize,
}

/// What a node has instead of a number while it has none.
const NONE: u32 = u32::MAX;

impl Dominators {
    /// The virtual root, as an immediate dominator.
    pub const ROOT: u32 = u32::MAX - 1;
    /// Stands for the immediate dominator of a node that no root reaches.
    pub const UNREACHED: u32 = u32::MAX;

    /// The dominator tree of what can be reached from `roots`.
    ///
    /// Semi-NCA (Georgiadis, Tarjan and Werneck, "Finding Dominators in Practice", 2006): the
    /// semi-dominators of Lengauer and Tarjan by path compression, then each immediate dominator as the
    /// nearest ancestor above the semi-dominator. Nothing recurses, so a list of a million objects is no
    /// danger to the stack.
    pub fn new(graph: &Csr, roots: &[u32]) -> Self {
        let Tree {
            number,
            order,
            parent,
            spare,
        } = depth_first(graph, roots);
        let mut is_root = vec![false; order.len()];
        for &root in roots {
            is_root[number[root as usize] as usize] = true;
        }
        // Beside the references to each node: five numbers by number, one by node, and the flags.
        let peak_bytes = size_of::<u32>() * (7 * order.len() + number.len() + graph.edge_count())
            + is_root.len();
        let semi = semi_dominators(graph, &number, &order, parent.clone(), spare, &is_root);

        // From here on `parent` becomes the immediate dominators, still in numbers.
        let mut idom = parent;
        for node in 1..order.len() {
            let mut candidate = idom[node];
            while candidate > semi[node] {
                candidate = idom[candidate as usize];
            }
            idom[node] = candidate;
        }
        let mut result = number;
        for slot in &mut result {
            *slot = match *slot {
                NONE => Self::UNREACHED,
                own => match idom[own as usize] {
                    0 => Self::ROOT,
                    dominator => order[dominator as usize],
                },
            };
        }
        Self {
            idom: result,
            order,
            peak_bytes,
        }
    }

    /// The nearest object that alone keeps `node`, [`Self::ROOT`] or [`Self::UNREACHED`].
    pub fn immediate(&self, node: u32) -> u32 {
        self.idom
            .get(node as usize)
            .copied()
            .unwrap_or(Self::UNREACHED)
    }

    /// True if a root reaches the node.
    pub fn reaches(&self, node: u32) -> bool {
        self.immediate(node) != Self::UNREACHED
    }

    /// The nodes that roots reach, each after its dominators.
    pub fn order(&self) -> &[u32] {
        // The first entry is the virtual root's.
        &self.order[1..]
    }

    /// The most memory that finding the tree took at once, that of the graph not counted.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }

    /// For each node that dominates a node with a size, or has one: the sums of the sizes of both
    /// kinds over itself and all that it dominates. What no root reaches has no part in it.
    ///
    /// Takes time and memory for those nodes only, and few objects of a heap hold a buffer.
    pub fn retained(&self, sizes: &[(u32, [u64; 2])]) -> FxHashMap<u32, [u64; 2]> {
        let mut sums: FxHashMap<u32, [u64; 2]> = FxHashMap::default();
        // Of how many of its children the sums are still to come.
        let mut pending: FxHashMap<u32, u32> = FxHashMap::default();
        for &(node, size) in sizes.iter().filter(|(node, _)| self.reaches(*node)) {
            let mut current = node;
            while current < Self::ROOT && !sums.contains_key(&current) {
                sums.insert(current, [0, 0]);
                current = self.immediate(current);
                *pending.entry(current).or_insert(0) += 1;
            }
            add(sums.entry(node).or_default(), size);
        }
        let leaf = |node: &u32| !pending.contains_key(node);
        let mut ready: Vec<u32> = sums.keys().copied().filter(leaf).collect();
        while let Some(node) = ready.pop() {
            let above = self.immediate(node);
            let size = sums.get(&node).copied().unwrap_or_default();
            if let Some(sum) = sums.get_mut(&above) {
                add(sum, size);
            }
            if let Some(left) = pending.get_mut(&above) {
                *left -= 1;
                if *left == 0 && above < Self::ROOT {
                    ready.push(above);
                }
            }
        }
        sums
    }
}

fn add(sum: &mut [u64; 2], more: [u64; 2]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}

/// A depth-first walk: preorder numbers from 1 on, 0 being the virtual root.
struct Tree {
    /// By node; [`NONE`] for what cannot be reached.
    number: Vec<u32>,
    /// The node with each number; the virtual root's entry is [`NONE`].
    order: Vec<u32>,
    /// By number: that of the node through which it was come to.
    parent: Vec<u32>,
    /// As long, to be used again.
    spare: Vec<u32>,
}

fn depth_first(graph: &Csr, roots: &[u32]) -> Tree {
    let mut number = vec![NONE; graph.node_count()];
    let room = graph.node_count() + 1;
    let [mut order, mut parent, mut followed] = [(); 3].map(|()| Vec::with_capacity(room));
    order.push(NONE);
    parent.push(0u32);
    // By number: how many of the node's references have been followed.
    followed.push(0u32);
    for &root in roots {
        if number[root as usize] != NONE {
            continue;
        }
        let mut current = 0;
        let mut entering = Some(root);
        loop {
            if let Some(node) = entering.take() {
                let own = order.len() as u32;
                number[node as usize] = own;
                order.push(node);
                parent.push(current);
                followed.push(0);
                current = own;
            }
            if current == 0 {
                break;
            }
            let targets = graph.targets(order[current as usize]);
            let next = &mut followed[current as usize];
            match targets.get(*next as usize) {
                Some(&target) => {
                    *next += 1;
                    if number[target as usize] == NONE {
                        entering = Some(target);
                    }
                }
                None => current = parent[current as usize],
            }
        }
    }
    Tree {
        number,
        order,
        parent,
        spare: followed,
    }
}

/// The semi-dominators, by number: the lowest number from which a node can be come to on a way whose
/// inner nodes all have higher numbers than its own.
fn semi_dominators(
    graph: &Csr,
    number: &[u32],
    order: &[u32],
    mut ancestor: Vec<u32>,
    mut label: Vec<u32>,
    is_root: &[bool],
) -> Vec<u32> {
    let sources = sources_by_number(graph, number, order);
    let mut semi: Vec<u32> = (0..order.len() as u32).collect();
    for (own, label) in (0..).zip(&mut label) {
        *label = own;
    }
    let mut stack = Vec::new();
    for node in (1..order.len() as u32).rev() {
        let mut lowest = ancestor[node as usize];
        if is_root[node as usize] {
            lowest = 0;
        } else {
            for &source in sources.targets(node) {
                let best = lowest_label(
                    source,
                    node + 1,
                    &mut ancestor,
                    &mut label,
                    &semi,
                    &mut stack,
                );
                lowest = lowest.min(semi[best as usize]);
            }
        }
        semi[node as usize] = lowest;
    }
    semi
}

/// The node of the lowest semi-dominator on the way from `node` up to where the linked nodes end,
/// which are those from `linked` on; shortens that way for the next time.
fn lowest_label(
    mut node: u32,
    linked: u32,
    ancestor: &mut [u32],
    label: &mut [u32],
    semi: &[u32],
    stack: &mut Vec<u32>,
) -> u32 {
    if ancestor[node as usize] < linked {
        return label[node as usize];
    }
    while ancestor[node as usize] >= linked {
        stack.push(node);
        node = ancestor[node as usize];
    }
    let top = ancestor[node as usize];
    let mut best = label[node as usize];
    while let Some(below) = stack.pop() {
        ancestor[below as usize] = top;
        let own = &mut label[below as usize];
        if semi[best as usize] < semi[*own as usize] {
            *own = best;
        } else {
            best = *own;
        }
    }
    best
}

/// The reached sources of the references to each node, all by number.
fn sources_by_number(graph: &Csr, number: &[u32], order: &[u32]) -> Csr {
    Csr::collected(order.len(), |put| {
        for (from, &node) in order.iter().enumerate().skip(1) {
            for &to in graph.targets(node) {
                put(number[to as usize], from as u32);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use petgraph::graph::{DiGraph, NodeIndex};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The nodes that roots reach when `without` is not there.
    fn reached(graph: &Csr, roots: &[u32], without: Option<u32>) -> Vec<bool> {
        let mut seen = vec![false; graph.node_count()];
        let mut pending: Vec<u32> = roots.to_vec();
        while let Some(node) = pending.pop() {
            if Some(node) != without && !std::mem::replace(&mut seen[node as usize], true) {
                pending.extend(graph.targets(node));
            }
        }
        seen
    }

    fn graphs() -> impl Strategy<Value = (Csr, Vec<u32>)> {
        (1usize..16).prop_flat_map(|nodes| {
            let node = 0..nodes as u32;
            (
                vec((node.clone(), node.clone()), 0..4 * nodes),
                vec(node, 0..4),
            )
                .prop_map(move |(edges, roots)| (Csr::from_edges(nodes, &edges), roots))
        })
    }

    proptest! {
        #[test]
        fn who_dominates_whom_is_who_cuts_whom_off((graph, roots) in graphs()) {
            let found = Dominators::new(&graph, &roots);
            let whole = reached(&graph, &roots, None);
            for node in 0..graph.node_count() as u32 {
                prop_assert_eq!(found.reaches(node), whole[node as usize]);
                if !whole[node as usize] {
                    continue;
                }
                let cuts_off: Vec<u32> = (0..graph.node_count() as u32)
                    .filter(|&other| other != node && whole[other as usize])
                    .filter(|&other| !reached(&graph, &roots, Some(other))[node as usize])
                    .collect();
                let mut chain = Vec::new();
                let mut above = found.immediate(node);
                while above != Dominators::ROOT {
                    chain.push(above);
                    above = found.immediate(above);
                }
                chain.sort_unstable();
                prop_assert_eq!(chain, cuts_off);
            }
        }

        #[test]
        fn retained_is_what_goes_with_an_object(
            (graph, roots) in graphs(), sizes in vec(0u64..100, 16),
        ) {
            let sizes = sizes[..graph.node_count()].to_vec();
            let found = Dominators::new(&graph, &roots);
            let given: Vec<(u32, [u64; 2])> =
                (0..).zip(&sizes).map(|(node, &size)| (node, [size, 2 * size])).collect();
            let retained = found.retained(&given);
            let sum = |seen: &[bool]| -> u64 {
                sizes.iter().zip(seen).filter(|(_, seen)| **seen).map(|(size, _)| size).sum()
            };
            let whole = reached(&graph, &roots, None);
            for node in (0..graph.node_count() as u32).filter(|&node| whole[node as usize]) {
                let rest = reached(&graph, &roots, Some(node));
                let expected = sum(&whole) - sum(&rest);
                prop_assert_eq!(retained[&node], [expected, 2 * expected]);
            }
        }

        #[test]
        fn petgraph_agrees((graph, roots) in graphs()) {
            let mut other = DiGraph::<(), ()>::new();
            for _ in 0..=graph.node_count() {
                other.add_node(());
            }
            let top = NodeIndex::new(graph.node_count());
            for from in 0..graph.node_count() as u32 {
                for &to in graph.targets(from) {
                    other.add_edge(NodeIndex::new(from as usize), NodeIndex::new(to as usize), ());
                }
            }
            for &root in &roots {
                other.add_edge(top, NodeIndex::new(root as usize), ());
            }
            let theirs = petgraph::algo::dominators::simple_fast(&other, top);
            let ours = Dominators::new(&graph, &roots);
            for node in 0..graph.node_count() {
                let ours = match ours.immediate(node as u32) {
                    Dominators::UNREACHED => None,
                    Dominators::ROOT => Some(top),
                    other => Some(NodeIndex::new(other as usize)),
                };
                prop_assert_eq!(ours, theirs.immediate_dominator(NodeIndex::new(node)));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn a_list_of_a_million_needs_no_stack() {
        let count = 1_000_000u32;
        let edges: Vec<(u32, u32)> = (1..count).map(|node| (node - 1, node)).collect();
        let graph = Csr::from_edges(count as usize, &edges);
        let found = Dominators::new(&graph, &[0]);
        assert_eq!(found.immediate(count - 1), count - 2);
        let retained = found.retained(&[(count - 1, [3, 4]), (count / 2, [1, 0])]);
        assert_eq!((retained[&0], retained[&(count - 1)]), ([4, 4], [3, 4]));
    }

    #[test]
    fn without_roots_nothing_is_reached() {
        let found = Dominators::new(&Csr::from_edges(2, &[(0, 1)]), &[]);
        assert!(!found.reaches(0) && !found.reaches(1) && found.order().is_empty());
    }
}
