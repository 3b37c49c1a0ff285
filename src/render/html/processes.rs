//! Which process of a job held how much, as a table.

use maud::{Markup, html};

use crate::model::report::Report;
use crate::model::words::{counted, name};
use crate::render::html::{LEAKS, NAME};
use crate::render::text::{mib, mib_of, process_name};

/// How many processes have a column.
const COLUMNS: usize = 512;

/// The table; empty for a report that does not tell processes apart.
pub fn section(report: &Report) -> Markup {
    let all = &report.processes;
    let (columns, more) = all.split_at(all.len().min(COLUMNS));
    html! {
        @if !all.is_empty() {
            section #ranks {
                h2 { "MiB held, by rank" }
                table {
                    tr {
                        th scope="col" { "leak" }
                        @for share in columns { th scope="col" { (process_name(share)) } }
                        th scope="col" { "all" }
                    }
                    @for leak in report.leaks.iter().take(LEAKS) {
                        tr {
                            th scope="row" {
                                code { (name(&leak.signature, NAME)) }
                                " " (name(&leak.summary, NAME))
                            }
                            @for share in columns { td { (mib_of(share, leak)) } }
                            td { (mib(leak.bytes_held)) }
                        }
                    }
                }
                @if !more.is_empty() {
                    p {
                        (counted(more.len() as u64, "further process is", "further processes are"))
                        " not shown."
                    }
                }
            }
        }
    }
}
