//! Reports made of other reports.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;

use super::report::{CycleReport, Frame};
use super::state::state;
use crate::analysis::Inspector;
use crate::model::counts::LeakTally;
use crate::watch::{Ignored, WatchId};

/// One report of all that some reports found.
#[pyfunction]
pub fn merge(py: Python<'_>, reports: Vec<Py<CycleReport>>) -> PyResult<CycleReport> {
    CycleReport::merged(py, &reports, crate::model::merge::merge)
}

/// One report of the processes of a job, which says what each of them held.
#[pyfunction]
pub fn merge_processes(py: Python<'_>, reports: Vec<Py<CycleReport>>) -> PyResult<CycleReport> {
    CycleReport::merged(py, &reports, crate::model::merge::merge_processes)
}

/// The report with only those of its leaks that have one of the signatures.
#[pyfunction]
pub fn select(report: &Bound<'_, CycleReport>, signatures: Vec<String>) -> CycleReport {
    report.get().with_only(&signatures)
}

/// The signatures of those leaks of a report that have one of the names.
#[pyfunction]
pub fn ignored(py: Python<'_>, report: &CycleReport, names: Vec<String>) -> Vec<String> {
    let ignored = Ignored::new(names);
    py.detach(|| report.signatures(|leak| ignored.contains(leak)))
}

/// The report with the stacks that allocated its buffers, by device and pointer.
#[pyfunction]
pub fn with_allocations(
    py: Python<'_>,
    report: &Bound<'_, CycleReport>,
    stacks: HashMap<(String, u64), Vec<Frame>>,
) -> PyResult<CycleReport> {
    let redacted = state(py)?.watcher.inspector().redacts();
    Ok(report.get().with_allocations(&stacks, redacted))
}

/// The report with all that a watch has seen of its leaks so far.
#[pyfunction]
pub fn with_occurrences(
    py: Python<'_>,
    report: &Bound<'_, CycleReport>,
    watch: WatchId,
) -> PyResult<CycleReport> {
    let mut occurrences = state(py)?.watcher.occurrences(watch);
    let rank = Inspector::rank(py).map(|rank| rank.rank);
    let seen = occurrences.values_mut().flatten();
    seen.for_each(|seen| seen.rank = rank);
    Ok(report
        .get()
        .map(|report| report.with_occurrences(occurrences)))
}

/// The report with all that a watch has counted of its leaks.
#[pyfunction]
pub fn with_counts(
    py: Python<'_>,
    report: &Bound<'_, CycleReport>,
    tallies: Vec<LeakTally>,
) -> CycleReport {
    // The program may have initialised its process group since.
    let rank = Inspector::rank(py);
    report.get().map(|mut report| {
        report.set_place(rank);
        report.with_counts(&tallies)
    })
}

/// The report with no more than the counts of the leaks with these signatures, to merge it with one that
/// has their details.
#[pyfunction]
pub fn without_details(
    report: &Bound<'_, CycleReport>,
    signatures: HashSet<String>,
) -> CycleReport {
    report
        .get()
        .map(|report| report.without_details(&signatures))
}
