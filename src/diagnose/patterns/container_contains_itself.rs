//! # Container contains itself
//!
//! A list, dict or other container is, directly or through other containers, among its own items.
//!
//! **Why it leaks.** A container refers to its items; here an item leads back to the container.
//!
//! ```python
//! state = {'weights': weights}
//! state['initial'] = state      # state → state
//! ```
//!
//! Instead, use a copy, a key or an index in place of the container, or remove it when done. A dict with
//! `self.__dict__ = self` is such a container, too: define `__getattr__` and `__setattr__` instead.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, CycleStep, noun};
use crate::diagnose::remedy::Finding;
use crate::model::words::{a, capital_a};

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let is_attribute = |step: &CycleStep<'_>| matches!(step.name, ReferenceName::Attribute(name) if name != "__dict__");
    if !case.only(&CONTAINERS) || case.steps().any(|step| is_attribute(&step)) {
        return None;
    }
    let step = match case.cut_step() {
        Some(step) => step,
        None => case.steps().last()?,
    };
    let (owner, item) = (noun(step.object), noun(step.next));
    let is_own_dict = *step.name == ReferenceName::Attribute("__dict__".to_owned());
    if is_own_dict && step.leads_to(step.object) {
        let finding = Finding::new(format!("{} is its own `__dict__`.", capital_a(&owner)));
        let remedy = "define `__getattr__` and `__setattr__` that read and set its items instead";
        return Some(finding.remedy(step.edge, remedy));
    }
    let what = match (step.leads_to(step.object), step.name) {
        (true, name) => format!("{} contains itself, at `{name}`.", capital_a(&owner)),
        (false, ReferenceName::Member) => {
            let (owner, item) = (capital_a(&owner), a(&item));
            format!("{owner} has {item} that leads back to it.")
        }
        (false, name) => {
            let of = a(&owner);
            format!("The {item} at `{name}` of {of} leads back to the {owner}.")
        }
    };
    let finding = Finding::new(what);
    if step.object.description.kind == ObjectKind::Tuple {
        return Some(finding);
    }
    // A copy of another container may lead back as the container does.
    let instead = match step.leads_to(step.object) {
        true => "store a copy there, or ",
        false => "",
    };
    let weakly = case
        .weakly(step.edge)
        .map_or_else(String::new, |(slots, kept)| {
            format!("; or keep a weak reference there{slots}{kept}")
        });
    let remedy = format!("{instead}remove the item when it is no longer needed{weakly}");
    Some(finding.remedy(step.edge, remedy))
}
