//! The embeddable facade: looks at objects of a Python program and says which cycles among them hold
//! device memory.

mod found;
mod glance;
mod graphs;
mod growth;
mod heap;
mod holding;
mod live;
mod naming;
mod out_of_memory;
mod owned;
mod process;
mod purpose;
mod room;
mod sample;
mod unreachable;
mod why;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use petgraph::graph::NodeIndex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

pub(crate) use found::{Fate, Found, Held, Occurrence, confirm_gone, prefer};
pub(crate) use glance::in_turn;
pub use growth::{Diagnosis, GroupKind, Name};
pub use out_of_memory::Pieces;
use process::{framework_versions, process};
use room::{FEW, MANY, ROOM_FOR_BUFFER, ROOM_FOR_OBJECT, ask_for_room};
pub use sample::GradientWatch;

use crate::device::{DeviceBuffer, DeviceSelection, Frameworks, gpu_names};
use crate::diagnose::Diagnoses;
use crate::graph::{
    Group, LeakEdge, LeakGraph, LeakNode, find_groups, fold, frees_group, hide_unless_code,
    hide_values, select,
};
use crate::heap::{
    AllocationTraces, Builtins, Classes, Description, HeadLayout, Layouts, Marks, ObjectKind,
    ReferenceName, Snapshot, TypeTable, capture, class_name, describe, globals_used, module_count,
    name_references,
};
use crate::hook::GcModule;
use crate::report::assemble::Described;
use crate::report::library::say_whose;
use crate::report::model::{
    Buffer, Collection, Leak, Occurrence as SeenAt, Process, Report, SCHEMA,
};
use crate::report::occurrences;
use crate::report::redact::{redact, redact_process};

/// Of groups that look alike, so many are described one by one; the rest are counted as the first.
const DESCRIBED_ALIKE: usize = 16;
/// Where the program waits without having asked, at most so many groups of cycles are described, at up to a
/// millisecond each.
pub(crate) const DESCRIBED: usize = 64;
/// Of the objects that are not described, so many types are named.
const OMITTED_TYPES: usize = 6;
/// Of the references from one object to another, such as a list that has it a million times, so many are
/// shown. A cut counts for all of them: it is proven for the two objects.
const PARALLEL: usize = 64;

/// Reads the objects of the interpreter that it was made in.
///
/// ```no_run
/// use cyclescope::{DeviceSelection, Inspector};
/// use pyo3::prelude::*;
///
/// Python::attach(|py| -> PyResult<()> {
///     let inspector = Inspector::new(py)?;
///     let report = inspector.find(py, &DeviceSelection::Any)?;
///     println!("{}", cyclescope::report::text::trace(&report));
///     Ok(())
/// })
/// # .unwrap();
/// ```
pub struct Inspector {
    builtins: Builtins,
    layouts: Layouts,
    heads: HeadLayout,
    table: RefCell<TypeTable>,
    /// Empty, with memory for the next look.
    marks: Cell<Option<Marks>>,
    frameworks: RefCell<Frameworks>,
    classes: Cell<Classes>,
    diagnoses: Cell<Diagnoses>,
    gc: GcModule,
    /// `sys._current_frames`.
    current_frames: Py<PyAny>,
    process: Process,
    /// How many modules there were, and which of them are frameworks, of which version.
    versions: Cell<(usize, Vec<(String, String)>)>,
    redact: Cell<bool>,
}

/// What is known of garbage that is being examined.
struct Looked<'a> {
    snapshot: &'a Snapshot,
    buffers: &'a [Option<DeviceBuffer>],
    frameworks: &'a Frameworks,
    /// How many references to the object at an address are ours.
    own: &'a dyn Fn(usize) -> i64,
}

