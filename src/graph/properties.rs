//! What must hold for every graph, tried on random ones against slow and obvious references.

use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::fold::lead_to_classes;
use super::preference::{PLUMBING, preference};
use super::{
    Code, Cycle, LeakEdge, LeakGraph, LeakNode, LibrarysPart, Way, find_causes, find_groups,
    first_cycle, fold, paths_to_buffers,
};
use crate::capture::{Description, ReferenceName, Snapshot, SnapshotObject, WeakReferences};
use crate::cpython::{Binding, ObjectKind};

/// A graph of few nodes: its edges, and which nodes are buffers.
#[derive(Clone, Debug)]
struct Small {
    edges: Vec<(usize, usize)>,
    is_buffer: Vec<bool>,
}

impl Small {
    fn len(&self) -> usize {
        self.is_buffer.len()
    }

    /// Which node can be reached from which by one reference or more.
    fn reach(&self) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; self.len()]; self.len()];
        for &(from, to) in &self.edges {
            reach[from][to] = true;
        }
        for middle in 0..self.len() {
            for from in 0..self.len() {
                for to in 0..self.len() {
                    reach[from][to] |= reach[from][middle] && reach[middle][to];
                }
            }
        }
        reach
    }

    /// The nodes that are in a cycle from which a buffer can be reached.
    fn culprits(&self) -> Vec<usize> {
        let reach = self.reach();
        (0..self.len())
            .filter(|&i| reach[i][i])
            .filter(|&i| (0..self.len()).any(|b| self.is_buffer[b] && (b == i || reach[i][b])))
            .collect()
    }

    fn of(graph: &LeakGraph) -> Self {
        Self {
            edges: graph
                .edge_references()
                .map(|edge| (edge.source().index(), edge.target().index()))
                .collect(),
            is_buffer: graph.node_weights().map(|node| node.is_buffer).collect(),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.first.push(0);
        for from in 0..self.len() {
            snapshot.objects.push(object(from));
            let targets = self.edges.iter().filter(|(source, _)| *source == from);
            snapshot.targets.extend(targets.map(|&(_, to)| to as u32));
            snapshot.first.push(snapshot.targets.len() as u32);
        }
        snapshot
    }
}

fn object(number: usize) -> SnapshotObject {
    SnapshotObject {
        address: number,
        type_address: number % 3,
        kind: ObjectKind::Instance,
        verdict: 0,
        in_garbage: true,
        outside_references: 0,
        salt: 0,
    }
}

fn small() -> impl Strategy<Value = Small> {
    (1usize..12).prop_flat_map(|nodes| {
        let edges = vec((0..nodes, 0..nodes), 0..3 * nodes);
        let is_buffer = vec(prop::bool::weighted(0.2), nodes);
        (edges, is_buffer).prop_map(|(edges, is_buffer)| Small { edges, is_buffer })
    })
}

fn node(number: usize, kind: ObjectKind, is_buffer: bool) -> LeakNode {
    LeakNode {
        description: Description {
            weak_references: WeakReferences::Taken,
            free_variables: vec!["x".to_owned()],
            ..Description::blank(kind, number.to_string())
        },
        object: Some(number as u32),
        is_buffer,
        is_tensor: is_buffer,
        stands_for: 0,
    }
}

