//! # Bound method stored on its owner
//!
//! An object stores one of its own methods, plain or in a container.
//!
//! **Why it leaks.** `self.step` makes a bound method, which refers to `self`. Stored on `self`, it
//! closes a cycle of two.
//!
//! ```python
//! class Trainer:
//!     def __init__(self):
//!         self.on_step = self.log
//! ```
//!
//! Instead, store the method's name and look it up when it is called, define `on_step` as a method, or
//! store `weakref.WeakMethod(self.log)`.

use super::{Advice, Pattern};
use crate::diagnose::case::{CONTAINERS, Case, bare_name};
use crate::heap::{ObjectKind, ReferenceName};

pub const PATTERN: Pattern = Pattern {
    name: "bound-method-on-owner",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.extend([ObjectKind::Instance, ObjectKind::Method]);
    if !case.only(&kinds) {
        return None;
    }
    let (position, method) =
        case.find(|step| step.object.description.kind == ObjectKind::Method)?;
    if *method.name != ReferenceName::Attribute("__self__".to_owned()) {
        return None;
    }
    let keeper = case.keeper(position)?;
    let attribute = keeper.attribute;
    let name = bare_name(method.object);
    let own = keeper.is(method.next);
    let factory = case
        .steps()
        .any(|step| *step.name == ReferenceName::Attribute("default_factory".to_owned()));
    let referable = method.next.description.weakly_referable;
    let text = format!(
        "`{}` {} `{name}`, a bound method, which keeps the object that it is bound to{}. {}",
        keeper.name(),
        if keeper.plainly { "is" } else { "contains" },
        if own {
            ""
        } else {
            ", and that leads back to the owner"
        },
        if factory {
            "Use a default factory that does not refer to the object."
        } else if keeper.plainly && referable {
            "Store a `weakref.WeakMethod`, or look the method up when it is called."
        } else if keeper.plainly {
            "Look the method up when it is called."
        } else {
            "Remove it when it is no longer needed, or store a function that does not refer to the \
             object, or only weakly."
        },
    );
    Some(if own && keeper.plainly && referable {
        Advice::new(
            text,
            format!("self.{attribute} = self.{name}"),
            format!(
                "self.{attribute} = weakref.WeakMethod(self.{name})  # call self.{attribute}()(...)"
            ),
        )
    } else {
        Advice::words(text)
    })
}
