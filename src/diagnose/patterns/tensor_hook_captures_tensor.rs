//! # Tensor hook captures the tensor
//!
//! A gradient hook registered with `tensor.register_hook` is a closure or a bound method that leads
//! back to the tensor.
//!
//! **Why it leaks.** The tensor keeps its hooks for as long as it lives, and the hook what it captures.
//!
//! ```python
//! weight.register_hook(lambda grad: grad / weight.numel())
//! ```
//!
//! Instead, read the values beforehand, or `remove()` the handle after the backward pass:
//!
//! ```python
//! count = weight.numel()
//! weight.register_hook(lambda grad: grad / count)
//! ```
//!
//! This pattern covers tensors that only Python holds. A path through a graph that C++ code
//! holds (hooks of a `grad_fn`, of a tensor that another tensor's graph needs, post-accumulate hooks)
//! is invisible to Python's collector: such a cycle is never freed at all.
//!
//! References: `torch.Tensor.register_hook`, `torch.utils.hooks.RemovableHandle`.

use crate::capture::ReferenceName;
use crate::diagnose::callback::{callback, steps_from};
use crate::diagnose::case::{Case, CycleStep};
use crate::diagnose::remedy::Finding;

fn is_hooked(step: &CycleStep<'_>) -> bool {
    step.object.is_tensor
        && matches!(step.name, ReferenceName::Attribute(name) if name == "_backward_hooks")
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let steps = steps_from(case, is_hooked)?;
    let tensor = steps.first()?;
    let hook = callback(case, &steps)?;
    let own = std::ptr::eq(hook.keeps, tensor.object);
    let leads = if own {
        "the tensor itself"
    } else {
        "which leads back to the tensor"
    };
    let finding = Finding::new(format!(
        "A gradient hook of the tensor is {}, {leads}.",
        hook.text
    ))
    .remedy_of(hook.removes, hook.remedy);
    let finding = match hook.variable {
        Some(variable) if own => finding.code(
            format!("{variable}.register_hook(lambda grad: grad / {variable}.numel())"),
            format!(
                "count = {variable}.numel()\n{variable}.register_hook(lambda grad: grad / count)"
            ),
        ),
        _ => finding,
    };
    Some(finding.remedy_of(
        hook.kept_by,
        "call, after the backward pass, `.remove()` on the handle that `register_hook` returned",
    ))
}
