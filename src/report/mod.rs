//! The report: one serde model and its renderings.
//!
//! [`model`] is the contract. Every other file here turns a [`model::Report`] into something a
//! person or a program reads, and adds no facts of its own.

#![forbid(unsafe_code)]

pub mod assemble;
pub mod by_process;
mod canvas;
mod chosen;
pub mod counts;
pub mod diff;
pub mod dot;
pub mod growth;
pub mod heap;
pub mod html;
mod icicle;
pub mod json;
pub mod known;
mod labels;
mod layout;
pub mod library;
mod lines;
pub mod markdown;
pub mod merge;
pub mod model;
pub mod occurrences;
pub mod owners;
pub mod post_mortem;
pub mod rank;
pub mod redact;
pub mod retention;
mod route;
mod scene;
mod sentences;
mod shape;
mod sketch;
pub mod svg;
pub mod text;
pub(crate) mod words;

pub use words::human_bytes;

#[cfg(test)]
mod live_samples;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod sample_parts;
#[cfg(test)]
mod samples;
