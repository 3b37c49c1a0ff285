//! The live heap, in numbers and names.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::busy::busy;
use super::inspector::now;
use super::live::{Live, LiveBuffer};
use super::naming::Naming;
use super::purpose::KeptTensor;
use crate::analysis::live::Depth;
use crate::capture::{AllocationTraces, Place};
use crate::cpython::ObjectKind;
use crate::device::is_host;
use crate::device::{Frameworks, allocator_bytes};
use crate::diagnose::{Branches, NamedPath, NamedRoot};
use crate::graph::{
    Bridges, DominatorTree, Dominators, Ends, Gap, ShortestPaths, freed_at_once, never_freed,
};
use crate::model::heap::{
    Branch, Buffer, Category, Class, Device, Heap, KEPT_BY_TRACEBACK, SCHEMA,
};
use crate::model::redact::{NOTE, shorten};
use crate::model::report::{Extents, Location, Process, Step};
use crate::model::retention::{Path, RootKind};
use crate::model::words::without_indices;

/// So many buffers, the largest, are named; the others count where their class and device do.
const NAMED: usize = 20_000;
/// Of so many buffers, the largest, it is looked for further paths, and so many are told.
const EXPLAINED: usize = 40;
const FURTHER: usize = 4;
/// So many objects at each end of a long path are named.
const ENDS: usize = 24;

/// Measures the parts of the work.
struct Clock {
    last: Instant,
    phases: Vec<(String, f64)>,
}

impl Clock {
    fn lap(&mut self, name: &str) {
        let now = Instant::now();
        let took = now.duration_since(self.last).as_secs_f64() * 1000.0;
        self.phases.push((name.to_owned(), took));
        self.last = now;
    }
}

/// The indices of buffers, those on devices before those of the host.
fn largest_first(buffers: &[LiveBuffer]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&index| {
        let buffer = &buffers[index].buffer;
        (Reverse((!is_host(&buffer.device), buffer.bytes)), index)
    });
    order
}

impl Inspector {
    /// What memory is alive, who owns it, and what it is for.
    ///
    /// The program waits for as long as [`Heap::pause_ms`](field@Heap::pause_ms) says. No code of it runs meanwhile, and no
    /// reference to any of its objects is kept afterwards.
    ///
    /// # Errors
    /// If the inspector is at work already; what a handler of an interrupt raises.
    // Where it is inlined, the caller takes all the stack before it can ask how much there is.
    #[inline(never)]
    pub fn heap(&self, py: Python<'_>) -> PyResult<Heap> {
        let started = Instant::now();
        let mut clock = Clock {
            last: started,
            phases: Vec::new(),
        };
        let mut live = Live::take(self, py, None, Depth::Graphs)?;
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        clock.lap("graph");
        let purposes = self.purposes(&frameworks, &mut live);
        let first_peak = live.bytes();
        live.objects.forget_numbers();
        clock.lap("purposes");
        let paths = live.paths_with_loops(self);
        clock.lap("ways");
        let dominators = Dominators::new(live.graph(), &live.roots());
        let second_peak = live.bytes() + paths.bytes() + dominators.peak_bytes();
        let retained = live.retained(&dominators);
        let tree = dominators.tree();
        clock.lap("dominators");

        let (buffers, branches) = self.buffers(&live, &frameworks, &paths, &tree, &purposes);
        let classes = self.classes_of(&live, &tree, &retained);
        clock.lap("names");
        let heap = Heap {
            schema: SCHEMA,
            time: now(),
            objects: live.objects.len() as u64,
            references: live.graph().edge_count() as u64,
            unreachable: live.unreached(&paths),
            pause_ms: 0.0,
            phases: Vec::new(),
            working_bytes: first_peak.max(second_peak) as u64,
            devices: Vec::new(),
            buffers,
            classes,
            notes: self.notes_on(&live),
            process: Process::default(),
            branches,
        };
        drop(live);
        clock.lap("release");
        let pause_ms = started.elapsed().as_secs_f64() * 1000.0;
        // Functions of the frameworks may let other threads run, which may collect.
        Ok(Heap {
            pause_ms,
            phases: clock.phases,
            devices: devices(py, &heap.buffers),
            process: self.process_to_tell(py),
            ..heap
        })
    }

