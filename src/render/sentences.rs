//! The sentences about a leak: what it held, what to change, whose it is.

use std::collections::BTreeSet;

use crate::capture::is_library_file;
use crate::model::device_memory::on_device;
use crate::model::graph::{Node, NodeKind};
use crate::model::occurrences;
use crate::model::report::{Buffer, Cut, GRADIENT, Leak, Library, Location, Occurrence};
use crate::model::shared::{OTHERS, SETS};
use crate::model::words::{
    a, brief, buffer_count, counted, element_type, grouped, human_bytes, name, one_of, utc,
};

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
        true => format!("{bytes} {}", on_device(&name(&first.device, 16))),
        false => format!("{bytes} on several devices"),
    }
}

/// Bytes and cycles: `64.0 MiB held by a reference cycle of 2 objects`.
pub fn size_and_cycle(leak: &Leak) -> String {
    let bytes = human_bytes(leak.bytes_held);
    let objects = counted(leak.objects, "object", "objects");
    // What takes several cuts is more than one cycle.
    match (leak.count, leak.cuts.len()) {
        (0 | 1, 0 | 1) => format!("{bytes} held by a reference cycle of {objects}"),
        (0 | 1, _) => format!("{bytes} held by reference cycles of {objects}"),
        (count, 0 | 1) => {
            let count = grouped(count);
            format!("{bytes} held by {count} similar reference cycles ({objects})")
        }
        (count, _) => {
            let count = grouped(count);
            format!("{bytes} held by reference cycles, seen {count} times ({objects})")
        }
    }
}

/// The largest buffer and the cycle that holds it, as a sentence.
pub fn held(leak: &Leak) -> String {
    let summary = match leak.summary.as_str() {
        "" => "the cycle below".to_owned(),
        summary => format!("the cycle {}", name(&brief(summary), NAME)),
    };
    let what = match (leak.buffers.first(), buffer_count(leak)) {
        (None, _) => format!("memory, by {summary}."),
        (Some(only), 1) => format!("{}, by {summary}.", a(&describe(only))),
        (Some(largest), count) => format!(
            "{} buffers, the largest {}, by {summary}.",
            grouped(count),
            a(&describe(largest))
        ),
    };
    match leak.first_seen_bytes().filter(|_| !leak.buffers.is_empty()) {
        None => what,
        Some(first) => format!(
            "{what} That is what was seen first, {} of {}; what came later is only counted.",
            human_bytes(first),
            human_bytes(leak.bytes_held)
        ),
    }
}

/// A sentence about the other leaks that hold the same memory, if there are any; by their numbers if they are among
/// `all` that the same text describes.
pub fn also_held(leak: &Leak, all: &[Leak]) -> Option<String> {
    let others = leak.also_held_by();
    let who = match others.len() {
        0 => return None,
        1 => format!("{} holds", named(&others, all)),
        2..=4 => format!("{} hold", named(&others, all)),
        more => {
            let some_left_out = leak.shared.len() >= SETS
                || leak.shared.iter().any(|one| one.others.len() >= OTHERS);
            let at_least = if some_left_out { "at least " } else { "" };
            format!("{at_least}{more} other leaks hold")
        }
    };
    let all = match others.len() {
        1 => "both".to_owned(),
        some @ 2..=4 => format!("all {}", some + 1),
        _ => "all of them".to_owned(),
    };
    let freed = match leak.cuts.iter().all(|cut| cut.proven) {
        true => format!("; it is freed once {all} are fixed"),
        false => String::new(),
    };
    Some(format!("{who} some of this memory too{freed}."))
}

/// Leaks by their signatures, with their numbers if they are among `all`.
fn named(signatures: &[&str], all: &[Leak]) -> String {
    let numbered = signatures.iter().map(|&signature| {
        let number = all.iter().position(|other| other.signature == signature);
        let signature = name(signature, 16);
        number.map_or(signature.clone(), |it| format!("{} ({signature})", it + 1))
    });
    let numbered: Vec<String> = numbered.collect();
    let noun = if signatures.len() == 1 {
        "leak"
    } else {
        "leaks"
    };
    format!("{noun} {}", numbered.join(", "))
}

