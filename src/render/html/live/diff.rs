//! The page of what changed between two heaps.

use maud::{Markup, html};

use crate::model::diff::{Change, Diff};
use crate::model::words::{grouped, human_bytes, name, signed, utc};
use crate::render::html::live::{Page, as_text, facts, more, section, table};
use crate::render::html::parts::with_code;
use crate::render::text;

/// How many rows a table has.
const ROWS: usize = 40;
/// How wide a bar may be.
const BAR: f64 = 150.0;

/// The page of a [`Diff`]: each owner's memory before and after.
pub fn diff(diff: &Diff) -> String {
    let mut facts = facts(&diff.process, diff.times[1]);
    if diff.times[0] > 0.0 {
        facts.push(("Since", utc(diff.times[0])));
    }
    facts.push(("Objects", signed(diff.objects, grouped)));
    let title = match diff.rows.is_empty() {
        true => "No change in memory".to_owned(),
        false => format!("{} in total", signed(diff.bytes, human_bytes)),
    };
    Page {
        title,
        lead: html! {
            @if let Some(most) = diff.rows.first() {
                (with_code(&name(&most.name, 400))) ": " b { (signed(most.bytes, human_bytes)) } ". "
            }
            "Paths that differ only in indices, lengths and the lines of running functions count as one."
        },
        facts,
        body: html! {
            @if !diff.rows.is_empty() {
                (section("By owner", &changes(&diff.owners, "Owner")))
                (section("By path", &changes(&diff.rows, "Path")))
                (as_text(&text::diff(diff)))
            }
        },
        ..Page::default()
    }
    .html()
}

/// A table of changes, the largest of them.
fn changes(all: &[Change], title: &str) -> Markup {
    let (listed, rest) = all.split_at(all.len().min(ROWS));
    let most = listed.iter().map(|row| row.now_bytes.max(before(row)));
    let most = most.max().unwrap_or(0).max(1);
    let bytes = rest.iter().map(|row| row.bytes);
    let bytes = signed(bytes.fold(0, i64::saturating_add), human_bytes);
    html! {
        (table(
            &["Before", "After", "Change", "Buffers", "Before and after", title],
            listed.iter().map(|row| change(row, most)),
        ))
        (more(rest.len() as u64, &bytes))
    }
}

fn before(row: &Change) -> u64 {
    row.now_bytes
        .saturating_add_signed(row.bytes.saturating_neg())
}

fn change(row: &Change, most: u64) -> Markup {
    let width = |bytes: u64| format!("{:.1}", BAR * bytes as f64 / most as f64);
    html! {
        tr {
            td.number { (human_bytes(before(row))) }
            td.number { (human_bytes(row.now_bytes)) }
            td.number { (signed(row.bytes, human_bytes)) }
            td { (signed(row.buffers, grouped)) }
            td {
                svg.share width=(BAR) height="14" aria-hidden="true" {
                    rect.before width=(width(before(row))) height="6" {}
                    rect.bar y="7" width=(width(row.now_bytes)) height="6" {}
                }
            }
            td.name { (name(&row.name, 400)) }
        }
    }
}
