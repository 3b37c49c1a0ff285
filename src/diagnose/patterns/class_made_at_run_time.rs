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
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "class-made-at-run-time",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let class = case.step_from(ObjectKind::Class)?;
    Some(Advice {
        text: format!(
            "The {}{} was made at run time. A class is always a cycle (it is in its own __mro__), \
             so what it holds stays alive until the collector runs. Define the class once, at module level, and \
             keep tensors out of its attributes.",
            class.object.description.label,
            at(class.object)
        ),
        before: None,
        after: None,
    })
}
