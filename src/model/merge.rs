//! Merges reports: of the collections of a run, or of the ranks of a job.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::rank::runs;
use super::redact::{NOTE, is_redacted};
use super::report::{BUFFER_LIMIT, Buffer, Leak, Occurrence, ProcessShare, Report};
use super::{occurrences, shared};

/// Merges reports into one; `None` if there are none.
///
/// Leaks with the same signature are one leak: counts and bytes are added up, and the first occurrence
/// is the one that is drawn. What the reports disagree on (the process, the collection) is as the
/// first has it, and a note says so.
pub fn merge(reports: &[&Report]) -> Option<Report> {
    let (first, rest) = reports.split_first()?;
    let mut merged = Report::clone(first);
    if rest.is_empty() {
        return Some(merged);
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    for (index, leak) in merged.leaks.iter().enumerate() {
        places.insert(leak.signature.clone(), index);
    }
    let mut notes: HashSet<&String> = first.notes.iter().collect();
    for report in rest {
        merged.time = merged.time.max(report.time);
        merged.left_out = merged.left_out.saturating_add(report.left_out);
        let collection = &mut merged.collection;
        collection.garbage_objects = collection
            .garbage_objects
            .saturating_add(report.collection.garbage_objects);
        collection.pause_us = collection
            .pause_us
            .saturating_add(report.collection.pause_us);
        let size = &mut merged.process.world_size;
        *size = (*size).max(report.process.world_size);
        if collection.generation != report.collection.generation {
            collection.generation = None;
        }
        for note in &report.notes {
            if notes.insert(note) {
                merged.notes.push(note.clone());
            }
        }
        for leak in &report.leaks {
            match places.get(&leak.signature) {
                Some(&index) => add(&mut merged.leaks[index], leak),
                None => {
                    places.insert(leak.signature.clone(), merged.leaks.len());
                    merged.leaks.push(leak.clone());
                }
            }
        }
    }
    // Of all of it, or of none.
    if !reports.iter().all(|report| is_redacted(report)) {
        merged.notes.retain(|note| note != NOTE);
    }
    if let Some(note) = processes(reports) {
        merged.process.rank = None;
        merged.notes.push(note);
    } else if let [rank] = ranks(reports)[..] {
        // A process may learn its rank between two reports.
        merged.set_rank(Some(rank));
    }
    merged.leaks.iter_mut().for_each(limit_buffers);
    merged.sort_leaks();
    if reports.iter().any(|report| !report.processes.is_empty()) {
        merged.processes = shares(reports);
        correct_shares(&mut merged);
    }
    Some(merged)
}

/// One report of the processes of a job, as [`merge`], which also says what each of them held; `None`
/// of no reports.
pub fn merge_processes(reports: &[&Report]) -> Option<Report> {
    let mut merged = merge(reports)?;
    merged.processes = shares(reports);
    correct_shares(&mut merged);
    Some(merged)
}

/// What each process held, in the order of ranks; those without a rank come last.
fn shares(reports: &[&Report]) -> Vec<ProcessShare> {
    let mut shares: Vec<ProcessShare> = Vec::new();
    let mut places: HashMap<(Option<u32>, u32, String), usize> = HashMap::new();
    for report in reports {
        let known = match report.processes.is_empty() {
            true => vec![share_of(report)],
            false => report.processes.clone(),
        };
        for share in known {
            let process = match share.rank {
                Some(_) => (share.rank, 0, String::new()),
                None => (None, share.pid, share.host.clone()),
            };
            match places.get(&process) {
                Some(&place) => {
                    for (signature, bytes) in &share.bytes_held {
                        add_bytes(&mut shares[place].bytes_held, signature, *bytes);
                    }
                }
                None => {
                    places.insert(process, shares.len());
                    shares.push(share);
                }
            }
        }
    }
    // A process may learn its rank between two reports.
    let (unnamed, mut shares): (Vec<_>, Vec<_>) =
        shares.into_iter().partition(|it| it.rank.is_none());
    for share in unnamed {
        let is_it = |it: &&mut ProcessShare| {
            it.rank.is_some() && (&it.host, it.pid) == (&share.host, share.pid)
        };
        match shares.iter_mut().find(is_it) {
            Some(known) => {
                for (signature, bytes) in &share.bytes_held {
                    add_bytes(&mut known.bytes_held, signature, *bytes);
                }
            }
            None => shares.push(share),
        }
    }
    shares.sort_by_key(|share| (share.rank.is_none(), share.rank));
    shares
}

/// Takes what each process held from the occurrences, which have what was seen twice once, where all of them are there.
fn correct_shares(merged: &mut Report) {
    for leak in merged.leaks.iter().filter(|leak| is_complete(leak)) {
        for share in &mut merged.processes {
            let is_its = |seen: &&Occurrence| match share.rank {
                Some(_) => {
                    let is_same = (&seen.host, seen.pid) == (&share.host, share.pid);
                    seen.rank == share.rank || seen.rank.is_none() && is_same
                }
                None => (seen.rank, seen.pid, &seen.host) == (None, share.pid, &share.host),
            };
            let its: Vec<&Occurrence> = leak.occurrences.iter().filter(is_its).collect();
            if !its.is_empty() {
                let held = occurrences::distinct(its, |seen| seen.bytes);
                share.bytes_held.insert(leak.signature.clone(), held);
            }
        }
    }
}

/// True if the occurrences are all that the leak counts.
pub fn is_complete(leak: &Leak) -> bool {
    let distinct = |of: fn(&Occurrence) -> u64| occurrences::distinct(&leak.occurrences, of);
    distinct(|seen| seen.count) == leak.count && distinct(|seen| seen.bytes) == leak.bytes_held
}

/// What two reports of a leak have both seen.
#[derive(Default)]
struct Overlap {
    count: u64,
    bytes: u64,
    frozen: u64,
}

fn overlap(leak: &Leak, more: &Leak) -> Overlap {
    let mut seen = leak.occurrences.iter().chain(&more.occurrences);
    if seen.all(|seen| seen.collections > 0) {
        return Overlap::default();
    }
    let mut all: Vec<Occurrence> = leak.occurrences.clone();
    all.extend(more.occurrences.iter().cloned());
    all.sort_by(|a, b| a.time.total_cmp(&b.time));
    let both = |of: &dyn Fn(&Occurrence) -> u64| {
        let distinct = |all: &[Occurrence]| occurrences::distinct(all, of);
        let apart = distinct(&leak.occurrences).saturating_add(distinct(&more.occurrences));
        apart.saturating_sub(distinct(&all))
    };
    let frozen = |seen: &Occurrence| match seen.collections == 0 && !seen.looked {
        true => seen.count,
        false => 0,
    };
    Overlap {
        count: both(&|seen| seen.count),
        bytes: both(&|seen| seen.bytes),
        frozen: both(&frozen),
    }
}

/// What the process of a report held.
fn share_of(report: &Report) -> ProcessShare {
    let mut bytes_held = BTreeMap::new();
    for leak in &report.leaks {
        add_bytes(&mut bytes_held, &leak.signature, leak.bytes_held);
    }
    ProcessShare {
        host: report.process.host.clone(),
        pid: report.process.pid,
        rank: report.process.rank,
        bytes_held,
    }
}

/// Adds to the bytes of a leak.
fn add_bytes(bytes_held: &mut BTreeMap<String, u64>, signature: &str, bytes: u64) {
    match bytes_held.get_mut(signature) {
        Some(held) => *held = held.saturating_add(bytes),
        None => {
            bytes_held.insert(signature.to_owned(), bytes);
        }
    }
}

/// Adds the occurrences of a leak to those of the same leak.
fn add(leak: &mut Leak, more: &Leak) {
    let overlap = overlap(leak, more);
    occurrences::add(&mut leak.occurrences, more.occurrences.iter().cloned());
    // Saturating, as files from elsewhere may say anything.
    let count = leak.count.saturating_add(more.count);
    let bytes = leak.bytes_held.saturating_add(more.bytes_held);
    leak.count = count.saturating_sub(overlap.count);
    leak.bytes_held = bytes.saturating_sub(overlap.bytes);
    let frozen = leak.frozen.saturating_add(more.frozen);
    leak.frozen = frozen.saturating_sub(overlap.frozen);
    let totals = (leak.count, leak.bytes_held);
    // Of what both have seen, each has what the other has.
    let seen_again = totals != (count, bytes);
    let joined = |one: u64, other: u64| {
        let all = one.saturating_add(other);
        match seen_again {
            true => share(all, totals.0, count),
            false => all,
        }
    };
    leak.objects = joined(leak.objects, more.objects);
    shared::add(&mut leak.shared, &more.shared);
    if seen_again {
        for shared in &mut leak.shared {
            shared.bytes = share(shared.bytes, totals.1, bytes);
        }
    }
    leak.bytes_freed = leak
        .bytes_freed
        .zip(more.bytes_freed)
        .map(|(a, b)| a.saturating_add(b));
    leak.buffers_omitted = joined(leak.buffers_omitted, more.buffers_omitted);
    let is_same = |one: &Buffer, other: &Buffer| {
        (&one.device, one.pointer, one.bytes) == (&other.device, other.pointer, other.bytes)
    };
    // Otherwise an address means the same memory in one look at one process only.
    let known = leak.buffers.len();
    let more = more.buffers.iter().filter(|buffer| {
        let mut before = leak.buffers.iter().take(known);
        !seen_again || !before.any(|it| is_same(it, buffer))
    });
    let more: Vec<Buffer> = more.cloned().collect();
    leak.buffers.extend(more.into_iter().map(|mut buffer| {
        buffer.node = None;
        buffer.path_nodes.clear();
        buffer
    }));
}

/// So much of a number as `part` is of `whole`.
fn share(of: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(of) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Keeps the largest buffers, those that are drawn first among equals.
fn limit_buffers(leak: &mut Leak) {
    let drawn = |node: Option<u32>| node.is_none();
    leak.buffers
        .sort_by_key(|buffer| (std::cmp::Reverse(buffer.bytes), drawn(buffer.node)));
    let omitted = leak.buffers.len().saturating_sub(BUFFER_LIMIT) as u64;
    leak.buffers_omitted = leak.buffers_omitted.saturating_add(omitted);
    leak.buffers.truncate(BUFFER_LIMIT);
    for (index, node) in leak.graph.nodes.iter_mut().enumerate() {
        node.buffer = leak
            .buffers
            .iter()
            .position(|buffer| buffer.node == Some(index as u32))
            .map(|place| place as u32);
    }
}

/// The ranks of the processes that the reports are of.
fn ranks(reports: &[&Report]) -> Vec<u32> {
    let mut ranks: Vec<u32> = reports.iter().filter_map(|r| r.process.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// A note on which processes were merged; `None` if all reports are of one.
fn processes(reports: &[&Report]) -> Option<String> {
    let first = &reports.first()?.process;
    let same = |report: &&Report| {
        let process = &report.process;
        (&process.host, process.pid) == (&first.host, first.pid)
    };
    let ranks = ranks(reports);
    if ranks.len() < 2 && reports.iter().all(same) {
        return None;
    }
    let of_ranks = if ranks.is_empty() {
        String::new()
    } else {
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        let size = reports.iter().filter_map(|it| it.process.world_size).max();
        let size = size.filter(|&size| size as usize > ranks.len());
        let of = size.map(|size| format!(" of {size}")).unwrap_or_default();
        format!(" of {noun} {}{of}", runs(&ranks).join(", "))
    };
    Some(format!(
        "Merged from {} reports{of_ranks}; host and process are those of the first.",
        reports.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Occurrence;
    use crate::render::samples;

    fn of_rank(rank: u32) -> Report {
        let mut report = samples::callback();
        report.process.rank = Some(rank);
        report
    }

    #[test]
    fn one_report_stays_as_it_is() {
        let report = samples::linked_nodes_and_exception();
        assert_eq!(merge(&[&report]), Some(report));
        assert_eq!(merge(&[]), None);
    }

    #[test]
    fn the_same_leak_is_added_up() {
        let reports: Vec<Report> = (0..4).map(of_rank).collect();
        let all: Vec<&Report> = reports.iter().collect();
        let merged = merge(&all).expect("four reports");
        let (leak, single) = (&merged.leaks[0], &reports[0].leaks[0]);
        assert_eq!(merged.leaks.len(), reports[0].leaks.len());
        assert_eq!(leak.count, 4 * single.count);
        assert_eq!(leak.objects, 4 * single.objects);
        assert_eq!(leak.bytes_held, 4 * single.bytes_held);
        assert_eq!(leak.buffers.len(), 4 * single.buffers.len());
        assert_eq!(leak.cycle, single.cycle);
        assert_eq!(merged.process.rank, None);
        let note = merged.notes.last().map(String::as_str).unwrap_or_default();
        assert!(note.starts_with("Merged from 4 reports of ranks 0–3;"));
    }

    #[test]
    fn of_very_many_ranks_each_counts() {
        let one = samples::seen_on_ranks(1);
        let of_rank = |rank: u32| {
            let mut report = one.clone();
            report.process.rank = Some(rank);
            report.leaks[0].occurrences.truncate(1);
            let seen = &mut report.leaks[0].occurrences[0];
            (seen.rank, seen.pid, seen.count, seen.bytes) = (Some(rank), rank, 1, 10);
            (report.leaks[0].count, report.leaks[0].bytes_held) = (1, 10);
            report
        };
        let all: Vec<Report> = (0..1000).map(of_rank).collect();
        let all: Vec<&Report> = all.iter().collect();
        let merged = merge(&all).expect("many reports");
        assert_eq!(
            (merged.leaks[0].count, merged.leaks[0].bytes_held),
            (1000, 10_000)
        );
    }

    #[test]
    fn each_process_keeps_its_own_times() {
        let one = samples::seen_on_ranks(1);
        let mut other = one.clone();
        for seen in &mut other.leaks[0].occurrences {
            (seen.rank, seen.pid) = (Some(1), seen.pid + 1);
        }
        let merged = merge(&[&one, &other]).expect("two reports");
        let seen = &merged.leaks[0].occurrences;
        assert_eq!(seen.len(), 20);
        assert_eq!(seen.iter().filter(|one| one.rank == Some(1)).count(), 10);
        assert!(seen.is_sorted_by(|a, b| a.time <= b.time));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn very_many_notes_and_processes_are_merged() {
        // Compared each with each, these would take minutes.
        const MANY: u32 = 100_000;
        let mut report = samples::seen_on_ranks(1);
        report.notes = (0..MANY).map(|i| format!("note {i}")).collect();
        let leak = &mut report.leaks[0];
        let seen = leak.occurrences[0].clone();
        leak.occurrences = (0..MANY)
            .map(|pid| Occurrence {
                pid,
                ..seen.clone()
            })
            .collect();
        let merged = merge(&[&report, &report]).expect("two reports");
        assert_eq!(merged.notes, report.notes);
        assert_eq!(merged.leaks[0].occurrences.len(), occurrences::LIMIT);
    }

    #[test]
    fn a_process_may_learn_its_rank_between_two_reports() {
        let mut unknown = of_rank(0);
        unknown.process.rank = None;
        let process = unknown.process.clone();
        unknown.leaks[0].occurrences = vec![occurrences::of(&process, 1.0, 1, 1)];
        let merged = merge(&[&unknown, &of_rank(7)]).expect("two reports");
        assert_eq!(merged.process.rank, Some(7));
        assert_eq!(merged.leaks[0].occurrences[0].rank, Some(7));
        assert_eq!(merged.notes, unknown.notes);
    }

    #[test]
    fn drawn_nodes_still_show_their_own_buffers() {
        let mut large = of_rank(1);
        for buffer in &mut large.leaks[0].buffers {
            buffer.bytes *= 2;
        }
        let merged = merge(&[&of_rank(0), &large]).expect("two reports");
        let leak = &merged.leaks[0];
        let shown = leak.graph.nodes.iter().enumerate();
        let mut checked = 0;
        for (index, buffer) in shown.filter_map(|(i, node)| Some((i, node.buffer?))) {
            assert_eq!(
                leak.buffers[buffer as usize].node,
                Some(u32::try_from(index).expect("a small graph"))
            );
            checked += 1;
        }
        assert!(checked > 0);
    }

    #[test]
    fn different_leaks_stand_side_by_side_the_largest_first() {
        let (one, two) = (samples::callback(), samples::linked_nodes_and_exception());
        let merged = merge(&[&one, &two]).expect("two reports");
        assert_eq!(merged.bytes_held(), one.bytes_held() + two.bytes_held());
        assert!(
            merged
                .leaks
                .is_sorted_by_key(|leak| std::cmp::Reverse(leak.bytes_held))
        );
    }

    #[test]
    fn only_so_many_buffers_are_listed_and_the_rest_counted() {
        let report = samples::callback();
        let all = vec![&report; 150];
        let merged = merge(&all).expect("many reports");
        let (leak, single) = (&merged.leaks[0], &report.leaks[0]);
        assert_eq!(leak.buffers.len(), BUFFER_LIMIT);
        let buffers = single.buffers.len() as u64 + single.buffers_omitted;
        let listed = leak.buffers.len() as u64 + leak.buffers_omitted;
        assert_eq!(listed, 150 * buffers);
    }

    #[test]
    fn only_what_is_redacted_as_a_whole_says_so() {
        let plain = samples::callback();
        let mut redacted = plain.clone();
        crate::model::redact::redact(&mut redacted);
        let notes = |reports: &[&Report]| merge(reports).map(|it| it.notes).unwrap_or_default();
        let says_so = |reports: &[&Report]| notes(reports).iter().any(|it| it == NOTE);
        assert!(says_so(&[&redacted, &redacted]));
        assert!(!says_so(&[&redacted, &plain]));
        assert!(!says_so(&[&plain, &redacted]));
    }
}
