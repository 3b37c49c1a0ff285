//! # Mutually recursive inner functions
//!
//! Functions defined inside another function call each other.
//!
//! **Why it leaks.** Each captures the variable that holds the next, and the last the first: a cycle
//! created by each call of the enclosing function, with every other variable they captured.
//!
//! ```python
//! def search(scores):
//!     def even(n): return n == 0 or odd(n - 1)
//!     def odd(n): return n != 0 and even(n - 1)
//! ```
//!
//! Instead, use functions at module level, or methods, and pass what they need. If nothing calls them once the
//! enclosing function has ended, `del` one of them in a `finally` at the end of that.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, bare_name};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    if case.cycle.nodes.len() < 2 || !case.only(&[ObjectKind::Function]) {
        return None;
    }
    let mut ways = Vec::new();
    let mut variable = "";
    for step in case.steps() {
        let ReferenceName::Closure(captured) = step.name else {
            return None;
        };
        let name = bare_name(step.object);
        ways.push(format!("`{name}`{} uses `{captured}`", at(step.object)));
        if variable.is_empty() || Some(step.edge) == case.cut {
            variable = captured;
        }
    }
    let cut = case.cut_step()?;
    let finding = Finding::new(format!(
        "The inner functions keep each other: {}.",
        ways.join(", ")
    ));
    Some(
        finding
            .remedy(
                cut.edge,
                format!(
                    "define them at module level and pass what they need; or, if nothing calls them \
                     once the enclosing function has ended, delete `{variable}` in a `finally` at the end of that"
                ),
            )
            .code(
                "return ...",
                format!("try:\n    return ...\nfinally:\n    del {variable}"),
            ),
    )
}
