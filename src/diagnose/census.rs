//! Which types have more and more objects.
//!
//! At each sample the objects of each type are counted, which is cheap. Only the types of which there are more
//! and more are followed: some of their objects by address, so that [`Cohorts`] can tell what accumulates from
//! what is replaced.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

use super::cohorts::{Cohorts, Group, Growing, NEEDED, WINDOW};

/// So many intervals in a row, each with more objects than the one before, begin to be followed.
const RISES: usize = 3;
/// The lengths of the intervals, in samples: a slow leak adds nothing in most samples.
const LENGTHS: [u32; 4] = [1, 4, 16, 64];
/// So many types are followed at a time, and so many with those that were looked at in vain.
const FOLLOWED: usize = 8;
const FOLLOWED_IN_ALL: usize = 32;
/// So many objects of a type are followed, or up to twice as many; of more, one in two, four and so on.
const MEMBERS: u64 = 8192;
/// By so many objects at least it is seen which part of them is alive, if there were as many.
const KNOWN: usize = 16;
/// Multiplied with this, addresses are spread evenly: the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// True for the objects that are followed, by address: one in two to the power of `halvings`.
pub fn is_chosen(address: usize, halvings: u32) -> bool {
    let spread = (address as u64 >> 4).wrapping_mul(SPREAD);
    halvings == 0 || spread >> (64 - halvings.min(63)) == 0
}

/// The number of objects of a type, at each sample.
pub struct Census<K> {
    types: FxHashMap<K, Counts>,
}

impl<K> Default for Census<K> {
    fn default() -> Self {
        Self {
            types: FxHashMap::default(),
        }
    }
}

#[derive(Default)]
struct Counts {
    now: u64,
    lows: [Lows; LENGTHS.len()],
    followed: Option<Followed>,
}

/// The lowest number in each of the last intervals of one length.
#[derive(Clone, Copy)]
struct Lows {
    last: [u64; RISES + 1],
    /// How many of these there are.
    known: usize,
    low: u64,
    samples: u32,
}

impl Default for Lows {
    fn default() -> Self {
        Self {
            last: [0; RISES + 1],
            known: 0,
            low: u64::MAX,
            samples: 0,
        }
    }
}

impl Lows {
    fn add(&mut self, count: u64, length: u32) {
        self.low = self.low.min(count);
        self.samples += 1;
        if self.samples == length {
            self.last.rotate_left(1);
            self.last[RISES] = self.low;
            self.known = (self.known + 1).min(RISES + 1);
            (self.low, self.samples) = (u64::MAX, 0);
        }
    }

    /// By how many it has risen in each sample; 0 if it has not all the time.
    fn rise(&self, length: u32) -> f64 {
        let rises = self.known > RISES && self.last.windows(2).all(|it| it[1] > it[0]);
        let risen = self.last[RISES].saturating_sub(self.last[0]);
        f64::from(u8::from(rises)) * risen as f64 / f64::from(length)
    }
}

/// A type whose objects are followed.
struct Followed {
    cohorts: Cohorts<(), usize>,
    /// One in two to the power of this is, from the next sample on.
    halvings: u32,
    /// The same at the last sample.
    halvings_of_last: u32,
    /// So many samples without more objects, and it is no longer followed.
    patience: usize,
    /// It is looked at when there are so many.
    due_from: u64,
    /// It was told, so it is followed to the end.
    is_told: bool,
}

/// A type that has more and more objects.
pub struct GrowingType<'a, K> {
    pub key: &'a K,
    pub length: usize,
    /// The addresses of those of its objects that were followed and came since the warm-up, each with the number of its
    /// interval, the youngest first; `None` outside the window.
    pub members: Vec<(usize, Option<usize>)>,
    /// How many steps each of the intervals has.
    pub steps: Vec<u64>,
    /// How many objects each of the members stands for.
    pub weight: u64,
}

impl<K: Hash + Eq + Ord + Clone> Census<K> {
    /// The types that are followed, each with how often its objects are halved (see [`is_chosen`]).
    pub fn followed(&self) -> FxHashMap<K, u32> {
        let types = self.types.iter();
        types
            .filter_map(|(key, counts)| Some((key.clone(), counts.followed.as_ref()?.halvings)))
            .collect()
    }

