//! The always-on watch: every collection is looked at, and what leaked is delivered.
//!
//! A [`Watcher`] has any number of watches. Each is for some devices, and gets a report of either every collection that
//! freed a leak or each distinct leak once. What the watcher finds goes into a queue, as plain data; see
//! [`Deliveries`].

mod checks;
mod collections;
mod deliveries;
mod freed;
mod ignored;
mod tally;

use std::cell::{Cell, RefCell};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::mem::take;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use collections::Collections;
pub use deliveries::{Deliveries, Delivery, News, Next};
pub use ignored::{By, Ignored};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
pub use tally::Tally;

use crate::analysis::{Behind, Busy, Found, Inspector};
use crate::collector::{Epochs, Hook, OwnCollections};
use crate::device::{DeviceSelection, is_host};
use crate::diagnose::known;
use crate::model::counts::LeakTally;
use crate::model::report::{Buffer, Collection, Leak, Occurrence, Report};

/// Maximum number of distinct leaks that a watch reports and remembers, so that a program that makes classes without
/// end does not use memory without end.
const LEAK_LIMIT: usize = 1000;

/// Garbage of more objects than this goes unexamined, which is said once: it would take the program
/// seconds, and gigabytes, in the middle of whatever it does.
const MOST: usize = 2_000_000;

/// Names a watch.
pub type WatchId = u64;

/// Whether a watch reports every leaking collection or each distinct leak once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    EveryCollection,
    OncePerLeak,
}

/// A leak is reported once it has held this many bytes in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Least {
    /// If all its memory is the host's.
    pub host: u64,
    pub device: u64,
}

struct Watch {
    id: WatchId,
    devices: DeviceSelection,
    frequency: Frequency,
    ignored: Ignored,
    /// Signatures of the leaks that are ignored.
    dismissed: HashSet<String>,
    /// Signatures of those that seemed to be a library's, and may be of the program's making.
    recalled: HashSet<String>,
    least: Least,
    /// No report is dropped while there is memory for it, also of leaks that were told before.
    keep_all: bool,
    tallies: HashMap<String, Tally>,
    /// It has been said that there are more leaks than [`LEAK_LIMIT`].
    overflowed: bool,
}

/// Looks at the garbage of every collection for all watches.
pub struct Watcher {
    inspector: Inspector,
    watches: RefCell<Vec<Watch>>,
    deliveries: Arc<Deliveries>,
    collections: Collections,
    /// For explicit checks.
    own: OwnCollections,
    /// When objects were made, for checks that ask for new ones only.
    epochs: Epochs,
    /// An explicit check runs its own collection, and reports on it itself.
    checking: Cell<bool>,
    /// An error of our own has been reported; one is enough.
    error_told: Cell<bool>,
    /// It has been said that there was more garbage than [`MOST`].
    too_many_told: Cell<bool>,
}

impl Watcher {
    /// # Errors
    /// As [`Inspector::new`].
    pub fn new(py: Python<'_>) -> PyResult<Rc<Self>> {
        // An exception type is made when it is first used, which may be where there is no memory.
        let _busy = py.get_type::<Busy>();
        known::prepare();
        let inspector = Inspector::new(py)?;
        // Rather now than in a collection, where there may be no memory.
        inspector.refresh(py);
        Ok(Rc::new(Self {
            inspector,
            watches: RefCell::default(),
            deliveries: Arc::default(),
            collections: Collections::default(),
            own: OwnCollections::default(),
            epochs: Epochs::default(),
            checking: Cell::new(false),
            error_told: Cell::new(false),
            too_many_told: Cell::new(false),
        }))
    }

    /// A hook for this watcher.
    ///
    /// # Errors
    /// As [`Hook::new`].
    pub fn hook(self: &Rc<Self>, py: Python<'_>) -> PyResult<Hook> {
        Hook::new(py, collections::handler(Rc::clone(self)))
    }

