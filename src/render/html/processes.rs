//! Which process of a job held how much, as a table.

use maud::{Markup, html};

use crate::model::report::{Leak, ProcessShare, Report};
use crate::model::words::{brief, grouped, name};
use crate::render::html::contents::Listed;
use crate::render::html::header::short_places;
use crate::render::text::{mib, mib_of, process_name, with_most};

/// How many processes have a column.
const COLUMNS: usize = 512;
/// How many are printed: as many as a sheet has room for.
const PRINTED: usize = 6;

/// The table, each leak with a link to its section; empty for a report that does not tell processes apart.
pub fn section(report: &Report, leaks: &[Listed<'_>]) -> Markup {
    let all = &report.processes;
    let columns = with_most(all, COLUMNS);
    let held = |share: &ProcessShare, leak: &Leak| {
        let bytes = share.bytes_held.get(&leak.signature);
        bytes.copied().unwrap_or(0)
    };
    let each = columns
        .iter()
        .flat_map(|share| leaks.iter().map(move |it| held(share, it.leak)));
    let most = each.max().unwrap_or(0);
    let printed = match columns.len() {
        ..=PRINTED => Vec::new(),
        _ => with_most(all, PRINTED),
    };
    let on_paper = |share: &ProcessShare| match printed.iter().any(|it| std::ptr::eq(*it, share)) {
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
                                @for share in &columns {
                                    th class={ "number" (on_paper(share)) } scope="col" { (process_name(share)) }
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
                                    @for share in &columns {
                                        td class={ "number heat" (heat(held(share, it.leak), most)) (on_paper(share)) } {
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
                        "Printed: the " (PRINTED) " ranks that hold most memory, and what all hold."
                    }
                }
                @if columns.len() < all.len() {
                    p.more {
                        "Of " (grouped(all.len() as u64)) " processes, the " (COLUMNS)
                        " that hold most memory are shown."
                    }
                }
            }
        }
    }
}

/// How strongly a cell is tinted, from 0 to 4.
fn heat(bytes: u64, most: u64) -> u64 {
    match bytes {
        0 => 0,
        bytes => (bytes.saturating_mul(4) / most.max(1)).clamp(1, 4),
    }
}
