//! What the page begins and ends with: what happened where, the list of leaks, and notes.

use std::collections::BTreeSet;

use maud::{Markup, html};

use crate::model::rank::runs;
use crate::model::redact::has_no_limits;
use crate::model::report::{Leak, Location, Process, ProcessShare, RUN, Report};
use crate::model::words::{brief, counted, human_bytes, name, one_of, short_location, utc};
use crate::render::html::parts::{head, notes, sentence, with_code};
use crate::render::html::{LEAKS, NAME};
use crate::render::sentences::is_where_it_stopped;
use crate::render::text::{self, process_name};

/// Longer names are shortened in the title.
const TITLE: usize = 120;
/// How many ranks or processes are named.
const NAMED: usize = 16;

pub fn headline(report: &Report) -> String {
    match report.leaks.len() as u64 {
        0 if is_certain(report) => "No leaks".to_owned(),
        0 => "No leaks reported".to_owned(),
        count => format!(
            "{}{} held by {}",
            if report.left_out > 0 { "At least " } else { "" },
            human_bytes(report.bytes_held()),
            counted(count, "leak", "leaks")
        ),
    }
}

/// The headline, after what has changed since the report that this one is compared with.
fn heading(report: &Report) -> String {
    let changed = report.changes().map(|it| it.words());
    match changed.as_deref() {
        None => headline(report),
        Some("") => format!("Nothing new: {}", headline(report)),
        Some(changed) => format!("{changed}: {}", headline(report)),
    }
}

/// True if nothing is known of a report without leaks that could have been one.
pub fn is_certain(report: &Report) -> bool {
    report.collection.trigger != RUN || has_no_limits(report)
}

/// What the tab of the browser says, and the list of `cyclescope serve`: which leak it is, if it is one.
pub fn title(report: &Report) -> String {
    match report.leaks.as_slice() {
        [leak] if !leak.summary.is_empty() => {
            format!(
                "{} held by {}",
                human_bytes(leak.bytes_held),
                name(&leak.summary, TITLE)
            )
        }
        _ => headline(report),
    }
}

pub fn header(report: &Report) -> Markup {
    let proven = report
        .leaks
        .iter()
        .all(|l| !l.cuts.is_empty() && l.cuts.iter().all(|c| c.proven));
    let shared = report.leaks.iter().any(|leak| !leak.shared.is_empty());
    let lead = html! {
        @if report.leaks.is_empty() {
            b { (checked(report)) }
        } @else {
            (largest(report))
            @if report.left_out > 0 {
                (counted(report.left_out, "more group of cycles", "more groups of cycles")) " that held memory "
                @if report.left_out == 1 { "is" } @else { "are" } " not described. "
            }
            span.explained {
                "Objects in a reference cycle stay alive until the garbage collector runs, and so does \
                 the memory that they hold. "
            }
            @if proven && shared { "Removing the marked references of all leaks frees the memory without a collection." }
            @else if proven && report.leaks.len() > 1 { "Removing the marked references of a leak frees its memory without a collection." }
            @else if proven && report.leaks[0].cuts.len() > 1 { "Removing the marked references frees the memory without a collection." }
            @else if proven { "Removing the marked reference frees the memory without a collection." }
            @else if report.leaks.len() == 1 { "It is not proven which reference to remove; the marked one is to be looked at first." }
            @else { "Each leak below names the reference to look at." }
        }
        @if let (Some(changes), Some(earlier)) = (report.changes(), &report.earlier) {
            " " span.changes { "Compared with the report of " (utc(earlier.time)) ": " (changes.to_string()) "." }
        }
    };
    head(&heading(report), &lead, &facts(report))
}

/// What was looked at without a leak.
fn checked(report: &Report) -> Markup {
    html! {
        @match report.collection.garbage_objects {
            _ if report.collection.trigger == RUN && has_no_limits(report) => {
                "This process was watched from the start of the program to its end. In no collection did a cycle hold a tensor or an array"
                @if let Some(devices) = watched(report) { " on " (devices) } "."
            }
            _ if report.collection.trigger == RUN => { @for note in &report.notes { (with_code(&name(note, 1000))) " " } }
            0 => "The check found no unreachable object, and so no leak.",
            objects => {
                (counted(objects, "unreachable object was", "unreachable objects were"))
                " examined. No leak was among them."
            }
        }
    }
}

