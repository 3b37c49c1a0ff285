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
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

pub const PATTERN: Pattern = Pattern {
    name: "exception-on-object",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, step) = case.find(|step| {
        step.object.description.kind == ObjectKind::Exception
            && *step.name == ReferenceName::Attribute("__traceback__".to_owned())
    })?;
    let keeper = case.keeper(position)?;
    let (frame, variable, function) = case.variable_after(position)?;
    let exception = short(&step.object.description.type_name);
    let finding = Finding::new(format!(
        "`{}` keeps {}, whose traceback keeps the frame of `{function}`{} and all its variables; one \
         of them, `{variable}`, {}.",
        keeper.name(),
        a(exception),
        at(frame.object),
        if frame.leads_to(keeper.object) {
            "is the object"
        } else {
            "leads back to the object"
        },
    ));
    if !keeper.is_own() {
        return Some(finding.remedy(keeper.edge, case.removal(keeper.edge)));
    }
    let mut finding = finding.remedy(
        step.edge,
        "store the exception without its traceback, if it is not raised again",
    );
    if keeper.plainly {
        let attribute = keeper.attribute;
        finding = finding.code(
            format!("self.{attribute} = error"),
            format!("self.{attribute} = error.with_traceback(None)"),
        );
    }
    let finding = finding.remedy(
        keeper.edge,
        format!(
            "store the text of the exception in `{}`, if it is not raised again",
            keeper.name()
        ),
    );
    Some(finding.remedy(keeper.edge, case.removal(keeper.edge)))
}
