//! The sentences about growth.

use std::collections::HashSet;

use crate::model::growth::{Grown, Growth, GrowthReport, MoreObjects};
use crate::model::heap::without_line;
use crate::model::words::{counted, grouped, human_bytes};
use crate::render::resident::resident_not_explained;

/// Fewer bytes than these come and go in any program.
const LITTLE: u64 = 64 << 10;

/// How many owners the headline names.
const NAMED: usize = 3;

/// How much memory has grown, and what explains it; and what grows that is no tensor.
pub fn growth_headline(report: &GrowthReport) -> String {
    let objects = report.found.iter().filter(|it| it.growth.objects > 0);
    let mut headline = of_tensors(report);
    for grown in objects.take(NAMED) {
        let growth = &grown.growth;
        let place = match growth.is_of_process() {
            true => String::new(),
            false => format!(" in {}", growth.short_owner()),
        };
        // Who has those that came since is not known, except of what is in one container.
        let since = match grown.since {
            0 => String::new(),
            more if growth.is_of_process() || grown.history.is_empty() => {
                format!(" and {} more since", grouped(more))
            }
            more => format!(" and {} more of their type since", grouped(more)),
        };
        let (count, step) = (growth.count(), grouped(growth.step));
        let bytes = match growth.bytes {
            0 => String::new(),
            bytes => format!(" ({})", human_bytes(bytes)),
        };
        headline += &format!("; {count}{bytes}{place} at step {step}{since}");
    }
    if let Some(more) = resident_not_explained(report) {
        headline += &format!("; resident memory +{}, not explained", human_bytes(more));
    }
    let untold = untold(report);
    if !untold.is_empty() {
        let parts: Vec<String> = untold.iter().map(|it| it.amount()).collect();
        headline += &format!("; not reported: {}", parts.join(", "));
    }
    headline
}

/// The types that have more and more objects and are not reported: of each owner one, which keeps most.
fn untold(report: &GrowthReport) -> Vec<&MoreObjects> {
    let mut seen = HashSet::new();
    // Of what has no owner may be parts of what is reported.
    let all = report.untold.iter();
    let one_each = all.filter(|it| match it.owner.is_empty() {
        true => report.found.is_empty(),
        false => seen.insert(&it.owner),
    });
    one_each.take(NAMED).collect()
}

/// True if nothing is known to grow.
pub fn is_clean(report: &GrowthReport) -> bool {
    report.found.is_empty()
        && report.limited.is_empty()
        && report.untold.is_empty()
        && !report.is_early()
        && (grown_enough(report).is_none() || !report.stopped.is_empty())
        && resident_not_explained(report).is_none()
}

/// True for growing objects of Python's, which may keep tensors.
fn is_of_objects(grown: &Grown) -> bool {
    grown.growth.objects > 0 && !grown.growth.is_of_process()
}

/// True for a growing number of threads, whose functions' local variables may keep tensors.
fn is_of_threads(grown: &Grown) -> bool {
    grown.growth.pattern == "threads-grow"
}

/// Why nothing explains what memory has grown by.
fn why_not_explained(report: &GrowthReport) -> &'static str {
    let keeps_graphs = |it: &Grown| {
        matches!(
            it.growth.pattern.as_str(),
            "grad-fn-kept" | "state-not-detached"
        )
    };
    match report.found.is_empty() {
        true => {
            "no group of tensors with a known owner and without a limit has grown steadily and by enough to be reported"
        }
        // What C++ keeps behind them is not all to be seen.
        false if report.found.iter().any(keeps_graphs) => {
            "how much of it the graphs of what grows below keep is not known"
        }
        // Objects may keep tensors.
        false if report.found.iter().any(is_of_objects) => {
            "how much of it the objects below keep is not known"
        }
        false if report.found.iter().any(is_of_threads) => {
            "how much of it the local variables of the threads below keep is not known"
        }
        false => "what grows below is less than 1 % of it",
    }
}

