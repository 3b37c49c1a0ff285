//! Which groups of buffers grow: by when those that are alive were first seen.
//!
//! A leak adds buffers in nearly every interval and gives none back, so some of each age are alive.
//! What is replaced has none but the youngest, a warm cache none but the oldest, a window of fixed
//! length as many as before. That is robust against sizes that differ from step to step.
//!
//! A slow leak adds nothing in most intervals between samples. So the same is asked of longer and longer
//! intervals, of which each is as low as its lowest sample: what comes and goes within one does not count.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::RangeInclusive;

use rustc_hash::{FxHashMap, FxHashSet};

use super::rising::{MOST, is_growing};

/// What the first so many samples see, such as optimizer state, is no growth.
pub const WARM_UP: usize = 2;
/// So many of the shortest intervals are looked at.
pub const WINDOW: usize = 10;
/// So many longer intervals are.
const LONGER: usize = 8;
/// So many samples it takes to tell anything.
pub const NEEDED: usize = WARM_UP + WINDOW + 1;
/// The lengths of the intervals, in samples as they were at first. Once they are rarer, an interval is as many steps long,
/// or one sample.
const LENGTHS: [usize; 10] = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89];

/// What grows lately must have this part of its growth beyond what there ever was before.
const BEYOND: f64 = 0.5;

/// In so many samples at least it must not have grown to have stopped.
const STILL: usize = 3;

/// With so many intervals before the window it is compared.
const BEFORE: usize = 40;

/// The number or the bytes of a total.
type Part = fn(&(u64, u64)) -> u64;

/// Buffers of one kind, and how many of them there were at each sample.
pub struct Group<N> {
    /// Those that are alive, each with the number of the sample that saw it first.
    alive: Vec<(N, usize)>,
    /// Number and bytes, at each sample.
    pub totals: Vec<(u64, u64)>,
}

/// One that is alive, and came since the warm-up.
#[derive(Clone, Copy)]
pub struct Member<N> {
    pub name: N,
    /// The number of the interval in which it came, the youngest 0; `None` outside the window.
    pub age: Option<usize>,
    /// True if it came after the first sample behind the warm-up, from which growth is counted.
    pub counts: bool,
    /// True if it came in one of the last samples.
    pub is_recent: bool,
}

/// How a group grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growing {
    /// The number of samples in each of the intervals in which it grows.
    pub length: usize,
    /// By how many bytes it has grown in all of them.
    pub bytes: u64,
}

impl<N: Copy + Eq + Hash> Group<N> {
    /// The bytes at the last sample, and the most at any.
    pub fn bytes(&self) -> u64 {
        self.totals.last().map_or(0, |total| total.1)
    }

    pub fn most_bytes(&self) -> u64 {
        self.totals
            .iter()
            .map(|total| total.1)
            .max()
            .unwrap_or_default()
    }

    /// Takes note of a sample: of the number and bytes, and of what is followed of these.
    fn add(&mut self, sample: usize, total: (u64, u64), names: impl Iterator<Item = N>) {
        self.totals.push(total);
        let born: FxHashMap<N, usize> = self.alive.drain(..).collect();
        let aged = names.map(|name| (name, born.get(&name).copied().unwrap_or(sample)));
        self.alive = aged.collect();
    }

    /// How many of some buffers are alive.
    pub fn alive_of(&self, names: &FxHashSet<N>) -> usize {
        let alive = self.alive.iter();
        alive.filter(|(name, _)| names.contains(name)).count()
    }

    /// How many are alive that were first seen at a sample or later, but after the first behind the warm-up, from
    /// which growth is counted.
    pub fn came_since(&self, sample: usize) -> u64 {
        let first = sample.max(WARM_UP + 1);
        let came = self.alive.iter().filter(|(_, born)| *born >= first);
        came.count() as u64
    }

    /// By how many more there are than at a sample.
    pub fn grown_since(&self, sample: usize) -> u64 {
        let then = self.totals.get(sample).map_or(0, |total| total.0);
        self.totals
            .last()
            .map_or(0, |now| now.0.saturating_sub(then))
    }

    /// By how many times those are larger by which the group has grown since a sample than those before, in the mean.
    pub fn larger_since(&self, sample: usize) -> f64 {
        let before = self.mean(WARM_UP, sample);
        let since = self.mean(sample, self.totals.len().saturating_sub(1));
        match before > 0.0 && since > 0.0 {
            true => since / before,
            false => 1.0,
        }
    }