    /// True if the collector is one that can be watched; says once if it is not.
    pub fn can_watch(&self) -> bool {
        let can = self.inspector.gc().state.is_some();
        if !can && !self.error_told.replace(true) {
            self.report_trouble(
                "the garbage collector of this Python cannot be watched, because it keeps no lists of generations. Only \
                 explicit checks work here: cyclescope.find_tensor_cycles(), cyclescope.step(), \
                 cyclescope.forbid_tensor_cycles() and the pytest plugin"
                    .to_owned(),
            );
        }
        can
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
        least: Least,
        keep_all: bool,
    ) -> WatchId {
        // Unique in the program and all its forked children: a child inherits its parent's handles,
        // and stopping one of those must not stop a watch of the child's own.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.inspector.forget_classes();
        self.watches.borrow_mut().push(Watch {
            id,
            devices,
            frequency,
            ignored,
            dismissed: HashSet::new(),
            recalled: HashSet::new(),
            least,
            keep_all,
            tallies: HashMap::new(),
            overflowed: false,
        });
        id
    }

    /// Changes what a watch reports from now on. Its counts stay, except those of leaks that it has not reported and
    /// those to `forget`, by signature.
    pub fn change_watch(
        &self,
        id: WatchId,
        devices: DeviceSelection,
        ignored: Ignored,
        least: Least,
        forget: &[String],
    ) {
        self.inspector.forget_classes();
        let mut watches = self.watches.borrow_mut();
        if let Some(watch) = watches.iter_mut().find(|watch| watch.id == id) {
            watch.devices = devices;
            watch.ignored = ignored;
            watch.dismissed.clear();
            watch.recalled.clear();
            watch.least = least;
            watch
                .tallies
                .retain(|signature, tally| tally.sums.reported && !forget.contains(signature));
        }
    }

    /// Ends a watch; its tallies, largest first. Empty if there is no such watch.
    pub fn remove_watch(&self, id: WatchId) -> Vec<LeakTally> {
        let tallies = self.tallies(id);
        self.watches.borrow_mut().retain(|watch| watch.id != id);
        tallies
    }

    /// What a watch has seen so far, largest first.
    pub fn tallies(&self, id: WatchId) -> Vec<LeakTally> {
        let mut tallies: Vec<LeakTally> = self.of_tallies(id, |tally| tally.sums.clone());
        tallies.sort_by(|a, b| {
            b.bytes
                .cmp(&a.bytes)
                .then_with(|| a.signature.cmp(&b.signature))
        });
        tallies
    }

    /// When a watch has seen each leak so far, by signature.
    pub fn occurrences(&self, id: WatchId) -> HashMap<String, Vec<Occurrence>> {
        self.of_tallies(id, |tally| {
            (tally.sums.signature.clone(), tally.occurrences.clone())
        })
    }

    fn of_tallies<T, C: FromIterator<T>>(&self, id: WatchId, of: impl Fn(&Tally) -> T) -> C {
        let watches = self.watches.borrow();
        let watch = watches.iter().find(|watch| watch.id == id);
        let tallies = watch.into_iter().flat_map(|watch| watch.tallies.values());
        tallies.map(of).collect()
    }

    /// True if there is no watch.
    pub fn is_idle(&self) -> bool {
        self.watches.borrow().is_empty()
    }

    /// Reports what is garbage now to every watch, without collecting.
    pub fn last_look(&self, py: Python<'_>) {
        let started = Instant::now();
        let Some(devices) = self.devices() else {
            return;
        };
        if let Ok(look) = self
            .inspector
            .look(py, &devices, None, MOST, Behind::Ignored)
            && !look.found.is_empty()
        {
            let collection = Collection {
                trigger: "exit".to_owned(),
                generation: None,
                garbage_objects: look.objects as u64,
                pause_us: 0,
                importing: None,
                devices: Vec::new(),
            };
            let report = self.inspector.report(py, look.found, collection, started);
            self.tell(py, &report);
        }
    }

    /// The devices that some watch is about.
    fn devices(&self) -> Option<DeviceSelection> {
        let watches = self.watches.try_borrow().ok()?;
        watches
            .iter()
            .fold(None, |all: Option<DeviceSelection>, watch| {
                let one = &watch.devices;
                Some(all.map_or_else(|| one.clone(), |all| all.with(one)))
            })
    }

    /// Tells of an error of our own, the first time; that the inspector was at work already is none.
    fn note_error(&self, py: Python<'_>, error: &PyErr) {
        if error.is_instance_of::<Busy>(py) || self.error_told.replace(true) {
            return;
        }
        // To write out an exception takes memory of Python's, where there is none.
        let sentence = if error.is_instance_of::<PyMemoryError>(py) {
            "there was not enough memory to inspect the garbage of a collection, which continued without it"
                .to_owned()
        } else {
            format!("could not inspect the garbage of a collection: {error}")
        };
        self.report_trouble(sentence);
    }

