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
//! Instead, use a function at module level or a method, and pass what it needs; or break the cycle
//! with `del inner` at the end of the outer function.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, bare_name};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "recursive-inner-function",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    if case.cycle.nodes.len() != 1 || !case.only(&[ObjectKind::Function]) {
        return None;
    }
    let step = case.steps().next()?;
    let ReferenceName::Closure(variable) = step.name else {
        return None;
    };
    let name = bare_name(step.object);
    Some(Advice::new(
        format!(
            "`{name}`{} uses itself by name, so it keeps itself and everything it captured. Define \
             it at module level and pass it what it needs, or delete `{variable}` at the end of the \
             enclosing function.",
            at(step.object)
        ),
        format!("result = {name}(...)\nreturn result"),
        format!("result = {name}(...)\ndel {variable}\nreturn result"),
    ))
}
