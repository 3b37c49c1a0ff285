//! From a diagnosis to a [`Leak`] of the model.

use std::rc::Rc;

use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};
use rustc_hash::FxHashSet;

use crate::capture::{ClassSource, Place};
use crate::cpython::ObjectKind;
use crate::device::DeviceBuffer;
use crate::diagnose::Diagnosis;
use crate::graph;
use crate::graph::{Cycle, Group, LeakGraph, LeakNode};
use crate::model::report::{
    Advice, BUFFER_LIMIT, Buffer, Cut, Edge, EdgeRole, Extents, Graph, Hop, Leak, Location, Node,
    NodeKind, Origin, Step,
};

/// Maximum number of steps listed per cycle, half from each end.
const STEP_LIMIT: usize = 40;
/// Maximum number of references of a graph that is drawn whole. Where everything refers to everything, nobody reads it.
const EDGE_LIMIT: usize = 5000;
/// Of a graph with more, the number of references to each object that are drawn, beside those of the leak's cycles and
/// paths.
const OTHERS_DRAWN: u64 = 2;

/// A leak that was analysed but not yet rendered: most are known already and only counted.
#[derive(Clone)]
pub struct Described {
    pub graph: Rc<LeakGraph>,
    pub diagnosis: Rc<Diagnosis>,
    /// The line that allocated each object of the graph, if known.
    pub allocations: Vec<Option<Place>>,
    /// True if allocations are traced.
    pub traced: bool,
    /// Where the classes of the objects of the cycle and of the first cut are written, by the number of the node.
    pub classes: Rc<Vec<Vec<ClassSource>>>,
    /// Number of objects of the group that are not in the graph.
    pub omitted: u64,
    /// The most common types of these, with their numbers.
    pub omitted_types: Vec<(String, u64)>,
}

