//! What the watch does around each collection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use pyo3::ffi;
use pyo3::prelude::*;

use super::freed::Counters;
use super::{MOST, Watcher};
use crate::analysis::{Behind, DESCRIBED, Detail, Fate, Found, confirm_gone, date, has_reserve};
use crate::collector::{CollectionInfo, Handler, Unreachable, shows_witness};
use crate::device::{DeviceSelection, Reading};
use crate::model::report::Collection;

/// After so many collections in a row that could not be seen, that is said.
const UNSEEN: u32 = 64;

/// What is known of the collection under way, and of those before.
#[derive(Default)]
pub(super) struct Collections {
    /// What the look at the garbage found, if it is of consequence.
    looked: RefCell<Option<Looked>>,
    /// So many in a row were not seen, and whether that was said.
    unseen: Cell<u32>,
    /// So many in all were not inspected because of a debug flag.
    uninspected: Cell<u64>,
    unseen_said: Cell<bool>,
    /// The group of cycles that the next look begins with, and whether it was said that some were left out.
    first: Cell<usize>,
    left_out_said: Cell<bool>,
}

struct Looked {
    found: Vec<Found>,
    /// Groups of cycles that hold a buffer and were left out.
    left_out: usize,
    /// Unreachable objects.
    objects: usize,
    /// What the allocator had before, if there is anything to report.
    before: Option<Counters>,
    /// A finalizer may free some of it, and save some.
    finalizer_due: bool,
    /// A class is among the garbage.
    class_dies: bool,
    started: Instant,
}

impl Collections {
    /// True if a look of this kind is at hand.
    fn has_looked(&self, is_such: impl FnOnce(&Looked) -> bool) -> bool {
        let looked = self.looked.try_borrow();
        looked.is_ok_and(|looked| looked.as_ref().is_some_and(is_such))
    }
}

/// The handler that the hook owns.
struct Shared(Rc<Watcher>);

pub(super) fn handler(watcher: Rc<Watcher>) -> Box<dyn Handler> {
    Box::new(Shared(watcher))
}

impl Handler for Shared {
    fn wants_before(&self, info: CollectionInfo) -> bool {
        self.0.collections.has_looked(|_| true) || self.0.tells_epochs(info)
    }

    fn before(&self, py: Python<'_>, info: CollectionInfo) {
        // Of a collection whose end was not told; its weak handles are given back attached.
        self.0.collections.looked.replace(None);
        if self.0.tells_epochs(info) {
            self.0.epochs.before_full(py, self.0.inspector.gc());
        }
    }

    /// Not in an explicit check, which looks itself.
    fn wants_look(&self) -> bool {
        !self.0.checking.get()
    }

    fn look(&self, py: Python<'_>, garbage: &mut Unreachable<'_>, _info: CollectionInfo) {
        if !has_reserve() {
            self.0.inspector.forget_classes();
        } else {
            let looked = self.0.look_at(py, garbage);
            self.0.collections.looked.replace(looked);
        }
    }

    fn wants_finalized(&self) -> bool {
        let collections = &self.0.collections;
        collections.has_looked(|looked| looked.finalizer_due)
    }

    fn finalized(&self, py: Python<'_>) {
        let Ok(mut looked) = self.0.collections.looked.try_borrow_mut() else {
            return;
        };
        if let Some(looked) = &mut *looked {
            self.0.inspector.note_finalized(py, &mut looked.found);
            if let Some(before) = &mut looked.before {
                // What finalizers freed besides is none of the leaks'.
                *before = Counters::of(py, &looked.found);
            }
        }
    }

    fn wants_after(&self, seen: bool) -> bool {
        let collections = &self.0.collections;
        let is_dated = self.0.epochs.current().is_some();
        collections.has_looked(|_| true) || is_dated || !seen || collections.unseen.get() > 0
    }

    fn after(&self, py: Python<'_>, info: CollectionInfo, seen: bool) {
        if !seen {
            self.0.inspector.forget_classes();
        }
        if !self.0.checking.get() {
            self.0.count_unseen(py, seen);
            if let Some(looked) = self.0.collections.looked.take() {
                self.0.conclude(py, looked, info);
            }
        }
        if self.0.tells_epochs(info) {
            self.0.epochs.after_full(py, self.0.inspector.gc());
        }
    }

    fn failed(&self, _py: Python<'_>) {
        self.0.report_trouble(
            "stopped watching: an internal error (a panic) in cyclescope".to_owned(),
        );
    }
}

impl Watcher {
    /// True if the collection changes the order of objects by which epochs are told.
    fn tells_epochs(&self, info: CollectionInfo) -> bool {
        info.generation >= 2 && self.epochs.current().is_some()
    }

