//! The page of an out-of-memory error.

use super::super::super::growth::GrowthReport;
use super::super::super::heap::Heap;
use super::super::super::model::Process;
use super::super::super::post_mortem::{Finding, Numbers, PostMortem};
use super::super::super::words::{human_bytes, markup, markup_code};
use super::super::leak::with_code;
use super::super::shown;
use super::owners::owners;
use super::{Page, facts, growth, section, table};

/// The width of the bars.
const BAR: f64 = 900.0;
/// How high one is.
const ROW: f64 = 26.0;

/// The page of a [`PostMortem`], with the treemap of owners where the heap could be looked at, and
/// what grew where a monitor ran.
pub fn post_mortem(
    found: &PostMortem,
    heap: Option<&Heap>,
    grew: Option<&GrowthReport>,
    process: &Process,
) -> String {
    let mut facts = facts(process, found.time);
    facts.push(("Device", found.device.clone()));
    facts.push(("Duration", format!("{:.1} s", found.seconds)));
    let owners = heap.map(owners);
    let mut body = String::new();
    if !found.advice.is_empty() {
        let advice = with_code(&shown(&found.advice, 2000));
        body += &format!(
            "<section class=\"leak\">\n<dl class=\"gist\"><div class=\"fix\"><dt>Fix</dt><dd>{advice}\
             </dd></div></dl>\n</section>\n"
        );
    }
    if let Some(numbers) = &found.numbers {
        body += &section("Memory when the request failed", &memory(found, numbers));
    }
    body += &findings("Containers that keep autograd graphs", &found.graphs);
    if let Some(owners) = &owners {
        body += &section("Owners", &owners.figure);
    }
    body += &findings("Largest tensors", &found.owners);
    if let Some(grew) = grew.filter(|grew| !grew.found.is_empty()) {
        body += &growth::sections(grew);
    }
    if let Some(cycles) = &found.cycles {
        let title = format!("Unreachable cycles hold {}", human_bytes(cycles.bytes));
        body += &section(&title, &preformatted(&found.trace));
    }
    if !found.requested_at.is_empty() {
        body += &section(
            "Requested at",
            &preformatted(&found.requested_at.join("\n")),
        );
    }
    let left_out = found.left_out.iter();
    Page {
        title: format!("Out of memory on {}: {}", found.device, found.verdict),
        lead: with_code(&shown(&found.headline, 1000)),
        facts,
        body,
        data: owners.map(|owners| owners.data),
        notes: left_out
            .map(|part| format!("not examined: {part}"))
            .collect(),
    }
    .html()
}

fn preformatted(text: &str) -> String {
    format!("<pre>{}</pre>\n", markup_code(text))
}

fn findings(title: &str, all: &[Finding]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let row = |finding: &Finding| {
        let fits = match finding.would_fit {
            Some(true) => " the request would have fitted without it",
            _ => "",
        };
        let details: Vec<&str> = finding.details.iter().map(String::as_str).collect();
        format!(
            "<tr><td class=\"number\">{}</td><td>{}{fits}</td><td class=\"name\">{}</td></tr>\n",
            human_bytes(finding.bytes),
            shown(&details.join(", "), 200),
            shown(&finding.what, 600),
        )
    };
    let rows: String = all.iter().map(row).collect();
    section(title, &table(&["Size", "", "Owner"], &rows))
}

/// The allocator's numbers, drawn and as a table.
fn memory(found: &PostMortem, numbers: &Numbers) -> String {
    let mut rows = vec![
        ("requested", Some(numbers.requested)),
        ("limit of this process", Some(numbers.limit)),
        ("reserved by PyTorch's allocator", Some(numbers.reserved)),
        ("allocated from that", Some(numbers.allocated)),
        (
            "free in blocks of the allocator",
            Some(numbers.free_in_blocks),
        ),
        ("largest free block", Some(numbers.largest_free_block)),
        ("free on the device", Some(numbers.free)),
        ("used outside PyTorch's allocator", numbers.elsewhere),
    ];
    if numbers.private > 0 {
        rows.push(("reserved for CUDA graphs", Some(numbers.private)));
    }
    let rows: String = rows
        .into_iter()
        .filter_map(|(name, bytes)| Some((name, bytes?)))
        .map(|(name, bytes)| {
            format!(
                "<tr><td class=\"number\">{}</td><td>{}</td></tr>\n",
                human_bytes(bytes),
                markup(name)
            )
        })
        .collect();
    bars(found, numbers) + &table(&["Size", "Memory"], &rows)
}

