//! What grows, and who keeps it: one look at the live heap.

mod evidence;
mod pattern;
mod words;

pub(super) use self::pattern::QUEUES;

use std::cell::OnceCell;
use std::cmp::Reverse;

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use self::words::part_of_whole;
pub(super) use self::words::{bytes_shown, example_of};
use super::Inspector;
use super::graphs::Graphs;
use super::live::{Live, Root};
use super::naming::Naming;
use super::purpose::Classes;
use super::registries::EVENT_LOOP;
use crate::capture::AllocationTraces;
use crate::cpython::instances::{attribute, instance_dict};
use crate::cpython::{Builtins, ObjectKind, dict_items, find_item};
use crate::device::{DeviceBuffer, DeviceSelection, Frameworks};
use crate::diagnose::cohorts::Member;
use crate::diagnose::growth::{self, GrowthPattern};
use crate::diagnose::source::Beside;
use crate::graph::ShortestPaths;
use crate::model::redact::shorten;
use crate::model::words::{with_each_index, without_indices};

/// How many autograd functions are walked behind one tensor.
pub(super) const MAX_FUNCTIONS: usize = 20_000;

/// Of so many owners at most it is searched what else holds what they keep, as each search is a pass over the heap.
pub(super) const SEARCHED: usize = 4;

/// By so many references a way from a name that lasts may be longer than the shortest.
const LONGER: usize = 4;

/// A tensor or an autograd function at a sample: its address, and what tells whether another has taken
/// its place, see [`mark_of`]; 0 for a function.
pub type Name = (usize, u64);

/// What tells some memory from other that has since taken its place: where it is, and how large.
pub(super) fn mark_of(buffer: &DeviceBuffer) -> u64 {
    // An odd number, so that each size has a product of its own; that of 0 is 0.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    buffer.pointer ^ buffer.bytes.wrapping_mul(SPREAD)
}

/// A group that is to be diagnosed.
pub struct Grouping {
    pub kind: GroupKind,
    /// Those in the window first, the youngest of them at the beginning.
    pub members: Vec<Member<Name>>,
    /// The addresses of what was told to keep some of its members.
    pub known: Vec<usize>,
}

/// What one object keeps of a group's members that count, of whatever age.
#[derive(Clone, Copy, Default)]
pub struct Kept {
    /// The object's address.
    pub holder: usize,
    pub count: u64,
    /// The bytes that only these members keep, and how many of these no tensor of Python's shows.
    pub bytes: u64,
    pub hidden: u64,
    /// The part of those that came lately that the object keeps.
    pub share: f64,
    /// How many items it has, if it is a container.
    pub length: Option<u64>,
}

/// What autograd does with the tensors of a group, or that they are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// Tensors with a graph behind each.
    Graph,
    /// Leaves that ask for a gradient.
    Parameter,
    Plain,
    /// Autograd functions.
    Function,
}

/// What a group is, and who keeps it.
#[derive(Default)]
pub struct Diagnosis {
    pub pattern: GrowthPattern,
    /// Where the program keeps it, in the words that all reports have.
    pub owner: String,
    pub evidence: String,
    /// The class of the module whose hook fills the owner, in words.
    pub hook: String,
    /// One of the group: `float32[64, 128] on cuda:0`.
    pub example: String,
    pub device: String,
    pub pointer: u64,
    pub bytes: u64,
    /// What the graph of one interval adds.
    pub bytes_per_sample: u64,
    /// Of objects, the part of them that came in the window.
    pub lately: f64,
    /// How many there are: tensors, or other objects.
    pub tensors: usize,
    pub objects: u64,
    /// Those that are followed on, and of how many intervals they are.
    pub members: FxHashSet<Name>,
    pub ages: usize,
    /// What the owner keeps of the group in all.
    pub keeps: Kept,
    /// Bytes that nothing else keeps, for a state, and bytes that Python's tensors do not show, since autograd alone
    /// keeps them.
    pub kept: u64,
    pub hidden: u64,
    /// It is the head of a tree: what adds to the owner itself adds little.
    pub is_tree: bool,
    /// `file:line` that made the example, if `tracemalloc` was tracing.
    pub site: Option<String>,
    /// What may limit the owner.
    pub beside: Beside,
}

