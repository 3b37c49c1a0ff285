//! Resident memory of the process that grows, and what is said of it where nothing explains it.

use crate::model::growth::GrowthReport;
use crate::model::words::human_bytes;

/// Resident memory that has grown by as much is told of, if in each of so many parts of the time it grew by this part
/// of that.
const MUCH: u64 = 16 << 20;
const PARTS: usize = 8;
const STEADY_PART: u64 = 24;

/// What to do where the memory of the process grows by what is not followed.
pub fn advice_on_resident(report: &GrowthReport) -> Option<String> {
    let more = resident_not_explained(report)?;
    Some(format!(
        "Resident memory grew steadily by {}, and the samples do not show why. It may be byte buffers, arrays in a \
         dictionary, or memory of C and C++. `print(cyclescope.heap())` shows what holds arrays.",
        human_bytes(more)
    ))
}

/// By how many bytes the resident memory of the process has grown, if it did so all the time, most of that is not explained
/// by tensors, and nothing was found that may explain it.
pub fn resident_not_explained(report: &GrowthReport) -> Option<u64> {
    let known: Vec<u64> = report
        .counters
        .iter()
        .filter(|it| it.step >= report.since)
        .map(|it| it.resident)
        .collect();
    let (&first, &last) = (known.first()?, known.last()?);
    let grown = last.checked_sub(first)?;
    let all_the_time = (0..PARTS).all(|part| {
        let at = |part: usize| known[part * (known.len() - 1) / PARTS];
        at(part + 1).saturating_sub(at(part)) * STEADY_PART >= grown
    });
    let stopped = report.stopped.iter();
    let explained: u64 = stopped.map(|it| it.explains.max(it.growth.bytes)).sum();
    let tensors = u64::try_from(report.grown).unwrap_or_default();
    let is_enough = grown >= MUCH && 2 * explained.max(tensors) < grown;
    // Of objects only a part of the bytes is known, and of graphs that C++ keeps even less.
    let is_silent = report.found.is_empty() && report.untold.is_empty() && !report.is_early();
    (known.len() > PARTS && all_the_time && is_enough && is_silent).then_some(grown)
}
