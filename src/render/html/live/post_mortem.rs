//! The page of an out-of-memory error.

use maud::{Markup, html};

use crate::model::growth::GrowthReport;
use crate::model::heap::Heap;
use crate::model::post_mortem::{Finding, Numbers, PostMortem};
use crate::model::report::{Leak, Report};
use crate::model::words::{human_bytes, name, printable_code};
use crate::render::html::leak::card;
use crate::render::html::live::owners::{Owners, owners, swatch};
use crate::render::html::live::{Page, facts, folded, growth, section, table};
use crate::render::html::parts::{entry, with_code};
use crate::render::html::plot::{self, WIDTH};
use crate::render::live_sentences::sentence;

/// The class of garbage.
const GARBAGE: &str = "garbage";
/// The role of the tensors that are of no model, gradient or optimizer.
const OTHER: &str = "other tensors";
/// How high one is.
const ROW: f64 = 26.0;

/// What was looked at besides the allocator's numbers.
#[derive(Clone, Copy, Default)]
pub struct Looked<'a> {
    /// The live heap, for the treemap of owners.
    pub heap: Option<&'a Heap>,
    /// What a monitor found.
    pub grew: Option<&'a GrowthReport>,
    /// The leaks in cycles, for the card of the largest.
    pub leaks: Option<&'a Report>,
}

/// The page of a [`PostMortem`], with what else could be looked at.
pub fn post_mortem(found: &PostMortem, looked: Looked<'_>) -> String {
    let mut facts = facts(&found.process, found.time);
    facts.push(("Device", found.device.clone()));
    facts.push(("Duration", format!("{:.1} s", found.seconds)));
    let owners = looked.heap.map(owners);
    let left_out = found.left_out.iter();
    Page {
        title: format!(
            "Out of memory on {}: {}",
            found.device,
            found.verdict.replace('-', " ")
        ),
        lead: html! {
            b { (with_code(&name(&sentence(&found.headline), 1000))) }
            // The card of the leak has what is to be fixed.
            @if would_fit_without_cycles(found) && !found.advice.is_empty() {
                " " (with_code(&name(&sentence(&found.advice), 2000)))
            }
        },
        facts,
        body: body(found, owners.as_ref(), looked),
        notes: left_out
            .map(|part| format!("not examined: {part}"))
            .collect(),
        data: owners.map(|owners| owners.data),
    }
    .html()
}

/// True if what the cycles hold is what to free.
fn would_fit_without_cycles(found: &PostMortem) -> bool {
    let cycles = found.cycles.as_ref();
    cycles.is_some_and(|it| it.would_fit == Some(true))
}

fn body(found: &PostMortem, owners: Option<&Owners>, looked: Looked<'_>) -> Markup {
    let leak = looked.leaks.and_then(|report| report.leaks.first());
    let is_first = would_fit_without_cycles(found);
    html! {
        @if let Some(leak) = leak.filter(|_| is_first) { (card(leak)) }
        section.leak {
            @if !is_first && !found.advice.is_empty() {
                dl.gist { (entry("Fix", &with_code(&name(&sentence(&found.advice), 2000)))) }
            }
            @if let Some(numbers) = &found.numbers {
                h2 { "Memory when the request failed" }
                (memory(found, numbers, owners))
            }
        }
        @if is_first { (traces(found, leak)) }
        @if !found.requested_at.is_empty() {
            (section("Requested at", &preformatted(&found.requested_at.join("\n"))))
        }
        (findings("Autograd graphs in containers: what all tensors but the newest keep", &found.graphs))
        @if let Some(owners) = owners && looked.heap.is_some_and(has_memory) { (section("Owners", &owners.figure)) }
        (findings("Who has the most memory", &found.owners))
        @if let Some(grew) = looked.grew.filter(|grew| !grew.found.is_empty()) { (growth::sections(grew)) }
        @if !is_first {
            @if let Some(leak) = leak { (card(leak)) }
            (traces(found, leak))
        }
    }
}

/// What cycles hold, and the traces of all; folded where the card of the largest is shown.
fn traces(found: &PostMortem, leak: Option<&Leak>) -> Markup {
    html! {
        @if let Some(cycles) = found.cycles.as_ref().filter(|it| it.bytes > 0 || leak.is_some()) {
            @let title = format!("Unreachable cycles hold {}", human_bytes(cycles.bytes));
            (section(&title, &html! {
                @if leak.is_some() {
                    (folded("The leak traces, as text", &preformatted(&found.trace)))
                } @else if !found.trace.is_empty() {
                    (preformatted(&found.trace))
                }
            }))
        }
    }
}

