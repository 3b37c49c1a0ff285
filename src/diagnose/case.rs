//! A leak as a pattern looks at it.

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};
use rustc_hash::FxHashSet;

use crate::capture::{ReferenceName, Standing, WeakReferences};
use crate::cpython::{Binding, ENUMERATION, ObjectKind};
use crate::graph::{Cycle, LeakGraph, LeakNode, cannot_be_assigned, of_same_line};
use crate::model::words::a;

/// One leak, ready to be recognised: its graph, the cycle that is shown and the best cut.
pub struct Case<'a> {
    pub graph: &'a LeakGraph,
    pub cycle: &'a Cycle,
    pub cut: Option<EdgeIndex>,
    /// True if more references than that are to be removed.
    pub has_more: bool,
    /// The cuts of the other leaks of the graph.
    pub others: &'a [EdgeIndex],
    /// True if the graph shows that all cuts together free every buffer.
    pub cuts_free: bool,
    /// Whether libraries are known to have stored or made the reference of a step of the cycle.
    pub made_by_library: &'a dyn Fn(usize) -> bool,
    /// What the class of the object at a step of the cycle does with the attribute that it has.
    pub binding: &'a dyn Fn(usize) -> Binding,
}

/// True for a class whose instances are its members, which it keeps.
pub fn is_enumeration(class: &LeakNode) -> bool {
    ENUMERATION.contains(&&*class.description.type_name)
}

/// One step of the cycle: an object, its reference, and the object that it refers to.
#[derive(Clone, Copy)]
pub struct CycleStep<'a> {
    pub object: &'a LeakNode,
    pub name: &'a ReferenceName,
    pub next: &'a LeakNode,
    pub edge: EdgeIndex,
}

impl CycleStep<'_> {
    /// True if the reference is to this very object.
    pub fn leads_to(&self, object: &LeakNode) -> bool {
        std::ptr::eq(self.next, object)
    }
}

/// An instance, and the attribute by which it keeps something.
#[derive(Clone, Copy)]
pub struct Keeper<'a> {
    pub object: &'a LeakNode,
    pub attribute: &'a str,
    /// True if no container stands between: the attribute is what it keeps.
    pub plainly: bool,
    pub edge: EdgeIndex,
    /// The step of the cycle.
    step: usize,
    made_by_library: &'a dyn Fn(usize) -> bool,
}

impl Keeper<'_> {
    /// `Class.attribute`, as a person writes it.
    pub fn name(&self) -> String {
        format!(
            "{}.{}",
            short(&self.object.description.type_name),
            public_name(self.object, self.attribute)
        )
    }

    /// `is` or `contains`.
    pub fn verb(&self) -> &'static str {
        if self.plainly { "is" } else { "contains" }
    }

    /// What it has to do with what is at a position: `is`, `contains`, or that this is its default factory.
    pub fn verb_for(&self, case: &Case<'_>, position: usize) -> &'static str {
        match case.default_factory(position) {
            Some(_) => "has as its default factory",
            None => self.verb(),
        }
    }

    /// True if the class is the program's own code, so that `self.attribute` stands in it: no code of a base class in a
    /// library set it.
    pub fn is_own(&self) -> bool {
        self.is_of_program() && !(self.made_by_library)(self.step)
    }

    /// As [`Keeper::is_own`], also of a class without code, such as a data class: who uses the attribute is not known.
    pub fn is_own_data(&self) -> bool {
        self.is_own() || self.object.description.of_program && !(self.made_by_library)(self.step)
    }

    /// True if the class is the program's own code, and a library set the attribute, which will use it.
    pub fn is_librarys(&self) -> bool {
        self.is_of_program() && (self.made_by_library)(self.step)
    }

    fn is_of_program(&self) -> bool {
        self.object.description.place.is_some() && !self.object.is_library()
    }

    /// True if `node` is the instance itself, not only one like it.
    pub fn is(&self, node: &LeakNode) -> bool {
        std::ptr::eq(self.object, node)
    }
}

