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
//! Instead, use `del error` (or `error = None`) when the exception is no longer needed, keep `str(e)`, or
//! store `e.with_traceback(None)`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, short};
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

pub const PATTERN: Pattern = Pattern {
    name: "exception-keeps-traceback",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, exception) = case.find(|step| {
        step.object.description.kind == ObjectKind::Exception
            && *step.name == ReferenceName::Attribute("__traceback__".to_owned())
    })?;
    let (frame, variable, function) = case.variable_after(position)?;
    let class = short(&exception.object.description.type_name);
    let plainly = frame.leads_to(exception.object);
    let is_captured = case.is_captured(frame.object, variable);
    let kind = if is_captured { "captured" } else { "local" };
    let finding = Finding::new(format!(
        "The {kind} variable `{variable}` of `{function}`{} {} {}, whose traceback keeps that \
         function's frame and all its variables.",
        at(frame.object),
        if plainly { "is" } else { "leads to" },
        a(class),
    ));
    let mut finding = finding;
    if !is_captured {
        finding = finding.remedy(
            frame.edge,
            format!("delete `{variable}` before `{function}` ends"),
        );
    }
    if plainly && !is_captured {
        finding = finding.code(
            format!("{variable} = error\n..."),
            format!("{variable} = error\ntry:\n    ...\nfinally:\n    del {variable}"),
        );
    }
    Some(finding.remedy(
        exception.edge,
        "keep the exception without its traceback (`error.with_traceback(None)`), if it is not raised again",
    ))
}
