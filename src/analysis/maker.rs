//! Who made the cycles of a leak, asked of its objects while they are there.

use std::hash::{Hash, Hasher};

use petgraph::graph::{EdgeIndex, NodeIndex};
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::Inspector;
use crate::capture::{
    Locals, Made, Makers, Place, ReferenceName, Snapshot, Target, Wanted, binding_of_class,
    is_library_file, method_locals,
};
use crate::cpython::{Binding, ObjectKind, items};
use crate::diagnose::{Diagnosis, Maker, maker};
use crate::graph::{
    Code, Cycle, LeakGraph, LeakNode, LibrarysPart, Way, cycle_through, points_back,
};

/// Of the callables that an object refers to, so many may tell of a module that made its references.
const NEAR_LIMIT: usize = 8;
/// Of the objects that those of a cycle refer to, so many are asked what their classes make.
const PART_LIMIT: usize = 64;
/// Of the references that one line has made, the cycles of so many are asked about.
const ALIKE_LIMIT: usize = 8;
/// Cycles longer than this are not asked about.
const LENGTH_LIMIT: usize = 64;

/// The cycles of one leak, with their objects.
struct Asked<'a, 'py> {
    graph: &'a LeakGraph,
    makers: &'a Makers<'a, 'py>,
    object: &'a dyn Fn(NodeIndex) -> Option<Bound<'py, PyAny>>,
}

impl Inspector {
    /// A hash of what else it may depend on who made the references of a graph: the base classes of its
    /// objects, and the names in a dict of local variables.
    pub(super) fn bases(&self, py: Python<'_>, snapshot: &Snapshot, graph: &LeakGraph) -> u64 {
        let mut hasher = FxHasher::default();
        for node in graph.node_weights() {
            let object = node.object.and_then(|it| snapshot.objects.get(it as usize));
            let Some(object) = object else {
                continue;
            };
            let bound = self.object(py, object.address);
            match object.kind {
                ObjectKind::Instance => {
                    let class = bound.get_type().into_any();
                    let mro = self.builtins.type_mro.get(&class);
                    // A class that is made anew each time has the same bases.
                    for base in mro.as_ref().map_or_else(Vec::new, items).iter().skip(1) {
                        hasher.write_usize(base.as_ptr() as usize);
                    }
                }
                ObjectKind::Dict => {
                    let (names, _) = method_locals(&bound).unzip();
                    names.hash(&mut hasher);
                }
                _ => {}
            }
        }
        hasher.finish()
    }

    /// The code that made a leak's cycle and every other one that has to be cut; `None` if that is
    /// not known.
    pub(super) fn maker(
        &self,
        py: Python<'_>,
        snapshot: &Snapshot,
        graph: &LeakGraph,
        leak: &Diagnosis,
    ) -> Option<Maker> {
        let mut others: Vec<EdgeIndex> = leak.cuts.clone();
        // Where no reference is to be removed by itself, those that are named say nothing of who made the cycle.
        others.retain(|cut| !leak.advice.is_complete && !leak.cycle.edges.contains(cut));
        // Of those that one line has made, some tell as much as all.
        let mut alike: FxHashMap<_, usize> = FxHashMap::default();
        others.retain(|&cut| {
            let owner = graph.edge_endpoints(cut).map(|(from, _)| &graph[from]);
            let owner = owner.map(|it| (&it.description.label, &it.description.place));
            let count = alike.entry((owner, &graph[cut].name)).or_default();
            *count += 1;
            *count <= ALIKE_LIMIT
        });
        let mut cycles = vec![leak.cycle.clone()];
        cycles.extend(others.iter().filter_map(|&cut| cycle_through(graph, cut)));
        let (made, stores_given) = self.makers(py, snapshot, graph, &cycles, |asked| {
            let mut all: Vec<Made> = Vec::new();
            let mut stores_given = false;
            for cycle in &cycles {
                let steps = 0..cycle.nodes.len();
                let made: Vec<Made> = steps.clone().map(|step| asked.made(cycle, step)).collect();
                stores_given |= steps
                    .into_iter()
                    .any(|step| asked.stores_given(cycle, step, &made));
                all.extend(made);
            }
            (all, stores_given)
        })?;
        let edges = cycles.iter().flat_map(|cycle| &cycle.edges);
        let cut: Vec<usize> = edges
            .enumerate()
            .filter_map(|(at, edge)| leak.cuts.contains(edge).then_some(at))
            .collect();
        Some(Maker {
            place: maker(&made, &cut)?,
            stores_given,
        })
    }