/// What grows, each owner once, and how many bytes all that was told of it explains.
fn by_owner(found: &[Grown]) -> Vec<(&Growth, u64)> {
    let mut owners: Vec<(&Growth, u64)> = Vec::new();
    for Grown {
        growth, explains, ..
    } in found
    {
        match owners.iter_mut().find(|(it, _)| it.has_owner_of(growth)) {
            Some((_, all)) => *all += explains,
            None => owners.push((growth, *explains)),
        }
    }
    owners
}

/// What is to be said of memory that is not explained, if objects grow beside it.
fn unless_objects_keep_it(report: &GrowthReport) -> &'static str {
    let found = &report.found;
    match found.iter().any(is_of_objects) {
        true => ", unless the objects below keep it",
        false if found.iter().any(is_of_threads) => {
            ", unless the local variables of the threads below keep it"
        }
        false => "",
    }
}

/// What explains the growth of memory, and how many percent of it are left.
fn explained(report: &GrowthReport, grown: u64) -> (Vec<String>, f64) {
    let (mut parts, mut left) = (Vec::new(), 100.0);
    let (mut more, mut more_owners) = (0.0, 0);
    let [growing, limited, stopped] =
        [&report.found, &report.limited, &report.stopped].map(|it| by_owner(it));
    let name = |growth: &Growth| {
        let short = growth.short_owner();
        let mut all = growing.iter().chain(&limited).chain(&stopped);
        let is_anothers = all.any(|(it, _)| !it.has_owner_of(growth) && it.short_owner() == short);
        if is_anothers {
            // The line at which the function is says nothing of what grows.
            without_line(&growth.owner).into_owned()
        } else {
            short
        }
    };
    let growing = growing.iter().map(|it| (it, String::new())).enumerate();
    let limited = limited.iter().map(|it| {
        let line = it.0.limited_at_first();
        let remark = line.map_or_else(String::new, |it| format!(" (may be limited by {it})"));
        (it, remark)
    });
    let stopped = stopped
        .iter()
        .map(|it| (it, " (no longer growing)".to_owned()));
    let rest = limited.enumerate().chain(stopped.enumerate());
    for (index, ((growth, explains), remark)) in growing.chain(rest) {
        let part = (100.0 * *explains as f64 / grown as f64).round().min(left);
        if part >= 1.0 && index >= NAMED {
            left -= part;
            more += part;
            more_owners += 1;
        } else if part >= 1.0 {
            left -= part;
            let owner = name(growth);
            parts.push(format!("{part:.0} % explained by {owner}{remark}"));
        }
    }
    if more_owners > 0 {
        let owners = counted(more_owners, "more owner", "more owners");
        parts.push(format!("{more:.0} % by {owners}"));
    }
    (parts, left)
}

fn of_tensors(report: &GrowthReport) -> String {
    if let Some(note) = report.notes.first() {
        return note.clone();
    }
    if report.is_early() && report.steps == 0 {
        return "too early to tell: no step was counted; `watch_growth()` counts calls of its `step()`, and \
                `cyclescope run --growth` those of PyTorch's optimizers"
            .to_owned();
    }
    if report.is_early() {
        return format!(
            "too early to tell: {} of {} samples; growth can be found from step {} on",
            grouped(report.samples),
            report.needed,
            grouped(report.known_from)
        );
    }
    let last = report.all.last().map_or(report.steps, |sample| sample.0);
    let steps = counted(last.saturating_sub(report.since), "step", "steps");
    let samples = counted(report.samples, "sample", "samples");
    let grown = u64::try_from(report.grown).unwrap_or_default();
    let reported = reported(report);
    if grown == 0 {
        return format!("no growth of tensor memory was seen in {steps} ({samples}){reported}");
    }
    let headline = format!("memory +{} in {steps}", human_bytes(grown));
    if grown_enough(report).is_none() {
        let explained = report.found.iter().map(|it| it.explains);
        let unknown = match 2 * explained.sum::<u64>() >= grown {
            true => "",
            false => ", too little to say what it is",
        };
        return format!("{headline}{unknown} ({samples}){reported}");
    }
    let (parts, left) = explained(report, grown);
    if parts.is_empty() {
        let groups = why_not_explained(report);
        return format!("{headline}, not explained: {groups} ({samples})");
    }
    // By its bytes: what is left of rounded parts may be nothing.
    let explained = by_owner(&report.found)
        .into_iter()
        .chain(by_owner(&report.limited))
        .chain(by_owner(&report.stopped))
        .fold(0, |all: u64, (_, explains)| all.saturating_add(explains));
    let part = 100.0 * grown.saturating_sub(explained) as f64 / grown as f64;
    let rest = match left > 0.0 && part >= 0.5 {
        true => format!(
            ", {:.0} % not{}",
            part.max(1.0).min(left),
            unless_objects_keep_it(report)
        ),
        false => String::new(),
    };
    format!("{headline}: {}{rest} ({samples})", parts.join(", "))
}