/// The devices that were watched in a run; `None` for any.
fn watched(report: &Report) -> Option<String> {
    let devices = &report.collection.devices;
    let is_all = devices.is_empty() || devices.iter().any(|device| device == "any");
    (!is_all).then(|| name(&devices.join(", "), NAME))
}

/// The largest leak in a sentence, and where to change what.
fn largest(report: &Report) -> Markup {
    // Of equally large ones the first of the list.
    let leak = report.leaks.iter().rev().max_by_key(|leak| leak.bytes_held);
    html! {
        @if let Some(leak) = leak {
            b {
                @if report.leaks.len() > 1 { "The largest holds " (human_bytes(leak.bytes_held)) }
                @else if report.left_out > 0 { "One leak is described" }
                @else { "One leak holds all of it" }
                @if let Some(places) = short_places(places_of(leak)) { ", at " (places) }
                (on_ranks(report, leak))
            }
            @if leak.summary.is_empty() { ". " } @else { ": " code { (name(&brief(&leak.summary), NAME)) } ". " }
            @if let Some(pattern) = pattern_of_all(report) {
                "All " (report.leaks.len()) " are of the pattern " code { (name(pattern, NAME)) } ". "
            }
            @if !leak.shared.is_empty() { "Other leaks hold some of it too. " }
        }
    }
}

/// The pattern that all of several leaks have.
fn pattern_of_all(report: &Report) -> Option<&str> {
    let (first, others) = report.leaks.split_first().filter(|it| !it.1.is_empty())?;
    let pattern = first.pattern.as_deref()?;
    let is_same = |leak: &Leak| leak.pattern.as_deref() == Some(pattern);
    others.iter().all(is_same).then_some(pattern)
}

/// The line to change, or those of which one is; of a library's leak the nearest line of the program.
fn places_of(leak: &Leak) -> Vec<Location> {
    let mut places = match &leak.library {
        Some(library) => library.your_line.iter().cloned().collect(),
        None => leak.places_to_change(),
    };
    if leak.source.is_none() {
        places.retain(|place| !is_where_it_stopped(leak, place));
    }
    places
}

/// `model.py:12 or model.py:30`; `None` for no place.
pub fn short_places(places: Vec<Location>) -> Option<String> {
    let places: Vec<String> = places.iter().map(short_location).collect();
    (!places.is_empty()).then(|| name(&one_of(&places), NAME))
}

/// On how many ranks of a merged report a leak is, and which has most of it.
fn on_ranks(report: &Report, leak: &Leak) -> String {
    let held = |share: &ProcessShare| share.bytes_held.get(&leak.signature).copied();
    let shares = report.processes.iter();
    let having: Vec<(&ProcessShare, u64)> = shares
        .filter_map(|share| Some((share, held(share)?)))
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    let all = report.processes.len();
    let Some((most, bytes)) = having.iter().rev().max_by_key(|(_, bytes)| *bytes) else {
        return String::new();
    };
    if all < 2 {
        return String::new();
    }
    let what = match report.processes.iter().all(|it| it.rank.is_some()) {
        true => "ranks",
        false => "processes",
    };
    // A rank without a leak may have written no report.
    let size = report.process.world_size;
    let known = match size.filter(|_| what == "ranks") {
        Some(size) if size as usize == all => String::new(),
        Some(size) if size as usize > all => format!(" that reported, of {size}"),
        _ => " that reported".to_owned(),
    };
    let on = match having.len() {
        count if count == all => format!(", on all {all} {what}{known}"),
        count => format!(", on {count} of {all} {what}{known}"),
    };
    let with_most = having.iter().filter(|(_, other)| other == bytes).count();
    let (most, bytes) = (process_name(most), human_bytes(*bytes));
    match with_most {
        1 if having.len() > 1 => format!("{on}, most on {most} ({bytes})"),
        count if count < having.len() => {
            format!("{on}, most on {most} and {} more ({bytes} each)", count - 1)
        }
        _ => on,
    }
}

