//! CPython's memory and C API: object heads, built-in containers, `tp_traverse`, frames, the collector's state.
//!
//! Every assumption about a layout is in this room. It is learnt from the running interpreter by a probe, so that
//! an interpreter which lays objects out otherwise is found out; then there is a slower way, or none. Nothing
//! here runs code of the program under observation: no `repr`, no comparison, no attribute look-up that a class
//! could intercept.

mod generators;
mod kind;

#[cfg(feature = "python")]
pub(crate) mod attributes;
#[cfg(feature = "python")]
mod borrowed;
#[cfg(feature = "python")]
mod buffers;
#[cfg(feature = "python")]
mod builtin_function;
#[cfg(feature = "python")]
pub(crate) mod builtins;
pub mod c_stack;
#[cfg(feature = "python")]
mod calling;
#[cfg(feature = "python")]
pub(crate) mod descriptor;
#[cfg(feature = "python")]
pub(crate) mod fields;
#[cfg(feature = "python")]
mod fork;
#[cfg(feature = "python")]
pub(crate) mod frame_layout;
#[cfg(feature = "python")]
pub(crate) mod frames;
#[cfg(feature = "python")]
mod gc_module;
#[cfg(feature = "python")]
mod gc_state;
#[cfg(feature = "python")]
pub(crate) mod inline_values;
#[cfg(feature = "python")]
pub(crate) mod instances;
#[cfg(feature = "python")]
pub(crate) mod instructions;
#[cfg(feature = "python")]
mod layouts;
#[cfg(feature = "python")]
mod list;
#[cfg(feature = "python")]
mod operations;
#[cfg(feature = "python")]
pub(crate) mod read;
#[cfg(feature = "python")]
pub(crate) mod sizes;
#[cfg(feature = "python")]
pub(crate) mod slots;
#[cfg(feature = "python")]
pub(crate) mod stack;
#[cfg(feature = "python")]
mod stack_effects;
#[cfg(feature = "python")]
mod threads;
#[cfg(feature = "python")]
pub(crate) mod traverse;
#[cfg(feature = "python")]
pub(crate) mod types;
#[cfg(feature = "python")]
mod weak_references;
#[cfg(feature = "python")]
mod world;

pub(crate) use generators::close_drops_variables;
pub use kind::{Binding, ENUMERATION, ObjectKind};
#[cfg(feature = "python")]
pub(crate) use {
    attributes::class_items,
    borrowed::{counted_by_caller, counts_are_known, for_each_counted, for_each_target},
    buffers::{Exporters, bytes_behind},
    builtins::Builtins,
    c_stack::{NEEDED as STACK_NEEDED, has_room as has_stack},
    calling::{attribute_named, call, call_with, repr_of, str_of},
    descriptor::Descriptor,
    fields::FunctionLayout,
    gc_state::{DEBUG_COLLECTABLE, GcState},
    instances::{Instances, attribute},
    layouts::{Form, Layouts},
    list::ListLayout,
    read::{
        dict_items, find_item, imported, int_value, interned, is_untrue, items, module_count,
        module_dict, new_text, text_of,
    },
    slots::{CollectorHead, HeadLayout},
    threads::CurrentFrames,
    traverse::reference_count,
    types::{TypeFacts, TypeTable, Verdict},
    weak_references::WeakReferences,
    world::StoppedWorld,
};
#[cfg(feature = "python")]
pub use {
    fork::fork_count,
    gc_module::{GcModule, without_collections},
};