impl Described {
    /// The buffers on the paths from the cycle, each storage once.
    ///
    /// `buffer_of` gives the buffer that an object of the graph holds, by its index in the snapshot.
    pub fn buffers<'a>(&self, buffers_of: impl Fn(u32) -> &'a [DeviceBuffer]) -> Vec<Buffer> {
        let graph = &self.graph;
        let paths = self.diagnosis.paths.iter();
        let held = paths.flat_map(|path| {
            let buffers = graph[path.buffer].object.map(&buffers_of);
            let buffers = buffers.unwrap_or_default().iter();
            buffers.map(move |buffer| (path, buffer))
        });
        let mut buffers: Vec<Buffer> = held
            .map(|(path, buffer)| Buffer {
                node: Some(path.buffer.index() as u32),
                type_name: graph[path.buffer].description.type_name.clone(),
                pointer: buffer.pointer,
                bytes: buffer.bytes,
                device: buffer.device.clone(),
                dtype: buffer.dtype.clone(),
                shape: buffer.shape.clone().map(Extents),
                confirmed: buffer.confirmed,
                from_step: path.from_step as u32,
                path: path
                    .edges
                    .iter()
                    .map(|&edge| graph[edge].name.to_string())
                    .collect(),
                path_nodes: path
                    .edges
                    .iter()
                    .filter_map(|&edge| Some(graph.edge_endpoints(edge)?.1.index() as u32))
                    .collect(),
                allocated_at: self.allocated_at(path.buffer),
                allocation: Vec::new(),
                has_grad_fn: false,
                holders: 1,
                kept_by: None,
                lent: buffer.is_lent,
            })
            .collect();
        distinct_largest_first(&mut buffers);
        buffers
    }

    /// The components of its group that the leak is in: those of the shown cycle and of the cuts.
    pub fn components_of(&self, group: &Group) -> Vec<usize> {
        let sources = self.diagnosis.cuts.iter();
        let sources = sources.filter_map(|&edge| Some(self.graph.edge_endpoints(edge)?.0));
        let nodes = self.diagnosis.cycle.nodes.iter().copied().chain(sources);
        let objects: Vec<u32> = nodes.filter_map(|node| self.graph[node].object).collect();
        let all = group.components.iter().enumerate();
        let within = all.filter(|(_, component)| {
            objects
                .iter()
                .any(|object| component.binary_search(object).is_ok())
        });
        within.map(|(number, _)| number).collect()
    }

    /// The leak as the model has it, with these buffers, whose steps are still those of the whole cycle.
    /// It has no counts.
    pub fn into_leak(self, mut buffers: Vec<Buffer>) -> Leak {
        let (graph, diagnosis) = (&self.graph, &*self.diagnosis);
        let cycle = &diagnosis.cycle;
        let mut steps: Vec<Step> = cycle
            .nodes
            .iter()
            .zip(&cycle.edges)
            .map(|(&node, &edge)| {
                let object = &graph[node];
                Step {
                    node: Some(node.index() as u32),
                    type_name: object.description.type_name.clone(),
                    label: object.description.label.clone(),
                    location: place(object).map(Location::from),
                    edge: graph[edge].name.to_string(),
                    allocated_at: self.allocated_at(node),
                }
            })
            .collect();
        let cycle_omitted = leave_out_middle(graph, &mut steps);
        for buffer in &mut buffers {
            let start = cycle
                .nodes
                .get(buffer.from_step as usize)
                .map(|node| node.index() as u32);
            let step = steps.iter().position(|step| step.node == start);
            buffer.from_step = step.unwrap_or(0) as u32;
        }
        let bytes_held = buffers.iter().map(|buffer| buffer.bytes).sum();
        let buffers_omitted = buffers.len().saturating_sub(BUFFER_LIMIT) as u64;
        buffers.truncate(BUFFER_LIMIT);

        let cuts: Vec<Cut> = diagnosis
            .cuts
            .iter()
            .filter_map(|&edge| {
                let (from, to) = graph.edge_endpoints(edge)?;
                Some(Cut {
                    owner: graph[from].description.label.clone(),
                    edge: graph[edge].name.to_string(),
                    location: cut_place(graph, cycle, from, to).map(Location::from),
                    in_class: None,
                    candidates: Vec::new(),
                    proven: diagnosis.cuts_free,
                    source: from.index() as u32,
                    target: to.index() as u32,
                })
            })
            .collect();

        Leak {
            signature: diagnosis.signature.clone(),
            outline: diagnosis.outline.clone(),
            pattern: diagnosis.pattern.map(str::to_owned),
            summary: summary(&steps, cycle_omitted),
            count: 0,
            frozen: 0,
            bytes_held,
            bytes_freed: None,
            objects: 0,
            cycle: steps,
            cycle_omitted,
            advice: Advice {
                text: diagnosis.advice.text.clone(),
                before: diagnosis.advice.before.clone(),
                after: diagnosis.advice.after.clone(),
            },
            graph: self.drawing(&buffers),
            buffers,
            buffers_omitted,
            cuts,
            shared: Vec::new(),
            made_by: diagnosis.maker.as_ref().map(|it| Location::from(&it.place)),
            stores_given: diagnosis.maker.as_ref().is_some_and(|it| it.stores_given),
            traced: self.traced,
            origin: self.origin(),
            source: None,
            candidate_sources: Vec::new(),
            patch: None,
            library: None,
            known: None,
            occurrences: Vec::new(),
        }
    }

    /// What is known of where the reference to remove was made.
    fn origin(&self) -> Origin {
        let (graph, cycle) = (&self.graph, &self.diagnosis.cycle);
        let classes = |node: NodeIndex| self.classes.get(node.index()).cloned().unwrap_or_default();
        let cut = self.diagnosis.cuts.first();
        let ends = cut.and_then(|&cut| graph.edge_endpoints(cut));
        let into = ends.and_then(|(from, _)| {
            let at = cycle.nodes.iter().position(|&node| node == from)?;
            let before = (at + cycle.nodes.len() - 1) % cycle.nodes.len();
            Some((cycle.nodes[before], cycle.edges[before]))
        });
        let mut files = Vec::new();
        for node in cycle
            .nodes
            .iter()
            .copied()
            .chain(ends.into_iter().flat_map(|(from, to)| [from, to]))
        {
            let of_classes = classes(node).into_iter().filter_map(|class| class.file);
            let code = place(&graph[node]).map(|place| place.file.clone());
            let allocated = self.allocated_at(node).map(|place| place.file);
            files.extend(of_classes.chain(code).chain(allocated));
        }
        files.sort_unstable();
        files.dedup();
        Origin {
            owner: ends.map_or_else(Vec::new, |(from, _)| classes(from)),
            refuses_assignment: ends.is_some_and(|(from, _)| {
                let owner = &graph[from].description;
                owner.frozen || owner.own_setattr
            }),
            target: ends.map_or_else(Vec::new, |(_, to)| classes(to)),
            keeper: into.map_or_else(Vec::new, |(node, _)| classes(node)),
            kept_as: into.map(|(_, edge)| graph[edge].name.to_string()),
            files,
        }
    }

    fn allocated_at(&self, node: NodeIndex) -> Option<Location> {
        let place = self.allocations.get(node.index())?;
        place.as_ref().map(Location::from)
    }

    fn drawing(&self, buffers: &[Buffer]) -> Graph {
        let Self {
            graph, diagnosis, ..
        } = self;
        let cycle_nodes = members_of_cycles(graph);
        let nodes = graph
            .node_indices()
            .map(|index| {
                let node = &graph[index];
                let buffer = buffers
                    .iter()
                    .position(|buffer| buffer.node == Some(index.index() as u32));
                let allocated_at = self.allocated_at(index);
                let allocated_at =
                    allocated_at.map(|at| ("allocated at".to_owned(), at.to_string()));
                Node {
                    kind: if node.is_buffer {
                        NodeKind::Buffer
                    } else {
                        kind(node.description.kind)
                    },
                    type_name: node.description.type_name.clone(),
                    label: node.description.label.clone(),
                    location: place(node).map(Location::from),
                    buffer: buffer.map(|i| i as u32),
                    in_cycle: cycle_nodes[index.index()],
                    details: node
                        .description
                        .details
                        .iter()
                        .cloned()
                        .chain(allocated_at)
                        .collect(),
                }
            })
            .collect();
        let paths = diagnosis.paths.iter().flat_map(|path| &path.edges);
        let on_paths: FxHashSet<EdgeIndex> = paths.copied().collect();
        let on_cycle: FxHashSet<EdgeIndex> = diagnosis.cycle.edges.iter().copied().collect();
        let cuts: FxHashSet<EdgeIndex> = diagnosis.cuts.iter().copied().collect();
        let mut drawn_to = vec![0; graph.node_count()];
        let edges: Vec<Edge> = graph
            .edge_references()
            .filter_map(|edge| {
                let id = edge.id();
                let role = if cuts.contains(&id) {
                    EdgeRole::Cut
                } else if on_cycle.contains(&id) {
                    EdgeRole::Cycle
                } else if on_paths.contains(&id) {
                    EdgeRole::Path
                } else {
                    EdgeRole::Other
                };
                let others = &mut drawn_to[edge.target().index()];
                *others += u64::from(role == EdgeRole::Other);
                if role == EdgeRole::Other
                    && graph.edge_count() > EDGE_LIMIT
                    && *others > OTHERS_DRAWN
                {
                    return None;
                }
                Some(Edge {
                    from: edge.source().index() as u32,
                    to: edge.target().index() as u32,
                    name: edge.weight().name.to_string(),
                    role,
                    through: edge.weight().through.iter().filter_map(hop).collect(),
                })
            })
            .collect();
        Graph {
            references_omitted: (graph.edge_count() - edges.len()) as u64,
            nodes,
            edges,
            omitted: self.omitted,
            omitted_types: self.omitted_types.clone(),
        }
    }
}

