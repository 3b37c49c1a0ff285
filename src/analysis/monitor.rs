//! What grows with the number of steps: groups of tensors, types of objects, containers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::book::{Book, FEWEST, LookAtType, Moment};
use super::busy::busy;
use super::counters::counters;
use super::gradient_watch::GradientWatch;
use super::grown::{Arrays, Diagnosis, GroupKind, Grouping, Name};
use super::room::ask_for_room;
use super::sample::{KeptOnModule, Piece};
use super::told::{Due, Finding, Followed, Origin, Told, other};
use crate::cpython::StoppedWorld;
use crate::cpython::sizes::Sizes;
use crate::device::DeviceSelection;
use crate::diagnose::cohorts::{NEEDED, WARM_UP};
use crate::diagnose::growth::ACTIVATION_ON_MODULE;
use crate::diagnose::source::{Sources, adding, limiting};
use crate::model::cells::name_cell;
use crate::model::growth::{Counters, Grown, Growth, GrowthReport, Sample as Size};
use crate::model::redact::shorten;

/// The part of what is told that must have come in the window.
const LATELY: f64 = 0.5;
/// An owner of so many of the objects of a type is said to keep them.
const ALL: f64 = 0.8;

/// `file:line` that allocated the memory of a device at an address, if PyTorch recorded it.
pub type LineOf<'a> = &'a dyn Fn(&str, u64) -> PyResult<Option<String>>;

/// The address of a container with its arrays.
type Filled = (usize, Arrays);
/// The address of a container with the number of its strings and numbers, their bytes, and the class of the largest.
type Atoms = (usize, (u64, u64, String));

/// Follows the tensors of some devices.
pub struct Monitor {
    devices: DeviceSelection,
    min_bytes: f64,
    /// Locked for moments only, in which no Python code can run: so nobody waits.
    book: Mutex<Book>,
    gradients: Mutex<GradientWatch>,
}

/// Objects with so many times the bytes from which on they are told may be fewer than [`FEWEST`].
const LARGE: f64 = 16.0;
const FEWEST_LARGE: u64 = 20;
/// Less than so many bytes are never many.
const MIB: f64 = 1_048_576.0;

fn is_large(found: &Diagnosis, min_bytes: f64) -> bool {
    found.objects >= FEWEST_LARGE && found.bytes as f64 >= LARGE * min_bytes.max(MIB)
}

/// What is new at a step: what grows, and what was told and no longer is believed.
#[derive(Default)]
pub struct News {
    pub told: Vec<Growth>,
    /// Each with whether it is kept, but grows no longer.
    pub cleared: Vec<(Growth, bool)>,
}

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
        let whole = book.left().filter(|it| !it.is_part && it.limit.is_none());
        whole.map(|told| told.growth.clone()).collect()
    }

    /// What was found, in a report that says the rest already.
    pub fn report(&self, rest: GrowthReport) -> GrowthReport {
        let book = self.book();
        let sizes = |followed: &Followed| {
            if let Some(objects) = book.objects_of(followed) {
                return objects;
            }
            let group = book.group_of(followed);
            group.map_or_else(Vec::new, |it| book.at_steps(it.totals.iter().copied()))
        };
        let grown = |told: &Told| Grown {
            growth: told.growth.clone(),
            history: sizes(&told.followed),
            explains: book.explained(told).0,
            since: book.more_since(told),
        };
        let all: Vec<Size> = book.at_steps(book.all());
        let allocated = book.allocated.iter().zip(&book.groups.steps);
        let allocated: Vec<Size> = allocated
            .filter(|(bytes, _)| **bytes > 0)
            .map(|(&bytes, &step)| (step, 0, bytes))
            .collect();
        let measured = match allocated.is_empty() {
            true => &all,
            false => &allocated,
        };
        let first = measured.get(WARM_UP).copied().unwrap_or_default();
        let last = measured.last().copied().unwrap_or_default();
        let hidden: u64 = match allocated.is_empty() {
            true => book.left().map(|told| book.explained(told).1).sum(),
            false => 0,
        };
        let whole = book.left().filter(|told| !told.is_part);
        let mut found: Vec<Grown> = whole.map(grown).collect();
        for part in book.left().filter(|told| told.is_part).map(grown) {
            if let Some(whole) = found.iter_mut().find(|it| it.growth.is_same(&part.growth)) {
                whole.explains += part.explains;
                for (sum, more) in whole.history.iter_mut().zip(part.history) {
                    sum.1 += more.1;
                    sum.2 += more.2;
                }
            }
        }
        found.sort_by_key(|grown| Reverse(grown.explains));
        let is_limited = |it: &Grown| {
            let mut limited = book.left().filter(|told| told.limit.is_some());
            limited.any(|told| !told.is_part && told.growth.is_same(&it.growth))
        };
        let (limited, found) = found.into_iter().partition(is_limited);
        let withdrawn = |has_stopped| {
            book.cleared()
                .filter(move |it| it.has_stopped == has_stopped)
        };
        let missing = (NEEDED as u64).saturating_sub(rest.samples);
        GrowthReport {
            needed: NEEDED as u64,
            known_from: rest.known_from + missing.saturating_sub(1) * rest.every,
            found,
            limited,
            cleared: withdrawn(false)
                .filter(|told| told.limit.is_none())
                .map(|told| told.growth.clone())
                .collect(),
            stopped: withdrawn(true).map(grown).collect(),
            untold: book.untold_objects(),
            counters: book.counters.clone(),
            since: first.0,
            grown: last.2 as i64 - first.2 as i64 + hidden as i64,
            all,
            allocated,
            ..rest
        }
    }
}

