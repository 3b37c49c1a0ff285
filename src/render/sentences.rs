//! What is told of a leak in sentences: what it held, what to change, whose it is.

use crate::model::report::{Buffer, Cut, Leak, Location};
use crate::model::words::{buffer_count, counted, element_type, grouped, human_bytes, name};

/// Names longer than this are shortened in their middle.
pub const NAME: usize = 240;

/// How much is held where and how often, what its release freed, and the signature.
pub fn title(leak: &Leak) -> String {
    let mut parts = vec![format!("{} held", size_and_device(leak))];
    if let Some(freed) = leak.bytes_freed {
        parts[0] += &format!(", {} freed", human_bytes(freed));
    }
    if leak.count > 1 {
        parts.push(format!("seen {} times", grouped(leak.count)));
    }
    if !leak.signature.is_empty() {
        parts.push(name(&leak.signature, 16));
    }
    parts.join(" · ")
}

/// `64.0 MiB on cuda:0`.
pub fn size_and_device(leak: &Leak) -> String {
    let bytes = human_bytes(leak.bytes_held);
    let Some(first) = leak.buffers.first() else {
        return bytes;
    };
    match leak
        .buffers
        .iter()
        .all(|buffer| buffer.device == first.device)
    {
        true => format!("{bytes} on {}", name(&first.device, 16)),
        false => format!("{bytes} on several devices"),
    }
}

/// Bytes and number of cycles: `64.0 MiB held by a reference cycle of 2 objects`.
pub fn size_and_cycle(leak: &Leak) -> String {
    let bytes = human_bytes(leak.bytes_held);
    let objects = counted(leak.objects, "object", "objects");
    match leak.count {
        0 | 1 => format!("{bytes} held by a reference cycle of {objects}"),
        count => format!(
            "{bytes} held by {} similar reference cycles ({objects})",
            grouped(count)
        ),
    }
}

/// The largest buffer and the cycle that holds it, as a sentence.
pub fn held(leak: &Leak) -> String {
    let summary = match leak.summary.as_str() {
        "" => "the cycle below".to_owned(),
        summary => format!("the cycle {}", name(summary, NAME)),
    };
    match (leak.buffers.first(), buffer_count(leak)) {
        (None, _) => format!("memory, by {summary}."),
        (Some(only), 1) => format!("a {}, by {summary}.", describe(only)),
        (Some(largest), count) => format!(
            "{} buffers, the largest a {}, by {summary}.",
            grouped(count),
            describe(largest)
        ),
    }
}

/// A sentence about the other leaks that hold the same memory, if there are any.
pub fn also_held(leak: &Leak) -> Option<String> {
    let others = &leak.also_held_by;
    let who = match others.len() {
        0 => return None,
        1 => format!("leak {} holds", name(&others[0], 16)),
        2..=4 => {
            let named: Vec<String> = others.iter().map(|other| name(other, 16)).collect();
            format!("leaks {} hold", named.join(", "))
        }
        more => format!("{more} other leaks hold"),
    };
    Some(format!(
        "{who} some of this memory too; it is freed once all of them are fixed."
    ))
}

/// The line and what to change there: the pattern's advice, or else the references to remove.
pub fn fix(leak: &Leak) -> String {
    if advice_is_fix(leak) {
        let cut = leak.cuts.first().and_then(|cut| cut.location.as_ref());
        let own = leak.library.as_ref().map(|library| &library.your_line);
        let place = own.map_or(cut, Option::as_ref).map(place);
        let place = place.map_or_else(String::new, |place| format!("{place}: "));
        let doubt = match leak.is_library() || leak.cuts.iter().all(|cut| cut.proven) {
            true => "",
            false => " (It is not proven that this is enough.)",
        };
        let hint = if place.is_empty() { nowhere(leak) } else { "" };
        return format!("{place}{}{doubt}{hint}", name(&leak.advice.text, 1000));
    }
    let Some(first) = leak.cuts.first() else {
        return match leak.advice.text.as_str() {
            "" => "no single reference is proven to free it; see the cycle below.".to_owned(),
            advice => name(advice, 1000),
        };
    };
    let references: Vec<String> = leak.cuts.iter().take(4).map(reference).collect();
    let mut references = references.join(" and ");
    if leak.cuts.len() > 4 {
        references += &format!(" and {} more", leak.cuts.len() - 4);
    }
    let place = match &first.location {
        Some(location) => format!("in {}, ", place(location)),
        None => String::new(),
    };
    if leak.cuts.iter().all(|cut| cut.proven) && leak.also_held_by.is_empty() {
        format!("{place}remove {references}; this frees the memory without a garbage collection.")
    } else if leak.cuts.iter().all(|cut| cut.proven) {
        format!("{place}remove {references}.")
    } else {
        format!("{place}look at {references} first; it is not proven that removing it is enough.")
    }
}