/// Of a long cycle, or one with a stretch left out already, keeps equally many steps from either end;
/// returns how many objects are left out.
fn leave_out_middle(graph: &LeakGraph, steps: &mut Vec<Step>) -> u64 {
    let node = |step: &Step| graph.node_weight(NodeIndex::new(step.node? as usize));
    let stands_for = |step: &Step| node(step).map_or(0, |node| node.stands_for);
    let gap = steps.iter().position(|step| stands_for(step) > 0);
    let (before, after) = match gap {
        Some(gap) => (gap, steps.len() - gap - 1),
        None if steps.len() > STEP_LIMIT => (steps.len() / 2, steps.len() / 2),
        None => return 0,
    };
    let kept = before.min(after).min(STEP_LIMIT / 2);
    let middle = kept..steps.len() - kept;
    steps
        .drain(middle)
        .map(|step| stands_for(&step).max(1))
        .sum()
}

/// Keeps one entry for each storage, the one with the shortest path, and sorts by size.
pub fn distinct_largest_first(buffers: &mut Vec<Buffer>) {
    buffers.sort_by(|a, b| {
        (&a.device, a.pointer, a.path.len()).cmp(&(&b.device, b.pointer, b.path.len()))
    });
    buffers.dedup_by(|a, b| {
        let is_same = a.device == b.device && a.pointer == b.pointer;
        if is_same {
            b.holders += a.holders;
        }
        is_same
    });
    // Of equal size those first of which it is known what leads to them, in the order of the drawing, which an address
    // would change from run to run.
    buffers.sort_by(|a, b| {
        let place = |buffer: &Buffer| {
            let bytes = std::cmp::Reverse(buffer.bytes);
            let is_unknown = buffer.node.is_none();
            (
                bytes,
                buffer.kept_by.is_some(),
                is_unknown,
                buffer.from_step,
            )
        };
        (place(a), &a.path).cmp(&(place(b), &b.path))
    });
}