    /// What can be asked of the code that made the references of a graph.
    pub(super) fn code_of<'a, 'py>(
        &'a self,
        py: Python<'py>,
        snapshot: &'a Snapshot,
        graph: &'a LeakGraph,
    ) -> impl Code + use<'a, 'py> {
        CodeOf {
            inspector: self,
            py,
            snapshot,
            graph,
        }
    }

    /// What is known of the functions that may have made these cycles; `None` if that would take too long.
    fn makers<'py, R>(
        &self,
        py: Python<'py>,
        snapshot: &Snapshot,
        graph: &LeakGraph,
        cycles: &[Cycle],
        ask: impl FnOnce(&Asked<'_, 'py>) -> R,
    ) -> Option<R> {
        if cycles.iter().any(|cycle| cycle.nodes.len() > LENGTH_LIMIT) {
            return None;
        }
        let object = |node: NodeIndex| {
            let number = graph[node].object? as usize;
            Some(self.object(py, snapshot.objects.get(number)?.address))
        };
        let nodes = || cycles.iter().flat_map(|cycle| cycle.nodes.iter().copied());
        let is_callable = |node: &NodeIndex| {
            use ObjectKind::{Function, Method, Partial};
            matches!(graph[*node].description.kind, Function | Method | Partial)
        };
        let near = || nodes().flat_map(|node| graph.neighbors(node).take(LENGTH_LIMIT));
        let mut callables: Vec<NodeIndex> = nodes().chain(near()).filter(is_callable).collect();
        let mut seen = FxHashSet::default();
        callables.retain(|node| seen.insert(*node));
        callables.truncate(NEAR_LIMIT);
        let mut objects: Vec<_> = nodes().filter_map(object).collect();
        // A dict may be the local variables of a method.
        let is_dict = |node: &NodeIndex| graph[*node].description.kind == ObjectKind::Dict;
        let dicts: Vec<_> = nodes().filter(is_dict).filter_map(object).collect();
        let receivers = dicts.iter().filter_map(method_locals);
        objects.extend(receivers.map(|(_, receiver)| receiver));
        // What an object is made of may have made its references: a trainer's connectors, say.
        let is_part = |node: &NodeIndex| {
            graph[*node].description.kind == ObjectKind::Instance && graph[*node].is_library()
        };
        objects.extend(near().filter(is_part).filter_map(object).take(PART_LIMIT));
        let callables: Vec<_> = callables.into_iter().filter_map(object).collect();
        Some(ask(&Asked {
            graph,
            makers: &Makers::new(&self.builtins, &objects, &callables),
            object: &object,
        }))
    }
}

/// The code that made the references of a graph.
struct CodeOf<'a, 'py> {
    inspector: &'a Inspector,
    py: Python<'py>,
    snapshot: &'a Snapshot,
    graph: &'a LeakGraph,
}

impl CodeOf<'_, '_> {
    /// What is known of each step of a cycle.
    fn of_steps<T>(&self, cycle: &Cycle, ask: impl Fn(&Asked<'_, '_>, usize) -> T) -> Vec<T> {
        let cycles = std::slice::from_ref(cycle);
        let steps = 0..cycle.nodes.len();
        self.inspector
            .makers(self.py, self.snapshot, self.graph, cycles, |asked| {
                steps.map(|step| ask(asked, step)).collect()
            })
            .unwrap_or_default()
    }
}

impl Code for CodeOf<'_, '_> {
    fn librarys_parts(&self, cycle: &Cycle) -> Vec<LibrarysPart> {
        self.of_steps(cycle, |asked, step| asked.librarys_part(cycle, step))
    }

    fn are_stored_by_owner(&self, cycle: &Cycle) -> Vec<bool> {
        self.of_steps(cycle, |asked, step| asked.is_stored_by_owner(cycle, step))
    }

