//! Which groups of buffers grow: by when those that are alive were first seen.
//!
//! A leak adds buffers in nearly every interval and gives none back, so some of each age are alive.
//! What is replaced has none but the youngest, a warm cache none but the oldest, a window of fixed
//! length as many as before. That is robust against sizes that differ from step to step.

use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// What the first so many samples see, such as optimizer state, is no growth.
const WARM_UP: usize = 2;
/// So many intervals between samples are looked at.
pub const WINDOW: usize = 10;
/// So many samples it takes to tell anything.
pub const NEEDED: usize = WARM_UP + WINDOW + 1;
/// The part of the intervals that must show growth.
const MOST: f64 = 0.8;
/// The later half of the window must grow by at least this part of what the earlier half did: a cache
/// that fills up slows down.
const STEADY: f64 = 0.5;
/// How many ages of a group are looked at, and how many buffers of each.
const AGES: usize = 8;
const OF_AN_AGE: usize = 3;

/// Buffers of one kind, and how many of them there were at each sample.
pub struct Group<N> {
    /// Those that are alive, each with the number of the sample that saw it first.
    alive: Vec<(N, usize)>,
    /// Number and bytes, at each sample.
    pub totals: Vec<(u64, u64)>,
}

impl<N> Group<N> {
    /// Number and bytes now.
    pub fn size(&self) -> (u64, u64) {
        self.totals.last().copied().unwrap_or_default()
    }

    fn window(&self) -> &[(u64, u64)] {
        &self.totals[self.totals.len().saturating_sub(WINDOW + 1)..]
    }

    /// By how many bytes it has grown.
    pub fn grown(&self) -> u64 {
        let least = self.window().iter().map(|(_, bytes)| *bytes).min();
        self.size().1 - least.unwrap_or_default()
    }

    /// By how many bytes it grows from one sample to the next.
    pub fn bytes_per_sample(&self) -> f64 {
        let window = self.window();
        let first = window.first().map_or(0.0, |(_, bytes)| *bytes as f64);
        (self.size().1 as f64 - first) / window.len().saturating_sub(1).max(1) as f64
    }
}

/// Counts what is alive, sample by sample.
pub struct Cohorts<K, N> {
    pub samples: usize,
    pub groups: BTreeMap<K, Group<N>>,
}

impl<K, N> Default for Cohorts<K, N> {
    fn default() -> Self {
        Self {
            samples: 0,
            groups: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, N: Copy + Eq + Hash> Cohorts<K, N> {
    /// Takes note of a sample: for each buffer its group, what names it, and its bytes.
    pub fn add(&mut self, alive: impl IntoIterator<Item = (K, N, u64)>) {
        let samples = self.samples;
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
            group.totals.push((members.len() as u64, bytes));
            let born: FxHashMap<N, usize> = group.alive.drain(..).collect();
            let names = members.into_iter().map(|(name, _)| name);
            let aged = names.map(|name| (name, born.get(&name).copied().unwrap_or(samples)));
            group.alive = aged.collect();
        }
        self.samples += 1;
    }

    /// The groups that grow.
    pub fn growing(&self) -> impl Iterator<Item = (&K, &Group<N>)> {
        self.groups.iter().filter(|(_, group)| self.grows(group))
    }

    /// A few members of several ages, the youngest first.
    pub fn youngest(&self, group: &Group<N>) -> Vec<N> {
        let ages = self.survivors(group).into_values().rev().take(AGES);
        ages.flat_map(|names| names.into_iter().take(OF_AN_AGE))
            .collect()
    }

    /// What came after the warm-up, but not in the last interval, by when it was first seen.
    fn survivors(&self, group: &Group<N>) -> BTreeMap<usize, Vec<N>> {
        let mut found: BTreeMap<usize, Vec<N>> = BTreeMap::new();
        for &(name, born) in &group.alive {
            if born >= WARM_UP && born + 1 < self.samples {
                found.entry(born).or_default().push(name);
            }
        }
        found
    }

    fn grows(&self, group: &Group<N>) -> bool {
        if self.samples < NEEDED {
            return false;
        }
        let first = self.samples - WINDOW - 1;
        let counts: Vec<u64> = group.window().iter().map(|(count, _)| *count).collect();
        let aged = self.survivors(group).range(first..).count();
        aged as f64 >= MOST * WINDOW as f64 && is_growing(&counts)
    }
}

/// True if values of the last samples rise most of the time, and in the later half about as much as before;
/// false while there are too few.
pub fn has_grown(values: &[u64]) -> bool {
    values.len() >= NEEDED && is_growing(&values[values.len() - WINDOW - 1..])
}

fn is_growing(values: &[u64]) -> bool {
    let rises = values.windows(2).filter(|it| it[1] > it[0]).count();
    let (Some(&first), Some(&last)) = (values.first(), values.last()) else {
        return false;
    };
    if values.len() < 2 || (rises as f64) < MOST * (values.len() - 1) as f64 {
        return false;
    }
    let middle = values[values.len() / 2] as f64;
    let (earlier, later) = (middle - first as f64, last as f64 - middle);
    later > 0.0 && later >= STEADY * earlier
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sample = Vec<u32>;

    fn cohorts(samples: impl IntoIterator<Item = Sample>) -> Cohorts<(), u32> {
        let mut counted = Cohorts::default();
        for sample in samples {
            counted.add(sample.into_iter().map(|name| ((), name, 1)));
        }
        counted
    }

    #[test]
    fn a_group_that_adds_in_each_interval_grows() {
        let grown = cohorts((1..=NEEDED as u32).map(|n| (0..n).collect()));
        let (_, group) = grown.growing().next().expect("a group that grows");
        assert_eq!(group.size(), (NEEDED as u64, NEEDED as u64));
        assert_eq!((group.grown(), group.bytes_per_sample()), (10, 1.0));
        let ages: Vec<usize> = grown.survivors(group).into_keys().collect();
        assert!(ages.windows(2).all(|it| it[1] == it[0] + 1), "{ages:?}");
        assert_eq!(grown.youngest(group)[0], NEEDED as u32 - 2);
    }

    #[test]
    fn what_only_looks_like_growth() {
        let cases: [(&str, Vec<Sample>); 6] = [
            (
                "few",
                (1..NEEDED as u32).map(|n| (0..n).collect()).collect(),
            ),
            ("constant", vec![vec![0, 1, 2]; 30]),
            ("replaced", (0..30).map(|n| vec![n, n + 1]).collect()),
            (
                "a window of fixed length",
                (0..30u32)
                    .map(|n| (n.saturating_sub(5)..n).collect())
                    .collect(),
            ),
            (
                "a cache that is warm",
                (0..30u32).map(|n| (0..n.min(8)).collect()).collect(),
            ),
            (
                "given back",
                (0..20)
                    .map(|n| (0..if n < 15 { n } else { 0 }).collect())
                    .collect(),
            ),
        ];
        for (name, samples) in cases {
            assert_eq!(cohorts(samples).growing().count(), 0, "{name}");
        }
    }

    #[test]
    fn growth_that_slows_down_is_none() {
        assert!(is_growing(&Vec::from_iter((0..11).map(|n| 10 * n))));
        assert!(!is_growing(&[
            100, 150, 180, 200, 212, 220, 225, 228, 230, 231, 232
        ]));
        assert!(!is_growing(&[5; 11]));
        assert!(!is_growing(&[]));
    }
}
