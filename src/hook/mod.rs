//! Watching collections: seeing the garbage that CPython found, from among it, and leaving it alone.
//!
//! [`Hook`] puts one native callable into `gc.callbacks`. To each collection it adds a
//! [`Witness`](witness::Witness), a reference cycle of its own, whose finalizer CPython calls after all others and
//! before it destroys anything. There a [`Handler`] looks at the garbage. With a hook, collections do exactly
//! what they do without: nothing is saved, cleared, held or put in another order.

#[cfg(feature = "python")]
mod callback;
#[cfg(feature = "python")]
mod fork;
#[cfg(feature = "python")]
mod gc_module;
#[cfg(feature = "python")]
mod gc_state;
#[cfg(feature = "python")]
mod witness;
#[cfg(feature = "python")]
pub use {
    callback::{CollectionInfo, Handler, Hook, may_need_mending},
    fork::fork_count,
    gc_module::GcModule,
    witness::{Seen, Unreachable},
};
