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
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "exception-chain",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
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
    let (frame, variable, function) = case.frame_variable()?;
    let exception = short(&first.object.description.type_name);
    let other = short(&first.next.description.type_name);
    let keeper = case.keeper(position);
    let (owner, target) = match keeper {
        Some(keeper) => (
            format!("`{}`", keeper.name()),
            keeper.plainly.then(|| format!("self.{}", keeper.attribute)),
        ),
        None => (
            format!(
                "The local variable `{variable}` of `{function}`{}",
                at(frame.object)
            ),
            std::ptr::eq(frame.next, first.object).then(|| variable.to_owned()),
        ),
    };
    let text = format!(
        "{owner} leads to a {exception} whose `{link}` is a {other}, and the traceback in that chain \
         keeps the frame of `{function}` and all its variables. Clear the chain of the exception \
         that is kept, or keep its text."
    );
    Some(match target {
        Some(target) => Advice::new(
            text,
            format!("{target} = error"),
            format!(
                "{target} = error.with_traceback(None)\n\
                 {target}.__cause__ = {target}.__context__ = None"
            ),
        ),
        None => Advice::words(text),
    })
}
