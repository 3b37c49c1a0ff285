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
//! Instead, use a weak reference for the back reference:
//!
//! ```python
//! child.parent = weakref.ref(self)      # read it with child.parent()
//! ```
//!
//! For several objects, use a `weakref.WeakSet`, a `weakref.WeakValueDictionary` or a list of
//! `weakref.ref`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, short, slots_needed};
use crate::diagnose::patterns::{Advice, Pattern};
use crate::graph::{LeakNode, points_back};

pub const PATTERN: Pattern = Pattern {
    name: "linked-both-ways",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.push(ObjectKind::Instance);
    let instances = case
        .steps()
        .filter(|step| step.object.description.kind == ObjectKind::Instance)
        .count();
    let named = case.steps().all(|step| {
        step.object.stands_for > 0
            || (kinds.contains(&step.object.description.kind)
                && !matches!(step.name, ReferenceName::Unnamed | ReferenceName::Type))
    });
    if instances < 2 || !named {
        return None;
    }
    let (from, name, to) = way_back(case)?;
    let class = short(&from.description.type_name);
    let target = short(&to.description.type_name);
    if to.description.kind != ObjectKind::Instance {
        return Some(many(case, from, name, to));
    }
    let object = class.to_lowercase();
    let slots = slots_needed(to);
    Some(Advice::new(
        format!(
            "`{class}.{name}` refers to an object ({target}) that leads back to it. Make this \
             reference weak{slots}, or set it to None when the object is no longer needed."
        ),
        format!("{object}.{name} = other"),
        format!("{object}.{name} = weakref.ref(other)  # read it with .{name}()"),
    ))
}

/// Advice for an attribute that is a container of what leads back.
fn many(case: &Case<'_>, from: &LeakNode, name: &str, container: &LeakNode) -> Advice {
    let class = short(&from.description.type_name);
    let kept = short(&container.description.type_name);
    let item = case
        .steps()
        .find(|step| std::ptr::eq(step.object, container));
    let known = format!("`{class}.{name}` is a {kept} whose items lead back to the {class}.");
    let done = "or empty it when the object is no longer needed";
    let Some(item) = item.filter(|step| step.next.description.kind == ObjectKind::Instance) else {
        return Advice::words(format!(
            "{known} Store names or indices in it instead of objects, {done}."
        ));
    };
    let slots = slots_needed(item.next);
    let (weak, before, after) = match (container.description.kind, item.name) {
        (ObjectKind::Set, ReferenceName::Member) => (
            "Make it a `weakref.WeakSet`",
            format!("self.{name} = set()"),
            format!("self.{name} = weakref.WeakSet()"),
        ),
        (ObjectKind::Dict, ReferenceName::KeyItself) => (
            "Make it a `weakref.WeakKeyDictionary`",
            format!("self.{name} = {{}}"),
            format!("self.{name} = weakref.WeakKeyDictionary()"),
        ),
        (ObjectKind::Dict, _) => (
            "Make it a `weakref.WeakValueDictionary`",
            format!("self.{name} = {{}}"),
            format!("self.{name} = weakref.WeakValueDictionary()"),
        ),
        (ObjectKind::List | ObjectKind::Deque, _) => (
            "Store a `weakref.ref` to each object in it",
            format!("self.{name}.append(other)"),
            format!("self.{name}.append(weakref.ref(other))  # read it with self.{name}[0]()"),
        ),
        _ => {
            return Advice::words(format!(
                "{known} Store a `weakref.ref` to each object in it{slots}, {done}."
            ));
        }
    };
    Advice::new(format!("{known} {weak}{slots}, {done}."), before, after)
}

/// The attribute to make weak: the cut, or where that is of a container, the only one of the cycle
/// that refers to an object itself. In a tree that is the way up, which every level has.
fn way_back<'a>(case: &Case<'a>) -> Option<(&'a LeakNode, &'a str, &'a LeakNode)> {
    let cut = case.cut?;
    let (from, to) = case.graph.edge_endpoints(cut)?;
    let ReferenceName::Attribute(name) = &case.graph[cut].name else {
        return None;
    };
    let (from, to) = (&case.graph[from], &case.graph[to]);
    if from.description.kind != ObjectKind::Instance {
        return None;
    }
    if points_back(name) {
        return Some((from, name, to));
    }
    let mut direct = case.steps().filter_map(|step| match step.name {
        ReferenceName::Attribute(name)
            if step.object.description.kind == ObjectKind::Instance
                && step.next.description.kind == ObjectKind::Instance =>
        {
            Some((step.object, name.as_str(), step.next))
        }
        _ => None,
    });
    if to.description.kind != ObjectKind::Instance {
        return match (direct.next(), direct.next()) {
            (Some(only), None) => Some(only),
            _ => Some((from, name, to)),
        };
    }
    // In a list the cut of one entry may be the way on; what is to be weak in all is the way back.
    direct
        .find(|(_, name, _)| points_back(name))
        .or(Some((from, name, to)))
}