/// The arrays of a container.
#[derive(Clone)]
pub struct Arrays {
    pub count: usize,
    /// Those of their memory, on some devices.
    pub bytes: u64,
    /// Those that no tensor shows as well.
    pub hidden: u64,
    pub last: DeviceBuffer,
    /// They show a small part of it.
    pub are_views: bool,
}

/// One look at the live heap, for what grows.
pub(super) struct Look<'a, 'py> {
    pub inspector: &'a Inspector,
    pub(super) frameworks: &'a Frameworks,
    pub live: &'a Live<'py>,
    pub(super) graphs: Graphs<'a, 'py>,
    pub ways: ShortestPaths,
    lasting: OnceCell<ShortestPaths>,
    traces: AllocationTraces<'py>,
    modules: OnceCell<Vec<Module<'py>>>,
}

/// A module of PyTorch's and what it has.
pub(super) struct Module<'py> {
    pub object: Bound<'py, PyAny>,
    parameters: Vec<Bound<'py, PyAny>>,
}

impl<'a, 'py> Look<'a, 'py> {
    pub fn new(
        inspector: &'a Inspector,
        frameworks: &'a Frameworks,
        live: &'a Live<'py>,
        ways: ShortestPaths,
    ) -> Self {
        Self {
            inspector,
            frameworks,
            live,
            graphs: Graphs::new(inspector, frameworks, live),
            ways,
            lasting: OnceCell::new(),
            traces: AllocationTraces::new(live.py()),
            modules: OnceCell::new(),
        }
    }

    /// The node of what was at an address at the sample; `None` if it has gone.
    pub(super) fn node(&self, (address, mark): Name) -> Option<u32> {
        let node = self.live.objects.number_at(address)?;
        let same = match self.buffer(node) {
            Some(buffer) => mark_of(&buffer) == mark,
            None => mark == 0,
        };
        same.then_some(node)
    }

    pub(super) fn buffer(&self, node: u32) -> Option<DeviceBuffer> {
        let object = self.live.object(node)?;
        let verdict = self.frameworks.verdict_of(&object);
        let buffer = self
            .frameworks
            .whole_buffer(verdict, &object, &DeviceSelection::Any)?;
        Some(buffer)
    }

    /// The way to an object by which its owner is named.
    fn way(&self, node: u32) -> Vec<u32> {
        let way = self.lasting_way(node);
        way.unwrap_or_else(|| self.ways.path_to(node))
    }

    pub fn owner(&self, node: u32) -> String {
        let ways = [self.way(node)];
        let naming = Naming::new(self.inspector, self.frameworks, self.live, &ways);
        naming.owner(&ways[0]).unwrap_or_default()
    }

    /// A way to an object from a name that lasts, if the shortest begins at a variable of a call that may have returned
    /// by the time one reads of it, and this one is not much longer.
    fn lasting_way(&self, node: u32) -> Option<Vec<u32>> {
        let shortest = self.ways.path_to(node);
        let root = self.live.root(*shortest.first()?);
        let lasting = || self.live.lasting_paths();
        let way = match root {
            Root::Frame(_) => self.lasting.get_or_init(lasting).path_to(node),
            _ => return None,
        };
        (!way.is_empty() && way.len() <= shortest.len() + LONGER).then_some(way)
    }

