//! The page of what changed between two heaps.

use super::super::super::diff::{Change, Diff, signed};
use super::super::super::words::{grouped, human_bytes, utc};
use super::super::shown;
use super::{Page, as_text, facts, section, table};

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
        lead:
            "Memory in use before and after, by owner. Owners whose paths differ only in indices \
               and lengths count as one."
                .to_owned(),
        facts,
        body: match diff.rows.is_empty() {
            true => String::new(),
            false => [
                section("By owner", &changes(&diff.owners, "Owner")),
                section("By path", &changes(&diff.rows, "Path")),
                as_text(&diff.to_text()),
            ]
            .concat(),
        },
        ..Page::default()
    }
    .html()
}

/// A table of changes, the largest of them.
fn changes(all: &[Change], title: &str) -> String {
    let (listed, rest) = all.split_at(all.len().min(ROWS));
    let most = listed.iter().map(|row| row.now_bytes.max(before(row)));
    let most = most.max().unwrap_or(0).max(1);
    let rows: String = listed.iter().map(|row| change(row, most)).collect();
    let titles = [
        "Before",
        "After",
        "Change",
        "Buffers",
        "Before and after",
        title,
    ];
    let mut out = table(&titles, &rows);
    if !rest.is_empty() {
        let bytes = rest.iter().map(|row| row.bytes);
        out += &format!(
            "<p class=\"more\">and {} more, {}</p>\n",
            grouped(rest.len() as u64),
            signed(bytes.fold(0, i64::saturating_add), human_bytes)
        );
    }
    out
}

fn before(row: &Change) -> u64 {
    row.now_bytes
        .saturating_add_signed(row.bytes.saturating_neg())
}

fn change(row: &Change, most: u64) -> String {
    let width = |bytes: u64| BAR * bytes as f64 / most as f64;
    format!(
        "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
         <td>{}</td><td><svg class=\"share\" width=\"{BAR}\" height=\"14\" aria-hidden=\"true\">\
         <rect class=\"before\" width=\"{:.1}\" height=\"6\"/>\
         <rect class=\"bar\" y=\"7\" width=\"{:.1}\" height=\"6\"/></svg></td>\
         <td class=\"name\">{}</td></tr>\n",
        human_bytes(before(row)),
        human_bytes(row.now_bytes),
        signed(row.bytes, human_bytes),
        signed(row.buffers, grouped),
        width(before(row)),
        width(row.now_bytes),
        shown(&row.name, 400),
    )
}
