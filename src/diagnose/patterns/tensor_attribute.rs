//! # Tensor attribute leads back to the tensor
//!
//! An attribute that was set on a tensor leads back to the tensor: its owner, a record of it, a list
//! that contains it.
//!
//! **Why it leaks.** Tensors take attributes like any Python object and keep what is assigned to them.
//!
//! ```python
//! weight.owner = layer      # and layer.weight is weight
//! ```
//!
//! Instead, use `weakref.ref(layer)` in the attribute, or only the owner's name or index.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::callback::steps_from;
use crate::diagnose::case::{CONTAINERS, Case, CycleStep, short};
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

/// Attributes of a tensor that are not set by assignment.
fn is_own(name: &str) -> bool {
    name.starts_with("__") || name.ends_with("_hooks")
}

fn has_attribute(step: &CycleStep<'_>) -> bool {
    let class = step.object.description.type_name.as_str();
    matches!(class, "torch.Tensor" | "torch.nn.parameter.Parameter")
        && matches!(step.name, ReferenceName::Attribute(name) if !is_own(name))
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let mut kinds = CONTAINERS.to_vec();
    kinds.push(ObjectKind::Instance);
    if !case.only(&kinds) {
        return None;
    }
    let steps = steps_from(case, has_attribute)?;
    let tensor = steps.first()?;
    let ReferenceName::Attribute(attribute) = tensor.name else {
        return None;
    };
    let class = short(&tensor.object.description.type_name);
    let kept = short(&tensor.next.description.type_name);
    if steps.len() == 1 {
        let what = format!(
            "The attribute `{attribute}` of {} is the {class} itself.",
            a(class)
        );
        return Some(Finding::new(what).remedy(tensor.edge, "remove it"));
    }
    let finding = Finding::new(format!(
        "The attribute `{attribute}` of {} is {} that leads back to it.",
        a(class),
        a(kept)
    ));
    let remedy = match tensor.next.description.kind {
        ObjectKind::Instance => {
            let weakly = case
                .weakly(tensor.edge)
                .map_or_else(String::new, |(slots, kept)| {
                    format!("; or a weak reference{slots}{kept}")
                });
            format!("store there only the values that are needed from the {kept}{weakly}")
        }
        _ => format!("store the {kept} elsewhere"),
    };
    Some(finding.remedy(tensor.edge, remedy))
}
