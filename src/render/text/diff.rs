//! The changes between two heaps, as text.

use crate::model::diff::Diff;
use crate::model::words::{grouped, human_bytes, signed};
use crate::render::lines::{Ink, Lines};

/// The changes in total, and a line for each path to memory that changed.
pub fn diff(diff: &Diff) -> String {
    let mut out = Lines::new(false);
    out.line(format!(
        "{} in total; {} objects that the collector tracks",
        signed(diff.bytes, human_bytes),
        signed(diff.objects, grouped)
    ));
    for row in &diff.rows {
        let change = format!(
            "{:>12} {:>7}  ",
            signed(row.bytes, human_bytes),
            signed(row.buffers, grouped)
        );
        out.wrapped(Ink::Plain, &change, &row.name);
    }
    out.into_text()
}
