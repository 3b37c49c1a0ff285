//! # Class made at run time
//!
//! A class is defined inside a function, or made with `type(…)`, and holds a tensor as a class
//! attribute or through a method's closure or default argument.
//!
//! **Why it leaks.** Every class is in its own `__mro__`, so every class is a cycle. A class at module
//! level lives as long as the program; one made in a function becomes garbage at each call.
//!
//! ```python
//! def make_lookup(weights):
//!     class Lookup:
//!         table = weights                # waits for the collector with Lookup
//!     return Lookup()
//! ```
//!
//! Instead, use a class at module level, made once, and instance attributes for the tensors.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, CycleStep, at};
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;

pub const PATTERN: Pattern = Pattern {
    name: "class-made-at-run-time",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Finding> {
    let class = case.step_from(ObjectKind::Class)?;
    if let Some(back) = way_to_instance(case) {
        let finding = Finding::new(format!(
            "The {}{} was made at run time, and its attribute `{back}` leads back to an instance of it.",
            class.object.description.label,
            at(class.object)
        ));
        // To define it at module level would keep the instance for good.
        return Some(match case.cut {
            Some(cut) => finding.remedy(cut, case.removal(cut)),
            None => finding,
        });
    }
    let finding = Finding::new(format!(
        "The {}{} was made at run time. A class is always a cycle (it is in its own __mro__), \
         so what it holds stays alive until the collector runs.",
        class.object.description.label,
        at(class.object)
    ));
    let Some(cut) = case.cut else {
        return Some(finding);
    };
    let remedy = format!(
        "define the class once, at module level, or {}",
        case.removal(cut)
    );
    Some(finding.remedy(cut, remedy))
}

/// The attribute of the class by which the cycle passes from it to one of its instances.
fn way_to_instance<'a>(case: &Case<'a>) -> Option<&'a str> {
    let is_instance = |step: &CycleStep<'_>| {
        *step.name == ReferenceName::Type && step.object.description.kind == ObjectKind::Instance
    };
    case.steps().find(is_instance)?;
    case.steps().find_map(|step| match step.name {
        ReferenceName::Attribute(name) if step.object.description.kind == ObjectKind::Class => {
            (!name.starts_with("__")).then_some(name.as_str())
        }
        _ => None,
    })
}
