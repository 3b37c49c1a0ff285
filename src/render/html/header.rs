//! What the page begins and ends with: what happened where, the list of leaks, and notes.

use maud::{Markup, html};

use crate::model::occurrences::same_process;
use crate::model::report::{Leak, Occurrence, Process, Report};
use crate::model::words::{counted, grouped, human_bytes, name, utc};
use crate::render::html::parts::{head, notes};
use crate::render::html::{LEAKS, NAME};
use crate::render::text;

/// How many ranks or processes are named.
const NAMED: usize = 16;

pub fn headline(report: &Report) -> String {
    match report.leaks.len() as u64 {
        0 => "No leaks".to_owned(),
        count => format!(
            "{} held by {}",
            human_bytes(report.bytes_held()),
            counted(count, "leak", "leaks")
        ),
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
            "None of the unreachable objects held a tensor or other buffer."
        } @else {
            "Objects in a reference cycle stay alive until the garbage collector runs, and so does \
             the memory that they hold. "
            @if proven && shared { "Removing the marked references of all leaks frees the memory without a collection." }
            @else if proven { "Removing the marked reference frees the memory without a collection." }
            @else { "Each leak below names the reference to look at." }
        }
    };
    head(&headline(report), &lead, &facts(report))
}

/// What to do if memory is short all the same.
pub fn nothing_found() -> Markup {
    html! {
        section.leak.clean {
            h2 { "If memory grows all the same" }
            ul {
                li { code { "cyclescope.heap()" } " lists who owns memory, and what deleting that reference frees." }
                li { code { "cyclescope.why_alive(tensor)" } " says what keeps one object alive." }
                li { code { "cyclescope.watch_growth()" } " says what grows from step to step." }
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
    facts.extend([
        ("Found by", text::occasion(&report.collection)),
        (
            "Examined",
            counted(garbage, "unreachable object", "unreachable objects"),
        ),
    ]);
    facts
}

/// Host, rank and process; of a report of several processes, all of them.
fn places(report: &Report) -> Vec<(&'static str, String)> {
    let mut seen: Vec<&Occurrence> = vec![];
    for one in report.leaks.iter().flat_map(|leak| &leak.occurrences) {
        if !seen.iter().any(|other| same_process(one, other)) {
            seen.push(one);
        }
    }
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
    let mut hosts: Vec<String> = seen.iter().map(|one| one.host.clone()).collect();
    hosts.sort_unstable();
    let mut ranks: Vec<u32> = seen.iter().filter_map(|one| one.rank).collect();
    ranks.sort_unstable();
    let mut pids: Vec<u32> = seen.iter().map(|one| one.pid).collect();
    pids.sort_unstable();
    vec![
        ("Hosts", listed(hosts)),
        ("Ranks", listed(ranks.iter().map(u32::to_string).collect())),
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

/// The list of leaks, the one that holds most bytes first.
pub fn contents(leaks: &[(usize, &Leak)]) -> Markup {
    let most = leaks.iter().map(|(_, leak)| leak.bytes_held).max();
    let most = most.unwrap_or(0).max(1) as f64;
    html! {
        @if leaks.len() > 1 {
            nav aria-label="Leaks" {
                ol {
                    @for (rank, (_, leak)) in leaks.iter().enumerate() {
                        li { a href={ "#leak-" (rank + 1) } { (line(leak, most)) } }
                    }
                }
            }
        }
    }
}

/// A leak in the list, with a bar that tells its share of `most` bytes.
fn line(leak: &Leak, most: f64) -> Markup {
    let width = (64.0 * leak.bytes_held as f64 / most).max(1.0);
    html! {
        b { (human_bytes(leak.bytes_held)) }
        svg.share width="64" height="8" aria-hidden="true" {
            rect width=(format_args!("{width:.1}")) height="8" rx="2" {}
        }
        i { @if leak.count != 1 { (grouped(leak.count)) " ×" } }
        em {
            @if let Some(pattern) = &leak.pattern { (name(pattern, 60)) }
            @if leak.is_library() { " · library" }
        }
        span { (name(&leak.summary, 160)) }
    }
}

/// Notes, the version that wrote the page, and what else it can do.
pub fn footer(report: &Report) -> Markup {
    let mut all = report.notes.clone();
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
    use super::*;
    use crate::render::samples;

    #[test]
    fn equal_gpus_are_counted() {
        let names = |names: &[&str]| gpus(&names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&[]), "");
        assert_eq!(names(&["A", "A", "B"]), "2 × A, B");
    }

    #[test]
    fn merged_reports_name_all_their_processes() {
        let report = samples::seen_on_ranks(3);
        let page = header(&report).0;
        assert!(page.contains("<dt>Ranks</dt><dd>0, 1, 2</dd>"), "{page}");
        assert!(page.contains("<dt>Hosts</dt><dd>node17</dd>"));
        assert!(
            header(&samples::callback())
                .0
                .contains("<dt>Rank</dt><dd>3</dd>")
        );
    }

    #[test]
    fn the_list_says_whose_a_leak_is() {
        let mut report = samples::linked_nodes_and_exception();
        report.leaks[0].known = Some(Default::default());
        let leaks: Vec<(usize, &Leak)> = report.leaks.iter().enumerate().collect();
        let list = contents(&leaks).0;
        assert_eq!(list.matches("· library").count(), 1);
        assert!(
            list.contains("<i>3 ×</i><em>both-ways · library</em>"),
            "{list}"
        );
    }
}
