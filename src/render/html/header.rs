//! What the page begins and ends with: what happened where, the list of leaks, and notes.

use crate::model::occurrences::same_process;
use crate::model::report::{Leak, Occurrence, Process, Report};
use crate::model::words::{counted, human_bytes, markup, utc};
use crate::render::html::{NAME, shown};
use crate::render::text;

/// How many ranks or processes are named.
const NAMED: usize = 16;

pub fn headline(report: &Report) -> String {
    let bytes = report
        .leaks
        .iter()
        .fold(0, |sum: u64, leak| sum.saturating_add(leak.bytes_held));
    match report.leaks.len() as u64 {
        0 => "No leaks".to_owned(),
        count => format!(
            "{} held by {}",
            human_bytes(bytes),
            counted(count, "leak", "leaks")
        ),
    }
}

pub fn header(report: &Report) -> String {
    let proven = report
        .leaks
        .iter()
        .all(|l| !l.cuts.is_empty() && l.cuts.iter().all(|c| c.proven));
    let lead = match report.leaks.is_empty() {
        true => "None of the unreachable objects held a tensor or other buffer.".to_owned(),
        false => format!(
            "Objects in a reference cycle stay alive until the garbage collector runs, and so does \
             the memory that they hold. {}",
            match proven {
                true => "Removing the marked reference frees the memory without a collection.",
                false => "Each leak below names the reference to look at.",
            }
        ),
    };
    head(&headline(report), &lead, &facts(report))
}

/// The header of any page: a title, a sentence as markup, and facts.
pub fn head(title: &str, lead: &str, facts: &[(&str, String)]) -> String {
    let facts: String = facts
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("<div><dt>{key}</dt><dd>{}</dd></div>\n", shown(value, NAME)))
        .collect();
    format!(
        "<header>\n<h1>{}</h1>\n<p class=\"lead\">{lead}</p>\n<dl class=\"facts\">\n{facts}</dl>\n\
         </header>\n",
        markup(title)
    )
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
pub fn contents(leaks: &[(usize, &Leak)]) -> String {
    if leaks.len() < 2 {
        return String::new();
    }
    let most = leaks.iter().map(|(_, leak)| leak.bytes_held).max();
    let most = most.unwrap_or(0).max(1) as f64;
    let entry = |(rank, (_, leak)): (usize, &(usize, &Leak))| {
        let times = match leak.count {
            1 => String::new(),
            count => format!("{} ×", crate::model::words::grouped(count)),
        };
        let pattern = leak.pattern.as_deref().unwrap_or_default();
        format!(
            "<li><a href=\"#leak-{}\"><b>{}</b><svg class=\"share\" width=\"64\" height=\"8\" \
             aria-hidden=\"true\"><rect width=\"{:.1}\" height=\"8\" rx=\"2\"/></svg>\
             <i>{times}</i><em>{}{}</em><span>{}</span></a></li>\n",
            rank + 1,
            human_bytes(leak.bytes_held),
            (64.0 * leak.bytes_held as f64 / most).max(1.0),
            shown(pattern, 60),
            if leak.is_library() { " · library" } else { "" },
            shown(&leak.summary, 160)
        )
    };
    let entries: String = leaks.iter().enumerate().map(entry).collect();
    format!("<nav aria-label=\"Leaks\">\n<ol>\n{entries}</ol>\n</nav>\n")
}

pub fn footer(report: &Report, limit: usize) -> String {
    let notes = report
        .notes
        .iter()
        .map(|note| format!("<li>{}</li>\n", shown(note, 1000)));
    let mut notes: String = notes.collect();
    if report.leaks.len() > limit {
        let more = (report.leaks.len() - limit) as u64;
        let more = counted(more, "smaller leak is", "smaller leaks are");
        notes += &format!("<li>{more} not shown.</li>\n");
    }
    if !notes.is_empty() {
        notes = format!("<ul class=\"notes\">\n{notes}</ul>\n");
    }
    format!(
        "<footer>\n{notes}<p>{} <span class=\"save\" hidden>· <button type=\"button\" \
         data-save=\"json\">Save as JSON</button> <button type=\"button\" data-save=\"dot\">\
         Save as DOT</button> · <kbd>?</kbd> lists the keys</span></p>\n</footer>\n",
        shown(&report.tool, NAME)
    )
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
        let page = header(&report);
        assert!(page.contains("<dt>Ranks</dt><dd>0, 1, 2</dd>"), "{page}");
        assert!(page.contains("<dt>Hosts</dt><dd>node17</dd>"));
        assert!(header(&samples::callback()).contains("<dt>Rank</dt><dd>3</dd>"));
    }

    #[test]
    fn the_list_says_whose_a_leak_is() {
        let mut report = samples::linked_nodes_and_exception();
        report.leaks[0].known = Some(Default::default());
        let leaks: Vec<(usize, &Leak)> = report.leaks.iter().enumerate().collect();
        let list = contents(&leaks);
        assert_eq!(list.matches("· library").count(), 1);
        assert!(
            list.contains("<i>3 ×</i><em>both-ways · library</em>"),
            "{list}"
        );
    }
}
