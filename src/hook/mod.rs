//! Watching collections: taking the garbage that CPython found, and destroying it as CPython would.
//!
//! [`Hook`] puts one native callable into `gc.callbacks`. Around each collection it sets
//! `DEBUG_SAVEALL`, so that the collector runs finalizers and weak reference callbacks as ever but
//! saves the garbage in place of destroying it; it hands the garbage to a [`Handler`], and whatever
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
#[cfg(feature = "python")]
pub use {
    callback::{CollectionInfo, Handler, Hook, is_waiting_for_stop},
    clear::Garbage,
    fork::fork_count,
    gc_module::GcModule,
};
