//! What was found, as plain data: the contract of the project.
//!
//! Everything that is printed, drawn or written is a rendering of [`report::Report`], [`heap::Heap`],
//! [`heap::Table`], [`diff::Diff`], [`retention::Retention`], [`device_memory::DeviceMemory`],
//! [`growth::GrowthReport`] or [`post_mortem::PostMortem`].

#![forbid(unsafe_code)]

pub mod cells;
pub mod compare;
pub mod counts;
pub mod device_memory;
pub mod diff;
pub mod earlier;
pub mod graph;
pub mod growth;
pub mod heap;
pub mod json;
pub mod merge;
pub mod occurrences;
pub mod post_mortem;
pub mod rank;
pub mod redact;
pub mod report;
pub mod retention;
#[cfg(test)]
mod schema;
pub mod shared;
pub mod source;
pub(crate) mod words;

pub use words::human_bytes;
