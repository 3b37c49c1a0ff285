//! Memory of our own: arrays for heaps of millions of objects, a table of object addresses, and what is put
//! aside for when there is no memory left.

pub mod array;
#[cfg(feature = "python")]
mod marks;
#[cfg(feature = "extension")]
pub mod reserve;

#[cfg(feature = "python")]
pub(crate) use marks::Marks;
