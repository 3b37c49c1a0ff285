//! The renderings: pure functions of the model.
//!
//! Every file here turns what was found into something a person or a program reads, and adds no facts of its own.

#![forbid(unsafe_code)]

mod alike;
mod boxes;
mod bundles;
mod canvas;
mod clusters;
mod column;
mod diagram;
pub mod dot;
mod growth_sentences;
pub mod html;
mod icicle;
mod labels;
mod layers;
mod layout;
mod lines;
mod live_sentences;
pub mod markdown;
mod outline;
mod resident;
mod retaining;
mod route;
mod scene;
mod sentences;
mod shape;
mod simplified;
mod source;
mod stacks;
mod subgraph;
pub mod svg;
pub mod text;

#[cfg(test)]
mod live_samples;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod sample_parts;
#[cfg(test)]
pub(crate) mod samples;
