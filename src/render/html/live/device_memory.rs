//! The page of what the memory of a device is used for.

use maud::{Markup, html};

use crate::model::device_memory::{DeviceMemory, MemoryRow};
use crate::model::report::Process;
use crate::model::words::{human_bytes, name};
use crate::render::html::live::{Page, as_text, facts, section, table};
use crate::render::html::parts::with_code;
use crate::render::text;

/// Names longer than this are shortened in their middle.
const NAME: usize = 300;

/// The page of a [`DeviceMemory`]: each use with its share, what holds most of it and what gives it back.
pub fn device_memory(memory: &DeviceMemory, process: &Process) -> String {
    let used = human_bytes(memory.in_use());
    let mut facts = facts(process, memory.time);
    facts.push(("Device", memory.device.clone()));
    facts.push(("Memory", human_bytes(memory.total)));
    facts.push(("Free", human_bytes(memory.free)));
    let host: u64 = memory.host.iter().map(|row| row.bytes).sum();
    Page {
        title: format!("{}: {used} in use", memory.device),
        lead: html! { "Each byte that the driver says is in use is in one row." },
        facts,
        body: html! {
            (section("Device memory", &rows(&memory.rows, memory.in_use())))
            @if host > 0 { (section("Pinned host memory", &rows(&memory.host, host))) }
            (as_text(&text::device_memory(memory)))
        },
        notes: memory.notes.clone(),
        ..Page::default()
    }
    .html()
}

fn rows(rows: &[MemoryRow], all: u64) -> Markup {
    let row = |row: &MemoryRow| {
        html! {
            tr {
                td { (human_bytes(row.bytes)) }
                td { (format!("{:.0} %", row.bytes as f64 / all.max(1) as f64 * 100.0)) }
                td {
                    (name(&row.name, NAME))
                    @for holder in &row.holders {
                        p.more { (human_bytes(holder.bytes)) " " (with_code(&name(&holder.name, NAME))) }
                    }
                }
                td { (with_code(&name(&row.freed_by, NAME))) }
            }
        }
    };
    table(
        &["Bytes", "Share", "Used for", "Freed by"],
        rows.iter().map(row),
    )
}
