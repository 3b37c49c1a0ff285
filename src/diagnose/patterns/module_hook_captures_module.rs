//! # Module hook captures the module
//!
//! A hook that is registered on an `nn.Module` is a closure or a bound method that leads back to the
//! module: it captures the module itself, or an object that owns it.
//!
//! **Why it leaks.** The module keeps its hooks in a dict (`_forward_hooks` and similar) for as long as
//! it lives; the hook keeps what it captures. If that is the module, or leads to it, neither is freed
//! before a collection, and neither are the parameters.
//!
//! ```python
//! class Block(nn.Module):
//!     def __init__(self):
//!         super().__init__()
//!         self.calls = 0
//!         self.register_forward_hook(lambda *_: self.count())
//! ```
//!
//! Instead, use the module that every hook is called with:
//!
//! ```python
//!         self.register_forward_hook(lambda module, *_: module.count())
//! ```
//!
//! For an owner of the module, capture the list or counter that the hook fills, or
//! `weakref.ref(owner)`. Or keep the handle that registration returns, and call its `remove()` when the
//! hook is no longer needed.
//!
//! References: `torch.nn.Module.register_forward_hook`, `torch.utils.hooks.RemovableHandle`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::callback::{callback, steps_from};
use crate::diagnose::case::{Case, CycleStep, short};
use crate::diagnose::remedy::Finding;

/// The module's attribute, and what its hooks are called (`torch/nn/modules/module.py`). They are called with the
/// module as their first argument.
const HOOKS: [(&str, &str); 8] = [
    ("_forward_hooks", "forward hook"),
    ("_forward_pre_hooks", "forward pre-hook"),
    ("_backward_hooks", "backward hook"),
    ("_backward_pre_hooks", "backward pre-hook"),
    ("_state_dict_hooks", "state-dict hook"),
    ("_state_dict_pre_hooks", "state-dict pre-hook"),
    ("_load_state_dict_pre_hooks", LOAD_PRE_HOOK),
    ("_load_state_dict_post_hooks", "load-state-dict post-hook"),
];

/// Only these may be called without the module: `_register_load_state_dict_pre_hook` does so, and
/// `register_load_state_dict_pre_hook` does not.
const LOAD_PRE_HOOK: &str = "load-state-dict pre-hook";

/// The row of [`HOOKS`] that a step uses.
fn hooks(step: &CycleStep<'_>) -> Option<(&'static str, &'static str)> {
    // A tensor keeps its hooks under one of the same names.
    let object = step.object;
    if object.description.kind != ObjectKind::Instance || object.is_tensor {
        return None;
    }
    let ReferenceName::Attribute(attribute) = step.name else {
        return None;
    };
    HOOKS.into_iter().find(|(name, _)| attribute == name)
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let steps = steps_from(case, |step| hooks(step).is_some())?;
    let module = steps.first()?;
    let (attribute, kind) = hooks(module)?;
    let hook = callback(case, &steps)?;
    let class = short(&module.object.description.type_name);
    let own = std::ptr::eq(hook.keeps, module.object);
    let (leads, remedy) = match (own, kind) {
        (true, LOAD_PRE_HOOK) => (
            "the module itself",
            "use the module that `register_load_state_dict_pre_hook` calls a hook with, its first argument, in a \
             function that captures nothing"
                .to_owned(),
        ),
        (true, _) => (
            "the module itself",
            "use the module that the hook is called with, its first argument, in a function that \
             captures nothing"
                .to_owned(),
        ),
        (false, _) => ("which leads back to the module", hook.remedy),
    };
    let finding = Finding::new(format!(
        "A {kind} of `{class}` (in `{attribute}`) is {}, {leads}.",
        hook.text
    ))
    .remedy_of(hook.removes, remedy);
    let register = match attribute {
        "_forward_hooks" => Some("register_forward_hook"),
        "_forward_pre_hooks" => Some("register_forward_pre_hook"),
        _ => None,
    };
    let finding = match (hook.variable, register) {
        (Some(variable), Some(register)) if own => finding.code(
            format!("{variable}.{register}(lambda *args: {variable}.value)"),
            format!("{variable}.{register}(lambda module, *args: module.value)"),
        ),
        _ => finding,
    };
    Some(finding.remedy_of(
        hook.kept_by,
        "call `.remove()` on the handle that its registration returned, when the hook is no longer \
         needed",
    ))
}
