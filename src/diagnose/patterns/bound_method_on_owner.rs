//! # Bound method stored on its owner
//!
//! An object stores one of its own methods, plain or in a `functools.partial` or a container.
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
//! Use instead a name and look the method up when it is called, define `on_step` as a method, or store
//! `weakref.WeakMethod(self.log)`.

use super::{Advice, Pattern};
use crate::diagnose::case::{CONTAINERS, Case, short};
use crate::heap::{ObjectKind, ReferenceName};

pub const PATTERN: Pattern = Pattern {
    name: "bound-method-on-owner",
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
    let method = case.step_from(ObjectKind::Method)?;
    if *method.name != ReferenceName::Attribute("__self__".to_owned()) {
        return None;
    }
    let (owner, attribute) = case.owner()?;
    let class = short(&owner.object.description.type_name);
    let name = short(&method.object.description.label);
    Some(Advice::new(
        format!(
            "`{class}.{attribute}` keeps `{name}`, a bound method, and with it the object that it \
             is bound to. Store a `weakref.WeakMethod`, or look the method up when it is called."
        ),
        format!("self.{attribute} = self.{name}"),
        format!("self.{attribute} = weakref.WeakMethod(self.{name})  # call self.{attribute}()(…)"),
    ))
}
