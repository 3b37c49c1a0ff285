//! # Namespace made at run time
//!
//! A function is defined by `exec`, or in a module that was made at run time, and stays in the
//! namespace that it was defined in.
//!
//! **Why it leaks.** Every function refers to its globals (`__globals__`), and these to the function.
//! The namespace of an imported module lives as long as the program; this one becomes garbage, with
//! everything in it.
//!
//! ```python
//! namespace = {"table": table}
//! exec("def scale(x): return x * len(table)", namespace)
//! ```
//!
//! Instead, pass an argument in place of the global, and call `namespace.clear()` when done.

use petgraph::visit::EdgeRef;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, spoken};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (_, step) = case.find(|step| {
        step.object.description.kind == ObjectKind::Function
            && *step.name == ReferenceName::Attribute("__globals__".to_owned())
            && step.next.description.kind == ObjectKind::Dict
    })?;
    if !case.only(&[ObjectKind::Function, ObjectKind::Dict, ObjectKind::Class]) {
        return None;
    }
    let (_, namespace) = case.graph.edge_endpoints(step.edge)?;
    let items = case.graph.edges(namespace).map(|edge| edge.id()).collect();
    let finding = Finding::new(format!(
        "The globals of {}{} are a namespace made at run time, by `exec` or as a module, that leads \
         back to the function.",
        spoken(step.object),
        at(step.object)
    ));
    let remedied = finding.remedy_of(
        items,
        "empty the namespace (`.clear()`) when it is no longer needed, and pass tensors as \
         arguments, not as globals",
    );
    Some(remedied.complete())
}
