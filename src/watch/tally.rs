//! What a watch has seen of a leak.

use crate::model::counts::LeakTally;
use crate::model::report::{Leak, Occurrence};
use crate::model::shared::Shared;
use crate::model::{occurrences, shared};

/// What a watch has seen of one leak, in sums and each time.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    pub sums: LeakTally,
    /// Each time, a bounded number: see [`crate::model::occurrences::add`].
    pub occurrences: Vec<Occurrence>,
}

impl Tally {
    /// Of a leak that is seen for the first time.
    pub(super) fn of(leak: &Leak, time: f64) -> Self {
        Self {
            sums: LeakTally {
                signature: leak.signature.clone(),
                summary: leak.summary.clone(),
                count: leak.count,
                objects: leak.objects,
                bytes: leak.bytes_held,
                shared: leak.shared.clone(),
                largest: leak.bytes_held,
                first_seen: time,
                last_seen: time,
                reported: false,
            },
            occurrences: leak.occurrences.clone(),
        }
    }

    /// The same leak was seen again, with so many objects in its cycles.
    pub(super) fn add(&mut self, seen: &Occurrence, objects: u64, also: &[Shared]) {
        let sums = &mut self.sums;
        sums.objects = sums.objects.saturating_add(objects);
        shared::add(&mut sums.shared, also);
        sums.count += seen.count;
        sums.bytes += seen.bytes;
        sums.largest = sums.largest.max(seen.bytes);
        sums.last_seen = seen.time;
        occurrences::add(&mut self.occurrences, [seen.clone()]);
    }
}