/// `Model._callback → <lambda> closure variable 'self' → Model`.
fn summary(steps: &[Step], omitted: u64) -> String {
    let shown = if omitted > 0 { 3 } else { 6 };
    let mut parts: Vec<String> = steps
        .iter()
        .take(shown)
        .map(|step| {
            let name = short(&step.label);
            match step.edge.starts_with(['.', '[']) {
                true => format!("{name}{}", step.edge),
                false => format!("{name} {}", step.edge),
            }
        })
        .collect();
    let left_out = omitted + steps.len().saturating_sub(shown) as u64;
    if left_out > 0 {
        parts.push(format!("… {left_out} more …"));
    }
    parts.extend(steps.first().map(|step| short(&step.label).to_owned()));
    parts.join(" → ")
}

/// The last part of a qualified name.
fn short(label: &str) -> &str {
    label.rsplit('.').next().unwrap_or(label)
}

/// Where to make the cut: the program's own code at either end of the reference before a library's,
/// a function before a class. Where both ends are a library's, the program's own code that the cycle
/// comes to next: what it gave to the library.
fn cut_place<'a>(
    graph: &'a LeakGraph,
    cycle: &Cycle,
    from: NodeIndex,
    to: NodeIndex,
) -> Option<&'a Place> {
    let rank = |node: &&LeakNode| {
        let code = matches!(
            node.description.kind,
            ObjectKind::Function
                | ObjectKind::Frame
                | ObjectKind::Generator
                | ObjectKind::Coroutine
                | ObjectKind::AsyncGenerator
        );
        (node.is_library(), !code)
    };
    // The class of an object did not store it where it is kept.
    let is_only_kept =
        |node: NodeIndex| node == to && graph[node].description.kind == ObjectKind::Instance;
    let here = [from, to]
        .into_iter()
        .filter(|&node| !is_only_kept(node))
        .map(|node| &graph[node])
        .filter(|node| place(node).is_some())
        .min_by_key(rank);
    let is_known = here.is_some_and(|node| !node.is_library());
    let after = cycle.nodes.iter().position(|&node| node == from);
    let after = after.filter(|at| cycle.nodes[(at + 1) % cycle.nodes.len()] == to);
    let next = after
        .filter(|_| here.is_some() && !is_known)
        .and_then(|start| {
            let following = cycle.nodes.iter().cycle().skip(start + 1);
            following
                .take(cycle.nodes.len())
                .filter(|&&node| !is_only_kept(node))
                .map(|&node| &graph[node])
                .find(|node| place(node).is_some() && !node.is_library())
        });
    next.or(here).and_then(place)
}

/// Where an object's code is; for a tensor, whose class is the framework's, nowhere.
fn place(node: &LeakNode) -> Option<&Place> {
    node.description.place.as_ref().filter(|_| !node.is_buffer)
}

fn hop(hop: &graph::Hop) -> Option<Hop> {
    Some(Hop {
        object: hop.object?,
        label: hop.label.clone(),
        into: hop.into.to_string(),
        onwards: hop.onwards.to_string(),
    })
}

fn members_of_cycles(graph: &LeakGraph) -> Vec<bool> {
    let mut member = vec![false; graph.node_count()];
    for component in petgraph::algo::kosaraju_scc(graph) {
        let cyclic = component.len() > 1
            || component
                .iter()
                .any(|&node| graph.find_edge(node, node).is_some());
        for node in component {
            member[node.index()] = cyclic;
        }
    }
    member
}

fn kind(kind: ObjectKind) -> NodeKind {
    match kind {
        ObjectKind::Instance | ObjectKind::Weakref => NodeKind::Object,
        ObjectKind::Dict
        | ObjectKind::List
        | ObjectKind::Tuple
        | ObjectKind::Set
        | ObjectKind::Deque => NodeKind::Container,
        ObjectKind::Function
        | ObjectKind::BuiltinFunction
        | ObjectKind::Method
        | ObjectKind::Partial
        | ObjectKind::Generator
        | ObjectKind::Coroutine
        | ObjectKind::AsyncGenerator => NodeKind::Function,
        ObjectKind::Frame | ObjectKind::Traceback | ObjectKind::Exception => NodeKind::Frame,
        ObjectKind::Class | ObjectKind::Module => NodeKind::Class,
        ObjectKind::Cell | ObjectKind::Descriptor | ObjectKind::Code => NodeKind::Plumbing,
    }
}
