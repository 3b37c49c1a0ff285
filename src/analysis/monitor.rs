//! Which groups of tensors grow with the number of steps.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::busy::busy;
use super::growth::{Diagnosis, GroupKind, Name};
use super::sample::{GradientWatch, KeptOnModule, Sample};
use crate::device::DeviceSelection;
use crate::diagnose::cohorts::{Cohorts, NEEDED, WINDOW, has_grown};
use crate::diagnose::growth::ACTIVATION_ON_MODULE;
use crate::model::growth::{Grown, Growth, GrowthReport, Sample as Size};
use crate::model::redact::shorten;

/// What is kept from one step to the next is told when so many samples in a row have seen it.
const PERSISTENT: u32 = 3;

/// What tensors are counted together by: what they are, device and dtype.
type Key = (GroupKind, String, String);

/// When a sample is taken.
#[derive(Clone, Copy)]
pub struct Moment {
    pub step: u64,
    /// Number of steps between samples.
    pub every: u64,
    /// Bytes in use by the allocator's count.
    pub allocated: u64,
}

/// `file:line` that allocated the memory of a device at an address, if PyTorch recorded it.
pub type LineOf<'a> = &'a dyn Fn(&str, u64) -> PyResult<Option<String>>;

/// Follows the tensors of some devices.
pub struct Monitor {
    devices: DeviceSelection,
    min_bytes: f64,
    /// Locked for moments only, in which no Python code can run: so nobody waits.
    book: Mutex<Book>,
    gradients: Mutex<GradientWatch>,
}

/// What the samples have shown so far.
#[derive(Default)]
struct Book {
    groups: Cohorts<Key, Name>,
    /// The number of the sample at which a group that grows was last looked at.
    looked_at: FxHashMap<Key, usize>,
    /// At each sample, how many autograd functions were older than the one before.
    older: Vec<u64>,
    /// In how many samples in a row attributes of modules have kept a tensor with a graph.
    kept: FxHashMap<(String, String), u32>,
    /// The shapes of the tensors with graphs at the last sample, by the number of their function.
    roots: FxHashMap<u64, Vec<u64>>,
    /// The number of the first autograd function that was made after the last sample.
    mark: u64,
    /// At each sample: its step, and the bytes in use by the allocator's count.
    samples: Vec<(u64, u64)>,
    told: Vec<Told>,
}

struct Told {
    growth: Growth,
    keeps_graphs: bool,
    /// The group that grows; `None` if its number does not.
    group: Option<Key>,
}

/// Something to tell, with its group.
type Finding = (Diagnosis, Option<Key>);

