//! The leaks in garbage: its cycles that hold a buffer, each described, diagnosed and counted.

use std::cell::OnceCell;
use std::rc::Rc;

use petgraph::graph::NodeIndex;
use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::assemble::Described;
use super::behind::Search;
use super::busy::busy;
use super::found::{Behind, Detail, Found, Held, Occurrence, say_shared};
use super::leaks::{Leaking, Leaks, Shaped, add_alike, are_distinct};
use super::room::{MANY, ROOM_FOR_BUFFER, ask_for_room};
use crate::capture::{
    AllocationTraces, ClassSource, ReferenceName, Snapshot, capture, describe, name_references,
    shape_of,
};
use crate::cpython::instances::instance_dict;
use crate::device::{DeviceBuffer, DeviceSelection, Frameworks};
use crate::diagnose::Diagnosis;
use crate::graph::{
    Group, LeakEdge, LeakGraph, LeakNode, Selection, find_groups, fold, frees_group, hide_values,
    select,
};
use crate::model::report::{Buffer, Extents};

/// Of groups that look alike, so many are described one by one; the rest are counted as the first.
const DESCRIBED_ALIKE: usize = 16;
/// Of the objects that are not described, so many types are named.
const OMITTED_TYPES: usize = 6;
/// Of the references from one object to another, such as a list that has it a million times, so many are
/// shown. A cut counts for all of them: it is proven for the two objects.
const PARALLEL: usize = 64;
/// In cycles of up to so many objects, dictionaries of instances are told from others.
const DATED: usize = 1000;

/// What is known of garbage that is being examined.
struct Looked<'a> {
    snapshot: &'a Snapshot,
    buffers: &'a [Vec<DeviceBuffer>],
    frameworks: &'a Frameworks,
    /// How many references to the object at an address are ours.
    own: &'a dyn Fn(usize) -> i64,
    behind: Search<'a>,
    detail: Detail<'a>,
}

/// The storages that an occurrence of a leak holds.
#[derive(Default)]
struct Storages {
    /// Those that the description of the leak has.
    described: FxHashMap<Extent, Buffer>,
    place: FxHashMap<Extent, usize>,
    held: Vec<Held>,
    /// The addresses of the tensors, arrays and other objects that hold them.
    holders: FxHashSet<usize>,
}

/// Device, pointer and bytes.
type Extent = (String, u64, u64);

fn extent(device: &str, pointer: u64, bytes: u64) -> Extent {
    (device.to_owned(), pointer, bytes)
}

impl Looked<'_> {
    fn buffers(&self, object: u32) -> &[DeviceBuffer] {
        let held = self.buffers.get(object as usize);
        held.map(Vec::as_slice).unwrap_or_default()
    }
}

impl Inspector {
    /// Finds and diagnoses the leaks in garbage.
    ///
    /// `own_references` is how many references to each object are not the garbage's own. Groups of cycles that are not
    /// described are counted as what they are like; also returns how many were left out.
    pub(crate) fn examine(
        &self,
        py: Python<'_>,
        garbage: &[*mut ffi::PyObject],
        own_references: i64,
        devices: &DeviceSelection,
        detail: Detail<'_>,
        behind: Behind,
    ) -> PyResult<(Vec<Found>, usize)> {
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let snapshot = {
            let mut table = self.table.try_borrow_mut().map_err(|_| busy())?;
            // SAFETY: attached; the types that are classified are alive.
            let classify = |ty| unsafe { frameworks.classify(ty) };
            // SAFETY: attached; the caller holds the garbage, which is distinct.
            unsafe {
                capture(
                    &mut table,
                    &self.builtins,
                    &classify,
                    garbage,
                    own_references,
                )
            }
        };
        let buffers = self.buffers_in(py, &snapshot, &frameworks, detail.reading, devices);
        let is_buffer: Vec<bool> = buffers.iter().map(|held| !held.is_empty()).collect();
        let count = is_buffer.iter().filter(|&&is| is).count();
        if count > MANY {
            ask_for_room(count, ROOM_FOR_BUFFER)?;
        }
        let groups = find_groups(&snapshot, &is_buffer);
        let addresses = OnceCell::new();
        let own = |address: usize| {
            let known: &FxHashSet<usize> =
                addresses.get_or_init(|| garbage.iter().map(|&object| object as usize).collect());
            if known.contains(&address) {
                own_references
            } else {
                0
            }
        };

        let looked = Looked {
            snapshot: &snapshot,
            buffers: &buffers,
            frameworks: &frameworks,
            own: &own,
            behind: Search::new(&snapshot, &frameworks, devices, behind),
            detail,
        };
        let mut leaks = Leaks::default();
        let mut left_out = 0;
        let (before, after) = groups.split_at(detail.first % groups.len().max(1));
        for group in after.iter().chain(before) {
            let Some(leaking) = self.leaks_of(py, &looked, group, &mut leaks) else {
                left_out += 1;
                continue;
            };
            for (leak, components, described) in leaking {
                let occurrence = self.occurrence(py, &looked, group, &components, described);
                if let Some(entry) = leaks.found.get_mut(leak) {
                    entry.occurrences.push(occurrence);
                }
            }
        }
        say_shared(&mut leaks.found);
        Ok((leaks.found, left_out))
    }

