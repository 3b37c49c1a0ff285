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
mod maker;
mod path;
pub mod patterns;
mod repeat;
pub mod segments;
mod signature;
pub mod verdict;

pub use branches::Branches;
pub use case::Case;
pub use maker::maker;
pub use path::{NamedPath, NamedRoot, in_function};
pub use patterns::{Advice, Pattern};
use petgraph::graph::EdgeIndex;
pub use repeat::Diagnoses;
pub use signature::signature;

use crate::capture::Place;
use crate::graph::{Cause, Cycle, LeakGraph, PathToBuffer, find_causes, paths_to_buffers};

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
    /// The code that made the cycle; `None` if that is not known, or was not asked yet.
    pub maker: Option<Place>,
    /// True if the graph shows that the cuts, with those of the other leaks of the graph, free every buffer.
    pub cuts_free: bool,
}

/// Diagnoses the leaks of a folded graph; none if no cycle of it reaches a buffer.
///
/// Each cause is a leak of its own. But causes with the same signature are one, and so are those of libraries; and
/// what a library or the interpreter makes in the same strongly connected component belongs to the first cause there.
pub fn diagnose(graph: &LeakGraph) -> Vec<Diagnosis> {
    let found = find_causes(graph);
    let mut leaks: Vec<(Cause, Diagnosis)> = Vec::new();
    for cause in found.causes {
        let signature = signature(graph, &cause.cycle);
        let same = leaks.iter_mut().find(|(first, leak)| {
            leak.signature == signature
                || (first.component == cause.component && !cause.is_own)
                || (first.is_of_library && cause.is_of_library)
        });
        if let Some((_, leak)) = same {
            leak.cuts.extend(cause.cuts);
            continue;
        }
        let case = Case {
            graph,
            cycle: &cause.cycle,
            cut: cause.cuts.first().copied(),
        };
        let recognised = patterns::recognise(&case);
        let diagnosis = Diagnosis {
            signature,
            pattern: recognised.as_ref().map(|(name, _)| *name),
            advice: recognised.map_or_else(|| patterns::fallback(&case), |(_, advice)| advice),
            paths: paths_to_buffers(graph, &cause.cycle),
            cuts: cause.cuts.clone(),
            maker: None,
            cuts_free: found.frees,
            cycle: cause.cycle.clone(),
        };
        leaks.push((cause, diagnosis));
    }
    leaks.into_iter().map(|(_, leak)| leak).collect()
}
