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

use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at};
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;

pub const PATTERN: Pattern = Pattern {
    name: "class-made-at-run-time",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Finding> {
    let class = case.step_from(ObjectKind::Class)?;
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