impl<'a> Case<'a> {
    /// The steps of the cycle in order.
    pub fn steps(&self) -> impl Iterator<Item = CycleStep<'a>> + '_ {
        self.cycle
            .edges
            .iter()
            .enumerate()
            .map(|(i, &edge)| CycleStep {
                object: self.node(self.cycle.nodes[i]),
                name: &self.graph[edge].name,
                next: self.node(self.cycle.nodes[(i + 1) % self.cycle.nodes.len()]),
                edge,
            })
    }

    fn node(&self, node: NodeIndex) -> &'a LeakNode {
        &self.graph[node]
    }

    /// The first step from an object of the kind.
    pub fn step_from(&self, kind: ObjectKind) -> Option<CycleStep<'a>> {
        self.steps()
            .find(|step| step.object.description.kind == kind)
    }

    /// The position of the first step that fits, and the step.
    pub fn find(&self, fits: impl Fn(&CycleStep<'a>) -> bool) -> Option<(usize, CycleStep<'a>)> {
        self.steps().enumerate().find(|(_, step)| fits(step))
    }

    /// What keeps the object at a position of the cycle: the instance before it, with containers and
    /// partials at most between them, and its attribute; `None` if something else keeps it.
    pub fn keeper(&self, position: usize) -> Option<Keeper<'a>> {
        let steps: Vec<CycleStep<'a>> = self.steps().collect();
        let mut plainly = true;
        for back in 1..=steps.len() {
            let number = (position + steps.len() - back) % steps.len();
            let step = steps[number];
            match (step.object.description.kind, step.name) {
                (_, ReferenceName::Attribute(attribute)) if is_object(step.object) => {
                    return Some(Keeper {
                        object: step.object,
                        attribute,
                        plainly,
                        edge: step.edge,
                        step: number,
                        made_by_library: self.made_by_library,
                    });
                }
                (kind, _)
                    if step.object.stands_for == 0
                        && (kind == ObjectKind::Partial || CONTAINERS.contains(&kind)) =>
                {
                    plainly = false;
                }
                _ => return None,
            }
        }
        None
    }

    /// The step of the cut, if it is a reference of the cycle.
    pub fn cut_step(&self) -> Option<CycleStep<'a>> {
        self.steps().find(|step| Some(step.edge) == self.cut)
    }

    /// The variable of a frame by which what follows a position goes on, if only tracebacks, other exceptions of
    /// a chain and calling frames stand between: the step, the variable and the function.
    pub fn variable_after(&self, position: usize) -> Option<(CycleStep<'a>, &'a str, &'a str)> {
        let steps: Vec<CycleStep<'a>> = self.steps().collect();
        for ahead in 0..steps.len() {
            let step = steps[(position + ahead) % steps.len()];
            match (step.object.description.kind, step.name) {
                (ObjectKind::Frame, ReferenceName::Local(variable)) => {
                    let function = step.object.description.label.as_str();
                    let function = function.strip_prefix("frame of ").unwrap_or(function);
                    return Some((step, variable, function));
                }
                (ObjectKind::Frame | ObjectKind::Traceback | ObjectKind::Exception, _) => {}
                _ if ahead == 0 => {}
                _ => return None,
            }
        }
        None
    }

    /// True if what a reference leads to has a further strong one, which stays: then the reference can be weak.
    ///
    /// The other is followed back to an object from which neither a cut nor this reference takes a holder, and that nothing
    /// else in the graph holds: the program was the holder of such an object. The root of a tree whose leaf alone the
    /// program has goes with the references up.
    pub fn is_kept_otherwise(&self, edge: EdgeIndex) -> bool {
        let Some((_, to)) = self.graph.edge_endpoints(edge) else {
            return false;
        };
        let weak = of_same_line(self.graph, edge);
        let is_cut = |edge: &EdgeIndex| self.others.contains(edge) || Some(*edge) == self.cut;
        let holders = |node: NodeIndex| {
            let edges = self.graph.edges_directed(node, Direction::Incoming);
            edges.map(|edge| (edge.id(), edge.source()))
        };
        let mut seen = FxHashSet::from_iter([to]);
        let mut nodes = vec![to];
        while let Some(node) = nodes.pop() {
            let left = holders(node).filter(|(edge, _)| !weak.contains(edge) && !is_cut(edge));
            let left: Vec<NodeIndex> = left.map(|(_, holder)| holder).collect();
            let is_object = self.graph[node].description.kind == ObjectKind::Instance;
            let is_taken = holders(node).any(|(edge, _)| weak.contains(&edge) || is_cut(&edge));
            if node != to && left.is_empty() && is_object && !is_taken {
                return true;
            }
            nodes.extend(left.into_iter().filter(|&holder| seen.insert(holder)));
        }
        false
    }

    /// What the class of the owner does with an attribute of the cycle.
    pub fn binding_of(&self, edge: EdgeIndex) -> Binding {
        let step = self.cycle.edges.iter().position(|&it| it == edge);
        step.map_or(Binding::Value, self.binding)
    }

    /// How a reference could be weak: what its class needs for that, and a condition, if the graph does not show that
    /// something else keeps the object alive. `None` where there can be no weak reference.
    pub fn weakly(&self, edge: EdgeIndex) -> Option<(String, String)> {
        let (from, to) = self.graph.edge_endpoints(edge)?;
        let node = &self.graph[to];
        if self.binding_of(edge) != Binding::Value {
            return None;
        }
        if cannot_be_assigned(&self.graph[from], &self.graph[edge].name, node)
            && self.graph[from].description.kind != ObjectKind::Tuple
        {
            return None;
        }
        let class = short(&node.description.type_name);
        let is_program = node.description.place.is_some() && !node.is_library();
        let slots = match node.description.weak_references {
            WeakReferences::Taken => String::new(),
            WeakReferences::WithSlot if is_program => {
                format!(
                    " (for which `{class}` needs `__weakref__` in its `__slots__`; in a dataclass, \
                     `weakref_slot=True` adds it)"
                )
            }
            _ => return None,
        };
        let kept = match self.is_kept_otherwise(edge) {
            true => String::new(),
            false => format!(", if something else keeps the {class} alive"),
        };
        // A function may refer weakly to an exception that has it.
        let name = &self.graph[edge].name;
        let is_captured = matches!(name, ReferenceName::Closure(_) | ReferenceName::Default(_));
        let is_own = node.description.kind == ObjectKind::Exception && is_program && is_captured;
        (is_object(node) || is_own).then_some((slots, kept))
    }

    /// A container by its type and, if it has one, its name: ``the dict `state` ``, ``the list `Trainer.losses` ``.
    pub fn container(&self, node: NodeIndex) -> String {
        let kind = noun(&self.graph[node]);
        let mut names = self
            .graph
            .edges_directed(node, Direction::Incoming)
            .filter_map(|edge| {
                let owner = self.node(edge.source());
                match &edge.weight().name {
                    ReferenceName::Attribute(name)
                        if is_object(owner) || owner.description.kind == ObjectKind::Tuple =>
                    {
                        Some(format!("{}.{name}", short(&owner.description.type_name)))
                    }
                    ReferenceName::Closure(name) | ReferenceName::Local(name) => Some(name.clone()),
                    _ => None,
                }
            });
        let first = names.next();
        match first.filter(|first| names.all(|other| other == *first)) {
            Some(name) => format!("the {kind} `{name}`"),
            None => format!("the {kind}"),
        }
    }

    /// True if a variable of a frame is one that its function captures: the calls to come need it.
    pub fn is_captured(&self, frame: &LeakNode, variable: &str) -> bool {
        let label = frame.description.label.as_str();
        let name = label.strip_prefix("frame of ").unwrap_or(label);
        let file = |node: &'_ LeakNode| {
            node.description
                .place
                .as_ref()
                .map(|place| place.file.clone())
        };
        self.graph.edge_references().any(|edge| {
            let function = self.node(edge.source());
            function.description.kind == ObjectKind::Function
                && matches!(&edge.weight().name, ReferenceName::Closure(name) if name == variable)
                && bare_name(function) == short(name)
                && file(function) == file(frame)
        })
    }

    /// True for a variable that an inner function or comprehension uses, also if that is gone: it is in a cell.
    pub fn is_in_cell(&self, variable: EdgeIndex) -> bool {
        let hops = self.graph[variable].through.iter();
        hops.map(|hop| &hop.onwards)
            .any(|name| matches!(name, ReferenceName::Attribute(name) if name == "cell_contents"))
    }

    /// The object before a position of the cycle.
    pub fn before(&self, position: usize) -> &'a LeakNode {
        let length = self.cycle.nodes.len();
        self.node(self.cycle.nodes[(position + length - 1) % length])
    }

    /// The reference to the object at a position of the cycle.
    pub fn edge_before(&self, position: usize) -> EdgeIndex {
        let length = self.cycle.edges.len();
        self.cycle.edges[(position + length - 1) % length]
    }

    /// The reference to what is at a position, if that is a default factory.
    pub fn default_factory(&self, position: usize) -> Option<EdgeIndex> {
        let edge = self.edge_before(position);
        let factory = ReferenceName::Attribute("default_factory".to_owned());
        (self.graph[edge].name == factory).then_some(edge)
    }

    /// The references of an exception on the cycle to its traceback, cause and context.
    pub fn exception_parts(&self, exception: &LeakNode) -> Vec<EdgeIndex> {
        let step = self
            .steps()
            .find(|step| std::ptr::eq(step.object, exception));
        let node = step.and_then(|step| self.graph.edge_endpoints(step.edge));
        let Some((node, _)) = node else {
            return Vec::new();
        };
        let parts = self.graph.edges(node).filter(|edge| {
            matches!(&edge.weight().name, ReferenceName::Attribute(name) if name.starts_with("__"))
        });
        parts.map(|edge| edge.id()).collect()
    }

    /// True if the cycle passes through objects of these kinds only.
    pub fn only(&self, kinds: &[ObjectKind]) -> bool {
        self.cycle.nodes.iter().all(|&node| {
            self.graph[node].stands_for == 0 && kinds.contains(&self.graph[node].description.kind)
        })
    }
}