    /// Says, the first time, that there was too much garbage to examine.
    fn note_too_many(&self, objects: usize) {
        if !self.too_many_told.replace(true) {
            self.report_trouble(format!(
                "a collection freed {objects} objects at once, among them tensors. A watch does not search \
                 more than {MOST} objects for cycles, because that would pause the program for seconds; \
                 cyclescope.find_tensor_cycles() has no such limit"
            ));
        }
    }

    /// As [`Inspector::redact`], also of what was told already.
    pub fn redact(&self) {
        if self.inspector.redacts() {
            return;
        }
        self.inspector.redact();
        if let Ok(mut watches) = self.watches.try_borrow_mut() {
            let tallies = watches.iter_mut().flat_map(|it| it.tallies.values_mut());
            tallies.for_each(Tally::hide);
        }
    }

    fn report_trouble(&self, sentence: String) {
        let news = News::Trouble(sentence);
        self.deliveries.send([Delivery {
            watch: 0,
            news,
            is_kept: true,
            ignored: Ignored::default(),
        }]);
    }

    /// Counts the leaks that all watches which they concern have told already, and takes them out; they went in a
    /// collection for which the program waited so long.
    fn count_known(&self, found: &mut Vec<Found>, pause_us: u64) {
        let Ok(mut watches) = self.watches.try_borrow_mut() else {
            return;
        };
        found.retain(|leak| {
            if !is_known(&watches, leak) {
                // A watch has begun since: what it was told of later is described.
                return !leak.is_counted_only;
            }
            let seen = Occurrence {
                pause_us,
                ..self.inspector.occurrence_of(leak)
            };
            for watch in watches.iter_mut().filter(|watch| watch.concerns(leak)) {
                if let Some(tally) = watch.tallies.get_mut(leak.signature()) {
                    tally.add(&seen, leak.objects(), &leak.shared);
                }
            }
            false
        });
    }

    /// True if all watches have reported the leak with this signature, and need not report it again.
    fn is_told(&self, signature: &str) -> bool {
        let has_told = |watch: &Watch| {
            let tally = watch.tallies.get(signature);
            watch.frequency == Frequency::OncePerLeak
                && tally.is_some_and(|it| it.sums.reported && !it.is_hidden)
        };
        let watches = self.watches.try_borrow();
        watches.is_ok_and(|watches| watches.iter().all(has_told))
    }

    /// True if one of the leaks may be new to a watch.
    fn tells_any(&self, found: &[Found]) -> bool {
        let watches = self.watches.try_borrow();
        watches.is_ok_and(|watches| found.iter().any(|leak| !is_known(&watches, leak)))
    }

    /// Brings a report to the watches that it concerns.
    fn tell(&self, _py: Python<'_>, report: &Report) {
        let mut news = Vec::new();
        if let Ok(mut watches) = self.watches.try_borrow_mut() {
            for watch in watches.iter_mut() {
                let mut is_doubtful = false;
                let leaks = report.leaks.iter().filter(|leak| {
                    concerns(leak, &watch.devices)
                        && match watch.dismiss(leak) {
                            None => watch.count(leak, report.time),
                            Some(is_librarys) => {
                                is_doubtful |= is_librarys;
                                is_librarys
                            }
                        }
                });
                let leaks: Vec<Leak> = leaks.cloned().collect();
                if !leaks.is_empty() {
                    let report = with_leaks(report, leaks);
                    news.push(Delivery {
                        watch: watch.id,
                        news: News::Report(Arc::new(report)),
                        // There are few of the former, and who asked for the latter relies on each.
                        is_kept: watch.frequency == Frequency::OncePerLeak || watch.keep_all,
                        ignored: match is_doubtful {
                            true => watch.ignored.clone(),
                            false => Ignored::default(),
                        },
                    });
                }
                if watch.tallies.len() >= LEAK_LIMIT
                    && !std::mem::replace(&mut watch.overflowed, true)
                {
                    news.push(Delivery {
                        watch: 0,
                        is_kept: true,
                        ignored: Ignored::default(),
                        news: News::Trouble(format!(
                            "a watch has seen {LEAK_LIMIT} distinct leaks, and neither reports nor counts \
                             further ones. Check whether the program creates classes or functions \
                             without end, or exclude leaks with ignore=[...]"
                        )),
                    });
                }
            }
        }
        if !news.is_empty() {
            self.deliveries.send(news);
        }
    }