/// What to do if memory is short all the same.
pub fn nothing_found(report: &Report) -> Markup {
    html! {
        section.leak.clean[is_certain(report)] {
            h2 { "What was checked" }
            p {
                (sentence(&text::occasion(&report.collection))) ", in " (name(&report.process.program, NAME)) ". "
                "A tensor that the program still refers to is no leak of this kind."
            }
            h3 { "If memory grows all the same" }
            ul {
                li { code { "cyclescope.heap()" } " lists who owns memory, and how much deleting each reference frees." }
                li { code { "cyclescope.why_alive(tensor)" } " says what keeps one object alive." }
                li { code { "cyclescope.watch_growth()" } " says what grows from step to step." }
                li { code { "cyclescope.memory()" } " divides all memory of a GPU by use." }
            }
        }
    }
}

/// The program, where it ran and with what.
pub fn process_facts(
    process: &Process,
    places: Vec<(&'static str, String)>,
    time: f64,
) -> Vec<(&'static str, String)> {
    let versions = process
        .frameworks
        .iter()
        .take(20)
        .map(|(n, v)| format!("{n} {v}"));
    let mut facts = vec![("Program", process.program.clone())];
    facts.extend(places);
    facts.extend([
        ("Python", process.python.clone()),
        ("Frameworks", versions.collect::<Vec<_>>().join(", ")),
        ("GPU", gpus(&process.gpus)),
        ("When", utc(time)),
    ]);
    facts
}

/// Host, rank and process.
pub fn place(process: &Process) -> Vec<(&'static str, String)> {
    let rank = process.rank.map(|rank| rank.to_string());
    vec![
        ("Host", process.host.clone()),
        ("Rank", rank.unwrap_or_default()),
        ("Process", process.pid.to_string()),
    ]
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let garbage = report.collection.garbage_objects;
    let mut facts = process_facts(&report.process, places(report), report.time);
    facts.push(("Found by", text::occasion(&report.collection)));
    // Of what was seen again, nothing is described, nor counted what else was in the garbage.
    let is_all = report
        .leaks
        .iter()
        .all(|leak| leak.first_seen_bytes().is_none());
    if is_all && report.collection.trigger != RUN {
        let examined = counted(garbage, "unreachable object", "unreachable objects");
        facts.push(("Examined", examined));
    }
    facts
}

/// Host, rank and process; of a report of several processes, all of them.
fn places(report: &Report) -> Vec<(&'static str, String)> {
    let occurrences = report.leaks.iter().flat_map(|leak| &leak.occurrences);
    let seen = occurrences.map(|one| (&one.host, one.pid, one.rank));
    // Of many processes, the occurrences of some only are there.
    let shares = report.processes.iter();
    let shares = shares.map(|one| (&one.host, one.pid, one.rank));
    let seen: BTreeSet<(&String, u32, Option<u32>)> = seen.chain(shares).collect();
    if seen.len() < 2 {
        return place(&report.process);
    }
    let listed = |mut values: Vec<String>| {
        values.dedup();
        let more = values.len().saturating_sub(NAMED);
        values.truncate(NAMED);
        let more = if more > 0 { ", …" } else { "" };
        format!("{}{more}", values.join(", "))
    };
    let hosts = seen.iter().map(|(host, ..)| (*host).clone()).collect();
    let mut ranks: Vec<u32> = seen.iter().filter_map(|(.., rank)| *rank).collect();
    ranks.sort_unstable();
    let mut pids: Vec<u32> = seen.iter().map(|(_, pid, _)| *pid).collect();
    pids.sort_unstable();
    vec![
        ("Hosts", listed(hosts)),
        ("Ranks", listed(runs(&ranks))),
        (
            "Processes",
            listed(pids.iter().map(u32::to_string).collect()),
        ),
    ]
}

/// `2 × NVIDIA H200`, or each by its name.
fn gpus(names: &[String]) -> String {
    let mut parts: Vec<(&String, usize)> = vec![];
    for name in names {
        match parts.last_mut() {
            Some((last, count)) if *last == name => *count += 1,
            _ => parts.push((name, 1)),
        }
    }
    let part = |(name, count): &(&String, usize)| match count {
        1 => (*name).clone(),
        count => format!("{count} × {name}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// Notes, the version that wrote the page, and what else it can do.
pub fn footer(report: &Report) -> Markup {
    let mut all = match report.collection.trigger.as_str() {
        RUN => Vec::new(), // They are at the top.
        _ => report.notes.clone(),
    };
    let more = report.leaks.len().saturating_sub(LEAKS) as u64;
    if more > 0 {
        let more = counted(more, "smaller leak is", "smaller leaks are");
        all.push(format!("{more} not shown."));
    }
    html! {
        footer {
            (notes(&all))
            p {
                (name(&report.tool, NAME)) " "
                span.save hidden {
                    "· " button type="button" data-save="json" { "Save as JSON" }
                    " " button type="button" data-save="dot" { "Save as DOT" }
                    " · " kbd { "?" } " lists the keys"
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::render::samples;

    #[test]
    fn equal_gpus_are_counted() {
        let names = |names: &[&str]| gpus(&names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&[]), "");
        assert_eq!(names(&["A", "A", "B"]), "2 × A, B");
    }

    #[test]
    fn ranks_whose_occurrences_are_left_out_are_named() {
        let mut report = samples::seen_on_ranks(3);
        let share = |rank: u32| ProcessShare {
            host: "node17".into(),
            pid: 4000 + rank,
            rank: Some(rank),
            bytes_held: BTreeMap::new(),
        };
        report.processes = (0..3).map(share).collect();
        for leak in &mut report.leaks {
            leak.occurrences.retain(|one| one.rank != Some(0));
        }
        let ranks = places(&report)
            .into_iter()
            .find(|(name, _)| *name == "Ranks");
        assert_eq!(ranks.expect("ranks").1, "0–2");
    }

    #[test]
    fn the_first_sentence_names_the_cycle_of_a_single_leak_too() {
        let report = samples::callback();
        let page = header(&report).0;
        assert!(page.contains("<b>One leak holds all of it"), "{page}");
        assert!(
            page.contains(&format!("<code>{}</code>", report.leaks[0].summary))
                || page.contains("&lt;lambda&gt;")
        );
    }

    #[test]
    fn the_first_sentence_says_on_which_ranks_the_largest_leak_is() {
        let mut report = samples::callback();
        let signature = report.leaks[0].signature.clone();
        let share = |(rank, bytes): (u32, u64)| ProcessShare {
            rank: Some(rank),
            bytes_held: [(signature.clone(), bytes)].into_iter().collect(),
            ..ProcessShare::default()
        };
        report.processes = [(0, 1 << 20), (1, 0), (2, 3 << 20)].map(share).to_vec();
        let page = header(&report).0;
        let said = ", on 2 of 3 ranks that reported, most on rank 2 (3.0 MiB)";
        assert!(page.contains(said), "{page}");
        report.processes = [(0, 1 << 20), (1, 3 << 20), (2, 3 << 20)]
            .map(share)
            .to_vec();
        for (size, on) in [
            (None, "3 ranks that reported"),
            (Some(3), "3 ranks"),
            (Some(4), "3 ranks that reported, of 4"),
        ] {
            report.process.world_size = size;
            let page = header(&report).0;
            let said = format!(", on all {on}, most on rank 1 and 1 more (3.0 MiB each)");
            assert!(page.contains(&said), "{page}");
        }
    }

    #[test]
    fn merged_reports_name_all_their_processes() {
        let report = samples::seen_on_ranks(3);
        let page = header(&report).0;
        assert!(page.contains("<dt>Ranks</dt><dd>0–2</dd>"), "{page}");
        assert!(page.contains("<dt>Hosts</dt><dd>node17</dd>"));
        assert!(
            header(&samples::callback())
                .0
                .contains("<dt>Rank</dt><dd>3</dd>")
        );
    }
}