    /// Bytes of one of those by which the group has grown between two samples, in the mean.
    fn mean(&self, first: usize, last: usize) -> f64 {
        let at = |sample| self.totals.get(sample).copied().unwrap_or_default();
        let (first, last): ((u64, u64), (u64, u64)) = (at(first), at(last));
        let count = last.0.saturating_sub(first.0);
        last.1.saturating_sub(first.1) as f64 / count.max(1) as f64
    }
}

/// Counts what is alive, sample by sample.
pub struct Cohorts<K, N> {
    /// The step of each sample.
    pub steps: Vec<u64>,
    /// How many steps there were from one of the first samples to the next.
    first_distance: f64,
    pub groups: BTreeMap<K, Group<N>>,
}

impl<K, N> Default for Cohorts<K, N> {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            first_distance: 1.0,
            groups: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, N: Copy + Eq + Hash> Cohorts<K, N> {
    /// Takes note of a sample: for each buffer its group, what names it, and its bytes.
    pub fn add(&mut self, step: u64, alive: impl IntoIterator<Item = (K, N, u64)>) {
        let samples = self.steps.len();
        let mut seen: BTreeMap<K, Vec<(N, u64)>> = BTreeMap::new();
        for (key, name, bytes) in alive {
            seen.entry(key).or_default().push((name, bytes));
        }
        for key in seen.keys() {
            self.groups.entry(key.clone()).or_insert_with(|| Group {
                alive: Vec::new(),
                totals: vec![(0, 0); samples],
            });
        }
        for (key, group) in &mut self.groups {
            let members = seen.remove(key).unwrap_or_default();
            let bytes = members.iter().map(|(_, bytes)| bytes).sum();
            let total = (members.len() as u64, bytes);
            group.add(samples, total, members.into_iter().map(|(name, _)| name));
        }
        self.add_step(step);
    }

    fn add_step(&mut self, step: u64) {
        self.steps.push(step);
        if (2..=WINDOW).contains(&self.steps.len()) {
            let all = step.saturating_sub(self.steps[0]) as f64;
            self.first_distance = (all / (self.steps.len() - 1) as f64).max(1.0);
        }
    }

    /// Takes note of a sample of one group, of which there are `count`, and some are followed.
    pub fn add_counted(&mut self, step: u64, key: K, count: u64, some: impl Iterator<Item = N>) {
        let group = self.groups.entry(key).or_insert_with(|| Group {
            alive: Vec::new(),
            totals: vec![(0, 0); self.steps.len()],
        });
        group.add(self.steps.len(), (count, 0), some);
        self.add_step(step);
    }

    /// The groups that grow.
    pub fn growing(&self) -> impl Iterator<Item = (&K, &Group<N>, Growing)> {
        let groups = self.groups.iter();
        groups.filter_map(|(key, group)| Some((key, group, self.grows(group)?)))
    }

    /// True if a group grows still, in intervals of a length.
    pub fn grows_still(&self, group: &Group<N>, length: usize) -> bool {
        self.is_known(length) && self.grows_in(group, length, &mut None).is_some()
    }

    /// What has come since the warm-up: first what came in the window, the youngest of that at the beginning, then the
    /// rest.
    pub fn members(&self, group: &Group<N>, length: usize) -> Vec<Member<N>> {
        let window = Window::new(self, length);
        let alive = group.alive.iter().filter(|(_, born)| *born >= WARM_UP);
        let mut found: Vec<Member<N>> = alive
            .map(|&(name, born)| Member {
                name,
                age: window.age(born),
                counts: born > WARM_UP,
                is_recent: born + WINDOW >= self.steps.len(),
            })
            .collect();
        found.sort_by_key(|member| member.age.unwrap_or(usize::MAX));
        found
    }

    /// The number of steps in which the members of an interval and those of all younger ones came.
    pub fn steps_since(&self, age: usize, length: usize) -> u64 {
        let (first, last) = self.samples_since(age, length);
        let step = |at: usize| self.steps.get(at).copied().unwrap_or_default();
        step(last).saturating_sub(step(first)).max(1)
    }

    /// How many samples the last so many steps have, but not too few to tell whether something has stopped.
    pub fn samples_of(&self, steps: u64) -> usize {
        let now = self.steps.last().copied().unwrap_or_default();
        let later = self.steps.iter().rev();
        let later = later.take_while(|step| now - **step < steps);
        later.count().max(STILL)
    }

    /// True if nothing that came into a group in the last so many steps has stayed.
    pub fn nothing_stays(&self, group: &Group<N>, steps: u64) -> bool {
        let samples = self.steps.len();
        let before = samples.checked_sub(self.samples_of(steps) + 1);
        before.is_some_and(|before| {
            let mut alive = group.alive.iter();
            before >= WARM_UP && !alive.any(|&(_, born)| born > before && born + 1 < samples)
        })
    }

    /// How many steps each interval of the window has, the youngest first.
    pub fn steps_of_intervals(&self, length: usize) -> Vec<u64> {
        let until = |age: usize| match age.checked_sub(1) {
            Some(younger) => self.steps_since(younger, length),
            None => 0,
        };
        let ages = 0..intervals(length);
        ages.map(|age| {
            self.steps_since(age, length)
                .saturating_sub(until(age))
                .max(1)
        })
        .collect()
    }

    /// How many members an interval and all younger ones have, and by how many the group has grown since: the others
    /// came in place of some that went.
    pub fn turnover(&self, group: &Group<N>, length: usize, age: usize) -> (u64, u64) {
        let (first, last) = self.samples_since(age, length);
        let at = |sample: usize| group.totals.get(sample).map_or(0, |total| total.0);
        let came = group.alive.iter();
        let came = came.filter(|(_, born)| (first + 1..=last).contains(born));
        (came.count() as u64, at(last).saturating_sub(at(first)))
    }

    /// The last samples before and in an interval and all younger ones.
    fn samples_since(&self, age: usize, length: usize) -> (usize, usize) {
        let last = self.steps.len().saturating_sub(2);
        let first = self.ends(last, length).nth(age + 1);
        (first.unwrap_or_default(), last)
    }

    /// The last sample of each interval of a length, the youngest first.
    fn ends(&self, last: usize, length: usize) -> impl Iterator<Item = usize> {
        let steps = (length as f64 - 0.5) * self.first_distance;
        std::iter::successors(Some(last), move |&end| {
            let until = self.steps.get(end)?;
            let mut earlier = (0..end).rev();
            earlier.find(|&at| until.saturating_sub(self.steps[at]) as f64 >= steps)
        })
    }

    /// True if there are enough intervals of a length since the warm-up.
    fn is_known(&self, length: usize) -> bool {
        let last = self.steps.len().checked_sub(1);
        let first = last.and_then(|last| self.ends(last, length).nth(intervals(length)));
        first.is_some_and(|end| end >= WARM_UP)
    }

    fn grows(&self, group: &Group<N>) -> Option<Growing> {
        let mut born: Option<Vec<bool>> = None;
        let mut lengths = self.known_lengths().rev();
        lengths.find_map(|length| self.grows_in(group, length, &mut born))
    }

    /// How a group grows in the shortest intervals in which it does, by more than it had before: what has begun only
    /// lately is not seen in longer ones.
    pub fn grows_lately(&self, group: &Group<N>) -> Option<Growing> {
        let mut born: Option<Vec<bool>> = None;
        let mut lengths = self.known_lengths();
        let growing = lengths.find_map(|length| self.grows_in(group, length, &mut born))?;
        let before = group.totals.iter().map(|total| total.1);
        let before = before.take(Window::new(self, growing.length).first).max();
        let more = group.bytes().saturating_sub(before.unwrap_or_default());
        (more as f64 >= BEYOND * growing.bytes as f64).then_some(growing)
    }

    fn known_lengths(&self) -> impl DoubleEndedIterator<Item = usize> {
        LENGTHS.into_iter().filter(|length| self.is_known(*length))
    }

    /// How a group grows in intervals of one length. `born` says of each sample whether something that is alive was
    /// first seen there, once that is asked.
    fn grows_in(
        &self,
        group: &Group<N>,
        length: usize,
        born: &mut Option<Vec<bool>>,
    ) -> Option<Growing> {
        let (before, window) = self.intervals(length);
        let steps: Vec<u64> = window.iter().map(|it| self.steps[*it.end()]).collect();
        let low = |of: Part, it: &RangeInclusive<usize>| {
            let totals = &group.totals[it.clone()];
            totals.iter().map(of).min().unwrap_or_default()
        };
        let lows = |of: Part| -> Vec<u64> { window.iter().map(|it| low(of, it)).collect() };
        // What has only become as large as it was before may be given back again.
        let is_more_than_before = |of: Part, now: &[u64]| {
            let before = before.iter().map(|it| low(of, it)).max();
            now.last() > before.as_ref()
        };
        let grows = |of: Part| {
            let lows = lows(of);
            is_growing(&lows, &steps) && is_more_than_before(of, &lows)
        };
        let bytes = lows(|total| total.1);
        if !grows(|total| total.0) && !grows(|total| total.1) {
            return None;
        }
        let born = born.get_or_insert_with(|| {
            let mut born = vec![false; self.steps.len()];
            group.alive.iter().for_each(|&(_, at)| born[at] = true);
            born
        });
        let of_window = Window::new(self, length);
        let came = (of_window.first..=of_window.last).filter(|&at| born[at]);
        let ages: FxHashSet<usize> = came.filter_map(|at| of_window.age(at)).collect();
        let grown = |values: &[u64]| values.last()?.checked_sub(*values.first()?);
        (ages.len() as f64 >= MOST * intervals(length) as f64).then(|| Growing {
            length,
            bytes: grown(&bytes).unwrap_or_default(),
        })
    }

    /// The samples of each interval of a length, in two parts: the last ones before the window and the interval before it,
    /// and those.
    fn intervals(&self, length: usize) -> (Vec<RangeInclusive<usize>>, Vec<RangeInclusive<usize>>) {
        let last = self.steps.len().saturating_sub(1);
        let known = intervals(length) + 1;
        let ends = self.ends(last, length).take(known + BEFORE + 1);
        let mut ends: Vec<usize> = ends.take_while(|end| *end >= WARM_UP).collect();
        let begins = ends.iter().skip(1).map(|end| end + 1);
        let begins: Vec<usize> = begins.chain([WARM_UP]).collect();
        ends.truncate(known + BEFORE);
        let all = begins.into_iter().zip(ends);
        let mut all: Vec<_> = all.map(|(begin, end)| begin..=end).collect();
        all.reverse();
        let window = all.split_off(all.len().saturating_sub(known));
        (all, window)
    }
}

/// The intervals in which the members of a group were first seen that are looked at. The last sample counts for none: what it
/// has seen first may be gone at the next.
struct Window {
    /// The last sample before each interval, the youngest first.
    before: Vec<usize>,
    first: usize,
    last: usize,
}

impl Window {
    fn new<K: Ord + Clone, N: Copy + Eq + Hash>(cohorts: &Cohorts<K, N>, length: usize) -> Self {
        let last = cohorts.steps.len().saturating_sub(2);
        let ends = cohorts.ends(last, length).skip(1);
        let before: Vec<usize> = ends.take(intervals(length)).collect();
        let first = match before.len() < intervals(length) {
            true => WARM_UP,
            false => before.last().map_or(0, |end| end + 1).max(WARM_UP),
        };
        Self {
            before,
            first,
            last,
        }
    }