fn has_memory(heap: &Heap) -> bool {
    heap.device_bytes() > 0 || heap.host_bytes() > 0
}

fn preformatted(text: &str) -> Markup {
    html! {
        pre tabindex="0" { (printable_code(text)) }
    }
}

/// A table of what was found; nothing without any.
fn findings(title: &str, all: &[Finding]) -> Markup {
    let is_known =
        |finding: &Finding| !finding.details.is_empty() || finding.would_fit == Some(true);
    let any_known = all.iter().any(is_known);
    let row = |finding: &Finding| {
        html! {
            tr {
                td.number { (human_bytes(finding.bytes)) }
                @if any_known { td {
                    (name(&finding.details.join(", "), 200))
                    @if finding.would_fit == Some(true) {
                        (if finding.details.is_empty() { "The" } else { "; the" }) " request would have fitted without it"
                    }
                } }
                td.name { (with_code(&name(&finding.what, 600))) }
            }
        }
    };
    html! {
        @if !all.is_empty() {
            @let columns: &[&str] = if any_known { &["Size", "What", "Owner"] } else { &["Size", "Owner"] };
            (section(title, &table(columns, all.iter().map(row))))
        }
    }
}

/// The allocator's numbers, drawn and as a table.
fn memory(found: &PostMortem, numbers: &Numbers, owners: Option<&Owners>) -> Markup {
    let rows = numbers.rows().map(|(bytes, what)| {
        html! { tr { td.number { (human_bytes(bytes)) } td { (what) } } }
    });
    html! {
        (bars(found, numbers, owners))
        (folded("All numbers", &table(&["Size", "Memory"], rows)))
    }
}