    fn bindings(&self, cycle: &Cycle) -> Vec<Binding> {
        let binding = |(node, edge): (&NodeIndex, &EdgeIndex)| {
            let ReferenceName::Attribute(attribute) = &self.graph[*edge].name else {
                return None;
            };
            let number = self.graph[*node].object? as usize;
            let object = self.snapshot.objects.get(number)?;
            use ObjectKind::{Exception, Instance};
            let object = matches!(object.kind, Instance | Exception)
                .then(|| self.inspector.object(self.py, object.address))?;
            Some(binding_of_class(
                &self.inspector.builtins,
                &object,
                attribute,
            ))
        };
        let steps = cycle.nodes.iter().zip(&cycle.edges);
        steps
            .map(|step| binding(step).unwrap_or(Binding::Value))
            .collect()
    }

    fn ways(&self, cycle: &Cycle) -> Vec<Way> {
        self.of_steps(cycle, |asked, step| asked.way(cycle, step))
    }
}

impl Asked<'_, '_> {
    /// True for an attribute that a function of the owner's class, or of one that it derives from, stores.
    fn is_stored_by_owner(&self, cycle: &Cycle, step: usize) -> bool {
        let ReferenceName::Attribute(attribute) = self.name(cycle, step) else {
            return false;
        };
        let owner = (self.object)(cycle.nodes[step % cycle.nodes.len()]);
        owner.is_some_and(|owner| {
            let class = owner.get_type().into_any();
            self.makers.stores(&class, attribute)
        })
    }

    /// Where an attribute by which one instance refers to another leads.
    fn way(&self, cycle: &Cycle, step: usize) -> Way {
        let ReferenceName::Attribute(attribute) = self.name(cycle, step) else {
            return Way::Unknown;
        };
        use ObjectKind::{Deque, Dict, Exception, Instance, List, Set, Tuple};
        let is_instance = |step| {
            let kind = self.node(cycle, step).description.kind;
            matches!(
                kind,
                Instance | Exception | Dict | List | Set | Deque | Tuple
            )
        };
        let class = |step: usize| {
            let object = (self.object)(cycle.nodes[step % cycle.nodes.len()])?;
            Some(object.get_type().into_any())
        };
        match (class(step), class(step + 1)) {
            (Some(owner), Some(target)) if is_instance(step) && is_instance(step + 1) => {
                match self.makers.leads_back(&owner, &target, attribute) {
                    true => Way::Back,
                    false if self.makers.leads_forth(&owner, &target, attribute) => Way::Forth,
                    false if self.is_wired(cycle, step, attribute) => Way::Back,
                    false => Way::Unknown,
                }
            }
            _ => Way::Unknown,
        }
    }

    /// True if a function sets the attribute after that by which the next object leads on, whose name is no word for an
    /// owner.
    fn is_wired(&self, cycle: &Cycle, step: usize, attribute: &str) -> bool {
        matches!(self.name(cycle, step + 1), ReferenceName::Attribute(forth)
            if !points_back(forth) && self.makers.is_wired(forth, attribute))
    }

    fn node(&self, cycle: &Cycle, step: usize) -> &LeakNode {
        &self.graph[cycle.nodes[step % cycle.nodes.len()]]
    }

    fn name(&self, cycle: &Cycle, step: usize) -> &ReferenceName {
        &self.graph[cycle.edges[step % cycle.edges.len()]].name
    }

    /// Who made the reference of one step of a cycle.
    fn made(&self, cycle: &Cycle, step: usize) -> Made {
        use ObjectKind as K;
        use ReferenceName as N;
        let node = self.node(cycle, step);
        let next = self.node(cycle, step + 1);
        let edge = &self.graph[cycle.edges[step]];
        if node.stands_for > 0 || next.stands_for > 0 {
            return Made::Unknown;
        }
        let object = (self.object)(cycle.nodes[step]);
        let origin = || self.makers.origin(object.as_ref()?);
        let known = |place: Option<Place>| place.map_or(Made::Unknown, Made::By);
        match (node.description.kind, &edge.name) {
            (K::Function, N::Closure(_) | N::Default(_)) => match origin() {
                Some(place) if is_library_file(&place.file) && self.is_anothers(next, &place) => {
                    Made::Given(place)
                }
                place => known(place),
            },
            (K::Frame, _) => {
                let place = object.as_ref();
                let place = place.and_then(|frame| self.makers.origin_of_frame(frame));
                match (&edge.name, place) {
                    (N::Local(_), place) => known(place),
                    (_, Some(place)) if !is_library_file(&place.file) => Made::By(place),
                    _ => Made::Inherent,
                }
            }
            (K::Generator | K::Coroutine | K::AsyncGenerator, N::Local(_)) => {
                known(node.description.place.clone())
            }
            (K::Method | K::Partial, _) => match origin() {
                Some(place) if is_library_file(&place.file) => Made::Given(place),
                Some(place) if !is_passing(&place) => Made::By(place),
                _ => Made::Inherent,
            },
            (K::Class, N::Attribute(_)) if !edge.is_plumbing() && !next.is_plumbing() => {
                match next.description.kind {
                    K::Function => Made::Inherent,
                    _ => Made::Unknown,
                }
            }
            (K::Module, _) | (_, N::Omitted) => Made::Unknown,
            _ if edge.is_plumbing() || is_inherent(node, &edge.name) => Made::Inherent,
            (_, N::Attribute(name)) => self.set(cycle, step, name),
            (kind, name) if is_container(kind) => {
                if self.is_asked_before(cycle, step) {
                    return Made::Inherent;
                }
                match name {
                    N::Key(key) => self.set(cycle, step, key.trim_matches('\'')),
                    _ => Made::Unknown,
                }
            }
            _ => Made::Unknown,
        }
    }

