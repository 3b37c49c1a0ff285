//! What the samples of a monitor have shown so far, and what was told.

mod explained;
mod limited;
mod tell;
mod withdrawn;

use rustc_hash::{FxHashMap, FxHashSet};

use super::grown::{Diagnosis, GroupKind, Grouping, Name};
use super::objects::Grouped;
use super::sample::{KeptOnModule, Sample};
use super::told::{Counter, Due, DueObjects, Finding, Followed, Key, Origin, Told};
use crate::diagnose::census::Census;
use crate::diagnose::cohorts::{Cohorts, Group, WARM_UP, WINDOW, has_grown};
use crate::diagnose::growth::{FILES_GROW, PROCESS, THREADS_GROW};
use crate::diagnose::lengths::{Lasting, Lengths, Line, changing, family};
use crate::model::growth::{Counters, Sample as Size};

/// What is kept from one step to the next is told when so many samples in a row have seen it.
const PERSISTENT: u32 = 3;

/// How many tensors of one owner are followed on, to see whether it keeps them.
const FOLLOWED: usize = 256;

/// Who has given back this part of them has cleared the suspicion.
const GIVEN_BACK: f64 = 0.5;

/// An owner with this part of what came has all of it, but for what other owners hold for a step.
const ALL: f64 = 0.95;

/// What was withdrawn is told again once its group has grown by so many times what it gave back.
const BEYOND: f64 = 1.5;

/// A group is diagnosed again when there are more samples by this part.
const AGAIN: usize = 4;

/// So many by which a group has grown, at least this part of all, may be others' than those that were told.
const SOME: u64 = 8;
const LATELY_GROWN: f64 = 0.125;

/// A group has grown by this part at least when it is looked at again before that.
const MORE_OF_GROUP: u64 = 8;

/// Tensors are followed for their length if so many times their bytes are enough to be told.
const SMALL_PART: f64 = 16.0;

/// Of so many more threads or open files is told.
const MORE: u64 = 64;

/// Fewer objects than these are not told, unless they are large.
pub(super) const FEWEST: u64 = 100;

/// When a sample is taken.
#[derive(Clone, Copy)]
pub struct Moment {
    pub step: u64,
    /// Number of steps between samples.
    pub every: u64,
    /// Bytes in use by the allocator's count.
    pub allocated: u64,
    /// Bytes of pinned host memory that PyTorch holds.
    pub pinned: u64,
}

/// What the samples have shown so far.
#[derive(Default)]
pub(super) struct Book {
    pub groups: Cohorts<Key, Name>,
    /// The lengths of tensors, by family, and of containers, by address.
    lengths: Lengths<u64, Name>,
    lasting: Lasting,
    containers: Lengths<usize, usize>,
    /// The number of objects other than tensors, by the address of their type.
    pub types: Census<usize>,
    pub counters: Vec<Counters>,
    told_longer: FxHashSet<u64>,
    /// How long a container that becomes longer is when it is looked into again, with the step at which it began to.
    looked_into: FxHashMap<usize, (u64, u64)>,
    /// When a group that grows was last looked at.
    looked_at: FxHashMap<Key, LookedAt>,
    /// The number of the sample of the last look at each, also at those that did not grow then.
    looked_after: FxHashMap<Key, usize>,
    /// What the last look at a type with more and more objects has shown, by the address of the type.
    looks: FxHashMap<usize, LookAtType>,
    /// At each sample, how many autograd functions were older than the one before.
    older: Vec<u64>,
    /// At the last sample; `None` if that was not counted.
    older_now: Option<u64>,
    /// In how many samples in a row attributes of modules have kept a tensor with a graph.
    kept: FxHashMap<(String, String), u32>,
    /// The shapes of the tensors with graphs at the last sample, by the number of their function.
    roots: FxHashMap<u64, Vec<u64>>,
    /// Of each of the last samples, the last one at the end, the number of the first autograd function that was made
    /// after it.
    pub marks: Vec<u64>,
    /// At each sample, the bytes in use by the allocator's count.
    pub allocated: Vec<u64>,
    pub told: Vec<Told>,
}

/// When a group was last looked at.
#[derive(Clone, Copy)]
struct LookedAt {
    /// The number of the sample.
    sample: usize,
    /// It is looked at again when it has as many bytes, if that is sooner than usual.
    due_from: u64,
}