    /// Counts the leaks of a report that seemed to be a library's and are none, and takes out those of them that are not
    /// to be reported (yet).
    pub fn recall(&self, id: WatchId, report: &mut Report) {
        let Ok(mut watches) = self.watches.try_borrow_mut() else {
            return;
        };
        let Some(watch) = watches.iter_mut().find(|watch| watch.id == id) else {
            return;
        };
        let time = report.time;
        report.leaks.retain(|leak| {
            if !watch.dismissed.contains(&leak.signature) {
                return true;
            }
            let has_room = watch.recalled.len() < LEAK_LIMIT;
            has_room && {
                watch.dismissed.remove(&leak.signature);
                watch.recalled.insert(leak.signature.clone());
                watch.count(leak, time)
            }
        });
    }
}

/// True if all watches that a leak concerns have reported it.
fn is_known(watches: &[Watch], leak: &Found) -> bool {
    let mut concerned = watches.iter().filter(|watch| watch.concerns(leak));
    concerned.all(|watch| watch.is_told(leak))
}

impl Watch {
    fn concerns(&self, leak: &Found) -> bool {
        leak.buffers().any(|b| self.devices.contains(&b.device))
    }

    /// True if the leak is known, and need not be reported (again).
    fn is_told(&self, leak: &Found) -> bool {
        let is_told = |tally: &Tally| {
            let bytes = tally.sums.bytes.saturating_add(leak.bytes_held());
            tally.sums.reported && !tally.is_hidden || !self.least.is_reached(bytes, leak.buffers())
        };
        self.dismissed.contains(leak.signature())
            || self.frequency == Frequency::OncePerLeak
                && self.tallies.get(leak.signature()).is_some_and(is_told)
    }

    /// `None` for a leak that is not ignored; for one that is, whether it is yet to be found out that it is a library's:
    /// in the collection no file is read that may show that the program made it.
    fn dismiss(&mut self, leak: &Leak) -> Option<bool> {
        let signature = &leak.signature;
        if self.recalled.contains(signature) {
            return None;
        }
        let by = self.ignored.by(leak)?;
        let is_new = self.dismissed.len() < LEAK_LIMIT && self.dismissed.insert(signature.clone());
        Some(is_new && by == By::Library)
    }

    /// Counts a leak; true if the watch should report it.
    fn count(&mut self, leak: &Leak, time: f64) -> bool {
        let full = self.tallies.len() >= LEAK_LIMIT;
        match self.tallies.entry(leak.signature.clone()) {
            Entry::Vacant(_) if full => self.frequency == Frequency::EveryCollection,
            Entry::Vacant(entry) => {
                let sums = &mut entry.insert(Tally::of(leak, time)).sums;
                sums.reported = self.least.is_reached(sums.bytes, leak.buffers.iter());
                sums.reported
            }
            Entry::Occupied(mut entry) => {
                let tally = entry.get_mut();
                let (mut objects, mut shared) = (leak.objects, &*leak.shared);
                for seen in &leak.occurrences {
                    tally.add(seen, take(&mut objects), take(&mut shared));
                }
                let is_reached = self.least.is_reached(tally.sums.bytes, leak.buffers.iter());
                is_reached && (tally.tell(leak) || self.frequency == Frequency::EveryCollection)
            }
        }
    }
}

impl Least {
    /// True if a leak of these buffers that has held this many bytes should be reported.
    fn is_reached<'a>(self, bytes: u64, mut buffers: impl Iterator<Item = &'a Buffer>) -> bool {
        let least = match buffers.all(|buffer| is_host(&buffer.device)) {
            true => self.host,
            false => self.device,
        };
        bytes >= least
    }
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
        left_out: report.left_out,
        processes: report.processes.clone(),
        earlier: report.earlier.clone(),
        epochs: report.epochs.clone(),
    }
}
