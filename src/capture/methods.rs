//! Where the function of a bound method stands: whether its object finds it by its name.

use pyo3::ffi;
use pyo3::prelude::*;

use super::Standing;
use super::classes::class_attribute;
use super::places::qualname;
use crate::cpython::instances::attributes;
use crate::cpython::{Builtins, ObjectKind, class_items, find_item, items};

/// Where the function of a method of an instance stands.
pub(super) fn standing(
    builtins: &Builtins,
    kind: ObjectKind,
    method: &Bound<'_, PyAny>,
) -> Standing {
    let is_builtin = kind == ObjectKind::BuiltinFunction;
    let parts = match kind {
        ObjectKind::Method => {
            let function = builtins.method_function.get(method);
            let name = function
                .as_ref()
                .map(|it| qualname(&builtins.function_qualname, it));
            builtins.method_self.get(method).zip(name).zip(function)
        }
        _ if is_builtin => {
            let name = qualname(&builtins.builtin_name, method);
            let owner = builtins.builtin_self.get(method);
            owner.map(|owner| ((owner, name), method.clone()))
        }
        _ => None,
    };
    let Some(((owner, name), function)) = parts else {
        return Standing::Loose;
    };
    let name = name.rsplit('.').next().unwrap_or_default();
    let mro = builtins.type_mro.get(owner.get_type().as_any());
    let classes = mro.as_ref().map_or_else(Vec::new, items);
    let in_classes = |name: &str| {
        let found = classes
            .iter()
            .filter_map(|class| find_item(name, |f| class_items(builtins, class, f)));
        found.collect::<Vec<_>>()
    };
    let is_it = |value: &Bound<'_, PyAny>| match is_builtin {
        // SAFETY: attached, the value and its type are alive.
        true => unsafe { builtins.kind(ffi::Py_TYPE(value.as_ptr())) == ObjectKind::Descriptor },
        false => value.is(&function),
    };
    let found = in_classes(name);
    if !found.iter().any(is_it) {
        return Standing::Loose;
    }
    let own = attributes(&builtins.instances, &owner);
    let is_hidden = own.iter().any(|(attribute, value)| {
        let is_kept = value.is(method);
        attribute == name && !is_kept
            || attribute != name
                && is_kept
                && class_attribute(builtins, owner.get_type().as_any(), attribute).is_some()
    });
    match found.first().is_some_and(is_it) && !is_hidden {
        true => Standing::ByName,
        false => Standing::InClass,
    }
}