/// What was found of tensors, where their memory has hardly grown: `; reported: `total` (state-not-detached)`.
fn reported(report: &GrowthReport) -> String {
    let of_tensors = report.found.iter().filter(|it| it.growth.objects == 0);
    let names = of_tensors.map(|it| format!("{} ({})", it.growth.short_owner(), it.growth.pattern));
    let names: Vec<String> = names.take(NAMED).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; reported: {}", names.join(", ")),
    }
}

/// By how many bytes tensor memory has grown, if that is enough to say what it is.
pub fn grown_enough(report: &GrowthReport) -> Option<u64> {
    let grown = u64::try_from(report.grown).ok()?;
    let is_enough = grown >= LITTLE && grown > fluctuation(report);
    (is_enough && report.notes.is_empty()).then_some(grown)
}

/// How many bytes go from one sample to the next in a quarter of the samples, or more: of growth by no more than that it is
/// not known what it is.
fn fluctuation(report: &GrowthReport) -> u64 {
    let measured = match report.allocated.is_empty() {
        true => &report.all,
        false => &report.allocated,
    };
    let known = measured.iter().filter(|it| it.0 >= report.since);
    let bytes: Vec<u64> = known.map(|it| it.2).collect();
    let falls = bytes.windows(2).map(|it| it[0].saturating_sub(it[1]));
    let mut falls: Vec<u64> = falls.collect();
    falls.sort_unstable();
    falls.get(falls.len() * 3 / 4).copied().unwrap_or_default()
}

/// What was reported and has been given back since.
pub fn cleared(growth: &Growth) -> String {
    format!(
        "{} has released most of what was reported at step {}",
        growth.owner,
        grouped(growth.step)
    )
}

/// What grows, but is not reported for now.
pub fn limited(growth: &Growth) -> String {
    format!(
        "{} grows: {} at step {}. It may be limited or emptied by {}, and is reported if it goes on growing.",
        growth.owner,
        growth.amount(),
        grouped(growth.step),
        growth.limited_by()
    )
}

/// What was reported and grows no longer.
pub fn stopped(growth: &Growth) -> String {
    if !growth.limited_at.is_empty() {
        // It may never have been reported.
        return format!(
            "{} has stopped growing. It may be limited or emptied by {}",
            growth.owner,
            growth.limited_by()
        );
    }
    format!(
        "{} has stopped growing since it was reported at step {}",
        growth.owner,
        grouped(growth.step)
    )
}

