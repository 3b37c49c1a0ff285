//! The memory that a leak held, as a table.

use maud::{Markup, html};

use crate::model::report::{Buffer, GRADIENT, Leak};
use crate::model::words::{
    brief, buffer_count, counted, element_type, grouped, human_bytes, name, shape_of_path,
    without_numbers,
};
use crate::render::html::parts::table;

/// How many buffers of a leak are listed.
const BUFFERS: usize = 200;
/// How many rows are in sight; a few more are too.
const ROWS: usize = 12;
const FEW: usize = 3;
/// How many references of a path are shown.
const PATH: usize = 24;
/// How many frames of an allocation stack are listed.
const FRAMES: usize = 40;

/// The buffers that the leak held, like ones in one row; nothing without any.
pub fn buffers(leak: &Leak) -> Markup {
    let listed = leak.buffers.iter().take(BUFFERS);
    let more = buffer_count(leak).saturating_sub(listed.len() as u64);
    let in_sight: Vec<&Buffer> = listed.clone().collect();
    let rest =
        (leak.collections() <= 1).then(|| leak.bytes_held.saturating_sub(bytes_of(&[in_sight])));
    let mut rows: Vec<Vec<&Buffer>> = Vec::new();
    for buffer in listed {
        match rows.iter_mut().find(|row| are_alike(row[0], buffer)) {
            Some(row) => row.push(buffer),
            None => rows.push(vec![buffer]),
        }
    }
    let (first, folded) = match rows.len() > ROWS + FEW {
        true => rows.split_at(ROWS),
        false => (&rows[..], &[][..]),
    };
    html! {
        @if !leak.buffers.is_empty() {
            h3 { "Held memory" }
            (table_of(leak, first))
            @if !folded.is_empty() {
                details.rows {
                    summary { (counted(folded.len() as u64, "more row", "more rows")) ", " (human_bytes(bytes_of(folded))) }
                    (table_of(leak, folded))
                }
            }
            @if more > 0 {
                p.more { "and " (counted(more, "more buffer", "more buffers")) @if let Some(rest) = rest { ", " (human_bytes(rest)) } }
            }
            @if let Some(first) = leak.first_seen_bytes() {
                p.more { "Seen again since and only counted: " (human_bytes(leak.bytes_held - first)) "." }
            }
        }
    }
}

fn table_of(leak: &Leak, rows: &[Vec<&Buffer>]) -> Markup {
    table(
        None,
        &[
            "Storage",
            "Holder",
            "Elements",
            "Device",
            "Address",
            "Path from the cycle",
        ],
        rows.iter().map(|alike| row(leak, alike)),
    )
}

fn bytes_of(rows: &[Vec<&Buffer>]) -> u64 {
    let bytes = rows.iter().flatten().map(|buffer| buffer.bytes);
    bytes.fold(0, u64::saturating_add)
}

/// True if two buffers differ in their addresses and in the indices on their paths only.
fn are_alike(a: &Buffer, b: &Buffer) -> bool {
    let same = |it: &Buffer| Buffer {
        pointer: 0,
        node: None,
        path: Vec::new(),
        path_nodes: Vec::new(),
        ..it.clone()
    };
    shape_of_path(&a.path) == shape_of_path(&b.path) && same(a) == same(b)
}

/// The row of buffers that are alike.
fn row(leak: &Leak, alike: &[&Buffer]) -> Markup {
    let (buffer, number) = (alike[0], alike.len() as u64);
    let start = leak.cycle.get(buffer.from_step as usize);
    let all = buffer.bytes.saturating_mul(number);
    html! {
        tr {
            td.number {
                @if number > 1 { (grouped(number)) " × " }
                (human_bytes(buffer.bytes))
                @if number > 1 { p.more { (human_bytes(all)) " in all" } }
            }
            td {
                @for (index, part) in name(&buffer.type_name, 80).split('.').enumerate() {
                    @if index > 0 { "." wbr; }
                    (part)
                }
                @if buffer.holders > 1 {
                    p.more { "and " (counted(buffer.holders - 1, "other object", "other objects")) }
                }
            }
            td.elements { (element_type(buffer)) }
            td { (name(&buffer.device, 40)) }
            td.address {
                @if number > 1 {
                    details { summary { (grouped(number)) " addresses" } (addresses(alike)) }
                } @else {
                    (addresses(alike))
                }
                @if buffer.confirmed {
                    " " span.confirmed title="confirmed by the CUDA driver" { "✓ driver" }
                }
            }
            td {
                @match buffer.kept_by.as_deref() {
                    None => {
                        @if let Some(step) = start { (name(&brief(&step.label), 80)) }
                        (path(alike))
                    }
                    Some(GRADIENT) => "a gradient, freed with the cycle",
                    Some(_) => "C++ refers to it too; freed with the cycle",
                }
                @if buffer.lent {
                    p { "Another object may still use this memory." }
                }
                (allocation(buffer))
            }
        }
    }
}

