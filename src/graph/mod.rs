//! The object graph: components, cycles, paths and cuts. Plain Rust on petgraph, no Python.
//!
//! The analysis has two stages. The first handles *all* garbage, as indices: which groups of cycles hold
//! a buffer ([`find_groups`]). The second handles one group, with its objects described and its
//! references named ([`LeakGraph`]): which cycle to show, the shortest path to each buffer, and which
//! reference to cut.

#![forbid(unsafe_code)]

mod bridges;
mod buffer_paths;
mod cause;
mod common_cut;
mod cut;
mod cycle;
mod distances;
mod dominators;
mod fold;
mod group;
mod leak_graph;
mod links;
mod mocks;
mod preference;
mod programs_cut;
#[cfg(test)]
mod properties;
mod redact;
mod refcounts;
mod same_line;
mod selection;
mod shortest_paths;

pub use bridges::Bridges;
pub use buffer_paths::{PathToBuffer, paths_to_buffers};
pub use cause::{Cause, Code, LibrarysPart, Way};
pub use cut::{Causes, find_causes, frees};
pub use cycle::{Cycle, cycle_through, first_cycle};
pub use dominators::{DominatorTree, Dominators};
pub use fold::fold;
pub use group::{Group, find_groups};
pub use leak_graph::{Hop, LeakEdge, LeakGraph, LeakNode};
pub use links::frees_group;
pub use mocks::{held_by_mocks, is_of_mocks};
pub use preference::{cannot_be_assigned, is_content, points_back, registers_submodule};
pub use redact::{hide_unless_code, hide_values};
pub use refcounts::{components_with, freed_at_once, never_freed};
pub use same_line::of_same_line;
pub use selection::{NODE_LIMIT, Selection, select};
pub use shortest_paths::{Ends, Gap, ShortestPaths};
