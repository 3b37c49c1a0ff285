//! Names for paths through the live heap.

use petgraph::graph::NodeIndex;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyWeakrefReference};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::live::{Extra, Live, Root};
use crate::capture::{Classes, Description, ReferenceName, describe};
use crate::cpython::read::{printable, referents};
use crate::cpython::{Descriptor, ObjectKind, class_items, dict_items, text_of};
use crate::device::{ArrayReference, Frameworks};
use crate::diagnose::{NamedPath, NamedRoot};
use crate::graph::{Gap, LeakEdge, LeakGraph, LeakNode, fold, hide_unless_code, hide_values};
use crate::model::redact::shorten;

/// The class of what each thread has for a `threading.local`.
const SENTINEL: &str = "_thread._localdummy";

/// The names of references and descriptions of objects on some paths.
///
/// Computed for all paths at once: a list is searched once, however many paths pass it.
pub struct Naming<'a, 'py> {
    live: &'a Live<'py>,
    names: FxHashMap<(u32, u32), ReferenceName>,
    descriptions: FxHashMap<u32, Description>,
    /// Left out of paths: a context seems to hold the values itself, a `threading.local` the attributes.
    hidden_parts: FxHashSet<u32>,
    /// Values of the program and folders are left out: see [`Inspector::redact`].
    redacts: bool,
}

impl<'a, 'py> Naming<'a, 'py> {
    /// Names the references on these paths and describes their objects.
    pub fn new(
        inspector: &Inspector,
        frameworks: &Frameworks,
        live: &'a Live<'py>,
        paths: &[Vec<u32>],
    ) -> Self {
        let mut naming = Self {
            live,
            names: FxHashMap::default(),
            descriptions: FxHashMap::default(),
            hidden_parts: FxHashSet::default(),
            redacts: inspector.redacts(),
        };
        let mut wanted: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        let mut seen: FxHashSet<(u32, u32)> = FxHashSet::default();
        let mut order: Vec<u32> = Vec::new();
        for nodes in paths {
            for pair in nodes.windows(2) {
                if let &[from, to] = pair
                    && seen.insert((from, to))
                {
                    match live.hidden.get(&(from, to)) {
                        Some(name) => {
                            naming.names.insert((from, to), name.clone());
                        }
                        // Not a fact: see `why::supposed_loop`.
                        None if live.hook_dictionaries.contains(&to)
                            && live.functions.contains(&from) =>
                        {
                            let name = ReferenceName::Attribute("hooks".to_owned());
                            naming.names.insert((from, to), name);
                        }
                        None => wanted.entry(from).or_default().push(to),
                    }
                }
            }
            order.extend(nodes);
        }
        for (from, targets) in wanted {
            let names = reference_names(inspector, frameworks, live, from, &targets);
            let references = targets.iter().map(|&target| (from, target));
            naming.names.extend(references.zip(names));
        }
        let mut classes = Classes::default();
        for node in order {
            if naming.descriptions.contains_key(&node) {
                continue;
            }
            let description = match live.extra(node) {
                Some(Extra::Frame(index)) => describe_frame(live, *index),
                _ => match live.object(node) {
                    Some(object) => describe(
                        &inspector.builtins,
                        &mut classes,
                        inspector.kind(&object),
                        &object,
                    ),
                    None => Description::blank(ObjectKind::Instance, String::new()),
                },
            };
            if let Some(object) = live.object(node)
                && (is_part_of_context(&description.type_name, &object)
                    || !of_threads(inspector, &object).is_empty())
            {
                naming.hidden_parts.insert(node);
            }
            naming.descriptions.insert(node, description);
        }
        naming
    }

    /// True for what paths leave out.
    pub fn is_left_out(&self, node: u32) -> bool {
        self.hidden_parts.contains(&node)
    }

    /// The path along some nodes, in words, from the first on.
    pub fn path(&self, nodes: &[u32], root: &NamedRoot) -> NamedPath {
        self.path_by(nodes, root, None)
    }

