//! When a leak was seen: bytes freed by each collection against time.

use maud::{Markup, html};

use crate::model::occurrences::same_process;
use crate::model::report::{Leak, Occurrence};
use crate::model::words::{counted, human_bytes, name, utc};
use crate::render::html::plot;
use crate::render::html::plot::{ABOVE, BELOW, LEFT, WIDTH};

/// Where the axis is of what was freed, and how high the bars of pauses are.
const BASE: f64 = 122.0;
const PAUSES: f64 = 40.0;
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
    let end = times().fold(begin, f64::max);
    let length = end - begin;
    // Of the first collection only its end has a time.
    let starts = seen.iter().map(|one| one.time - one.pause_us as f64 / 1e6);
    let start = starts.fold(begin, f64::min);
    let sum =
        |of: fn(&Occurrence) -> u64| seen.iter().fold(0u64, |n, one| n.saturating_add(of(one)));
    let collections = sum(|one| one.collections);
    let mut title = format!(
        "{} by {} in {}",
        human_bytes(sum(|one| one.bytes)),
        counted(collections, "collection", "collections"),
        duration(end - start)
    );
    let waited = sum(|one| one.pause_us) as f64 / 1e6;
    if waited > 0.0 {
        title += &format!(", which paused the program for {}", short(waited));
    }
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

/// What was freed in so many seconds, and below it the pauses, by each process in its colour.
fn chart(seen: &[&Occurrence], title: &str, begin: f64, length: f64) -> Markup {
    let mut processes: Vec<Vec<&Occurrence>> = vec![];
    for &one in seen {
        match processes.iter_mut().find(|of| same_process(one, of[0])) {
            Some(of) => of.push(one),
            None => processes.push(vec![one]),
        }
    }
    let scale = Scale {
        begin,
        length,
        most: seen.iter().map(|one| each(one)).fold(1.0, f64::max),
        longest: seen.iter().map(|one| pause(one)).fold(0.0, f64::max),
    };
    let bottom = scale.bottom();
    let below = bottom + 20.0;
    let drawn = html! {
        path.axis d=(format_args!("M{LEFT} {ABOVE}V{BASE}H{WIDTH}")) {}
        text x=(LEFT - 8.0) y=(ABOVE + 5.0) text-anchor="end" { (human_bytes(scale.most as u64)) }
        text x=(LEFT - 8.0) y=(BASE) text-anchor="end" { "0 bytes" }
        @if scale.longest > 0.0 {
            path.axis d=(format_args!("M{LEFT} {:.0}V{bottom:.0}H{WIDTH}", bottom - PAUSES)) {}
            text x=(LEFT - 8.0) y=(bottom - PAUSES + 9.0) text-anchor="end" { (short(scale.longest)) }
            text x=(LEFT - 8.0) y=(bottom) text-anchor="end" { "pause" }
        }
        text.across x=(LEFT) y=(below) { (utc(begin)) }
        text.across x=(plot::across(0.5)) y=(below) text-anchor="middle" { "+ " (duration(length / 2.0)) }
        text.across x=(WIDTH) y=(below) text-anchor="end" { "+ " (duration(length)) }
        @for (number, of) in processes.iter().enumerate() { (process(number, of, &scale)) }
    };
    let named = processes.iter().take(NAMED).enumerate();
    html! {
        (plot::chart("timeline", title, bottom + BELOW, &drawn))
        (plot::key("timeline-key", named.map(|(index, of)| (index, place(of[0])))))
    }
}

/// The ends of the axes.
struct Scale {
    begin: f64,
    length: f64,
    /// Bytes.
    most: f64,
    /// Seconds; 0 if no pause is known.
    longest: f64,
}

impl Scale {
    /// Where the lowest axis is.
    fn bottom(&self) -> f64 {
        match self.longest > 0.0 {
            true => BASE + 12.0 + PAUSES,
            false => BASE,
        }
    }
}

