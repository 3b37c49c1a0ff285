//! The always-on watch: every collection is looked at, and what leaked is delivered.
//!
//! A [`Watcher`] is the [`Handler`] of the hook. It has any number of watches, each for some devices
//! and each either told of every collection that freed a leak or of each distinct leak once. What
//! it finds goes into a queue, as plain data; see [`Deliveries`].

mod arming;
mod deliveries;
mod destroy;
mod ignored;
mod tally;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use arming::Arming;
pub use deliveries::{Deliveries, Delivery, News, Next};
use destroy::{allocated, destroy_leak_by_leak, freed_since};
pub use ignored::Ignored;
pub use tally::Tally;

use crate::device::DeviceSelection;
use crate::hook::{CollectionInfo, Garbage, Handler, Hook, Unreachable};
use crate::inspector::{Busy, Found, Inspector, confirm_gone, in_turn, prefer};
use crate::report::model::{Collection, Leak, Report};

/// A watch tells of, and remembers, at most so many distinct leaks: a program that makes classes without
/// end must not make it remember without end.
const LEAK_LIMIT: usize = 1000;

/// Garbage of more objects than this is not examined before its collection, only after it: to do both
/// would take twice as long, and cycles of so many that a finalizer breaks are hardly to be met.
const FORESEEN: usize = 250_000;
/// Garbage of more objects than this goes unexamined, which is said once: it would take the program
/// seconds, and gigabytes, in the middle of whatever it does.
const MOST: usize = 2_000_000;

/// Names a watch.
pub type WatchId = u64;

/// Whether a watch is told of every leaking collection or of each distinct leak once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    EveryCollection,
    OncePerLeak,
}

struct Watch {
    id: WatchId,
    devices: DeviceSelection,
    frequency: Frequency,
    ignored: Ignored,
    /// Every collection is looked at beforehand, so that no finalizer hides a leak.
    thorough: bool,
    tallies: HashMap<String, Tally>,
    /// It has been said that there are more leaks than [`LEAK_LIMIT`].
    overflowed: bool,
}

/// Looks at the garbage of every collection for all watches.
pub struct Watcher {
    inspector: Inspector,
    watches: RefCell<Vec<Watch>>,
    deliveries: Arc<Deliveries>,
    arming: Arming,
    /// What the look before the collection found, if there was one.
    foreseen: RefCell<Option<Foreseen>>,
    /// The explicit checks under way; several if one waits for its collection while others run
    /// on other threads. A collection answers the latest.
    requests: RefCell<Vec<Rc<Request>>>,
    /// An error of our own has been told; one is enough.
    complained: Cell<bool>,
    /// It has been said that there was more garbage than [`MOST`].
    shied: Cell<bool>,
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
    /// The explicit check that the collection is for.
    request: Option<Rc<Request>>,
}

/// An explicit check: the devices it is for, and its outcome.
struct Request {
    devices: DeviceSelection,
    report: RefCell<Option<Report>>,
}

/// The handler that the hook owns.
struct Shared(Rc<Watcher>);

impl Watcher {
    /// # Errors
    /// As [`Inspector::new`].
    pub fn new(py: Python<'_>) -> PyResult<Rc<Self>> {
        // An exception type is made when it is first used, which may be where there is no memory.
        let _busy = py.get_type::<Busy>();
        Ok(Rc::new(Self {
            inspector: Inspector::new(py)?,
            watches: RefCell::default(),
            deliveries: Arc::default(),
            arming: Arming::new(),
            foreseen: RefCell::new(None),
            requests: RefCell::default(),
            complained: Cell::new(false),
            shied: Cell::new(false),
        }))
    }

    /// Installs a hook for this watcher.
    ///
    /// # Errors
    /// As [`Hook::install`].
    pub fn install(self: &Rc<Self>, py: Python<'_>) -> PyResult<Hook> {
        Hook::install(py, Box::new(Shared(Rc::clone(self))))
    }

    /// What the watcher looks with.
    pub fn inspector(&self) -> &Inspector {
        &self.inspector
    }

    /// Where what is found is delivered.
    pub fn deliveries(&self) -> Arc<Deliveries> {
        Arc::clone(&self.deliveries)
    }