    /// A diagnosis with what there is to say of one tensor or function.
    pub fn about(&self, pattern: GrowthPattern, owner: String, node: u32) -> Diagnosis {
        let buffer = self.buffer(node);
        let object = self.live.object(node);
        let example = match (&buffer, &object) {
            (Some(buffer), _) => example_of(buffer),
            (None, Some(object)) => self.inspector.type_name(object),
            (None, None) => String::new(),
        };
        let site = object.and_then(|object| self.traces.place_of(&object));
        let site = site.map(|mut place| {
            if self.inspector.redacts() {
                shorten(&mut place.file);
            }
            format!("{}:{}", place.file, place.line)
        });
        let (device, pointer, bytes) = buffer.map_or_else(Default::default, |buffer| {
            (buffer.device, buffer.pointer, buffer.bytes)
        });
        Diagnosis {
            pattern,
            owner,
            example,
            device,
            pointer,
            bytes,
            tensors: 1,
            site,
            ..Diagnosis::default()
        }
    }

    /// Who keeps the members of a group, those that keep most memory first; and what those keep that were known.
    pub fn diagnose(&self, group: &Grouping) -> (Vec<Diagnosis>, Vec<Kept>) {
        let found = group.members.iter();
        let found: Vec<(u32, Member<Name>)> = found
            .filter_map(|&member| Some((self.node(member.name)?, member)))
            .collect();
        let (mut all, mut keep) = self.diagnose_loops(group, &found);
        let (garbage, known) = self.diagnose_garbage(group, &found);
        all.extend(garbage);
        keep.extend(known);
        let aged: Vec<(u32, Option<usize>)> =
            found.iter().map(|(node, it)| (*node, it.age)).collect();
        let some_recent = found.iter().any(|(_, it)| it.is_recent);
        let came_lately = |it: &Member<Name>| match some_recent {
            true => it.is_recent,
            false => it.age.is_some(),
        };
        let lately = found.iter().filter(|(_, it)| came_lately(it)).count();
        let objects = &self.live.objects;
        let known = group.known.iter().filter_map(|&at| objects.number_at(at));
        let known: FxHashSet<u32> = known.collect();
        let accumulators =
            self.live
                .accumulators(self.inspector, self.frameworks, &self.ways, &aged, &known);
        for accumulator in accumulators {
            let holder = accumulator.node;
            if self.is_bounded(holder)
                || self.is_limited_cache(holder)
                || self.is_in_bounded_queue(holder)
                || self.is_in_weak_cache(holder)
                || self.is_filling_state(holder, accumulator.members.len())
            {
                continue;
            }
            let members = accumulator.members.iter().map(|&at| found[at]);
            let window = members.clone().filter(|(_, it)| it.age.is_some());
            let nodes: Vec<u32> = window.clone().map(|(node, _)| node).collect();
            let own = members.clone().filter(|(_, it)| came_lately(it)).count();
            let counting = members.filter(|(_, it)| it.counts);
            let counting: Vec<u32> = counting.map(|(node, _)| node).collect();
            let (hidden, bytes) = self.memory_of(&counting);
            let keeps = Kept {
                holder: objects.address(holder).unwrap_or_default(),
                count: counting.len() as u64,
                bytes,
                hidden,
                share: own as f64 / lately.max(1) as f64,
                length: self.items_of(holder),
            };
            if known.contains(&holder) {
                keep.push(keeps);
            }
            if accumulator.has_most_ages {
                let mut about = self.diagnose_accumulator(group.kind, holder, &nodes);
                let mut evidence = about.evidence.clone();
                let is_among_first = all.len() < SEARCHED;
                evidence = self.say_how(&accumulator, evidence, &nodes, is_among_first, &mut about);
                let is_plain = about.pattern.name == growth::CONTAINER_GROWS.name;
                let pattern = match is_plain && evidence.contains(EVENT_LOOP) {
                    true => growth::variants::TASKS_WAIT,
                    false => about.pattern,
                };
                let ages = window.clone().filter_map(|(_, it)| it.age).max();
                all.push(Diagnosis {
                    pattern,
                    evidence,
                    tensors: nodes.len(),
                    ages: ages.unwrap_or_default(),
                    members: window.map(|(_, it)| it.name).collect(),
                    bytes: match nodes == counting {
                        true => bytes,
                        false => self.memory_of(&nodes).1,
                    },
                    keeps,
                    beside: self.beside(holder),
                    ..about
                });
            }
        }
        all.sort_by_key(|found| Reverse(found.bytes));
        (all, keep)
    }