/// Containers that may stand between an owner and what it owns.
pub const CONTAINERS: [ObjectKind; 5] = [
    ObjectKind::Dict,
    ObjectKind::List,
    ObjectKind::Tuple,
    ObjectKind::Set,
    ObjectKind::Deque,
];

/// True for an instance of a class, also of one that derives from a container's.
pub fn is_object(node: &LeakNode) -> bool {
    let description = &node.description;
    let name = description.type_name.as_str();
    match description.kind {
        ObjectKind::Instance => true,
        // A named tuple's class may have no code of its own.
        ObjectKind::Tuple => description.place.is_some(),
        kind if CONTAINERS.contains(&kind) => {
            !["dict", "list", "set", "frozenset"].contains(&name)
                && !name.starts_with("collections.")
        }
        _ => false,
    }
}

/// The name by which a program sets an attribute. A mock keeps what it is given under names of its own
/// (Lib/unittest/mock.py, `NonCallableMock.__init__`).
pub fn public_name<'a>(owner: &LeakNode, attribute: &'a str) -> &'a str {
    let is_mock = owner.description.type_name.starts_with("unittest.mock.");
    match attribute.strip_prefix("_mock_").filter(|_| is_mock) {
        Some(name @ ("side_effect" | "return_value" | "wraps")) => name,
        _ => attribute,
    }
}

