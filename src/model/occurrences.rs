//! Occurrences of a leak.

use std::collections::HashMap;

use super::report::{Occurrence, Process};

/// Maximum number of separate occurrences of a leak.
pub const LIMIT: usize = 240;

/// One occurrence: the time, the process, the number of groups of objects and the bytes held.
pub fn of(process: &Process, time: f64, count: u64, bytes: u64) -> Occurrence {
    Occurrence {
        time,
        collections: 1,
        looked: false,
        count,
        bytes,
        pause_us: 0,
        host: process.host.clone(),
        pid: process.pid,
        rank: process.rank,
    }
}

/// Merges occurrences in order of time.
///
/// Where they become more than [`LIMIT`], neighbours of the same process are added up in pairs: no
/// collection and no byte is lost, only the exact times.
pub fn add(all: &mut Vec<Occurrence>, more: impl IntoIterator<Item = Occurrence>) {
    all.extend(more);
    all.sort_by(|a, b| a.time.total_cmp(&b.time));
    while all.len() > LIMIT {
        let before = all.len();
        *all = in_pairs(std::mem::take(all));
        if all.len() == before {
            // Each is of another process: the latest are kept.
            all.drain(..before - LIMIT);
        }
    }
}

/// What all occurrences have, in the order of time: of garbage that was only looked at, what the same process has not had
/// in later looks and collections; of garbage that no collection frees, the most that a process has had.
pub fn distinct<'a>(
    all: impl IntoIterator<Item = &'a Occurrence>,
    of: impl Fn(&Occurrence) -> u64,
) -> u64 {
    let all: Vec<&Occurrence> = all.into_iter().collect();
    let mut ranks: HashMap<(&str, u32), Vec<u32>> = HashMap::new();
    for seen in &all {
        let known = ranks.entry((&seen.host, seen.pid)).or_default();
        known.extend(seen.rank.filter(|rank| !known.contains(rank)));
    }
    // What came later, of what a look may have seen, and of what no collection frees.
    let mut later: HashMap<(&str, u32, Option<u32>), (u64, u64)> = HashMap::new();
    let mut total = 0_u64;
    for seen in all.into_iter().rev() {
        let process = (seen.host.as_str(), seen.pid);
        // A process may learn its rank between two reports.
        let rank = seen.rank.or_else(|| match ranks[&process][..] {
            [rank] => Some(rank),
            _ => None,
        });
        let (taken, frozen) = later.entry((process.0, process.1, rank)).or_default();
        let (known, is_seen_again) = match (seen.collections, seen.looked) {
            (0, false) => (frozen, true),
            (_, looked) => (taken, looked),
        };
        let new = match is_seen_again {
            true => of(seen).saturating_sub(*known),
            false => of(seen),
        };
        *known = known.saturating_add(new);
        total = total.saturating_add(new);
    }
    total
}

/// The sum of what occurrences have.
pub fn sum<'a>(
    all: impl IntoIterator<Item = &'a Occurrence>,
    of: impl Fn(&Occurrence) -> u64,
) -> u64 {
    all.into_iter().map(of).fold(0, u64::saturating_add)
}

fn in_pairs(all: Vec<Occurrence>) -> Vec<Occurrence> {
    let mut paired: Vec<Occurrence> = Vec::with_capacity(all.len() / 2 + 1);
    // Where the latest of each process stands, and whether that is a pair.
    let mut latest: HashMap<(String, u32, Option<u32>), (usize, bool)> = HashMap::new();
    for next in all {
        let process = (next.host.clone(), next.pid, next.rank);
        match latest.get_mut(&process) {
            Some((place, is_pair @ false))
                if paired[*place].collections > 0 && next.collections > 0 =>
            {
                let one = &mut paired[*place];
                one.time = next.time;
                one.collections = one.collections.saturating_add(next.collections);
                one.count = one.count.saturating_add(next.count);
                one.bytes = one.bytes.saturating_add(next.bytes);
                one.pause_us = one.pause_us.saturating_add(next.pause_us);
                *is_pair = true;
            }
            _ => {
                latest.insert(process, (paired.len(), false));
                paired.push(next);
            }
        }
    }
    paired.sort_by(|a, b| a.time.total_cmp(&b.time));
    paired
}

/// True if both were seen in the same process.
pub fn same_process(a: &Occurrence, b: &Occurrence) -> bool {
    (&a.host, a.pid, a.rank) == (&b.host, b.pid, b.rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(time: u32, pid: u32) -> Occurrence {
        Occurrence {
            time: f64::from(time),
            collections: 1,
            count: 2,
            bytes: 10,
            pause_us: 3,
            pid,
            ..Occurrence::default()
        }
    }

    #[test]
    fn they_stand_in_the_order_of_time() {
        let mut all = vec![seen(5, 1)];
        add(&mut all, [seen(3, 2), seen(7, 1)]);
        let times: Vec<f64> = all.iter().map(|one| one.time).collect();
        assert_eq!(times, [3.0, 5.0, 7.0]);
    }

    #[test]
    fn what_a_look_has_seen_is_not_counted_again() {
        let look = |time, pid, count| Occurrence {
            collections: 0,
            looked: true,
            count,
            ..seen(time, pid)
        };
        let frozen = |time, pid, count| Occurrence {
            looked: false,
            ..look(time, pid, count)
        };
        let groups = |mut all: Vec<Occurrence>| {
            all.sort_by(|a, b| a.time.total_cmp(&b.time));
            distinct(&all, |one| one.count)
        };
        // A collection has two.
        assert_eq!(groups(vec![look(1, 1, 1), look(2, 1, 2), seen(3, 1)]), 2);
        assert_eq!(groups(vec![look(1, 1, 5), seen(3, 1)]), 5);
        assert_eq!(groups(vec![seen(1, 1), look(3, 1, 2)]), 4);
        assert_eq!(groups(vec![look(1, 1, 2), seen(3, 2)]), 4);
        // What is frozen stays, and no collection takes it.
        assert_eq!(groups(vec![frozen(1, 1, 2), frozen(2, 1, 2)]), 2);
        assert_eq!(groups(vec![frozen(1, 1, 2), look(2, 1, 1), seen(3, 1)]), 4);
        // It learned its rank in between.
        let of_rank = Occurrence {
            rank: Some(0),
            ..seen(2, 1)
        };
        assert_eq!(groups(vec![look(1, 1, 2), of_rank]), 2);
    }

    #[test]
    fn many_are_added_up_and_none_is_lost() {
        const COUNT: u64 = if cfg!(miri) { 600 } else { 10_000 };
        let mut all = vec![];
        for time in 0..COUNT as u32 {
            add(&mut all, [seen(time, time % 3)]);
        }
        assert!(all.len() <= LIMIT && all.len() > LIMIT / 4, "{}", all.len());
        let sum = |of: fn(&Occurrence) -> u64| all.iter().map(of).sum::<u64>();
        assert_eq!(sum(|one| one.collections), COUNT);
        assert_eq!(
            (sum(|one| one.count), sum(|one| one.bytes)),
            (2 * COUNT, 10 * COUNT)
        );
        assert_eq!(sum(|one| one.pause_us), 3 * COUNT);
        assert!(all.is_sorted_by(|a, b| a.time <= b.time));
        assert_eq!(all.last().map(|one| one.time), Some((COUNT - 1) as f64));
    }

    #[test]
    fn a_thousand_processes_stay_bounded() {
        let mut all = vec![];
        add(&mut all, (0..1000).map(|pid| seen(pid, pid)));
        assert_eq!(all.len(), LIMIT);
    }
}