/// A part of the bar: its colour, its name and its bytes.
type Part = (&'static str, String, u64);

/// What is allocated by category; other tensors as the drawing of the owners has them, if there is one.
fn allocated(found: &PostMortem, owners: Option<&Owners>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (role, &bytes) in &found.roles {
        match (role.as_str(), owners) {
            (OTHER, Some(owners)) => {
                let mut rest = bytes;
                for category in ["activation", "input"] {
                    let part = owners.icicle.bytes_of(category).min(rest);
                    rest -= part;
                    parts.push((category, category.to_owned(), part));
                }
                parts.push(("other", "other".to_owned(), rest));
            }
            _ => parts.push((colour(role), said(role).to_owned(), bytes)),
        }
    }
    // What could be freed comes last, so that it is beside what is free.
    parts.sort_by_key(|&(colour, _, bytes)| (colour == GARBAGE, std::cmp::Reverse(bytes)));
    parts
}

/// Allocated memory by category and free memory; below, the request to the same scale.
fn bars(found: &PostMortem, numbers: &Numbers, owners: Option<&Owners>) -> Markup {
    let mut parts = allocated(found, owners);
    let sum = |parts: &[Part]| parts.iter().fold(0u64, |sum, it| sum.saturating_add(it.2));
    let named = sum(&parts);
    if named < numbers.allocated {
        let rest = numbers.allocated - named;
        let at = parts.iter().position(|part| part.0 == GARBAGE);
        parts.insert(
            at.unwrap_or(parts.len()),
            ("several", "allocated".to_owned(), rest),
        );
    }
    let gaps = numbers.reserved.saturating_sub(numbers.allocated);
    parts.push(("free", "reserved, not allocated".to_owned(), gaps));
    // Where the device is full before the process is at its limit.
    if numbers.headroom() < numbers.limit.saturating_sub(numbers.reserved) {
        let outside = numbers.elsewhere.unwrap_or(0);
        parts.push((
            "elsewhere",
            "used outside PyTorch's allocator".to_owned(),
            outside,
        ));
    }
    parts.retain(|part| part.2 > 0);
    let garbage = parts.iter().filter(|part| part.0 == GARBAGE);
    let garbage = garbage.fold(0u64, |sum, part| sum.saturating_add(part.2));
    let would_fit = garbage > 0 && would_fit_without_cycles(found);
    // Where it fits: where what is not garbage ends, if it does without that.
    let start = match would_fit {
        true => numbers.allocated.saturating_sub(garbage),
        false => sum(&parts),
    };
    let end = start.saturating_add(numbers.requested);
    let scale = WIDTH / sum(&parts).max(end).max(numbers.limit).max(1) as f64;
    let width = |bytes: u64| bytes as f64 * scale;
    let blocks = parts.iter().map(|(colour, words, bytes)| {
        let name = html! { title { (words) ": " (human_bytes(*bytes)) } };
        ((*colour).to_owned(), width(*bytes), name)
    });
    let requested = width(numbers.requested).max(1.0);
    let limit = width(numbers.limit);
    let start = width(start);
    let height = 2.0 * ROW + 6.0;
    let drawn = html! {
        (plot::blocks(blocks, ROW))
        svg.block.asked x=(format_args!("{start:.1}")) y=(ROW + 6.0) width=(format_args!("{requested:.1}")) height=(ROW) {
            rect width="100%" height=(ROW) {}
        }
        path.limit d=(format_args!("M{limit:.1} 0V{height}")) {}
    };
    let title = "Allocated memory by category, and the request, to the same scale";
    html! {
        figure.owners {
            (plot::chart("bars", title, height, &drawn))
            ul.legend aria-label="Colours" {
                @for (class, words, bytes) in &parts {
                    (swatch(class, &html! { (words) " " (human_bytes(*bytes)) }))
                }
                (swatch("asked", &html! {
                    "requested " (human_bytes(numbers.requested))
                    @if would_fit { ", where it would fit without the garbage" }
                }))
                li {
                    svg width="14" height="14" aria-hidden="true" { path.limit d="M7 0V14" {} }
                    "limit of this process " (human_bytes(numbers.limit))
                }
            }
        }
    }
}

/// The name of a role. What it is for is known of each owner only, below.
fn said(role: &str) -> &str {
    match role {
        OTHER => "activations and other tensors",
        _ => role,
    }
}

/// The colour of a role, which is that of its category.
fn colour(role: &str) -> &'static str {
    match role {
        "parameters" | "module buffers" => "parameter",
        "gradients" => "gradient",
        "optimizer state" => "optimizer-state",
        OTHER => "other",
        "garbage in cycles" => GARBAGE,
        _ => "several",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(numbers: Numbers) -> String {
        bars(&PostMortem::default(), &numbers, None).into_string()
    }

    #[test]
    fn memory_outside_is_drawn_where_it_fills_the_device() {
        let full = Numbers {
            limit: 79 << 30,
            reserved: 15 << 30,
            elsewhere: Some(60 << 30),
            free: 4 << 30,
            ..Numbers::default()
        };
        assert!(drawn(full.clone()).contains("outside PyTorch's allocator 60.0 GiB"));
        let capped = Numbers {
            limit: 16 << 30,
            ..full
        };
        assert!(!drawn(capped).contains("outside"));
    }

    #[test]
    fn a_request_that_does_not_fit_begins_where_used_memory_ends_and_crosses_the_limit() {
        let numbers = Numbers {
            limit: 800,
            reserved: 600,
            allocated: 600,
            free: 200,
            requested: 300,
            ..Numbers::default()
        };
        // All 900 bytes are as wide as the chart.
        let drawn = drawn(numbers);
        assert!(
            drawn.contains("<svg class=\"block asked\" x=\"600.0\""),
            "{drawn}"
        );
        assert!(drawn.contains("d=\"M800.0 0V"), "{drawn}");
    }

    #[test]
    fn other_tensors_have_the_categories_of_the_owners() {
        use crate::model::heap::{Buffer, Category};

        let buffer = |category, owner: &str| Buffer {
            bytes: 4 << 20,
            device: "cuda:0".to_owned(),
            owner: owner.to_owned(),
            category,
            ..Buffer::default()
        };
        let heap = Heap {
            buffers: vec![
                buffer(Category::Activation, "module `train`"),
                buffer(Category::Input, "module `train`"),
                buffer(
                    Category::Activation,
                    "referenced by unreachable objects only",
                ),
            ],
            ..Heap::default()
        };
        let found = PostMortem {
            roles: [(OTHER, 10 << 20), ("garbage in cycles", 4 << 20)]
                .map(|(role, bytes)| (role.to_owned(), bytes))
                .into(),
            ..PostMortem::default()
        };
        let owners = owners(&heap);
        let parts: Vec<(&str, u64)> = allocated(&found, Some(&owners))
            .iter()
            .map(|part| (part.0, part.2 >> 20))
            .collect();
        assert_eq!(
            parts,
            [
                ("activation", 4),
                ("input", 4),
                ("other", 2),
                ("garbage", 4)
            ]
        );
        assert!(owners.figure.into_string().contains("block garbage"));
    }

    #[test]
    fn what_is_not_known_of_any_finding_has_no_column() {
        let finding = Finding {
            what: "`losses`".to_owned(),
            bytes: 1 << 20,
            ..Finding::default()
        };
        let told = |finding: Finding| findings("Largest", &[finding]).into_string();
        assert!(!told(finding.clone()).contains("What"));
        let known = Finding {
            details: vec!["600 losses".to_owned()],
            would_fit: Some(true),
            ..finding
        };
        assert!(told(known).contains("600 losses; the request would have fitted without it"));
    }
}