    /// True if the reference of a step is to something that a library may have been given, in an object that it is not seen
    /// to make.
    fn stores_given(&self, cycle: &Cycle, step: usize, made: &[Made]) -> bool {
        let length = made.len();
        let mut before = (1..length).map(|back| &made[(step + length - back) % length]);
        let is_kept_by_library =
            matches!(before.find(|it| **it != Made::Inherent), Some(Made::By(_)));
        let is_seen = || match self.node(cycle, step).description.kind {
            ObjectKind::Method | ObjectKind::Partial => true,
            _ => (self.object)(cycle.nodes[step])
                .is_some_and(|owner| self.makers.are_made_by_library(&owner)),
        };
        matches!(made[step], Made::Given(_)) && !(is_kept_by_library && is_seen())
    }

    /// What part a library has in the reference of a step: in one to a container, whether it stored that; in one at a
    /// number, if it put it there.
    fn librarys_part(&self, cycle: &Cycle, step: usize) -> LibrarysPart {
        let length = cycle.nodes.len();
        let made = match self.name(cycle, step) {
            ReferenceName::Key(key) if self.is_item(cycle, step) => {
                self.set(cycle, step, key.trim_matches('\''))
            }
            _ if self.is_item(cycle, step) && self.is_asked_before(cycle, step) => {
                let mut before = (1..length).map(|back| step + length - back);
                let owner = before.find(|&step| !self.is_item(cycle, step));
                self.made(cycle, owner.unwrap_or(step) % length)
            }
            ReferenceName::Attribute(attribute)
                if self.is_item(cycle, step + 1)
                    && self.node(cycle, step).description.kind == ObjectKind::Instance =>
            {
                self.stored(cycle, step, attribute)
            }
            _ => self.made(cycle, step),
        };
        match made {
            Made::By(place) if is_library_file(&place.file) => LibrarysPart::Made,
            Made::Given(place) if is_library_file(&place.file) => LibrarysPart::Stored,
            _ => LibrarysPart::None,
        }
    }

    /// True for a callable that is not of the same file: what a decorator was given.
    fn is_anothers(&self, node: &LeakNode, place: &Place) -> bool {
        let kind = node.description.kind;
        let is_callable = matches!(
            kind,
            ObjectKind::Function | ObjectKind::Method | ObjectKind::Partial
        );
        let file = node.description.place.as_ref().map(|place| &place.file);
        is_callable && (kind != ObjectKind::Function || file != Some(&place.file))
    }

    /// Who set an attribute, or put something into the container that it is.
    fn set(&self, cycle: &Cycle, step: usize, attribute: &str) -> Made {
        let mut last = step + 1;
        while last < step + cycle.nodes.len() && self.is_item(cycle, last) {
            last += 1;
        }
        let owner = cycle.nodes[step];
        let at = |step: usize| cycle.nodes[step % cycle.nodes.len()];
        let following = (step + 1..step + cycle.nodes.len()).take(4);
        let method = following
            .map(|step| self.node(cycle, step))
            .find(|node| node.description.kind == ObjectKind::Method)
            .map(|node| &*node.description.label)
            .and_then(|label| label.rsplit('.').next());
        let wanted = Wanted {
            attribute,
            may_be_empty: false,
            in_container: last > step + 1,
            to_itself: at(last) == owner,
            leads_back: at(last + 1) == owner
                && self.node(cycle, last).description.kind != ObjectKind::Method,
            method,
            locals: self.locals(cycle, step + 1),
            target: self.target(cycle, last, last > step + 2),
        };
        let object = (self.object)(owner);
        let class = object.map(|object| object.get_type().into_any());
        let is_function = self.node(cycle, step).description.kind == ObjectKind::Function;
        self.makers
            .made(class.as_ref().filter(|_| !is_function), &wanted)
    }

