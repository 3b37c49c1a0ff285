//! # sys.exc_info() kept
//!
//! The result of `sys.exc_info()` is kept in a variable of the function that called it, or on an object
//! that such a function uses.
//!
//! **Why it leaks.** Its third item is the traceback, which keeps the frame of every function that the
//! exception passed through. Each frame keeps its variables, including the one that holds the result.
//!
//! ```python
//! except ValueError:
//!     info = sys.exc_info()      # frame → info → traceback → frame
//! ```
//!
//! Instead, handle the exception inside the `except` block, keep its text (`traceback.format_exc()`), or
//! `del info` when done. See <https://docs.python.org/3/library/sys.html#sys.exc_info>.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, triple) = case.find(|step| {
        step.object.description.kind == ObjectKind::Tuple
            && *step.name == ReferenceName::Index(2)
            && step.next.description.kind == ObjectKind::Traceback
    })?;
    let (frame, variable, function) = case.variable_after(position)?;
    let place = at(frame.object);
    if let Some(keeper) = case.keeper(position) {
        let finding = Finding::new(format!(
            "`{}` keeps a tuple with a traceback, as `sys.exc_info()` returns one, and with it the \
             frame of `{function}`{place} and all its variables.",
            keeper.name(),
        ));
        return Some(if keeper.is_own() {
            finding.remedy(
                keeper.edge,
                format!(
                    "keep the text of the exception instead (`traceback.format_exc()`), if nothing else is needed, or {}",
                    case.removal(keeper.edge)
                ),
            )
        } else {
            finding.remedy(keeper.edge, case.removal(keeper.edge))
        });
    }
    if !frame.leads_to(triple.object) {
        return None;
    }
    let finding = Finding::new(format!(
        "The local variable `{variable}` of `{function}`{place} holds a tuple with a traceback, as \
         `sys.exc_info()` returns one, and the traceback keeps the function's frame and all its \
         variables."
    ));
    let finding = finding.remedy(frame.edge, case.removal(frame.edge));
    Some(match case.is_in_cell(frame.edge) {
        true => finding,
        false => finding.code(
            format!("{variable} = sys.exc_info()\n..."),
            format!("{variable} = sys.exc_info()\ntry:\n    ...\nfinally:\n    del {variable}"),
        ),
    })
}
