//! Resident memory of the process that grows, and what is said of it where nothing explains it.

use crate::model::growth::GrowthReport;
use crate::model::words::human_bytes;

/// Resident memory that has grown by as much is told of, if in each of so many parts of the time it grew by this part
/// of that.
const MUCH: u64 = 16 << 20;
const PARTS: u64 = 8;
const STEADY_PART: u64 = 24;

/// What to do where the memory of the process grows by what is not followed.
pub fn advice_on_resident(report: &GrowthReport) -> Option<String> {
    let more = resident_not_explained(report)?;
    Some(format!(
        "Resident memory grew steadily by {}, and the samples do not show why. It may be byte buffers, arrays in a \
         dictionary or in a cache with a limit, or memory of C and C++. `print(cyclescope.heap())` shows what holds arrays.",
        human_bytes(more)
    ))
}

/// By how many bytes the resident memory of the process has grown, if it did so all the time, most of that is not explained
/// by tensors, and nothing was found that may explain it.
pub fn resident_not_explained(report: &GrowthReport) -> Option<u64> {
    let known = report.counters.iter().filter(|it| it.step >= report.since);
    let known: Vec<(u64, u64)> = known.map(|it| (it.step, it.resident)).collect();
    let (&(start, first), &(end, last)) = (known.first()?, known.last()?);
    let grown = last.checked_sub(first)?;
    let all_the_time = (0..PARTS).all(|part| {
        let at = |part: u64| resident_at(&known, start + part * (end - start) / PARTS);
        at(part + 1).saturating_sub(at(part)) * STEADY_PART >= grown
    });
    let stopped = report.stopped.iter();
    let explained: u64 = stopped.map(|it| it.explains.max(it.growth.bytes)).sum();
    let tensors = u64::try_from(report.grown).unwrap_or_default();
    let is_enough = grown >= MUCH && 2 * explained.max(tensors) < grown;
    // Of objects only a part of the bytes is known, and of graphs that C++ keeps even less.
    let is_silent = report.found.is_empty() && report.untold.is_empty() && !report.is_early();
    (known.len() as u64 > PARTS && all_the_time && is_enough && is_silent).then_some(grown)
}

/// The resident memory at a step, between the samples before and after it: these become rarer as a sample takes longer.
fn resident_at(known: &[(u64, u64)], step: u64) -> u64 {
    let next = known.partition_point(|it| it.0 < step);
    match (next.checked_sub(1).map(|at| known[at]), known.get(next)) {
        (Some(before), Some(after)) => {
            let part = (step - before.0) as f64 / (after.0 - before.0).max(1) as f64;
            (before.1 as f64 + part * (after.1 as f64 - before.1 as f64)) as u64
        }
        (None, Some(after)) => after.1,
        (before, None) => before.map_or(0, |it| it.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::growth::Counters;

    fn told(steps: &[u64], resident: impl Fn(u64) -> u64) -> Option<u64> {
        let counters = steps.iter().map(|&step| Counters {
            step,
            resident: resident(step),
            ..Counters::default()
        });
        let report = GrowthReport {
            samples: steps.len() as u64,
            counters: counters.collect(),
            ..GrowthReport::default()
        };
        resident_not_explained(&report)
    }

    #[test]
    fn resident_memory_is_told_by_step_and_not_by_sample() {
        let often: Vec<u64> = (0..20).map(|at| at * 10).collect();
        // As samples become rarer.
        let rarer: Vec<u64> = [&often[..], &[230, 300, 430, 560]].concat();
        for steps in [&often, &rarer] {
            let last = steps[steps.len() - 1];
            assert_eq!(told(steps, |step| 7 + step * MUCH), Some(last * MUCH));
            assert_eq!(told(steps, |step| (step > 90) as u64 * 9 * MUCH), None);
            assert_eq!(told(steps, |step| MUCH * 100 - step), None);
        }
        assert_eq!(told(&[0, 10, 20], |step| step * MUCH), None);
    }
}