    /// As [`Naming::path`], where some objects are left out between the nodes.
    pub fn path_without(&self, nodes: &[u32], gap: Option<Gap>, root: &NamedRoot) -> NamedPath {
        self.in_words(nodes, gap, root, None)
    }

    /// As [`Naming::path`], by one of several references between the node at a position and the next.
    pub fn path_by(
        &self,
        nodes: &[u32],
        root: &NamedRoot,
        by: Option<(usize, &ReferenceName)>,
    ) -> NamedPath {
        self.in_words(nodes, None, root, by)
    }

    fn in_words(
        &self,
        nodes: &[u32],
        mut gap: Option<Gap>,
        root: &NamedRoot,
        by: Option<(usize, &ReferenceName)>,
    ) -> NamedPath {
        let mut chain = LeakGraph::default();
        let mut before: Option<(NodeIndex, u32)> = None;
        for (position, &node) in nodes.iter().enumerate() {
            if let (Some((place, _)), true) = (before, self.hidden_parts.contains(&node)) {
                before = Some((place, node));
                continue;
            }
            let description = self.descriptions.get(&node).cloned();
            let here = chain.add_node(LeakNode {
                description: description
                    .unwrap_or_else(|| Description::blank(ObjectKind::Instance, String::new())),
                object: Some(node),
                is_buffer: false,
                is_tensor: false,
                stands_for: 0,
            });
            if let Some((place, _)) = before
                && let Some(gap) = gap.take_if(|gap| position >= gap.before)
            {
                let gap = chain.add_node(LeakNode::gap(gap.omitted));
                chain.add_edge(place, gap, LeakEdge::new(ReferenceName::Omitted));
                chain.add_edge(gap, here, LeakEdge::new(ReferenceName::Omitted));
            } else if let Some((place, from)) = before {
                let name = match by {
                    Some((at, name)) if at + 1 == position => Some(name.clone()),
                    _ => self.names.get(&(from, node)).cloned(),
                };
                let name = name.unwrap_or(ReferenceName::Unnamed);
                chain.add_edge(place, here, LeakEdge::new(name));
            }
            before = Some((here, node));
        }
        let mut chain = fold(chain);
        if self.redacts {
            hide_values(&mut chain);
            let descriptions = chain.node_weights_mut().map(|node| &mut node.description);
            for place in descriptions.filter_map(|description| description.place.as_mut()) {
                shorten(&mut place.file);
            }
        }
        NamedPath::new(root, &chain)
    }

    /// What the reference between two nodes on the paths is called.
    pub fn name(&self, from: u32, to: u32) -> Option<&ReferenceName> {
        self.names.get(&(from, to))
    }

    /// The last object of a path as the program writes it: `trainer.caches['loss']`.
    pub fn expression(&self, nodes: &[u32]) -> Option<String> {
        let is_kind = |node: u32, kind: ObjectKind| {
            let description = self.descriptions.get(&node);
            description.is_some_and(|it| it.kind == kind)
        };
        // A function of a class is the function itself; what another descriptor answers is not what the class has.
        let before_last = &nodes[..nodes.len().saturating_sub(1)];
        let passes_descriptor = (1..before_last.len()).any(|at| {
            let owner = match at.checked_sub(2) {
                Some(owner) if is_kind(nodes[at - 1], ObjectKind::Dict) => owner,
                _ => at - 1,
            };
            is_kind(nodes[owner], ObjectKind::Class)
                && !is_kind(nodes[at], ObjectKind::Function)
                && self
                    .live
                    .object(nodes[at])
                    .is_some_and(|it| is_descriptor(&it))
        });
        (!passes_descriptor).then(|| self.path(nodes, &self.root(nodes)).expression)?
    }

    /// Where the program has the last object of a path; `None` for an empty one.
    pub fn owner(&self, nodes: &[u32]) -> Option<String> {
        let path = (!nodes.is_empty()).then(|| self.path(nodes, &self.root(nodes)));
        path.map(|path| path.owner())
    }