/// True if the advice is certain enough to be shown as the fix.
pub fn advice_is_fix(leak: &Leak) -> bool {
    (leak.pattern.is_some() || leak.is_library()) && !leak.advice.text.is_empty()
}

/// A hint to run with `tracemalloc`, if no object of the cycle has a location.
fn nowhere(leak: &Leak) -> &'static str {
    let known = leak.is_library()
        || leak
            .cycle
            .iter()
            .any(|step| step.location.is_some() || step.allocated_at.is_some());
    match known {
        true => "",
        false => " (Run with `python -X tracemalloc=8` to see where the objects were allocated.)",
    }
}

/// The library that the leak belongs to, and the known leak that it matches.
pub fn whose(leak: &Leak) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(library) = &leak.library {
        let mut line = format!("In a library: {}", name(&library.name, NAME));
        if let Some(version) = &library.version {
            line += &format!(" {}", name(version, NAME));
        }
        if let Some(location) = &library.your_line {
            line += &format!("; your nearest line: {}", place(location));
        }
        lines.push(line);
    }
    if let Some(known) = &leak.known {
        let mut line = match &known.fixed_in {
            Some(version) => format!(
                "Known: fixed in {} {}",
                name(&known.library, NAME),
                name(version, NAME)
            ),
            None => format!(
                "Known: occurs in {} {}",
                name(&known.library, NAME),
                name(&known.versions.join(", "), NAME)
            ),
        };
        if let Some(link) = &known.link {
            line += &format!(", {}", name(link, NAME));
        }
        lines.push(line);
    }
    lines
}

/// A sentence if more memory was freed than the tensors held.
pub fn freed_beyond_held(leak: &Leak) -> Option<String> {
    let freed = leak.bytes_freed?;
    // PyTorch's allocator rounds a small block up to 512 bytes, and leaves up to 1 MiB unsplit at the
    // end of a large one.
    let rounding = |bytes: u64| if bytes <= 1 << 20 { 512 } else { 1 << 20 };
    let slack: u64 = leak.buffers.iter().map(|b| rounding(b.bytes)).sum();
    let slack = slack.saturating_add(leak.buffers_omitted.saturating_mul(1 << 20));
    if freed <= leak.bytes_held.saturating_add(slack) {
        return None;
    }
    let (noun, verb) = match buffer_count(leak) {
        1 => ("buffer", "holds"),
        _ => ("buffers", "hold"),
    };
    let rest = match leak.buffers.iter().any(|buffer| buffer.has_grad_fn) {
        true => "the rest was held by its autograd graph (grad_fn)",
        false => "it is unknown what held the rest",
    };
    Some(format!(
        "{} although the {noun} {verb} {}: {rest}.",
        human_bytes(freed),
        human_bytes(leak.bytes_held)
    ))
}

/// A reference with its owner: `._callback of Model object`.
pub fn reference(cut: &Cut) -> String {
    format!("{} of {}", name(&cut.edge, NAME), name(&cut.owner, NAME))
}

/// A buffer in a few words: `torch.Tensor float32[4096, 4096] of 64.0 MiB on cuda:0`.
pub fn describe(buffer: &Buffer) -> String {
    format!(
        "{} {} of {} on {}",
        name(&buffer.type_name, NAME),
        element_type(buffer),
        human_bytes(buffer.bytes),
        name(&buffer.device, NAME)
    )
}

pub fn place(location: &Location) -> String {
    name(&location.to_string(), NAME)
}
