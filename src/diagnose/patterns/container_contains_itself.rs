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
//! Instead, use a copy, a key or an index in place of the container, or remove it when done.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, noun};
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;
use crate::model::words::{a, capital_a};

pub const PATTERN: Pattern = Pattern {
    name: "container-contains-itself",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Finding> {
    if !case.only(&CONTAINERS) {
        return None;
    }
    let step = match case.cut_step() {
        Some(step) => step,
        None => case.steps().last()?,
    };
    let (owner, item) = (noun(step.object), noun(step.next));
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
    Some(match step.object.description.kind {
        ObjectKind::Tuple => finding,
        _ => finding.remedy(
            step.edge,
            "store a copy or a key there, or remove the item when it is no longer needed",
        ),
    })
}
