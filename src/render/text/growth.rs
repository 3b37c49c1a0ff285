//! What grows with the number of steps, as text.

use crate::model::growth::{Growth, GrowthReport};
use crate::model::words::{counted, human_bytes};
use crate::render::live_sentences::{
    cleared, counters, growth_headline, is_clean, sampled, sentence, stopped,
};
use crate::render::resident::advice_on_resident;

/// The headline, the growing groups, one paragraph each, and the number of samples.
pub fn growth(report: &GrowthReport) -> String {
    let mut text = sentence(&growth_headline(report)) + "\n";
    if report.notes.is_empty() && is_clean(report) {
        text += "No growth was found.\n";
    }
    text.extend(report.found.iter().map(|it| grown(&it.growth) + "\n"));
    text.extend(advice_on_resident(report).map(|advice| advice + "\n"));
    text.extend(report.cleared.iter().map(|it| cleared(it) + ".\n"));
    text.extend(report.stopped.iter().map(|it| stopped(&it.growth) + ".\n"));
    text.extend(counters(report).map(|counters| sentence(&counters) + "\n"));
    text + &sampled(report) + "\n"
}

/// A growing group in one line.
pub fn grown(growth: &Growth) -> String {
    let mut line = format!(
        "step {}: {}: {}",
        growth.step,
        growth.summary,
        growth.amount()
    );
    if growth.bytes_per_step > 0.0 {
        line += &format!(", {} per step", human_bytes(growth.bytes_per_step as u64));
    }
    if growth.samples > 0 {
        line += &format!(", by {}", counted(growth.samples, "sample", "samples"));
    }
    if let Some(place) = &growth.allocated_at {
        line += &format!(" · allocated at {place}");
    }
    line + &format!(". {} [{}]", growth.advice, growth.pattern)
}
