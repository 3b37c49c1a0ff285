//! What a watch has seen of a leak.

use crate::model::counts::LeakTally;
use crate::model::report::{Leak, Occurrence};
use crate::model::shared::Shared;
use crate::model::{occurrences, shared};

/// Stands for what a leak is, where that has values of the program.
const HIDDEN: &str = "a leak that was found before redact=True";

/// What a watch has seen of one leak, in sums and each time.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    pub sums: LeakTally,
    /// Each time, a bounded number: see [`crate::model::occurrences::add`].
    pub occurrences: Vec<Occurrence>,
    /// What was told of the leak has values of the program, which reports are no longer to have: it is told once more.
    pub(super) is_hidden: bool,
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
            is_hidden: false,
        }
    }

    /// Hides what it has of the program's values and of the machine.
    pub(super) fn hide(&mut self) {
        self.is_hidden = true;
        self.sums.summary = HIDDEN.to_owned();
        for seen in &mut self.occurrences {
            seen.host.clear();
        }
    }

    /// True if the leak is told, now that it holds enough.
    pub(super) fn tell(&mut self, leak: &Leak) -> bool {
        if std::mem::take(&mut self.is_hidden) {
            self.sums.summary.clone_from(&leak.summary);
            self.sums.reported = false;
        }
        !std::mem::replace(&mut self.sums.reported, true)
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
