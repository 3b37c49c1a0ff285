//! Reading CPython objects: what they refer to, what the references are called, what to call
//! the objects.
//!
//! Nothing here runs code of the program under observation: no `repr`, no comparison, no
//! attribute look-up that a class could intercept. Edges come from `tp_traverse`, names and labels
//! from type pointers, built-in containers and the C descriptors of built-in types.
//!
//! The facts leave this room as plain data ([`Snapshot`], [`Description`], [`ReferenceName`]),
//! which the rooms after it use without Python.

mod object;

#[cfg(feature = "python")]
mod allocated;
#[cfg(feature = "python")]
mod builtins;
#[cfg(feature = "python")]
mod capture;
#[cfg(feature = "python")]
mod classes;
#[cfg(feature = "python")]
mod describe;
#[cfg(feature = "python")]
mod fields;
#[cfg(feature = "python")]
mod frames;
#[cfg(feature = "python")]
mod inline_values;
#[cfg(feature = "python")]
mod list;
#[cfg(feature = "python")]
mod live;
#[cfg(feature = "python")]
mod marks;
#[cfg(feature = "python")]
mod names;
#[cfg(feature = "python")]
mod read;
#[cfg(feature = "python")]
mod slots;
#[cfg(feature = "python")]
mod traverse;
#[cfg(feature = "python")]
mod types;
#[cfg(feature = "python")]
mod unreachable;
#[cfg(feature = "python")]
mod variables;

pub use object::{
    Description, ObjectKind, Place, ReferenceName, Snapshot, SnapshotObject, is_library_file,
};

#[cfg(feature = "python")]
pub(crate) use {
    allocated::AllocationTraces,
    builtins::Builtins,
    capture::capture,
    classes::Classes,
    describe::{class_name, describe, globals_used},
    fields::{FunctionLayout, Layouts},
    frames::{RunningFrame, is_in_package, running_frames, thread_names, who_passes_argument},
    live::{LiveObjects, NotTaken},
    marks::Marks,
    names::name_references,
    read::{
        Descriptor, class_items, dict_items, find_item, imported, int_value, interned, items,
        module_count, new_text, text_of,
    },
    slots::{CollectorHead, HeadLayout},
    traverse::reference_count,
    types::{Form, TypeFacts, TypeTable, Verdict},
    unreachable::unreachable,
};