/// What the operating system counts, and how that has changed since the first sample behind the warm-up; `None`
/// where it does not say.
pub fn counters(report: &GrowthReport) -> Option<String> {
    let last = report.counters.last()?;
    let first = report.counters.iter().find(|it| it.step >= report.since)?;
    let change = |from: u64, to: u64| match to.checked_sub(from) {
        Some(0) => String::new(),
        Some(more) => format!(" (+{} since step {})", grouped(more), grouped(first.step)),
        None => format!(
            " (−{} since step {})",
            grouped(from - to),
            grouped(first.step)
        ),
    };
    let bytes = |from: u64, to: u64| match (to.saturating_sub(from), from.saturating_sub(to)) {
        (0, 0) => human_bytes(to),
        (more, 0) => format!(
            "{} (+{} since step {})",
            human_bytes(to),
            human_bytes(more),
            grouped(first.step)
        ),
        (_, less) => format!(
            "{} (−{} since step {})",
            human_bytes(to),
            human_bytes(less),
            grouped(first.step)
        ),
    };
    let mut parts = Vec::new();
    if last.resident > 0 {
        parts.push(format!(
            "resident memory {}",
            bytes(first.resident, last.resident)
        ));
    }
    if last.pinned > 0 || first.pinned > 0 {
        parts.push(format!(
            "pinned host memory {}",
            bytes(first.pinned, last.pinned)
        ));
    }
    if last.threads > 0 {
        let number = counted(last.threads, "thread", "threads");
        parts.push(number + &change(first.threads, last.threads));
    }
    if last.files > 0 {
        let number = counted(last.files, "open file", "open files");
        parts.push(number + &change(first.files, last.files));
    }
    (!parts.is_empty()).then(|| format!("the process: {}", parts.join(", ")))
}

