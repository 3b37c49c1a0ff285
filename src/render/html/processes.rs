//! Which process of a job held how much, as a table.

use super::{LEAKS, NAME, shown};
use crate::model::by_process::{mib, mib_of};
use crate::model::report::Report;
use crate::model::words::{counted, markup};

/// How many processes have a column.
const COLUMNS: usize = 512;

/// The table; empty for a report that does not tell processes apart.
pub fn section(report: &Report) -> String {
    if report.processes.is_empty() {
        return String::new();
    }
    let (columns, more) = report
        .processes
        .split_at(report.processes.len().min(COLUMNS));
    let heads: String = columns
        .iter()
        .map(|share| format!("<th scope=col>{}", markup(&share.name())))
        .collect();
    let mut rows = String::new();
    for leak in report.leaks.iter().take(LEAKS) {
        let held: String = columns
            .iter()
            .map(|share| format!("<td>{}", mib_of(share, leak)))
            .collect();
        rows += &format!(
            "<tr><th scope=row><code>{}</code> {}{held}<td>{}\n",
            shown(&leak.signature, NAME),
            shown(&leak.summary, NAME),
            mib(leak.bytes_held)
        );
    }
    let more = match more.len() as u64 {
        0 => String::new(),
        count => format!(
            "<p>{} not shown.</p>\n",
            counted(count, "further process is", "further processes are")
        ),
    };
    format!(
        "<section id=ranks><h2>MiB held, by rank</h2>\n\
         <table>\n<tr><th scope=col>leak{heads}<th scope=col>all\n{rows}</table>\n{more}</section>\n"
    )
}
