//! What is told of the live heap in sentences.

use crate::model::growth::GrowthReport;
use crate::model::heap::Device;
use crate::model::retention::{Kept, Retention, RootKind};
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
    let named = |path: &_| matches!(path, RootKind::Module | RootKind::Local);
    let number = counted(paths.len() as u64, "path", "paths");
    match (paths.iter().any(|path| named(&path.root)), loops.is_empty()) {
        (false, false) => {
            "no collection can free it: it keeps itself alive through C or C++".to_owned()
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