    /// The buffers, the largest first, and the tree of the paths to them.
    fn buffers(
        &self,
        live: &Live<'_>,
        frameworks: &Frameworks,
        paths: &ShortestPaths,
        tree: &DominatorTree<'_>,
        purposes: &FxHashMap<usize, Category>,
    ) -> (Vec<Buffer>, Vec<Branch>) {
        let dominators = tree.dominators;
        let order = largest_first(&live.buffers);
        let mut ends = paths.ends(ENDS);
        let best: Vec<Way> = order
            .iter()
            .take(NAMED)
            .map(|&index| path_to_holder(&mut ends, &live.buffers[index]))
            .collect();
        let further = further_paths(live, &mut ends, &best);
        let all: Vec<Vec<u32>> = best
            .iter()
            .chain(further.iter().flatten())
            .map(|way| way.nodes.clone())
            .collect();
        let naming = Naming::new(self, frameworks, live, &all);
        drop(all);
        let owning: Vec<Option<(u32, u32)>> = best
            .iter()
            .map(|way| self.owning_reference(live, &way.nodes, &naming))
            .collect();
        let bridges = Bridges::new(live.graph(), dominators, owning.iter().flatten().copied());
        let owners: FxHashSet<(u32, u32)> = owning.iter().flatten().copied().collect();
        let owners = owners.into_iter().filter(|it| bridges.contains(*it));
        let owners: Vec<(u32, u32)> = owners.collect();
        let freed_at_once = freed_at_once(live.graph(), dominators, owners.iter().copied());
        let held = owners.iter().map(|&(_, held)| held);
        let hidden = live.unknown_to_collector();
        let never_freed = never_freed(live.graph(), dominators, held, &freed_at_once, hidden);
        let traces = AllocationTraces::new(live.py());
        let mut branches = Branches::default();
        let buffers = order
            .iter()
            .enumerate()
            .map(|(rank, &index)| {
                let known = &live.buffers[index];
                let nodes = best.get(rank).map_or(&[][..], |way| &way.nodes);
                let named = best.get(rank).map(|way| way.named(&naming));
                let named = named.unwrap_or_default();
                let path = &named.path;
                let mut row = describe(known, &naming, nodes, path);
                let keeps = |object| tree.is_above(object, known.node);
                row.alone = match owning.get(rank).copied().flatten() {
                    Some(reference) => {
                        bridges.contains(reference)
                            && keeps(reference.1)
                            && !never_freed[known.node as usize]
                    }
                    None => nodes.first().is_some_and(|&first| keeps(first)),
                };
                let has_reference = owning.get(rank).is_some_and(Option::is_some);
                row.by_collection =
                    row.alone && has_reference && !freed_at_once[known.node as usize];
                row.branch = branches.add(&named, known.size(), keeps);
                row.also = distinct(further.get(rank).into_iter().flatten(), &naming, path);
                row.site = nodes
                    .last()
                    .and_then(|&holder| traces.place_of(&live.object(holder)?))
                    .map(|place| self.shown_location(place));
                row.category = purposes.get(&index).copied().unwrap_or(category(known));
                row
            })
            .collect();
        (buffers, branches.into_vec())
    }

    /// The reference on a path that has a name first: that of a module's variable, or of a local one. Deleting a variable
    /// that inner functions have too empties the cell that all of them share.
    fn owning_reference(
        &self,
        live: &Live<'_>,
        nodes: &[u32],
        naming: &Naming<'_, '_>,
    ) -> Option<(u32, u32)> {
        let is_cell = |node: u32| {
            let object = live.object(node);
            object.is_some_and(|it| self.kind(&it) == ObjectKind::Cell)
        };
        match (naming.root(nodes), nodes) {
            // module, its dictionary, what that holds
            (NamedRoot::Module(_) | NamedRoot::Library(_), &[_, names, owner, ..]) => {
                Some((names, owner))
            }
            (NamedRoot::Local { .. }, &[_, cell, owner, ..]) if is_cell(cell) => {
                Some((cell, owner))
            }
            (NamedRoot::Local { .. }, &[frame, owner, ..]) => Some((frame, owner)),
            _ => None,
        }
    }

    fn notes_on(&self, live: &Live<'_>) -> Vec<String> {
        let mut notes = live.notes.clone();
        if live.buffers.len() > NAMED {
            notes.push(format!(
                "Only the {NAMED} largest of {} buffers have a path.",
                live.buffers.len()
            ));
        }
        if self.redacts() {
            notes.push(NOTE.to_owned());
        }
        notes
    }

    /// A place as reports may have it.
    fn shown_location(&self, mut place: Place) -> Location {
        if self.redacts() {
            shorten(&mut place.file);
        }
        Location::from(&place)
    }

