//! # Optimizer hook captures its owner
//!
//! A hook of an optimizer's step or state dict is a closure or a bound method of the object that owns
//! the optimizer.
//!
//! **Why it leaks.** The optimizer keeps its hooks, the hook its owner, and the owner the optimizer,
//! with all parameters and their state.
//!
//! ```python
//! self.optimizer = SGD(model.parameters(), lr=0.1)
//! self.optimizer.register_step_post_hook(self.count)
//! ```
//!
//! Instead, call the function after `optimizer.step()`, use a hook that uses only the optimizer that it is called
//! with, or `remove()` the handle when training ends.
//!
//! References: `torch.optim.Optimizer.register_step_post_hook`.

use crate::capture::ReferenceName;
use crate::diagnose::callback::{callback, steps_from};
use crate::diagnose::case::{Case, CycleStep, short};
use crate::diagnose::remedy::Finding;

/// The optimizer's attribute and what its hooks are called (`torch/optim/optimizer.py`).
const HOOKS: [(&str, &str); 6] = [
    ("_optimizer_step_pre_hooks", "step pre-hook"),
    ("_optimizer_step_post_hooks", "step post-hook"),
    ("_optimizer_state_dict_pre_hooks", "state-dict pre-hook"),
    ("_optimizer_state_dict_post_hooks", "state-dict post-hook"),
    (
        "_optimizer_load_state_dict_pre_hooks",
        "load-state-dict pre-hook",
    ),
    (
        "_optimizer_load_state_dict_post_hooks",
        "load-state-dict post-hook",
    ),
];

fn kind(step: &CycleStep<'_>) -> Option<(&'static str, &'static str)> {
    let ReferenceName::Attribute(attribute) = step.name else {
        return None;
    };
    HOOKS.into_iter().find(|(name, _)| attribute == name)
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let steps = steps_from(case, |step| kind(step).is_some())?;
    let optimizer = steps.first()?;
    let (attribute, kind) = kind(optimizer)?;
    let hook = callback(case, &steps)?;
    let (leads, remedy) = match std::ptr::eq(hook.keeps, optimizer.object) {
        true => (
            "the optimizer itself",
            "use the optimizer that the hook is called with, its first argument, in a function that captures nothing"
                .to_owned(),
        ),
        false => ("which leads back to the optimizer", hook.remedy),
    };
    let finding = Finding::new(format!(
        "A {kind} of `{}` (in `{attribute}`) is {}, {leads}.",
        short(&optimizer.object.description.type_name),
        hook.text,
    ));
    Some(finding.remedy_of(hook.removes, remedy).remedy_of(
        hook.kept_by,
        "call `.remove()` on the handle that its registration returned, when training ends",
    ))
}
