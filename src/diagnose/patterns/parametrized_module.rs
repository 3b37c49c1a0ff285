//! # Parametrized module
//!
//! `torch.nn.utils.parametrize.register_parametrization`, also through
//! `torch.nn.utils.parametrizations` (`weight_norm`, `spectral_norm`, `orthogonal`), puts the module in
//! a cycle.
//!
//! **Why it leaks.** The module gets a class of its own with a property in place of the tensor, and a
//! function of that property captures the module: module → class → property → function → module.
//! PyTorch makes this cycle: every parametrized module that is dropped waits for the collector.
//!
//! Instead, keep one module for the whole program, or remove the parametrization before the module is
//! dropped, which restores its former class:
//!
//! ```python
//! torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
//! ```
//!
//! or run `gc.collect()` after dropping such modules.
//!
//! References: `torch.nn.utils.parametrize`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::callback::steps_from;
use crate::diagnose::case::{Case, short};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    // The class is made by `torch.nn.utils.parametrize._inject_new_class`.
    let steps = steps_from(case, |step| {
        step.object.description.kind == ObjectKind::Class
            && step
                .object
                .description
                .label
                .contains("torch.nn.utils.parametrize.Parametrized")
    })?;
    let class = steps.first()?;
    let ReferenceName::Attribute(tensor) = class.name else {
        return None;
    };
    let module = steps.last()?;
    if class.next.description.kind != ObjectKind::Descriptor || *module.name != ReferenceName::Type
    {
        return None;
    }
    let name = short(&module.object.description.type_name).trim_start_matches("Parametrized");
    Some(Finding::whole(format!(
        "A parametrization of `{tensor}` puts its `{name}` in a cycle: PyTorch gives the module \
             a class of its own, whose property `{tensor}` captures the module. Before the module is \
             dropped, call `torch.nn.utils.parametrize.remove_parametrizations` for each of its \
             parametrized tensors; or keep the module, or run `gc.collect()` after dropping it."
    )))
}