    /// True if a path begins with a variable in which IPython keeps the result of a cell; `by` is a reference of it.
    fn is_history(&self, module: &str, nodes: &[u32], by: Option<(usize, &ReferenceName)>) -> bool {
        let variable = match (by, nodes) {
            (Some((1, name)), _) => Some(name),
            (_, [_, names, value, ..]) => self.names.get(&(*names, *value)),
            _ => None,
        };
        let Some(ReferenceName::Key(variable)) = variable else {
            return false;
        };
        let variable = variable.trim_matches('\'');
        let is_numbered = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let of_cell = matches!(variable, "Out" | "_oh" | "_" | "__" | "___")
            || variable.strip_prefix('_').is_some_and(is_numbered);
        let of_notebook =
            module == "__main__" && of_cell || module == "builtins" && variable == "_";
        self.live.is_notebook && of_notebook
    }

    /// The root of a path in words.
    pub fn root(&self, nodes: &[u32]) -> NamedRoot {
        self.root_by(nodes, None)
    }

    /// As [`Naming::root`], of a path by one of several references between the node at a position and the next.
    pub fn root_by(&self, nodes: &[u32], by: Option<(usize, &ReferenceName)>) -> NamedRoot {
        let first = nodes.first();
        let root = first.map_or(Root::Nothing, |&first| self.live.root(first));
        let mut named = match root {
            Root::Module(name) if self.is_history(&name, nodes, by) => {
                NamedRoot::Library("the notebook's history".to_owned())
            }
            Root::Module(name) => match nodes.get(1) {
                Some(next) if self.live.is_of_c(nodes[0], *next) => {
                    NamedRoot::Library(format!("C code of the module `{name}`"))
                }
                _ => NamedRoot::Module(name),
            },
            Root::Frame(index) => {
                let frame = &self.live.frames[index];
                let thread = self.live.threads.iter().find(|(id, _)| *id == frame.thread);
                NamedRoot::Local {
                    function: frame.function.clone(),
                    place: frame.place.clone(),
                    thread: thread.map(|(_, name)| name.clone()).unwrap_or_default(),
                }
            }
            Root::Library(words) => NamedRoot::Library(words),
            Root::Outside => NamedRoot::Outside,
            Root::Uncounted => NamedRoot::Uncounted,
            Root::Nothing => NamedRoot::Garbage,
        };
        if self.redacts {
            hide(&mut named);
        }
        named
    }
}

/// True for an object with a `__get__`.
fn is_descriptor(object: &Bound<'_, PyAny>) -> bool {
    let ty = object.get_type().as_type_ptr();
    // SAFETY: attached; the type is alive.
    let get = unsafe { ffi::PyType_GetSlot(ty, ffi::Py_tp_descr_get) };
    !get.is_null()
}

/// The names of the references from one node to others, in their order: to an object that it refers to twice,
/// two.
pub(super) fn reference_names(
    inspector: &Inspector,
    frameworks: &Frameworks,
    live: &Live<'_>,
    from: u32,
    targets: &[u32],
) -> Vec<ReferenceName> {
    let unnamed = |at: usize| {
        let before = targets[..at].iter().filter(|it| **it == targets[at]);
        let variable = live.variable(from, targets[at], before.count());
        let hidden = || live.hidden.get(&(from, targets[at])).cloned();
        variable.or_else(hidden).unwrap_or(ReferenceName::Unnamed)
    };
    // A function of the program's own is an object of Python's, which its result shows to the collector.
    let is_grad_fn = |target: &u32| {
        let verdict = live.object(from).map(|it| frameworks.verdict_of(&it));
        verdict.is_some_and(Frameworks::is_tensor) && live.functions.contains(target)
    };
    let addresses: Option<Vec<usize>> = targets
        .iter()
        .map(|&target| live.objects.address(target))
        .collect();
    let (Some(object), Some(addresses)) = (live.object(from), addresses) else {
        return (0..targets.len()).map(unnamed).collect();
    };
    let mut names = inspector.names_of(&object, &addresses);
    name_by_library(inspector, &object, &addresses, &mut names);
    let mut name_next = |address: usize, name: ReferenceName| {
        let mut nameless = names.iter_mut().zip(&addresses);
        let next =
            nameless.find(|(known, it)| **known == ReferenceName::Unnamed && **it == address);
        if let Some((known, _)) = next {
            *known = name;
        }
    };
    let verdict = frameworks.verdict_of(&object);
    frameworks.for_each_untraversed(verdict, &object, |reference, target| {
        name_next(target as usize, array_reference(reference));
    });
    for (attribute, value) in frameworks.attributes(verdict, &object) {
        name_next(
            value.as_ptr() as usize,
            ReferenceName::Attribute(attribute.to_owned()),
        );
    }
    for (at, name) in names.iter_mut().enumerate() {
        if *name == ReferenceName::Unnamed {
            *name = match is_grad_fn(&targets[at]) {
                true => ReferenceName::Attribute("grad_fn".to_owned()),
                false => unnamed(at),
            };
        }
    }
    names
}

