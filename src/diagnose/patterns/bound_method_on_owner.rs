//! # Bound method stored on its owner
//!
//! An object stores one of its own methods, directly or in a container.
//!
//! **Why it leaks.** `self.step` makes a bound method, which refers to `self`. Stored on `self`, it
//! closes a cycle of two objects.
//!
//! ```python
//! class Trainer:
//!     def __init__(self):
//!         self.on_step = self.log
//! ```
//!
//! Instead, store the method's name and look it up when it is called, define `on_step` as a method, or
//! store `weakref.WeakMethod(self.log)`, which does not keep the object alive.

use petgraph::Direction;
use petgraph::graph::EdgeIndex;
use petgraph::visit::EdgeRef;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{
    CONTAINERS, Case, CycleStep, Keeper, at, bare_name, is_found_by_name, is_of_class, noun, short,
    the,
};
use crate::diagnose::remedy::Finding;
use crate::model::words::all_of;

/// True if a container of a class of a library's has the method, such as an event of `sched`: that library calls it.
fn is_called_by_library(case: &Case<'_>, position: usize) -> bool {
    let container = &case.before(position).description;
    let is_plain = ["dict", "list", "set", "tuple"].contains(&&*container.type_name);
    let is_of_program = container.place.is_some() && !case.before(position).is_library();
    let is_standard =
        container.type_name.starts_with("collections.") || !container.type_name.contains('.');
    CONTAINERS.contains(&container.kind) && !is_plain && !is_of_program && !is_standard
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.extend([
        ObjectKind::Instance,
        ObjectKind::Method,
        ObjectKind::BuiltinFunction,
    ]);
    if !case.only(&kinds) {
        return None;
    }
    let is_method = |kind| matches!(kind, ObjectKind::Method | ObjectKind::BuiltinFunction);
    let (position, method) = case.find(|step| is_method(step.object.description.kind))?;
    if *method.name != ReferenceName::Attribute("__self__".to_owned()) {
        return None;
    }
    let keeper = case.keeper(position)?;
    let attribute = keeper.attribute;
    let name = bare_name(method.object);
    let own = keeper.is(method.next);
    let verb = keeper.verb_for(case, position);
    let finding = Finding::new(format!(
        "`{}` {verb} `{name}`, a bound method, which keeps the object that it is bound to{}.",
        keeper.name(),
        if own {
            ""
        } else {
            ", and that leads back to the owner"
        },
    ));
    if let Some(factory) = case.default_factory(position) {
        let remedy = "use a default factory that does not refer to the object";
        return Some(finding.remedy(factory, remedy));
    }
    if own && keeper.plainly && keeper.is_own() && is_found_by_name(method.object) {
        if attribute == name {
            let remedy = "leave out this assignment: the object finds the method of its class by the same name";
            return Some(finding.remedy(keeper.edge, remedy));
        }
        let remedy = "look the method up when it is called, by its name";
        return Some(finding.remedy(keeper.edge, remedy).code(
            format!("self.{attribute} = self.{name}"),
            format!(
                "def {attribute}(self, *args, **kwargs):\n    return self.{name}(*args, **kwargs)"
            ),
        ));
    }
    // What calls it is not known to be the program's, so the callback has to stay one.
    match keeper.is_librarys() || !keeper.is_own() && !own {
        true => Some(replaced(case, &keeper, position, &method, finding)),
        false => Some(removed(case, &keeper, position, &method, finding)),
    }
}

/// The remedy where the callback has to stay one: another function in its place.
fn replaced(
    case: &Case<'_>,
    keeper: &Keeper<'_>,
    position: usize,
    method: &CycleStep<'_>,
    finding: Finding,
) -> Finding {
    let class = short(&method.next.description.type_name);
    let weakly = case
        .weakly(method.edge)
        .map_or_else(String::new, |(slots, kept)| {
            format!(", or that holds it through `weakref.ref`{slots}{kept}")
        });
    let remedy = format!("use a function that does not need the {class}{weakly}");
    match keeper.plainly {
        true => finding
            .remedy_of(references_to(case, keeper.edge), remedy)
            .remedy(keeper.edge, case.removal(keeper.edge)),
        false => finding.remedy_of(references_to(case, case.edge_before(position)), remedy),
    }
}

