//! Names for paths through the live heap.

use petgraph::graph::NodeIndex;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::live::{Extra, Live, Root};
use crate::capture::{Classes, Description, ReferenceName, describe};
use crate::cpython::ObjectKind;
use crate::device::Frameworks;
use crate::diagnose::{NamedPath, NamedRoot};
use crate::graph::{LeakEdge, LeakGraph, LeakNode, fold, hide_unless_code, hide_values};
use crate::model::redact::shorten;

/// The names of references and descriptions of objects on some paths.
///
/// Computed for all paths at once: a list is searched once, however many paths pass it.
pub struct Naming<'a, 'py> {
    live: &'a Live<'py>,
    names: FxHashMap<(u32, u32), ReferenceName>,
    descriptions: FxHashMap<u32, Description>,
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
            naming.name(inspector, frameworks, from, &targets);
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
                    None => blank(ObjectKind::Instance, String::new()),
                },
            };
            naming.descriptions.insert(node, description);
        }
        naming
    }

    fn name(&mut self, inspector: &Inspector, frameworks: &Frameworks, from: u32, targets: &[u32]) {
        let (Some(object), Some(addresses)) = (
            self.live.object(from),
            targets
                .iter()
                .map(|&target| self.live.objects.address(target))
                .collect::<Option<Vec<usize>>>(),
        ) else {
            return;
        };
        let mut names = inspector.names_of(&object, &addresses);
        if names.contains(&ReferenceName::Unnamed) {
            let verdict = frameworks.verdict_of(&object);
            for (attribute, value) in frameworks.attributes(verdict, &object) {
                for (name, address) in names.iter_mut().zip(&addresses) {
                    if *name == ReferenceName::Unnamed && *address == value.as_ptr() as usize {
                        *name = ReferenceName::Attribute(attribute.to_owned());
                    }
                }
            }
        }
        for (&target, name) in targets.iter().zip(names) {
            self.names.insert((from, target), name);
        }
    }

    /// The path along some nodes, in words, from the first on.
    pub fn path(&self, nodes: &[u32], root: &NamedRoot) -> NamedPath {
        let mut chain = LeakGraph::default();
        let mut before: Option<(NodeIndex, u32)> = None;
        for &node in nodes {
            let description = self.descriptions.get(&node).cloned();
            let here = chain.add_node(LeakNode {
                description: description
                    .unwrap_or_else(|| blank(ObjectKind::Instance, String::new())),
                object: Some(node),
                is_buffer: false,
                is_tensor: false,
                stands_for: 0,
            });
            if let Some((place, from)) = before {
                let name = self.names.get(&(from, node)).cloned();
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

    /// Where the program has the last object of a path; `None` for an empty one.
    pub fn owner(&self, nodes: &[u32]) -> Option<String> {
        let path = (!nodes.is_empty()).then(|| self.path(nodes, &self.root(nodes)));
        path.map(|path| path.owner())
    }

    /// The root of a path in words.
    pub fn root(&self, nodes: &[u32]) -> NamedRoot {
        let first = nodes.first();
        let root = first.map_or(Root::Nothing, |&first| self.live.root(first));
        let mut named = match root {
            Root::Module(name) => NamedRoot::Module(name),
            Root::Frame(index) => {
                let frame = &self.live.frames[index];
                let thread = self.live.threads.iter().find(|(id, _)| *id == frame.thread);
                NamedRoot::Local {
                    function: frame.function.clone(),
                    place: frame.place.clone(),
                    thread: thread.map(|(_, name)| name.clone()).unwrap_or_default(),
                }
            }
            Root::Outside => NamedRoot::Outside,
            Root::Nothing => NamedRoot::Garbage,
        };
        if self.redacts {
            hide(&mut named);
        }
        named
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
        NamedRoot::Outside | NamedRoot::Garbage | NamedRoot::Itself => {}
    }
}

fn describe_frame(live: &Live<'_>, index: usize) -> Description {
    let frame = &live.frames[index];
    let mut description = blank(ObjectKind::Frame, format!("frame of {}", frame.function));
    description.type_name = "frame".to_owned();
    description.place.clone_from(&frame.place);
    description
}

fn blank(kind: ObjectKind, label: String) -> Description {
    Description {
        kind,
        type_name: String::new(),
        label,
        place: None,
        unplaced_class: None,
        weakly_referable: false,
        frozen: false,
        free_variables: Vec::new(),
        default_arguments: Vec::new(),
        details: Vec::new(),
    }
}

impl Inspector {
    /// What an object is.
    pub(super) fn kind(&self, object: &Bound<'_, PyAny>) -> ObjectKind {
        // SAFETY: attached, and the object and its type are alive.
        unsafe { self.builtins.kind(pyo3::ffi::Py_TYPE(object.as_ptr())) }
    }

    fn names_of(&self, object: &Bound<'_, PyAny>, targets: &[usize]) -> Vec<ReferenceName> {
        crate::capture::name_references(&self.builtins, self.kind(object), object, targets)
    }
}
