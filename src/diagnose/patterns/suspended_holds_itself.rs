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
//! Instead, call `close()` (for a coroutine: await or cancel it) when it is no longer needed, or do not
//! pass the generator to its own body.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, short};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "suspended-holds-itself",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let (position, step) = case.find(|step| {
        matches!(
            step.object.description.kind,
            ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator
        ) && matches!(step.name, ReferenceName::Local(_))
    })?;
    let ReferenceName::Local(variable) = step.name else {
        return None;
    };
    let label = &step.object.description.label;
    let (end, call) = match step.object.description.kind {
        ObjectKind::Coroutine => ("Await it to its end, or close it", ".close()"),
        ObjectKind::AsyncGenerator => ("Finish it or `await` its `aclose()`", ".aclose()"),
        _ => ("Run it to its end, or `close()` it", ".close()"),
    };
    let text = format!(
        "The {label}{} is suspended, and its local variable `{variable}` leads back to it. {end}, or \
         do not keep it where its own code can see it.",
        at(step.object)
    );
    let wait = if call == ".aclose()" { "await " } else { "" };
    Some(match case.keeper(position) {
        Some(keeper) if keeper.plainly && keeper.is(step.next) && variable == "self" => {
            let made = format!("self.{} = self.{}(...)", keeper.attribute, short(label));
            let closed = format!("{made}\n...\n{wait}self.{}{call}", keeper.attribute);
            Advice::new(text, made, closed)
        }
        _ => Advice::words(text),
    })
}
