//! The live heap and its tables, as text.

use crate::model::heap::{By, Heap, Table};
use crate::model::words::{counted, grouped, human_bytes, name, padded};
use crate::render::lines::{Ink, Lines};
use crate::render::live_sentences::allocator;

/// Maximum width of the first column of a table.
const NAME: usize = 56;

/// A few lines and the table of owners.
pub fn heap(heap: &Heap) -> String {
    let mut out = Lines::new(false);
    let objects = counted(heap.objects, "object", "objects");
    let references = counted(heap.references, "reference", "references");
    let summary = match heap.buffers.len() as u64 {
        0 => format!(
            "{objects} with {references} hold no memory of a framework that cyclescope supports."
        ),
        buffers => format!(
            "{objects} with {references} hold {} on devices and {} on the host, in {}.",
            human_bytes(heap.device_bytes()),
            human_bytes(heap.host_bytes()),
            counted(buffers, "buffer", "buffers"),
        ),
    };
    out.wrapped(Ink::Strong, "", &summary);
    if heap.unreachable > 0 {
        out.wrapped(
            Ink::Plain,
            "",
            &format!(
                "{} unreachable: garbage, or kept alive only by C++.",
                counted(heap.unreachable, "object is", "objects are")
            ),
        );
    }
    let owners = heap.top(By::Owner, 10);
    if owners.rows.is_empty() && owners.devices.is_empty() && owners.notes.is_empty() {
        return out.into_text();
    }
    out.line("");
    out.into_text() + &table(&owners)
}

/// The table, its rows as far as they are shown, and the notes.
pub fn table(table: &Table) -> String {
    let mut out = Lines::new(false);
    let line = |name: &str, count: &str, device: &str, host: &str, retained: &str| {
        let name = padded(name, NAME);
        format!("{name} {count:>7} {device:>10} {host:>10} {retained:>10}")
    };
    out.line(line(&table.by, "count", "device", "host", "retained"));
    for row in &table.rows {
        out.line(line(
            &name(&row.name, NAME),
            &grouped(row.count),
            &human_bytes(row.device_bytes),
            &human_bytes(row.host_bytes),
            &human_bytes(row.retained_bytes),
        ));
    }
    for row in &table.rows {
        if table.by == "owner"
            && let Some(collected) = row.collected()
        {
            let owner = name(&row.name, NAME);
            out.wrapped(
                Ink::Plain,
                "  ",
                &format!("Retained by {owner}: {collected}."),
            );
        }
    }
    if table.omitted > 0 {
        out.line(format!(
            "{} with {} not shown",
            counted(table.omitted, "row", "rows"),
            human_bytes(table.omitted_bytes)
        ));
    }
    for words in table.devices.iter().filter_map(allocator) {
        out.wrapped(Ink::Plain, "", &words);
    }
    for note in &table.notes {
        out.wrapped(Ink::Strong, "Note: ", note);
    }
    out.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_without_buffers_has_no_table() {
        let mut empty = Heap {
            objects: 13_614,
            references: 25_583,
            ..Heap::default()
        };
        assert_eq!(
            heap(&empty),
            "13,614 objects with 25,583 references hold no memory of a framework that cyclescope supports.\n"
        );
        empty.notes.push("The sizes are estimates.".to_owned());
        assert!(heap(&empty).ends_with("Note: The sizes are estimates.\n"));
    }
}
