//! # Exception chain keeps a traceback
//!
//! An exception is kept whose `__context__` or `__cause__` is another exception, and that one still
//! has its traceback.
//!
//! **Why it leaks.** An exception raised while another is handled refers to it by `__context__`, also
//! after `raise … from None`; `raise … from error` sets `__cause__` as well. The other's traceback keeps
//! the frames that it passed through, and their variables. `with_traceback(None)` clears the
//! traceback of one exception only.
//!
//! Instead, keep the text of the exception, or clear all three:
//!
//! ```python
//! self.error = error.with_traceback(None)
//! self.error.__cause__ = self.error.__context__ = None
//! ```

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, short};
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    // The first of a chain is the one that no other exception keeps.
    let steps: Vec<_> = case.steps().collect();
    let position = (0..steps.len()).find(|&i| {
        let before = steps[(i + steps.len() - 1) % steps.len()];
        steps[i].object.description.kind == ObjectKind::Exception
            && before.object.description.kind != ObjectKind::Exception
    })?;
    let first = steps[position];
    let ReferenceName::Attribute(link) = first.name else {
        return None;
    };
    if !matches!(link.as_str(), "__context__" | "__cause__") {
        return None;
    }
    let (frame, variable, function) = case.variable_after(position)?;
    let exception = short(&first.object.description.type_name);
    let other = short(&first.next.description.type_name);
    let keeper = case.keeper(position);
    let owner = match keeper {
        Some(keeper) => format!("`{}`", keeper.name()),
        None => format!(
            "The local variable `{variable}` of `{function}`{}",
            at(frame.object)
        ),
    };
    let finding = Finding::new(format!(
        "{owner} leads to {} whose `{link}` is {}, and the traceback in that chain keeps the frame \
         of `{function}` and all its variables.",
        a(exception),
        a(other),
    ));
    let links = case.exception_parts(first.object);
    let target = match keeper {
        Some(keeper) if keeper.plainly && keeper.is_own() => format!("self.{}", keeper.attribute),
        None if frame.leads_to(first.object) => variable.to_owned(),
        _ => {
            let kept = keeper.map_or(frame.edge, |keeper| keeper.edge);
            return Some(finding.remedy(kept, case.removal(kept)));
        }
    };
    let finding = finding
        .remedy_of(
            links,
            "clear the chain of the exception that is kept, and its traceback",
        )
        .code(
            format!("{target} = error"),
            format!(
                "{target} = error.with_traceback(None)\n\
                 {target}.__cause__ = {target}.__context__ = None"
            ),
        );
    Some(match keeper {
        Some(keeper) => finding.remedy(keeper.edge, "keep its text"),
        None => finding.remedy(frame.edge, case.removal(frame.edge)),
    })
}
