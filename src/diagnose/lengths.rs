//! What becomes longer from sample to sample: a tensor that is replaced by a longer one, such as
//! `past = torch.cat([past, x])`, or a container that is added to.
//!
//! Whatever becomes shorter once begins anew: a cache that is emptied, or the sequences of another batch.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::cohorts::WINDOW;

/// In so many samples it must have become longer.
const RISES: usize = 8;
/// The part of its earlier rate at which something must still become longer to do so steadily.
const STEADY: f64 = 0.5;
/// So many times the usual time without becoming longer, and it has stopped.
const PAUSE: u64 = 4;
/// Nothing is told of what becomes as long as it was before it became shorter, and no longer than this.
const BEYOND: f64 = 1.5;

/// A number for the tensors of a device and dtype that differ in the length of one dimension only.
pub fn family(device: &str, dtype: &str, shape: &[u64], dimension: usize) -> u64 {
    let rest = (&shape[..dimension], &shape[dimension + 1..]);
    FxBuildHasher.hash_one((device, dtype, rest))
}

/// The number for those of a family whose lengths have not [lasted](Lasting).
pub fn changing(family: u64) -> u64 {
    FxBuildHasher.hash_one((family, "changing"))
}

/// In how many samples in a row there was something of a length, such as a weight, or a window over the last values.
#[derive(Default)]
pub struct Lasting(FxHashMap<(u64, u64), usize>);

impl Lasting {
    /// Takes note of the families and lengths of a sample.
    pub fn add(&mut self, seen: impl IntoIterator<Item = (u64, u64)>) {
        let before = std::mem::take(&mut self.0);
        let seen = seen.into_iter();
        self.0
            .extend(seen.map(|key| (key, before.get(&key).map_or(1, |samples| samples + 1))));
    }

    /// True if a length was there for so long that what becomes longer would have become so.
    pub fn has_lasted(&self, family: u64, length: u64) -> bool {
        self.0
            .get(&(family, length))
            .is_some_and(|&samples| samples >= RISES)
    }
}

/// How long something has become.
#[derive(Clone, Debug)]
pub struct Line<N> {
    /// What is longest now: what has become so, where that is known.
    pub names: Vec<N>,
    pub length: u64,
    pub bytes: u64,
    /// At the first sample.
    pub first_length: u64,
    pub first_bytes: u64,
    pub first_step: u64,
    rises: usize,
    /// How often what was longest before was alive still.
    kept: usize,
    samples: usize,
    /// Step and length at the first sample and when it last became longer, up to as often as must be.
    rises_at: VecDeque<(u64, u64)>,
}

impl<N> Line<N> {
    /// True if it has become longer often enough, at about the same rate all the time, and still does at a step.
    pub fn is_steady(&self, step: u64) -> bool {
        let at = |index: usize| self.rises_at.get(index).copied().unwrap_or_default();
        let (first, middle, last) = (at(0), at(RISES / 2), at(RISES));
        let rate = |from: (u64, u64), to: (u64, u64)| {
            to.1.saturating_sub(from.1) as f64 / to.0.saturating_sub(from.0).max(1) as f64
        };
        self.rises_at.len() > RISES
            && rate(middle, last) >= STEADY * rate(first, middle)
            && !self.has_stopped(step)
    }

    /// True if it has not become longer for much longer than it took before.
    pub fn has_stopped(&self, step: u64) -> bool {
        let (Some(first), Some(last)) = (self.rises_at.front(), self.rises_at.back()) else {
            return true;
        };
        let gaps = (self.rises_at.len() - 1).max(1) as u64;
        step.saturating_sub(last.0) > PAUSE * last.0.saturating_sub(first.0).div_ceil(gaps)
    }

    /// The step at which it last became longer.
    pub fn last_rise(&self) -> u64 {
        self.rises_at.back().map_or(self.first_step, |it| it.0)
    }