/// A graph of objects and references of all kinds that are treated in a way of their own.
fn leak_graph() -> impl Strategy<Value = LeakGraph> {
    let kinds = select(vec![
        ObjectKind::Instance,
        ObjectKind::Instance,
        ObjectKind::Dict,
        ObjectKind::Tuple,
        ObjectKind::Cell,
        ObjectKind::Function,
        ObjectKind::Class,
        ObjectKind::Frame,
        ObjectKind::Generator,
        ObjectKind::Exception,
    ]);
    let attribute = |name: &str| ReferenceName::Attribute(name.to_owned());
    let names = select(vec![
        attribute("parent"),
        attribute("__dict__"),
        attribute("__dict__"),
        attribute("__closure__"),
        attribute("__defaults__"),
        attribute("__mro__"),
        attribute("args"),
        attribute("gi_frame"),
        attribute("_modules"),
        ReferenceName::Closure("x".to_owned()),
        ReferenceName::Closure("x".to_owned()),
        ReferenceName::Local("y".to_owned()),
        ReferenceName::Key("'k'".to_owned()),
        ReferenceName::Index(1),
        ReferenceName::Member,
        ReferenceName::Type,
        ReferenceName::Unnamed,
    ]);
    (1usize..10).prop_flat_map(move |nodes| {
        let edges = vec((0..nodes, 0..nodes, names.clone()), 0..3 * nodes);
        let facts = vec((kinds.clone(), prop::bool::weighted(0.2)), nodes);
        (edges, facts).prop_map(|(edges, facts)| {
            let mut graph = LeakGraph::default();
            for (number, (kind, is_buffer)) in facts.into_iter().enumerate() {
                graph.add_node(node(number, kind, is_buffer));
            }
            for (from, to, name) in edges {
                graph.add_edge(
                    NodeIndex::new(from),
                    NodeIndex::new(to),
                    LeakEdge::new(name),
                );
            }
            graph
        })
    })
}

/// 2000 cases, unless `PROPTEST_CASES` says how many.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config.cases,
        None => 2000,
    };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..config
    }
}

/// What the code of random references says, by their numbers.
struct Said(u64);

impl Said {
    fn bits(&self, edge: &EdgeIndex) -> u64 {
        self.0 >> (edge.index() % 16 * 4)
    }
}

impl Code for Said {
    fn librarys_parts(&self, cycle: &Cycle) -> Vec<LibrarysPart> {
        let part = |edge| match self.bits(edge) & 3 {
            0 => LibrarysPart::Stored,
            1 => LibrarysPart::Made,
            _ => LibrarysPart::None,
        };
        cycle.edges.iter().map(part).collect()
    }

    fn bindings(&self, _: &Cycle) -> Vec<Binding> {
        Vec::new()
    }

    fn are_stored_by_owner(&self, cycle: &Cycle) -> Vec<bool> {
        let is_stored = |edge| self.bits(edge) >> 4 & 1 == 0;
        cycle.edges.iter().map(is_stored).collect()
    }