    /// What the buffers of modules, optimizers and leaves are for, by index. From now on a parameter is its module's,
    /// though a path through an optimizer, a list of parameters or a graph is shorter.
    fn purposes(&self, frameworks: &Frameworks, live: &mut Live<'_>) -> FxHashMap<usize, Category> {
        let mut purposes = FxHashMap::default();
        let (kept, optimizers) = self.kept_by_modules_and_optimizers(frameworks, live);
        live.late.extend(optimizers);
        live.late.extend(&live.functions);
        for KeptTensor {
            node,
            part,
            of_module,
        } in kept
        {
            let category = part.category();
            let memory = live.memory_of(node);
            if let Some(names) = of_module {
                live.holders_first.entry(node).or_default().push(names);
            }
            if let (Some(index), Some(_)) = (memory, of_module) {
                let memory = live.buffers[index].node;
                live.holders_first.entry(memory).or_default().push(node);
            }
            if let Some(index) = memory {
                let known = purposes.entry(index).or_insert(category);
                *known = category.min(*known);
            }
        }
        for (index, buffer) in live.buffers.iter().enumerate() {
            if buffer.is_gradient && purposes.get(&index) != Some(&Category::Parameter) {
                purposes.insert(index, Category::Gradient);
            }
        }
        purposes
    }

    /// What the objects of each class retain. Of nested objects of one class the outermost counts.
    fn classes_of(
        &self,
        live: &Live<'_>,
        tree: &DominatorTree<'_>,
        retained: &FxHashMap<u32, [u64; 2]>,
    ) -> Vec<Class> {
        let mut all: Vec<(u32, [u64; 2])> = retained.iter().map(|(&n, &sums)| (n, sums)).collect();
        all.sort_by_cached_key(|&(node, _)| (tree.depth(node), node));
        // By class: its row, and where each of its outermost objects begins and ends in the tree.
        let mut by_type: FxHashMap<usize, (Class, BTreeMap<u32, u32>)> = FxHashMap::default();
        for (node, [device, host]) in all {
            let Some(object) = live.object(node) else {
                continue;
            };
            let class = object.get_type().as_ptr() as usize;
            let (row, outermost) = by_type.entry(class).or_insert_with(|| {
                let name = self.type_name(&object);
                (
                    Class {
                        name,
                        ..Class::default()
                    },
                    BTreeMap::new(),
                )
            });
            row.objects += 1;
            let places = tree.places(node);
            let before = outermost.range(..=places.start).next_back();
            if before.is_none_or(|(_, &end)| end <= places.start) {
                outermost.insert(places.start, places.end);
                row.device_bytes += device;
                row.host_bytes += host;
            }
        }
        let mut classes: Vec<Class> = by_type.into_values().map(|(row, _)| row).collect();
        classes.sort_by(|a, b| {
            let rank = |class: &Class| std::cmp::Reverse((class.device_bytes, class.host_bytes));
            (rank(a), &a.name).cmp(&(rank(b), &b.name))
        });
        classes
    }
}

/// A path, or its ends.
#[derive(Clone, PartialEq)]
struct Way {
    nodes: Vec<u32>,
    gap: Option<Gap>,
}

impl Way {
    fn named(&self, naming: &Naming<'_, '_>) -> NamedPath {
        match self.nodes.as_slice() {
            [] => NamedPath::default(),
            nodes => naming.path_without(nodes, self.gap, &naming.root(nodes)),
        }
    }

    fn length(&self) -> u64 {
        self.nodes.len() as u64 + self.gap.map_or(0, |gap| gap.omitted)
    }
}

impl Live<'_> {
    /// Bytes on devices and on the host, of those nodes that retain any.
    fn retained(&self, dominators: &Dominators) -> FxHashMap<u32, [u64; 2]> {
        let sizes: Vec<(u32, [u64; 2])> = self
            .buffers
            .iter()
            .map(|known| (known.node, known.size()))
            .collect();
        dominators.retained(&sizes)
    }

    /// The index of the memory that a node holds.
    pub(super) fn memory_of(&self, node: u32) -> Option<usize> {
        self.graph()
            .targets(node)
            .iter()
            .find_map(|&target| self.memory_index(target))
    }

    fn unreached(&self, paths: &ShortestPaths) -> u64 {
        (0..self.objects.len() as u32)
            .filter(|&node| !paths.reaches(node))
            .count() as u64
    }
}

impl LiveBuffer {
    /// Its bytes on devices and on the host.
    fn size(&self) -> [u64; 2] {
        let bytes = self.buffer.bytes;
        match is_host(&self.buffer.device) {
            true => [0, bytes],
            false => [bytes, 0],
        }
    }
}