impl Inspector {
    /// # Errors
    /// If the interpreter is not a CPython that cyclescope knows.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            builtins: Builtins::new(py)?,
            layouts: Layouts::known(py),
            heads: HeadLayout::new(py),
            table: RefCell::new(TypeTable::new()),
            marks: Cell::default(),
            classes: Cell::default(),
            diagnoses: Cell::default(),
            frameworks: RefCell::new(Frameworks::new(py)?),
            gc: GcModule::new(py)?,
            current_frames: py.import("sys")?.getattr("_current_frames")?.unbind(),
            process: process(py),
            versions: Cell::default(),
            redact: Cell::new(false),
        })
    }

    /// Reports the cycles that are garbage now and hold memory on `devices`.
    ///
    /// Collects nothing, runs no finalizer and changes nothing: the garbage is found as the
    /// collector would find it, in all generations.
    ///
    /// # Errors
    /// If the inspector is at work already (on another thread), or memory runs out.
    pub fn find(&self, py: Python<'_>, devices: &DeviceSelection) -> PyResult<Report> {
        self.find_up_to(py, devices, None)
    }

    /// As [`Inspector::find`], but only what a collection of generations up to `oldest` would find;
    /// of all generations if `None`.
    ///
    /// # Errors
    /// As [`Inspector::find`].
    pub fn find_up_to(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
        oldest: Option<u32>,
    ) -> PyResult<Report> {
        let started = Instant::now();
        let (found, count) = self.look(py, devices, oldest, usize::MAX)?;
        let collection = Collection {
            trigger: "look".to_owned(),
            generation: oldest,
            garbage_objects: count as u64,
            pause_us: 0,
        };
        let mut report = self.report(py, found, collection, started);
        Self::finish(&mut report, self.redacts());
        Ok(report)
    }

    /// Leaves the program's values, and folders, out of all reports from now on: see
    /// [`crate::report::redact`].
    pub fn redact(&self) {
        self.redact.set(true);
    }

    /// True once [`Inspector::redact`] was called.
    pub fn redacts(&self) -> bool {
        self.redact.get()
    }

    /// Adds what is left to say of a report when the program does not wait: whose each leak is.
    /// Takes out what is not to be said.
    pub(crate) fn finish(report: &mut Report, redacted: bool) {
        say_whose(report);
        if redacted {
            redact(report);
        }
    }

    /// The leaks that are garbage now in generations up to `oldest` (all if `None`), and the
    /// number of unreachable objects. If these are more than `most`, there is no search for leaks.
    pub(crate) fn look(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
        oldest: Option<u32>,
        most: usize,
    ) -> PyResult<(Vec<Found>, usize)> {
        self.refresh(py);
        if !self.frameworks_known() {
            return Ok((Vec::new(), 0));
        }
        // Nobody knows which classes died since the last look.
        self.forget_classes();
        let garbage = self.unreachable_up_to(py, oldest)?;
        if garbage.len() > most {
            return Ok((Vec::new(), garbage.len()));
        }
        // Frameworks are asked about objects, and may let other threads run, which may collect.
        let _held: Vec<Bound<'_, PyAny>> = garbage
            .iter()
            .map(|&object| self.object(py, object as usize))
            .collect();
        if !self.glance(py, in_turn(&garbage), devices)?.holds_buffer {
            return Ok((Vec::new(), garbage.len()));
        }
        let described = if most == usize::MAX {
            usize::MAX
        } else {
            DESCRIBED
        };
        let (found, _) = self.examine(py, &garbage, 1, devices, described)?;
        Ok((found, garbage.len()))
    }

    /// The collector that the objects belong to.
    pub(crate) fn gc(&self) -> &GcModule {
        &self.gc
    }

    /// Forgets what was remembered of classes: one may have died.
    pub(crate) fn forget_classes(&self) {
        let mut classes = self.classes.take();
        classes.forget();
        self.classes.set(classes);
    }

    /// Whether there is memory for an examination of so many objects.
    ///
    /// # Errors
    /// `MemoryError` if there is not.
    pub(crate) fn ask_for_room(&self, objects: usize) -> PyResult<()> {
        if objects <= FEW {
            return Ok(());
        }
        ask_for_room(objects, ROOM_FOR_OBJECT)
    }

    /// Whether there is memory to tell of what was found.
    ///
    /// # Errors
    /// `MemoryError` if there is not.
    pub(crate) fn ask_for_report(&self) -> PyResult<()> {
        ask_for_room(0, ROOM_FOR_OBJECT)
    }

    /// Takes note of frameworks that the program has imported since the last look.
    pub(crate) fn refresh(&self, py: Python<'_>) {
        if let Ok(mut frameworks) = self.frameworks.try_borrow_mut()
            && frameworks.refresh(py)
            && let Ok(mut table) = self.table.try_borrow_mut()
        {
            table.clear();
        }
    }

    /// True if any framework that holds device memory has been imported.
    pub(crate) fn frameworks_known(&self) -> bool {
        self.frameworks
            .try_borrow()
            .is_ok_and(|frameworks| frameworks.any())
    }

    /// Finds and diagnoses the leaks in garbage.
    ///
    /// `own_references` is how many references to each object are not the garbage's own. At most `most` groups of cycles
    /// are described, and what is like them counted; also returns how many were left out.
    pub(crate) fn examine(
        &self,
        py: Python<'_>,
        garbage: &[*mut ffi::PyObject],
        own_references: i64,
        devices: &DeviceSelection,
        most: usize,
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
        let buffers: Vec<Option<DeviceBuffer>> = snapshot
            .objects
            .iter()
            .map(|object| {
                // A buffer that others hold too is not kept alive by the garbage.
                if object.verdict == 0 || (!object.in_garbage && object.outside_references > 0) {
                    return None;
                }
                frameworks.buffer(object.verdict, &self.object(py, object.address), devices)
            })
            .collect();
        let is_buffer: Vec<bool> = buffers.iter().map(Option::is_some).collect();
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

        let mut found: Vec<Found> = Vec::new();
        let mut by_signature: FxHashMap<String, usize> = FxHashMap::default();
        let mut alike: FxHashMap<u64, (usize, usize)> = FxHashMap::default();
        let (mut described_in_all, mut left_out) = (0, 0);
        for group in &groups {
            let known = alike.get(&group.fingerprint).copied();
            let (index, described) = match known {
                Some((index, described))
                    if described >= DESCRIBED_ALIKE || described_in_all >= most =>
                {
                    (index, Vec::new())
                }
                None if described_in_all >= most => {
                    left_out += 1;
                    continue;
                }
                _ => {
                    described_in_all += 1;
                    let Some(leak) =
                        self.describe_group(py, &snapshot, &buffers, &frameworks, group)
                    else {
                        continue;
                    };
                    let buffer_of = |object: u32| buffers.get(object as usize)?.as_ref();
                    let described = leak.buffers(buffer_of);
                    let same = by_signature.get(&leak.diagnosis.signature).copied();
                    let index = same.unwrap_or_else(|| {
                        by_signature.insert(leak.diagnosis.signature.clone(), found.len());
                        found.push(Found {
                            leak,
                            freed: None,
                            occurrences: Vec::new(),
                        });
                        found.len() - 1
                    });
                    let seen = known.map_or(0, |(_, described)| described);
                    alike.insert(group.fingerprint, (index, seen + 1));
                    (index, described)
                }
            };
            let looked = Looked {
                snapshot: &snapshot,
                buffers: &buffers,
                frameworks: &frameworks,
                own: &own,
            };
            let occurrence = self.occurrence(py, &looked, group, described);
            if let Some(entry) = found.get_mut(index) {
                entry.occurrences.push(occurrence);
            }
        }
        Ok((found, left_out))
    }

    /// A name of the program's as reports may have it.
    fn shown(&self, mut name: String) -> String {
        if self.redacts() {
            hide_unless_code(&mut name);
        }
        name
    }

    fn globals_used<'py>(&self, function: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        globals_used(&self.builtins, function)
    }

    fn object<'py>(&self, py: Python<'py>, address: usize) -> Bound<'py, PyAny> {
        // SAFETY: attached; called with addresses of a snapshot whose garbage is still held.
        unsafe { Bound::from_borrowed_ptr(py, address as *mut ffi::PyObject) }
    }

    /// The leak of one group.
    fn describe_group(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        buffers: &[Option<DeviceBuffer>],
        frameworks: &Frameworks,
        group: &Group,
    ) -> Option<Described> {
        let selection = select(snapshot, group);
        let mut graph = fold(self.leak_graph(py, snapshot, buffers, frameworks, &selection));
        if self.redact.get() {
            hide_values(&mut graph);
        }
        let mut diagnoses = self.diagnoses.take();
        let diagnosis = diagnoses.of(&graph);
        self.diagnoses.set(diagnoses);
        let mut diagnosis = diagnosis?;
        if selection.omitted > 0 {
            // Only a part of the group was described; the proof takes the whole.
            let is_buffer: Vec<bool> = buffers.iter().map(Option::is_some).collect();
            let ends = |&edge| {
                let (from, to) = graph.edge_endpoints(edge)?;
                Some((graph[from].object?, graph[to].object?))
            };
            let cuts: Option<Vec<(u32, u32)>> = diagnosis.cuts.iter().map(ends).collect();
            Rc::make_mut(&mut diagnosis).cuts_free =
                cuts.is_some_and(|cuts| frees_group(snapshot, group, &is_buffer, &cuts));
        }
        let traces = AllocationTraces::new(py);
        let allocated_at = |node: &LeakNode| {
            let address = snapshot.objects.get(node.object? as usize)?.address;
            traces.place_of(&self.object(py, address))
        };
        Some(Described {
            allocations: graph.node_weights().map(allocated_at).collect(),
            diagnosis,
            omitted: selection.omitted,
            omitted_types: self.omitted_types(py, snapshot, group, &selection),
            graph,
        })
    }

    /// The commonest types of the group's objects that are not selected, with their numbers.
    fn omitted_types(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        group: &Group,
        selection: &crate::graph::Selection,
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
    fn leak_graph(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        buffers: &[Option<DeviceBuffer>],
        frameworks: &Frameworks,
        selection: &crate::graph::Selection,
    ) -> LeakGraph {
        let mut graph = LeakGraph::default();
        let mut classes = self.classes.take();
        let mut place: FxHashMap<u32, NodeIndex> = FxHashMap::default();
        for &object in &selection.nodes {
            let facts = &snapshot.objects[object as usize];
            let bound = self.object(py, facts.address);
            let node = graph.add_node(LeakNode {
                description: describe(&self.builtins, &mut classes, facts.kind, &bound),
                object: Some(object),
                is_buffer: buffers[object as usize].is_some(),
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
        if let Some((before, after, omitted)) = selection.gap
            && let (Some(&before), Some(&after)) = (place.get(&before), place.get(&after))
        {
            let gap = graph.add_node(LeakNode {
                description: Description {
                    kind: ObjectKind::Instance,
                    type_name: String::new(),
                    label: format!("… {omitted} more objects …"),
                    place: None,
                    unplaced_class: None,
                    free_variables: Vec::new(),
                    default_arguments: Vec::new(),
                    weakly_referable: false,
                    details: Vec::new(),
                },
                object: None,
                is_buffer: false,
                is_tensor: false,
                stands_for: omitted,
            });
            for (from, to) in [(before, gap), (gap, after)] {
                let name = ReferenceName::Omitted;
                graph.add_edge(from, to, LeakEdge::new(name));
            }
        }
        self.classes.set(classes);
        graph
    }

    /// The buffers of one group, each storage once and watched from now on.
    fn occurrence(
        &self,
        py: Python<'_>,
        looked: &Looked<'_>,
        group: &Group,
        described: Vec<Buffer>,
    ) -> Occurrence {
        let &Looked {
            snapshot,
            buffers,
            frameworks,
            own,
        } = looked;
        let mut known: FxHashMap<(String, u64), Buffer> = described
            .into_iter()
            .map(|buffer| ((buffer.device.clone(), buffer.pointer), buffer))
            .collect();
        let mut seen: FxHashMap<(&str, u64), usize> = FxHashMap::default();
        let mut held: Vec<Held> = Vec::new();
        for &object in &group.buffers {
            let facts = &snapshot.objects[object as usize];
            let Some(buffer) = &buffers[object as usize] else {
                continue;
            };
            let holder = self.object(py, facts.address);
            let has_grad_fn = frameworks.has_grad_fn(facts.verdict, &holder);
            let storage = (buffer.device.as_str(), buffer.pointer);
            if let Some(&index) = seen.get(&storage) {
                let known = &mut held[index];
                known.buffer.has_grad_fn |= has_grad_fn;
                known
                    .watch
                    .join(|| frameworks.watch_storage(facts.verdict, &holder, own));
                continue;
            }
            seen.insert(storage, held.len());
            let mut row = known
                .remove(&(buffer.device.clone(), buffer.pointer))
                .unwrap_or_else(|| Buffer {
                    node: None,
                    type_name: self.type_name(&holder),
                    pointer: buffer.pointer,
                    bytes: buffer.bytes,
                    device: buffer.device.clone(),
                    dtype: buffer.dtype.clone(),
                    shape: buffer.shape.clone(),
                    confirmed: buffer.confirmed,
                    from_step: 0,
                    path: Vec::new(),
                    path_nodes: Vec::new(),
                    allocated_at: None,
                    allocation: Vec::new(),
                    has_grad_fn: false,
                });
            row.has_grad_fn = has_grad_fn;
            let watch = frameworks.watch_storage(facts.verdict, &holder, own);
            held.push(Held { buffer: row, watch });
        }
        held.sort_by_key(|held| std::cmp::Reverse(held.buffer.bytes));
        let addresses = group
            .components
            .iter()
            .flatten()
            .map(|&object| snapshot.objects[object as usize].address)
            .collect();
        Occurrence {
            addresses,
            buffers: held,
        }
    }

    fn type_name(&self, object: &Bound<'_, PyAny>) -> String {
        let mut name = class_name(&self.builtins, object.get_type().as_any());
        if self.redacts() {
            hide_unless_code(&mut name);
        }
        name
    }

    /// A report of what was found. Whose each leak is, is left for when the program does not wait:
    /// [`say_whose`].
    pub(crate) fn report(
        &self,
        py: Python<'_>,
        found: Vec<Found>,
        mut collection: Collection,
        started: Instant,
    ) -> Report {
        let mut leaks: Vec<Leak> = found.into_iter().map(Found::into_leak).collect();
        leaks.sort_by(|a, b| {
            b.bytes_held
                .cmp(&a.bytes_held)
                .then_with(|| a.signature.cmp(&b.signature))
        });
        collection.pause_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let time = now();
        let process = self.process_now(py);
        for leak in &mut leaks {
            leak.occurrences = vec![occurrences::of(&process, time, leak.count, leak.bytes_held)];
        }
        Report {
            schema: SCHEMA,
            tool: concat!("cyclescope ", env!("CARGO_PKG_VERSION")).to_owned(),
            time,
            process,
            collection,
            leaks,
            notes: Vec::new(),
        }
    }

    /// That a leak was seen just now.
    pub(crate) fn occurrence_of(&self, leak: &Found) -> SeenAt {
        let count = leak.occurrences.len() as u64;
        SeenAt {
            pid: std::process::id(),
            ..occurrences::of(&self.process, now(), count, leak.bytes_held())
        }
    }

    /// This process, as it is now.
    fn process_now(&self, py: Python<'_>) -> Process {
        Process {
            pid: std::process::id(),
            frameworks: self.versions(py),
            gpus: gpu_names(),
            ..self.process.clone()
        }
    }

    /// The versions of the frameworks, looked up again when there are other modules than the last time.
    fn versions(&self, py: Python<'_>) -> Vec<(String, String)> {
        let modules = module_count(py);
        let (known, versions) = self.versions.take();
        let versions = if known == modules {
            versions
        } else {
            framework_versions(py)
        };
        self.versions.set((modules, versions.clone()));
        versions
    }

    /// This process, as a page may name it.
    pub(crate) fn process_to_tell(&self, py: Python<'_>) -> Process {
        let mut process = self.process_now(py);
        if self.redacts() {
            redact_process(&mut process);
        }
        process
    }
}

pyo3::create_exception!(
    cyclescope,
    Busy,
    PyRuntimeError,
    "The inspector is at work already: on another thread, or further up the stack."
);

/// In seconds since 1970-01-01 UTC.
fn now() -> f64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(0.0, |time| time.as_secs_f64())
}

fn busy() -> PyErr {
    Busy::new_err(
        "cyclescope is looking at the heap on another thread already; try again when it is done",
    )
}
