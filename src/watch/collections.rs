//! What the watch does around each collection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::arming::Arming;
use super::freed::{Counters, allocated, freed_since};
use super::{MOST, Watcher};
use crate::analysis::{Behind, DESCRIBED, Fate, Found, addresses, confirm_gone, date, prefer};
use crate::collector::{CollectionInfo, Handler, Seen, Unreachable};
use crate::device::DeviceSelection;
use crate::model::report::Collection;

/// Garbage of more objects than this is not examined before its collection, only in it: to do both
/// would take twice as long, and cycles of so many that a finalizer breaks are hardly to be met.
const FORESEEN: usize = 250_000;
/// After so many collections in a row that could not be seen, that is said.
const UNSEEN: u32 = 64;

/// What is known of the collection under way, and of those before.
pub(super) struct Collections {
    arming: Arming,
    /// There is to be a look before the collection.
    due: Cell<bool>,
    /// What the look before the collection found, if there was one.
    foreseen: RefCell<Option<Foreseen>>,
    /// What the look from among the garbage found, if it is of consequence.
    looked: RefCell<Option<Looked>>,
    /// So many in a row were not seen, and whether that was said.
    unseen: Cell<u32>,
    unseen_said: Cell<bool>,
}

impl Default for Collections {
    fn default() -> Self {
        Self {
            arming: Arming::new(),
            due: Cell::new(false),
            foreseen: RefCell::new(None),
            looked: RefCell::new(None),
            unseen: Cell::new(0),
            unseen_said: Cell::new(false),
        }
    }
}

struct Foreseen {
    found: Vec<Found>,
    /// Unreachable objects there were before finalizers ran.
    objects: usize,
    /// The allocator's count, by device, before the collection.
    allocated: Vec<(String, u64)>,
    /// True if objects were looked at, false if only the allocator was asked.
    looked: bool,
    started: Instant,
}

struct Looked {
    found: Vec<Found>,
    /// Groups of cycles that hold a buffer and were left out.
    left_out: usize,
    /// Unreachable objects after finalizers ran; 0 if nothing was found.
    objects: usize,
    /// What the allocator had before anything was destroyed.
    before: Counters,
    /// What finalizers gave back to the allocator.
    freed_early: u64,
    finalizer_ran: bool,
    /// Some class is among the garbage.
    class_dies: bool,
    started: Instant,
}

impl Looked {
    /// False if [`Watcher::conclude`] would do as well without.
    fn is_of_consequence(&self) -> bool {
        !self.found.is_empty() || self.finalizer_ran || self.freed_early > 0
    }
}

/// The handler that the hook owns.
struct Shared(Rc<Watcher>);

pub(super) fn handler(watcher: Rc<Watcher>) -> Box<dyn Handler> {
    Box::new(Shared(watcher))
}

impl Handler for Shared {
    fn wants_before(&self, info: CollectionInfo) -> bool {
        let collections = &self.0.collections;
        let due = collections.arming.begin(info.generation) || self.0.is_thorough();
        collections.due.set(due);
        // The older generations are collected rarely enough to ask the allocator each time.
        let is_left =
            collections.foreseen.borrow().is_some() || collections.looked.borrow().is_some();
        is_left
            || self.0.tells_epochs(info)
            || !self.0.checking.get() && (due || info.generation > 0)
    }

    fn before(&self, py: Python<'_>, info: CollectionInfo) {
        // Of a collection whose end was not told; its weak handles are given back attached.
        self.0.collections.looked.replace(None);
        self.0.collections.foreseen.replace(None);
        if !self.0.checking.get() && has_reserve() {
            let foreseen = self.0.foresee(py, info.generation);
            self.0.collections.foreseen.replace(foreseen);
        }
        if self.0.tells_epochs(info) {
            self.0.epochs.before_full(py, self.0.inspector.gc());
        }
    }

