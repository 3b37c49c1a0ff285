//! From objects to plain data: what they refer to, what the references are called, what to call the objects.
//!
//! The facts leave this room as [`Snapshot`], [`Description`], [`ReferenceName`] and [`Csr`], which the rooms
//! after it use without Python.

mod csr;
mod object;

#[cfg(feature = "python")]
mod allocated;
#[cfg(feature = "python")]
mod claims;
#[cfg(feature = "python")]
mod classes;
#[cfg(feature = "python")]
mod clearing;
#[cfg(feature = "python")]
mod describe;
#[cfg(feature = "python")]
mod directions;
#[cfg(feature = "python")]
mod evidence;
#[cfg(feature = "python")]
mod globals;
#[cfg(feature = "python")]
mod live;
#[cfg(feature = "python")]
mod makers;
#[cfg(feature = "python")]
mod methods;
#[cfg(feature = "python")]
mod names;
#[cfg(feature = "python")]
mod places;
#[cfg(feature = "python")]
mod running;
#[cfg(feature = "python")]
mod shape;
#[cfg(feature = "python")]
mod snapshot;
#[cfg(feature = "python")]
mod statements;
#[cfg(feature = "python")]
mod variables;

pub use csr::Csr;
pub use object::{
    ClassSource, Description, Made, Place, ReferenceName, Snapshot, SnapshotObject, Standing,
    WeakReferences, is_library_file, is_standard_extension, package_of,
};
#[cfg(feature = "python")]
pub(crate) use {
    allocated::AllocationTraces,
    classes::{Classes, binding_of_class, class_name, file_in, has_frozen_class, remember_script},
    clearing::may_clear_gradients,
    describe::describe,
    evidence::{Locals, Target, Wanted},
    globals::{globals_used, may_fill},
    live::{Ask, LiveObjects, NotTaken},
    makers::{Makers, method_locals},
    names::name_references,
    places::function_code,
    running::{
        RunningFrame, is_in_package, may_call_with_star, running_frames, suspended_frames,
        thread_names, who_passes_argument,
    },
    shape::shape_of,
    snapshot::capture,
};
