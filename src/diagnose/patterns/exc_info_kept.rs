//! # sys.exc_info() kept
//!
//! The result of `sys.exc_info()` is kept in a variable of the function that asked, or on an object
//! that such a function uses.
//!
//! **Why it leaks.** Its third item is the traceback, which keeps the frame of every function that the
//! exception passed through, and each frame its variables: the one that holds the result, too.
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
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "exc-info-kept",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let (position, _) = case.find(|step| {
        step.object.description.kind == ObjectKind::Tuple
            && *step.name == ReferenceName::Index(2)
            && step.next.description.kind == ObjectKind::Traceback
    })?;
    let (frame, variable, function) = case.frame_variable()?;
    if let Some(keeper) = case.keeper(position) {
        let (name, attribute) = (keeper.name(), keeper.attribute);
        let text = format!(
            "`{name}` keeps a traceback, as `sys.exc_info()` returns it, and with it the frame of \
             `{function}`{} and all its variables. Keep the text of the exception instead.",
            at(frame.object)
        );
        return Some(if keeper.plainly {
            let before = format!("self.{attribute} = ...  # a triple with a traceback");
            Advice::new(
                text,
                before,
                format!("self.{attribute} = traceback.format_exc()"),
            )
        } else {
            Advice::words(text)
        });
    }
    if frame.next.description.kind != ObjectKind::Tuple {
        return None;
    }
    Some(Advice::new(
        format!(
            "The local variable `{variable}` of `{function}`{} holds a traceback, as \
             `sys.exc_info()` returns it, and the traceback keeps the function's frame and all its \
             variables. Delete `{variable}` before the function returns.",
            at(frame.object)
        ),
        format!("{variable} = sys.exc_info()\n..."),
        format!("{variable} = sys.exc_info()\ntry:\n    ...\nfinally:\n    del {variable}"),
    ))
}