/// Names what the standard library's own objects refer to.
fn name_by_library(
    inspector: &Inspector,
    object: &Bound<'_, PyAny>,
    addresses: &[usize],
    names: &mut [ReferenceName],
) {
    for (dictionary, sentinel) in of_threads(inspector, object) {
        let attributes = match is_of_this_thread(&sentinel) {
            Some(true) => "__dict__",
            Some(false) => "__dict__ of another thread",
            None => "__dict__ of a thread",
        };
        let all = names.iter_mut().zip(addresses);
        all.filter(|(_, address)| **address == dictionary)
            .for_each(|(name, _)| *name = ReferenceName::Attribute(attributes.to_owned()));
    }
    let nameless = names.iter_mut().zip(addresses);
    let nameless = nameless.filter(|(name, _)| **name == ReferenceName::Unnamed);
    match inspector.type_name(object).as_str() {
        "functools._lru_cache_wrapper" => {
            nameless.for_each(|(name, _)| *name = ReferenceName::Cached);
        }
        "_contextvars.Token" | "Token" => {
            for (name, address) in nameless {
                // SAFETY: attached; the object refers to it and so keeps it alive.
                let part = unsafe {
                    Bound::from_borrowed_ptr(object.py(), *address as *mut ffi::PyObject)
                };
                let class = inspector.type_name(&part);
                if !class.ends_with("ContextVar") && !class.ends_with("Context") {
                    *name = ReferenceName::Attribute("old_value".to_owned());
                }
            }
        }
        kind if is_part_of_context(kind, object) => {
            for (name, address) in nameless {
                if let Some(variable) = inspector.context_variable(object, *address) {
                    *name = ReferenceName::ContextVariable(variable);
                }
            }
        }
        _ => {}
    }
}

/// The dictionaries of attributes that a `threading.local` has, given the dictionary of these, each with what a thread
/// keeps so that it stays (`_local_create_dummy` in Modules/_threadmodule.c; since 3.13 `create_localsdict`, where that is
/// the key itself and no weak reference to it).
fn of_threads<'py>(
    inspector: &Inspector,
    object: &Bound<'py, PyAny>,
) -> Vec<(usize, Bound<'py, PyAny>)> {
    let mut found = Vec::new();
    if object.is_exact_instance_of::<PyDict>() {
        dict_items(object, &mut |key, value| {
            let sentinel = match key.cast_exact::<PyWeakrefReference>() {
                Ok(weak) => weak.upgrade(),
                Err(_) => Some(key.clone()),
            };
            let sentinel = sentinel.filter(|it| inspector.type_name(it) == SENTINEL);
            let is_one = sentinel.is_some();
            found.extend(sentinel.map(|it| (value.as_ptr() as usize, it)));
            is_one
        });
    }
    found
}