/// The references to the buffers: the same many times in a row once, and without their indices if there are several.
fn path(alike: &[&Buffer]) -> Markup {
    let first = &alike[0].path;
    let is_one_depth = alike.iter().all(|other| other.path.len() == first.len());
    let edges = match (alike.len(), is_one_depth) {
        (1, _) => first.clone(),
        (_, true) => first.iter().map(|edge| without_numbers(edge)).collect(),
        (_, false) => shape_of_path(first),
    };
    html! {
        @for run in edges.chunk_by(|a, b| a == b).take(PATH) {
            " " (name(&brief(&run[0]), 80))
            @if run.len() > 1 {
                " × " (grouped(run.len() as u64))
            }
        }
        @if !is_one_depth { p.more { "at several depths" } }
    }
}

fn addresses(buffers: &[&Buffer]) -> Markup {
    html! {
        @for buffer in buffers { code { (format_args!("{:#x}", buffer.pointer)) } " " }
    }
}

/// Where the memory was allocated, as far as that is known.
fn allocation(buffer: &Buffer) -> Markup {
    let frames = buffer.allocation.iter().take(FRAMES);
    let frames: Vec<String> = frames.map(|frame| name(frame, 300)).collect();
    html! {
        @if buffer.has_grad_fn { p.more { "with an autograd graph behind it" } }
        @if let Some(at) = &buffer.allocated_at {
            p.more { "made at " (name(&at.to_string(), 300)) }
        }
        @if !frames.is_empty() {
            details { summary { "allocated by" } pre tabindex="0" { (frames.join("\n")) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn like_buffers_are_one_row() {
        let mut leak = samples::callback().leaks.remove(0);
        leak.buffers.truncate(1);
        let first = Buffer {
            path: vec![".items".into(), "[0]".into()],
            ..leak.buffers[0].clone()
        };
        let other = |index: u64| Buffer {
            pointer: first.pointer + index * first.bytes,
            path: vec![".items".into(), format!("[{index}]")],
            ..first.clone()
        };
        let longer = Buffer {
            bytes: 2 * first.bytes,
            ..first.clone()
        };
        leak.buffers = vec![longer, first.clone(), other(1), other(2)];
        let table = buffers(&leak).0;
        assert_eq!(table.matches("<tr>").count(), 1 + 2);
        assert!(
            table.contains("3 × 64.0 MiB<p class=\"more\">192.0 MiB in all</p>"),
            "{table}"
        );
        assert!(table.contains("<summary>3 addresses</summary>"));
        assert!(table.contains(".items [x]") && table.contains(".items [0]"));
        assert_eq!(table.matches("<code>0x").count(), 4);
    }

    #[test]
    fn of_many_rows_the_first_are_in_sight() {
        let rows = |count: u64| {
            let mut leak = samples::callback().leaks.remove(0);
            let buffer = leak.buffers[0].clone();
            let sized = (0..count).map(|index| Buffer {
                bytes: (100 - index) << 20,
                ..buffer.clone()
            });
            leak.buffers = sized.collect();
            buffers(&leak).0
        };
        assert!(!rows(15).contains("<details class=\"rows\">"));
        let folded = rows(16);
        assert!(folded.contains("<summary>4 more rows, 346.0 MiB</summary>"));
        assert_eq!(folded.matches("<tr>").count(), 2 + 16);
    }

    #[test]
    fn what_is_known_of_an_allocation_is_told() {
        let mut leak = samples::callback().leaks.remove(0);
        assert!(!buffers(&leak).0.contains("allocated by"));
        leak.buffers[0].allocation = vec!["train.py:7 <module>".into()];
        leak.buffers[0].has_grad_fn = true;
        let table = buffers(&leak).0;
        assert!(
            table.contains(
                "allocated by</summary><pre tabindex=\"0\">train.py:7 &lt;module&gt;</pre>"
            )
        );
        assert!(table.contains("an autograd graph"));
    }
}
