//! # Property captures an instance of its class
//!
//! A class made for one object has a property or another descriptor whose function captures the object.
//!
//! **Why it leaks.** The object refers to its class, the class to the property, the property to its
//! function, and the function to the object.
//!
//! ```python
//! size = property(lambda _: len(config.weights))
//! config.__class__ = type("ConfigWithSize", (Config,), {"size": size})
//! ```
//!
//! Instead, use the argument: a getter is called with the object, so all objects can share one class.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, bare_name, short, spoken};
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let steps: Vec<_> = case.steps().collect();
    let position = (0..steps.len()).find(|&i| {
        steps[i].object.description.kind == ObjectKind::Class
            && steps[(i + 1) % steps.len()].object.description.kind == ObjectKind::Descriptor
    })?;
    let step = |ahead: usize| steps[(position + ahead) % steps.len()];
    let (class, descriptor, function, object) = (step(0), step(1), step(2), step(3));
    let (ReferenceName::Attribute(name), ReferenceName::Closure(variable)) =
        (class.name, function.name)
    else {
        return None;
    };
    let fits = steps.len() == 4
        && function.object.description.kind == ObjectKind::Function
        && *object.name == ReferenceName::Type;
    if !fits {
        return None;
    }
    let label = &class.object.description.label;
    let finding = Finding::new(format!(
        "The class `{}` has {} `{name}`, whose function, {}{}, captures `{variable}`, an object \
         of that class.",
        short(label.strip_prefix("class ").unwrap_or(label)),
        a(short(&descriptor.object.description.type_name)),
        spoken(function.object),
        at(function.object),
    ))
    .remedy(
        function.edge,
        "use the object that the function is called with, its argument",
    );
    let getter = *descriptor.name == ReferenceName::Attribute("fget".to_owned());
    Some(if getter && bare_name(function.object) == "<lambda>" {
        finding.code(
            format!("{name} = property(lambda _: {variable}.value)"),
            format!("{name} = property(lambda self: self.value)"),
        )
    } else {
        finding
    })
}
