//! The memory that a leak held, as a table.

use crate::model::report::{Buffer, Leak};
use crate::model::words::{buffer_count, counted, element_type, human_bytes, markup, name};
use crate::render::html::shown;

/// How many buffers of a leak are listed.
const BUFFERS: usize = 200;
/// How many frames of an allocation stack are listed.
const FRAMES: usize = 40;

pub fn buffers(leak: &Leak) -> String {
    if leak.buffers.is_empty() {
        return String::new();
    }
    let rows: String = leak
        .buffers
        .iter()
        .take(BUFFERS)
        .map(|b| row(leak, b))
        .collect();
    let more = buffer_count(leak).saturating_sub(leak.buffers.len().min(BUFFERS) as u64);
    let more = match more {
        0 => String::new(),
        more => format!(
            "<p class=\"more\">and {}</p>\n",
            counted(more, "more buffer", "more buffers")
        ),
    };
    format!(
        "<h3>Held memory</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>Size</th><th>Holder</th>\
         <th>Elements</th><th>Device</th><th>Address</th><th>Path from the cycle</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n{more}"
    )
}

fn row(leak: &Leak, buffer: &Buffer) -> String {
    let start = leak
        .cycle
        .get(buffer.from_step as usize)
        .map(|step| step.label.as_str());
    let way: String = buffer
        .path
        .iter()
        .take(24)
        .map(|edge| format!(" {}", name(edge, 80)))
        .collect();
    let confirmed = match buffer.confirmed {
        true => " <span class=\"confirmed\" title=\"confirmed by the CUDA driver\">✓ driver</span>",
        false => "",
    };
    format!(
        "<tr><td class=\"number\">{}</td><td>{}</td><td class=\"elements\">{}</td><td>{}</td>\
         <td class=\"address\"><code>{:#x}</code>{confirmed}</td><td>{}{}</td></tr>\n",
        human_bytes(buffer.bytes),
        markup(&name(&buffer.type_name, 80)),
        markup(&element_type(buffer)),
        markup(&name(&buffer.device, 40)),
        buffer.pointer,
        markup(&format!("{}{way}", name(start.unwrap_or_default(), 80))),
        allocation(buffer),
    )
}

/// Where the memory was allocated, as far as that is known.
fn allocation(buffer: &Buffer) -> String {
    let mut out = String::new();
    if buffer.has_grad_fn {
        out += "<p class=\"more\">with an autograd graph behind it</p>";
    }
    if let Some(at) = &buffer.allocated_at {
        out += &format!(
            "<p class=\"more\">made at {}</p>",
            shown(&at.to_string(), 300)
        );
    }
    if !buffer.allocation.is_empty() {
        let frames: Vec<String> = buffer
            .allocation
            .iter()
            .take(FRAMES)
            .map(|frame| shown(frame, 300))
            .collect();
        out += &format!(
            "<details><summary>allocated by</summary><pre>{}</pre></details>",
            frames.join("\n")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn what_is_known_of_an_allocation_is_told() {
        let mut leak = samples::callback().leaks.remove(0);
        assert!(!buffers(&leak).contains("allocated by"));
        leak.buffers[0].allocation = vec!["train.py:7 <module>".into()];
        leak.buffers[0].has_grad_fn = true;
        let table = buffers(&leak);
        assert!(table.contains("allocated by</summary><pre>train.py:7 &lt;module&gt;</pre>"));
        assert!(table.contains("an autograd graph"));
    }
}
