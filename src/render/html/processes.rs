//! Which process of a job held how much, as a table.

use std::cmp::Reverse;

use maud::{Markup, html};

use crate::model::report::{Leak, ProcessShare, Report};
use crate::model::words::{brief, counted, name};
use crate::render::html::contents::Listed;
use crate::render::html::header::short_places;
use crate::render::text::{mib, mib_of, process_name};

/// How many processes have a column.
const COLUMNS: usize = 512;
/// How many are printed: as many as a sheet has room for.
const PRINTED: usize = 6;

/// The table, each leak with a link to its section; empty for a report that does not tell processes apart.
pub fn section(report: &Report, leaks: &[Listed<'_>]) -> Markup {
    let all = &report.processes;
    let (columns, more) = all.split_at(all.len().min(COLUMNS));
    let held = |share: &ProcessShare, leak: &Leak| {
        let bytes = share.bytes_held.get(&leak.signature);
        bytes.copied().unwrap_or(0)
    };
    let each = columns
        .iter()
        .flat_map(|share| leaks.iter().map(move |it| held(share, it.leak)));
    let most = each.max().unwrap_or(0);
    let printed = printed(columns);
    let on_paper = |index: usize| match printed.contains(&index) {
        true => " printed",
        false => "",
    };
    html! {
        @if !all.is_empty() {
            section #ranks.sheet aria-label="Ranks" {
                h2 { "MiB held, by rank" }
                div.wide tabindex="0" role="group" aria-label="MiB held, by rank" {
                    table {
                        thead {
                            tr {
                                th scope="col" { "Leak" }
                                th.number.all scope="col" { "All" }
                                @for (index, share) in columns.iter().enumerate() {
                                    th class={ "number" (on_paper(index)) } scope="col" { (process_name(share)) }
                                }
                            }
                        }
                        tbody {
                            @for it in leaks {
                                tr {
                                    th scope="row" {
                                        a href={ "#" (it.id) } { (name(&brief(&it.leak.summary), 120)) }
                                        @if let Some(places) = short_places(it.leak.places_to_change()) {
                                            small { (places) }
                                        }
                                    }
                                    td.number.all { (mib(it.leak.bytes_held)) }
                                    @for (index, share) in columns.iter().enumerate() {
                                        td class={ "number heat" (heat(held(share, it.leak), most)) (on_paper(index)) } {
                                            (mib_of(share, it.leak))
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                @if !printed.is_empty() {
                    p.on-paper {
                        "Printed: the " (PRINTED) " ranks that hold most memory, and what all hold. The page has all ranks."
                    }
                }
                @if !more.is_empty() {
                    p.more {
                        (counted(more.len() as u64, "further process is", "further processes are"))
                        " not shown."
                    }
                }
            }
        }
    }
}

/// Where the columns are that are printed, if not all are.
fn printed(columns: &[ProcessShare]) -> Vec<usize> {
    if columns.len() <= PRINTED {
        return Vec::new();
    }
    let sum = |share: &ProcessShare| {
        let held = share.bytes_held.values();
        held.fold(0u64, |sum, &bytes| sum.saturating_add(bytes))
    };
    let mut places: Vec<usize> = (0..columns.len()).collect();
    places.sort_by_key(|&index| Reverse(sum(&columns[index])));
    places.truncate(PRINTED);
    places
}

/// How strongly a cell is tinted, from 0 to 4.
fn heat(bytes: u64, most: u64) -> u64 {
    match bytes {
        0 => 0,
        bytes => (bytes.saturating_mul(4) / most.max(1)).clamp(1, 4),
    }
}
