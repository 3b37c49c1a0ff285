//! # Exception stored on an object
//!
//! A caught exception is stored on an object that a function it passed through uses.
//!
//! **Why it leaks.** The exception keeps its traceback, the traceback the frame of the function, and
//! the frame the object (often as `self`), with all other variables of the function.
//!
//! ```python
//! except RuntimeError as error:
//!     self.error = error
//! ```
//!
//! Instead, store the exception without its traceback, or its text:
//!
//! ```python
//! except RuntimeError as error:
//!     self.error = error.with_traceback(None)
//! ```

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, short};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "exception-on-object",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let (position, step) = case.find(|step| {
        step.object.description.kind == ObjectKind::Exception
            && *step.name == ReferenceName::Attribute("__traceback__".to_owned())
    })?;
    let keeper = case.keeper(position)?;
    let (frame, variable, function) = case.frame_variable()?;
    let exception = short(&step.object.description.type_name);
    let text = format!(
        "`{}` keeps a caught {exception}, whose traceback keeps the frame of `{function}`{} and all \
         its variables; one of them, `{variable}`, leads back to the object. Store the exception without its traceback, or its \
         text.",
        keeper.name(),
        at(frame.object)
    );
    let attribute = keeper.attribute;
    Some(if keeper.plainly {
        Advice::new(
            text,
            format!("self.{attribute} = error"),
            format!("self.{attribute} = error.with_traceback(None)"),
        )
    } else {
        Advice::words(text)
    })
}
