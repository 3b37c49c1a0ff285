//! # Object refers to itself
//!
//! An object has an attribute that is the object.
//!
//! **Why it leaks.** The attribute counts as a reference, so the count never reaches zero.
//!
//! ```python
//! class Config:
//!     def __init__(self):
//!         self.root = self
//! ```
//!
//! Instead, use `self` where the attribute is read, or a property that returns `self`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, short};
use crate::diagnose::remedy::Finding;
use crate::graph::of_same_line;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    // A container with attributes is an instance of a class that derives from its type.
    let kinds = [&CONTAINERS[..], &[ObjectKind::Instance]].concat();
    if case.cycle.nodes.len() != 1 || !case.only(&kinds) {
        return None;
    }
    let step = case.steps().next()?;
    let ReferenceName::Attribute(name) = step.name else {
        return None;
    };
    let is_written = name.chars().all(|c| c == '_' || c.is_alphanumeric());
    let class = short(&step.object.description.type_name);
    let finding = Finding::new(format!("`{class}.{name}` is the object itself."));
    // What else is stored there is not known: the same line may store another object, such as a parent.
    let is_always_itself = of_same_line(case.graph, step.edge).iter().all(|&edge| {
        let ends = case.graph.edge_endpoints(edge);
        ends.is_some_and(|(from, to)| from == to)
    });
    if step.object.is_library()
        || step.object.description.place.is_none()
        || !is_always_itself
        || !is_written
    {
        return Some(finding.remedy(step.edge, case.removal(step.edge)));
    }
    Some(
        finding
            .remedy(
                step.edge,
                "if it always is, make it a property; or remove it",
            )
            .code(
                format!("self.{name} = self"),
                format!("@property\ndef {name}(self):\n    return self"),
            ),
    )
}