/// The reference to a method, first, and all others to the same one: another function is in the place of all.
fn references_to(case: &Case<'_>, edge: EdgeIndex) -> Vec<EdgeIndex> {
    let target = case.graph.edge_endpoints(edge).map(|(_, target)| target);
    let all = target.into_iter().flat_map(|target| {
        let referrers = case.graph.edges_directed(target, Direction::Incoming);
        referrers.map(|it| it.id())
    });
    let others = all.filter(|&other| other != edge);
    std::iter::once(edge).chain(others).collect()
}

/// The remedy where the program has stored the method: it is removed, or held weakly.
fn removed(
    case: &Case<'_>,
    keeper: &Keeper<'_>,
    position: usize,
    method: &CycleStep<'_>,
    finding: Finding,
) -> Finding {
    // A `WeakMethod` holds the function weakly, too.
    let weakly = case
        .weakly(method.edge)
        .filter(|_| is_of_class(method.object) && case.is_enough(&[case.edge_before(position)]))
        .filter(|_| !is_called_by_library(case, position))
        .map_or_else(String::new, |(slots, kept)| {
            format!(
                "; or store a `weakref.WeakMethod` of it, and call what that returns{slots}{kept}"
            )
        });
    let others = callbacks_beside(case, position);
    if !others.is_empty() {
        let (edges, names): (Vec<EdgeIndex>, Vec<String>) = others.into_iter().unzip();
        let all = all_of(&counted(names));
        let remedy = format!("remove {all} from it, when they are no longer needed");
        return finding.remedy_of(edges, remedy);
    }
    let container = case.before(position);
    let in_tuple = container.description.kind == ObjectKind::Tuple;
    let remedy = match keeper.plainly || in_tuple {
        true => format!("{}{weakly}", case.removal(keeper.edge)),
        false => format!(
            "remove the method from the {} when it is no longer needed{weakly}",
            noun(container)
        ),
    };
    let removes = match in_tuple {
        true => keeper.edge,
        false => case.edge_before(position),
    };
    finding.remedy(removes, remedy)
}

/// Each name once, with how many times it is there.
fn counted(names: Vec<String>) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let say = |(name, count)| match count {
        1 => name,
        _ => format!("{name} ({count} times)"),
    };
    counts.into_iter().map(say).collect()
}

/// Of so many callbacks in one container at most it is said that all have to go, and tried whether each has.
const TOGETHER: usize = 32;

/// The callbacks in the container of a method, where all of them have to go; the method's own first.
fn callbacks_beside(case: &Case<'_>, position: usize) -> Vec<(EdgeIndex, String)> {
    let own = case.edge_before(position);
    let container = case.graph.edge_endpoints(own).map(|(from, _)| from);
    let is_set = |kind| matches!(kind, ObjectKind::List | ObjectKind::Set | ObjectKind::Deque);
    let container = container.filter(|&node| is_set(case.graph[node].description.kind));
    let Some(container) = container.filter(|_| !case.is_enough(&[own])) else {
        return Vec::new();
    };
    let mut items: Vec<EdgeIndex> = case.graph.edges(container).map(|item| item.id()).collect();
    items.sort_unstable_by_key(|&item| (item != own, item));
    let name = |item: EdgeIndex| {
        let (_, to) = case.graph.edge_endpoints(item)?;
        let callback = &case.graph[to];
        match callback.description.kind {
            ObjectKind::Method => Some((item, format!("`{}`", bare_name(callback)))),
            ObjectKind::Function => Some((item, format!("{}{}", the(callback), at(callback)))),
            _ => None,
        }
    };
    if items.len() > TOGETHER || !case.is_enough(&items) {
        return Vec::new();
    }
    let is_needed = |item: &EdgeIndex| {
        let others = items.iter().copied().filter(|other| other != item);
        !case.is_enough(&others.collect::<Vec<EdgeIndex>>())
    };
    let needed = items.iter().copied().filter(is_needed);
    let named: Option<Vec<_>> = needed.map(name).collect();
    named.unwrap_or_default()
}
