//! The object graph: components, cycles, paths and cuts. Plain Rust on petgraph, no Python.
//!
//! Work comes in two stages. The first looks at *all* the garbage, as bare numbers: which groups of
//! cycles hold a buffer ([`find_groups`]). The second looks at one group, described and with
//! its references named ([`LeakGraph`]): which cycle to show, the way to each buffer, which
//! reference to cut.

#![forbid(unsafe_code)]

mod csr;
mod cut;
mod cycle;
mod dominators;
mod fold;
mod group;
mod leak_graph;
#[cfg(test)]
mod properties;
mod redact;
mod selection;
mod shortest;
mod ways;

pub use csr::Csr;
pub use cut::{CutSet, find_cuts, frees_group, points_back};
pub use cycle::{Cycle, first_cycle};
pub use dominators::Dominators;
pub use fold::fold;
pub use group::{Group, find_groups};
pub use leak_graph::{Hop, LeakEdge, LeakGraph, LeakNode};
pub use redact::{hide_unless_code, hide_values};
pub use selection::{NODE_LIMIT, Selection, select};
pub use shortest::{PathToBuffer, paths_to_buffers};
pub use ways::Ways;
