//! # Linked both ways
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
//! Use instead a weak reference for the way back:
//!
//! ```python
//! child.parent = weakref.ref(self)      # read it with child.parent()
//! ```

use super::{Advice, Pattern};
use crate::diagnose::case::{CONTAINERS, Case, short};
use crate::heap::{ObjectKind, ReferenceName};

pub const PATTERN: Pattern = Pattern {
    name: "linked-both-ways",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let instances = case
        .steps()
        .filter(|step| step.object.description.kind == ObjectKind::Instance)
        .count();
    let others = case.steps().any(|step| {
        step.object.stands_for == 0
            && step.object.description.kind != ObjectKind::Instance
            && !CONTAINERS.contains(&step.object.description.kind)
    });
    let cut = case.cut?;
    let (from, to) = case.graph.edge_endpoints(cut)?;
    let ReferenceName::Attribute(name) = &case.graph[cut].name else {
        return None;
    };
    if instances < 2 || others || case.graph[from].description.kind != ObjectKind::Instance {
        return None;
    }
    let class = short(&case.graph[from].description.type_name);
    let target = short(&case.graph[to].description.type_name);
    Some(Advice::new(
        format!(
            "`{class}.{name}` leads to a {target} that leads back. Make this way back a weak \
             reference, or set it to None when the object is done with."
        ),
        format!("{}.{name} = other", class.to_lowercase()),
        format!(
            "{}.{name} = weakref.ref(other)  # read it with .{name}()",
            class.to_lowercase()
        ),
    ))
}