    /// Which leaks a group has, in which of its components, and the buffers as described: none where a group of its
    /// shape was described often enough, or if it has no shape, one that looks like it. `None` if it is left out.
    fn leaks_of(
        &self,
        py: Python<'_>,
        looked: &Looked<'_>,
        group: &Group,
        leaks: &mut Leaks,
    ) -> Option<Vec<Leaking>> {
        let prints = group.component_prints(looked.snapshot);
        let is_full = leaks.described >= looked.detail.most;
        let alike = leaks.alike.get(&group.fingerprint);
        let is_often = is_full || alike.is_some_and(|it| it.described >= DESCRIBED_ALIKE);
        // There is nothing to compare with if no group was described.
        let is_first =
            leaks.described == 0 && self.met.try_borrow().is_ok_and(|met| met.is_empty());
        let shape = (!is_first).then(|| self.shape_of(looked.snapshot, group));
        let shape = shape.flatten();
        if let Some(same) =
            shape.and_then(|shape| self.same_as(leaks, shape, is_often, &looked.detail))
        {
            return Some(same);
        }
        let alike = leaks.alike.get(&group.fingerprint);
        let like = alike.filter(|it| it.leaks.len() == 1 || are_distinct(&prints));
        if let Some(like) = like.filter(|_| is_full || is_often && shape.is_none()) {
            let within = |like: &Vec<u64>| {
                let all = 0..prints.len();
                all.filter(|&i| like.contains(&prints[i])).collect()
            };
            let like = like.leaks.iter();
            return Some(
                like.map(|(leak, like)| (*leak, within(like), Vec::new()))
                    .collect(),
            );
        }
        if is_full {
            return None;
        }
        leaks.described += 1;
        let mut leaking = Vec::new();
        let mut is_part = false;
        for leak in self.describe_group(py, looked, group) {
            is_part |= leak.omitted > 0;
            let components = leak.components_of(group);
            let buffers = leak.buffers(|object| looked.buffers(object));
            leaking.push((leaks.add(leak), components, buffers));
        }
        if is_part {
            add_alike(&mut leaking, &prints);
        }
        let like = |(leak, components, _): &(usize, Vec<usize>, _)| {
            (*leak, components.iter().map(|&i| prints[i]).collect())
        };
        let like: Vec<(usize, Vec<u64>)> = leaking.iter().map(like).collect();
        let is_known = |&(leak, _): &(usize, _)| {
            let signature = leaks.found[leak].signature();
            (looked.detail.is_known)(signature)
        };
        if let Some(shape) = shape.or_else(|| self.shape_of(looked.snapshot, group)) {
            let within = leaking.iter();
            let shaped = Shaped {
                is_known: like.iter().all(is_known),
                leaks: within
                    .map(|(leak, components, _)| (*leak, components.clone()))
                    .collect(),
            };
            if shaped.is_known
                && let Ok(mut met) = self.met.try_borrow_mut()
            {
                leaks.remember(&mut met, shape, &shaped);
            }
            leaks.shaped.insert(shape, shaped);
        }
        let alike = leaks.alike.entry(group.fingerprint).or_default();
        alike.described += 1;
        if alike.described == 1 {
            alike.leaks = like;
        }
        Some(leaking)
    }

    /// What a group of this shape leaks, if one was described, as [`Inspector::leaks_of`] says it.
    fn same_as(
        &self,
        leaks: &mut Leaks,
        shape: u64,
        is_often: bool,
        detail: &Detail<'_>,
    ) -> Option<Vec<Leaking>> {
        let same = match leaks.shaped.contains_key(&shape) {
            true => leaks.shaped.get(&shape),
            false => {
                let met = self.met.try_borrow().ok()?;
                leaks.add_met(&met, shape, detail.is_known)
            }
        };
        let same = same.filter(|same| same.is_known || is_often)?.leaks.iter();
        let same = same.map(|(leak, components)| (*leak, components.clone(), Vec::new()));
        Some(same.collect())
    }