    /// By how many bytes it has grown.
    pub fn grown(&self) -> u64 {
        self.bytes.saturating_sub(self.first_bytes)
    }
}

/// Follows what becomes longer.
pub struct Lengths<K, N> {
    lines: FxHashMap<K, Line<N>>,
    /// What there was at the last sample.
    before: FxHashSet<(K, N)>,
    /// How long something was before it became shorter.
    longest: FxHashMap<K, u64>,
}

impl<K, N> Default for Lengths<K, N> {
    fn default() -> Self {
        Self {
            lines: FxHashMap::default(),
            before: FxHashSet::default(),
            longest: FxHashMap::default(),
        }
    }
}

impl<K: Hash + Eq + Clone + Ord, N: Copy + Eq + Hash> Lengths<K, N> {
    /// Takes note of a sample: of each thing its name, length and bytes. Of several with one key the longest
    /// counts, with the bytes of all that are as long.
    pub fn add(&mut self, step: u64, seen: impl IntoIterator<Item = (K, N, u64, u64)>) {
        let mut now: FxHashMap<K, (Vec<N>, u64, u64)> = FxHashMap::default();
        let mut all: FxHashSet<(K, N)> = FxHashSet::default();
        for (key, name, length, bytes) in seen {
            all.insert((key.clone(), name));
            let known = now.entry(key).or_insert((Vec::new(), length, 0));
            if length > known.1 {
                *known = (Vec::new(), length, 0);
            }
            if length == known.1 {
                known.0.push(name);
                known.2 += bytes;
            }
        }
        let before = std::mem::replace(&mut self.before, all);
        let longest = &mut self.longest;
        self.lines.retain(|key, line| {
            let stays = now.get(key).is_some_and(|it| it.1 >= line.length);
            if !stays && line.rises > 0 {
                let known = longest.entry(key.clone()).or_default();
                *known = line.length.max(*known);
            }
            stays
        });
        for (key, (mut names, length, bytes)) in now {
            let line = self.lines.entry(key.clone()).or_insert(Line {
                names: names.clone(),
                length,
                bytes,
                first_length: length,
                first_bytes: bytes,
                first_step: step,
                rises: 0,
                kept: 0,
                samples: 0,
                rises_at: VecDeque::new(),
            });
            line.samples += 1;
            if length > line.length {
                line.rises += 1;
                if line.rises_at.is_empty() {
                    line.rises_at.push_back((line.first_step, line.length));
                } else if line.rises_at.len() > RISES {
                    line.rises_at.pop_front();
                }
                line.rises_at.push_back((step, length));
                let is_new = |name: &N| !before.contains(&(key.clone(), *name));
                let replaces = names.iter().any(is_new);
                let stays = |name: &N| self.before.contains(&(key.clone(), *name));
                line.kept += usize::from(replaces && line.names.iter().any(stays));
                if replaces {
                    names.retain(is_new);
                }
            }
            (line.names, line.length, line.bytes) = (names, length, bytes);
        }
    }

    /// What has become longer for long enough and by as many bytes, the largest first.
    pub fn growing(&self, bytes: f64) -> Vec<(&K, &Line<N>)> {
        let lines = self.lines.iter();
        let mut found: Vec<_> = lines
            .filter(|(key, line)| {
                let before = self.longest.get(*key).copied().unwrap_or_default();
                line.rises >= RISES
                    && 2 * line.kept <= line.rises
                    && line.samples > WINDOW
                    && line.grown() as f64 >= bytes
                    && line.length as f64 > BEYOND * before as f64
            })
            .collect();
        found.sort_by_key(|(key, line)| (std::cmp::Reverse(line.grown()), *key));
        found
    }

