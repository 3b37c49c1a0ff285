//! Which process of a job held how much.

use std::cmp::Reverse;

use crate::model::report::{Leak, ProcessShare, Report};
use crate::model::words::{columns, grouped, padded, printable};

/// The process as a table names it: `rank 3`, or else `pid 4242 on node17`.
pub fn process_name(share: &ProcessShare) -> String {
    match share.rank {
        Some(rank) => format!("rank {rank}"),
        None if share.host.is_empty() => format!("pid {}", share.pid),
        None => format!("pid {} on {}", share.pid, printable(&share.host)),
    }
}

/// How many processes have a column in text.
const COLUMNS: usize = 16;

/// The `count` processes that hold most memory, in the order of the report.
pub fn with_most(processes: &[ProcessShare], count: usize) -> Vec<&ProcessShare> {
    let sum = |share: &ProcessShare| {
        let held = share.bytes_held.values();
        held.fold(0u64, |sum, &bytes| sum.saturating_add(bytes))
    };
    let mut places: Vec<usize> = (0..processes.len()).collect();
    places.sort_by_cached_key(|&index| Reverse(sum(&processes[index])));
    places.truncate(count);
    places.sort_unstable();
    places.into_iter().map(|index| &processes[index]).collect()
}

/// The MiB that each leak held in each process, for a terminal or a log: a line each leak, and
/// below what each is. Of many processes those that hold most have a column.
pub fn table_of_processes(report: &Report) -> String {
    if report.leaks.is_empty() {
        return format!("no leaks in {} processes", report.processes.len());
    }
    let shown = with_most(&report.processes, COLUMNS);
    let processes = shown.iter().map(|share| process_name(share));
    let heads = std::iter::once("leak, MiB held".to_owned())
        .chain(processes)
        .chain(["total".to_owned()])
        .collect();
    let mut lines: Vec<Vec<String>> = vec![heads];
    for leak in &report.leaks {
        let held = shown.iter().map(|share| mib_of(share, leak));
        let line = std::iter::once(printable(&leak.signature).into_owned())
            .chain(held)
            .chain([mib(leak.bytes_held)]);
        lines.push(line.collect());
    }
    let width = |column: usize| lines.iter().map(|line| columns(&line[column])).max();
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let mut out = String::new();
    for line in &lines {
        out += &padded(&line[0], widths[0]);
        for (text, width) in line.iter().zip(&widths).skip(1) {
            out += &" ".repeat(2 + width.saturating_sub(columns(text)));
            out += text;
        }
        out.push('\n');
    }
    if shown.len() < report.processes.len() {
        let all = grouped(report.processes.len() as u64);
        out += &format!("\nOf {all} processes, those that hold most memory are shown.\n");
    }
    for leak in &report.leaks {
        let place = leak.line_to_change();
        let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
        let line = format!("{}  {}{place}", leak.signature, leak.summary);
        out += &format!("\n{}", printable(&line));
    }
    out
}

/// What a leak held in a process, in MiB; `-` for nothing.
pub fn mib_of(share: &ProcessShare, leak: &Leak) -> String {
    let held = share.bytes_held.get(&leak.signature);
    held.map_or_else(|| "-".to_owned(), |&bytes| mib(bytes))
}

/// Bytes as MiB: `1,024.5`; `<0.1` of less.
pub fn mib(bytes: u64) -> String {
    let size = (bytes as f64 * 10.0 / f64::from(1 << 20)).round() / 10.0;
    if bytes > 0 && size == 0.0 {
        return "<0.1".to_owned();
    }
    let text = format!("{size:.1}");
    match text.split_once('.') {
        Some((whole, tenths)) => {
            let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
            format!("{whole}.{tenths}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::{from_json, to_json};
    use crate::model::merge::{merge, merge_processes};
    use crate::render::html::html;
    use crate::render::markdown::markdown;
    use crate::render::samples;
    use crate::render::text::trace;

    fn of_rank(rank: Option<u32>, pid: u32, mib: u64) -> Report {
        let mut report = samples::callback();
        report.process.rank = rank;
        report.process.pid = pid;
        report.leaks[0].bytes_held = mib << 20;
        report
    }

    #[test]
    fn the_processes_stand_in_the_order_of_their_ranks() {
        let reports = [
            of_rank(None, 7, 1),
            of_rank(Some(10), 8, 2_000),
            of_rank(Some(2), 9, 4),
            of_rank(Some(2), 10, 8),
        ];
        let all: Vec<&Report> = reports.iter().collect();
        let merged = merge_processes(&all).expect("four reports");
        let table = table_of_processes(&merged);
        let mut lines = table.lines();
        let head = lines.next().unwrap_or_default();
        assert!(
            head.ends_with("rank 2  rank 10  pid 7 on node17    total"),
            "{table}"
        );
        let row: Vec<&str> = lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(row[1..], ["12.0", "2,000.0", "1.0", "2,013.0"]);
        let page = html(&merged);
        assert!(page.contains("rank 2</th><th class=\"number\" scope=\"col\">rank 10</th>"));
        // Tinted by their share of the most; the first column is the sum.
        for cell in [
            "heat1\">12.0",
            "heat4\">2,000.0",
            "heat1\">1.0",
            "number all\">2,013.0",
        ] {
            assert!(page.contains(cell), "{cell}");
        }
        assert!(trace(&merged).ends_with(&format!("\n{table}\n")));
        assert!(markdown(&merged).ends_with(&format!("\n```\n{table}\n```\n")));
        assert_eq!(from_json(&to_json(&merged)), Ok(merged));
    }

    #[test]
    fn of_many_processes_those_that_hold_most_have_a_column() {
        let mut reports: Vec<Report> = (0..1_000)
            .map(|rank| of_rank(Some(rank), rank, 1))
            .collect();
        reports[713].leaks[0].bytes_held = 40 << 20;
        let all: Vec<&Report> = reports.iter().collect();
        let merged = merge_processes(&all).expect("reports");
        let table = table_of_processes(&merged);
        let head = table.lines().next().unwrap_or_default();
        assert_eq!(head.matches("rank").count(), COLUMNS, "{head}");
        assert!(head.contains("rank 0") && head.ends_with("rank 713    total"));
        assert!(table.contains("\nOf 1,000 processes, those that hold most memory are shown.\n"));
        assert!(table.lines().all(|line| line.len() < 250), "{table}");
        assert!(trace(&merged).contains(", the first of 1,000 processes.\n"));
        let page = html(&merged);
        assert!(page.contains("rank 713</th>"));
        assert!(page.contains("Of 1,000 processes, the 512 that hold most memory are shown."));
        assert!(!page.contains("The page has all ranks"));
    }

    #[test]
    fn merged_reports_can_be_merged_again() {
        let (one, two, three) = (
            of_rank(Some(0), 1, 1),
            of_rank(Some(1), 2, 2),
            of_rank(Some(2), 3, 4),
        );
        let pair = merge_processes(&[&one, &two]).expect("two reports");
        let all = merge(&[&pair, &three]).expect("two reports");
        let at_once = merge_processes(&[&one, &two, &three]).expect("three reports");
        assert_eq!(all.processes, at_once.processes);
        assert!(
            merge(&[&one, &two])
                .expect("two reports")
                .processes
                .is_empty()
        );
    }

    #[test]
    fn no_leaks_are_counted_too() {
        let merged = merge_processes(&[&samples::no_leaks()]).expect("a report");
        assert_eq!(table_of_processes(&merged), "no leaks in 1 processes");
    }
}
