//! How often the leaks of a report were seen.
//!
//! What happens many times is written out once, and counted from then on.

use std::collections::{HashMap, HashSet};

use super::report::{Leak, Occurrence, Report};
use super::shared::Shared;

/// What a watch has seen of one leak so far.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, eq, from_py_object, module = "cyclescope")
)]
#[non_exhaustive]
pub struct LeakTally {
    /// The signature of the leak; see :attr:`Leak.signature`.
    pub signature: String,
    /// The cycle in one line.
    pub summary: String,
    /// Number of occurrences.
    pub count: u64,
    /// Number of objects in the cycles, over all occurrences.
    pub objects: u64,
    /// Bytes of all occurrences together.
    pub bytes: u64,
    /// The part of ``bytes`` that other leaks held too.
    pub shared: Vec<Shared>,
    /// The largest number of bytes that the leak held in one collection.
    pub largest: u64,
    /// When it was seen first, in seconds since 1970.
    pub first_seen: f64,
    /// When it was seen last, in seconds since 1970.
    pub last_seen: f64,
    /// True once it has held the ``min_bytes`` of the watch, which then reports it.
    pub reported: bool,
}

impl Report {
    /// The report with all that a watch has counted of its leaks.
    #[must_use]
    pub fn with_counts(mut self, tallies: &[LeakTally]) -> Self {
        let tallies: HashMap<&str, &LeakTally> = tallies
            .iter()
            .map(|tally| (tally.signature.as_str(), tally))
            .collect();
        for leak in &mut self.leaks {
            let Some(tally) = tallies.get(leak.signature.as_str()) else {
                continue;
            };
            if tally.count != leak.count {
                // It was measured for the occurrences that are written out, not for all.
                leak.bytes_freed = None;
            }
            leak.shared = tally.shared.clone();
            leak.count = tally.count;
            leak.objects = tally.objects;
            leak.bytes_held = tally.bytes;
        }
        self.sort_leaks();
        self
    }

    /// The report with the occurrences of its leaks, by signature.
    #[must_use]
    pub fn with_occurrences(mut self, mut occurrences: HashMap<String, Vec<Occurrence>>) -> Self {
        for leak in &mut self.leaks {
            if let Some(seen) = occurrences.remove(&leak.signature) {
                leak.occurrences = seen;
            }
        }
        self
    }

    /// The report with no more than the counts of the leaks that were written out elsewhere.
    ///
    /// To [merge](super::merge::merge) it with that other report counts them there.
    #[must_use]
    pub fn without_details(mut self, written_out: &HashSet<String>) -> Self {
        for leak in &mut self.leaks {
            if written_out.contains(&leak.signature) {
                *leak = counted(leak);
            }
        }
        self
    }
}

/// The counts of a leak.
fn counted(leak: &mut Leak) -> Leak {
    Leak {
        signature: std::mem::take(&mut leak.signature),
        outline: leak.outline.take(),
        pattern: leak.pattern.take(),
        summary: std::mem::take(&mut leak.summary),
        count: leak.count,
        frozen: leak.frozen,
        bytes_held: leak.bytes_held,
        objects: leak.objects,
        cycle_omitted: leak.cycle_omitted.saturating_add(leak.cycle.len() as u64),
        buffers_omitted: leak
            .buffers_omitted
            .saturating_add(leak.buffers.len() as u64),
        shared: std::mem::take(&mut leak.shared),
        traced: leak.traced,
        occurrences: std::mem::take(&mut leak.occurrences),
        ..Leak::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::merge::merge;
    use super::*;
    use crate::render::samples;

    #[test]
    fn all_that_a_watch_has_counted_is_told() {
        let report = samples::callback();
        let leak = &report.leaks[0];
        let tally = LeakTally {
            signature: leak.signature.clone(),
            count: 3 * leak.count,
            objects: 7 + leak.objects,
            bytes: 5 * leak.bytes_held,
            ..LeakTally::default()
        };
        let counted = report.clone().with_counts(&[tally]);
        let more = &counted.leaks[0];
        assert_eq!(more.count, 3 * leak.count);
        assert_eq!(more.objects, 7 + leak.objects);
        assert_eq!(more.bytes_held, 5 * leak.bytes_held);
        assert_eq!(more.bytes_freed, None);
        assert_eq!(report.clone().with_counts(&[]), report);
    }

    #[test]
    fn what_is_written_out_elsewhere_is_counted_there() {
        let report = samples::callback();
        let leak = &report.leaks[0];
        let seen = HashSet::from([leak.signature.clone()]);
        let brief = report.clone().without_details(&seen);
        assert!(brief.leaks[0].graph.nodes.is_empty());
        let merged = merge(&[&report, &brief, &brief]).expect("three reports");
        let whole = merge(&[&report, &report, &report]).expect("three reports");
        let (merged, whole) = (&merged.leaks[0], &whole.leaks[0]);
        assert_eq!(merged.graph, leak.graph);
        assert_eq!(merged.buffers, leak.buffers);
        assert_eq!(
            (merged.count, merged.objects, merged.bytes_held),
            (whole.count, whole.objects, whole.bytes_held)
        );
        assert_eq!(report.clone().without_details(&HashSet::new()), report);
    }
}
