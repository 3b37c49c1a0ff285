//! # `forward` replaced on the instance
//!
//! A module's `forward` is replaced, on the instance, by a function that leads back to the module: a
//! wrapper that calls its original `forward`, a `functools.partial` of it, or a function bound to the
//! module with `types.MethodType`.
//!
//! **Why it leaks.** `module.forward` makes a bound method, which keeps `module`. Stored on the module,
//! within a wrapper or not, it closes a cycle that holds every parameter.
//!
//! ```python
//! original = module.forward
//! def forward(*args):
//!     with torch.autocast("cuda"):
//!         return original(*args)
//! module.forward = forward
//! ```
//!
//! Instead, use a subclass that overrides `forward`, a module that wraps the module, or a wrapper that looks
//! up the class's `forward` when it is called:
//!
//! ```python
//! me = weakref.ref(module)
//! def forward(*args):
//!     module = me()
//!     with torch.autocast("cuda"):
//!         return type(module).forward(module, *args)
//! module.forward = forward
//! ```
//!
//! If the replacement is temporary, `del module.forward` restores the class's own `forward`.

use petgraph::visit::EdgeRef;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::callback::{callback, steps_from};
use crate::diagnose::case::{Case, CycleStep, bare_name, short};
use crate::diagnose::remedy::Finding;

fn is_forward(step: &CycleStep<'_>) -> bool {
    step.object.description.kind == ObjectKind::Instance
        && step.object.description.has_forward
        && matches!(step.name, ReferenceName::Attribute(name) if name == "forward")
        && matches!(
            step.next.description.kind,
            ObjectKind::Function | ObjectKind::Method | ObjectKind::Partial
        )
}

/// True if the object has the same function under another name as well: what replaces several methods in a loop is the
/// same leak for each.
fn is_one_of_several(case: &Case<'_>, step: &CycleStep<'_>) -> bool {
    let place = step.next.description.place.as_ref();
    let Some((owner, _)) = case.graph.edge_endpoints(step.edge) else {
        return false;
    };
    case.graph.edges(owner).any(|edge| {
        let target = &case.graph[edge.target()].description;
        edge.id() != step.edge
            && target.kind == ObjectKind::Function
            && target.place.as_ref() == place
    })
}

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let steps = steps_from(case, is_forward)?;
    let module = steps.first()?;
    if is_one_of_several(case, module) {
        return None;
    }
    let forward = callback(case, &steps)?;
    let class = short(&module.object.description.type_name);
    let leads = if std::ptr::eq(forward.keeps, module.object) {
        String::new()
    } else {
        format!(", which leads back to the {class}")
    };
    let finding = Finding::new(format!(
        "`{class}.forward` was set on the instance, to {}{leads}.",
        forward.text
    ));
    let subclass = "define `forward` in a subclass instead";
    let finding = finding.remedy(
        module.edge,
        format!("{subclass}, or delete it from the instance when it is no longer needed"),
    );
    // A wrapper that has a cycle of its own is to be cut where it captures the module.
    let captures = |step: &&CycleStep<'_>| {
        let is_wrapper = step.object.description.kind == ObjectKind::Function;
        let behind = steps.iter().find(|it| std::ptr::eq(it.object, step.next));
        let is_method = step.next.description.kind == ObjectKind::Method
            && behind.is_some_and(|it| std::ptr::eq(it.next, module.object));
        let keeps_it = is_method || std::ptr::eq(step.next, module.object);
        is_wrapper && keeps_it && case.cut == Some(step.edge) && !step.object.is_library()
    };
    let wrapper = match case.is_enough(&[module.edge]) {
        true => None,
        false => steps.iter().find(captures),
    };
    let finding = match wrapper {
        Some(step) => finding.remedy(
            step.edge,
            format!(
                "{subclass}, or let the function `{}` keep neither the {class} nor a method of it",
                bare_name(step.object)
            ),
        ),
        None => finding,
    };
    Some(finding)
}