    pub fn add_watch(
        &self,
        devices: DeviceSelection,
        frequency: Frequency,
        ignored: Ignored,
        thorough: bool,
    ) -> WatchId {
        // Unique in the program and all its forked children: a child inherits its parent's handles,
        // and stopping one of those must not stop a watch of the child's own.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.watches.borrow_mut().push(Watch {
            id,
            devices,
            frequency,
            ignored,
            thorough,
            tallies: HashMap::new(),
            overflowed: false,
        });
        id
    }

    /// Ends a watch; its tallies, largest first. Empty if there is no such watch.
    pub fn remove_watch(&self, id: WatchId) -> Vec<Tally> {
        let tallies = self.tallies(id);
        self.watches.borrow_mut().retain(|watch| watch.id != id);
        tallies
    }

    /// What a watch has seen so far, largest first.
    pub fn tallies(&self, id: WatchId) -> Vec<Tally> {
        let watches = self.watches.borrow();
        let mut tallies: Vec<Tally> = watches
            .iter()
            .find(|watch| watch.id == id)
            .map(|watch| watch.tallies.values().cloned().collect())
            .unwrap_or_default();
        tallies.sort_by(|a, b| {
            b.bytes
                .cmp(&a.bytes)
                .then_with(|| a.signature.cmp(&b.signature))
        });
        tallies
    }

    /// True if there is no watch and no explicit check under way.
    pub fn is_idle(&self) -> bool {
        self.watches.borrow().is_empty() && self.requests.borrow().is_empty()
    }

    /// Looks for leaks before finalizers run, collects, and reports what went.
    ///
    /// # Errors
    /// If a collection is under way already, or the inspector is at work on another thread.
    pub fn find(&self, py: Python<'_>, hook: &Hook, devices: DeviceSelection) -> PyResult<Report> {
        let request = Rc::new(Request {
            devices: devices.clone(),
            report: RefCell::new(None),
        });
        self.requests.borrow_mut().push(Rc::clone(&request));
        let collected = hook.collect(py);
        self.requests
            .borrow_mut()
            .retain(|other| !Rc::ptr_eq(other, &request));
        let report = request.report.take();
        collected?;
        match report {
            Some(report) => Ok(report),
            // Called from within a collection: nothing was collected, so only look.
            None => self.inspector.find(py, &devices),
        }
    }

    /// Reports what is garbage now to every watch, without collecting.
    pub fn last_look(&self, py: Python<'_>) {
        let started = Instant::now();
        let Some(devices) = self.devices() else {
            return;
        };
        if let Ok((found, objects)) = self.inspector.look(py, &devices, None, MOST)
            && !found.is_empty()
        {
            let collection = Collection {
                trigger: "exit".to_owned(),
                generation: None,
                garbage_objects: objects as u64,
                pause_us: 0,
            };
            let report = self.inspector.report(py, found, collection, started);
            self.tell(py, &report, false);
        }
    }

    /// The devices that some watch, or the explicit check under way, is about.
    fn devices(&self) -> Option<DeviceSelection> {
        let watches = self.watches.try_borrow().ok()?;
        let requests = self.requests.try_borrow().ok()?;
        requests
            .iter()
            .map(|request| &request.devices)
            .chain(watches.iter().map(|watch| &watch.devices))
            .fold(None, |all: Option<DeviceSelection>, one| {
                Some(all.map_or_else(|| one.clone(), |all| all.with(one)))
            })
    }

    fn is_thorough(&self) -> bool {
        self.watches
            .try_borrow()
            .is_ok_and(|watches| watches.iter().any(|watch| watch.thorough))
    }

    fn request(&self) -> Option<Rc<Request>> {
        self.requests.try_borrow().ok()?.last().cloned()
    }

    /// The look before a collection: see `Arming`.
    fn foresee(&self, py: Python<'_>, generation: u32) {
        let due = self.arming.begin(generation) || self.is_thorough();
        let request = self.request();
        let asked = request.is_some();
        // The older generations are collected rarely enough to ask the allocator each time.
        if !due && !asked && generation == 0 {
            return;
        }
        let started = Instant::now();
        let Some(devices) = self.devices() else {
            return;
        };
        self.inspector.refresh(py);
        if !asked && !self.inspector.frameworks_known() {
            return;
        }
        let mut foreseen = Foreseen {
            found: Vec::new(),
            objects: 0,
            allocated: allocated(py, &devices),
            looked: false,
            started,
            request,
        };
        if asked || due {
            let (oldest, most) = if asked {
                (None, usize::MAX)
            } else {
                (Some(generation), FORESEEN)
            };
            match self.inspector.look(py, &devices, oldest, most) {
                Ok((found, objects)) => {
                    foreseen.found = found;
                    foreseen.objects = objects;
                    foreseen.looked = true;
                }
                Err(error) => self.note_error(py, &error),
            }
        }
        self.foreseen.replace(Some(foreseen));
    }

    /// A quick look at garbage of which nothing was foreseen; true if it holds a buffer.
    fn glance(&self, py: Python<'_>, garbage: &mut Unreachable<'_>, generation: u32) -> bool {
        let Some(devices) = self.devices() else {
            return false;
        };
        self.inspector.refresh(py);
        if garbage.is_empty() || !self.inspector.frameworks_known() {
            return false;
        }
        match self.inspector.glance(py, garbage, &devices) {
            Ok(glance) => {
                if !glance.holds_buffer {
                    self.arming
                        .learn(generation, false, false, glance.finalizer_ran);
                }
                glance.holds_buffer
            }
            Err(error) => {
                self.note_error(py, &error);
                false
            }
        }
    }

    fn examine_and_destroy(&self, py: Python<'_>, garbage: &mut Garbage<'_>, info: CollectionInfo) {
        let started = Instant::now();
        let mut foreseen = self.foreseen.replace(None);
        let Some(devices) = self.devices() else {
            return;
        };
        self.inspector.refresh(py);
        if !self.inspector.frameworks_known() {
            return;
        }
        let pointers = garbage.pointers();
        let in_collection = foreseen
            .as_ref()
            .map_or(0, |f| freed_since(py, &f.allocated));
        let glance = match self.inspector.glance(py, in_turn(pointers), &devices) {
            Ok(glance) => glance,
            Err(error) => return self.note_error(py, &error),
        };
        let mut found = Vec::new();
        let asked = foreseen.as_ref().is_some_and(|f| f.request.is_some());
        if glance.holds_buffer && garbage.len() > MOST && !asked {
            self.note_too_many(py, garbage.len());
        } else if glance.holds_buffer {
            let own = garbage.own_references();
            match self
                .inspector
                .examine(py, garbage.pointers(), own, &devices)
            {
                Ok(mut examination) => {
                    destroy_leak_by_leak(py, garbage, &mut examination);
                    found = examination.found;
                }
                Err(error) => self.note_error(py, &error),
            }
        }
        // What is in `found` is told from there. A cycle may have been saved and still not be in
        // it: if a finalizer dropped the buffer and left the cycle, only the look before saw it.
        let told: FxHashSet<usize> = found
            .iter()
            .flat_map(|entry| &entry.occurrences)
            .flat_map(|occurrence| &occurrence.addresses)
            .copied()
            .collect();
        if let Some(foreseen) = &mut foreseen {
            prefer(&foreseen.found, &mut found);
            // The first watch on such a buffer ends here: it would keep some buffers alive.
            for entry in &mut foreseen.found {
                entry
                    .occurrences
                    .retain(|o| !o.addresses.iter().any(|address| told.contains(address)));
            }
        }
        let count = garbage.len();
        let ours = garbage.is_ours();
        garbage.destroy();
        if ours {
            confirm_gone(py, &mut found, true);
        }

        let looked = foreseen.as_ref().is_some_and(|foreseen| foreseen.looked);
        let mut broken_early = Vec::new();
        let mut objects = count;
        let mut began = started;
        let mut request = None;
        if let Some(foreseen) = foreseen {
            request = foreseen.request;
            objects = objects.max(foreseen.objects);
            began = foreseen.started;
            broken_early = foreseen.found;
            confirm_gone(py, &mut broken_early, false);
        }
        let unexplained = in_collection > 0 && broken_early.is_empty();
        if let ([only], true) = (broken_early.as_mut_slice(), in_collection > 0) {
            only.set_freed(in_collection);
        }
        self.arming.learn(
            info.generation,
            looked,
            !broken_early.is_empty(),
            glance.finalizer_ran || unexplained,
        );
        found.append(&mut broken_early);

        if found.is_empty() && request.is_none() {
            return;
        }
        let collection = Collection {
            trigger: if request.is_some() { "find" } else { "watch" }.to_owned(),
            generation: Some(info.generation),
            garbage_objects: objects as u64,
            pause_us: 0,
        };
        let mut report = self.inspector.report(py, found, collection, began);
        if !ours && count > 0 {
            report.notes.push(
                "The program set gc.DEBUG_SAVEALL: its garbage stays in gc.garbage, and nothing \
                 was freed."
                    .to_owned(),
            );
        }
        // Answered before telling, which lets other threads run.
        if let Some(request) = request {
            let answer = about(&report, &request.devices);
            request.report.replace(Some(answer));
        }
        self.tell(py, &report, true);
    }

    /// Tells of an error of our own, the first time; that the inspector was at work already is none.
    fn note_error(&self, py: Python<'_>, error: &PyErr) {
        if error.is_instance_of::<Busy>(py) || self.complained.replace(true) {
            return;
        }
        // To write out an exception takes memory of Python's, where there is none.
        let sentence = if error.is_instance_of::<PyMemoryError>(py) {
            "there was not enough memory to look at a collection's garbage; it went on unseen"
                .to_owned()
        } else {
            format!("could not look at a collection's garbage: {error}")
        };
        self.complain(py, sentence);
    }

    /// Says, the first time, that there was too much garbage to examine.
    fn note_too_many(&self, py: Python<'_>, objects: usize) {
        if !self.shied.replace(true) {
            self.complain(
                py,
                format!(
                    "a collection freed {objects} objects at once, tensors among them. Garbage of more than \
                     {MOST} objects is not searched for cycles, as that would hold the program up for \
                     seconds; cyclescope.find_tensor_cycles() searches any"
                ),
            );
        }
    }

    fn complain(&self, py: Python<'_>, sentence: String) {
        let news = News::Trouble(sentence);
        self.deliveries
            .send(py, vec![Delivery { watch: 0, news }], false);
    }

    /// Brings a report to the watches that it concerns.
    fn tell(&self, py: Python<'_>, report: &Report, wait: bool) {
        let mut news = Vec::new();
        if let Ok(mut watches) = self.watches.try_borrow_mut() {
            for watch in watches.iter_mut() {
                let leaks: Vec<Leak> = report
                    .leaks
                    .iter()
                    .filter(|leak| {
                        concerns(leak, &watch.devices)
                            && !watch.ignored.contains(leak)
                            && watch.count(leak, report.time)
                    })
                    .cloned()
                    .collect();
                if !leaks.is_empty() {
                    let report = with_leaks(report, leaks);
                    news.push(Delivery {
                        watch: watch.id,
                        news: News::Report(Arc::new(report)),
                    });
                }
                if watch.tallies.len() >= LEAK_LIMIT
                    && !std::mem::replace(&mut watch.overflowed, true)
                {
                    news.push(Delivery {
                        watch: 0,
                        news: News::Trouble(format!(
                            "a watch has seen {LEAK_LIMIT} distinct leaks; of further ones it neither \
                             warns nor keeps count. Look whether the program makes classes or \
                             functions without end, or leave leaks out with ignore=[...]"
                        )),
                    });
                }
            }
        }
        if !news.is_empty() {
            self.deliveries.send(py, news, wait);
        }
    }
}

