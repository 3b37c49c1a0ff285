//! Watching collections: taking the garbage that CPython found, and destroying it as CPython would.
//!
//! [`Hook`] puts one native callable into `gc.callbacks`. Of a collection of the youngest objects, which is
//! what nearly all are, it sees the garbage through a [`Witness`](witness::Witness) among it, and if a
//! [`Handler`] wants none of it, CPython destroys it as ever. Else, and around other collections, it sets
//! `DEBUG_SAVEALL`, so that the collector runs finalizers and weak reference callbacks as ever but
//! saves the garbage in place of destroying it; it hands the garbage to the handler, and whatever
//! the handler leaves is destroyed when [`Garbage`] is dropped.

#[cfg(feature = "python")]
mod callback;
#[cfg(feature = "python")]
mod clear;
#[cfg(feature = "python")]
mod fork;
#[cfg(feature = "python")]
mod gc_module;
#[cfg(feature = "python")]
mod witness;
#[cfg(feature = "python")]
pub use {
    callback::{CollectionInfo, Handler, Hook, is_waiting_for_stop},
    clear::Garbage,
    fork::fork_count,
    gc_module::GcModule,
    witness::Unreachable,
};