/// Allocated memory by category and free memory; below, the request to the same scale.
fn bars(found: &PostMortem, numbers: &Numbers) -> String {
    let mut parts: Vec<(&str, &str, u64)> = found
        .roles
        .iter()
        .map(|(role, bytes)| (colour(role), role.as_str(), *bytes))
        .collect();
    parts.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
    let named = parts
        .iter()
        .fold(0u64, |sum, part| sum.saturating_add(part.2));
    if named < numbers.allocated {
        parts.push(("several", "allocated", numbers.allocated - named));
    }
    let gaps = numbers.reserved.saturating_sub(numbers.allocated);
    parts.push(("free", "reserved, not allocated", gaps));
    let whole = parts
        .iter()
        .fold(0u64, |sum, part| sum.saturating_add(part.2));
    let scale = BAR / whole.max(numbers.requested).max(numbers.limit).max(1) as f64;
    let mut x = 0.0;
    let mut drawn = String::new();
    let mut legend = String::new();
    for (class, words, bytes) in parts.iter().filter(|part| part.2 > 0) {
        let width = *bytes as f64 * scale;
        drawn += &format!(
            "<svg class=\"block {class}\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"{ROW}\"><title>{}: {}\
             </title><rect width=\"100%\" height=\"{ROW}\"/></svg>",
            markup(words),
            human_bytes(*bytes)
        );
        legend += &format!(
            "<li><svg width=\"14\" height=\"14\" aria-hidden=\"true\" class=\"block {class}\">\
             <rect width=\"14\" height=\"14\" rx=\"3\"/></svg>{} {}</li>",
            markup(words),
            human_bytes(*bytes)
        );
        x += width;
    }
    let limit = numbers.limit as f64 * scale;
    drawn += &format!(
        "<svg class=\"block asked\" y=\"{:.0}\" width=\"{:.1}\" height=\"{ROW}\">\
         <rect width=\"100%\" height=\"{ROW}\"/></svg>\
         <path class=\"limit\" d=\"M{limit:.1} 0V{:.0}\"/>",
        ROW + 6.0,
        (numbers.requested as f64 * scale).max(1.0),
        2.0 * ROW + 6.0,
    );
    legend += &format!(
        "<li><svg width=\"14\" height=\"14\" aria-hidden=\"true\" class=\"block asked\">\
         <rect width=\"14\" height=\"14\" rx=\"3\"/></svg>requested {}</li>\
         <li><svg width=\"14\" height=\"14\" aria-hidden=\"true\"><path class=\"limit\" d=\"M7 0V14\"/></svg>\
         limit of this process {}</li>",
        human_bytes(numbers.requested),
        human_bytes(numbers.limit),
    );
    format!(
        "<figure class=\"owners\">\n<div class=\"wide\"><svg class=\"bars\" role=\"img\" \
         aria-label=\"Allocated memory by category, and the request, to the same scale\" \
         viewBox=\"0 0 {BAR} {height}\" width=\"{BAR}\" height=\"{height}\">{drawn}</svg></div>\n\
         <ul class=\"legend\" aria-label=\"Colours\">{legend}</ul>\n</figure>\n",
        height = 2.0 * ROW + 6.0,
    )
}

/// The colour of a role, which is that of its category.
fn colour(role: &str) -> &'static str {
    match role {
        "parameters" | "module buffers" => "parameter",
        "gradients" => "gradient",
        "optimizer state" => "optimizer-state",
        "other tensors" => "other",
        _ => "several",
    }
}
