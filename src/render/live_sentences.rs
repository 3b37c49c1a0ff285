//! What is told of the live heap in sentences.

use crate::model::growth::GrowthReport;
use crate::model::heap::Device;
use crate::model::retention::{Keeper, Kept, Retention, RootKind};
use crate::model::words::{counted, human_bytes};

/// The allocator's count beside what is visible; `None` where it does not say.
pub fn allocator(device: &Device) -> Option<String> {
    let allocated = device.allocated?;
    let mut words = format!(
        "{}: {} allocated, of which {} are visible from Python and {} are not \
         (rounding to whole blocks, workspaces, tensors that only C++ holds)",
        device.name,
        human_bytes(allocated),
        human_bytes(device.visible),
        human_bytes(device.remainder().unwrap_or(0)),
    );
    if let Some(reserved) = device.reserved {
        let cached = reserved.saturating_sub(allocated);
        words += &format!("; {} more reserved", human_bytes(cached));
    }
    Some(words + ".")
}

/// An object that was asked about, with its memory.
pub fn object(object: &Kept) -> String {
    match (&object.bytes, &object.device) {
        (Some(bytes), Some(device)) => {
            format!("{} of {} on {device}", object.label, human_bytes(*bytes))
        }
        _ => object.label.clone(),
    }
}

/// What keeps the objects alive, in half a sentence.
pub fn verdict(retention: &Retention) -> String {
    let Retention { loops, paths, .. } = retention;
    if retention.objects.is_empty() {
        return "no object was inspected".to_owned();
    }
    let number = keepers(retention);
    let is_named = paths.iter().any(|path| path.root.is_named());
    match (is_named, loops.is_empty()) {
        (false, false) if retention.passes_object() => {
            "no collection can free it: it keeps itself alive through C or C++".to_owned()
        }
        (false, false) => "garbage that no collection can free: a loop through C or C++, which \
                           the collector does not know, keeps it alive"
            .to_owned(),
        (false, true) if retention.is_uncollectable => {
            "garbage that no collection frees: gc.freeze() excluded it".to_owned()
        }
        (false, true) => match paths.first().map(|path| path.root) {
            None => "only this call keeps it alive".to_owned(),
            Some(RootKind::Garbage) => "garbage: only unreachable objects refer to it".to_owned(),
            Some(_) => "referenced from C or C++ only".to_owned(),
        },
        (true, true) => format!("kept alive by {number}"),
        (true, false) => format!(
            "kept alive by {number}, and also by itself through C or C++, which no collection can free"
        ),
    }
}

/// How many references and variables keep the objects alive.
fn keepers(retention: &Retention) -> String {
    let (by_itself, holding) = split(retention);
    let references = counted(holding.len() as u64, "reference", "references");
    let variables = counted(by_itself.len() as u64, "local variable", "local variables");
    match (holding.len(), by_itself.len()) {
        (0, 0) => {
            let number = retention.paths.len() as u64 + retention.paths_omitted;
            format!("at least {}", counted(number, "reference", "references"))
        }
        (_, 0) => references,
        (0, _) => format!("{variables} of running functions only"),
        _ => format!("{references} and {variables} of running functions"),
    }
}

/// What there is to remove, and what goes by itself: each with a title.
pub fn removals(retention: &Retention) -> Vec<(String, Vec<&Keeper>)> {
    let (by_itself, holding) = split(retention);
    let mut parts = Vec::new();
    let it = match retention.objects.len() {
        1 => "it",
        _ => "them",
    };
    if !holding.is_empty() {
        let title = match (retention.is_enough, holding.len()) {
            (true, 1) => format!("Remove this to free {it}:"),
            (true, number) => format!("Remove all of these {number} to free {it}:"),
            (false, 1) => {
                format!("This keeps {it} alive, and something that cannot be removed may too:")
            }
            (false, number) => format!(
                "Each of these {number} keeps {it} alive, and something that cannot be removed may too:"
            ),
        };
        parts.push((title, holding));
    }
    if !by_itself.is_empty() {
        let title = "Let go when the function returns:".to_owned();
        parts.push((title, by_itself));
    }
    parts
}

/// The variables that go by themselves, and the references that do not.
fn split(retention: &Retention) -> (Vec<&Keeper>, Vec<&Keeper>) {
    let all = retention.keepers.iter();
    all.partition(|keeper| keeper.goes_by_itself)
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

    #[test]
    fn the_allocator_says_what_more_it_has() {
        let device = Device {
            name: "cuda:0".to_owned(),
            visible: 600,
            allocated: Some(1024),
            reserved: Some(4096),
        };
        let words = allocator(&device).unwrap_or_default();
        assert!(words.contains("3.0 KiB more reserved"));
    }
}
