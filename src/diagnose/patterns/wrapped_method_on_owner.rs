//! # Wrapped method stored on its owner
//!
//! An object stores a function that keeps one of the object's own bound methods, in a closure variable,
//! a default argument or an attribute. Often it replaces a method by a wrapped version.
//!
//! **Why it leaks.** The function keeps the bound method, the bound method its object, and the object
//! the function.
//!
//! ```python
//! self.step = timed(self.step)
//! ```
//!
//! Instead, if it wraps a method, apply the decorator in the class, where no instance exists yet:
//!
//! ```python
//! @timed
//! def step(self): ...
//! ```
//!
//! If it is something else, such as a function that ends a subscription, set the attribute to None once
//! it has been called.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, at, bare_name, is_found_by_name, spoken};
use crate::diagnose::remedy::Finding;

/// What to do instead of wrapping a method of each object.
pub(super) const WRAP_IN_CLASS: &str =
    "wrap the function in the class, not the method of each object";

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.extend([
        ObjectKind::Instance,
        ObjectKind::Function,
        ObjectKind::Method,
    ]);
    if !case.only(&kinds) {
        return None;
    }
    let (position, step) = case.find(|step| {
        step.object.description.kind == ObjectKind::Function
            && step.next.description.kind == ObjectKind::Method
    })?;
    let keeps = match step.name {
        ReferenceName::Closure(name) => format!("whose closure variable `{name}` is"),
        ReferenceName::Default(name) => format!("whose default argument `{name}` is"),
        ReferenceName::Attribute(name) => format!("whose `{name}` is"),
        _ => return None,
    };
    let keeper = case.keeper(position)?;
    let method = case.steps().nth((position + 1) % case.cycle.nodes.len())?;
    // Of what other objects keep, such as the callbacks of an `ExitStack`, the class knows nothing.
    if !keeper.is(method.next) {
        return None;
    }
    let name = bare_name(method.object);
    let finding = Finding::new(format!(
        "`{}` {} {}{}, {keeps} the bound method `{name}`, which keeps the object that it is bound \
         to.",
        keeper.name(),
        keeper.verb(),
        spoken(step.object),
        at(step.object),
    ));
    // What has another name may be anything that was given the method, such as what ends a subscription.
    let is_in_its_place = keeper.attribute.trim_start_matches('_') == name.trim_start_matches('_');
    if !is_in_its_place || !keeper.plainly || !keeper.is_own() || !is_found_by_name(method.object) {
        return Some(finding.remedy(keeper.edge, case.removal(keeper.edge)));
    }
    let finding = finding.remedy(keeper.edge, WRAP_IN_CLASS);
    Some(match decorator(&step.object.description.label) {
        Some(decorator) => {
            let attribute = keeper.attribute;
            finding.code(
                format!("self.{attribute} = {decorator}(self.{name})"),
                format!("@{decorator}\ndef {attribute}(self, *args, **kwargs):\n    ..."),
            )
        }
        None => finding,
    })
}

/// `timed` of `function timed.<locals>.wrapper`: the module's function that made the wrapper.
fn decorator(label: &str) -> Option<&str> {
    let (outer, inner) = label.strip_prefix("function ")?.split_once(".<locals>.")?;
    (!outer.contains('.') && !inner.contains('.')).then_some(outer)
}
