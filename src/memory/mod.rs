//! Memory: arrays for heaps of millions of objects, a table of object addresses, pieces of memory told apart, and what is
//! put aside for when there is no memory left.

pub mod array;
#[cfg(feature = "python")]
mod marks;
#[cfg(any(feature = "python", test))]
mod regions;
#[cfg(feature = "extension")]
pub mod reserve;

#[cfg(feature = "python")]
pub(crate) use {marks::Marks, regions::Regions};