    /// Takes note of a sample: of how many objects each type has, and which of the chosen ones of the types that
    /// are followed.
    pub fn add(
        &mut self,
        step: u64,
        counts: impl IntoIterator<Item = (K, u64)>,
        chosen: &FxHashMap<K, Vec<usize>>,
    ) {
        self.types.values_mut().for_each(|it| it.now = 0);
        for (key, count) in counts {
            self.types.entry(key).or_default().now = count;
        }
        self.types
            .retain(|_, it| it.now > 0 || it.followed.is_some());
        let mut risen: Vec<(f64, K, u32)> = Vec::new();
        for (key, counts) in &mut self.types {
            for (lows, length) in counts.lows.iter_mut().zip(LENGTHS) {
                lows.add(counts.now, length);
            }
            if let Some(followed) = &mut counts.followed {
                let some = chosen.get(key).into_iter().flatten().copied();
                if !followed.add(step, counts.now, some) {
                    counts.followed = None;
                }
                continue;
            }
            let rises = counts.lows.iter().zip(LENGTHS);
            let rises = rises.map(|(lows, length)| (lows.rise(length), length));
            if let Some((rise, length)) = rises.rev().find(|(rise, _)| *rise > 0.0) {
                risen.push((rise, key.clone(), length));
            }
        }
        let followed = || {
            self.types
                .values()
                .filter_map(|it| Some((it.now, it.followed.as_ref()?)))
        };
        // What is put off costs a little, and may be told later.
        let in_room = followed().filter(|(now, it)| it.is_told || *now >= it.due_from);
        let in_all = FOLLOWED_IN_ALL.saturating_sub(followed().count());
        let room = FOLLOWED.saturating_sub(in_room.count()).min(in_all);
        risen.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        for (_, key, length) in risen.into_iter().take(room) {
            if let Some(counts) = self.types.get_mut(&key) {
                counts.followed = Some(Followed::new(counts.now, length));
            }
        }
    }

    /// The types that have more and more objects and are to be looked at.
    pub fn due(&self) -> Vec<GrowingType<'_, K>> {
        let mut found: Vec<(u64, GrowingType<'_, K>)> = Vec::new();
        for (key, counts) in &self.types {
            let Some(followed) = &counts.followed else {
                continue;
            };
            if counts.now < followed.due_from {
                continue;
            }
            if let Some((group, Growing { length, .. })) = followed.grows() {
                let members = followed.cohorts.members(group, length).into_iter();
                let growing = GrowingType {
                    key,
                    length,
                    members: members.map(|it| (it.name, it.age)).collect(),
                    steps: followed.cohorts.steps_of_intervals(length),
                    weight: 1 << followed.halvings_of_last,
                };
                found.push((counts.now, growing));
            }
        }
        found.sort_by(|a, b| (Reverse(a.0), a.1.key).cmp(&(Reverse(b.0), b.1.key)));
        found.into_iter().map(|(_, growing)| growing).collect()
    }

    /// The types that have more and more objects and were not told, each with how many more that is, and since which
    /// step.
    pub fn untold(&self) -> Vec<(&K, u64, u64)> {
        let mut found = Vec::new();
        for (key, counts) in &self.types {
            let followed = counts.followed.as_ref().filter(|it| !it.is_told);
            let Some(followed) = followed else { continue };
            let Some((group, _)) = followed.grows() else {
                continue;
            };
            let before = group.totals.first().map_or(0, |total| total.0);
            let since = followed.cohorts.steps.first().copied().unwrap_or_default();
            found.push((key, counts.now.saturating_sub(before), since));
        }
        found.sort_by_key(|(key, more, _)| (Reverse(*more), *key));
        found
    }

    /// Has a type looked at again only when there are so many more objects.
    pub fn put_off(&mut self, key: &K, more: u64) {
        if let Some(counts) = self.types.get_mut(key)
            && let Some(followed) = &mut counts.followed
        {
            followed.due_from = counts.now.saturating_add(more.max(1));
        }
    }