    fn ways(&self, cycle: &Cycle) -> Vec<Way> {
        let way = |edge| match self.bits(edge) >> 2 & 3 {
            0 => Way::Forth,
            1 => Way::Back,
            _ => Way::Unknown,
        };
        cycle.edges.iter().map(way).collect()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn groups_are_the_cycles_that_reach_buffers_and_what_lies_between(graph in small()) {
        let reach = graph.reach();
        let culprits = graph.culprits();
        let reaches_buffer = |i: usize| {
            (0..graph.len()).any(|b| graph.is_buffer[b] && (b == i || reach[i][b]))
        };
        let mut members: Vec<u32> = (0..graph.len())
            .filter(|&i| reaches_buffer(i) && culprits.iter().any(|&c| c == i || reach[c][i]))
            .map(|i| i as u32)
            .collect();

        let groups = find_groups(&graph.snapshot(), &graph.is_buffer);
        let mut found: Vec<u32> = groups.iter().flat_map(|group| group.nodes.clone()).collect();
        found.sort_unstable();
        members.sort_unstable();
        prop_assert_eq!(&found, &members, "each object is in one group");

        let mut cyclic: Vec<u32> = groups.iter().flat_map(|g| g.components.concat()).collect();
        cyclic.sort_unstable();
        prop_assert_eq!(cyclic, culprits.iter().map(|&c| c as u32).collect::<Vec<_>>());

        for (number, group) in groups.iter().enumerate() {
            let buffers: Vec<u32> =
                group.nodes.iter().copied().filter(|&i| graph.is_buffer[i as usize]).collect();
            prop_assert_eq!(&group.buffers, &buffers);
            for component in &group.components {
                for (&a, &b) in component.iter().zip(component.iter().cycle().skip(1)) {
                    prop_assert!(reach[a as usize][b as usize], "a component is one");
                }
            }
            for other in &groups[number + 1..] {
                let apart = !graph.edges.iter().any(|&(from, to)| {
                    let (from, to) = (from as u32, to as u32);
                    group.nodes.contains(&from) && other.nodes.contains(&to)
                        || group.nodes.contains(&to) && other.nodes.contains(&from)
                });
                prop_assert!(apart, "groups do not touch");
            }
        }
    }

    #[test]
    fn the_first_cycle_exists_is_closed_and_reaches_a_buffer(graph in leak_graph()) {
        let plain = Small::of(&graph);
        let culprits = plain.culprits();
        let Some(cycle) = first_cycle(&graph) else {
            prop_assert!(culprits.is_empty(), "there is a cycle that reaches a buffer");
            return Ok(());
        };
        prop_assert_eq!(cycle.nodes.len(), cycle.edges.len());
        for (i, &edge) in cycle.edges.iter().enumerate() {
            let next = cycle.nodes[(i + 1) % cycle.nodes.len()];
            prop_assert_eq!(graph.edge_endpoints(edge), Some((cycle.nodes[i], next)));
            prop_assert!(!cycle.nodes[..i].contains(&cycle.nodes[i]), "no object comes twice");
            prop_assert!(culprits.contains(&cycle.nodes[i].index()));
        }

        let reach = plain.reach();
        let paths = paths_to_buffers(&graph, &cycle);
        for buffer in graph.node_indices().filter(|&i| graph[i].is_buffer) {
            let held = cycle.nodes.contains(&buffer) || reach[cycle.nodes[0].index()][buffer.index()];
            prop_assert_eq!(held, paths.iter().any(|path| path.buffer == buffer));
        }
        for path in paths {
            let mut here = cycle.nodes[path.from_step];
            for edge in path.edges {
                let (from, to) = graph.edge_endpoints(edge).unwrap();
                prop_assert_eq!(from, here);
                here = to;
            }
            prop_assert_eq!(here, path.buffer);
        }
    }

    #[test]
    fn cuts_that_are_said_to_free_do(graph in leak_graph(), made: u64) {
        let found = find_causes(&graph, &Said(made));
        let cuts: Vec<EdgeIndex> =
            found.causes.iter().flat_map(|cause| cause.cuts.iter().copied()).collect();
        let mut rest = graph.clone();
        for &edge in &cuts {
            prop_assert!(rest.remove_edge(edge).is_some(), "a cut is a reference, named once");
        }
        prop_assert_eq!(found.frees, Small::of(&rest).culprits().is_empty());
        prop_assert!(found.frees || found.causes.len() >= 8, "it gives up only at the limit");
        for &spared in cuts.iter().filter(|_| found.frees) {
            let mut rest = graph.clone();
            rest.retain_edges(|_, edge| edge == spared || !cuts.contains(&edge));
            prop_assert!(!Small::of(&rest).culprits().is_empty(), "each cut is needed");
        }
    }

    #[test]
    fn each_cause_is_a_cycle_that_keeps_a_buffer_and_is_cut(graph in leak_graph()) {
        for cause in find_causes(&graph, &()).causes {
            prop_assert!(!paths_to_buffers(&graph, &cause.cycle).is_empty());
            let is_cut = cause.cycle.edges.iter().any(|edge| cause.cuts.contains(edge));
            let can_be_cut = |&edge| preference(&graph, edge) < PLUMBING;
            prop_assert!(is_cut || !cause.cycle.edges.iter().any(can_be_cut));
        }
    }

    #[test]
    fn folding_keeps_what_reaches_what(mut graph in leak_graph()) {
        // The one thing that it changes.
        lead_to_classes(&mut graph);
        let before = Small::of(&graph).reach();
        let folded = fold(graph.clone());
        let after = Small::of(&folded).reach();
        let original = |i: NodeIndex| folded[i].object.unwrap() as usize;
        for from in folded.node_indices() {
            for to in folded.node_indices() {
                prop_assert_eq!(
                    after[from.index()][to.index()],
                    before[original(from)][original(to)],
                    "{} to {}", original(from), original(to)
                );
            }
        }
        let kept = |i: usize| folded.node_indices().any(|node| original(node) == i);
        for i in graph.node_indices() {
            prop_assert!(kept(i.index()) || !graph[i].is_buffer, "no buffer is folded away");
            let of_cycle = before[i.index()][i.index()];
            let in_cycle = |j: usize| before[i.index()][j] && before[j][i.index()];
            prop_assert!(
                !of_cycle || (0..graph.node_count()).any(|j| kept(j) && in_cycle(j)),
                "something of each cycle stays"
            );
        }
    }
}

/// Runs a test where a recursion over its objects would end the stack at once.
fn on_a_small_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(1 << 17);
    thread.spawn(test).unwrap().join().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri hours")]
fn a_ring_of_a_million_objects_is_one_group() {
    on_a_small_stack(|| {
        const COUNT: u32 = 1_000_000;
        let mut snapshot = Snapshot::default();
        for i in 0..=COUNT {
            snapshot.objects.push(object(i as usize));
            snapshot.first.push(snapshot.targets.len() as u32);
            if i < COUNT {
                snapshot.targets.push((i + 1) % COUNT);
            }
            if i == 7 {
                snapshot.targets.push(COUNT);
            }
        }
        snapshot.first.push(snapshot.targets.len() as u32);
        let is_buffer: Vec<bool> = (0..=COUNT).map(|i| i == COUNT).collect();
        let groups = find_groups(&snapshot, &is_buffer);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].components[0].len(), COUNT as usize);
        assert_eq!(groups[0].buffers, [COUNT]);
        let selection = crate::graph::select(&snapshot, &groups[0], |_| 1);
        assert!(selection.nodes.contains(&7) && selection.nodes.contains(&COUNT));
        assert_eq!(selection.gaps.len(), 1);
    });
}

