//! What grows with the number of steps, as text.

use crate::model::growth::{Growth, GrowthReport};
use crate::model::words::{counted, human_bytes};
use crate::render::growth_sentences::{
    cleared, counters, growth_headline, is_clean, limited, sampled, stopped,
};
use crate::render::lines::{Ink, Lines};
use crate::render::live_sentences::sentence;
use crate::render::resident::advice_on_resident;
use crate::render::source;

/// The headline, the growing groups, one paragraph each, and the number of samples.
pub fn growth(report: &GrowthReport) -> String {
    let mut text = sentence(&growth_headline(report)) + "\n";
    if report.notes.is_empty() && is_clean(report) {
        text += match report.stopped.is_empty() {
            true => "No growth was found.\n",
            false => "Nothing grows now.\n",
        };
    }
    text.extend(report.found.iter().map(|it| paragraph(&it.growth) + "\n"));
    text.extend(advice_on_resident(report).map(|advice| advice + "\n"));
    text.extend(report.limited.iter().map(|it| limited(&it.growth) + "\n"));
    text.extend(report.cleared.iter().map(|it| cleared(it) + ".\n"));
    text.extend(report.stopped.iter().map(|it| stopped(&it.growth) + ".\n"));
    text.extend(counters(report).map(|counters| sentence(&counters) + "\n"));
    text + &sampled(report) + "\n"
}

/// A growing group as the monitor reports it: what grows, what to change, how much it is, and the command that says more.
pub fn paragraph(growth: &Growth) -> String {
    let mut out = Lines::new(false);
    let step = format!("step {}: ", growth.step);
    out.wrapped(Ink::Plain, &step, &format!("{}.", growth.summary));
    out.wrapped(Ink::Plain, "  Fix:  ", &growth.fix());
    out.wrapped(Ink::Plain, "  Held: ", &format!("{}.", held(growth)));
    for source in growth.shown_lines() {
        source::draw(&mut out, source);
    }
    out.line(format!(
        "  Why:  python -m cyclescope explain {}",
        growth.pattern
    ));
    out.into_text().trim_end().to_owned()
}

/// A growing group in one line.
pub fn grown(growth: &Growth) -> String {
    let Growth {
        step,
        summary,
        advice,
        pattern,
        ..
    } = growth;
    format!(
        "step {step}: {summary}: {}. {advice} [{pattern}]",
        held(growth)
    )
}

/// How much the group is, how fast it grows, and how that is known.
fn held(growth: &Growth) -> String {
    let mut text = growth.amount();
    if growth.bytes_per_step > 0.0 {
        text += &format!(", {} per step", human_bytes(growth.bytes_per_step as u64));
    }
    if growth.samples > 0 {
        text += &format!(", by {}", counted(growth.samples, "sample", "samples"));
    }
    if let Some(place) = &growth.allocated_at {
        text += &format!(" · allocated at {place}");
    }
    text
}
