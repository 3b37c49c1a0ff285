//! What was found in garbage: leaks, each with its occurrences.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::assemble;
use super::assemble::Described;
use crate::collector::Epoch;
use crate::device::{Reading, StorageWatch};
use crate::model::report::{Buffer, Leak};
use crate::model::shared;
use crate::model::shared::{OTHERS, Shared};

/// A leak and all its occurrences in one lot of garbage.
pub(crate) struct Found {
    /// The first occurrence.
    pub leak: Described,
    /// How many bytes the allocator got back, if it was asked.
    pub freed: Option<u64>,
    /// As [`Leak::shared`].
    pub shared: Vec<Shared>,
    /// It is only to be counted: it was not described again.
    pub is_counted_only: bool,
    pub occurrences: Vec<Occurrence>,
}

/// One group of cycles.
pub(crate) struct Occurrence {
    /// Addresses of the objects in cycles.
    pub addresses: Vec<usize>,
    /// How many of the group's cycles are of this leak and no part of each other: those of separate objects that share
    /// a buffer.
    pub cycles: u64,
    /// Those that are the dictionary of another of them. Some Pythons make it, or have the collector track it, only when
    /// an attribute is set, which may be long after the object was made.
    pub own_dicts: FxHashSet<usize>,
    /// When the youngest of the other objects was made, if that is known.
    pub epoch: Option<Epoch>,
    pub buffers: Vec<Held>,
}

/// A buffer of an occurrence, and the watch that tells whether it went.
pub(crate) struct Held {
    pub buffer: Buffer,
    pub watch: StorageWatch,
    /// A finalizer freed it.
    pub went_early: bool,
    /// Where the memory is is known. Of JAX's arrays, which PyTorch's allocator does not count, it is not.
    pub is_placed: bool,
}

/// Makes one buffer of those that have memory in common, as an array and tensors on parts of it: as large as the memory
/// of all. The largest come first.
fn merge_overlapping(held: &mut Vec<Held>) {
    held.sort_by(|one, other| {
        let key = |it: &Held| (it.buffer.pointer, Reverse(it.buffer.bytes));
        let devices = one.buffer.device.cmp(&other.buffer.device);
        devices.then_with(|| key(one).cmp(&key(other)))
    });
    let end = |it: &Held| it.buffer.pointer.saturating_add(it.buffer.bytes);
    held.dedup_by(|next, last| {
        let overlaps = last.is_placed
            && next.is_placed
            && last.buffer.device == next.buffer.device
            && next.buffer.pointer < end(last);
        if overlaps {
            last.buffer.bytes = end(last).max(end(next)) - last.buffer.pointer;
            last.buffer.holders += next.buffer.holders;
            last.buffer.has_grad_fn |= next.buffer.has_grad_fn;
        }
        overlaps
    });
    held.sort_by_key(|held| Reverse(held.buffer.bytes));
}

impl Found {
    pub fn signature(&self) -> &str {
        &self.leak.diagnosis.signature
    }

    /// The buffers of all occurrences.
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        let held = self.occurrences.iter().flat_map(|one| &one.buffers);
        held.map(|held| &held.buffer)
    }

    /// Those of the buffers that PyTorch's allocator may count, each with whether a finalizer freed it.
    pub fn counted_buffers(&self) -> impl Iterator<Item = (&Buffer, bool)> {
        let held = self.occurrences.iter().flat_map(|one| &one.buffers);
        let counted = held.filter(|held| held.is_placed);
        counted.map(|held| (&held.buffer, held.went_early))
    }

    /// The devices of those.
    pub fn counted_devices(&self) -> Vec<String> {
        let buffers = self.counted_buffers();
        let devices = buffers.map(|(buffer, _)| buffer.device.clone());
        let mut devices: Vec<String> = devices.collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// The epochs of all occurrences, each once.
    pub fn epochs(&self) -> Vec<Option<Epoch>> {
        let mut epochs: Vec<_> = self.occurrences.iter().map(|one| one.epoch).collect();
        epochs.sort_unstable();
        epochs.dedup();
        epochs
    }

    /// Bytes of all distinct buffers.
    pub fn bytes_held(&self) -> u64 {
        let mut storages: Vec<(&str, u64, u64)> = self
            .buffers()
            .map(|buffer| (buffer.device.as_str(), buffer.pointer, buffer.bytes))
            .collect();
        storages.sort_unstable();
        storages.dedup_by_key(|storage| (storage.0, storage.1));
        storages.into_iter().map(|(.., bytes)| bytes).sum()
    }

    /// How many cycles of all occurrences are alike.
    pub fn count(&self) -> u64 {
        self.occurrences.iter().map(|one| one.cycles).sum()
    }

    /// How many objects are in the cycles of all occurrences.
    pub fn objects(&self) -> u64 {
        let objects = self.occurrences.iter();
        objects.map(|one| one.addresses.len() as u64).sum()
    }

    /// The leak with the counts and the buffers of all occurrences that are left.
    pub fn into_leak(self) -> Leak {
        let (count, objects) = (self.count(), self.objects());
        let mut buffers: Vec<Buffer> = self
            .occurrences
            .into_iter()
            .enumerate()
            .flat_map(|(i, occurrence)| {
                occurrence.buffers.into_iter().map(move |held| {
                    let mut buffer = held.buffer;
                    // Only the first occurrence is drawn.
                    if i > 0 {
                        buffer.node = None;
                        buffer.path_nodes.clear();
                    }
                    buffer
                })
            })
            .collect();
        assemble::distinct_largest_first(&mut buffers);
        Leak {
            count,
            objects,
            bytes_freed: self.freed,
            shared: self.shared,
            ..self.leak.into_leak(buffers)
        }
    }
}

