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
use crate::diagnose::case::{Case, short};
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;

pub const PATTERN: Pattern = Pattern {
    name: "refers-to-itself",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Finding> {
    if case.cycle.nodes.len() != 1 || !case.only(&[ObjectKind::Instance]) {
        return None;
    }
    let step = case.steps().next()?;
    let ReferenceName::Attribute(name) = step.name else {
        return None;
    };
    let class = short(&step.object.description.type_name);
    let finding = Finding::new(format!("`{class}.{name}` is the object itself."));
    if step.object.is_library() || step.object.description.place.is_none() {
        return Some(finding.remedy(step.edge, case.removal(step.edge)));
    }
    Some(
        finding
            .remedy(step.edge, "make it a property, or remove it")
            .code(
                format!("self.{name} = self"),
                format!("@property\ndef {name}(self):\n    return self"),
            ),
    )
}
