//! # Objects linked in both directions
//!
//! Two or more objects refer to each other: parent and child, the nodes of a ring or of a doubly
//! linked list.
//!
//! **Why it leaks.** Each keeps the next, and the last keeps the first.
//!
//! ```python
//! child.parent = self
//! ```
//!
//! Instead, set the back reference to None when it is no longer needed, or use a weak reference:
//!
//! ```python
//! child.parent = weakref.ref(self)      # read it with child.parent()
//! ```
//!
//! A weak reference keeps nothing alive: use one only if another reference keeps the object. For
//! several objects, use a list of `weakref.ref`, or a `weakref.WeakSet` in place of a set.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, CycleStep, is_object, noun, short};
use crate::diagnose::remedy::Finding;
use crate::graph::points_back;
use crate::model::words::a;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.push(ObjectKind::Instance);
    let instances = case.steps().filter(has_attributes).count();
    let named = case.steps().all(|step| {
        step.object.stands_for > 0
            || (kinds.contains(&step.object.description.kind)
                && !matches!(step.name, ReferenceName::Unnamed | ReferenceName::Type))
    });
    if instances < 2 || !named {
        return None;
    }
    let cut = case.cut_step().filter(is_attribute)?;
    let types = [cut.object, cut.next].map(|it| it.description.type_name.as_str());
    let (mut owner, mut other) = (noun(cut.object), noun(cut.next));
    if owner == other && types[0] != types[1] {
        [owner, other] = types.map(str::to_owned);
    }
    let finding = Finding::new(match owner == other {
        true => format!(
            "`{}` is another {other}, which leads back to the first.",
            name(&cut)?
        ),
        false => format!(
            "`{}` is {}, which leads back to the {owner}.",
            name(&cut)?,
            a(&other)
        ),
    });
    let mut finding = remedy(case, finding, &cut);
    // In a tree, the way up, which every level has.
    let way_back = case.steps().find(|step| {
        step.edge != cut.edge
            && is_attribute(step)
            && is_object(step.next)
            && is_back(step)
            && !is_back(&cut)
    });
    if let Some(step) = way_back {
        finding = finding.remedy(step.edge, case.removal(step.edge));
    }
    Some(finding)
}

fn is_attribute(step: &CycleStep<'_>) -> bool {
    has_attributes(step) && matches!(step.name, ReferenceName::Attribute(_))
}

/// True for an instance, and for a named tuple whose field goes on.
fn has_attributes(step: &CycleStep<'_>) -> bool {
    let is_tuple = step.object.description.kind == ObjectKind::Tuple;
    is_object(step.object) || is_tuple && matches!(step.name, ReferenceName::Attribute(_))
}

fn is_back(step: &CycleStep<'_>) -> bool {
    matches!(step.name, ReferenceName::Attribute(name) if points_back(name))
}

/// `Class.attribute`.
fn name(step: &CycleStep<'_>) -> Option<String> {
    let ReferenceName::Attribute(attribute) = step.name else {
        return None;
    };
    let class = short(&step.object.description.type_name);
    Some(format!("{class}.{attribute}"))
}

/// Adds what can be done about the reference: by itself, or weak, if its object stays alive then.
fn remedy(case: &Case<'_>, finding: Finding, step: &CycleStep<'_>) -> Finding {
    if !is_object(step.next) {
        return finding.remedy(step.edge, empty(case, step));
    }
    let removal = case.removal(step.edge);
    let Some((slots, kept)) = case.weakly(step.edge) else {
        return finding.remedy(step.edge, removal);
    };
    let finding = finding.remedy(
        step.edge,
        format!("{removal}; or make this reference weak{slots}{kept}"),
    );
    match step.name {
        ReferenceName::Attribute(name) if kept.is_empty() && !step.object.is_library() => finding
            .code(
                format!("self.{name} = other"),
                format!("self.{name} = weakref.ref(other)  # read it with self.{name}()"),
            ),
        _ => finding,
    }
}

/// What can be done about an attribute that is a container of what leads back.
fn empty(case: &Case<'_>, step: &CycleStep<'_>) -> String {
    let ReferenceName::Attribute(attribute) = step.name else {
        return case.removal(step.edge);
    };
    let container = step.next;
    let item = case
        .steps()
        .find(|item| std::ptr::eq(item.object, container));
    let kind = container.description.kind;
    // An `nn.Module` keeps what is assigned to it in dicts of its own.
    let is_registry = matches!(attribute.as_str(), "_modules" | "_parameters" | "_buffers");
    let Some(item) = item.filter(|_| !is_registry) else {
        return case.removal(item.map_or(step.edge, |item| item.edge));
    };
    let is_tuple = kind == ObjectKind::Tuple;
    let removal = match case.is_enough(&[item.edge]) {
        _ if is_tuple => case.removal(step.edge),
        _ if container.description.type_name == "frozenset" => format!(
            "put nothing into the {} that leads back to the {}",
            noun(container),
            noun(step.object)
        ),
        true => format!(
            "remove the {} from the {} when it is no longer needed",
            noun(item.next),
            noun(container)
        ),
        false => format!(
            "remove from the {} what leads back to the {}, when that is no longer needed",
            noun(container),
            noun(step.object)
        ),
    };
    // A library that reads its container expects the objects themselves there.
    // A field of a named tuple would be the one to be weak, and not the tuple.
    let is_named = matches!(item.name, ReferenceName::Attribute(_));
    let weakly = case
        .weakly(item.edge)
        .filter(|_| !step.object.is_library() && !is_named);
    match weakly {
        Some((slots, kept)) => format!("{removal}; or keep weak references there{slots}{kept}"),
        None => removal,
    }
}