/// What a look at a type has shown, at a step.
pub(super) struct LookAtType {
    pub step: u64,
    pub name: String,
    /// Who keeps most of its objects, and the bytes of one of them; empty if there is nobody.
    pub owner: String,
    /// True if it keeps nearly all of them.
    pub keeps_all: bool,
    pub each: f64,
    /// Only what states its limit keeps them.
    pub is_limited: bool,
}

/// True if a line is gone, or another has taken its place since a step.
fn has_begun_since<N>(line: Option<&Line<N>>, step: u64) -> bool {
    line.is_none_or(|line| line.first_step >= step)
}

impl Book {
    /// Values with the step of their sample in front.
    pub fn at_steps(&self, values: impl Iterator<Item = (u64, u64)>) -> Vec<Size> {
        let samples = self.groups.steps.iter().zip(values);
        samples
            .map(|(&step, (count, bytes))| (step, count, bytes))
            .collect()
    }

    /// Number and bytes of all tensors, at each sample.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        let tensors = || {
            let groups = self.groups.groups.iter();
            groups.filter(|((kind, ..), _)| *kind != GroupKind::Function)
        };
        (0..self.groups.steps.len()).map(move |at| {
            tensors().fold((0, 0), |sum, (_, group)| {
                let (count, bytes) = group.totals[at];
                (sum.0 + count, sum.1 + bytes)
            })
        })
    }

    pub fn left(&self) -> impl Iterator<Item = &Told> {
        self.told.iter().filter(|told| !told.is_cleared)
    }

    pub fn cleared(&self) -> impl Iterator<Item = &Told> {
        self.told.iter().filter(|told| told.is_cleared)
    }

    /// Number of objects at each sample, with its step, if what was told is a type.
    pub fn objects_of(&self, followed: &Followed) -> Option<Vec<Size>> {
        let Followed::Objects { ty, .. } = followed else {
            return None;
        };
        let history = self.types.history(ty).into_iter();
        Some(history.map(|(step, count)| (step, count, 0)).collect())
    }

    pub fn group_of(&self, followed: &Followed) -> Option<&Group<Name>> {
        match followed {
            Followed::Group { key, .. } => self.groups.groups.get(key),
            _ => None,
        }
    }

    /// The tensors that have become longer, by family.
    pub fn due_longer(&mut self, min_bytes: f64) -> Vec<(u64, Vec<Name>)> {
        let told = &mut self.told_longer;
        let found = self.lengths.growing(min_bytes).into_iter();
        let found = found.filter(|(family, _)| told.insert(**family));
        let mut due: Vec<(u64, Vec<Name>)> = Vec::new();
        for (&family, line) in found {
            // What is longest of all is so of those that change.
            if due.iter().all(|(_, names)| *names != line.names) {
                due.push((family, line.names.clone()));
            }
        }
        due
    }

    /// The containers that have become longer, but not those that are not yet as long as they are to be for the next look.
    pub fn due_containers(&mut self) -> FxHashSet<usize> {
        let looked = &mut self.looked_into;
        let found = self.containers.growing(0.0).into_iter();
        let due = found.filter(|(address, line)| {
            let last = looked.get(*address).copied();
            let is_due = last
                .is_none_or(|(began, length)| began != line.first_step || line.length >= length);
            if is_due {
                let more = (line.length / AGAIN as u64).max(1);
                looked.insert(**address, (line.first_step, line.length + more));
            }
            is_due
        });
        due.map(|(&address, _)| address).collect()
    }

    /// Has a container that holds too few bytes to be told looked into when it may hold enough.
    pub fn put_off_container(&mut self, address: usize, bytes: u64, min_bytes: f64) {
        if let (Some(line), Some((_, due_from))) = (
            self.containers.get(&address),
            self.looked_into.get_mut(&address),
        ) {
            let needed = line.length as f64 * min_bytes / bytes.max(1) as f64;
            *due_from = (needed as u64).clamp(line.length + 1, 2 * line.length + 1);
        }
    }

    /// The containers among these that become longer at a steady rate.
    pub fn steady_containers(&self, due: &FxHashSet<usize>) -> FxHashSet<usize> {
        let step = self.groups.steps.last().copied().unwrap_or_default();
        let is_steady = |address: &usize| {
            let line = self.containers.get(address);
            line.is_some_and(|line| line.is_steady(step))
        };
        due.iter().copied().filter(is_steady).collect()
    }

    /// What the whole process has more and more of.
    pub fn of_process(&self) -> Vec<Finding> {
        let found = [
            (THREADS_GROW, Counter::Threads),
            (FILES_GROW, Counter::Files),
        ]
        .into_iter();
        let found = found.filter_map(|(pattern, counter)| {
            let values: Vec<u64> = self.counters.iter().map(|it| counter.of(it)).collect();
            let first = values.get(WARM_UP).copied().unwrap_or_default();
            let last = values.last().copied().unwrap_or_default();
            let objects = last.saturating_sub(first);
            let owner = PROCESS.to_owned();
            (has_grown(&values) && objects >= MORE).then(|| Finding {
                diagnosis: Diagnosis {
                    pattern,
                    owner,
                    objects,
                    ..Diagnosis::default()
                },
                from: Origin::Counter(counter),
            })
        });
        found.collect()
    }

    /// The types that have more and more objects.
    pub fn due_objects(&self) -> Vec<DueObjects> {
        let due = self.types.due().into_iter();
        due.map(|it| DueObjects {
            length: it.length,
            group: Grouped {
                ty: *it.key,
                members: it.members,
                steps: it.steps,
                weight: it.weight,
            },
        })
        .collect()
    }

    /// Follows what becomes longer: the tensors that are large enough by now to grow by as much, and containers.
    fn follow_lengths(&mut self, sample: &Sample<'_>, now: Moment, min_bytes: f64) {
        let large = sample
            .pieces
            .iter()
            .filter(|it| it.bytes as f64 * SMALL_PART >= min_bytes);
        let tensors = large.flat_map(|it| {
            (0..it.shape.len()).map(|dimension| {
                let family = family(&it.device, &it.dtype, &it.shape, dimension);
                (family, it.name, it.shape[dimension], it.bytes)
            })
        });
        let tensors: Vec<_> = tensors.collect();
        let lengths = tensors
            .iter()
            .map(|&(family, _, length, _)| (family, length));
        self.lasting.add(lengths);
        let of_changing = tensors
            .iter()
            .filter(|(family, _, length, _)| !self.lasting.has_lasted(*family, *length))
            .map(|&(family, name, length, bytes)| (changing(family), name, length, bytes));
        self.lengths
            .add(now.step, tensors.iter().copied().chain(of_changing));
        let containers = sample.containers.iter().map(|(container, length)| {
            let address = container.as_ptr() as usize;
            (address, address, *length, *length)
        });
        self.containers.add(now.step, containers);
    }

    /// Takes note of a sample. The groups that grow, each with its members, but not those that were looked at a short
    /// while ago.
    pub fn add(
        &mut self,
        sample: &Sample<'_>,
        now: Moment,
        min_bytes: f64,
    ) -> Vec<(Due, Grouping)> {
        self.allocated.push(now.allocated);
        self.older_now = sample.older.filter(|_| sample.older_is_all);
        let pieces = sample.pieces.iter().map(|it| {
            let key = (it.kind, it.device.clone(), it.dtype.clone());
            (key, it.name, it.bytes)
        });
        let functions = sample.functions.iter().map(|&address| {
            let key = (GroupKind::Function, String::new(), String::new());
            (key, (address, 0), 0)
        });
        self.groups.add(now.step, pieces.chain(functions));
        self.follow_lengths(sample, now, min_bytes);
        let types = sample.types.iter().copied();
        self.types.add(now.step, types, &sample.chosen);
        let number = self.groups.steps.len();
        let mut due = Vec::new();
        for (key, group, growing) in self.groups.growing() {
            if !self.is_due(key, group) {
                continue;
            }
            // Beside what is told already, which may be most of what grows, something else may have begun.
            let is_told = self.told.iter().any(|told| told.holder_in(key).is_some());
            let lately = is_told.then(|| self.groups.grows_lately(group));
            let lately = lately.flatten().filter(|it| it.length != growing.length);
            let is_any_size = matches!(key.0, GroupKind::Graph | GroupKind::Function);
            for growing in [Some(growing), lately].into_iter().flatten() {
                if is_any_size || growing.bytes as f64 >= min_bytes {
                    let length = growing.length;
                    due.push(self.grouping(key, group, length));
                }
            }
        }
        // What an owner keeps may have stopped growing in a group of which others release some, or the other way round.
        for (mut told, grouping) in self.told_groups() {
            let group = &self.groups.groups[&told.key];
            let last = self
                .looked_after
                .get(&told.key)
                .copied()
                .unwrap_or_default();
            let is_due = number - last >= WINDOW.max(last / AGAIN) && self.is_due(&told.key, group);
            if due.iter().all(|(it, _)| it.key != told.key)
                && (is_due || self.has_grown_since_look(&told.key, group))
            {
                told.is_growing = false;
                due.push((told, grouping));
            }
        }
        for (group, _) in &due {
            self.looked_after.insert(group.key.clone(), number);
            if !group.is_growing {
                continue;
            }
            let looked_at = LookedAt {
                sample: number,
                due_from: u64::MAX,
            };
            self.looked_at.insert(group.key.clone(), looked_at);
        }
        due
    }

    /// True if a group has grown by so many since it was seen who keeps them that these may be others'.
    fn has_grown_since_look(&self, key: &Key, group: &Group<Name>) -> bool {
        let looks = self.left().filter_map(|told| match &told.followed {
            Followed::Group {
                key: own,
                looked_at,
                ..
            } if own == key => Some(*looked_at),
            _ => None,
        });
        let grown = looks.min().map_or(0, |at| group.grown_since(at));
        grown >= SOME && grown as f64 >= LATELY_GROWN * group.grown_since(WARM_UP) as f64
    }

    /// True if the last look at a group is long ago, or there is so much of it by now that one may be told.
    fn is_due(&self, key: &Key, group: &Group<Name>) -> bool {
        let since = |last: &LookedAt| self.groups.steps.len() - last.sample;
        self.looked_at.get(key).is_none_or(|last| {
            since(last) >= WINDOW.max(last.sample / AGAIN) || group.bytes() >= last.due_from
        })
    }

    /// Has a group looked at again when one of its owners may keep enough to be told, of which the largest
    /// keeps some bytes.
    pub fn put_off_group(&mut self, key: &Key, bytes: u64, min_bytes: f64) {
        let now = self.groups.groups.get(key).map_or(0, Group::bytes);
        if let Some(looked_at) = self.looked_at.get_mut(key) {
            let missing = (min_bytes - bytes as f64).max(min_bytes / AGAIN as f64);
            looked_at.due_from = now + (missing as u64).max(now / MORE_OF_GROUP);
        }
    }

    /// Takes note of what a look at a type has shown.
    pub fn note_look(&mut self, of: usize, look: LookAtType, found: &[Diagnosis]) {
        for told in &mut self.told {
            let is_found = found.iter().any(|it| told.is_of(it));
            if let Followed::Objects { ty, found_at, .. } = &mut told.followed
                && *ty == of
                && is_found
            {
                *found_at = look.step;
            }
        }
        self.looks.insert(of, look);
    }

    /// The number of the first autograd function that was made after the last sample.
    pub fn mark(&self) -> u64 {
        self.marks.last().copied().unwrap_or_default()
    }

    pub fn add_mark(&mut self, mark: u64) {
        if self.marks.len() >= WINDOW {
            self.marks.remove(0);
        }
        self.marks.push(mark);
    }

    /// The tensors with graphs if these reach further back at each sample, each with whether it may be a
    /// state that is carried from step to step. Those that may be come last, the youngest at the end.
    pub fn states_that_grow(&mut self, sample: &Sample<'_>) -> Option<Vec<(Name, bool)>> {
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
        let mut roots: Vec<(bool, u64, Name)> = roots
            .map(|(it, at, shape)| (states.contains(shape), *at, *it))
            .collect();
        roots.sort_unstable();
        let roots = roots.into_iter();
        Some(roots.map(|(may_be, _, name)| (name, may_be)).collect())
    }

    /// What modules have kept for as many samples as are needed to tell it.
    pub fn persistent(&mut self, found: Vec<KeptOnModule>) -> Vec<KeptOnModule> {
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
}