impl Monitor {
    pub fn new(devices: DeviceSelection, min_bytes: f64) -> Self {
        Self {
            devices,
            min_bytes,
            book: Mutex::default(),
            gradients: Mutex::default(),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The growing groups, as they were when first told.
    pub fn found(&self) -> Vec<Growth> {
        let book = self.book();
        book.told.iter().map(|told| told.growth.clone()).collect()
    }

    /// What was found, in a report that says the rest already.
    pub fn report(&self, rest: GrowthReport) -> GrowthReport {
        let book = self.book();
        let sizes = |group: &Option<Key>| {
            let group = group.as_ref().and_then(|key| book.groups.groups.get(key));
            group.map_or_else(Vec::new, |it| book.at_steps(it.totals.iter().copied()))
        };
        let grown = |told: &Told| Grown {
            growth: told.growth.clone(),
            history: sizes(&told.group),
        };
        let tensors = || {
            let groups = book.groups.groups.iter();
            groups.filter(|((kind, ..), _)| *kind != GroupKind::Function)
        };
        let all = (0..book.samples.len()).map(|at| {
            tensors().fold((0, 0), |sum, (_, group)| {
                let (count, bytes) = group.totals[at];
                (sum.0 + count, sum.1 + bytes)
            })
        });
        let allocated = book.samples.iter().filter(|(_, bytes)| *bytes > 0);
        GrowthReport {
            needed: NEEDED as u64,
            found: book.told.iter().map(grown).collect(),
            all: book.at_steps(all),
            allocated: allocated.map(|&(step, bytes)| (step, 0, bytes)).collect(),
            ..rest
        }
    }
}

impl Inspector {
    /// Looks at the gradients at the end of a step.
    ///
    /// # Errors
    /// As [`Inspector::sample`].
    pub fn watch_gradients(
        &self,
        py: Python<'_>,
        monitor: &Monitor,
        now: Moment,
        line_of: LineOf<'_>,
    ) -> PyResult<Vec<Growth>> {
        let uncleared = match monitor.gradients.try_lock() {
            Ok(mut gradients) => gradients.step(self, py),
            Err(_) => return Err(busy()),
        };
        if !uncleared {
            return Ok(Vec::new());
        }
        let found = self.uncleared_gradients(py)?;
        self.tell(monitor, now, line_of, vec![(found, None)])
    }

    /// Takes a sample, and tells what grows and was not told before.
    ///
    /// # Errors
    /// As [`Inspector::heap`].
    pub fn watch_growth(
        &self,
        py: Python<'_>,
        monitor: &Monitor,
        now: Moment,
        line_of: LineOf<'_>,
    ) -> PyResult<Vec<Growth>> {
        let (explained, mark) = {
            let book = monitor.book();
            (book.told.iter().any(|told| told.keeps_graphs), book.mark)
        };
        let sample = {
            let mut gradients = monitor.gradients.try_lock().map_err(|_| busy())?;
            let walked = (!explained).then_some(mark);
            self.sample(py, &monitor.devices, walked, &mut gradients)?
        };
        let due = monitor.book().add(&sample, now, monitor.min_bytes);
        let mut findings: Vec<Finding> = Vec::new();
        if !due.is_empty() {
            let (keys, groups): (Vec<Key>, Vec<_>) = due
                .into_iter()
                .map(|(key, names)| (key.clone(), (key.0, names)))
                .unzip();
            let found = self.diagnose(py, &groups)?.into_iter().zip(keys);
            findings.extend(found.filter_map(|(found, key)| Some((found?, Some(key)))));
        }
        if !explained && !findings.iter().any(|(it, _)| it.pattern.keeps_graphs) {
            let states = monitor.book().states_that_grow(&sample);
            if let Some(states) = states {
                let found = self.diagnose_state(py, &states, mark)?;
                findings.extend(found.map(|found| (found, None)));
            }
        }
        let kept = monitor.book().persistent(sample.kept_on_modules);
        if !kept.is_empty() {
            let attributes: Vec<_> = kept.iter().map(|it| (it.module, it.tensor)).collect();
            let owners = self.owners_of(py, &attributes)?.into_iter().zip(kept);
            findings.extend(owners.filter_map(|(owner, kept)| {
                let found = Diagnosis {
                    pattern: ACTIVATION_ON_MODULE,
                    owner: owner?,
                    bytes: kept.bytes,
                    example: kept.example,
                    tensors: 1,
                    ..Diagnosis::default()
                };
                Some((found, None))
            }));
        }
        monitor.book().mark = sample.mark;
        self.tell(monitor, now, line_of, findings)
    }

    /// Those of some findings that were not told before.
    fn tell(
        &self,
        monitor: &Monitor,
        now: Moment,
        line_of: LineOf<'_>,
        findings: Vec<Finding>,
    ) -> PyResult<Vec<Growth>> {
        let mut news = Vec::new();
        for (found, group) in findings {
            if monitor.book().has_told(&found) {
                continue;
            }
            let line = line_of(&found.device, found.pointer)?.map(|mut line| {
                if self.redacts() {
                    shorten(&mut line);
                }
                line
            });
            news.push(monitor.book().tell(now, found, group, line));
        }
        Ok(news)
    }
}

impl Book {
    /// Values with the step of their sample in front.
    fn at_steps(&self, values: impl Iterator<Item = (u64, u64)>) -> Vec<Size> {
        let samples = self.samples.iter().zip(values);
        samples
            .map(|(&(step, _), (count, bytes))| (step, count, bytes))
            .collect()
    }

    /// Takes note of a sample. The groups that grow, each with some of its youngest members, but not those
    /// that were looked at a short while ago.
    fn add(&mut self, sample: &Sample, now: Moment, min_bytes: f64) -> Vec<(Key, Vec<Name>)> {
        self.samples.push((now.step, now.allocated));
        let pieces = sample.pieces.iter().map(|it| {
            let key = (it.kind, it.device.clone(), it.dtype.clone());
            (key, it.name, it.bytes)
        });
        let functions = sample.functions.iter().map(|&address| {
            let key = (GroupKind::Function, String::new(), String::new());
            (key, (address, 0), 0)
        });
        self.groups.add(pieces.chain(functions));
        let number = self.groups.samples;
        let mut due = Vec::new();
        for (key, group) in self.groups.growing() {
            let last = self.looked_at.get(key);
            if last.is_some_and(|last| number - last < WINDOW) {
                continue;
            }
            self.looked_at.insert(key.clone(), number);
            let is_any_size = matches!(key.0, GroupKind::Graph | GroupKind::Function);
            if is_any_size || group.grown() as f64 >= min_bytes {
                due.push((key.clone(), self.groups.youngest(group)));
            }
        }
        due
    }

    /// The tensors with graphs if these reach further back at each sample, each with whether it may be a
    /// state that is carried from step to step.
    fn states_that_grow(&mut self, sample: &Sample) -> Option<Vec<(Name, bool)>> {
        let older = sample.older?;
        let crossed: FxHashSet<u64> = sample.crossed.iter().copied().collect();
        let states: FxHashSet<Vec<u64>> = std::mem::take(&mut self.roots)
            .into_iter()
            .filter(|(number, _)| crossed.contains(number))
            .map(|(_, shape)| shape)
            .collect();
        let roots = sample.roots.iter();
        self.roots = roots.map(|(_, at, shape)| (*at, shape.clone())).collect();
        self.older.push(older);
        if !has_grown(&self.older) {
            return None;
        }
        self.older.clear();
        let roots = sample.roots.iter();
        Some(
            roots
                .map(|(it, _, shape)| (*it, states.contains(shape)))
                .collect(),
        )
    }

    /// What modules have kept for as many samples as are needed to tell it.
    fn persistent(&mut self, found: Vec<KeptOnModule>) -> Vec<KeptOnModule> {
        let before = std::mem::take(&mut self.kept);
        let mut seen: FxHashMap<(String, String), KeptOnModule> = FxHashMap::default();
        for kept in found {
            seen.insert((kept.class.clone(), kept.attribute.clone()), kept);
        }
        let mut news = Vec::new();
        for (key, kept) in seen {
            let samples = before.get(&key).map_or(1, |samples| samples + 1);
            if samples == PERSISTENT {
                news.push(kept);
            }
            self.kept.insert(key, samples);
        }
        news.sort_by(|a, b| (&a.class, &a.attribute).cmp(&(&b.class, &b.attribute)));
        news
    }

    fn has_told(&self, found: &Diagnosis) -> bool {
        self.told.iter().any(|told| {
            told.growth.pattern == found.pattern.name && told.growth.owner == found.owner
        })
    }

    fn tell(
        &mut self,
        now: Moment,
        found: Diagnosis,
        group: Option<Key>,
        line: Option<String>,
    ) -> Growth {
        let pattern = found.pattern;
        let grown = group.as_ref().and_then(|key| self.groups.groups.get(key));
        let of_few = (found.tensors as u64, found.bytes);
        let (tensors, bytes) = grown.map_or(of_few, |group| group.size());
        let rate = grown.map_or(found.bytes_per_sample as f64, |it| it.bytes_per_sample());
        let growth = Growth {
            pattern: pattern.name.to_owned(),
            summary: pattern.summary(&found.owner, &found.hook, &found.evidence),
            owner: found.owner,
            advice: pattern.advice.to_owned(),
            step: now.step,
            tensors,
            bytes,
            bytes_per_step: rate / now.every as f64,
            example: found.example,
            allocated_at: line.or(found.site),
        };
        self.told.push(Told {
            growth: growth.clone(),
            keeps_graphs: pattern.keeps_graphs,
            group,
        });
        growth
    }
}
