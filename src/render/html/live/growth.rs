//! The page of what grows.

use std::cmp::Reverse;
use std::collections::HashMap;

use maud::{Markup, html};

use crate::diagnose::growth::{GARBAGE_ACCUMULATES, UNCOLLECTABLE_CYCLES};
use crate::model::growth::{CACHED, Grown, Growth, GrowthReport};
use crate::model::heap::without_line;
use crate::model::words::{counted, grouped, human_bytes, name};
use crate::render::growth_sentences::{
    cleared, counters, grown_enough, growth_headline, is_clean, limited, sampled, stopped,
};
use crate::render::html::live::chart::{Curve, Layer, Measure, curves, stacked};
use crate::render::html::live::{Page, facts, section};
use crate::render::html::parts::{self, at_line, entry, own_code, with_code};
use crate::render::live_sentences::sentence;
use crate::render::resident::advice_on_resident;

/// How many groups are shown.
const GROUPS: usize = 40;
/// How many kinds of tensors have a layer of their own.
const LAYERS: usize = 5;

/// The growth page: for each growing group what it is, what to change, and its size over time.
pub fn growth(report: &GrowthReport) -> String {
    let mut facts = facts(&report.process, report.time);
    facts.push(("Sampled", sampled(report)));
    if report.samples > 0 {
        let share = format!(
            "{:.2} s, {:.1} % of the program's time",
            report.seconds,
            100.0 * report.share
        );
        facts.push(("Cost", share));
    }
    if let Some(counters) = counters(report) {
        let said = counters.trim_start_matches("the process: ");
        facts.push(("Process", said.to_owned()));
    }
    let mut notes = report.notes.clone();
    notes.extend(report.limited.iter().map(|it| limited(&it.growth)));
    notes.extend(report.cleared.iter().map(|it| cleared(it) + "."));
    notes.extend(report.stopped.iter().map(|it| stopped(&it.growth) + "."));
    if report.found.len() > GROUPS {
        let more = (report.found.len() - GROUPS) as u64;
        notes.push(format!(
            "{} not shown.",
            counted(more, "more group is", "more groups are")
        ));
    }
    Page {
        title: title(report),
        lead: lead(report),
        facts,
        body: sections(report),
        notes,
        ..Page::default()
    }
    .html()
}

fn title(report: &GrowthReport) -> String {
    let count = report.found.len();
    let are_tensors = report.found.iter().all(|it| it.growth.tensors > 0);
    match count {
        0 if report.is_early() => "Too early to tell".to_owned(),
        0 if is_clean(report) && !report.stopped.is_empty() => "Nothing grows now".to_owned(),
        0 if is_clean(report) => "No growth was found".to_owned(),
        0 if !report.limited.is_empty() => "Nothing to report yet".to_owned(),
        0 if report.untold.is_empty()
            && report.stopped.is_empty()
            && grown_enough(report).is_some() =>
        {
            "Memory grew, and its owner is not known".to_owned()
        }
        0 if report.untold.is_empty() => "Resident memory grows".to_owned(),
        0 => "Nothing to report".to_owned(),
        _ if fastest(report).is_some_and(|it| it.bytes_per_step >= 1.0) => {
            let others = match count {
                ..=1 => String::new(),
                several => format!(", and {}", counted(several as u64 - 1, "other", "others")),
            };
            fastest(report).map(grows_by).unwrap_or_default() + &others
        }
        1 if are_tensors => "1 group of tensors grows".to_owned(),
        1 => "1 owner grows".to_owned(),
        _ if are_tensors => format!("{count} groups of tensors grow"),
        _ => format!("{count} owners grow"),
    }
}

/// What grows by most bytes per step.
fn fastest(report: &GrowthReport) -> Option<&Growth> {
    let all = report.found.iter().map(|it| &it.growth);
    all.rev()
        .max_by(|a, b| a.bytes_per_step.total_cmp(&b.bytes_per_step))
}

