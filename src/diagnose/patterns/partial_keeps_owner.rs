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
use crate::diagnose::callback::or_proxy;
use crate::diagnose::case::{
    CONTAINERS, Case, CycleStep, Keeper, bare_name, is_found_by_name, noun,
};
use crate::diagnose::patterns::wrapped_method_on_owner::WRAP_IN_CLASS;
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
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
    if part == "func" && step.next.description.kind == ObjectKind::Method {
        return of_method(case, &keeper, position, &step);
    }
    let argument = part
        .strip_prefix("keywords['")
        .and_then(|p| p.strip_suffix("']"));
    let is_argument = argument.is_some() || part.starts_with("args[");
    is_argument.then(|| of_argument(case, &keeper, &step))
}

/// A partial of a bound method.
fn of_method(
    case: &Case<'_>,
    keeper: &Keeper<'_>,
    position: usize,
    step: &CycleStep<'_>,
) -> Option<Finding> {
    let (owner, verb, attribute) = (keeper.name(), keeper.verb(), keeper.attribute);
    let name = bare_name(step.next);
    let method = case.steps().nth((position + 1) % case.cycle.nodes.len())?;
    let own = keeper.is(method.next);
    let finding = Finding::new(format!(
        "`{owner}` {verb} a `functools.partial` of `{name}`, a bound method, which keeps the \
             object that it is bound to{}.",
        if own {
            ""
        } else {
            ", and that leads back to the owner"
        },
    ));
    let is_method = is_found_by_name(step.next);
    Some(if own && is_method && keeper.plainly && keeper.is_own() {
        let remedy = format!("define a method that calls `{name}` with the arguments");
        finding.remedy(keeper.edge, remedy).code(
                format!("self.{attribute} = partial(self.{name}, ...)"),
                format!(
                    "def {attribute}(self, *args, **kwargs):\n    return self.{name}(..., *args, **kwargs)"
                ),
            )
    } else {
        finding.remedy(keeper.edge, case.removal(keeper.edge))
    })
}

/// A partial that leads back through one of its arguments.
fn of_argument(case: &Case<'_>, keeper: &Keeper<'_>, step: &CycleStep<'_>) -> Finding {
    let (owner, verb, attribute) = (keeper.name(), keeper.verb(), keeper.attribute);
    if step.next.description.kind == ObjectKind::Method {
        let name = bare_name(step.next);
        let finding = Finding::new(format!(
            "`{owner}` {verb} a `functools.partial` with the argument `{name}`, a bound method, which keeps the object \
             that it is bound to."
        ));
        let is_in_its_place = keeper.plainly && keeper.is_own() && attribute == name;
        return match is_in_its_place && is_found_by_name(step.next) {
            true => finding.remedy(keeper.edge, WRAP_IN_CLASS),
            false => finding.remedy(keeper.edge, case.removal(keeper.edge)),
        };
    }
    let what = match keeper.is(step.next) {
        true => "has the object itself as an argument".to_owned(),
        false => format!(
            "has {} as an argument, which leads back to the {}",
            a(&noun(step.next)),
            noun(keeper.object)
        ),
    };
    let weakly = or_proxy(case, step);
    let finding = Finding::new(format!(
        "`{owner}` {verb} a `functools.partial` that {what}."
    ));
    match weakly.is_empty() && step.object.description.place.is_none() {
        true => finding.remedy(keeper.edge, case.removal(keeper.edge)),
        false => finding.remedy(
            step.edge,
            format!(
                "pass the values that the function needs instead, if they never change{weakly}"
            ),
        ),
    }
}
