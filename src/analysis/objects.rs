//! Who keeps growing numbers of objects that are not tensors.

use std::ops::Range;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::grown::{Diagnosis, Look, QUEUES, SEARCHED, bytes_shown};
use super::live::{Depth, Root};
use crate::cpython::instances::attributes;
use crate::cpython::read::referents;
use crate::cpython::sizes::Sizes;
use crate::cpython::types::is_heap_class;
use crate::cpython::{ObjectKind, dict_items, int_value, is_untrue};
use crate::device::DeviceSelection;
use crate::diagnose::growth::{self, GrowthPattern};
use crate::diagnose::source::Beside;
use crate::graph::ShortestPaths;

/// An object with such an attribute says how large it becomes.
const LIMITS: [&str; 12] = [
    "_max_size",
    "_maxlen",
    "_maxsize",
    "capacity",
    "limit",
    "max_entries",
    "max_items",
    "max_len",
    "max_length",
    "max_size",
    "maxlen",
    "maxsize",
];
/// A limit beyond this is none.
const LARGEST: i64 = 10_000_000;
/// So many references up such an object is looked for: list, dictionary of attributes, object.
const ABOVE: usize = 2;
/// The part of the ages of which an owner must have some.
const MOST: f64 = 0.8;
/// Of more objects than these some are measured, so that a look is no longer for it.
const MEASURED: usize = 50_000;
/// So many objects of one class on a path are a chain.
const LINKS: usize = 8;
/// What `functools.lru_cache` has for each result, if it has a limit.
const LIMITED: &str = "functools._lru_list_elem";
const CACHE: &str = "functools._lru_cache_wrapper";

/// A type of which there are more and more objects.
pub(super) struct Grouped {
    /// The address of the type.
    pub ty: usize,
    /// The addresses of some of its objects, each with the number of the interval in which it came; `None` for what
    /// came before.
    pub members: Vec<(usize, Option<usize>)>,
    /// How many steps each interval has, the youngest first: not as many in all, since samples become rarer.
    pub steps: Vec<u64>,
    /// How many each stands for.
    pub weight: u64,
}

/// What a look at a type has shown.
#[derive(Default)]
pub(super) struct LookedAt {
    /// Who keeps its objects.
    pub found: Vec<Diagnosis>,
    pub class: String,
    /// Something keeps them that states its limit.
    pub is_limited: bool,
}

impl Inspector {
    /// What keeps the objects of each of some types, those that keep most memory first.
    pub(super) fn diagnose_objects(
        &self,
        py: Python<'_>,
        groups: &[Grouped],
    ) -> PyResult<Vec<LookedAt>> {
        self.look_for_growth(py, Depth::Gradients, |look| {
            let sizes = Sizes::new(py, &self.builtins)?;
            let found = groups.iter();
            Ok(found.map(|it| look.diagnose_objects(it, &sizes)).collect())
        })?
    }

    /// What is said of containers of strings and numbers; `None` for what has gone, has no name or is bounded.
    pub(super) fn diagnose_atoms(
        &self,
        py: Python<'_>,
        containers: &[usize],
    ) -> PyResult<Vec<Option<Diagnosis>>> {
        self.look_for_growth(py, Depth::Gradients, |look| {
            let found = containers.iter();
            found.map(|&at| look.diagnose_atoms(at)).collect()
        })
    }

    /// How many objects that the collector does not track only a container keeps, directly or in tuples and
    /// dictionaries of its own, with their bytes and the class of the largest.
    pub(super) fn atoms_in<'py>(
        &self,
        container: &Bound<'py, PyAny>,
        sizes: &Sizes<'_, 'py>,
    ) -> (u64, u64, String) {
        let (mut count, mut bytes, mut largest) = (0, 0, (0, String::new()));
        let (items, each) = some_of(only_of(container));
        for item in items {
            let mut size = sizes.of(&item);
            size += only_of(&item).iter().map(|it| sizes.of(it)).sum::<u64>();
            if size > largest.0 {
                largest = (size, self.type_name(&item));
            }
            count += each;
            bytes += each * size;
        }
        (count, bytes, largest.1)
    }
}