/// Of the largest buffers, the paths through other objects that refer to their holder, each the shortest
/// to that object. One pass over all references.
fn further_paths(live: &Live<'_>, ends: &mut Ends<'_>, best: &[Way]) -> Vec<Vec<Way>> {
    let best = &best[..best.len().min(EXPLAINED)];
    let ranks: FxHashMap<u32, usize> = best
        .iter()
        .enumerate()
        .filter_map(|(rank, way)| Some((*way.nodes.last()?, rank)))
        .collect();
    let mut further = vec![Vec::new(); best.len()];
    let graph = live.graph();
    for from in 0..graph.node_count() as u32 {
        for to in graph.targets(from) {
            let Some(&rank) = ranks.get(to) else { continue };
            let is_next = best[rank].nodes.iter().rev().nth(1) == Some(&from);
            let found: &mut Vec<Way> = &mut further[rank];
            if is_next || found.len() >= 2 * FURTHER {
                continue;
            }
            let (mut nodes, gap) = ends.path_to(from);
            let passes = nodes.contains(to) || gap.is_some() && ends.passes(from, *to);
            if !nodes.is_empty() && !passes && !live.objects.is_type_reference(from, *to) {
                nodes.push(*to);
                found.push(Way { nodes, gap });
            }
        }
    }
    for found in &mut further {
        found.sort_by_key(Way::length);
    }
    further
}

/// The paths in words, without those that are like another but for an index.
fn distinct<'p>(
    paths: impl Iterator<Item = &'p Way>,
    naming: &Naming<'_, '_>,
    best: &Path,
) -> Vec<String> {
    let mut seen = FxHashSet::from_iter([without_indices(&best.words)]);
    paths
        .map(|way| way.named(naming).path.words)
        .filter(|words| seen.insert(without_indices(words)))
        .take(FURTHER)
        .collect()
}

/// The path to the object that holds a buffer, and comes first on the path to it.
fn path_to_holder(ends: &mut Ends<'_>, buffer: &LiveBuffer) -> Way {
    let (mut nodes, gap) = ends.path_to(buffer.node);
    nodes.pop();
    if nodes.is_empty() {
        nodes.push(buffer.holder);
    }
    Way { nodes, gap }
}

fn describe(known: &LiveBuffer, naming: &Naming<'_, '_>, nodes: &[u32], path: &Path) -> Buffer {
    let holder = path.steps.last().map(|step: &Step| step.type_name.clone());
    let module = match naming.root(nodes) {
        NamedRoot::Module(name) => name,
        NamedRoot::Local {
            place: Some(place), ..
        } => {
            let name = place.file.rsplit(['/', '\\']).next();
            name.unwrap_or_default().to_owned()
        }
        _ => String::new(),
    };
    let buffer = &known.buffer;
    Buffer {
        bytes: buffer.bytes,
        device: buffer.device.clone(),
        dtype: buffer.dtype.clone(),
        shape: buffer.shape.clone().map(Extents),
        pointer: buffer.pointer,
        type_name: holder.unwrap_or_default(),
        holders: known.holders.max(1),
        owner: if path.words.is_empty() {
            "(not named)".to_owned()
        } else {
            path.words.clone()
        },
        first_owner: first_owner(path),
        module,
        alone: false,
        by_collection: false,
        site: None,
        category: Category::Other,
        branch: 0,
        also: Vec::new(),
    }
}

/// The root and the first thing with a name, in the same words whether memory is its own or lies behind it.
fn first_owner(path: &Path) -> String {
    let parts: Vec<&str> = path.words.split(" → ").collect();
    let named = match path.root {
        RootKind::Local => 1,
        _ => 2,
    };
    let owner = parts[..named.min(parts.len())].join(" → ");
    // Of a variable that is what the memory is held by, what that is has a part of its own.
    let is_last = parts.len() == named + 1 && !owner.contains(KEPT_BY_TRACEBACK);
    match parts.last() {
        Some(noun) if path.root.is_named() && is_last && !noun.is_empty() => {
            format!("{owner} ({noun})")
        }
        _ => owner,
    }
}

fn category(known: &LiveBuffer) -> Category {
    match (known.is_saved, known.is_leaf && !known.is_result) {
        (true, true) => Category::Input,
        (true, false) => Category::Activation,
        _ => Category::Other,
    }
}

/// What is visible on each device beside the allocator's own numbers.
fn devices(py: Python<'_>, buffers: &[Buffer]) -> Vec<Device> {
    let names: FxHashSet<&str> = buffers
        .iter()
        .map(|buffer| buffer.device.as_str())
        .collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| {
            let on_it = buffers.iter().filter(|buffer| buffer.device == name);
            let bytes = allocator_bytes(py, name);
            Device {
                name: name.to_owned(),
                visible: on_it.map(|buffer| buffer.bytes).sum(),
                allocated: bytes.map(|(allocated, _)| allocated),
                reserved: bytes.map(|(_, reserved)| reserved),
            }
        })
        .collect()
}