    /// Who stored a container as an attribute, whatever is in it.
    fn stored(&self, cycle: &Cycle, step: usize, attribute: &str) -> Made {
        let wanted = Wanted {
            attribute,
            // That a library's object has containers of its own says nothing of what is in them.
            may_be_empty: !self.node(cycle, step).is_library(),
            in_container: false,
            to_itself: false,
            leads_back: false,
            method: None,
            locals: None,
            target: None,
        };
        let object = (self.object)(cycle.nodes[step]);
        let class = object.map(|object| object.get_type().into_any());
        self.makers.made(class.as_ref(), &wanted)
    }

    /// The object at a step, if it is one of which it can be seen who made it.
    fn target(&self, cycle: &Cycle, step: usize, is_deep: bool) -> Option<Target> {
        use ObjectKind::{Exception, Instance, Method, Partial};
        let object = (self.object)(cycle.nodes[step % cycle.nodes.len()])?;
        match self.node(cycle, step).description.kind {
            Instance | Exception => Some(self.makers.target(&object, is_deep)),
            Method | Partial => {
                let origin = self.makers.origin(&object);
                let is_librarys = origin.is_some_and(|place| is_library_file(&place.file));
                (!is_librarys).then(Target::default)
            }
            _ => None,
        }
    }

    /// The dict at a step, if it may be the local variables of a method.
    fn locals(&self, cycle: &Cycle, step: usize) -> Option<Locals> {
        let ReferenceName::Key(key) = self.name(cycle, step) else {
            return None;
        };
        if self.node(cycle, step).description.kind != ObjectKind::Dict {
            return None;
        }
        let dict = (self.object)(cycle.nodes[step % cycle.nodes.len()])?;
        self.makers.locals(&dict, key.trim_matches('\''))
    }

    /// True if the step is from a container to what is in it.
    fn is_item(&self, cycle: &Cycle, step: usize) -> bool {
        use ReferenceName::{Index, Key, Member};
        is_container(self.node(cycle, step).description.kind)
            && matches!(self.name(cycle, step), Key(_) | Index(_) | Member)
    }

    /// True if the container is an object's attribute, or in one that is.
    fn is_asked_before(&self, cycle: &Cycle, step: usize) -> bool {
        let length = cycle.nodes.len();
        let before = (1..length).map(|back| step + length - back);
        let owner = before.into_iter().find(|&step| !self.is_item(cycle, step));
        owner.is_some_and(|owner| {
            let kind = self.node(cycle, owner).description.kind;
            use ObjectKind::{Exception, Function, Instance};
            let is_object = matches!(kind, Instance | Exception | Function) || is_container(kind);
            is_object && matches!(self.name(cycle, owner), ReferenceName::Attribute(_))
        })
    }
}

fn is_container(kind: ObjectKind) -> bool {
    use ObjectKind::{Deque, Dict, List, Set, Tuple};
    matches!(kind, Dict | List | Tuple | Set | Deque)
}

/// True for references that the interpreter, or `functools.wraps`, makes for every object of the kind.
fn is_inherent(node: &LeakNode, name: &ReferenceName) -> bool {
    use ObjectKind as K;
    let attribute = match name {
        ReferenceName::Attribute(name) => name.as_str(),
        _ => "",
    };
    match node.description.kind {
        K::Traceback | K::Descriptor | K::Cell | K::Code | K::BuiltinFunction | K::Weakref => true,
        K::Class => true,
        K::Generator | K::Coroutine | K::AsyncGenerator => true,
        K::Exception => matches!(attribute, "__traceback__" | "__context__" | "__cause__"),
        _ => attribute == "__wrapped__",
    }
}

/// True for a file that may have been generated: what has one need not be of the program's making.
fn is_passing(place: &Place) -> bool {
    place.file.starts_with('<')
        || std::path::Path::new(&place.file).starts_with(std::env::temp_dir())
}
