//! From graph facts to a leak that a person can fix: its cycle, its cut, its signature, the
//! pattern it follows and what to change. From a path in the live heap to the owner of what it leads to. And
//! from numbers to what grows, and why memory ran out.

#![forbid(unsafe_code)]

mod branches;
mod callback;
mod case;
pub mod cohorts;
pub mod growth;
pub mod known;
pub mod library;
mod path;
pub mod patterns;
mod repeat;
pub mod segments;
mod signature;
pub mod verdict;

pub use branches::Branches;
pub use case::Case;
pub use path::{NamedPath, NamedRoot, in_function};
pub use patterns::{Advice, Pattern};
use petgraph::graph::EdgeIndex;
pub use repeat::Diagnoses;
pub use signature::signature;

use crate::graph::{Cycle, LeakGraph, PathToBuffer, find_cuts, first_cycle, paths_to_buffers};

/// What is known of one leak.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// Stable name of the bug; see [`signature`].
    pub signature: String,
    /// The recognised pattern's name.
    pub pattern: Option<&'static str>,
    pub advice: Advice,
    pub cycle: Cycle,
    pub paths: Vec<PathToBuffer>,
    /// The references to remove, best first.
    pub cuts: Vec<EdgeIndex>,
    /// True if the graph shows that the cuts free every buffer of the leak.
    pub cuts_free: bool,
}

/// Diagnoses one leak from its folded graph; `None` if no cycle of it reaches a buffer.
pub fn diagnose(graph: &LeakGraph) -> Option<Diagnosis> {
    let cycle = first_cycle(graph)?;
    let cuts = find_cuts(graph, &cycle);
    let case = Case {
        graph,
        cycle: &cycle,
        cut: cuts.edges.first().copied(),
    };
    let recognised = patterns::recognise(&case);
    Some(Diagnosis {
        signature: signature(graph, &cycle),
        pattern: recognised.as_ref().map(|(name, _)| *name),
        advice: recognised.map_or_else(|| patterns::fallback(&case), |(_, advice)| advice),
        paths: paths_to_buffers(graph, &cycle),
        cuts: cuts.edges,
        cuts_free: cuts.frees,
        cycle,
    })
}