    /// Follows a type to the end, or no longer than others.
    pub fn set_told(&mut self, key: &K, is_told: bool) {
        if let Some(followed) = self.followed_mut(key) {
            followed.is_told = is_told;
        }
    }

    fn followed_mut(&mut self, key: &K) -> Option<&mut Followed> {
        self.types.get_mut(key)?.followed.as_mut()
    }

    fn of(&self, key: &K) -> Option<&Followed> {
        self.types.get(key)?.followed.as_ref()
    }

    pub fn count(&self, key: &K) -> u64 {
        self.types.get(key).map_or(0, |counts| counts.now)
    }

    /// The number of objects at each sample since a type was followed, with the sample's step.
    pub fn history(&self, key: &K) -> Vec<(u64, u64)> {
        let Some(followed) = self.of(key) else {
            return Vec::new();
        };
        let totals = followed.cohorts.groups.get(&()).into_iter();
        let totals = totals.flat_map(|group| &group.totals);
        let steps = followed.cohorts.steps.iter();
        steps.zip(totals).map(|(&step, it)| (step, it.0)).collect()
    }

    /// The part of some objects that is alive; `None` if too few of them are followed to say.
    pub fn part_alive(&self, key: &K, members: &FxHashSet<usize>) -> Option<f64> {
        let followed = self.of(key)?;
        let group = followed.cohorts.groups.get(&())?;
        let chosen = |&&it: &&usize| is_chosen(it, followed.halvings_of_last);
        let known: FxHashSet<usize> = members.iter().filter(chosen).copied().collect();
        let alive = group.alive_of(&known) as f64;
        (known.len() >= KNOWN.min(members.len().max(1))).then(|| alive / known.len() as f64)
    }

    /// True if a type has more and more objects still, in intervals of a length.
    pub fn grows_still(&self, key: &K, length: usize) -> bool {
        let Some(followed) = self.of(key) else {
            return false;
        };
        let group = followed.cohorts.groups.get(&());
        group.is_some_and(|group| followed.cohorts.grows_still(group, length))
    }

    /// True if a type has no more objects than so many steps before.
    pub fn has_stopped(&self, key: &K, steps: u64) -> bool {
        self.of(key)
            .is_none_or(|it| it.has_stopped(it.cohorts.samples_of(steps)))
    }

    /// The number of steps in which the members of an interval and those of all younger ones came.
    pub fn steps_since(&self, key: &K, age: usize, length: usize) -> u64 {
        let followed = self.of(key);
        followed.map_or(1, |it| it.cohorts.steps_since(age, length))
    }
}

impl Followed {
    fn new(count: u64, length: u32) -> Self {
        let halvings = (count / MEMBERS).checked_ilog2().map_or(0, |it| it + 1);
        Self {
            cohorts: Cohorts::default(),
            halvings,
            halvings_of_last: halvings,
            patience: WINDOW * length as usize,
            due_from: 0,
            is_told: false,
        }
    }

    /// False if it need not be followed any longer.
    fn add(&mut self, step: u64, count: u64, some: impl Iterator<Item = usize>) -> bool {
        self.cohorts.add_counted(step, (), count, some);
        self.halvings_of_last = self.halvings;
        if count >> self.halvings > 2 * MEMBERS {
            self.halvings += 1;
        }
        self.is_told || self.cohorts.steps.len() <= NEEDED || !self.has_stopped(self.patience)
    }

    fn has_stopped(&self, samples: usize) -> bool {
        let totals = self.cohorts.groups.get(&()).map(|it| it.totals.as_slice());
        let totals = totals.unwrap_or_default();
        let before = totals.len().checked_sub(samples + 1).map(|at| totals[at]);
        before.is_some_and(|before| totals.last().is_none_or(|now| now.0 <= before.0))
    }