/// True if one of several that keep objects of a type keeps some of nearly every age, and per step as many old ones as
/// young ones: a type that grows has other owners, which replace theirs.
fn is_even(ages: impl Iterator<Item = usize>, group: &Grouped) -> bool {
    let oldest = group
        .members
        .iter()
        .filter_map(|(_, age)| Some(age.as_ref()? + 1));
    let oldest = oldest.max();
    let intervals = oldest.unwrap_or_default();
    let mut counts = vec![0_u32; intervals];
    ages.for_each(|age| counts[age] += 1);
    let known = counts.iter().filter(|count| **count > 0).count();
    let middle = intervals / 2;
    let rate = |ages: Range<usize>| {
        let steps: u64 = group.steps.iter().skip(ages.start).take(ages.len()).sum();
        f64::from(counts[ages].iter().sum::<u32>()) / steps.max(1) as f64
    };
    let (young, old) = (rate(0..middle), rate(middle..intervals));
    known as f64 >= MOST * intervals as f64 && 2.0 * young >= old && 2.0 * old >= young
}

/// Some of many things, and how many each of them stands for.
fn some_of<T>(all: Vec<T>) -> (impl Iterator<Item = T>, u64) {
    let each = all.len().div_ceil(MEASURED).max(1);
    (all.into_iter().step_by(each), each as u64)
}

/// The length of a list, a dictionary or a set; 0 for others.
fn length_of(object: &Bound<'_, PyAny>) -> i64 {
    let is_one = object.is_exact_instance_of::<PyList>()
        || object.is_exact_instance_of::<PyDict>()
        || object.is_exact_instance_of::<PySet>();
    let length = is_one.then(|| object.len().ok()).flatten();
    length.and_then(|it| i64::try_from(it).ok()).unwrap_or(0)
}

/// What an object refers to, nothing else does, and the collector does not track.
fn only_of<'py>(object: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let py = object.py();
    let mut found = Vec::new();
    // A dictionary does not show the collector keys that are strings.
    let mut items = Vec::new();
    dict_items(object, &mut |key, value| {
        items.extend([key.as_ptr() as usize, value.as_ptr() as usize]);
        true
    });
    let addresses = match items.is_empty() {
        true => referents(object),
        false => items,
    };
    for address in addresses {
        let target = address as *mut ffi::PyObject;
        // SAFETY: attached; the object refers to the target, and nothing runs that could change that.
        unsafe {
            if ffi::Py_REFCNT(target) == 1 && ffi::PyObject_GC_IsTracked(target) == 0 {
                found.push(Bound::from_borrowed_ptr(py, target));
            }
        }
    }
    found
}

