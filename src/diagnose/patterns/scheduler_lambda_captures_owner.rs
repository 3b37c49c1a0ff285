//! # Scheduler lambda captures its owner
//!
//! A function given to a learning-rate scheduler uses the object that owns the scheduler.
//!
//! **Why it leaks.** The owner keeps the scheduler, the scheduler its functions (`lr_lambdas`), and the
//! function the owner: with it the optimizer, the model and all their tensors.
//!
//! ```python
//! self.scheduler = LambdaLR(optimizer, lambda step: min(1.0, step / self.warmup))
//! ```
//!
//! Instead, use a variable, so that the lambda keeps a number:
//!
//! ```python
//! warmup = self.warmup
//! self.scheduler = LambdaLR(optimizer, lambda step: min(1.0, step / warmup))
//! ```
//!
//! References: `torch.optim.lr_scheduler.LambdaLR`.

use crate::capture::ReferenceName;
use crate::diagnose::callback::{callback, steps_from};
use crate::diagnose::case::{Case, CycleStep, short};
use crate::diagnose::remedy::Finding;

fn is_scheduler(step: &CycleStep<'_>) -> bool {
    let names_functions = matches!(
        step.name,
        ReferenceName::Attribute(name)
            if matches!(name.as_str(), "lr_lambdas" | "_scale_fn_custom" | "_anneal_func")
    );
    let class = &step.object.description.type_name;
    // `lr_lambdas` is the name in subclasses too; the others are private to these modules.
    names_functions
        && (class.starts_with("torch.optim.")
            || matches!(step.name, ReferenceName::Attribute(name) if name == "lr_lambdas"))
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let steps = steps_from(case, is_scheduler)?;
    let scheduler = steps.first()?;
    let function = callback(case, &steps)?;
    let finding = Finding::new(format!(
        "A function of the scheduler `{}` is {}, which leads back to the scheduler.",
        short(&scheduler.object.description.type_name),
        function.text,
    ));
    Some(finding.remedy_of(function.removes, function.remedy))
}