/// The last part of a qualified name: `Model` of `train.main.<locals>.Model`.
pub fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The name of a function or method without what stands around it: `step` of
/// `bound method Model.step`.
pub fn bare_name(node: &LeakNode) -> &str {
    let label = node.description.label.as_str();
    let name = ["function ", "bound method ", "built-in method "]
        .iter()
        .find_map(|what| label.strip_prefix(what));
    short(name.unwrap_or(label))
}

/// True for a bound method that its object finds by its name.
pub fn is_found_by_name(node: &LeakNode) -> bool {
    node.description.standing == Standing::ByName
}

/// True for a function or bound method that stands in a class under its name, and which that keeps.
pub fn is_of_class(node: &LeakNode) -> bool {
    if node.description.kind == ObjectKind::Method {
        return node.description.standing != Standing::Loose;
    }
    let mut parts = node.description.label.rsplit('.');
    let name = parts.next().unwrap_or_default();
    let outer = parts.next();
    name != "<lambda>" && outer.is_some_and(|outer| outer != "<locals>")
}

/// True for what `functools.lru_cache` and `functools.cache` return.
pub fn is_cache(node: &LeakNode) -> bool {
    node.description.type_name == "functools._lru_cache_wrapper"
}

/// How a function can hold a variable weakly instead, as a further sentence without its full stop; nothing where that
/// is impossible.
pub fn or_weakly(case: &Case<'_>, step: &CycleStep<'_>, variable: &str) -> String {
    let Some((slots, kept)) = case.weakly(step.edge) else {
        return String::new();
    };
    let weak = if variable == "ref" { "weak" } else { "ref" };
    let how = match (step.name, variable) {
        (ReferenceName::Default(_), _) => {
            format!("let the default be a `weakref.ref` and use `{variable}()` in the function")
        }
        (_, "self") => {
            "create `ref = weakref.ref(self)` outside the function and call `ref()` in it"
                .to_owned()
        }
        _ => format!(
            "create `{weak} = weakref.ref({variable})` outside the function, once `{variable}` is set, and call \
             `{weak}()` in it"
        ),
    };
    let then = if kept.is_empty() { "" } else { "," };
    format!(". Or{kept}{then} {how}{slots}")
}