/// The collections of a process: a bar for what each freed, and one for its pause.
fn process(number: usize, seen: &[&Occurrence], scale: &Scale) -> Markup {
    let points: Vec<(f64, f64, f64)> = seen
        .iter()
        .map(|one| {
            let share = match scale.length > 0.0 {
                true => (one.time - scale.begin) / scale.length,
                false => 0.5,
            };
            let part = pause(one) / scale.longest.max(f64::MIN_POSITIVE);
            let y = BASE - each(one) / scale.most * (BASE - ABOVE);
            (plot::across(share), y, scale.bottom() - part * PAUSES)
        })
        .collect();
    let bars = |base: f64, top: fn(&(f64, f64, f64)) -> f64| {
        let bar = |at: &(f64, f64, f64)| format!("M{:.1} {base:.1}V{:.1}", at.0, top(at));
        points.iter().map(bar).collect::<String>()
    };
    // For the script, which reads them out and enlarges a part.
    let said: Vec<String> = points
        .iter()
        .zip(seen)
        .map(|((x, y, pause), one)| {
            let bottom = scale.bottom();
            format!(
                "{x:.1} {y:.1},{BASE:.1},{pause:.1},{bottom:.1} {}",
                said(one)
            )
        })
        .collect();
    html! {
        g class=(plot::coloured(number)) data-of=(number) data-points=(said.join("\n"))
            data-name=(place(seen[0])) {
            path.bars d=(bars(BASE, |at| at.1)) {}
            @if scale.longest > 0.0 { path.pauses d=(bars(scale.bottom(), |at| at.2)) {} }
            @for (x, y, _) in &points {
                circle.dot cx=(format_args!("{x:.1}")) cy=(format_args!("{y:.1}")) r="3" {}
            }
        }
    }
}

/// Bytes of one collection.
fn each(one: &Occurrence) -> f64 {
    one.bytes as f64 / one.collections as f64
}

/// Seconds for which one collection held the program up.
fn pause(one: &Occurrence) -> f64 {
    one.pause_us as f64 / one.collections as f64 / 1e6
}

fn said(one: &Occurrence) -> String {
    let groups = counted(one.count, "group", "groups");
    let bytes = human_bytes(one.bytes);
    let collections = match one.collections {
        1 => String::new(),
        number => format!(" by {}", counted(number, "collection", "collections")),
    };
    let pause = match one.pause_us {
        0 => String::new(),
        us => format!(", paused for {}", short(us as f64 / 1e6)),
    };
    format!("{}: {bytes} of {groups}{collections}{pause}", utc(one.time))
}

fn place(one: &Occurrence) -> String {
    match one.rank {
        Some(rank) => format!("rank {rank}"),
        None => format!("{} process {}", name(&one.host, 60), one.pid),
    }
}

/// `40 µs`, `3.1 ms`, `1.5 s`.
fn short(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => duration(s),
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
    fn pauses_have_bars_where_they_are_known() {
        let mut leak = samples::seen_on_ranks(2).leaks.remove(0);
        let pauses = |leak: &Leak| timeline(leak).0.matches("class=\"pauses\"").count();
        assert_eq!(pauses(&leak), 2);
        leak.occurrences.iter_mut().for_each(|one| one.pause_us = 0);
        assert_eq!(pauses(&leak), 0);
        assert!(!timeline(&leak).0.contains("paused"));
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
            "7.0 MiB of 1 group, paused for ",
            "which paused the program for 90.0 ms",
        ] {
            assert!(chart.contains(told), "{told}: {chart}");
        }
        assert!(!chart.contains("NaN") && !chart.contains("inf"));
    }

    #[test]
    fn no_two_of_eight_ranks_look_the_same() {
        let chart = timeline(&samples::seen_on_ranks(8).leaks[0]).0;
        let classes = chart.split("<li class=\"").skip(1);
        let classes: Vec<_> = classes.filter_map(|it| it.split('"').next()).collect();
        let different: std::collections::HashSet<_> = classes.iter().collect();
        assert_eq!((classes.len(), different.len()), (8, 8), "{classes:?}");
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
