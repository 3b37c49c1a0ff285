//! # Class made at run time
//!
//! A class is defined inside a function, or made with `type(…)`, and holds a tensor as a class
//! attribute or through a method's closure or default argument.
//!
//! **Why it leaks.** Every class is in its own `__mro__`, so every class is a cycle. A class at module
//! level lives as long as the program; one made in a function becomes garbage at each call.
//!
//! ```python
//! def make_lookup(weights):
//!     class Lookup:
//!         table = weights                # waits for the collector with Lookup
//!     return Lookup()
//! ```
//!
//! Instead, use a class at module level, made once, and instance attributes for the tensors.

use std::collections::VecDeque;

use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;
use rustc_hash::FxHashSet;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, at, bare_name, is_cache, is_enumeration, short};
use crate::diagnose::remedy::Finding;
use crate::graph::{LeakNode, is_content};

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let class = case.step_from(ObjectKind::Class)?;
    let label = &class.object.description.label;
    let is_enumeration = is_enumeration(class.object);
    if is_enumeration && let Some(cut) = case.cut.filter(|&cut| is_of_member(case, cut)) {
        let finding = Finding::new(format!(
            "The enumeration {}{} was made at run time. It keeps its members, and each of them keeps it, so what they \
             hold stays alive until the collector runs.",
            short(label.strip_prefix("class ").unwrap_or(label)),
            at(class.object)
        ));
        let finding = finding.remedy(cut, "define it once, at module level");
        return Some(finding.complete());
    }
    // The members of an enumeration are its instances, and live as long as it at module level too.
    if let Some((edge, back)) = way_to_instance(case).filter(|_| !is_enumeration)
        && case.cut.is_none_or(|cut| !is_beside_instances(case, cut))
    {
        let finding = Finding::new(format!(
            "The {}{} was made at run time, and its attribute `{back}` leads back to an instance of it.",
            class.object.description.label,
            at(class.object)
        ));
        // To define it at module level would keep the instance for good.
        let first = case.cut.filter(|&cut| !is_content(case.graph, cut));
        // Of what a method captures, that is what to change.
        let is_captured =
            first.is_some_and(|cut| matches!(case.graph[cut].name, ReferenceName::Closure(_)));
        let way = [edge].into_iter().filter(|_| !is_captured);
        let mut removals: Vec<(EdgeIndex, String)> = first
            .into_iter()
            .chain(way)
            .map(|edge| (edge, removal_of_instance(case, edge, back)))
            .collect();
        removals.dedup_by(|one, other| one.1 == other.1);
        return Some(removals.into_iter().fold(finding, |finding, (edge, text)| {
            finding.remedy_of(removed_with(case, edge), text)
        }));
    }
    let finding = Finding::new(format!(
        "The {}{} was made at run time. A class is always a cycle (it is in its own __mro__), \
         so what it holds stays alive until the collector runs.",
        class.object.description.label,
        at(class.object)
    ));
    let Some(cut) = case.cut else {
        return Some(finding);
    };
    // Another variable with the same memory would keep it as well.
    let is_captured = matches!(case.graph[cut].name, ReferenceName::Closure(_));
    let removal = match is_captured {
        true => format!(
            "{}, nor anything else that has the memory",
            case.removal(cut)
        ),
        false => case.removal(cut),
    };
    // A function that the class uses may keep itself, and so the memory.
    let of_class = case.graph.edge_endpoints(class.edge).map(|(from, _)| {
        let references = case.graph.edges(from);
        references.map(|edge| edge.id()).collect::<Vec<_>>()
    });
    let is_class_alone = of_class.is_some_and(|references| case.is_enough(&references));
    Some(
        match (class.object.is_library() || !is_class_alone, case.has_more) {
            (true, _) => finding.remedy(cut, removal),
            (false, false) => finding.remedy(
                cut,
                format!("define the class once, at module level, or {removal}"),
            ),
            // What a decorator such as `dataclass` derives from an attribute keeps it too.
            (false, true) => finding
                .remedy(cut, "define the class once, at module level")
                .complete(),
        },
    )
}

/// The references that are gone when an attribute keeps no instance: a method stays, and only what its cache has goes.
fn removed_with(case: &Case<'_>, edge: EdgeIndex) -> Vec<EdgeIndex> {
    let target = case.graph.edge_endpoints(edge).map(|(_, target)| target);
    let kept = target.into_iter().flat_map(|it| case.graph.edges(it));
    let (attributes, cached): (Vec<_>, Vec<_>) =
        kept.partition(|it| matches!(it.weight().name, ReferenceName::Attribute(_)));
    let is_cache = attributes
        .iter()
        .any(|it| it.weight().name == ReferenceName::Attribute("__wrapped__".to_owned()));
    match is_cache && !cached.is_empty() {
        true => cached.iter().map(|it| it.id()).collect(),
        false => vec![edge],
    }
}