    /// True for a list, set, deque or dictionary on a way, but not for one of variables or attributes.
    fn is_filled(&self, way: &[u32], at: usize) -> bool {
        use ObjectKind::{Deque, Dict, List, Set};
        let Some(object) = self.live.object(way[at]) else {
            return false;
        };
        match self.inspector.kind(&object) {
            List | Set | Deque => true,
            Dict => {
                let has_attributes = |&holder: &u32| {
                    let holder = self.live.object(holder)?;
                    let own = instance_dict(&self.inspector.builtins.instances, &holder)?;
                    Some(own == object.as_ptr() as usize)
                };
                let before = at.checked_sub(1).map(|at| way[at]);
                before.is_some_and(|it| has_attributes(&it) != Some(true))
                    && find_item("__builtins__", |f| dict_items(&object, f)).is_none()
            }
            _ => false,
        }
    }

    /// True for a deque with `maxlen`: it fills, and does not grow.
    pub fn is_bounded(&self, node: u32) -> bool {
        let deque = self.live.object(node);
        let deque = deque.filter(|it| self.inspector.kind(it) == ObjectKind::Deque);
        let limit = deque.and_then(|deque| self.inspector.builtins.deque_limit.get(&deque));
        limit.is_some_and(|limit| !limit.is_none())
    }

    /// What is said of tensors that have become longer together: for each owner how many it has. The items of one list
    /// are one owner's.
    pub fn diagnose_longer(&self, tensors: &[Name]) -> Vec<Diagnosis> {
        let mut by_owner: Vec<Vec<Diagnosis>> = Vec::new();
        for found in tensors.iter().filter_map(|&it| self.longer(it)) {
            let words = without_indices(&found.owner);
            let same = |known: &&mut Vec<Diagnosis>| without_indices(&known[0].owner) == words;
            match by_owner.iter_mut().find(same) {
                Some(known) => known.push(found),
                None => by_owner.push(vec![found]),
            }
        }
        let all = by_owner.into_iter().filter_map(|found| {
            let owners: Vec<&str> = found.iter().map(|it| &*it.owner).collect();
            let owner = with_each_index(&owners);
            let tensors = found.len();
            let bytes = found.iter().map(|it| it.bytes).sum();
            Some(Diagnosis {
                owner,
                tensors,
                bytes,
                ..found.into_iter().next()?
            })
        });
        all.collect()
    }

    /// What is said of a tensor that has become longer, if a variable of the program's holds it.
    fn longer(&self, tensor: Name) -> Option<Diagnosis> {
        let node = self.node(tensor)?;
        let root = self.live.root(*self.ways.path_to(node).first()?);
        let is_named = matches!(root, Root::Module(_) | Root::Frame(_) | Root::Library(_));
        let pattern = match self.is_tensor(node) {
            true => growth::TENSOR_GROWS,
            false => growth::variants::ARRAY_GROWS,
        };
        is_named.then(|| self.about(pattern, self.owner(node), node))
    }

    /// What is said of a container of arrays.
    pub fn diagnose_arrays(&self, container: usize, arrays: &Arrays) -> Option<Diagnosis> {
        let node = self.live.objects.number_at(container)?;
        let last = &arrays.last;
        let (pattern, evidence) = match arrays.are_views {
            true => (
                growth::variants::VIEWS_OF_ARRAYS_ACCUMULATE,
                part_of_whole(bytes_shown(last), last.bytes),
            ),
            false => (growth::variants::ARRAYS_ACCUMULATE, String::new()),
        };
        (self.ways.reaches(node) && !self.is_bounded(node)).then(|| Diagnosis {
            pattern,
            evidence,
            owner: self.owner(node),
            example: example_of(last),
            device: last.device.clone(),
            pointer: last.pointer,
            beside: self.beside(node),
            ..Diagnosis::default()
        })
    }

