//! # Autograd context refers back to itself
//!
//! The context of a `torch.autograd.Function` has an attribute that leads back to it: an output of the
//! function, or an object that keeps the context or an output.
//!
//! **Why it leaks.** The context is the `grad_fn` of the function's outputs, so each output keeps it.
//! What is assigned to `ctx.name` is a reference like any other; only `save_for_backward`
//! avoids the reference back from an output.
//!
//! ```python
//! @staticmethod
//! def forward(ctx, x):
//!     ctx.output = x.exp()
//!     return ctx.output
//! ```
//!
//! Use instead:
//!
//! ```python
//!     output = x.exp()
//!     ctx.save_for_backward(output)
//!     return output
//! ```
//!
//! For anything else, store the values that the backward pass needs, not the object that holds them.
//!
//! References: `torch.autograd.function.FunctionCtx.save_for_backward`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::callback::steps_from;
use crate::diagnose::case::{Case, CycleStep, short};
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

/// A context's class is made by `torch.autograd.function.FunctionMeta`, named after the function.
fn is_context(step: &CycleStep<'_>) -> bool {
    let class = &step.object.description.type_name;
    step.object.description.kind == ObjectKind::Instance
        && class.starts_with("torch.autograd.function.")
        && class.ends_with("Backward")
        && matches!(step.name, ReferenceName::Attribute(_))
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let steps = steps_from(case, is_context)?;
    let context = steps.first()?;
    let ReferenceName::Attribute(attribute) = context.name else {
        return None;
    };
    let class = short(&context.object.description.type_name);
    let function = class.strip_suffix("Backward").unwrap_or(class);
    let last = steps.last()?;
    let by_output = last.object.is_buffer && *last.name == ReferenceName::Unnamed;
    if by_output && steps.len() == 2 {
        let what = format!(
            "`ctx.{attribute}` of `{function}` is an output of the function, and the context is that \
             output's `grad_fn`."
        );
        // A second call of `save_for_backward` would replace what the first has saved.
        let remedy = "save it with `ctx.save_for_backward(…)`, in one call with all else that is saved, which avoids the \
                      reference back, and read it from `ctx.saved_tensors`";
        return Some(Finding::new(what).remedy(context.edge, remedy).code(
            format!("ctx.{attribute} = {attribute}"),
            format!("ctx.save_for_backward(..., {attribute})"),
        ));
    }
    let kept = short(&context.next.description.type_name);
    let way = if by_output {
        "leads to an output of the function, whose `grad_fn` is the context"
    } else {
        "leads back to the context"
    };
    let what = format!(
        "`ctx.{attribute}` of `{function}` is {} that {way}.",
        a(kept)
    );
    let remedy = format!(
        "give the context the values that the backward pass needs, not the {kept} that holds them"
    );
    Some(Finding::new(what).remedy(context.edge, remedy))
}