    fn look(&self, py: Python<'_>, garbage: &mut Unreachable<'_>, _info: CollectionInfo) {
        if self.0.checking.get() || !has_reserve() {
            self.0.inspector.forget_classes();
        } else {
            let looked = self.0.look_at(py, garbage);
            if looked.as_ref().is_none_or(|looked| looked.class_dies) {
                self.0.inspector.forget_classes();
            }
            let looked = looked.filter(Looked::is_of_consequence);
            self.0.collections.looked.replace(looked);
        }
    }

    fn wants_after(&self, seen: Seen) -> bool {
        let collections = &self.0.collections;
        let is_new =
            collections.foreseen.borrow().is_some() || collections.looked.borrow().is_some();
        let is_dated = self.0.epochs.current().is_some();
        is_new || is_dated || seen != Seen::All || collections.unseen.get() > 0
    }

    fn after(&self, py: Python<'_>, info: CollectionInfo, seen: Seen) {
        if seen != Seen::All {
            self.0.inspector.forget_classes();
        }
        if !self.0.checking.get() {
            self.0.count_unseen(seen);
            let foreseen = self.0.collections.foreseen.take();
            let looked = self.0.collections.looked.take();
            if foreseen.is_some() || looked.is_some() {
                self.0.conclude(py, foreseen, looked, info);
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

    /// The look before a collection, if it is due: see `Arming`.
    fn foresee(&self, py: Python<'_>, generation: u32) -> Option<Foreseen> {
        let started = Instant::now();
        let devices = self.devices()?;
        self.inspector.refresh(py);
        if !self.inspector.frameworks_known() {
            return None;
        }
        let mut foreseen = Foreseen {
            found: Vec::new(),
            objects: 0,
            allocated: allocated(py, &devices),
            looked: false,
            started,
        };
        if self.collections.due.get() {
            match self.look_before(py, &devices, generation) {
                Ok((found, objects)) => {
                    foreseen.found = found;
                    foreseen.objects = objects;
                    foreseen.looked = true;
                }
                Err(error) => self.note_error(py, &error),
            }
        }
        Some(foreseen)
    }

    /// The leaks that are garbage, and the number of unreachable objects. Where a check of new objects is under way, and
    /// no other that has to see all, a full collection is not worth a look at the whole heap.
    fn look_before(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
        generation: u32,
    ) -> PyResult<(Vec<Found>, usize)> {
        if let (2.., Some(since), true) = (generation, self.epochs.first(), self.is_only_check()) {
            let (inspector, epochs) = (&self.inspector, &self.epochs);
            let limits = (FORESEEN, DESCRIBED);
            let seen =
                inspector.look_at_new(py, devices, epochs, since, limits, Behind::Ignored)?;
            if let Some((found, objects, _)) = seen {
                return Ok((found, objects));
            }
        }
        self.inspector
            .look(py, devices, Some(generation), FORESEEN, Behind::Ignored)
    }

    /// The look from among the garbage.
    fn look_at(&self, py: Python<'_>, garbage: &Unreachable<'_>) -> Option<Looked> {
        let devices = self.devices()?;
        self.inspector.refresh(py);
        if !self.inspector.frameworks_known() {
            return None;
        }
        let triage = match self.inspector.triage(py, garbage.clone(), &devices) {
            Ok(triage) => triage,
            Err(error) => {
                self.note_error(py, &error);
                return None;
            }
        };
        let mut looked = Looked {
            found: Vec::new(),
            left_out: 0,
            objects: 0,
            before: Counters::default(),
            freed_early: 0,
            finalizer_ran: triage.finalizer_ran,
            class_dies: triage.class_dies,
            started: Instant::now(),
        };
        if let Ok(foreseen) = self.collections.foreseen.try_borrow()
            && let Some(foreseen) = &*foreseen
        {
            looked.freed_early = freed_since(py, &foreseen.allocated);
        }
        if triage.holds_buffer && triage.objects > MOST {
            self.note_too_many(triage.objects);
        } else if triage.holds_buffer {
            looked.objects = triage.objects;
            // To read a gradient makes an object, which stays if a finalizer has saved the tensor.
            let behind = match triage.finalizer_ran {
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
            looked.before = Counters::of(py, &looked.found);
        }
        Some(looked)
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
        self.inspector
            .examine(py, &objects, 0, devices, DESCRIBED, behind)
    }

    /// The collection has ended: tells of what went in it.
    fn conclude(
        &self,
        py: Python<'_>,
        foreseen: Option<Foreseen>,
        looked: Option<Looked>,
        info: CollectionInfo,
    ) {
        let mut foreseen = foreseen.unwrap_or_else(|| Foreseen {
            found: Vec::new(),
            objects: 0,
            allocated: Vec::new(),
            looked: false,
            started: Instant::now(),
        });
        let (mut found, mut notes) = (Vec::new(), Vec::new());
        let (mut objects, mut hint, mut freed_early) = (foreseen.objects, false, 0);
        let mut began = foreseen.started;
        if let Some(looked) = looked {
            found = looked.found;
            began = began.min(looked.started);
            objects = objects.max(looked.objects);
            freed_early = looked.freed_early;
            hint = looked.finalizer_ran;
            // What is in `found` is told from there. A cycle may be there and still not be in
            // it: if a finalizer dropped the buffer and left the cycle, only the look before saw it.
            let told: FxHashSet<usize> = addresses(&found).collect();
            prefer(&foreseen.found, &mut found);
            for entry in &mut foreseen.found {
                entry
                    .occurrences
                    .retain(|o| !o.addresses.iter().any(|address| told.contains(address)));
            }
            let tracked = || self.inspector.tracked_addresses(py);
            confirm_gone(py, &mut found, Fate::AfterFinalizers(&tracked));
            notes.extend(looked.before.share_out(py, &mut found));
            if looked.left_out > 0 {
                notes.push(format!(
                    "{} more groups of cycles held tensors in this collection. At most {DESCRIBED} of different shapes \
                     are described in one, so that the program need not wait; cyclescope.find_tensor_cycles() describes all.",
                    looked.left_out
                ));
            }
        }
        let mut broken_early = foreseen.found;
        confirm_gone(py, &mut broken_early, Fate::BeforeFinalizers(&None));
        let unexplained = freed_early > 0 && broken_early.is_empty();
        if let ([only], true) = (broken_early.as_mut_slice(), freed_early > 0) {
            only.freed = Some(freed_early);
        }
        self.collections.arming.learn(
            info.generation,
            foreseen.looked,
            !broken_early.is_empty(),
            hint || unexplained,
        );
        found.append(&mut broken_early);
        // What is young was made in the epoch that has not ended.
        date(&mut found, |address| match info.generation {
            0 | 1 => self.epochs.current(),
            _ => self.epochs.in_full_collection(address),
        });
        self.count_known(&mut found);
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
            garbage_objects: objects as u64,
            pause_us: 0,
            importing: None,
        };
        let mut report = self.inspector.report(py, found, collection, began);
        report.notes = notes;
        self.tell(py, &report);
    }

    /// Says once if collections come that cannot be seen.
    fn count_unseen(&self, seen: Seen) {
        let unseen = &self.collections.unseen;
        if seen == Seen::All {
            unseen.set(0);
            return;
        }
        if unseen.get() < UNSEEN {
            unseen.set(unseen.get() + 1);
            if unseen.get() == UNSEEN && !self.collections.unseen_said.replace(true) {
                self.report_trouble(format!(
                    "{UNSEEN} collections in a row could not be seen, as happens with gc.DEBUG_STATS or \
                     gc.DEBUG_COLLECTABLE set. cyclescope.find_tensor_cycles() still works"
                ));
            }
        }
    }
}

/// False if there is no memory at all to look with; then there is none to say so with either.
fn has_reserve() -> bool {
    #[cfg(feature = "extension")]
    return crate::memory::reserve::put_aside();
    #[cfg(not(feature = "extension"))]
    true
}
