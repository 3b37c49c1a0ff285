//! Explicit checks: a look for leaks and a collection, now.

use std::time::Instant;

use pyo3::ffi;
use pyo3::prelude::*;

use super::freed::Counters;
use super::{Watcher, concerns, with_leaks};
use crate::analysis::{
    Behind, Detail, Fate, Found, Look, addresses, confirm_gone, date, forget_behind, join,
};
use crate::collector::{Epoch, Unreachable};
use crate::device::{DeviceSelection, Reading};
use crate::model::merge::merge;
use crate::model::report::{Collection, Report};

/// What a look showed, and which collection frees it.
struct Seen<'a> {
    look: Look,
    devices: &'a DeviceSelection,
    /// The oldest generation that the unreachable objects may be in.
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
        let behind = Behind::CountedByRequest;
        let look = self.inspector.look(py, &all, None, usize::MAX, behind)?;
        let seen = Seen {
            look,
            devices: &all,
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

    /// As [`Watcher::find`], but collects nothing if nothing leaked, unless a collection calls back because of what is
    /// garbage, and so may show more.
    ///
    /// # Errors
    /// As [`Watcher::find`].
    pub fn find_if_any(&self, py: Python<'_>, devices: &DeviceSelection) -> PyResult<Report> {
        let started = Instant::now();
        let all = self.with_watched(devices);
        let behind = Behind::CountedByRequest;
        let look = self.inspector.look(py, &all, None, usize::MAX, behind)?;
        if look.is_empty() {
            return Ok(self.inspector.empty_report(py));
        }
        let seen = Seen {
            look,
            devices: &all,
            oldest: 2,
            since: None,
        };
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
        let Some((look, false)) = seen else {
            return Ok(None);
        };
        if look.is_empty() {
            // What a report says of the program besides takes longer than such a look.
            return Ok(Some(self.inspector.empty_report(py)));
        }
        let seen = Seen {
            look,
            devices: &all,
            oldest: 1,
            since: Some(since),
        };
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
    fn collect(&self, py: Python<'_>, seen: Seen<'_>, started: Instant) -> PyResult<Report> {
        let gc = self.inspector.gc();
        let Look {
            mut found,
            objects,
            called_back,
        } = seen.look;
        let dated = addresses(&found).chain(called_back.iter().copied());
        let epochs = self.epochs.of(py, gc, dated.collect());
        let mut before = Counters::of(py, &found);
        let mut failed = None;
        self.checking.set(true);
        let collected = if called_back.is_empty() {
            gc.collect(py, seen.oldest)
        } else {
            self.own.collect(py, gc, seen.oldest, |py, garbage| {
                match self.look_again(py, garbage, seen.devices) {
                    Ok(later) => {
                        if join(&mut found, later) {
                            before = Counters::of(py, &found);
                        }
                    }
                    Err(error) => failed = Some(error),
                }
            })
        };
        self.checking.set(false);
        if let Some(error) = failed.filter(|_| found.is_empty()) {
            // Not known is not clean.
            return Err(error);
        }
        date(&mut found, |address| epochs.get(&address).copied());
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
        let collection = Collection {
            trigger: if collected { "find" } else { "look" }.to_owned(),
            generation: Some(seen.oldest),
            garbage_objects: objects as u64,
            pause_us: 0,
            importing: None,
            devices: Vec::new(),
        };
        let mut report = self.inspector.report(py, found, collection, started);
        report.notes = notes;
        if went {
            self.tell(py, &report);
        }
        Ok(report)
    }

    /// What the garbage of a collection under way holds, now that callbacks of weak references have let go of more.
    fn look_again(
        &self,
        py: Python<'_>,
        garbage: &Unreachable<'_>,
        devices: &DeviceSelection,
    ) -> PyResult<Vec<Found>> {
        let mut objects: Vec<*mut ffi::PyObject> = garbage.clone().collect();
        objects.reverse();
        self.inspector.ask_for_room(objects.len())?;
        let detail = Detail {
            reading: Reading::Itself,
            ..Detail::of(usize::MAX)
        };
        let found = self
            .inspector
            .examine(py, &objects, 0, devices, detail, Behind::Ignored)?;
        Ok(found.0)
    }
}

/// The part of a report that is about some devices.
fn about(report: &Report, devices: &DeviceSelection) -> Report {
    let leaks = report.leaks.iter();
    let leaks = leaks.filter(|leak| concerns(leak, devices)).cloned();
    with_leaks(report, leaks.collect())
}
