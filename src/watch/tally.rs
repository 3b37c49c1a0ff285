//! What a watch has seen of a leak.

use crate::model::occurrences;
use crate::model::report::{Leak, Occurrence};

/// What a watch has seen of one leak.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    pub signature: String,
    pub summary: String,
    /// Occurrences so far.
    pub count: u64,
    /// Bytes of all occurrences together.
    pub bytes: u64,
    /// Bytes of the largest collection's worth of them.
    pub largest: u64,
    /// When it was seen first and last, in seconds since 1970.
    pub first_seen: f64,
    pub last_seen: f64,
    /// Each time, a bounded number: see [`crate::model::occurrences::add`].
    pub occurrences: Vec<Occurrence>,
}

impl Tally {
    /// Of a leak that is seen for the first time.
    pub(super) fn of(leak: &Leak, time: f64) -> Self {
        Self {
            signature: leak.signature.clone(),
            summary: leak.summary.clone(),
            count: leak.count,
            bytes: leak.bytes_held,
            largest: leak.bytes_held,
            first_seen: time,
            last_seen: time,
            occurrences: leak.occurrences.clone(),
        }
    }

    /// The same leak was seen again.
    pub(super) fn add(&mut self, seen: &Occurrence) {
        self.count += seen.count;
        self.bytes += seen.bytes;
        self.largest = self.largest.max(seen.bytes);
        self.last_seen = seen.time;
        occurrences::add(&mut self.occurrences, [seen.clone()]);
    }
}