/// True if this thread has the sentinel, false if another has; `None` if that is not known.
fn is_of_this_thread(sentinel: &Bound<'_, PyAny>) -> Option<bool> {
    // SAFETY: attached; the dictionary is borrowed from the thread.
    let own =
        unsafe { Bound::from_borrowed_ptr_or_opt(sentinel.py(), ffi::PyThreadState_GetDict()) };
    let (mut knows_some, mut has_it) = (false, false);
    dict_items(&own?, &mut |_, value| {
        knows_some |= value.get_type().is(sentinel.get_type());
        has_it |= value.is(sentinel);
        true
    });
    knows_some.then_some(has_it)
}

/// True for the types of which a context consists (Python/hamt.c): nobody knows them.
pub(super) fn is_part_of_context(type_name: &str, object: &Bound<'_, PyAny>) -> bool {
    let is_known = matches!(
        type_name,
        "hamt" | "hamt_array_node" | "hamt_bitmap_node" | "hamt_collision_node"
    );
    // SAFETY: attached; the type of a live object is alive.
    is_known
        && unsafe { ffi::PyType_GetFlags(object.get_type_ptr()) & ffi::Py_TPFLAGS_HEAPTYPE == 0 }
}

/// What a reference of an array is called.
pub(super) fn array_reference(reference: ArrayReference) -> ReferenceName {
    match reference {
        ArrayReference::Base => ReferenceName::Attribute("base".to_owned()),
        ArrayReference::Index(index) => ReferenceName::Index(index),
        ArrayReference::Element => ReferenceName::Member,
        ArrayReference::HostCopy => ReferenceName::Attribute("_npy_value".to_owned()),
    }
}

/// Takes the values of the program and folders out of a root's words. A thread's name is a value.
fn hide(root: &mut NamedRoot) {
    match root {
        NamedRoot::Module(name) => hide_unless_code(name),
        NamedRoot::Local {
            function,
            place,
            thread,
        } => {
            hide_unless_code(function);
            thread.clear();
            if let Some(place) = place {
                shorten(&mut place.file);
            }
        }
        NamedRoot::Library(words) => words.truncate(words.find(" `").unwrap_or(words.len())),
        NamedRoot::Outside | NamedRoot::Uncounted | NamedRoot::Garbage | NamedRoot::Itself => {}
    }
}

fn describe_frame(live: &Live<'_>, index: usize) -> Description {
    let frame = &live.frames[index];
    let mut description =
        Description::blank(ObjectKind::Frame, format!("frame of {}", frame.function));
    description.type_name = "frame".to_owned();
    description.place.clone_from(&frame.place);
    description
}

impl Inspector {
    /// What an object is.
    pub(super) fn kind(&self, object: &Bound<'_, PyAny>) -> ObjectKind {
        // SAFETY: attached, and the object and its type are alive.
        unsafe { self.builtins.kind(pyo3::ffi::Py_TYPE(object.as_ptr())) }
    }

    /// The name of the context variable whose value a node of a context has at an address. Each is visited
    /// right before its variable (`hamt_node_bitmap_traverse` in Python/hamt.c).
    fn context_variable(&self, node: &Bound<'_, PyAny>, address: usize) -> Option<String> {
        let visited = referents(node);
        let mut pairs = visited.windows(2).filter(|pair| pair[0] == address);
        pairs.find_map(|pair| {
            // SAFETY: attached; the node refers to it and so keeps it alive.
            let variable =
                unsafe { Bound::from_borrowed_ptr(node.py(), pair[1] as *mut ffi::PyObject) };
            let class = variable.get_type();
            if !self.type_name(&variable).ends_with("ContextVar") {
                return None;
            }
            let mut name = None;
            class_items(&self.builtins, class.as_any(), &mut |key, value| {
                if text_of(key).as_deref() == Some("name") {
                    name = Descriptor::new(value).and_then(|it| text_of(&it.get(&variable)?));
                }
                name.is_none()
            });
            name.map(|name| printable(&name))
        })
    }

    fn names_of(&self, object: &Bound<'_, PyAny>, targets: &[usize]) -> Vec<ReferenceName> {
        crate::capture::name_references(&self.builtins, self.kind(object), object, targets)
    }
}