    /// The number of the interval in which a sample lies, the youngest 0.
    fn age(&self, sample: usize) -> Option<usize> {
        let is_in = (self.first..=self.last).contains(&sample);
        is_in.then(|| self.before.partition_point(|end| *end >= sample))
    }
}

/// How many intervals of a length are looked at.
fn intervals(length: usize) -> usize {
    if length == 1 { WINDOW } else { LONGER }
}

/// True if values of the last samples rise most of the time, and in the later half about as much as before;
/// false while there are too few.
pub fn has_grown(values: &[u64]) -> bool {
    let steps: Vec<u64> = (0..=WINDOW as u64).collect();
    values.len() >= NEEDED && is_growing(&values[values.len() - WINDOW - 1..], &steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sample = Vec<u32>;

    fn cohorts(samples: impl IntoIterator<Item = Sample>) -> Cohorts<(), u32> {
        let mut counted = Cohorts::default();
        for (step, sample) in samples.into_iter().enumerate() {
            counted.add(step as u64, sample.into_iter().map(|name| ((), name, 1)));
        }
        counted
    }

    #[test]
    fn a_group_that_adds_in_each_interval_grows() {
        let grown = cohorts((1..=NEEDED as u32).map(|n| (0..n).collect()));
        let (_, group, growing) = grown.growing().next().expect("a group that grows");
        assert_eq!(
            growing,
            Growing {
                length: 1,
                bytes: 10
            }
        );
        let members = grown.members(group, 1);
        let survivors: Vec<_> = members.iter().filter(|it| it.age.is_some()).collect();
        assert_eq!(
            (survivors[0].name, survivors[0].age),
            (NEEDED as u32 - 2, Some(0))
        );
        assert_eq!(survivors.len(), WINDOW);
        assert_eq!(members[0].name, survivors[0].name);
        assert_eq!(grown.steps_since(9, 1), 10);
        assert_eq!(group.came_since(0), 10);
        assert_eq!(group.came_since(8), 5);
        assert_eq!(group.alive_of(&FxHashSet::from_iter([3, 99])), 1);
    }

    #[test]
    fn a_group_that_adds_in_some_intervals_grows_too() {
        for every in [2, 3, 7, 20] {
            // Beside it some come and go.
            let sample =
                |n: u32| (0..n / every).chain((0..n % 5).map(move |it| 1000 + 10 * n + it));
            let told = (NEEDED as u32..600).find(|&n| {
                let so_far = cohorts((0..n).map(|n| sample(n).collect()));
                so_far.growing().next().is_some()
            });
            assert!(
                told.is_some_and(|n| n < 30 * every.max(5)),
                "{every}: {told:?}"
            );
        }
    }

    #[test]
    fn what_only_looks_like_growth() {
        let saw = |period: u32| {
            let teeth = (0..400u32).map(move |n| (n - n % period..=n).chain(1000..1003).collect());
            teeth.collect::<Vec<Sample>>()
        };
        let cases: [(&str, Vec<Sample>); 9] = [
            (
                "few",
                (1..NEEDED as u32).map(|n| (0..n).collect()).collect(),
            ),
            ("constant", vec![vec![0, 1, 2]; 300]),
            ("replaced", (0..300).map(|n| vec![n, n + 1]).collect()),
            (
                "a window of fixed length",
                (0..300u32)
                    .map(|n| (n.saturating_sub(5)..n).collect())
                    .collect(),
            ),
            (
                "a cache that is warm",
                (0..300u32).map(|n| (0..n.min(8)).collect()).collect(),
            ),
            (
                "given back",
                (0..20)
                    .map(|n| (0..if n < 15 { n } else { 0 }).collect())
                    .collect(),
            ),
            ("teeth", saw(2)),
            ("long teeth", saw(9)),
            ("longer teeth", saw(11)),
        ];
        for (name, samples) in cases {
            for end in 0..=samples.len() {
                let so_far = cohorts(samples[..end].iter().cloned());
                assert_eq!(
                    so_far.growing().count(),
                    usize::from(name == "given back" && (13..=15).contains(&end)),
                    "{name} at {end}"
                );
            }
        }
    }

    #[test]
    fn nothing_stays_where_what_comes_goes() {
        let stops_at = |end: u32| {
            // Beside it one comes and goes.
            cohorts((0..40).map(|n| (0..n.min(end)).chain([1000 + n]).collect()))
        };
        for (end, steps, nothing_stays) in [(20, 10, true), (20, 30, false), (40, 10, false)] {
            let counted = stops_at(end);
            let group = &counted.groups[&()];
            assert_eq!(
                counted.nothing_stays(group, steps),
                nothing_stays,
                "{end} {steps}"
            );
        }
        let mut rare = Cohorts::<(), u32>::default();
        for (sample, step) in [10, 20, 30, 40, 200, 360].into_iter().enumerate() {
            let count = sample.min(4) as u32;
            rare.add(step, (0..count).map(|name| ((), name, 1)));
        }
        assert_eq!(rare.samples_of(20), 3);
        assert_eq!(rare.samples_of(340), 4);
        assert!(!rare.nothing_stays(&rare.groups[&()], 20));
    }

    #[test]
    fn intervals_have_the_steps_of_their_samples() {
        let mut rarer = Cohorts::<(), u32>::default();
        let steps = (0..10)
            .map(|at| 10 * at)
            .chain((1..5).map(|at| 90 + 160 * at));
        steps.for_each(|step| rarer.add(step, [((), 0, 1)]));
        let intervals = rarer.steps_of_intervals(2);
        assert_eq!(intervals, [160, 160, 160, 20, 20, 20, 20, 10]);
    }

    #[test]
    fn what_grows_slowly_is_told_though_samples_become_rarer() {
        // One more every 40 steps.
        let step = |sample: u64| match sample {
            ..=30 => 10 * sample,
            rare => 300 + 100 * (rare - 30),
        };
        let mut counted = Cohorts::<(), u32>::default();
        let told = (0..60).map(step).find(|&step| {
            counted.add(step, (0..step / 40).map(|name| ((), name as u32, 1)));
            counted.growing().next().is_some()
        });
        assert!(told.is_some_and(|step| step < 700), "{told:?}");
    }
}