/// The signatures of the leaks whose reference to remove the same line of the program makes.
pub fn of_same_line<'a>(leak: &Leak, all: impl Iterator<Item = &'a Leak>) -> Vec<&'a str> {
    fn marked(leak: &Leak) -> Option<(&str, u32)> {
        let source = leak.source.as_ref()?;
        Some((&*source.file, source.marked))
    }
    let is_same = |other: &&Leak| {
        other.signature != leak.signature && marked(leak).is_some() && marked(other) == marked(leak)
    };
    let same = all.filter(is_same);
    same.map(|other| other.signature.as_str()).collect()
}

/// A sentence about these leaks, if there are any.
pub fn same_line(others: &[&str], all: &[Leak]) -> Option<String> {
    let who = match others.len() {
        0 => return None,
        1 => format!("{} is", named(others, all)),
        2..=4 => format!("{} are", named(others, all)),
        more => format!("{more} other leaks are"),
    };
    Some(format!("{who} closed at the line to change, too."))
}

/// What to do about garbage that no collection frees, if there is any.
pub fn frozen(leak: &Leak) -> Option<String> {
    let what = match leak.frozen {
        0 => return None,
        all if all == leak.count => "no collection frees this garbage".to_owned(),
        some => format!("no collection frees {} of these", grouped(some)),
    };
    Some(format!(
        "{what}: unreachable objects that `gc.freeze()` excluded from collections keep it. Call `gc.collect()` before \
         `gc.freeze()`, and freeze only what lives to the end; `gc.unfreeze()` and a collection free what is here now."
    ))
}

/// The line and what to change there: the pattern's advice, or else the references to remove.
pub fn fix(leak: &Leak) -> String {
    if advice_is_fix(leak) {
        // Of a library's leak the nearest line of the program need not be what to change.
        let place = match leak.library {
            Some(_) => None,
            None => place_to_change(leak),
        };
        let place = place.map_or_else(String::new, |place| format!("{place}: "));
        let doubt = match leak.is_library() || leak.cuts.iter().all(|cut| cut.proven) {
            true => "",
            false => " (It is not proven that this is enough.)",
        };
        let hint = match place.is_empty() {
            true => allocated(leak).unwrap_or_else(|| nowhere(leak).to_owned()),
            false => String::new(),
        };
        return format!(
            "{place}{}{doubt}{hint}",
            name(&brief(&leak.advice.text), 1000)
        );
    }
    if leak.cuts.is_empty() {
        return match leak.advice.text.as_str() {
            "" => "No single reference is proven to free it; see the cycle below.".to_owned(),
            advice => name(advice, 1000),
        };
    }
    let mut references: Vec<String> = leak.cuts.iter().map(reference).collect();
    references.dedup();
    let references = references.join(" and ");
    let place = match place_to_change(leak) {
        Some(place) => format!("{place}: "),
        None => String::new(),
    };
    if leak.cuts.iter().all(|cut| cut.proven) && leak.shared.is_empty() {
        format!("{place}Remove {references}; this frees the memory without a garbage collection.")
    } else if leak.cuts.iter().all(|cut| cut.proven) {
        format!("{place}Remove {references}.")
    } else {
        format!("{place}Look at {references} first; it is not proven that removing it is enough.")
    }
}

/// The line to change, but where a library's class stands, a user changes nothing. Where the line that makes the
/// reference is not known, it is one of a few, or a line of the code, or of the class, at one of its ends; of a class,
/// which may be long, that is said.
fn place_to_change(leak: &Leak) -> Option<String> {
    if let Some(cut) = leak.cuts.first().filter(|cut| !cut.candidates.is_empty()) {
        let places: Vec<String> = cut.candidates.iter().map(place).collect();
        return Some(one_of(&places));
    }
    let line = leak.line_to_change()?;
    if is_library_file(&line.file) {
        return None;
    }
    let here = |node: &&Node| node.location.as_ref() == Some(&line);
    if leak.source.is_none() && is_where_it_stopped(leak, &line) {
        return None;
    }
    let mut nodes = leak.graph.nodes.iter().filter(here);
    let first = nodes.next().filter(|_| leak.source.is_none());
    let is_object = |node: &Node| node.kind == NodeKind::Object;
    let class = first.filter(|node| is_object(node) && nodes.all(is_object));
    let stores = leak.cuts.first().and_then(|cut| cut.in_class.as_ref());
    if let Some(class) = stores.filter(|_| leak.source.is_none()) {
        return Some(format!(
            "{}, in class `{}`",
            place(&line),
            name(class, NAME)
        ));
    }
    Some(match class {
        Some(node) => {
            let class = node.type_name.rsplit('.').next().unwrap_or_default();
            // PyTorch makes a class of this name for the contexts of each `autograd.Function`.
            let class = match leak.pattern.as_deref() {
                Some("autograd-context-kept-both-ways") => {
                    class.strip_suffix("Backward").unwrap_or(class)
                }
                _ => class,
            };
            format!("{}, in class `{}`", place(&line), name(class, NAME))
        }
        None => place(&line),
    })
}