/// What an object is, in a word or two.
pub fn noun(node: &LeakNode) -> String {
    match node.description.kind {
        ObjectKind::Function => "function".to_owned(),
        ObjectKind::Method => "bound method".to_owned(),
        ObjectKind::Class => "class".to_owned(),
        ObjectKind::Frame => "frame".to_owned(),
        _ => short(&node.description.type_name).to_owned(),
    }
}

/// ` (file:line)` of an object, or nothing. Where a wrapper is, nobody looks for what it wraps.
pub fn at(node: &LeakNode) -> String {
    let place = node.description.place.as_ref();
    place
        .filter(|_| !node.description.wraps)
        .map_or_else(String::new, |place| {
            let file = place.file.rsplit(['/', '\\']).next().unwrap_or_default();
            format!(" ({file}:{})", place.line)
        })
}

/// As [`spoken`], of one that is known: `the lambda`, `the function 'step'`.
pub fn the(node: &LeakNode) -> String {
    let name = spoken(node);
    let kind = name.strip_prefix("a ").or_else(|| name.strip_prefix("an "));
    kind.map_or(name.clone(), |kind| format!("the {kind}"))
}

/// A callable as a person speaks of it: `a lambda`, `the function 'step'`.
pub fn spoken(node: &LeakNode) -> String {
    let name = bare_name(node);
    match (node.description.kind, name) {
        // What wraps a lambda may have its name.
        (ObjectKind::Function, "<lambda>") if node.is_library() => "a function".to_owned(),
        (ObjectKind::Function, "<lambda>") => "a lambda".to_owned(),
        (ObjectKind::Function, _) if node.description.wraps => format!("a wrapper of `{name}`"),
        (ObjectKind::Function, _) => format!("the function `{name}`"),
        (ObjectKind::Method, _) => format!("the bound method `{name}`"),
        _ => a(short(&node.description.type_name)),
    }
}
