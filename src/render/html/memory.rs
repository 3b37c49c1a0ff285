//! The memory that a leak held, as a table.

use maud::{Markup, html};

use crate::model::report::{Buffer, GRADIENT, Leak};
use crate::model::words::{buffer_count, counted, element_type, human_bytes, name};
use crate::render::html::parts::table;

/// How many buffers of a leak are listed.
const BUFFERS: usize = 200;
/// How many frames of an allocation stack are listed.
const FRAMES: usize = 40;

/// The buffers that the leak held; nothing without any.
pub fn buffers(leak: &Leak) -> Markup {
    let listed = leak.buffers.iter().take(BUFFERS);
    let more = buffer_count(leak).saturating_sub(listed.len() as u64);
    html! {
        @if !leak.buffers.is_empty() {
            h3 { "Held memory" }
            (table(
                None,
                &["Storage", "Holder", "Elements", "Device", "Address", "Path from the cycle"],
                listed.map(|buffer| row(leak, buffer)),
            ))
            @if more > 0 {
                p.more { "and " (counted(more, "more buffer", "more buffers")) }
            }
        }
    }
}

fn row(leak: &Leak, buffer: &Buffer) -> Markup {
    let start = leak.cycle.get(buffer.from_step as usize);
    html! {
        tr {
            td.number { (human_bytes(buffer.bytes)) }
            td {
                (name(&buffer.type_name, 80))
                @if buffer.holders > 1 {
                    p.more { "and " (counted(buffer.holders - 1, "other object", "other objects")) }
                }
            }
            td.elements { (element_type(buffer)) }
            td { (name(&buffer.device, 40)) }
            td.address {
                code { (format_args!("{:#x}", buffer.pointer)) }
                @if buffer.confirmed {
                    " " span.confirmed title="confirmed by the CUDA driver" { "✓ driver" }
                }
            }
            td {
                @match buffer.kept_by.as_deref() {
                    None => {
                        @if let Some(step) = start { (name(&step.label, 80)) }
                        @for edge in buffer.path.iter().take(24) { " " (name(edge, 80)) }
                    }
                    Some(GRADIENT) => "a gradient, freed with the cycle",
                    Some(_) => "C++ refers to it too; freed with the cycle",
                }
                (allocation(buffer))
            }
        }
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
            details { summary { "allocated by" } pre { (frames.join("\n")) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn what_is_known_of_an_allocation_is_told() {
        let mut leak = samples::callback().leaks.remove(0);
        assert!(!buffers(&leak).0.contains("allocated by"));
        leak.buffers[0].allocation = vec!["train.py:7 <module>".into()];
        leak.buffers[0].has_grad_fn = true;
        let table = buffers(&leak).0;
        assert!(table.contains("allocated by</summary><pre>train.py:7 &lt;module&gt;</pre>"));
        assert!(table.contains("an autograd graph"));
    }
}