impl<'py> Look<'_, 'py> {
    fn diagnose_objects(&self, group: &Grouped, sizes: &Sizes<'_, 'py>) -> LookedAt {
        let members = group.members.iter();
        let found: Vec<(u32, Option<usize>, usize)> = members
            .filter_map(|&(address, age)| {
                let node = self.live.objects.number_at(address)?;
                // SAFETY: attached; the object is held.
                let ty = unsafe { ffi::Py_TYPE(address as *mut ffi::PyObject) };
                (ty as usize == group.ty).then_some((node, age, address))
            })
            .collect();
        let aged: Vec<(u32, Option<usize>)> =
            found.iter().map(|&(node, age, _)| (node, age)).collect();
        let accumulators = self.live.accumulators(
            self.inspector,
            self.frameworks,
            &self.ways,
            &aged,
            &FxHashSet::default(),
        );
        let (limited, accumulators): (Vec<_>, Vec<_>) = accumulators
            .into_iter()
            .filter(|it| self.is_named(it.node))
            .partition(|it| {
                self.has_limit(it.node) || self.is_filling_state(it.node, it.members.len())
            });
        let one = found.first().and_then(|it| self.live.object(it.0));
        let class = one.map(|it| self.inspector.type_name(&it));
        let accumulators = accumulators
            .into_iter()
            .filter(|it| {
                let addresses = it.members.iter().map(|&at| found[at].2).collect();
                !self.follows_others(it.node, &addresses) && !self.is_in_weak_cache(it.node)
            })
            .filter(|it| is_even(it.members.iter().filter_map(|&at| found[at].1), group));
        let mut searched = 0;
        let found = accumulators.map(|mut accumulator| {
            // Of those in the window something is said.
            accumulator
                .members
                .sort_by_key(|&at| found[at].1.unwrap_or(usize::MAX));
            let nodes: Vec<u32> = accumulator.members.iter().map(|&at| aged[at].0).collect();
            let ages = accumulator.members.iter().filter_map(|&at| found[at].1);
            let in_window = ages.clone().count();
            let ages = ages.max();
            let owner = self.owner(self.head_of(accumulator.node));
            let pattern = self.pattern_of_objects(accumulator.node, &owner, nodes[0]);
            let evidence = match group.weight {
                1 => String::new(),
                weight => format!("estimated from 1 in {weight} objects"),
            };
            searched += 1;
            let mut about = self.about(pattern, owner, nodes[0]);
            let is_searched = searched <= SEARCHED;
            let evidence = self.say_how(&accumulator, evidence, &nodes, is_searched, &mut about);
            let bytes = self.object_bytes(&nodes, group, sizes);
            Diagnosis {
                tensors: 0,
                example: self.in_its_class(about.example, accumulator.node, nodes[0]),
                objects: nodes.len() as u64 * group.weight,
                bytes: bytes * group.weight,
                lately: in_window as f64 / nodes.len().max(1) as f64,
                beside: self.beside(accumulator.node),
                members: accumulator
                    .members
                    .iter()
                    .map(|&at| (found[at].2, 0))
                    .collect(),
                ages: ages.unwrap_or_default(),
                evidence,
                ..about
            }
        });
        LookedAt {
            found: found.collect(),
            class: class.unwrap_or_default(),
            is_limited: !limited.is_empty(),
        }
    }

    /// What the growth of the objects that one object keeps is called; `member` is one of them.
    fn pattern_of_objects(&self, keeper: u32, owner: &str, member: u32) -> GrowthPattern {
        if self.is_cache(keeper) {
            return growth::CACHE_WITHOUT_LIMIT;
        }
        match self.purpose_of(keeper, owner) {
            Some(purpose) => purpose.of_objects(),
            None if self.can_be_held_weakly(member) => growth::OBJECTS_ACCUMULATE,
            None => growth::variants::VALUES_ACCUMULATE,
        }
    }

    /// True if `weakref.ref` takes an object.
    fn can_be_held_weakly(&self, node: u32) -> bool {
        let class = self.live.object(node).map(|it| it.get_type());
        let offset = &self.inspector.builtins.type_weakrefoffset;
        let offset = class.and_then(|class| offset.get(class.as_any()));
        offset
            .and_then(|it| int_value(&it))
            .is_some_and(|it| it != 0)
    }

    /// The name of a class; of a built-in one with what the object is a part of, or what it has.
    fn in_its_class(&self, class: String, accumulator: u32, member: u32) -> String {
        let named = |node: u32| {
            let object = self.live.object(node)?;
            let is_instance = self.inspector.kind(&object) == ObjectKind::Instance;
            is_instance.then(|| self.inspector.type_name(&object))
        };
        let way = self.ways.path_to(member);
        let mut behind = way.into_iter().skip_while(|&node| node != accumulator);
        behind.next();
        if named(member).is_some() {
            return class;
        }
        if let Some(holder) = behind.find_map(named) {
            return format!("{class} in {holder}");
        }
        let mut parts = self.live.graph().targets(member).iter().copied();
        match parts.find_map(named) {
            Some(part) => format!("{class} with {part}"),
            None => class,
        }
    }

    fn diagnose_atoms(&self, container: usize) -> Option<Diagnosis> {
        let node = self.live.objects.number_at(container)?;
        (self.is_named(node) && !self.has_limit(node)).then(|| Diagnosis {
            pattern: growth::variants::VALUES_ACCUMULATE,
            owner: self.owner(node),
            beside: self.beside(node),
            ..Diagnosis::default()
        })
    }

    /// What there is beside a container that may limit it.
    pub(super) fn beside(&self, container: u32) -> Beside {
        let instances = &self.inspector.builtins.instances;
        let mut numbers = Vec::new();
        let mut at = container;
        for _ in 0..=ABOVE {
            let object = self.live.object(at);
            let object = object.filter(|it| self.inspector.kind(it) == ObjectKind::Instance);
            let attributes = object.map_or_else(Vec::new, |it| attributes(instances, &it));
            let known = attributes.into_iter();
            // Where there is no limit, there is often a None.
            let number = |it: &_| int_value(it).or_else(|| is_untrue(it).then_some(0));
            numbers.extend(known.filter_map(|(name, value)| Some((name, number(&value)?))));
            let Some(before) = self.ways.before(at) else {
                break;
            };
            at = before;
        }
        let own = self.live.object(container);
        let is_list = own.as_ref().is_some_and(|it| {
            it.is_exact_instance_of::<PyList>()
                || self.inspector.type_name(it) == "collections.deque"
        });
        let entries = own.as_ref().and_then(|it| it.cast::<PyDict>().ok());
        let entries = entries.map_or(0, |it| it.len() as u64);
        let own = own.filter(|it| is_heap_class(it.get_type().as_any()));
        let class = own.map_or_else(String::new, |it| self.inspector.type_name(&it));
        Beside {
            numbers,
            class,
            is_list,
            entries,
        }
    }

    /// How many items a container has.
    pub(super) fn items_of(&self, container: u32) -> Option<u64> {
        let object = self.live.object(container)?;
        let is_container = matches!(
            self.inspector.kind(&object),
            ObjectKind::Deque | ObjectKind::Dict | ObjectKind::List | ObjectKind::Set
        );
        is_container.then(|| u64::try_from(length_of(&object)).ok())?
    }

    /// True for what a variable of the program's holds, or what the standard library keeps.
    fn is_named(&self, node: u32) -> bool {
        let root = self
            .ways
            .path_to(node)
            .first()
            .map(|&it| self.live.root(it));
        matches!(
            root,
            Some(Root::Module(_) | Root::Frame(_) | Root::Library(_))
        )
    }

    /// True for a container that says itself how large it becomes, or whose owner does.
    fn has_limit(&self, node: u32) -> bool {
        let graph = self.live.graph();
        let length = self.live.object(node).map_or(0, |it| length_of(&it));
        let mut level = vec![node];
        if self.is_bounded(node) || self.is_limited_cache(node) {
            return true;
        }
        for _ in 0..ABOVE {
            level = level.iter().flat_map(|&it| graph.sources(it)).collect();
            if level.iter().any(|&it| self.says_limit(it, length)) {
                return true;
            }
            level.retain(|&it| self.live.is_kind(self.inspector, it, ObjectKind::Dict));
        }
        self.says_limit(node, length)
    }

    /// True for the items of a queue that has a limit: it fills, and does not grow.
    pub(super) fn is_in_bounded_queue(&self, node: u32) -> bool {
        let is_kind = |node: u32, kind| self.live.is_kind(self.inspector, node, kind);
        if !is_kind(node, ObjectKind::Deque) && !is_kind(node, ObjectKind::List) {
            return false;
        }
        let graph = self.live.graph();
        let length = self.live.object(node).map_or(0, |it| length_of(&it));
        let mut level = vec![node];
        for _ in 0..ABOVE {
            level = level.iter().flat_map(|&it| graph.sources(it)).collect();
            let queues = level
                .iter()
                .filter(|&&it| QUEUES.iter().any(|class| self.any_is(&[it], class)));
            if queues.copied().any(|it| self.says_limit(it, length)) {
                return true;
            }
            level.retain(|&it| is_kind(it, ObjectKind::Dict));
        }
        false
    }

    /// True for an object with a limit that a container of this length keeps to.
    fn says_limit(&self, node: u32, length: i64) -> bool {
        let Some(object) = self.live.object(node) else {
            return false;
        };
        self.inspector.kind(&object) == ObjectKind::Instance
            && attributes(&self.inspector.builtins.instances, &object)
                .iter()
                .any(|(name, value)| {
                    let limit = int_value(value).filter(|_| LIMITS.contains(&name.as_str()));
                    let limit = limit.filter(|it| (2..=LARGEST).contains(it));
                    limit.is_some_and(|it| length <= 2 * it)
                })
    }

    /// True for what `functools.lru_cache` keeps in a cache that has a limit.
    pub(super) fn is_limited_cache(&self, node: u32) -> bool {
        let Some(object) = self.live.object(node) else {
            return false;
        };
        let is_limited = |dictionary: &Bound<'py, PyAny>| {
            let mut is_limited = false;
            dict_items(dictionary, &mut |_, value| {
                is_limited = self.inspector.type_name(value) == LIMITED;
                false
            });
            is_limited
        };
        self.any_is(&[node], CACHE)
            && referents(&object).into_iter().any(|target| {
                // SAFETY: attached; the cache, which is held, refers to the target.
                let target =
                    unsafe { Bound::from_borrowed_ptr(object.py(), target as *mut ffi::PyObject) };
                is_limited(&target)
            })
            || is_limited(&object)
    }

    /// The first of a chain that an object is a part of, such as a list that is linked, or the object.
    fn head_of(&self, node: u32) -> u32 {
        let way = self.ways.path_to(node);
        let class = |node: u32| Some(self.live.object(node)?.get_type().as_ptr() as usize);
        let mut many: FxHashMap<Option<usize>, usize> = FxHashMap::default();
        for &node in &way {
            *many.entry(class(node)).or_default() += 1;
        }
        let mut links = way.iter().copied();
        let head = links.find(|&it| class(it).is_some() && many[&class(it)] > LINKS);
        head.unwrap_or(node)
    }

    /// True for what `functools.cache` keeps.
    pub(super) fn is_cache(&self, node: u32) -> bool {
        let above: Vec<u32> = self.live.graph().sources(node).into_iter().collect();
        self.any_is(&[node], CACHE) || self.any_is(&above, CACHE)
    }

    fn any_is(&self, nodes: &[u32], class: &str) -> bool {
        let objects = nodes.iter().filter_map(|&it| self.live.object(it));
        let mut names = objects.map(|it| self.inspector.type_name(&it));
        names.any(|name| name == class)
    }

    /// The bytes of the Python objects that only some objects of a group keep, themselves among them; but no older ones of
    /// their type, and what these keep, and if they stand for others, none of these.
    fn object_bytes(&self, nodes: &[u32], group: &Grouped, sizes: &Sizes<'_, 'py>) -> u64 {
        let going: FxHashSet<u32> = nodes.iter().copied().collect();
        let graph = self.live.graph();
        let mut roots = self.live.roots();
        roots.retain(|root| !going.contains(root));
        let mut rest = ShortestPaths::new(graph.node_count());
        rest.extend(graph, roots, |_, to| !going.contains(&to));
        let young = group.members.iter().filter(|(_, age)| age.is_some());
        let young: FxHashSet<usize> = match group.weight {
            1 => young.map(|(address, _)| *address).collect(),
            _ => FxHashSet::default(),
        };
        let is_other = |node: u32| {
            self.live.object(node).is_some_and(|it| {
                let is_young = young.contains(&(it.as_ptr() as usize));
                it.get_type_ptr() as usize == group.ty && !is_young
            })
        };
        let mut parts = ShortestPaths::new(graph.node_count());
        parts.extend(graph, nodes.iter().copied(), |_, to| {
            !rest.reaches(to) && (going.contains(&to) || !is_other(to))
        });
        let only = (0..self.live.objects.len() as u32)
            .filter(|&it| self.ways.reaches(it) && parts.reaches(it) && !rest.reaches(it));
        let (only, each) = some_of(only.collect());
        let mut seen = FxHashSet::default();
        let mut size = |object: &Bound<'py, PyAny>| {
            sizes.of(object) + self.array_bytes(object, &mut seen).unwrap_or_default()
        };
        let objects = only.filter_map(|node| self.live.object(node));
        let sizes = objects.map(|object| {
            let behind: u64 = only_of(&object).iter().map(&mut size).sum();
            size(&object) + behind
        });
        each * sizes.sum::<u64>()
    }

    /// The bytes of an array that the collector does not track, if it shows all of its memory, none before it did, and
    /// nothing else refers to what it is a view of.
    fn array_bytes(&self, object: &Bound<'py, PyAny>, seen: &mut FxHashSet<u64>) -> Option<u64> {
        let verdict = self.frameworks.verdict_of(object);
        if self.frameworks.is_tracked(verdict) {
            return None;
        }
        let base = self.frameworks.base(verdict, object);
        // SAFETY: attached, and the array refers to its base.
        let is_only = |base| unsafe { ffi::Py_REFCNT(base as *mut ffi::PyObject) == 1 };
        let found = self
            .frameworks
            .buffers(verdict, object, &DeviceSelection::Any);
        let buffer = found
            .into_iter()
            .next()
            .filter(|_| base.is_none_or(is_only))?;
        let is_whole = bytes_shown(&buffer) >= buffer.bytes && seen.insert(buffer.pointer);
        is_whole.then_some(buffer.bytes)
    }
}