/// Adds what a later look at the same garbage has found: buffers that some cycle holds as well, and cycles that hold any.
/// True if there was something to add.
pub(crate) fn join(found: &mut Vec<Found>, later: Vec<Found>) -> bool {
    let mut places: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
    for (number, leak) in found.iter().enumerate() {
        for (place, occurrence) in leak.occurrences.iter().enumerate() {
            let addresses = occurrence.addresses.iter();
            places.extend(addresses.map(|&address| (address, (number, place))));
        }
    }
    let mut adds = false;
    for mut leak in later {
        for (at, occurrence) in std::mem::take(&mut leak.occurrences)
            .into_iter()
            .enumerate()
        {
            let mut known = occurrence.addresses.iter().filter_map(|it| places.get(it));
            let Some(&(number, place)) = known.next() else {
                leak.occurrences.push(occurrence);
                continue;
            };
            let shown = &found[number].leak;
            // Only the first occurrence of a leak is described, each by a cycle of its own.
            let step = |from: u32| match (at, place) {
                (0, 0) => same_step(&leak.leak, from, shown),
                _ => None,
            };
            let steps: Vec<Option<u32>> = occurrence
                .buffers
                .iter()
                .map(|held| step(held.buffer.from_step))
                .collect();
            let known = &mut found[number].occurrences[place].buffers;
            for (held, step) in occurrence.buffers.into_iter().zip(steps) {
                let is_same = |other: &Held| {
                    (&other.buffer.device, other.buffer.pointer)
                        == (&held.buffer.device, held.buffer.pointer)
                };
                if !known.iter().any(is_same) {
                    adds = true;
                    // The graph that is drawn does not have it.
                    let mut buffer = Buffer {
                        node: None,
                        path_nodes: Vec::new(),
                        from_step: step.unwrap_or(0),
                        ..held.buffer
                    };
                    if step.is_none() {
                        buffer.path.clear();
                    }
                    known.push(Held { buffer, ..held });
                }
            }
        }
        if leak.occurrences.is_empty() {
            continue;
        }
        adds = true;
        match found
            .iter_mut()
            .find(|it| it.signature() == leak.signature())
        {
            Some(known) => known.occurrences.append(&mut leak.occurrences),
            None => found.push(leak),
        }
    }
    adds
}

/// The step of one described cycle that is at the same object as a step of another; `None` if there is none.
fn same_step(from: &Described, step: u32, to: &Described) -> Option<u32> {
    let address = |leak: &Described, at: usize| {
        let node = *leak.diagnosis.cycle.nodes.get(at)?;
        let mut details = leak.graph[node].description.details.iter();
        let (_, address) = details.find(|(name, _)| name == "address")?;
        Some(address.clone())
    };
    let wanted = address(from, step as usize)?;
    let mut steps = 0..to.diagnosis.cycle.nodes.len();
    let found = steps.find(|&at| address(to, at).as_ref() == Some(&wanted))?;
    u32::try_from(found).ok()
}

/// Says of each occurrence when the youngest object of its cycles was made, if `epoch_of` knows that of all.
pub(crate) fn date(found: &mut [Found], epoch_of: impl Fn(usize) -> Option<Epoch>) {
    for occurrence in found.iter_mut().flat_map(|entry| &mut entry.occurrences) {
        let epochs: Option<Vec<Epoch>> = occurrence
            .addresses
            .iter()
            .filter(|one| !occurrence.own_dicts.contains(one))
            .map(|&one| epoch_of(one))
            .collect();
        occurrence.epoch = epochs.and_then(|epochs| epochs.into_iter().max());
    }
}

