//! # Exception keeps its traceback
//!
//! An exception that was caught is kept in a local variable of a function that it passed through.
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
//! Instead, use `del error` (or `error = None`) when done with it, keep `str(e)`, or store
//! `e.with_traceback(None)`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, short};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "exception-keeps-traceback",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let (_, exception) = case.find(|step| {
        step.object.description.kind == ObjectKind::Exception
            && *step.name == ReferenceName::Attribute("__traceback__".to_owned())
    })?;
    let (frame, variable, function) = case.frame_variable()?;
    let class = short(&exception.object.description.type_name);
    let text = format!(
        "The local variable `{variable}` of `{function}`{} leads to a caught {class}, whose \
         traceback keeps that function's frame and all its variables. Delete `{variable}` when the \
         exception has been dealt with, or keep the exception without its traceback.",
        at(frame.object)
    );
    Some(if std::ptr::eq(frame.next, exception.object) {
        Advice::new(
            text,
            format!("except {class} as error:\n    {variable} = error"),
            format!("except {class} as error:\n    {variable} = error.with_traceback(None)"),
        )
    } else {
        Advice::words(text)
    })
}