    fn grows(&self) -> Option<(&Group<usize>, Growing)> {
        let (_, group, growing) = self.cohorts.growing().next()?;
        Some((group, growing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample at which the type of these objects was told to grow.
    fn told(samples: impl IntoIterator<Item = Vec<usize>>) -> Option<usize> {
        let mut census = Census::default();
        samples.into_iter().enumerate().position(|(step, sample)| {
            let followed = census.followed();
            let chosen = followed.get(&0).map(|&halvings| {
                let chosen = sample.iter().map(|it| it << 4);
                (0, chosen.filter(|&it| is_chosen(it, halvings)).collect())
            });
            census.add(
                step as u64,
                [(0, sample.len() as u64), (1, 7)],
                &chosen.into_iter().collect(),
            );
            !census.due().is_empty()
        })
    }

    #[test]
    fn a_type_that_adds_grows() {
        let at = |per: usize| told((0..400).map(|n| (0..per * n).collect()));
        assert_eq!(at(1), Some(4 + NEEDED));
        assert_eq!(at(500), Some(4 + NEEDED));
        let slow = told((0..600).map(|n| (0..n / 8).chain(9000..9000 + n % 5).collect()));
        assert!(slow.is_some_and(|n| n < 400), "{slow:?}");
        let beside_many = told((0..100).map(|n| (0..60_000 + 200 * n).collect()));
        assert_eq!(beside_many, Some(3 + NEEDED));
    }

    #[test]
    fn types_that_were_looked_at_make_room_for_others() {
        let mut census = Census::default();
        let mut seen = FxHashSet::default();
        for step in 0..100 {
            let objects = |key: usize| (0..step + 1).map(move |it| (key << 32 | it) << 4);
            let followed = census.followed();
            let chosen = followed.keys().map(|&key| (key, objects(key).collect()));
            let counts = (0..20).map(|key| (key, step as u64 + 1));
            census.add(step as u64, counts, &chosen.collect());
            let due: Vec<usize> = census.due().iter().map(|it| *it.key).collect();
            for key in due {
                census.put_off(&key, 1 << 20);
                seen.insert(key);
            }
        }
        assert_eq!(seen.len(), 20);
        assert!(census.followed().len() <= FOLLOWED_IN_ALL);
    }

    #[test]
    fn what_only_looks_like_growth_does_not() {
        let teeth = |period: usize| told((0..400).map(|n| (n - n % period..=n).collect()));
        for period in [2, 9, 15] {
            assert_eq!(teeth(period), None, "{period}");
        }
        assert_eq!(told((0..300).map(|_| (0..50).collect())), None);
        assert_eq!(told((0..300).map(|n| (0..n.min(12)).collect())), None);
        assert_eq!(told((0..300).map(|n| (n..n + 50).collect())), None);
        // More at each sample, but none of them stays.
        let replaced = told((0..300).map(|n| (1000 * n..1000 * n + n).collect()));
        assert_eq!(replaced, None);
    }

    #[test]
    fn objects_that_are_no_longer_followed_are_not_gone() {
        let mut census = Census::default();
        let members: FxHashSet<usize> = (0..256).map(|it| it << 4).collect();
        let mut halvings = 0;
        for step in 0..40 {
            halvings = census.followed().get(&0).copied().unwrap_or_default();
            let alive = (0..1000 * (step + 1)).map(|it| it << 4);
            let chosen = alive.filter(|&it| is_chosen(it, halvings)).collect();
            let counts = [(0, 1000 * (step as u64 + 1))];
            census.add(step as u64, counts, &[(0, chosen)].into_iter().collect());
            let part = census.part_alive(&0, &members);
            assert!(part.is_none_or(|part| part == 1.0), "{step}: {part:?}");
        }
        assert!(halvings >= 2, "{halvings}");
        census.set_told(&0, true);
        census.add(40, [(0, 9000)], &FxHashMap::default());
        assert_eq!(census.part_alive(&0, &members), Some(0.0));
    }

    #[test]
    fn one_in_so_many_is_chosen() {
        for halvings in 0..6 {
            let chosen = (0..64_000).filter(|it| is_chosen(it << 5, halvings));
            let share = chosen.count() as f64 / (64_000 >> halvings) as f64;
            assert!((0.9..1.1).contains(&share), "{halvings}: {share}");
        }
    }
}
