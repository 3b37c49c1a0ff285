//! Which references a program can remove.

use pyo3::prelude::*;
use pyo3::types::PyFrozenSet;

use super::Inspector;
use super::live::{Extra, Live};
use super::naming::is_part_of_context;
use crate::capture::{ReferenceName, class_name, has_frozen_class};
use crate::cpython::instances::inline_values;
use crate::cpython::{ObjectKind, class_items, items, text_of};

/// What a tensor owns and gives away only with itself.
const OF_TENSOR: [&str; 6] = [
    "__dict__",
    "_backward_hooks",
    "_base",
    "_post_accumulate_grad_hooks",
    "grad_fn",
    "untyped_storage()",
];

/// What an array is a view of, and the frames of a greenlet.
const OF_OTHERS: [&str; 2] = ["base", "gr_frame"];

impl Live<'_> {
    /// True if a program can remove this reference and keep the object that has it: a key, an item, an
    /// attribute, a variable. Not so what a tuple, a function or a bound method holds.
    pub(super) fn can_be_removed(
        &self,
        inspector: &Inspector,
        from: u32,
        to: u32,
        name: &ReferenceName,
    ) -> bool {
        use ReferenceName::{Attribute, ContextVariable, Index, Key, KeyItself, Member};
        if self.is_frame(from) || matches!(self.extra(from), Some(Extra::Registry)) {
            return true;
        }
        if matches!(self.extra(from), Some(Extra::Function(_)))
            || self.functions.contains(&from)
            || self.dicts_of_functions.contains(&from)
        {
            return false;
        }
        let Some(object) = self.object(from) else {
            return false;
        };
        if let (Some(Attribute(hidden)), false) = (
            self.hidden.get(&(from, to)),
            matches!(name, Index(_) | Member),
        ) {
            return !OF_OTHERS.contains(&hidden.as_str()) && !OF_TENSOR.contains(&hidden.as_str());
        }
        if self.is_memory_of_array(inspector, from) {
            return false;
        }
        // Copies of a context share its values. Each gives its own up, by `ContextVar.set()`, but no part of them.
        if matches!(name, ContextVariable(_)) || self.is_part_of_context(inspector, from) {
            return false;
        }
        if self.is_part_of_context(inspector, to) {
            return true;
        }
        match (inspector.kind(&object), name) {
            (ObjectKind::Dict, Key(_) | KeyItself)
            | (ObjectKind::List | ObjectKind::Deque, Index(_)) => true,
            (ObjectKind::Dict, Attribute(name)) if name == "default_factory" => true,
            (ObjectKind::Set, Member) => !object.is_instance_of::<PyFrozenSet>(),
            (ObjectKind::Exception, Attribute(name)) => {
                matches!(name.as_str(), "__traceback__" | "__context__" | "__cause__")
            }
            // Of an array of objects.
            (ObjectKind::Instance, Index(_) | Member) => true,
            (ObjectKind::Tuple | ObjectKind::Class | ObjectKind::Module, _) => false,
            (_, Attribute(name)) => {
                if has_frozen_class(&inspector.builtins, &object) {
                    return false;
                }
                let values = inline_values(&inspector.builtins.instances, &object);
                values.iter().any(|(known, _)| known == name) || has_slot(inspector, &object, name)
            }
            _ => false,
        }
    }

    /// True for an instance whose attributes a program does not remove: its class is frozen, or an array needs them.
    pub(super) fn keeps_attributes(&self, inspector: &Inspector, node: u32) -> bool {
        let object = self.object(node);
        object.is_some_and(|it| has_frozen_class(&inspector.builtins, &it))
            || self.is_memory_of_array(inspector, node)
    }

    /// True for an object of which an array has its memory, and which gives that away only with the array, such as the
    /// `DummyArray` of `as_strided` (numpy/lib/_stride_tricks_impl.py).
    fn is_memory_of_array(&self, inspector: &Inspector, node: u32) -> bool {
        let bases = self.bases_of_arrays.get_or_init(|| {
            let hidden = self.hidden.iter();
            let bases = hidden.filter(
                |(_, name)| matches!(name, ReferenceName::Attribute(name) if name == "base"),
            );
            let bases = bases.map(|((_, to), _)| *to);
            // Another array has its items for itself.
            bases
                .filter(|&to| !is_array(inspector, self.object(to)))
                .collect()
        });
        bases.contains(&node)
    }

    /// True for the dict of what the memory of a `ctypes` object points to: without an item of it, a pointer dangles
    /// (`KeepRef` in Modules/_ctypes/_ctypes.c).
    pub(super) fn is_needed_by_ctypes(
        &self,
        inspector: &Inspector,
        from: u32,
        name: &ReferenceName,
    ) -> bool {
        let is_objects = matches!(name, ReferenceName::Attribute(name) if name == "_objects");
        let object = self.object(from).filter(|_| is_objects);
        object.is_some_and(|it| {
            inspector
                .type_name(it.get_type().as_any())
                .starts_with("_ctypes.")
        })
    }

    /// True for an object of which contexts consist, hidden from the program.
    pub(super) fn is_part_of_context(&self, inspector: &Inspector, node: u32) -> bool {
        let object = self.object(node);
        object.is_some_and(|it| is_part_of_context(&inspector.type_name(&it), &it))
    }
}

/// True for an array of NumPy, or of a class that derives from it.
fn is_array(inspector: &Inspector, object: Option<Bound<'_, PyAny>>) -> bool {
    let mro = object.and_then(|it| inspector.builtins.type_mro.get(it.get_type().as_any()));
    let mut classes = mro.iter().flat_map(items);
    classes.any(|class| class_name(&inspector.builtins, &class) == "numpy.ndarray")
}

/// True if the class of an object, or one that it derives from, lists a slot of this name.
fn has_slot(inspector: &Inspector, object: &Bound<'_, PyAny>, wanted: &str) -> bool {
    let builtins = &inspector.builtins;
    let mro = builtins.type_mro.get(object.get_type().as_any());
    mro.iter().flat_map(items).any(|class| {
        let (mut has_slots, mut has_name) = (false, false);
        class_items(builtins, &class, &mut |name, _| {
            let name = text_of(name);
            has_slots |= name.as_deref() == Some("__slots__");
            has_name |= name.as_deref() == Some(wanted);
            !(has_slots && has_name)
        });
        has_slots && has_name
    })
}
