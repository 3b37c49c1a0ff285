//! # Suspended generator or coroutine holds itself
//!
//! A generator, coroutine or asynchronous generator that has not finished has a variable that
//! leads back to it.
//!
//! **Why it leaks.** A suspended function keeps its local variables. If one of them refers to the
//! suspended function, or to an object that keeps it, that is a cycle.
//!
//! ```python
//! class Loader:
//!     def __init__(self):
//!         self.batches = self.read()     # suspended in read(), which keeps self
//! ```
//!
//! Use instead `close()` (for a coroutine: await or cancel it) when it is no longer needed, or
//! do not hand the generator to its own body.

use super::{Advice, Pattern};
use crate::diagnose::case::{Case, at};
use crate::heap::{ObjectKind, ReferenceName};

pub const PATTERN: Pattern = Pattern {
    name: "suspended-holds-itself",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let step = case.steps().find(|step| {
        matches!(
            step.object.description.kind,
            ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator
        ) && matches!(step.name, ReferenceName::Local(_))
    })?;
    let ReferenceName::Local(variable) = step.name else {
        return None;
    };
    let label = &step.object.description.label;
    let end = match step.object.description.kind {
        ObjectKind::Coroutine => "Await it to its end, or close it",
        ObjectKind::AsyncGenerator => "Finish it or `await` its `aclose()`",
        _ => "Run it to its end, or `close()` it",
    };
    Some(Advice {
        text: format!(
            "The {label}{} is suspended, and its local variable `{variable}` leads back to it. \
             {end}, or do not keep it where its own code can see it.",
            at(step.object)
        ),
        before: None,
        after: None,
    })
}