    /// As [`shape_of`].
    fn shape_of(&self, snapshot: &Snapshot, group: &Group) -> Option<u64> {
        // SAFETY: attached, as the inspector examines garbage, whose objects are alive.
        unsafe { shape_of(&self.builtins, &self.layouts, snapshot, &group.nodes) }
    }

    /// The leaks of one group.
    fn describe_group(&self, py: Python<'_>, looked: &Looked<'_>, group: &Group) -> Vec<Described> {
        let &Looked {
            snapshot, buffers, ..
        } = looked;
        let bytes_of = |object: u32| {
            let held = looked.buffers(object).iter().map(|buffer| buffer.bytes);
            held.fold(0, u64::saturating_add)
        };
        let selection = select(snapshot, group, bytes_of);
        let mut graph = fold(self.leak_graph(py, looked, &selection));
        if self.redact.get() {
            hide_values(&mut graph);
        }
        let graph = Rc::new(graph);
        let mut diagnoses = self.diagnoses.take();
        let mut made = diagnoses.of(
            &graph,
            self.bases(py, snapshot, &graph),
            &self.code_of(py, snapshot, &graph),
            |leak| self.maker(py, snapshot, &graph, leak),
        );
        self.diagnoses.set(diagnoses);
        if selection.omitted > 0 {
            // Only a part of the group was described; the proof takes the whole.
            let is_buffer: Vec<bool> = buffers.iter().map(|held| !held.is_empty()).collect();
            let ends = |&edge| {
                let (from, to) = graph.edge_endpoints(edge)?;
                Some((graph[from].object?, graph[to].object?))
            };
            let all = made.iter().flat_map(|diagnosis| &diagnosis.cuts);
            let cuts: Option<Vec<(u32, u32)>> = all.map(ends).collect();
            let cuts_free =
                cuts.is_some_and(|cuts| frees_group(snapshot, group, &is_buffer, &cuts));
            for diagnosis in &mut made {
                Rc::make_mut(diagnosis).cuts_free = cuts_free;
            }
        }
        let traces = AllocationTraces::new(py);
        let allocated_at = |node: &LeakNode| {
            let address = snapshot.objects.get(node.object? as usize)?.address;
            traces.place_of(&self.object(py, address))
        };
        let allocations: Vec<_> = graph.node_weights().map(allocated_at).collect();
        let classes = Rc::new(self.class_sources(py, snapshot, &graph, &made));
        let omitted_types = self.omitted_types(py, snapshot, group, &selection);
        let described = made.into_iter().map(|diagnosis| Described {
            diagnosis,
            graph: Rc::clone(&graph),
            allocations: allocations.clone(),
            traced: traces.are_taken(),
            classes: Rc::clone(&classes),
            omitted: selection.omitted,
            omitted_types: omitted_types.clone(),
        });
        described.collect()
    }

    /// Where the classes of the objects are written that the leaks' cycles and cuts have, by the number of the node.
    fn class_sources(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        graph: &LeakGraph,
        leaks: &[Rc<Diagnosis>],
    ) -> Vec<Vec<ClassSource>> {
        let mut sources = vec![Vec::new(); graph.node_count()];
        let mut classes = self.classes.take();
        let ends = |&cut| {
            graph
                .edge_endpoints(cut)
                .map_or([None; 2], |(from, to)| [Some(from), Some(to)])
        };
        for leak in leaks {
            let cut = leak.cuts.iter().take(1).flat_map(ends).flatten();
            for node in leak.cycle.nodes.iter().copied().chain(cut) {
                let object = graph[node]
                    .object
                    .and_then(|it| snapshot.objects.get(it as usize));
                if let Some(object) = object.filter(|_| sources[node.index()].is_empty()) {
                    let class = self.object(py, object.address).get_type();
                    sources[node.index()] = classes.sources(&self.builtins, class.as_any());
                }
            }
        }
        self.classes.set(classes);
        sources
    }