/// The addresses of all objects in cycles.
pub(crate) fn addresses(found: &[Found]) -> impl Iterator<Item = usize> + '_ {
    found
        .iter()
        .flat_map(|entry| &entry.occurrences)
        .flat_map(|occurrence| &occurrence.addresses)
        .copied()
}

/// Says of each leak what it holds together with others.
pub(crate) fn say_shared(found: &mut [Found]) {
    let mut by_name: Vec<usize> = (0..found.len()).collect();
    by_name.sort_by_key(|&number| found[number].signature());
    let mut storages: FxHashMap<(&str, u64), (u64, Vec<usize>)> = FxHashMap::default();
    for number in by_name {
        for buffer in found[number].buffers() {
            let storage = (&*buffer.device, buffer.pointer);
            let (bytes, holders) = storages.entry(storage).or_default();
            *bytes = buffer.bytes.max(*bytes);
            if holders.last() != Some(&number) {
                holders.push(number);
            }
        }
    }
    let mut sets: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
    for (bytes, holders) in storages.into_values().filter(|(_, all)| all.len() > 1) {
        *sets.entry(holders).or_default() += bytes;
    }
    for leak in found.iter_mut() {
        leak.shared.clear();
    }
    for (holders, bytes) in sets {
        for &holder in &holders {
            let others = holders.iter().filter(|&&other| other != holder);
            let others = others.map(|&other| found[other].signature().to_owned());
            let others = others.take(OTHERS).collect();
            shared::add(&mut found[holder].shared, &[Shared { others, bytes }]);
        }
    }
}

/// Whether what a leak keeps in C++ is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// No, as it will not be known whether it went.
    Ignored,
    /// Yes, but no gradient that C++ may be replacing right now.
    Counted,
    /// Yes, with all gradients unless a backward pass is running.
    CountedByRequest,
}

/// Which of the groups of cycles that are found are described one by one.
#[derive(Clone, Copy)]
pub(crate) struct Detail<'a> {
    /// At most so many.
    pub most: usize,
    /// The number of the group to begin with, so that what one look leaves out comes in the next.
    pub first: usize,
    /// True for leaks, by signature, that are only to be counted.
    pub is_known: &'a dyn Fn(&str) -> bool,
    /// How far tensors are read.
    pub reading: Reading,
}

impl Detail<'_> {
    /// At most so many, whether or not they are known, outside of a collection.
    pub const fn of(most: usize) -> Self {
        Self {
            most,
            first: 0,
            is_known: &|_| false,
            reading: Reading::Inside,
        }
    }
}

/// How it is known what became of the objects that were found.
#[derive(Clone, Copy)]
pub(crate) enum Fate<'a> {
    /// The collector has cleared weak references, also to what a finalizer has saved since. Only the addresses of the
    /// objects that it still knows tell, if they are known.
    Survivors(&'a Option<FxHashSet<usize>>),
    /// Weak references tell: they were made when the collector had cleared all others. What the collector still knows is
    /// asked for where some object has none.
    WeakReferences(&'a dyn Fn() -> Option<FxHashSet<usize>>),
}

/// Drops from each leak the buffers that are still there, or of which there is no telling, and leaks that
/// have none left.
pub(crate) fn confirm_gone(py: Python<'_>, found: &mut Vec<Found>, fate: Fate<'_>) {
    let is_alive = |address: usize| match fate {
        Fate::Survivors(alive) => Some(alive.as_ref()?.contains(&address)),
        Fate::WeakReferences(_) => Some(false),
    };
    let known = OnceCell::new();
    let is_tracked = |address: usize| match fate {
        Fate::Survivors(_) => is_alive(address),
        Fate::WeakReferences(ask) => Some(known.get_or_init(ask).as_ref()?.contains(&address)),
    };
    for entry in found.iter_mut() {
        for occurrence in &mut entry.occurrences {
            occurrence.buffers.retain_mut(|held| {
                let watch = std::mem::replace(&mut held.watch, StorageWatch::Blind);
                held.went_early || watch.into_gone(py, &is_alive, &is_tracked) == Some(true)
            });
            merge_overlapping(&mut occurrence.buffers);
        }
        entry
            .occurrences
            .retain(|occurrence| !occurrence.buffers.is_empty());
    }
    found.retain(|entry| !entry.occurrences.is_empty());
    say_shared(found);
}

/// Drops what only the release of the memory would have proven to be held.
pub(crate) fn forget_behind(found: &mut [Found]) {
    for occurrence in found.iter_mut().flat_map(|entry| &mut entry.occurrences) {
        occurrence
            .buffers
            .retain(|held| held.buffer.kept_by.is_none());
        merge_overlapping(&mut occurrence.buffers);
    }
    say_shared(found);
}