/// `feats grows by 64.0 KiB per step`.
fn grows_by(growth: &Growth) -> String {
    let (cycles, s) = match growth {
        _ if is_in_cycles(growth) => ("Cycles of ", ""),
        _ if is_garbage(growth) => ("Garbage of ", "s"),
        _ => ("", "s"),
    };
    format!(
        "{cycles}{} grow{s} by {} per step",
        growth.short_owner().replace('`', ""),
        human_bytes(growth.bytes_per_step as u64)
    )
}

/// The headline, and what it means.
fn lead(report: &GrowthReport) -> Markup {
    let count = report.found.len();
    let early = report.is_early();
    html! {
        b { (with_code(&name(&sentence(&growth_headline(report)), 1000))) } " "
        @if early && report.steps > 0 {
            "Let the program run for more steps, or sample more often with a smaller " code { "every" } "."
        } @else if let (0, Some(advice)) = (count, advice_on_resident(report)) {
            (with_code(&advice))
        } @else if count == 0 && !report.limited.is_empty() {
            "The program may limit or empty what grows. It is reported if it goes on growing."
        } @else if count == 0 && !is_clean(report) && report.untold.is_empty() {
            code { "print(cyclescope.heap())" } " shows what holds tensors now."
        } @else if count == 0 && !is_clean(report) {
            "Objects grow with the number of steps, but too little is known of them to report them."
        } @else if count == 0 {
            "No group of live tensors or other objects grows with the number of steps."
        } @else {
            (what_it_means(report))
        }
    }
}

/// What the groups that grow have in common.
fn what_it_means(report: &GrowthReport) -> &'static str {
    let is = |of: fn(&Growth) -> bool| report.found.iter().filter(|it| of(&it.growth)).count();
    let count = report.found.len();
    if is(Growth::is_of_process) == count {
        return "";
    }
    match (count, is(is_garbage), is(is_in_cycles)) {
        (1, 1, _) => "This is garbage, which stays until a garbage collection finds it.",
        (_, garbage, _) if garbage == count => {
            "These grow with the number of steps. They are garbage, which stays until a garbage collection finds it."
        }
        (_, 1.., _) => "These grow with the number of steps.",
        (1, _, 1) => "No garbage collection frees it.",
        (_, _, 1..) => "These grow with the number of steps, and no garbage collection frees them.",
        (1, ..) => "The program still refers to it, so no garbage collection frees it.",
        _ => {
            "These grow with the number of steps. The program still refers to them, so no garbage collection frees \
             them."
        }
    }
}

/// True for what the program no longer refers to.
fn is_in_cycles(growth: &Growth) -> bool {
    growth.pattern == UNCOLLECTABLE_CYCLES.name()
}

/// True for what waits for a collection.
fn is_garbage(growth: &Growth) -> bool {
    growth.pattern == GARBAGE_ACCUMULATES.name()
}

/// A part of the page for each group, and one for all memory.
pub fn sections(report: &GrowthReport) -> Markup {
    html! {
        @for grown in report.found.iter().take(GROUPS) { (group(grown, report)) }
        (whole(report))
    }
}

