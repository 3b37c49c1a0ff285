//! When a leak was seen: bytes freed by each collection against time.

use maud::{Markup, html};

use crate::model::occurrences::same_process;
use crate::model::report::{Leak, Occurrence};
use crate::model::words::{counted, human_bytes, name, utc};
use crate::render::html::plot;
use crate::render::html::plot::{ABOVE, BELOW, LEFT, WIDTH};

const HEIGHT: f64 = 150.0;
/// So many processes have a colour of their own.
const COLOURS: usize = 6;
/// So many processes are named.
const NAMED: usize = 64;

/// The chart with its heading; nothing for a leak that was seen once.
pub fn timeline(leak: &Leak) -> Markup {
    let seen: Vec<&Occurrence> = leak
        .occurrences
        .iter()
        .filter(|one| one.time.is_finite() && one.collections > 0)
        .collect();
    if seen.len() < 2 {
        return html! {};
    }
    let times = || seen.iter().map(|one| one.time);
    let begin = times().fold(f64::INFINITY, f64::min);
    let length = times().fold(begin, f64::max) - begin;
    let sum =
        |of: fn(&Occurrence) -> u64| seen.iter().fold(0u64, |n, one| n.saturating_add(of(one)));
    let collections = sum(|one| one.collections);
    let title = format!(
        "{} by {} in {}",
        human_bytes(sum(|one| one.bytes)),
        counted(collections, "collection", "collections"),
        duration(length)
    );
    html! {
        h3 { "When it was freed" }
        p.more {
            (title)
            @if seen.iter().any(|one| one.collections > 1) {
                "; the drawing shows means over neighbouring collections"
            }
        }
        (chart(&seen, &title, begin, length))
    }
}

/// What was freed in so many seconds, by each process in its colour.
fn chart(seen: &[&Occurrence], title: &str, begin: f64, length: f64) -> Markup {
    let most = seen.iter().map(|one| each(one)).fold(1.0, f64::max);
    let base = HEIGHT - BELOW;
    let mut processes: Vec<&Occurrence> = vec![];
    for &one in seen {
        if !processes.iter().any(|other| same_process(one, other)) {
            processes.push(one);
        }
    }
    let bar = |one: &Occurrence| {
        let process = processes.iter().position(|other| same_process(one, other));
        let share = match length > 0.0 {
            true => (one.time - begin) / length,
            false => 0.5,
        };
        let x = plot::across(share);
        let y = base - each(one) / most * (base - ABOVE);
        html! {
            g class={ "p" (process.unwrap_or(0) % COLOURS) } data-of=(process.unwrap_or(0)) {
                title { (said(one)) }
                path d=(format_args!("M{x:.1} {base:.0}V{y:.1}")) {}
                circle cx=(format_args!("{x:.1}")) cy=(format_args!("{y:.1}")) r="3" {}
            }
        }
    };
    let drawn = html! {
        path.axis d=(format_args!("M{LEFT} {ABOVE}V{base:.0}H{WIDTH}")) {}
        text x=(LEFT - 8.0) y=(ABOVE + 5.0) text-anchor="end" { (human_bytes(most as u64)) }
        text x=(LEFT - 8.0) y=(base) text-anchor="end" { "0 bytes" }
        text x=(LEFT) y=(HEIGHT - 8.0) { (utc(begin)) }
        text x=(WIDTH) y=(HEIGHT - 8.0) text-anchor="end" { "+ " (duration(length)) }
        @for one in seen { (bar(one)) }
    };
    let named = processes.iter().take(NAMED).enumerate();
    html! {
        (plot::chart("timeline", title, HEIGHT, &drawn))
        (plot::key("timeline-key", named.map(|(index, one)| (index % COLOURS, place(one)))))
    }
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
        assert!(timeline(&samples::callback().leaks[0]).0.is_empty());
        assert!(timeline(&samples::hostile().leaks[0]).0.is_empty());
    }

    #[test]
    fn every_occurrence_has_its_bar_and_every_rank_its_colour() {
        let report = samples::seen_on_ranks(3);
        let chart = timeline(&report.leaks[0]).0;
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
        let chart = timeline(&leak).0;
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
    }
}