    /// The bytes that only some tensors of a group keep, their own among them: those that no tensor of Python's shows,
    /// and all. Another tensor of the group that one leads to has its own, and may have come before; but neither a leaf is
    /// of a group of tensors with graphs, nor a gradient of one of leaves.
    pub(super) fn memory_of(&self, tensors: &[u32]) -> (u64, u64) {
        let own = tensors.iter().filter_map(|&it| self.live.memory_of(it));
        let own: FxHashSet<usize> = own.collect();
        let kind = |index: usize| {
            let memory = &self.live.buffers[index];
            let is_what = (memory.is_leaf, memory.is_gradient);
            (&memory.buffer.device, &memory.buffer.dtype, is_what)
        };
        let kinds: FxHashSet<_> = own.iter().map(|&index| kind(index)).collect();
        let only = self
            .live
            .memory_only_of(&self.ways, tensors.iter().copied());
        let is_of_group = |index: usize| {
            let memory = &self.live.buffers[index];
            memory.is_shown && !memory.is_saved && kinds.contains(&kind(index))
        };
        let behind = only.into_iter().filter(|&index| !is_of_group(index));
        let kept: FxHashSet<usize> = behind.chain(own.iter().copied()).collect();
        (self.hidden_bytes(&kept), self.bytes_of(&kept))
    }

    /// The bytes of those of some buffers that only C++ holds.
    pub(super) fn hidden_bytes(&self, buffers: &FxHashSet<usize>) -> u64 {
        let is_hidden = |index: &&usize| !self.live.buffers[**index].is_shown;
        self.bytes_of(&buffers.iter().filter(is_hidden).copied().collect())
    }

    pub(super) fn behind(&self, tensor: u32) -> Vec<u32> {
        let function = self.graphs.function_of(tensor);
        self.graphs.behind(function, MAX_FUNCTIONS)
    }

    pub(super) fn bytes_of(&self, buffers: &FxHashSet<usize>) -> u64 {
        let bytes = buffers.iter().map(|&it| self.live.buffers[it].buffer.bytes);
        bytes.sum()
    }

    pub fn modules(&self) -> &[Module<'py>] {
        self.modules.get_or_init(|| {
            let Some(classes) = Classes::imported(self.live.py()) else {
                return Vec::new();
            };
            let objects = &self.live.objects;
            let mut known: FxHashMap<usize, bool> = FxHashMap::default();
            (0..objects.len() as u32)
                .filter_map(|node| {
                    let address = objects.address(node)?;
                    // SAFETY: attached; the object is held.
                    let ty = unsafe { ffi::Py_TYPE(address as *mut ffi::PyObject) } as usize;
                    if let Some(false) = known.get(&ty) {
                        return None;
                    }
                    let object = objects.object(node)?;
                    let is_module = *known.entry(ty).or_insert_with(|| {
                        // SAFETY: attached, the object and the classes are alive.
                        unsafe { classes.of(&object) }.0
                    });
                    is_module.then_some(object)
                })
                .map(|object| Module {
                    parameters: parameters_of(&self.inspector.builtins, &object),
                    object,
                })
                .collect()
        })
    }
}

/// The parameters among the attributes of a module.
pub(super) fn parameters_of<'py>(
    builtins: &Builtins,
    module: &Bound<'py, PyAny>,
) -> Vec<Bound<'py, PyAny>> {
    let mut found = Vec::new();
    if let Some(parameters) = attribute(&builtins.instances, module, "_parameters") {
        dict_items(&parameters, &mut |_, parameter| {
            if !parameter.is_none() {
                found.push(parameter.clone());
            }
            true
        });
    }
    found
}