/// The tensors of each growing group's kind, the largest first, and all others; `None` if it is not known that these
/// are apart.
fn layers(report: &GrowthReport) -> Option<Vec<Layer>> {
    let steps: Vec<u64> = report.all.iter().map(|sample| sample.0).collect();
    let mut layers: Vec<(&Grown, Layer)> = Vec::new();
    for grown in &report.found {
        let sizes: HashMap<u64, u64> = grown.history.iter().map(|it| (it.0, it.2)).collect();
        let sizes: Vec<u64> = steps
            .iter()
            .map(|it| sizes.get(it).copied().unwrap_or(0))
            .collect();
        let owner = grown.growth.short_owner();
        // Of one kind, what each owner has is not known.
        let same = layers
            .iter_mut()
            .find(|(first, _)| first.history == grown.history);
        if let Some((_, layer)) = same {
            layer.name += &format!(", {owner}");
        } else if sizes.iter().any(|&size| size > 0) {
            let name = format!("tensors like those of {owner}");
            layers.push((grown, Layer { name, sizes }));
        }
    }
    // Of a kind of which others have much as well, a layer would say more than the owner has.
    let is_others = |(grown, layer): &(&Grown, Layer)| {
        let same = report.found.iter().filter(|it| it.history == grown.history);
        let own = same.fold(0u64, |sum, it| sum.saturating_add(it.explains));
        own > 0 && grown_by(&layer.sizes) > own.saturating_add(own / 4)
    };
    if layers.iter().any(is_others) {
        return None;
    }
    let mut layers: Vec<Layer> = layers.into_iter().map(|(_, layer)| layer).collect();
    layers.sort_by_key(|layer| Reverse(layer.sizes.last().copied()));
    layers.truncate(LAYERS);
    let mut rest = Vec::new();
    for (index, sample) in report.all.iter().enumerate() {
        let sizes = layers.iter().map(|layer| layer.sizes[index]);
        let named = sizes.fold(0, u64::saturating_add);
        rest.push(sample.2.checked_sub(named)?);
    }
    let own = layers.iter().map(|layer| grown_by(&layer.sizes));
    let own = own.fold(0, u64::saturating_add);
    let explained = report.found.iter().map(|it| it.explains);
    let more = explained.fold(0, u64::saturating_add).saturating_sub(own);
    // More is explained than these tensors, and others are that much more: what their autograd graphs keep.
    let with = match more > own / 10 && grown_by(&rest) >= more / 2 {
        true => ", with those that their graphs keep",
        false => "",
    };
    let rest = Layer {
        name: format!("all other tensors{with}"),
        sizes: rest,
    };
    // What grows stands on what does not.
    (!layers.is_empty()).then(|| [rest].into_iter().chain(layers).collect())
}

fn grown_by(sizes: &[u64]) -> u64 {
    let ends = sizes.first().zip(sizes.last());
    ends.map_or(0, |(first, last)| last.saturating_sub(*first))
}

fn group(grown: &Grown, report: &GrowthReport) -> Markup {
    let growth = &grown.growth;
    let grows = match growth.bytes_per_step > 0.0 {
        true => format!(
            ", growing by {} per step",
            human_bytes(growth.bytes_per_step as u64)
        ),
        false => String::new(),
    };
    let samples = match growth.samples {
        0 => String::new(),
        samples => format!(", by {}", counted(samples, "sample", "samples")),
    };
    let held = format!(
        "{}{grows}, when reported at step {}{samples}.",
        growth.amount(),
        grouped(growth.step),
    );
    // The way to the owner is a row of its own.
    let short = growth.short_owner();
    let owner = growth.owner.strip_suffix(CACHED).unwrap_or(&growth.owner);
    let rest = growth.summary.strip_prefix(owner);
    let rest = rest.filter(|rest| !rest.is_empty() && short != growth.owner);
    let heading = match rest {
        Some(rest) => short + rest,
        None if growth.summary.starts_with(owner) => growth.summary.clone(),
        None => parts::sentence(&growth.summary),
    };
    html! {
        section.leak {
            h2 { (with_code(&name(&heading, 600))) }
            ul.marks {
                li.pattern { (name(&growth.pattern, 80)) }
                @if let [line] = growth.shown_lines() {
                    li.share-it hidden { (at_line(&line.file, line.marked)) }
                }
            }
            dl.gist {
                @let fix = growth.fix();
                @if !fix.is_empty() { (entry("Fix", &with_code(&name(&fix, 2000)))) }
                (entry("Held", &name(&held, 400)))
                @if let Some(share) = share(grown, report) { (entry("Share", &share)) }
                // The line at which its function is says nothing of what grows.
                @if rest.is_some() { (entry("Owner", &with_code(&name(&without_line(&growth.owner), 600)))) }
                @if let Some(line) = growth.allocated_at.as_ref().filter(|line| !line.is_empty()) {
                    (entry("Allocated at", &name(line, 300)))
                }
            }
            @if growth.limited_at.is_empty() && growth.added_at.len() > 1 {
                p { "Any of these lines may add to it." }
            }
            @for source in growth.shown_lines() { (own_code(source, 3)) }
            @if is_its_own(grown, report) { (history(grown)) }
        }
    }
}