/// True for the line that a function had come to, or that raised an exception: it stored nothing.
pub fn is_where_it_stopped(leak: &Leak, line: &Location) -> bool {
    let here = |node: &&Node| node.location.as_ref() == Some(line);
    let mut nodes = leak.graph.nodes.iter().filter(here).peekable();
    let is_stop = |node: &Node| node.label == "traceback" || node.label.starts_with("frame of ");
    nodes.peek().is_some() && nodes.all(is_stop)
}

/// True if there is advice, which says more than the references to remove.
pub fn advice_is_fix(leak: &Leak) -> bool {
    let is_about_something = leak.pattern.is_some() || leak.is_library() || !leak.cuts.is_empty();
    is_about_something && !leak.advice.text.is_empty()
}

/// Where what the reference leads to was allocated, if that is a line of the program's that is known.
fn allocated(leak: &Leak) -> Option<String> {
    let target = leak.cuts.first()?.target;
    let step = leak.cycle.iter().find(|step| step.node == Some(target))?;
    let line = step.allocated_at.as_ref()?;
    let is_own = !is_library_file(&line.file) && !line.file.starts_with('<');
    let kind = step.type_name.rsplit('.').next().unwrap_or_default();
    is_own.then(|| {
        format!(
            " (The {} was allocated at {}.)",
            name(kind, NAME),
            place(line)
        )
    })
}

/// A hint to run with `tracemalloc`, if no object of the cycle has a location, and some are of a kind that it traces in
/// every version of Python.
fn nowhere(leak: &Leak) -> &'static str {
    let nodes = &leak.graph.nodes;
    let mut kinds = leak
        .cycle
        .iter()
        .filter_map(|step| Some(nodes.get(step.node? as usize)?.kind));
    let known = leak.is_library()
        || leak.traced
        || !kinds.any(|kind| kind == NodeKind::Container)
        || leak
            .cycle
            .iter()
            .any(|step| step.location.is_some() || step.allocated_at.is_some());
    match known {
        true => "",
        false => " (Run with `python -X tracemalloc=8` to see where the objects were allocated.)",
    }
}

/// A library by name and version: `torch 2.11.0`.
pub fn with_version(library: &Library) -> String {
    let own = name(&library.name, NAME);
    match &library.version {
        Some(version) => format!("{own} {}", name(version, NAME)),
        None => own,
    }
}

