//! # Data loader callback captures its owner
//!
//! The `collate_fn` or `worker_init_fn` of a `DataLoader` is a closure or a
//! bound method of the object that owns the loader.
//!
//! **Why it leaks.** The owner keeps the loader, the loader its callback, and the callback the owner.
//! Each worker process also gets a copy of all that the callback leads to.
//!
//! ```python
//! self.loader = DataLoader(dataset, collate_fn=lambda batch: batch[0] - self.mean)
//! ```
//!
//! Instead, use a static method or a function at module level, or capture the one value it needs:
//!
//! ```python
//! mean = self.mean
//! self.loader = DataLoader(dataset, collate_fn=lambda batch: batch[0] - mean)
//! ```
//!
//! References: `torch.utils.data.DataLoader`.

use crate::capture::ReferenceName;
use crate::diagnose::callback::{callback, steps_from};
use crate::diagnose::case::{Case, CycleStep, short};
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

/// The parameter of `DataLoader` that a step stands for; iterators keep it with an underscore.
fn parameter<'a>(step: &CycleStep<'a>) -> Option<&'a str> {
    let ReferenceName::Attribute(attribute) = step.name else {
        return None;
    };
    let name = attribute.trim_start_matches('_');
    let of_loader = step
        .object
        .description
        .type_name
        .starts_with("torch.utils.data.");
    (of_loader && matches!(name, "collate_fn" | "worker_init_fn")).then_some(name)
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let steps = steps_from(case, |step| parameter(step).is_some())?;
    let loader = steps.first()?;
    let parameter = parameter(loader)?;
    let function = callback(case, &steps)?;
    let finding = Finding::new(format!(
        "The `{parameter}` of {} is {}, which leads back to it.",
        a(&format!(
            "`{}`",
            short(&loader.object.description.type_name)
        )),
        function.text,
    ));
    Some(finding.remedy_of(function.removes, function.remedy))
}