    /// The look at the garbage; `None` if it is of no consequence.
    fn look_at(&self, py: Python<'_>, garbage: &Unreachable<'_>) -> Option<Looked> {
        let devices = self.devices()?;
        self.inspector.refresh(py);
        if !self.inspector.frameworks_known() {
            return None;
        }
        let triage = match self
            .inspector
            .triage(py, garbage.clone(), Reading::Itself, &devices)
        {
            Ok(triage) => triage,
            Err(error) => {
                self.inspector.forget_classes();
                self.note_error(py, &error);
                return None;
            }
        };
        let mut looked = Looked {
            found: Vec::new(),
            left_out: 0,
            objects: triage.objects,
            before: None,
            finalizer_due: triage.finalizer_due,
            class_dies: triage.class_dies,
            started: Instant::now(),
        };
        if triage.holds_buffer && triage.objects > MOST {
            self.note_too_many(triage.objects);
        } else if triage.holds_buffer {
            // To read a gradient makes an object, which stays if a finalizer saves the tensor.
            let behind = match triage.finalizer_due {
                true => Behind::Ignored,
                false => Behind::Counted,
            };
            match self.examine(py, garbage, triage.objects, &devices, behind) {
                Ok((found, left_out)) => {
                    looked.found = found;
                    looked.left_out = left_out;
                }
                Err(error) => self.note_error(py, &error),
            }
            if self.tells_any(&looked.found) {
                looked.before = Some(Counters::of(py, &looked.found));
            }
        }
        if triage.class_dies {
            self.inspector.forget_classes();
        }
        (triage.class_dies || !looked.found.is_empty()).then_some(looked)
    }

    fn examine(
        &self,
        py: Python<'_>,
        garbage: &Unreachable<'_>,
        count: usize,
        devices: &DeviceSelection,
        behind: Behind,
    ) -> PyResult<(Vec<Found>, usize)> {
        self.inspector.ask_for_room(count)?;
        let mut objects: Vec<*mut ffi::PyObject> = garbage.clone().collect();
        // As the collector's list has them.
        objects.reverse();
        let is_known = |signature: &str| self.is_told(signature);
        let detail = Detail {
            most: DESCRIBED,
            first: self.collections.first.get(),
            is_known: &is_known,
            reading: Reading::Itself,
        };
        let (found, left_out) = self
            .inspector
            .examine(py, &objects, 0, devices, detail, behind)?;
        let next = match left_out {
            0 => 0,
            _ => detail.first.wrapping_add(DESCRIBED),
        };
        self.collections.first.set(next);
        Ok((found, left_out))
    }

    /// The collection has ended: reports what it freed.
    fn conclude(&self, py: Python<'_>, looked: Looked, info: CollectionInfo) {
        let pause = info.began.map(|began| began.elapsed().as_micros());
        let pause_us = pause.and_then(|it| u64::try_from(it).ok()).unwrap_or(0);
        if looked.class_dies {
            // A finalizer may have asked about it.
            self.inspector.forget_classes();
        }
        let mut found = looked.found;
        let tracked = || self.inspector.tracked_addresses(py);
        confirm_gone(py, &mut found, Fate::WeakReferences(&tracked));
        // What is young was made in the epoch that has not ended.
        date(&mut found, |address| match info.generation {
            0 | 1 => self.epochs.current(),
            _ => self.epochs.in_full_collection(address),
        });
        let mut notes = Vec::new();
        if let Some(before) = looked.before {
            notes.extend(before.share_out(py, &mut found));
        }
        if looked.left_out > 0 {
            let note = format!(
                "{} more groups of cycles held tensors in this collection. A watch describes at most {DESCRIBED} groups of \
                 different shapes per collection, to keep the pause short, and others in the next; \
                 cyclescope.find_tensor_cycles() describes all",
                looked.left_out
            );
            if !self.collections.left_out_said.replace(true) {
                self.report_trouble(note.clone());
            }
            notes.push(note + ".");
        }
        self.count_known(&mut found, pause_us);
        if found.is_empty() {
            return;
        }
        if let Err(error) = self.inspector.ask_for_report() {
            self.note_error(py, &error);
            return;
        }
        let collection = Collection {
            trigger: "watch".to_owned(),
            generation: Some(info.generation),
            garbage_objects: looked.objects as u64,
            pause_us: 0,
            importing: None,
            devices: Vec::new(),
        };
        let mut report = self.inspector.report(py, found, collection, looked.started);
        report.notes = notes;
        report.left_out = looked.left_out as u64;
        for seen in report
            .leaks
            .iter_mut()
            .flat_map(|leak| &mut leak.occurrences)
        {
            seen.pause_us = pause_us;
        }
        self.tell(py, &report);
    }

    /// How many collections were not inspected because `gc.DEBUG_STATS` or `gc.DEBUG_COLLECTABLE` was set.
    pub fn uninspected(&self) -> u64 {
        self.collections.uninspected.get()
    }

    /// Says once if collections come that cannot be seen.
    fn count_unseen(&self, py: Python<'_>, seen: bool) {
        let unseen = &self.collections.unseen;
        if seen {
            unseen.set(0);
            return;
        }
        if shows_witness(py, self.inspector.gc()) {
            let uninspected = &self.collections.uninspected;
            uninspected.set(uninspected.get() + 1);
        }
        if unseen.get() < UNSEEN {
            unseen.set(unseen.get() + 1);
            if unseen.get() == UNSEEN && !self.collections.unseen_said.replace(true) {
                self.report_trouble(format!(
                    "{UNSEEN} collections in a row could not be inspected, which happens if gc.DEBUG_STATS or \
                     gc.DEBUG_COLLECTABLE is set. cyclescope.find_tensor_cycles() still works"
                ));
            }
        }
    }
}
