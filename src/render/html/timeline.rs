//! When a leak was seen: bytes freed by each collection against time.

use std::fmt::Write as _;

use crate::model::occurrences::same_process;
use crate::model::report::{Leak, Occurrence};
use crate::model::words::{counted, human_bytes, markup, name, utc};
use crate::render::html::plot;
use crate::render::html::plot::{ABOVE, BELOW, LEFT, WIDTH};

const HEIGHT: f64 = 150.0;
/// So many processes have a colour of their own.
const COLOURS: usize = 6;
/// So many processes are named.
const NAMED: usize = 64;

/// The chart with its heading; nothing for a leak that was seen once.
pub fn timeline(leak: &Leak) -> String {
    let seen: Vec<&Occurrence> = leak
        .occurrences
        .iter()
        .filter(|one| one.time.is_finite() && one.collections > 0)
        .collect();
    let (Some(first), Some(last), true) = (seen.first(), seen.last(), seen.len() > 1) else {
        return String::new();
    };
    let times =
        |pick: fn(f64, f64) -> f64, start| seen.iter().map(|one| one.time).fold(start, pick);
    let (begin, end) = (times(f64::min, first.time), times(f64::max, last.time));
    let most = seen.iter().map(|one| each(one)).fold(1.0, f64::max);
    let mut processes: Vec<&Occurrence> = vec![];
    let mut bars = String::new();
    for &one in &seen {
        let known = processes.iter().position(|other| same_process(one, other));
        let process = known.unwrap_or_else(|| {
            processes.push(one);
            processes.len() - 1
        });
        let share = match end > begin {
            true => (one.time - begin) / (end - begin),
            false => 0.5,
        };
        let x = plot::across(share);
        let base = HEIGHT - BELOW;
        let y = base - each(one) / most * (base - ABOVE);
        // Writing to a `String` cannot fail.
        _ = write!(
            bars,
            "<g class=\"p{}\"><title>{}</title><path d=\"M{x:.1} {base:.0}V{y:.1}\"/>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/></g>",
            process % COLOURS,
            markup(&said(one)),
        );
    }
    let collections = seen
        .iter()
        .fold(0u64, |n, one| n.saturating_add(one.collections));
    let bytes = seen.iter().fold(0u64, |n, one| n.saturating_add(one.bytes));
    let title = format!(
        "{} by {} in {}",
        human_bytes(bytes),
        counted(collections, "collection", "collections"),
        duration(end - begin)
    );
    format!(
        "<h3>When it was freed</h3>\n<p class=\"more\">{title}{}</p>\n\
         <div class=\"wide\"><svg class=\"timeline\" role=\"img\" aria-label=\"{title}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\">\
         <path class=\"axis\" d=\"M{LEFT} {ABOVE}V{:.0}H{WIDTH}\"/>\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
         <text x=\"{LEFT}\" y=\"{:.0}\">{}</text>\
         <text x=\"{WIDTH}\" y=\"{:.0}\" text-anchor=\"end\">+ {}</text>\n{bars}</svg></div>\n{}",
        if seen.iter().any(|one| one.collections > 1) {
            "; the drawing shows means over neighbouring collections"
        } else {
            ""
        },
        HEIGHT - BELOW,
        LEFT - 8.0,
        ABOVE + 5.0,
        human_bytes(most as u64),
        HEIGHT - 8.0,
        markup(&utc(begin)),
        HEIGHT - 8.0,
        duration(end - begin),
        key(&processes),
    )
}

/// Bytes of one collection.
fn each(one: &Occurrence) -> f64 {
    one.bytes as f64 / one.collections as f64
}

fn said(one: &Occurrence) -> String {
    let place = place(one);
    let groups = counted(one.count, "group", "groups");
    let bytes = human_bytes(one.bytes);
    let collections = match one.collections {
        1 => String::new(),
        number => format!(" by {}", counted(number, "collection", "collections")),
    };
    format!(
        "{bytes} of {groups}{collections}, {}, {place}",
        utc(one.time)
    )
}

fn place(one: &Occurrence) -> String {
    match one.rank {
        Some(rank) => format!("rank {rank}"),
        None => format!("{} process {}", name(&one.host, 60), one.pid),
    }
}

/// Which colour is which process, if there are several.
fn key(processes: &[&Occurrence]) -> String {
    let named = processes.iter().take(NAMED).enumerate();
    plot::key(named.map(|(index, one)| (index % COLOURS, place(one))))
}

/// `1.5 s`, `3 min`, `2.0 h`.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn once_is_no_timeline() {
        assert!(timeline(&samples::callback().leaks[0]).is_empty());
        assert!(timeline(&samples::hostile().leaks[0]).is_empty());
    }

    #[test]
    fn every_occurrence_has_its_bar_and_every_rank_its_colour() {
        let report = samples::seen_on_ranks(3);
        let chart = timeline(&report.leaks[0]);
        assert_eq!(
            chart.matches("<circle").count(),
            report.leaks[0].occurrences.len()
        );
        for told in [
            "rank 0</li>",
            "rank 2</li>",
            "by 30 collections in 29.0 s",
            "7.0 MiB of 1 group,",
        ] {
            assert!(chart.contains(told), "{told}: {chart}");
        }
        assert!(!chart.contains("NaN") && !chart.contains("inf"));
    }

    #[test]
    fn all_at_the_same_time_is_no_division_by_zero() {
        let mut leak = samples::seen_on_ranks(2).leaks.remove(0);
        for one in &mut leak.occurrences {
            one.time = 5.0;
        }
        let chart = timeline(&leak);
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
    }
}
