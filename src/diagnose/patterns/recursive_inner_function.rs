//! # Recursive inner function
//!
//! A function defined inside another calls itself by name.
//!
//! **Why it leaks.** Its own name is a variable of the enclosing function, so the inner function keeps
//! a cell that refers to it: a cycle of one, with every other variable that it captured.
//!
//! ```python
//! def total(tree, weights):
//!     def visit(node):                   # visit keeps visit, and weights
//!         return node.value * weights + sum(visit(child) for child in node.children)
//!
//!     return visit(tree)
//! ```
//!
//! Instead, use a function at module level or a method, and pass what it needs. A wrapper that keeps
//! attributes on itself (`wrapper.calls += 1`) leaks in the same way: keep them in another object, such
//! as a dictionary that the decorator creates. If nothing calls the inner function once the outer one
//! has ended, `del visit` in a `finally` at the end of that breaks the cycle too.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, bare_name, is_cache};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (_, step) = case.find(|step| step.object.description.kind == ObjectKind::Function)?;
    let ReferenceName::Closure(variable) = step.name else {
        return None;
    };
    // A decorated function is called by the name of what the decorator made.
    let by_cache = match case.cycle.nodes.len() {
        1 => "",
        2 if is_cache(step.next) => " and its `lru_cache`",
        _ => return None,
    };
    let finding = Finding::new(format!(
        "`{}`{} uses itself by {}, so it keeps itself{by_cache} and everything it captured.",
        bare_name(step.object),
        at(step.object),
        if bare_name(step.object) == variable {
            "name".to_owned()
        } else {
            format!("the name `{variable}`")
        },
    ));
    Some(
        finding
            .remedy(
                step.edge,
                format!(
                    "define it at module level and pass it what it needs; or, if it only uses its own \
                     attributes, keep these in another object; or, if nothing calls it once the \
                     enclosing function has ended, delete `{variable}` in a `finally` at the end of that"
                ),
            )
            .code(
                format!("return {variable}(...)"),
                format!("try:\n    return {variable}(...)\nfinally:\n    del {variable}"),
            ),
    )
}