    /// The commonest types of the group's objects that are not selected, with their numbers.
    fn omitted_types(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        group: &Group,
        selection: &Selection,
    ) -> Vec<(String, u64)> {
        if selection.omitted == 0 {
            return Vec::new();
        }
        let selected: FxHashSet<u32> = selection.nodes.iter().copied().collect();
        let mut counts: FxHashMap<usize, (u64, u32)> = FxHashMap::default();
        for &object in group.nodes.iter().filter(|node| !selected.contains(node)) {
            let ty = snapshot.objects[object as usize].type_address;
            counts.entry(ty).or_insert((0, object)).0 += 1;
        }
        let mut counts: Vec<(u64, u32)> = counts.into_values().collect();
        counts.sort_unstable_by_key(|&(count, example)| (std::cmp::Reverse(count), example));
        counts
            .into_iter()
            .take(OMITTED_TYPES)
            .map(|(count, example)| {
                let address = snapshot.objects[example as usize].address;
                (self.type_name(&self.object(py, address)), count)
            })
            .collect()
    }

    /// Describes the selected objects and names the references between them.
    fn leak_graph(&self, py: Python<'_>, looked: &Looked<'_>, selection: &Selection) -> LeakGraph {
        let &Looked {
            snapshot,
            buffers,
            frameworks,
            ..
        } = looked;
        let mut graph = LeakGraph::default();
        let mut classes = self.classes.take();
        let mut place: FxHashMap<u32, NodeIndex> = FxHashMap::default();
        for &object in &selection.nodes {
            let facts = &snapshot.objects[object as usize];
            let bound = self.object(py, facts.address);
            let node = graph.add_node(LeakNode {
                description: describe(&self.builtins, &mut classes, facts.kind, &bound),
                object: Some(object),
                is_buffer: !buffers[object as usize].is_empty(),
                is_tensor: facts.verdict != 0,
                stands_for: 0,
            });
            place.insert(object, node);
        }
        for &object in &selection.nodes {
            let facts = &snapshot.objects[object as usize];
            let mut alike: FxHashMap<u32, usize> = FxHashMap::default();
            let (targets, more): (Vec<u32>, Vec<u32>) = snapshot
                .targets(object as usize)
                .iter()
                .copied()
                .filter(|target| place.contains_key(target))
                .partition(|&target| {
                    let count = alike.entry(target).or_default();
                    *count += 1;
                    *count <= PARALLEL
                });
            if !more.is_empty() {
                let detail = ("references left out".to_owned(), more.len().to_string());
                graph[place[&object]].description.details.push(detail);
            }
            let addresses: Vec<usize> = targets
                .iter()
                .map(|&i| snapshot.objects[i as usize].address)
                .collect();
            let bound = self.object(py, facts.address);
            let mut names = name_references(&self.builtins, facts.kind, &bound, &addresses);
            if facts.verdict != 0 && names.contains(&ReferenceName::Unnamed) {
                for (attribute, value) in frameworks.attributes(facts.verdict, &bound) {
                    for (name, address) in names.iter_mut().zip(&addresses) {
                        if *name == ReferenceName::Unnamed && *address == value.as_ptr() as usize {
                            *name = ReferenceName::Attribute(attribute.to_owned());
                        }
                    }
                }
            }
            for (target, name) in targets.iter().zip(names) {
                graph.add_edge(place[&object], place[target], LeakEdge::new(name));
            }
        }
        add_gaps(&mut graph, selection, &place);
        self.classes.set(classes);
        graph
    }

    /// The buffers that these components of a group hold, each storage once and watched from now on.
    fn occurrence(
        &self,
        py: Python<'_>,
        looked: &Looked<'_>,
        group: &Group,
        components: &[usize],
        described: Vec<Buffer>,
    ) -> Occurrence {
        let snapshot = looked.snapshot;
        let mut storages = Storages {
            described: described
                .into_iter()
                .map(|buffer| (extent(&buffer.device, buffer.pointer, buffer.bytes), buffer))
                .collect(),
            ..Storages::default()
        };
        let holders = group.buffers_of(snapshot, components);
        for &object in &*holders {
            let holder = self.object(py, snapshot.objects[object as usize].address);
            self.add_holder(looked, &mut storages, &holder, looked.buffers(object), None);
        }
        let behind = &looked.behind;
        for kept in behind.kept(self, py, group, components, &holders) {
            let by = Some(kept.by);
            self.add_holder(looked, &mut storages, &kept.tensor, &[kept.buffer], by);
        }
        let mut held = storages.held;
        held.sort_by_key(|held| std::cmp::Reverse(held.buffer.bytes));
        let objects = components.iter().filter_map(|&i| group.components.get(i));
        let addresses: Vec<usize> = objects
            .flatten()
            .map(|&object| snapshot.objects[object as usize].address)
            .collect();
        let prints = group.component_prints(snapshot);
        let of_leak: Vec<&u64> = components.iter().filter_map(|&i| prints.get(i)).collect();
        let alike = of_leak
            .iter()
            .filter(|print| Some(*print) == of_leak.first());
        Occurrence {
            own_dicts: self.own_dicts(py, &addresses),
            addresses,
            cycles: alike.count().max(1) as u64,
            epoch: None,
            buffers: held,
        }
    }

