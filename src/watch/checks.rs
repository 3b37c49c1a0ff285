//! Explicit checks: a look for leaks and a collection, now.

use std::time::Instant;

use pyo3::prelude::*;

use super::freed::Counters;
use super::{Watcher, concerns, with_leaks};
use crate::analysis::{Behind, Fate, Found, addresses, confirm_gone, date, forget_behind};
use crate::collector::Epoch;
use crate::device::DeviceSelection;
use crate::model::merge::merge;
use crate::model::report::{Collection, Report};

/// What a look showed, and which collection frees it.
struct Seen {
    found: Vec<Found>,
    /// Unreachable objects.
    objects: usize,
    /// The oldest generation that they may be in.
    oldest: u32,
    /// The epoch since when objects were looked at; `None` if at all.
    since: Option<Epoch>,
}

impl Watcher {
    /// Looks for leaks before finalizers run, collects, and reports what went. Where nothing can be
    /// collected (a collection is under way, or the program saves all garbage) it reports what is there.
    /// With `frozen`, it also reports what no collection frees.
    ///
    /// # Errors
    /// If the inspector is at work on another thread, or memory runs out.
    pub fn find(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
        frozen: bool,
    ) -> PyResult<Report> {
        let started = Instant::now();
        let all = self.with_watched(devices);
        let (found, objects) =
            self.inspector
                .look(py, &all, None, usize::MAX, Behind::CountedByRequest)?;
        let seen = Seen {
            found,
            objects,
            oldest: 2,
            since: None,
        };
        let report = about(&self.collect(py, seen, started)?, devices);
        let found = match frozen {
            true => self.inspector.look_at_frozen(py, devices)?,
            false => Vec::new(),
        };
        if found.is_empty() {
            return Ok(report);
        }
        let started = Instant::now();
        let collection = Collection {
            garbage_objects: 0,
            ..report.collection.clone()
        };
        let mut frozen = self.inspector.report(py, found, collection, started);
        for leak in &mut frozen.leaks {
            leak.frozen = leak.count;
            leak.occurrences
                .iter_mut()
                .for_each(|seen| seen.collections = 0);
        }
        Ok(merge(&[&report, &frozen]).unwrap_or(report))
    }

    /// As [`Watcher::find`], but if nothing leaked it collects nothing.
    ///
    /// # Errors
    /// As [`Watcher::find`].
    pub fn find_if_any(&self, py: Python<'_>, devices: &DeviceSelection) -> PyResult<Report> {
        let started = Instant::now();
        let all = self.with_watched(devices);
        let behind = Behind::CountedByRequest;
        let (found, objects) = self.inspector.look(py, &all, None, usize::MAX, behind)?;
        let seen = Seen {
            found,
            objects,
            oldest: 2,
            since: None,
        };
        if seen.found.is_empty() {
            return Ok(self.inspector.empty_report(py));
        }
        Ok(about(&self.collect(py, seen, started)?, devices))
    }

    /// As [`Watcher::find_if_any`], but looks only at what was made since an epoch began, and takes time in proportion to
    /// that. `None` if only a look at the whole heap tells.
    ///
    /// Garbage of which a part is older counts as reachable here, so that it may be missing from the report,
    /// and the next `find` has it.
    ///
    /// # Errors
    /// As [`Watcher::find`].
    pub fn find_new(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
        since: Epoch,
    ) -> PyResult<Option<Report>> {
        let started = Instant::now();
        let all = self.with_watched(devices);
        let behind = Behind::CountedByRequest;
        let seen = self
            .inspector
            .look_at_new(py, &all, &self.epochs, since, behind)?;
        // A young collection would not free what is old, and a full one frees more than was looked at.
        let Some((found, objects, false)) = seen else {
            return Ok(None);
        };
        let seen = Seen {
            found,
            objects,
            oldest: 1,
            since: Some(since),
        };
        if seen.found.is_empty() {
            // What a report says of the program besides takes longer than such a look.
            return Ok(Some(self.inspector.empty_report(py)));
        }
        Ok(Some(about(&self.collect(py, seen, started)?, devices)))
    }

    /// Begins an epoch: see [`crate::collector::Epochs::begin`]. What the collections in it find is earlier garbage,
    /// and no watch reports it.
    ///
    /// # Errors
    /// As [`crate::collector::Epochs::begin`].
    pub fn begin_epoch(&self, py: Python<'_>) -> PyResult<Option<(Epoch, bool)>> {
        self.checking.set(true);
        let epoch = self.epochs.begin(py, self.inspector.gc());
        self.checking.set(false);
        epoch
    }

    /// Forgets all epochs.
    pub fn forget_epochs(&self, py: Python<'_>) {
        self.epochs.forget(py);
    }

    /// These devices and those that some watch is about.
    fn with_watched(&self, devices: &DeviceSelection) -> DeviceSelection {
        self.devices()
            .map_or_else(|| devices.clone(), |all| all.with(devices))
    }

    /// Collects what was seen, reports what went, and tells the watches of it.
    fn collect(&self, py: Python<'_>, seen: Seen, started: Instant) -> PyResult<Report> {
        let gc = self.inspector.gc();
        let mut found = seen.found;
        let epochs = self.epochs.of(py, gc, addresses(&found).collect());
        date(&mut found, |address| epochs.get(&address).copied());
        let before = Counters::of(py, &found);
        self.checking.set(true);
        let collected = gc.collect(py, seen.oldest);
        self.checking.set(false);
        let collected = collected?.is_some();
        let saved = collected && gc.saves_garbage(py);
        let went = collected && !saved;
        let mut notes = Vec::new();
        if went {
            let alive = match seen.since {
                // What survived a young collection is where the epoch's objects are.
                Some(since) => self.epochs.new_since(py, gc, since).map(|new| {
                    let objects = new.objects.iter();
                    objects.map(|&object| object as usize).collect()
                }),
                None => self.inspector.tracked_addresses(py),
            };
            confirm_gone(py, &mut found, Fate::Survivors(&alive));
            notes.extend(before.share_out(py, &mut found));
        } else {
            forget_behind(&mut found);
            if saved && !found.is_empty() {
                notes.push(
                    "The program set gc.DEBUG_SAVEALL: its garbage stays in gc.garbage, and nothing \
                     was freed."
                        .to_owned(),
                );
            }
        }
        let seen = Seen {
            found: Vec::new(),
            ..seen
        };
        let collection = collection(collected, &seen);
        let mut report = self.inspector.report(py, found, collection, started);
        report.notes = notes;
        if went {
            self.tell(py, &report);
        }
        Ok(report)
    }
}

fn collection(collected: bool, seen: &Seen) -> Collection {
    Collection {
        trigger: if collected { "find" } else { "look" }.to_owned(),
        generation: Some(seen.oldest),
        garbage_objects: seen.objects as u64,
        pause_us: 0,
        importing: None,
    }
}

/// The part of a report that is about some devices.
fn about(report: &Report, devices: &DeviceSelection) -> Report {
    let leaks = report.leaks.iter();
    let leaks = leaks.filter(|leak| concerns(leak, devices)).cloned();
    with_leaks(report, leaks.collect())
}
