//! What holds device memory in a Python program: in cycles that are garbage, and in the live heap.

mod accumulators;
mod assemble;
mod busy;
mod cycles;
mod device_memory;
mod edges;
mod found;
mod frozen;
mod graphs;
mod growth;
mod heap;
mod holding;
mod inspector;
mod keepers;
mod live;
mod maker;
mod monitor;
mod naming;
mod out_of_memory;
mod owned;
mod process;
mod purpose;
mod removable;
mod room;
mod sample;
mod triage;
mod uncollected;
mod unreachable;
mod why;

pub(crate) use busy::Busy;
pub(crate) use found::{Fate, Found, confirm_gone, prefer};
pub(crate) use inspector::DESCRIBED;
pub use inspector::Inspector;
pub use monitor::{Moment, Monitor};
pub use out_of_memory::{MemoryInUse, Pieces};
