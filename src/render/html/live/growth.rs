//! The page of what grows.

use maud::{Markup, html};

use crate::model::growth::{Grown, GrowthReport};
use crate::model::report::Process;
use crate::model::words::{counted, grouped, human_bytes, name};
use crate::render::html::live::chart::{Curve, Measure, curves};
use crate::render::html::live::{Page, facts, section};
use crate::render::html::parts::{entry, with_code};
use crate::render::live_sentences::{
    cleared, counters, growth_headline, sampled, sentence, stopped,
};

/// How many groups are shown.
const GROUPS: usize = 40;

/// The growth page: for each growing group what it is, what to change, and its size over time.
pub fn growth(report: &GrowthReport, process: &Process) -> String {
    let count = report.found.len() as u64;
    let mut facts = facts(process, report.time);
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
    let early = report.is_early();
    let lead = html! {
        b { (with_code(&name(&sentence(&growth_headline(report)), 1000))) } " "
        @if early {
            "Let the program run for more steps, or sample more often with a smaller `every`."
        } @else if count == 0 {
            "No group of live tensors or other objects grows with the number of steps."
        } @else {
            "These grow with the number of steps. The program still refers to them, so no \
             garbage collection frees them."
        }
    };
    let mut notes = report.notes.clone();
    notes.extend(report.cleared.iter().map(|it| cleared(it) + "."));
    notes.extend(report.stopped.iter().map(|it| stopped(it) + "."));
    if report.found.len() > GROUPS {
        let more = (report.found.len() - GROUPS) as u64;
        notes.push(format!(
            "{} not shown.",
            counted(more, "more group is", "more groups are")
        ));
    }
    let are_tensors = report.found.iter().all(|it| it.growth.tensors > 0);
    Page {
        title: match count {
            0 if early => "Too early to tell".to_owned(),
            0 => "Nothing grows".to_owned(),
            1 if report.found[0].growth.bytes_per_step >= 1.0 => {
                let growth = &report.found[0].growth;
                format!(
                    "{} grows by {} per step",
                    growth.short_owner().replace('`', ""),
                    human_bytes(growth.bytes_per_step as u64)
                )
            }
            1 if are_tensors => "1 group of tensors grows".to_owned(),
            1 => "1 owner grows".to_owned(),
            _ if are_tensors => format!("{count} groups of tensors grow"),
            _ => format!("{count} owners grow"),
        },
        lead,
        facts,
        body: sections(report),
        notes,
        ..Page::default()
    }
    .html()
}

/// A part of the page for each group, and one for all memory.
pub fn sections(report: &GrowthReport) -> Markup {
    html! {
        @for grown in report.found.iter().take(GROUPS) { (group(grown)) }
        (whole(report))
    }
}

fn group(grown: &Grown) -> Markup {
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
        "{}{grows}, at step {}{samples}.",
        growth.amount(),
        grouped(growth.step),
    );
    html! {
        section.leak {
            h2 { (with_code(&name(&growth.summary, 600))) }
            ul.marks { li.pattern { (name(&growth.pattern, 80)) } }
            dl.gist {
                @if !growth.advice.is_empty() {
                    (entry("Fix", &with_code(&name(&growth.advice, 2000))))
                }
                (entry("Held", &name(&held, 400)))
                @if let Some(line) = growth.allocated_at.as_ref().filter(|line| !line.is_empty()) {
                    (entry("Allocated at", &name(line, 300)))
                }
            }
            (history(grown))
        }
    }
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
    let mut all = vec![Curve {
        colour: 1,
        name: "tensors visible from Python",
        samples: &report.all,
    }];
    if !report.allocated.is_empty() {
        all.push(Curve {
            colour: 0,
            name: "allocated on all GPUs",
            samples: &report.allocated,
        });
    }
    let chart = curves("Bytes in use by step", &all, Measure::Bytes, None);
    html! {
        @if let Some(chart) = chart { (section("All memory", &chart)) }
    }
}