/// How many samples of how many steps a report of growth is from.
pub fn sampled(report: &GrowthReport) -> String {
    format!(
        "{} in {}",
        counted(report.samples, "sample", "samples"),
        counted(report.steps, "step", "steps")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::growth::{Counters, Grown};

    /// A report of 20 samples in which so much more memory is in use.
    fn grown_by(bytes: i64) -> GrowthReport {
        GrowthReport {
            steps: 205,
            every: 10,
            samples: 20,
            needed: 13,
            known_from: 130,
            all: vec![(10, 1, 1), (200, 2, 2)],
            since: 30,
            grown: bytes,
            ..GrowthReport::default()
        }
    }

    #[test]
    fn the_headline_says_what_explains_growth_and_what_does_not() {
        let mut report = grown_by(0);
        report.samples = 5;
        report.since = 0;
        assert_eq!(
            growth_headline(&report),
            "too early to tell: 5 of 13 samples; growth can be found from step 130 on"
        );
        report.samples = 20;
        assert_eq!(counters(&report), None);
        let at = |step, resident, threads| Counters {
            step,
            resident,
            threads,
            ..Counters::default()
        };
        report.counters = vec![at(10, 1 << 30, 1), at(200, 1 << 20, 3)];
        assert_eq!(
            counters(&report).as_deref(),
            Some(
                "the process: resident memory 1.0 MiB (−1023.0 MiB since step 10), 3 threads (+2 since step 10)"
            )
        );
        report.since = 30;
        assert_eq!(
            growth_headline(&report),
            "no growth of tensor memory was seen in 170 steps (20 samples)"
        );
        let events = Growth {
            objects: 6_400,
            owner: "local `trainer` in `fit` (Trainer) → .events".to_owned(),
            ..Growth::default()
        };
        let threads = Growth {
            pattern: "threads-grow".to_owned(),
            objects: 70,
            ..Growth::default()
        };
        report.found = [events, threads]
            .map(|growth| Grown {
                growth,
                ..Grown::default()
            })
            .to_vec();
        assert_eq!(
            growth_headline(&report),
            "no growth of tensor memory was seen in 170 steps (20 samples); at least 6,400 objects in `Trainer.events` at step 0; 70 more threads at step 0"
        );
    }

    fn found(owner: &str, explains: u64) -> Grown {
        let mut found = Grown::default();
        found.growth.owner = owner.to_owned();
        found.explains = explains << 10;
        found
    }

    #[test]
    fn the_headline_divides_growth_between_its_owners() {
        let mut report = grown_by(1000 << 10);
        assert_eq!(
            growth_headline(&report),
            "memory +1000.0 KiB in 170 steps, not explained: no group of tensors with a known owner and without a limit has grown steadily and by enough to be reported \
             (20 samples)"
        );
        report.found = vec![
            found("module `train` → `trainer` (Trainer) → .outputs", 900),
            found("local `losses` in `fit`, train.py:7, thread MainThread", 70),
            found("module `train` → `few`", 1),
        ];
        assert_eq!(
            growth_headline(&report),
            "memory +1000.0 KiB in 170 steps: 90 % explained by `Trainer.outputs`, 7 % explained by \
             `losses`, 3 % not (20 samples)"
        );
        let mut many = report.clone();
        many.found[2].growth.objects = 117;
        assert!(
            growth_headline(&many)
                .contains(", 3 % not, unless the objects below keep it (20 samples)")
        );
        many.found[2].growth.objects = 0;
        many.found
            .extend([found("`one`", 0), found("`other`", 0), found("`one`", 0)]);
        let shares = [200, 200, 200, 100, 50, 50];
        let owners = many.found.iter_mut().zip(shares);
        owners.for_each(|(it, share)| it.explains = share << 10);
        assert!(
            growth_headline(&many)
                .ends_with("20 % explained by `few`, 20 % by 2 more owners, 20 % not (20 samples)"),
            "{}",
            growth_headline(&many)
        );
        let local = |thread| format!("local `kept` in `work`, train.py:7, thread {thread}");
        many.found = vec![
            found(&local("A"), 200),
            found(&local("A"), 300),
            found(&local("B"), 400),
        ];
        assert_eq!(
            growth_headline(&many),
            format!(
                "memory +1000.0 KiB in 170 steps: 50 % explained by {}, 40 % explained by {}, 10 % not (20 samples)",
                local("A").replace(":7", ""),
                local("B").replace(":7", "")
            )
        );
        // Rounded parts may add up to 99 % of what is explained to the last byte.
        many.found = vec![found("`a`", 444), found("`b`", 444), found("`c`", 112)];
        assert!(growth_headline(&many).ends_with("11 % explained by `c` (20 samples)"));
        report.found.drain(..2);
        assert!(growth_headline(&report).contains("less than 1 % of it"));
        report.found[0].growth.objects = 117;
        assert!(growth_headline(&report).contains("the objects below keep is not known"));
        report.found[0].growth.objects = 0;
        report.found[0].growth.pattern = "threads-grow".to_owned();
        assert!(growth_headline(&report).contains("the threads below keep is not known"));
        report.found[0].growth.pattern = String::new();
        report.stopped = vec![found("module `train` → `cache`", 500)];
        assert!(
            growth_headline(&report)
                .contains(": 50 % explained by `cache` (no longer growing), 50 % not")
        );
    }

    #[test]
    fn the_headline_does_not_explain_too_little() {
        let mut report = grown_by(8 << 10);
        report.found.push(Grown::default());
        report.found[0].growth.pattern = "state-not-detached".to_owned();
        let headline = growth_headline(&report);
        let (amount, reported) = headline.split_once("; reported: ").expect("what is below");
        assert_eq!(
            amount,
            "memory +8.0 KiB in 170 steps, too little to say what it is (20 samples)"
        );
        assert!(reported.ends_with("(state-not-detached)"));
        report.found[0].explains = 8 << 10;
        assert!(!growth_headline(&report).contains("too little"));
        report.found[0].explains = 0;
        report.grown = 1000 << 10;
        report.all = (1..20).map(|at| (30 + at, 1, (at % 2) << 20)).collect();
        assert!(growth_headline(&report).contains("too little to say what it is"));
        report.found.clear();
        report.untold = ["L", "L", ""]
            .map(|owner| MoreObjects {
                class: "Meter".to_owned(),
                owner: match owner.is_empty() {
                    true => String::new(),
                    false => format!("module `train` → `{owner}`"),
                },
                objects: 2_000,
                ..MoreObjects::default()
            })
            .to_vec();
        assert!(growth_headline(&report).ends_with(
            "; not reported: 2,000 more objects of `Meter` in `L`, 2,000 more objects of `Meter`"
        ));
        assert!(!is_clean(&report));
    }
}
