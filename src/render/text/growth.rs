//! What grows with the number of steps, as text.

use crate::model::growth::{Growth, GrowthReport};
use crate::model::words::{counted, human_bytes};
use crate::render::live_sentences::sampled;

/// The growing groups, one paragraph each, and the number of samples.
pub fn growth(report: &GrowthReport) -> String {
    let found = report.found.iter();
    let mut text: String = found.map(|it| grown(&it.growth) + "\n").collect();
    if text.is_empty() {
        text = match report.notes.first() {
            Some(note) => format!("{note}\n"),
            None if report.is_early() => {
                format!("Too early to tell: {} samples are needed.\n", report.needed)
            }
            None => "Nothing grows.\n".to_owned(),
        };
    }
    text + &sampled(report) + "\n"
}

/// A growing group in one line.
pub fn grown(growth: &Growth) -> String {
    let mut line = format!(
        "step {}: {}: {} such as {}, {}",
        growth.step,
        growth.summary,
        counted(growth.tensors, "tensor", "tensors"),
        growth.example,
        human_bytes(growth.bytes)
    );
    if growth.bytes_per_step > 0.0 {
        line += &format!(", {} per step", human_bytes(growth.bytes_per_step as u64));
    }
    if let Some(place) = &growth.allocated_at {
        line += &format!(" · allocated at {place}");
    }
    line + &format!(". {} [{}]", growth.advice, growth.pattern)
}
