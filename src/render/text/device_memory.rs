//! What the memory of a device is used for, as text.

use crate::model::device_memory::{DeviceMemory, MemoryRow};
use crate::model::words::human_bytes;
use crate::render::lines::{Ink, Lines};

/// A sentence, then each use with what holds most of it and what gives it back.
pub fn device_memory(memory: &DeviceMemory) -> String {
    let mut out = Lines::new(false);
    let used = memory.in_use();
    let sentence = format!(
        "{}: {} of {} are in use, {} are free.",
        memory.device,
        human_bytes(used),
        human_bytes(memory.total),
        human_bytes(memory.free),
    );
    out.wrapped(Ink::Strong, "", &sentence);
    rows(&mut out, &memory.rows, used);
    let host: u64 = memory.host.iter().map(|row| row.bytes).sum();
    if host > 0 {
        out.line("");
        let sentence = format!("Pinned host memory: {}.", human_bytes(host));
        out.wrapped(Ink::Strong, "", &sentence);
        rows(&mut out, &memory.host, host);
    }
    for note in &memory.notes {
        out.line("");
        out.wrapped(Ink::Plain, "Note: ", note);
    }
    out.into_text()
}

fn rows(out: &mut Lines, rows: &[MemoryRow], all: u64) {
    for row in rows {
        out.line("");
        let share = row.bytes as f64 / all.max(1) as f64 * 100.0;
        out.line(format!(
            "{:>10} {share:>4.0} %  {}",
            human_bytes(row.bytes),
            row.name
        ));
        for holder in &row.holders {
            let label = format!("{:>20}  ", human_bytes(holder.bytes));
            out.wrapped(Ink::Plain, &label, &holder.name);
        }
        out.wrapped(Ink::Faint, "                  freed by ", &row.freed_by);
    }
}