    /// How long something has become; `None` if it has become shorter since.
    pub fn get(&self, key: &K) -> Option<&Line<N>> {
        self.lines.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lengths: impl IntoIterator<Item = u64>) -> Option<usize> {
        let mut followed = Lengths::default();
        lengths.into_iter().enumerate().position(|(step, length)| {
            let beside = (1, 0, 7, 7);
            followed.add(step as u64, [(0, step, length, length), beside]);
            !followed.growing(1.0).is_empty()
        })
    }

    #[test]
    fn what_becomes_longer_is_told() {
        assert_eq!(told((0..30).map(|n| 2 * n)), Some(WINDOW));
        assert_eq!(told((0..40).map(|n| n / 3)), Some(24));
        assert_eq!(told((0..10).map(|n| 2 * n).chain(0..25)), None);
        assert_eq!(told((0..10).map(|n| 2 * n).chain(0..40)), Some(38));
    }

    #[test]
    fn what_becomes_shorter_again_is_not() {
        assert_eq!(told([7; 40]), None);
        for period in 2..=WINDOW as u64 {
            assert_eq!(told((0..200).map(|n| n % period)), None, "{period}");
        }
        assert_eq!(told((0..8).chain(0..11)), None);
    }

    #[test]
    fn what_has_stopped_or_slows_down_is_not_steady() {
        let steady = |lengths: &dyn Fn(u64) -> u64, end: u64| {
            let mut followed = Lengths::default();
            (0..end).for_each(|step| followed.add(step, [(0, 0, lengths(step), 0)]));
            followed.get(&0).is_some_and(|line| line.is_steady(end - 1))
        };
        assert!(!steady(&|step| step, 8) && steady(&|step| step, 9));
        assert!(steady(&|step| step / 3, 40));
        assert!(steady(&|step| step.min(20), 22) && !steady(&|step| step.min(20), 40));
        assert!(!steady(&|step| 1000 - 1000 / (step * step + 1), 10));
        assert!(!steady(&|_| 7, 40));
    }

    #[test]
    fn what_is_kept_is_not_replaced() {
        let mut followed = Lengths::default();
        for step in 0..20 {
            let kept = (0..=step).map(|n| (0, n, n, n));
            followed.add(step, kept);
            assert!(followed.growing(1.0).is_empty());
        }
        let of = |shape: &[u64], dimension| family("cpu", "float32", shape, dimension);
        assert_eq!(of(&[2, 3, 4], 1), of(&[2, 9, 4], 1));
        assert_ne!(of(&[2, 3, 4], 1), of(&[2, 3, 5], 1));
        assert_ne!(of(&[2, 2], 0), of(&[2, 2, 2], 0));
    }

    #[test]
    fn what_was_there_before_has_not_become_longer() {
        let mut followed = Lengths::default();
        followed.add(0, [(0, 'a', 4, 40), (0, 'b', 3, 30)]);
        followed.add(1, [(0, 'c', 5, 50), (0, 'd', 5, 50), (0, 'a', 4, 40)]);
        let line = followed.get(&0).expect("it is followed");
        assert_eq!((&*line.names, line.kept), (&['c', 'd'][..], 1));
        let mut lasting = Lasting::default();
        for length in 0..RISES as u64 {
            assert!(!lasting.has_lasted(1, 9));
            lasting.add([(1, 9), (1, length)]);
        }
        assert!(lasting.has_lasted(1, 9) && !lasting.has_lasted(1, RISES as u64 - 1));
        lasting.add([(1, 8), (2, 9)]);
        assert!(!lasting.has_lasted(1, 9));
    }

    #[test]
    fn of_several_the_longest_counts() {
        let mut followed = Lengths::default();
        followed.add(0, [(0, 'a', 3, 30), (0, 'b', 4, 40), (0, 'c', 4, 40)]);
        let line = followed.get(&0).expect("it is followed");
        assert_eq!(
            (&*line.names, line.length, line.bytes),
            (&['b', 'c'][..], 4, 80)
        );
        followed.add(1, [(1, 'a', 3, 30)]);
        assert!(followed.get(&0).is_none());
    }
}
