//! The memory that a leak held, as a table.

use maud::{Markup, html};

use crate::model::report::{Buffer, GRADIENT, Leak};
use crate::model::words::{
    brief, buffer_count, counted, element_type, grouped, human_bytes, name, without_numbers,
};
use crate::render::html::parts::table;

/// How many buffers of a leak are listed.
const BUFFERS: usize = 200;
/// How many references of a path are shown.
const PATH: usize = 24;
/// How many frames of an allocation stack are listed.
const FRAMES: usize = 40;

/// The buffers that the leak held, like ones in one row; nothing without any.
pub fn buffers(leak: &Leak) -> Markup {
    let listed = leak.buffers.iter().take(BUFFERS);
    let more = buffer_count(leak).saturating_sub(listed.len() as u64);
    let mut rows: Vec<Vec<&Buffer>> = Vec::new();
    for buffer in listed {
        match rows.iter_mut().find(|row| are_alike(row[0], buffer)) {
            Some(row) => row.push(buffer),
            None => rows.push(vec![buffer]),
        }
    }
    html! {
        @if !leak.buffers.is_empty() {
            h3 { "Held memory" }
            (table(
                None,
                &["Storage", "Holder", "Elements", "Device", "Address", "Path from the cycle"],
                rows.iter().map(|alike| row(leak, alike)),
            ))
            @if more > 0 {
                p.more { "and " (counted(more, "more buffer", "more buffers")) }
            }
        }
    }
}

/// True if two buffers differ in their addresses and in the indices on their paths only.
fn are_alike(a: &Buffer, b: &Buffer) -> bool {
    // However long a chain is that leads to them.
    let of_path = |buffer: &Buffer| {
        let mut edges: Vec<String> = buffer.path.iter().map(|it| without_numbers(it)).collect();
        edges.dedup();
        edges
    };
    let same = |it: &Buffer| Buffer {
        pointer: 0,
        node: None,
        path: Vec::new(),
        path_nodes: Vec::new(),
        ..it.clone()
    };
    of_path(a) == of_path(b) && same(a) == same(b)
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
    let path = |edge: &String| match alike.len() {
        1 => edge.clone(),
        _ => without_numbers(edge),
    };
    let edges: Vec<String> = alike[0].path.iter().map(path).collect();
    html! {
        @for run in edges.chunk_by(|a, b| a == b).take(PATH) {
            " " (name(&brief(&run[0]), 80))
            @if run.len() > 1 {
                " × " (grouped(run.len() as u64))
                @if alike.len() > 1 { " or more" }
            }
        }
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
