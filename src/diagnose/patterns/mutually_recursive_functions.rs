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
//! Instead, use functions at module level, or methods, and pass what they need; or `del` one of them at
//! the end of the enclosing function.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, bare_name};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "mutually-recursive-functions",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    if case.cycle.nodes.len() < 2 || !case.only(&[ObjectKind::Function]) {
        return None;
    }
    let mut variables = Vec::new();
    for step in case.steps() {
        let ReferenceName::Closure(variable) = step.name else {
            return None;
        };
        variables.push(variable);
    }
    let ways: Vec<String> = case
        .steps()
        .zip(&variables)
        .map(|(step, variable)| {
            let name = bare_name(step.object);
            format!("`{name}`{} uses `{variable}`", at(step.object))
        })
        .collect();
    // Of references as good as each other the last is cut.
    let variable = variables.last()?;
    Some(Advice::new(
        format!(
            "The inner functions keep each other: {}. Define them at module level and pass what \
             they need, or delete `{variable}` at the end of the enclosing function.",
            ways.join(", ")
        ),
        "result = ...\nreturn result".to_owned(),
        format!("result = ...\ndel {variable}\nreturn result"),
    ))
}