impl Watch {
    /// Counts a leak; true if the watch is to be told of it.
    fn count(&mut self, leak: &Leak, time: f64) -> bool {
        let full = self.tallies.len() >= LEAK_LIMIT;
        match self.tallies.entry(leak.signature.clone()) {
            Entry::Vacant(_) if full => self.frequency == Frequency::EveryCollection,
            Entry::Vacant(entry) => {
                entry.insert(Tally::of(leak, time));
                true
            }
            Entry::Occupied(mut entry) => {
                entry.get_mut().add(leak, time);
                self.frequency == Frequency::EveryCollection
            }
        }
    }
}

impl Handler for Shared {
    fn before(&self, py: Python<'_>, info: CollectionInfo) {
        self.0.foresee(py, info.generation);
    }

    fn needs_glance_only(&self) -> bool {
        !self.wants_empty()
    }

    fn glance(&self, py: Python<'_>, garbage: &mut Unreachable<'_>, info: CollectionInfo) -> bool {
        self.0.glance(py, garbage, info.generation)
    }

    fn held(&self, py: Python<'_>, garbage: &Garbage<'_>) -> Vec<usize> {
        let own = garbage.own_references();
        self.0.inspector.held(py, garbage.pointers(), own)
    }

    fn after(&self, py: Python<'_>, garbage: &mut Garbage<'_>, info: CollectionInfo) {
        self.0.examine_and_destroy(py, garbage, info);
    }

    fn wants_empty(&self) -> bool {
        self.0
            .foreseen
            .try_borrow()
            .is_ok_and(|foreseen| foreseen.is_some())
    }

    fn disabled(&self, py: Python<'_>, reason: &str) {
        self.0.complain(py, format!("stopped watching: {reason}"));
    }
}

/// The part of a report that is about some devices.
fn about(report: &Report, devices: &DeviceSelection) -> Report {
    let leaks = report.leaks.iter();
    let leaks = leaks.filter(|leak| concerns(leak, devices)).cloned();
    with_leaks(report, leaks.collect())
}

/// True if the leak holds a buffer on one of the devices.
fn concerns(leak: &Leak, devices: &DeviceSelection) -> bool {
    leak.buffers.iter().any(|b| devices.contains(&b.device))
}

/// The report with other leaks.
fn with_leaks(report: &Report, leaks: Vec<Leak>) -> Report {
    Report {
        schema: report.schema,
        tool: report.tool.clone(),
        time: report.time,
        process: report.process.clone(),
        collection: report.collection.clone(),
        leaks,
        notes: report.notes.clone(),
    }
}
