//! A leak as a pattern looks at it.

use petgraph::graph::{EdgeIndex, NodeIndex};

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::graph::{Cycle, LeakGraph, LeakNode};

/// One leak, ready to be recognised: its graph, the cycle that is shown and the best cut.
pub struct Case<'a> {
    pub graph: &'a LeakGraph,
    pub cycle: &'a Cycle,
    pub cut: Option<EdgeIndex>,
}

/// One step of the cycle: an object, its reference, and the object that it refers to.
#[derive(Clone, Copy)]
pub struct CycleStep<'a> {
    pub object: &'a LeakNode,
    pub name: &'a ReferenceName,
    pub next: &'a LeakNode,
}

/// An instance, and the attribute by which it keeps something.
#[derive(Clone, Copy)]
pub struct Keeper<'a> {
    pub object: &'a LeakNode,
    pub attribute: &'a str,
    /// True if no container stands between: the attribute is what it keeps.
    pub plainly: bool,
}

impl Keeper<'_> {
    /// `Class.attribute`, as a person writes it.
    pub fn name(&self) -> String {
        format!(
            "{}.{}",
            short(&self.object.description.type_name),
            self.attribute
        )
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
            let step = steps[(position + steps.len() - back) % steps.len()];
            match (step.object.description.kind, step.name) {
                (ObjectKind::Instance, ReferenceName::Attribute(attribute)) => {
                    return Some(Keeper {
                        object: step.object,
                        attribute,
                        plainly,
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

    /// The first local variable of a frame on the cycle: the step, the variable and the function.
    pub fn frame_variable(&self) -> Option<(CycleStep<'a>, &'a str, &'a str)> {
        self.steps().find_map(|step| match step.name {
            ReferenceName::Local(variable) if step.object.description.kind == ObjectKind::Frame => {
                let label = &step.object.description.label;
                Some((
                    step,
                    variable.as_str(),
                    label.trim_start_matches("frame of "),
                ))
            }
            _ => None,
        })
    }

    /// The first step from an instance, by an attribute: the owner, as a person sees it.
    pub fn owner(&self) -> Option<(CycleStep<'a>, &'a str)> {
        self.steps().find_map(|step| match step.name {
            ReferenceName::Attribute(name)
                if step.object.description.kind == ObjectKind::Instance =>
            {
                Some((step, name.as_str()))
            }
            _ => None,
        })
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

/// The last part of a qualified name: `Model` of `train.main.<locals>.Model`.
pub fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The name of a function or method without what stands around it: `step` of
/// `bound method Model.step`.
pub fn bare_name(node: &LeakNode) -> &str {
    let label = node.description.label.as_str();
    let name = ["function ", "bound method "]
        .iter()
        .find_map(|what| label.strip_prefix(what));
    short(name.unwrap_or(label))
}

/// `; or let it hold weakref.ref(self)`, for a variable; nothing where a weak reference is impossible,
/// or would die at once.
pub fn or_weakly(node: &LeakNode, variable: &str) -> String {
    let slots = slots_needed(node);
    match node.description.kind {
        ObjectKind::Instance => format!("; or capture `weakref.ref({variable})`{slots}"),
        ObjectKind::Method => format!("; or capture `weakref.WeakMethod({variable})`"),
        _ => String::new(),
    }
}

/// What has to be done before there can be a weak reference to an instance; nothing, mostly.
pub fn slots_needed(node: &LeakNode) -> String {
    let class = short(&node.description.type_name);
    match node.description.weakly_referable {
        true => String::new(),
        false => format!(" (for which `{class}` needs `__weakref__` in its `__slots__`)"),
    }
}

/// ` (file:line)` of an object, or nothing.
pub fn at(node: &LeakNode) -> String {
    node.description
        .place
        .as_ref()
        .map_or_else(String::new, |place| {
            let file = place.file.rsplit(['/', '\\']).next().unwrap_or_default();
            format!(" ({file}:{})", place.line)
        })
}

/// A callable as a person speaks of it: `a lambda`, `the function 'step'`.
pub fn spoken(node: &LeakNode) -> String {
    let name = bare_name(node);
    match (node.description.kind, name) {
        (ObjectKind::Function, "<lambda>") => "a lambda".to_owned(),
        (ObjectKind::Function, _) => format!("the function `{name}`"),
        (ObjectKind::Method, _) => format!("the bound method `{name}`"),
        _ => format!("a {}", short(&node.description.type_name)),
    }
}