#[test]
fn where_everything_refers_to_everything_the_search_ends() {
    const COUNT: usize = if cfg!(miri) { 10 } else { 600 };
    let mut graph = LeakGraph::default();
    for i in 0..COUNT {
        graph.add_node(node(i, ObjectKind::List, i == 0));
    }
    for (from, to) in (0..COUNT).flat_map(|from| (0..COUNT).map(move |to| (from, to))) {
        let edge = LeakEdge::new(ReferenceName::Index(to));
        graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), edge);
    }
    let found = find_causes(&graph, &());
    assert!(!found.frees);
    if cfg!(not(miri)) {
        assert_eq!(
            found.causes.len(),
            1,
            "one visit of the graph is long already"
        );
    }
}

#[test]
fn a_long_described_ring_is_analysed() {
    on_a_small_stack(|| {
        const COUNT: usize = if cfg!(miri) { 30 } else { 10_000 };
        let mut graph = LeakGraph::default();
        for i in 0..COUNT {
            graph.add_node(node(i, ObjectKind::Instance, i == 0));
        }
        for i in 0..COUNT {
            let name = ReferenceName::Attribute("next".to_owned());
            let (from, to) = (NodeIndex::new(i), NodeIndex::new((i + 1) % COUNT));
            graph.add_edge(from, to, LeakEdge::new(name));
        }
        let graph = fold(graph);
        let found = find_causes(&graph, &());
        assert!(found.frees);
        let [cause] = &found.causes[..] else {
            panic!("{found:?}")
        };
        assert_eq!((cause.cycle.nodes.len(), cause.cuts.len()), (COUNT, 1));
    });
}