/// How an attribute of the class lets go of an instance. The class needs its methods.
fn removal_of_instance(case: &Case<'_>, cut: EdgeIndex, attribute: &str) -> String {
    let Some((from, to)) = case.graph.edge_endpoints(cut) else {
        return String::new();
    };
    let (owner, target) = (&case.graph[from], &case.graph[to]);
    let is_container = CONTAINERS.contains(&target.description.kind);
    let method = |method: &str, place: String| {
        format!(
            "let the method `{method}` keep no instance of the class{place}: to cache its results, store them on the \
             instance"
        )
    };
    match (owner.description.kind, &case.graph[cut].name) {
        (ObjectKind::Class, ReferenceName::Attribute(name))
            if target.description.kind == ObjectKind::Function =>
        {
            format!("let the method `{name}` keep no instance of the class")
        }
        (ObjectKind::Class, ReferenceName::Attribute(name)) if is_method(target) => {
            method(name, String::new())
        }
        // Another function may put it there.
        (ObjectKind::Function, ReferenceName::Closure(variable)) if is_container => {
            format!(
                "keep no instance of the class in `{variable}`, which `{}` uses: store what belongs to an instance on \
                 it",
                bare_name(owner)
            )
        }
        (ObjectKind::Class, ReferenceName::Attribute(name)) if is_container => {
            let class = class_name(owner);
            format!(
                "keep no instance of the class in `{class}.{name}`: store what belongs to an instance on it"
            )
        }
        (ObjectKind::Class, ReferenceName::Attribute(name))
            if target.description.kind == ObjectKind::Instance
                && !target.is_tensor
                && name == attribute =>
        {
            format!(
                "let `{}.{name}` keep no instance of the class",
                class_name(owner)
            )
        }
        (ObjectKind::Instance, ReferenceName::Attribute(name)) if is_container => {
            let class = short(&owner.description.type_name);
            format!(
                "keep no instance of the class in `{class}.{name}`: store what belongs to an instance on it"
            )
        }
        _ => case.removal(cut),
    }
}

/// True for a container that a function captures and that leads to no instance of a class that is among the garbage: what
/// it holds, the class holds by itself.
fn is_beside_instances(case: &Case<'_>, cut: EdgeIndex) -> bool {
    let Some((_, container)) = case
        .graph
        .edge_endpoints(cut)
        .filter(|_| is_closure_with_container(case, cut))
    else {
        return false;
    };
    let is_class = |node: NodeIndex| case.graph[node].description.kind == ObjectKind::Class;
    let (mut seen, mut next) = (FxHashSet::from_iter([container]), vec![container]);
    while let Some(node) = next.pop() {
        for edge in case.graph.edges(node) {
            if edge.weight().name == ReferenceName::Type && is_class(edge.target()) {
                return false;
            }
            if seen.insert(edge.target()) {
                next.push(edge.target());
            }
        }
    }
    true
}

/// True for a container that a function captures.
fn is_closure_with_container(case: &Case<'_>, cut: EdgeIndex) -> bool {
    let ends = case.graph.edge_endpoints(cut);
    let is_container =
        ends.is_some_and(|(_, to)| CONTAINERS.contains(&case.graph[to].description.kind));
    is_container && matches!(case.graph[cut].name, ReferenceName::Closure(_))
}

/// True for a function of a class, with or without what wraps it.
fn is_method(node: &LeakNode) -> bool {
    matches!(
        node.description.kind,
        ObjectKind::Function | ObjectKind::Descriptor
    ) || is_cache(node)
}

/// The last part of the name of a class.
fn class_name(class: &LeakNode) -> &str {
    let label = class.description.label.as_str();
    short(label.strip_prefix("class ").unwrap_or(label))
}

/// True for a reference that an enumeration has to its members, or that leads on from there.
fn is_of_member(case: &Case<'_>, edge: EdgeIndex) -> bool {
    let Some((from, to)) = case.graph.edge_endpoints(edge) else {
        return false;
    };
    let (owner, target) = (&case.graph[from], &case.graph[to]);
    let is_class = owner.description.kind == ObjectKind::Class;
    // Names such as `_member_map_` are reserved for what an enumeration keeps of its members (Lib/enum.py).
    let is_reserved = matches!(
        &case.graph[edge].name,
        ReferenceName::Attribute(name)
            if name.starts_with('_') && name.ends_with('_') && !name.starts_with("__")
    );
    !is_class || is_reserved || target.description.kind == ObjectKind::Instance && !target.is_tensor
}

/// The reference by which a class leads to one of its instances, whether or not the cycle passes through that, and its
/// name.
fn way_to_instance<'a>(case: &Case<'a>) -> Option<(EdgeIndex, &'a str)> {
    let is_class = |&node: &NodeIndex| case.graph[node].description.kind == ObjectKind::Class;
    let class = case.cycle.nodes.iter().copied().find(is_class)?;
    // Of the class itself, or of one that derives from it.
    let derives = |other: NodeIndex| {
        other == class || case.graph.edges(other).any(|base| base.target() == class)
    };
    let is_instance = |node: NodeIndex| {
        let mut types = case
            .graph
            .edges(node)
            .filter(|edge| edge.weight().name == ReferenceName::Type);
        case.graph[node].description.kind == ObjectKind::Instance
            && types.any(|edge| derives(edge.target()))
    };
    // The one by which the cycle goes on, if it leads to an instance.
    let on = case.cycle.nodes.iter().position(|&node| node == class);
    let on = on.and_then(|at| case.cycle.edges.get(at).copied());
    if let Some(edge) = on.filter(|_| case.cycle.nodes.iter().any(|&node| is_instance(node)))
        && let ReferenceName::Attribute(name) = &case.graph[edge].name
    {
        return Some((edge, name));
    }
    let mut seen = FxHashSet::from_iter([class]);
    let mut found: Vec<(NodeIndex, EdgeIndex, &str)> = Vec::new();
    let mut next = VecDeque::new();
    for edge in case.graph.edges(class) {
        if let ReferenceName::Attribute(name) = &edge.weight().name
            && !name.starts_with("__")
        {
            next.push_back((edge.target(), edge.id(), name.as_str()));
        }
    }
    while let Some((node, edge, name)) = next.pop_front() {
        if seen.insert(node) {
            found.push((node, edge, name));
            let targets = case.graph.edges(node);
            let targets = targets.filter(|edge| edge.weight().name != ReferenceName::Type);
            next.extend(targets.map(|target| (target.target(), edge, name)));
        }
    }
    let instance = found.into_iter().find(|&(node, ..)| is_instance(node));
    instance.map(|(_, edge, name)| (edge, name))
}
