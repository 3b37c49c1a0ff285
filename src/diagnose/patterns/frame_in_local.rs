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

use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    if !case.only(&[ObjectKind::Frame]) {
        return None;
    }
    let (frame, variable, function) = case.variable_after(0)?;
    let own = frame.leads_to(frame.object);
    let finding = Finding::new(format!(
        "The local variable `{variable}` of `{function}`{} is {}, and with it all variables of the \
         function.",
        at(frame.object),
        if own {
            "the function's own frame: it keeps itself"
        } else {
            "a frame that keeps the function's own"
        },
    ))
    .remedy(frame.edge, case.removal(frame.edge));
    Some(if own && !case.is_in_cell(frame.edge) {
        finding.code(
            format!("{variable} = inspect.currentframe()\n..."),
            format!(
                "{variable} = inspect.currentframe()\ntry:\n    ...\nfinally:\n    del {variable}"
            ),
        )
    } else {
        finding
    })
}
