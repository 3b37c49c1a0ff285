//! # Closure captures its owner
//!
//! An object stores a lambda or an inner function that uses the object itself, as a captured variable
//! or as the default value of an argument.
//!
//! **Why it leaks.** The function keeps every variable that it captures, `self` included, and the object
//! keeps the function. Neither reference count ever reaches zero, so both live, with every tensor that
//! they hold, until the cyclic collector runs.
//!
//! ```python
//! class View:
//!     def __init__(self, dim):
//!         self.dim = dim
//!         self.callback = lambda t: t.view(-1, self.dim)   # keeps self
//! ```
//!
//! Use instead:
//!
//! ```python
//!         self.callback = lambda t: t.view(-1, dim)        # keeps a number
//! ```
//!
//! Where the function calls a method of the object, or needs a value that changes later, let it hold
//! the object weakly. That is right if something else keeps the object alive as long as the function is
//! called:
//!
//! ```python
//!         owner = weakref.ref(self)
//!         self.callback = lambda t: owner().show(t)
//! ```
//!
//! A function that is only called through the object can be a method of its class instead. Do not store
//! the bound method `self.show`, which keeps `self` as well.

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use rustc_hash::FxHashSet;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, at, bare_name, is_cache, or_weakly, spoken};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.extend([
        ObjectKind::Instance,
        ObjectKind::Function,
        ObjectKind::Partial,
    ]);
    if !case.only(&kinds) {
        return None;
    }
    let (position, function) =
        case.find(|step| step.object.description.kind == ObjectKind::Function)?;
    let (variable, keeps, capture) = match function.name {
        ReferenceName::Closure(variable) => (variable, "captures", "capture"),
        ReferenceName::Default(variable) => (variable, "has the default argument", "pass"),
        _ => return None,
    };
    let keeper = case
        .keeper(position)
        .filter(|keeper| !is_cache(keeper.object))?;
    let attribute = keeper.attribute;
    let own = keeper.is(function.next);
    let finding = Finding::new(format!(
        "`{}` {} {}{} that {keeps} `{variable}`, {}{}.",
        keeper.name(),
        keeper.verb_for(case, position),
        spoken(function.object),
        at(function.object),
        if own {
            "its owner"
        } else {
            "which leads back to its owner"
        },
        match others_of_line(case, function.edge) {
            0 => String::new(),
            1 => "; another one of this line does too".to_owned(),
            others => format!("; {others} more of this line do too"),
        },
    ));
    // A library's function captures what it needs.
    if function.object.is_library() {
        return Some(finding.remedy(keeper.edge, case.removal(keeper.edge)));
    }
    let finding = finding.remedy(
        function.edge,
        format!(
            "{capture} the values that the function needs, not `{variable}`, if they never change{}",
            or_weakly(case, &function, variable)
        ),
    );
    let name = bare_name(function.object);
    // A lambda in a container may have got there by any call; only an assignment can be rewritten.
    if !own || !keeper.is_own() || (name == "<lambda>" && !keeper.plainly) {
        return Some(finding);
    }
    let (before, after) = match (function.name, name) {
        (ReferenceName::Default(_), "<lambda>") => (
            format!("self.{attribute} = lambda *args, {variable}=self: {variable}.value"),
            format!("self.{attribute} = lambda *args, value=self.value: value"),
        ),
        (ReferenceName::Default(_), _) => (
            format!("def {name}(*args, {variable}=self):\n    return {variable}.value"),
            format!("def {name}(*args, value=self.value):\n    return value"),
        ),
        (_, "<lambda>") => (
            format!("self.{attribute} = lambda *args: {variable}.value"),
            format!("value = {variable}.value\nself.{attribute} = lambda *args: value"),
        ),
        _ => (
            format!("def {name}(*args):\n    return {variable}.value"),
            format!("value = {variable}.value\n\ndef {name}(*args):\n    return value"),
        ),
    };
    Some(finding.code(before, after))
}

/// How many more functions of the same line are in the same container, or in containers within it, and keep the same.
fn others_of_line(case: &Case<'_>, keeps: EdgeIndex) -> usize {
    let Some((function, kept)) = case.graph.edge_endpoints(keeps) else {
        return 0;
    };
    let here = &case.graph[function].description;
    let containers = containers_of(case, function);
    let functions = case.graph.neighbors_directed(kept, Direction::Incoming);
    let others: FxHashSet<NodeIndex> = functions
        .filter(|&it| {
            let other = &case.graph[it].description;
            it != function
                && other.kind == here.kind
                && other.label == here.label
                && other.place == here.place
                && !containers.is_disjoint(&containers_of(case, it))
        })
        .collect();
    others.len()
}

/// The containers that an object is in, and those that these are in.
fn containers_of(case: &Case<'_>, object: NodeIndex) -> FxHashSet<NodeIndex> {
    let (mut found, mut next) = (FxHashSet::default(), vec![object]);
    while let Some(node) = next.pop() {
        let holders = case.graph.neighbors_directed(node, Direction::Incoming);
        let holders = holders.filter(|&it| CONTAINERS.contains(&case.graph[it].description.kind));
        next.extend(holders.filter(|&it| found.insert(it)));
    }
    found
}
