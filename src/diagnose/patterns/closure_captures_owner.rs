//! # Closure captures its owner
//!
//! An object stores a lambda or an inner function, and that function uses the object itself: as a
//! variable from around it, or as the default value of an argument.
//!
//! **Why it leaks.** The function keeps every variable it uses from around it, `self` included; the
//! object keeps the function. Neither count ever reaches zero, so both live, with every tensor they
//! hold, until the cyclic collector happens to run.
//!
//! ```python
//! class View:
//!     def __init__(self, dim):
//!         self.dim = dim
//!         self.callback = lambda t: t.view(-1, self.dim)   # keeps self
//! ```
//!
//! Use instead:
//!
//! ```python
//!         self.callback = lambda t: t.view(-1, dim)        # keeps a number
//! ```
//!
//! or a method, or a `weakref.ref(self)` where the function needs the whole object.

use super::{Advice, Pattern};
use crate::diagnose::case::{CONTAINERS, Case, at, short, spoken};
use crate::heap::{ObjectKind, ReferenceName};

pub const PATTERN: Pattern = Pattern {
    name: "closure-captures-owner",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.extend([ObjectKind::Instance, ObjectKind::Function]);
    if !case.only(&kinds) {
        return None;
    }
    let function = case.step_from(ObjectKind::Function)?;
    let (variable, keeps) = match function.name {
        ReferenceName::Closure(variable) => (variable, "captures"),
        ReferenceName::Default(variable) => (variable, "has as a default argument"),
        _ => return None,
    };
    let (owner, attribute) = case.owner()?;
    let class = short(&owner.object.description.type_name);
    let text = format!(
        "`{class}.{attribute}` {} {}{} that {keeps} `{variable}`, {}. Capture the values that the \
         function needs, not `{variable}`; or let it hold `weakref.ref({variable})`.",
        if owner.next.description.kind == ObjectKind::Function {
            "is"
        } else {
            "contains"
        },
        spoken(function.object),
        at(function.object),
        if function.next.description.type_name == owner.object.description.type_name {
            "its owner"
        } else {
            "which leads back to its owner"
        },
    );
    // In a container the function may have got by any call; only an assignment can be rewritten.
    let stored_plainly = owner.next.description.kind == ObjectKind::Function;
    Some(Advice {
        text,
        before: stored_plainly
            .then(|| format!("self.{attribute} = lambda …: … {variable}.value …")),
        after: stored_plainly
            .then(|| format!("value = {variable}.value\nself.{attribute} = lambda …: … value …")),
    })
}
