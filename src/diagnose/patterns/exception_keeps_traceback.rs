//! # Exception keeps its traceback
//!
//! An exception that was caught is kept: in a local variable of a function it passed through, or on
//! an object that such a function uses.
//!
//! **Why it leaks.** An exception refers to its traceback, the traceback to the frame of every function
//! it passed through, and each frame to all its local variables, tensors included. If one of them
//! leads to the exception, all of that is a cycle.
//!
//! ```python
//! error = None
//! try:
//!     step(batch)
//! except RuntimeError as e:
//!     error = e          # frame → error → traceback → frame
//! ```
//!
//! Use instead `del error` (or `error = None`) when done with it, keep `str(e)`, or store
//! `e.with_traceback(None)`.

use super::{Advice, Pattern};
use crate::diagnose::case::{Case, at};
use crate::heap::{ObjectKind, ReferenceName};

pub const PATTERN: Pattern = Pattern {
    name: "exception-keeps-traceback",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let exception = case.step_from(ObjectKind::Exception)?;
    case.step_from(ObjectKind::Traceback)?;
    let frame = case.steps().find(|step| {
        step.object.description.kind == ObjectKind::Frame
            && matches!(step.name, ReferenceName::Local(_))
    })?;
    let ReferenceName::Local(variable) = frame.name else {
        return None;
    };
    let class = &exception.object.description.type_name;
    let function = frame
        .object
        .description
        .label
        .trim_start_matches("frame of ");
    Some(Advice::new(
        format!(
            "The local variable `{variable}` of `{function}`{} leads to a caught {class}, whose \
             traceback keeps that function's frame and all its variables. Delete `{variable}` when \
             the exception has been dealt with, or keep it without its traceback.",
            at(frame.object)
        ),
        format!("except {class} as e:\n    {variable} = e"),
        format!("except {class} as e:\n    {variable} = e.with_traceback(None)"),
    ))
}
