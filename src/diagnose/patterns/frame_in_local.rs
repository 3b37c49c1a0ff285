//! # Frame stored in a local
//!
//! A function keeps its own frame (`inspect.currentframe()`, `sys._getframe()`) in a variable.
//!
//! **Why it leaks.** The frame refers to all local variables, and one of them refers to the frame.
//!
//! ```python
//! def log(batch):
//!     frame = inspect.currentframe()     # frame → frame
//!     print(frame.f_lineno, batch.shape)
//! ```
//!
//! Instead, use `try: … finally: del frame`, or read what you need (`frame.f_lineno`) at once.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "frame-in-local",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    if !case.only(&[ObjectKind::Frame]) {
        return None;
    }
    let step = case.steps().next()?;
    let ReferenceName::Local(variable) = step.name else {
        return None;
    };
    let function = step
        .object
        .description
        .label
        .trim_start_matches("frame of ");
    Some(Advice::new(
        format!(
            "The local variable `{variable}` of `{function}`{} holds a frame that holds it in turn, \
             and all other variables of the function. Delete it before the function returns.",
            at(step.object)
        ),
        format!("{variable} = inspect.currentframe()\n..."),
        format!("{variable} = inspect.currentframe()\ntry:\n    ...\nfinally:\n    del {variable}"),
    ))
}