impl Inspector {
    /// Looks at the gradients at the end of a step.
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
        let Some(uncleared) = uncleared else {
            return Ok(Vec::new());
        };
        let found = self.uncleared_gradients(py, uncleared)?;
        self.tell(
            py,
            monitor,
            now,
            line_of,
            found.map(other).into_iter().collect(),
        )
    }

    /// Takes a sample, and tells what grows and was not told before, and what has been given back.
    pub fn watch_growth(
        &self,
        py: Python<'_>,
        monitor: &Monitor,
        now: Moment,
        line_of: LineOf<'_>,
    ) -> PyResult<News> {
        ask_for_room(0, 0)?;
        let (explained, mark) = {
            let book = monitor.book();
            (book.told.iter().any(|told| told.keeps_graphs), book.mark())
        };
        let mut sample = {
            let mut gradients = monitor.gradients.try_lock().map_err(|_| busy())?;
            let walked = (!explained).then_some(mark);
            let followed = monitor.book().types.followed();
            self.sample(py, &monitor.devices, walked, &followed, &mut gradients)?
        };
        let (due, cleared) = {
            let mut book = monitor.book();
            book.counters.push(Counters {
                step: now.step,
                pinned: now.pinned,
                ..counters()
            });
            let due = book.add(&sample, now, monitor.min_bytes);
            (due, book.clear())
        };
        // Before the looks: what the sample holds would seem to be held by the program.
        let containers = std::mem::take(&mut sample.containers);
        let (arrays, atoms) = self.contents_of(py, monitor, containers, &sample.pieces)?;
        let mut findings: Vec<Finding> = Vec::new();
        if !due.is_empty() {
            let (groups, members): (Vec<Due>, Vec<Grouping>) = due.into_iter().unzip();
            for (group, (found, known)) in groups.iter().zip(self.diagnose(py, &members)?) {
                monitor.book().attribute(&group.key, &known, &found);
                if !group.is_growing {
                    continue;
                }
                // Beside an owner with enough another may soon have as much.
                let small = found.iter().map(|it| it.bytes);
                let small = small.filter(|&bytes| (bytes as f64) < monitor.min_bytes);
                if let Some(largest) = small.max().or(found.is_empty().then_some(0)) {
                    let mut book = monitor.book();
                    book.put_off_group(&group.key, largest, monitor.min_bytes);
                }
                let is_any_size = matches!(group.key.0, GroupKind::Graph | GroupKind::Function);
                let found = found.into_iter();
                let large = found.filter(|it| is_any_size || it.bytes as f64 >= monitor.min_bytes);
                findings.extend(large.map(|diagnosis| Finding {
                    diagnosis,
                    from: Origin::Group(group.clone()),
                }));
            }
        }
        findings.extend(self.longer(py, monitor)?);
        findings.extend(self.containers_of_arrays(py, arrays)?);
        if !explained && !findings.iter().any(|it| it.diagnosis.pattern.keeps_graphs) {
            let states = monitor.book().states_that_grow(&sample);
            if let Some(states) = states {
                let marks = monitor.book().marks.clone();
                let found = self.diagnose_state(py, &states, &marks)?;
                findings.extend(found.map(|diagnosis| Finding {
                    diagnosis,
                    from: Origin::State,
                }));
            }
        }
        findings.extend(self.kept_on_modules(py, monitor, sample.kept_on_modules)?);
        monitor.book().add_mark(sample.mark);
        findings.extend(self.objects(py, monitor, now)?);
        findings.extend(self.containers_of_atoms(py, atoms)?);
        findings.extend(monitor.book().of_process());
        let mut told = monitor.book().beyond_limit(now);
        told.extend(self.tell(py, monitor, now, line_of, findings)?);
        Ok(News { told, cleared })
    }

    /// Counts once more what those keep that were told, as a monitor ends.
    pub fn end_growth(&self, py: Python<'_>, monitor: &Monitor) -> PyResult<()> {
        let (groups, members): (Vec<Due>, Vec<Grouping>) =
            monitor.book().told_groups().into_iter().unzip();
        if groups.is_empty() {
            return Ok(());
        }
        for (group, (found, known)) in groups.iter().zip(self.diagnose(py, &members)?) {
            monitor.book().attribute_more(&group.key, &known, &found);
        }
        Ok(())
    }

    /// The attributes of modules that keep a tensor with its graph.
    fn kept_on_modules(
        &self,
        py: Python<'_>,
        monitor: &Monitor,
        found: Vec<KeptOnModule>,
    ) -> PyResult<Vec<Finding>> {
        let kept = monitor.book().persistent(found);
        if kept.is_empty() {
            return Ok(Vec::new());
        }
        let attributes: Vec<_> = kept.iter().map(|it| (it.module, it.tensor)).collect();
        let owners = self.owners_of(py, &attributes)?.into_iter().zip(kept);
        let findings = owners.filter_map(|(owner, kept)| {
            let found = Diagnosis {
                pattern: ACTIVATION_ON_MODULE,
                owner: owner?,
                bytes: kept.bytes,
                example: kept.example,
                tensors: 1,
                ..Diagnosis::default()
            };
            Some(other(found))
        });
        Ok(findings.collect())
    }

    /// The tensors that become longer.
    fn longer(&self, py: Python<'_>, monitor: &Monitor) -> PyResult<Vec<Finding>> {
        let due = monitor.book().due_longer(monitor.min_bytes);
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&[Name]> = due.iter().map(|(_, names)| &**names).collect();
        let mut findings = Vec::new();
        for (owners, (family, names)) in self.diagnose_longer(py, &names)?.into_iter().zip(&due) {
            findings.extend(owners.into_iter().map(|diagnosis| {
                let share = diagnosis.tensors as f64 / names.len() as f64;
                Finding {
                    diagnosis,
                    from: Origin::Longer {
                        family: *family,
                        share,
                    },
                }
            }));
        }
        Ok(findings)
    }

    /// The arrays, and the strings and numbers, in those containers that have become longer.
    fn contents_of<'py>(
        &self,
        py: Python<'py>,
        monitor: &Monitor,
        containers: Vec<(Bound<'py, PyAny>, u64)>,
        pieces: &[Piece],
    ) -> PyResult<(Vec<Filled>, Vec<Atoms>)> {
        let due = monitor.book().due_containers();
        let (mut arrays, mut atoms) = (Vec::new(), Vec::new());
        if due.is_empty() {
            return Ok((arrays, atoms));
        }
        let _stopped = StoppedWorld::new(py);
        let steady = monitor.book().steady_containers(&due);
        let shown: FxHashSet<u64> = pieces.iter().map(|piece| piece.name.1).collect();
        let sizes = Sizes::new(py, &self.builtins)?;
        let is_enough = |bytes: u64| bytes as f64 >= monitor.min_bytes;
        for (container, _) in &containers {
            let address = container.as_ptr() as usize;
            if !due.contains(&address) {
                continue;
            }
            let bytes = if let Some(found) = self.arrays_in(container, &monitor.devices, &shown)? {
                let bytes = found.bytes;
                if is_enough(bytes) {
                    arrays.push((address, found));
                }
                bytes
            } else if steady.contains(&address) {
                let found = self.atoms_in(container, &sizes);
                let bytes = found.1;
                if found.0 >= FEWEST && is_enough(bytes) {
                    atoms.push((address, found));
                }
                bytes
            } else {
                0
            };
            if bytes > 0 && !is_enough(bytes) {
                let mut book = monitor.book();
                book.put_off_container(address, bytes, monitor.min_bytes);
            }
        }
        Ok((arrays, atoms))
    }

    /// The containers that accumulate arrays, which the collector does not know.
    fn containers_of_arrays(&self, py: Python<'_>, full: Vec<Filled>) -> PyResult<Vec<Finding>> {
        if full.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.diagnose_arrays(py, &full)?.into_iter().zip(full);
        let found = found.filter_map(|(found, (address, arrays))| {
            let diagnosis = Diagnosis {
                tensors: arrays.count,
                bytes: arrays.bytes,
                hidden: arrays.hidden,
                ..found?
            };
            Some(Finding {
                diagnosis,
                from: Origin::Arrays(address),
            })
        });
        Ok(found.collect())
    }

    /// The owners of types that have more and more objects.
    fn objects(&self, py: Python<'_>, monitor: &Monitor, now: Moment) -> PyResult<Vec<Finding>> {
        let due = monitor.book().due_objects();
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let (groups, lengths): (Vec<_>, Vec<_>) =
            due.into_iter().map(|it| (it.group, it.length)).unzip();
        let found = self.diagnose_objects(py, &groups)?;
        let mut findings = Vec::new();
        for ((group, length), looked) in groups.iter().zip(lengths).zip(found) {
            let found = looked.found;
            let came = group.members.len() as u64 * group.weight;
            let largest = found.iter().max_by_key(|it| it.bytes);
            let each = |it: &Diagnosis| it.bytes as f64 / it.objects.max(1) as f64;
            // As many more as bring it to what is told.
            let more = largest.map_or(came / 2, |it| {
                let needed = (monitor.min_bytes / each(it).max(1.0)) as u64;
                needed.saturating_sub(it.objects).max(came / 4)
            });
            let look = LookAtType {
                step: now.step,
                name: looked.class,
                owner: largest.map(|it| it.owner.clone()).unwrap_or_default(),
                keeps_all: largest.is_some_and(|it| it.objects as f64 >= ALL * came as f64),
                each: largest.map_or(0.0, each),
                is_limited: looked.is_limited && found.is_empty(),
            };
            monitor.book().note_look(group.ty, look, &found);
            monitor.book().types.put_off(&group.ty, more);
            let ty = group.ty;
            // The window may be shorter than the time in which they came, but is a good part of it.
            let large = found.into_iter().filter(|it| {
                (it.objects >= FEWEST || is_large(it, monitor.min_bytes))
                    && it.bytes as f64 >= monitor.min_bytes
                    && it.bytes as f64 * it.lately >= LATELY * monitor.min_bytes
            });
            findings.extend(large.map(|diagnosis| Finding {
                diagnosis,
                from: Origin::Objects { ty, length },
            }));
        }
        // Of an object and its parts the object keeps most.
        findings.sort_by_key(|it| Reverse(it.diagnosis.bytes));
        Ok(findings)
    }

    /// The containers that accumulate strings, numbers and what else the collector does not track.
    fn containers_of_atoms(&self, py: Python<'_>, full: Vec<Atoms>) -> PyResult<Vec<Finding>> {
        if full.is_empty() {
            return Ok(Vec::new());
        }
        let containers: Vec<usize> = full.iter().map(|(address, _)| *address).collect();
        let found = self.diagnose_atoms(py, &containers)?.into_iter().zip(full);
        let found = found.filter_map(|(found, (address, (objects, bytes, example)))| {
            let diagnosis = Diagnosis {
                objects,
                bytes,
                example,
                ..found?
            };
            Some(Finding {
                diagnosis,
                from: Origin::Atoms(address),
            })
        });
        Ok(found.collect())
    }

    /// Those of some findings that were not told before.
    fn tell(
        &self,
        py: Python<'_>,
        monitor: &Monitor,
        now: Moment,
        line_of: LineOf<'_>,
        findings: Vec<Finding>,
    ) -> PyResult<Vec<Growth>> {
        let mut news: Vec<Growth> = Vec::new();
        let (mut trees, mut beside) = (Vec::new(), HashMap::new());
        for found in findings {
            if monitor.book().has_told(&found) {
                monitor.book().tell_part(now, found);
                continue;
            }
            let was_told = monitor.book().replaces_objects(&found);
            let diagnosis = &found.diagnosis;
            let line = line_of(&diagnosis.device, diagnosis.pointer)?.map(|mut line| {
                if self.redacts() {
                    shorten(&mut line);
                }
                line
            });
            trees.extend(diagnosis.is_tree.then(|| diagnosis.owner.clone()));
            beside.insert(diagnosis.owner.clone(), diagnosis.beside.clone());
            let growth = monitor.book().tell(now, found, line, false);
            if !was_told {
                news.push(growth);
            }
        }
        let is_shown = !news.is_empty() && !self.redacts();
        let asked = is_shown.then(|| Self::ask(py));
        let mut sources = asked
            .as_ref()
            .map_or_else(Sources::default, |asked| Sources::new(&asked.program));
        let mut told_now = Vec::new();
        for growth in news {
            let (mut lines, mut limit) = (Vec::new(), None);
            if let Some(asked) = &asked {
                (lines, limit) = py.detach(|| {
                    let lines = match trees.contains(&growth.owner) {
                        true => Vec::new(),
                        false => adding(&growth, &asked.program, &mut sources),
                    };
                    let beside = beside.remove(&growth.owner).unwrap_or_default();
                    let limit = limiting(&growth, &beside, &asked.program, &mut sources);
                    (lines, limit)
                });
                let limiting = limit.iter_mut().flat_map(|it| &mut it.lines);
                let all = lines.iter_mut().chain(limiting);
                all.for_each(|it| name_cell(it, &asked.cells));
            }
            told_now.extend(monitor.book().show(growth, lines, limit));
        }
        Ok(told_now)
    }
}