/// The library that the leak belongs to and the known leak that it matches, or that neither is known.
pub fn whose(leak: &Leak) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(library) = &leak.library {
        let mut line = format!("In a library: {}", with_version(library));
        if let Some(location) = &library.your_line {
            line += &format!("; your nearest line: {}", place(location));
        }
        lines.push(line);
    }
    if leak.is_of_unknown_code() {
        lines.push(
            "Of the cycle's objects, those whose code is known are of libraries, but the code that made it could not \
             be determined."
                .to_owned(),
        );
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
        true => "the rest was held in C++, by its autograd graph (grad_fn) or otherwise",
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

/// A buffer in a few words: `torch.Tensor float32[4096, 4096] of 64.0 MiB on cuda:0`, or, if it is not all of its
/// storage, `torch.Tensor float32[2048] (8.0 KiB) in a storage of 16.0 KiB on cuda:0`.
pub fn describe(buffer: &Buffer) -> String {
    let of = match buffer.bytes_of_elements() {
        Some(bytes) if bytes != buffer.bytes => "in a storage of",
        _ => "of",
    };
    let others = match buffer.holders {
        0 | 1 => String::new(),
        holders => format!(
            ", shared with {}",
            counted(holders - 1, "other object", "other objects")
        ),
    };
    let kept_by = match buffer.kept_by.as_deref() {
        None => "",
        Some(GRADIENT) => ", a gradient",
        Some(_) => ", to which C++ also refers",
    };
    let lent = match buffer.lent {
        true => ", in memory that another object may still use",
        false => "",
    };
    format!(
        "{} {} {of} {} {}{others}{kept_by}{lent}",
        name(&buffer.type_name, NAME),
        element_type(buffer),
        human_bytes(buffer.bytes),
        on_device(&name(&buffer.device, NAME))
    )
}

pub fn place(location: &Location) -> String {
    name(&location.to_string(), NAME)
}

/// All occurrences in a phrase, `120 times in 100 collections, 60.0 GiB in total, until …`; `None` if
/// there was one collection or none, of which the report tells anyhow.
pub fn seen(leak: &Leak) -> Option<String> {
    let all = &leak.occurrences;
    let (first, last) = (all.first()?, all.last()?);
    let sum = |of: fn(&Occurrence) -> u64| occurrences::sum(all, of);
    let collections = sum(|seen| seen.collections);
    if collections < 2 {
        return None;
    }
    let processes: BTreeSet<_> = all
        .iter()
        .map(|seen| (&seen.host, seen.pid, seen.rank))
        .collect();
    let where_ = match processes.len() {
        1 => String::new(),
        several => format!(" of {several} processes"),
    };
    // Of those that were added up, only the latest time is known.
    let from = match first.collections {
        0 | 1 => format!("from {} to", utc(first.time)),
        _ => "until".to_owned(),
    };
    let times = occurrences::distinct(all, |seen| seen.count);
    // Of very many processes, the latest are kept.
    let times = match times < leak.count {
        true => format!(
            "{}, of which the latest {} are known in detail: they were",
            counted(leak.count, "time", "times"),
            grouped(times)
        ),
        false => counted(times, "time", "times"),
    };
    let looks = match all.iter().filter(|seen| seen.looked).count() as u64 {
        0 => String::new(),
        looks => format!(" and {}", counted(looks, "inspection", "inspections")),
    };
    Some(format!(
        "{times} in {} collections{looks}{where_}, {} in total, {from} {}",
        grouped(collections),
        human_bytes(occurrences::distinct(all, |seen| seen.bytes)),
        utc(last.time),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::source::SourceLines;

    #[test]
    fn leaks_of_one_line_are_said_to_be() {
        let leak = |signature: &str, line: u32| Leak {
            signature: signature.to_owned(),
            source: Some(SourceLines {
                file: "train.py".to_owned(),
                line,
                lines: Vec::new(),
                marked: line,
                start: 0,
                end: 0,
            }),
            ..Leak::default()
        };
        let all = [leak("one", 6), leak("other", 6), leak("third", 7)];
        let said = |leak: &Leak| same_line(&of_same_line(leak, all.iter()), &all);
        let words = "leak 2 (other) is closed at the line to change, too.";
        assert_eq!(said(&all[0]).as_deref(), Some(words));
        assert_eq!(said(&all[2]), None);
        let unknown = [Leak::default(), leak("one", 6)];
        assert!(of_same_line(&unknown[0], unknown.iter()).is_empty());
    }

    #[test]
    fn occurrences_are_added_up() {
        let times = |time: u32, pid| Occurrence {
            time: f64::from(time),
            collections: 1,
            count: 2,
            bytes: 10,
            pid,
            ..Occurrence::default()
        };
        let leak = |occurrences: &[Occurrence]| Leak {
            count: occurrences::sum(occurrences, |one| one.count),
            occurrences: occurrences.to_vec(),
            ..Leak::default()
        };
        let mut all: Vec<_> = (0..1000).map(|time| times(time, 1)).collect();
        let phrase = seen(&leak(&all)).unwrap_or_default();
        assert!(
            phrase.starts_with("2,000 times in 1,000 collections, "),
            "{phrase}"
        );
        all.push(times(2000, 2));
        let phrase = seen(&leak(&all)).unwrap_or_default();
        assert!(phrase.contains("collections of 2 processes"), "{phrase}");
        let of_more = Leak {
            count: 5000,
            ..leak(&all)
        };
        let phrase = seen(&of_more).unwrap_or_default();
        assert!(
            phrase.starts_with("5,000 times, of which the latest 2,002 are known in detail: they"),
            "{phrase}"
        );
        assert_eq!(seen(&leak(&[])), None);
        assert_eq!(seen(&leak(&[times(1, 1)])), None);
    }
}