/// What a group is of the growth of all memory, by the last sample.
fn share(grown: &Grown, report: &GrowthReport) -> Option<String> {
    let all = u64::try_from(report.grown).ok()?;
    let is_part = (1..=all).contains(&grown.explains);
    is_part.then(|| {
        let [part, all] = [grown.explains, all].map(human_bytes);
        let since = grouped(report.since);
        format!("{part} of the {all} by which memory has grown since step {since}.")
    })
}

/// True if what the tensors of a group's kind have grown by is what the group has.
fn is_its_own(grown: &Grown, report: &GrowthReport) -> bool {
    let counted = grown.history.iter().filter(|it| it.0 >= report.since);
    let sizes: Vec<u64> = counted.map(|it| it.2).collect();
    grown.explains == 0 || grown_by(&sizes).abs_diff(grown.explains) <= grown.explains / 5
}

/// The size of a group at each sample.
fn history(grown: &Grown) -> Markup {
    let measure = match grown.history.iter().any(|sample| sample.2 > 0) {
        true => Measure::Bytes,
        false => Measure::Tensors,
    };
    let (what, of) = match measure {
        Measure::Bytes => ("Bytes", "all tensors of this kind"),
        Measure::Tensors => ("Number", "objects of this kind"),
    };
    let curve = Curve {
        colour: 0,
        name: "",
        samples: &grown.history,
    };
    let chart = curves(
        &format!("{what} of {of} by step"),
        &[curve],
        measure,
        Some((grown.growth.step, "reported")),
    );
    html! {
        @if let Some(chart) = chart {
            h3 { (what) " of " (of) ", at each sample" }
            (chart)
        }
    }
}

/// All tensors, and the allocator's total.
fn whole(report: &GrowthReport) -> Markup {
    let visible = Curve {
        colour: 1,
        name: "tensors visible from Python",
        samples: &report.all,
    };
    let shows_all = !report.allocated.is_empty();
    let allocated = shows_all.then_some(Curve {
        colour: 0,
        name: "allocated on all GPUs",
        samples: &report.allocated,
    });
    let title = "Bytes in use by step";
    let chart = match layers(report) {
        Some(layers) => stacked(title, &report.all, &layers, allocated.as_ref()),
        None => {
            let all: Vec<Curve> = [visible].into_iter().chain(allocated).collect();
            curves(title, &all, Measure::Bytes, None)
        }
    };
    let heading = match shows_all {
        true => "All memory",
        false => "Tensors visible from Python",
    };
    html! {
        @if let Some(chart) = chart {
            (section(heading, &html! {
                (chart)
                @if !shows_all && report.grown > drawn(report) {
                    p { "Memory that only autograd graphs keep is counted above, and is not in this chart." }
                }
            }))
        }
    }
}