    /// Those objects that are the dictionary of another of them; of large cycles none.
    fn own_dicts(&self, py: Python<'_>, addresses: &[usize]) -> FxHashSet<usize> {
        if addresses.len() > DATED {
            return FxHashSet::default();
        }
        let dict_of =
            |&address: &usize| instance_dict(&self.builtins.instances, &self.object(py, address));
        addresses.iter().filter_map(dict_of).collect()
    }

    /// Adds an object that holds buffers, and their storages unless they are known.
    fn add_holder(
        &self,
        looked: &Looked<'_>,
        storages: &mut Storages,
        holder: &Bound<'_, PyAny>,
        buffers: &[DeviceBuffer],
        kept_by: Option<&str>,
    ) {
        if !storages.holders.insert(holder.as_ptr() as usize) {
            return;
        }
        let frameworks = looked.frameworks;
        let verdict = frameworks.verdict_of(holder);
        let has_grad_fn = frameworks.has_grad_fn(verdict, holder);
        for buffer in buffers {
            let watch = || frameworks.watch_storage(verdict, holder, buffer.pointer, looked.own);
            let storage = extent(&buffer.device, buffer.pointer, buffer.bytes);
            if let Some(&index) = storages.place.get(&storage) {
                let known = &mut storages.held[index];
                known.buffer.has_grad_fn |= has_grad_fn;
                known.buffer.holders += 1;
                known.watch.join(watch);
                continue;
            }
            let described = storages.described.remove(&storage);
            storages.place.insert(storage, storages.held.len());
            let row = described.unwrap_or_else(|| self.row(holder, buffer));
            storages.held.push(Held {
                buffer: Buffer {
                    has_grad_fn,
                    holders: 1,
                    kept_by: kept_by.map(str::to_owned),
                    ..row
                },
                watch: watch(),
                went_early: false,
                is_placed: buffer.is_placed,
            });
        }
    }

    /// Takes note of what finalizers have freed and saved of what was found, when all have run and nothing else is
    /// freed yet.
    pub(crate) fn note_finalized(&self, py: Python<'_>, found: &mut [Found]) {
        let Ok(frameworks) = self.frameworks.try_borrow() else {
            return;
        };
        let occurrences = found.iter_mut().flat_map(|entry| &mut entry.occurrences);
        for held in occurrences.flat_map(|occurrence| &mut occurrence.buffers) {
            let pointer = held.buffer.pointer;
            held.went_early = frameworks.is_gone_after_finalizers(py, pointer, &mut held.watch);
        }
    }

    /// A buffer that the description of a leak does not have.
    fn row(&self, holder: &Bound<'_, PyAny>, buffer: &DeviceBuffer) -> Buffer {
        Buffer {
            node: None,
            type_name: self.type_name(holder),
            pointer: buffer.pointer,
            bytes: buffer.bytes,
            device: buffer.device.clone(),
            dtype: buffer.dtype.clone(),
            shape: buffer.shape.clone().map(Extents),
            confirmed: buffer.confirmed,
            from_step: 0,
            path: Vec::new(),
            path_nodes: Vec::new(),
            allocated_at: None,
            allocation: Vec::new(),
            has_grad_fn: false,
            holders: 1,
            kept_by: None,
            lent: buffer.is_lent,
        }
    }
}

/// Adds what stands for the objects that are left out of a long cycle or path.
fn add_gaps(graph: &mut LeakGraph, selection: &Selection, place: &FxHashMap<u32, NodeIndex>) {
    for (before, after, omitted) in &selection.gaps {
        if let (Some(&before), Some(&after)) = (place.get(before), place.get(after)) {
            let gap = graph.add_node(LeakNode::gap(*omitted));
            for (from, to) in [(before, gap), (gap, after)] {
                let name = ReferenceName::Omitted;
                graph.add_edge(from, to, LeakEdge::new(name));
            }
        }
    }
}
