//! # functools.partial keeps its owner
//!
//! An object stores a `functools.partial` of one of its own methods, or one that has the object among
//! its arguments.
//!
//! **Why it leaks.** A partial refers to its function and to its arguments; a bound method refers to its
//! object.
//!
//! ```python
//! self.draw = partial(self._draw, top_k)
//! ```
//!
//! Instead, use a method:
//!
//! ```python
//! def draw(self):
//!     return self._draw(self.top_k)
//! ```
//!
//! or `partial(function, weakref.proxy(self))` where the object is an argument.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, bare_name};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "partial-keeps-owner",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.extend([
        ObjectKind::Instance,
        ObjectKind::Method,
        ObjectKind::Partial,
    ]);
    if !case.only(&kinds) {
        return None;
    }
    let (position, step) = case.find(|step| step.object.description.kind == ObjectKind::Partial)?;
    let ReferenceName::Attribute(part) = step.name else {
        return None;
    };
    let keeper = case.keeper(position)?;
    let attribute = keeper.attribute;
    let verb = if keeper.plainly { "is" } else { "contains" };
    if part == "func" && step.next.description.kind == ObjectKind::Method {
        let name = bare_name(step.next);
        let text = format!(
            "`{}` {verb} a `functools.partial` of `{name}`, a bound method, which keeps the object \
             that it is bound to. Define a method that calls `{name}` with the arguments.",
            keeper.name()
        );
        let method = case.steps().nth((position + 1) % case.cycle.nodes.len())?;
        return Some(if keeper.plainly && keeper.is(method.next) {
            Advice::new(
                text,
                format!("self.{attribute} = partial(self.{name}, ...)"),
                format!("def {attribute}(self, *args):\n    return self.{name}(..., *args)"),
            )
        } else {
            Advice::words(text)
        });
    }
    let argument = part
        .strip_prefix("keywords['")
        .and_then(|p| p.strip_suffix("']"));
    if !keeper.is(step.next) || (argument.is_none() && !part.starts_with("args[")) {
        return None;
    }
    let given = argument.map_or_else(String::new, |name| format!("{name}="));
    let referable = step.next.description.weakly_referable;
    let text = format!(
        "`{}` {verb} a `functools.partial` that has the object itself as an argument. Pass the \
         values that the function needs{}.",
        keeper.name(),
        if referable {
            ", or a `weakref.proxy`"
        } else {
            ""
        },
    );
    Some(if keeper.plainly && referable {
        Advice::new(
            text,
            format!("self.{attribute} = partial(..., {given}self)"),
            format!("self.{attribute} = partial(..., {given}weakref.proxy(self))"),
        )
    } else {
        Advice::words(text)
    })
}