/// By how many bytes the visible tensors have grown since growth is counted.
fn drawn(report: &GrowthReport) -> i64 {
    let mut counted = report.all.iter().filter(|sample| sample.0 >= report.since);
    let first = counted.next().map_or(0, |sample| sample.2);
    let last = report.all.last().map_or(0, |sample| sample.2);
    last as i64 - first as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::growth::{Growth, Sample};

    fn grown(owner: &str, bytes: u64) -> Grown {
        let history: Vec<Sample> = (0..20).map(|step| (step, step, bytes * step)).collect();
        Grown {
            growth: Growth {
                owner: format!("module `train` → `{owner}`"),
                ..Growth::default()
            },
            history,
            explains: 0,
            since: 0,
        }
    }

    fn report(found: Vec<Grown>) -> GrowthReport {
        GrowthReport {
            found,
            all: (0..20).map(|step| (step, step, 100 + 10 * step)).collect(),
            ..GrowthReport::default()
        }
    }

    #[test]
    fn what_the_graphs_keep_is_said_to_be_among_the_other_tensors() {
        let mut one = grown("outputs", 4);
        let names = |one: &Grown| -> Vec<String> {
            let layers = layers(&report(vec![one.clone()])).expect("layers");
            layers.into_iter().map(|layer| layer.name).collect()
        };
        assert_eq!(names(&one)[0], "all other tensors");
        one.explains = 19 * 10;
        assert_eq!(
            names(&one)[0],
            "all other tensors, with those that their graphs keep"
        );
        // No chart has what is no tensor.
        one.explains = 19 * 100;
        assert_eq!(names(&one)[0], "all other tensors");
    }

    #[test]
    fn the_title_names_what_grows_fastest_and_the_owner_has_no_line() {
        let owner = "local `history` in `train`, grow.py:22, thread MainThread";
        let at = |rate: f64, owner: &str| Grown {
            growth: Growth {
                owner: owner.to_owned(),
                summary: format!("{owner} accumulates tensors"),
                bytes_per_step: rate,
                tensors: 9,
                ..Growth::default()
            },
            ..Grown::default()
        };
        let report = report(vec![
            at(1024.0, "module `train` → `few`"),
            at(65_536.0, owner),
        ]);
        assert_eq!(
            title(&report),
            "history grows by 64.0 KiB per step, and 1 other"
        );
        let page = sections(&report).into_string();
        assert!(
            page.contains("in <code>train</code>, grow.py, thread MainThread"),
            "{page}"
        );
    }

    #[test]
    fn layers_add_up_to_all_memory() {
        let report = report(vec![grown("few", 2), grown("most", 7), grown("others", 7)]);
        let layers = layers(&report).expect("they are apart");
        let names: Vec<&str> = layers.iter().map(|layer| &*layer.name).collect();
        assert_eq!(
            names,
            [
                "all other tensors",
                "tensors like those of `most`, `others`",
                "tensors like those of `few`"
            ]
        );
        for (index, sample) in report.all.iter().enumerate() {
            let sum: u64 = layers.iter().map(|layer| layer.sizes[index]).sum();
            assert_eq!(sum, sample.2);
        }
        let page = whole(&report).0;
        assert_eq!(page.matches("<path class=\"area\"").count(), 3);
        assert!(!page.contains("does not begin at 0"));
    }

    #[test]
    fn what_may_overlap_is_not_stacked() {
        assert!(layers(&report(vec![grown("much", 20)])).is_none());
        let page = whole(&report(vec![grown("much", 20)])).0;
        assert!(page.contains("class=\"curve\"") && !page.contains("class=\"area\""));
        assert!(layers(&report(vec![])).is_none());
    }

    #[test]
    fn the_chart_says_what_it_does_not_show() {
        let all: Vec<Sample> = (0..20).map(|step| (step, 1, 100 * step)).collect();
        let mut report = GrowthReport {
            all,
            grown: 5_000,
            ..GrowthReport::default()
        };
        let shown = whole(&report).into_string();
        assert!(shown.contains("Tensors visible from Python"));
        assert!(shown.contains("is not in this chart"));
        report.grown = drawn(&report);
        assert!(
            !whole(&report)
                .into_string()
                .contains("is not in this chart")
        );
        report.allocated = report.all.clone();
        report.grown = 5_000;
        let shown = whole(&report).into_string();
        assert!(shown.contains("All memory"));
        assert!(!shown.contains("is not in this chart"));
    }
}
