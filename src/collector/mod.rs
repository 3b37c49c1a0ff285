//! Which objects are garbage: by being among them in a collection, and by finding out oneself.
//!
//! [`Hook`] puts one native callable into `gc.callbacks`. To each collection it adds a
//! `Witness`, garbage of its own, whose finalizer CPython calls before all others. There a [`Handler`] looks at the
//! garbage. With a hook, collections do exactly what they do without: nothing is saved, cleared, held or put in
//! another order.
//!
//! The second way, [`unreachable`], looks before finalizers run, and without a collection. What only callbacks of weak
//! references let go of is not to be seen so; where there are some, [`OwnCollections`] have a witness as well.
//!
//! [`Epochs`] tell which objects are new, and so where a look need not go through the whole heap.

#[cfg(feature = "python")]
mod callback;
#[cfg(feature = "python")]
mod epochs;
#[cfg(feature = "python")]
mod own;
#[cfg(feature = "python")]
mod unreachable;
#[cfg(feature = "python")]
mod witness;

#[cfg(feature = "python")]
pub(crate) use unreachable::unreachable;
#[cfg(feature = "python")]
pub use {
    callback::{CollectionInfo, Handler, Hook, may_need_mending, shows_witness},
    epochs::{Epoch, Epochs},
    own::OwnCollections,
    witness::Unreachable,
};
