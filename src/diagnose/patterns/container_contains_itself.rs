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

use crate::diagnose::case::{CONTAINERS, Case};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "container-contains-itself",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    if !case.only(&CONTAINERS) {
        return None;
    }
    let step = case.steps().last()?;
    Some(Advice {
        text: format!(
            "The {} at {} {} the container that holds it. Store a copy or a key there, or remove \
             the item when it is no longer needed.",
            step.next.description.label,
            step.name,
            if case.cycle.nodes.len() == 1 {
                "is"
            } else {
                "leads back to"
            },
        ),
        before: None,
        after: None,
    })
}
