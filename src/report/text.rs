//! The leak trace: a report as text for a terminal, narrow and in the order in which it is needed.

use super::lines::{Ink, Lines, WIDTH};
use super::model::{Buffer, Collection, Cut, Leak, Location, Process, Report, Step};
use super::occurrences;
use super::words::{
    buffer_count, counted, cut_of, element_type, grouped, human_bytes, name, place_within,
    shortened, steps_before_gap, utc, without_indices,
};
use crate::diagnose::patterns::PATTERNS;

/// Names longer than this are shortened in their middle.
const NAME: usize = 240;
/// Objects of the drawing get at most so much of a line, so that their places stand in a column.
const LABEL: usize = 56;
/// What stands before a reference in the drawing, and before what marks it, is this wide.
const MARGIN: usize = 9;
/// How many ways to buffers are shown from their beginning.
const BUFFERS_WITH_PATH: usize = 4;
/// How many kinds of buffers are shown at all.
const BUFFERS: usize = 16;
/// How many frames of an allocation's stack are shown.
const FRAMES: usize = 3;
/// How many references of a way to a buffer are shown.
const PATH: usize = 12;

/// The whole report as plain text, to print or to log: [`colored_trace`] without colour.
pub fn trace(report: &Report) -> String {
    colored_trace(report, false)
}

/// The whole report as text, with the escape sequences for colours if `color`.
///
/// Each leak begins with lines that need no knowledge of this tool: how much is held, and what to
/// change in which line. What is held by what, the cycle and the ways to the buffers follow, with
/// the reference to remove underlined. Names of the program under test cannot break a line, make
/// one longer than 100 characters or reach the terminal.
pub fn colored_trace(report: &Report, color: bool) -> String {
    let mut out = Lines::new(color);
    out.wrapped(Ink::Plain, "", &headline(report));
    out.wrapped(Ink::Plain, "", &circumstances(report));
    for (index, leak) in report.leaks.iter().enumerate() {
        out.line("");
        out.inked(&[
            (
                Ink::Strong,
                &format!("LEAK {} of {}", index + 1, report.leaks.len()),
            ),
            (Ink::Plain, " · "),
            (Ink::Strong, &title(leak)),
        ]);
        draw(&mut out, leak);
    }
    if !report.notes.is_empty() {
        out.line("");
    }
    for note in &report.notes {
        out.wrapped(Ink::Strong, "Note: ", &name(note, 1000));
    }
    out.into_text()
}

/// The leak in one line, for a log: bytes, how often, the cycle, and where to cut it.
pub fn one_line(leak: &Leak) -> String {
    let mut line = size_and_cycle(leak);
    if !leak.summary.is_empty() {
        line += &format!(": {}", name(&leak.summary, NAME));
    }
    if let Some(cut) = leak.cuts.first() {
        let verb = if cut.proven { "cut" } else { "look at" };
        line += &format!("; {verb} {}", reference(cut));
        if let Some(location) = &cut.location {
            line += &format!(" ({})", place(location));
        }
        if leak.cuts.len() > 1 {
            line += &format!(" and {} more", leak.cuts.len() - 1);
        }
    }
    line
}

/// What the report says, in a sentence.
fn headline(report: &Report) -> String {
    let tool = name(&report.tool, NAME);
    match report.leaks.len() as u64 {
        0 => format!(
            "{tool}: no leaks; none of {} held a tensor or other buffer.",
            counted(
                report.collection.garbage_objects,
                "unreachable object",
                "unreachable objects"
            )
        ),
        count => {
            let bytes = report
                .leaks
                .iter()
                .fold(0, |sum: u64, l| sum.saturating_add(l.bytes_held));
            format!(
                "{tool}: {} held {}.",
                counted(count, "leak", "leaks"),
                human_bytes(bytes)
            )
        }
    }
}

/// When, where and by what the garbage was looked at, in a sentence.
fn circumstances(report: &Report) -> String {
    format!(
        "Found at {} by {}, in {}.",
        utc(report.time),
        occasion(&report.collection),
        process(&report.process)
    )
}

/// What made cyclescope look, as a noun: `a garbage collection of generation 2`.
pub(super) fn occasion(collection: &Collection) -> String {
    let trigger = match collection.trigger.as_str() {
        "watch" => "a garbage collection".to_owned(),
        "find" => "an explicit check".to_owned(),
        "exit" => "the check at exit".to_owned(),
        other => name(other, NAME),
    };
    match collection.generation {
        Some(generation) => format!("{trigger} of generation {generation}"),
        None => trigger,
    }
}

fn process(process: &Process) -> String {
    let mut parts = vec![name(&process.program, NAME), format!("pid {}", process.pid)];
    parts.extend(process.rank.map(|rank| format!("rank {rank}")));
    parts.push(format!("host {}", name(&process.host, NAME)));
    parts.push(format!("Python {}", name(&process.python, NAME)));
    for (framework, version) in process.frameworks.iter().take(20) {
        parts.push(format!("{} {}", name(framework, NAME), name(version, NAME)));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// How much is held where and how often, what its release freed, and the signature.
pub(super) fn title(leak: &Leak) -> String {
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
pub(super) fn size_and_device(leak: &Leak) -> String {
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

/// How much is held by how many cycles: `64.0 MiB held by a reference cycle of 2 objects`.
pub(super) fn size_and_cycle(leak: &Leak) -> String {
    let bytes = human_bytes(leak.bytes_held);
    let objects = counted(leak.objects, "object", "objects");
    match leak.count {
        0 | 1 => format!("{bytes} held by a reference cycle of {objects}"),
        count => format!(
            "{bytes} held by {} reference cycles alike, of {objects}",
            grouped(count)
        ),
    }
}

/// Everything about a leak after its title, as plain text.
pub(super) fn body(leak: &Leak) -> String {
    let mut out = Lines::new(false);
    draw(&mut out, leak);
    out.into_text()
}

fn draw(out: &mut Lines, leak: &Leak) {
    out.wrapped(Ink::Strong, "  Fix:  ", &fix(leak));
    out.wrapped(Ink::Strong, "  Held: ", &held(leak));
    if let Some(seen) = occurrences::in_words(&leak.occurrences) {
        out.wrapped(Ink::Strong, "  Seen: ", &format!("{seen}."));
    }
    for line in whose(leak) {
        out.wrapped(Ink::Plain, "  ", &line);
    }
    if let Some(freed) = freed_beyond_held(leak) {
        out.wrapped(Ink::Plain, "  Freed: ", &freed);
    }
    draw_cycle(out, leak);
    draw_buffers(out, leak);
    draw_other_cuts(out, leak);
    give_advice(out, leak);
}

/// Whose leak it is, if not the program's own, and what is known of it.
fn whose(leak: &Leak) -> Vec<String> {
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
                "Known: gone in {} {}",
                name(&known.library, NAME),
                name(version, NAME)
            ),
            None => format!(
                "Known: seen in {} {}",
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

/// That more was freed than the tensors held, in a sentence, if so.
pub(super) fn freed_beyond_held(leak: &Leak) -> Option<String> {
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
        false => "what held the rest is not known",
    };
    Some(format!(
        "{} although the {noun} {verb} {}: {rest}.",
        human_bytes(freed),
        human_bytes(leak.bytes_held)
    ))
}

/// What is held by what, in a sentence.
pub(super) fn held(leak: &Leak) -> String {
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

/// What to change in which line: the pattern's advice, or else the references to remove.
pub(super) fn fix(leak: &Leak) -> String {
    if advice_is_fix(leak) {
        let cut = leak.cuts.first().and_then(|cut| cut.location.as_ref());
        let own = leak.library.as_ref().map(|library| &library.your_line);
        let place = own.map_or(cut, Option::as_ref).map(place);
        let place = place.map_or_else(String::new, |place| format!("{place}: "));
        let doubt = match leak.is_library() || leak.cuts.iter().all(|cut| cut.proven) {
            true => "",
            false => " (That this is enough is not proven.)",
        };
        let hint = if place.is_empty() { nowhere(leak) } else { "" };
        return format!("{place}{}{doubt}{hint}", name(&leak.advice.text, 1000));
    }
    let Some(first) = leak.cuts.first() else {
        return match leak.advice.text.as_str() {
            "" => "no single reference is known to free it; read the cycle below.".to_owned(),
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
    if leak.cuts.iter().all(|cut| cut.proven) {
        format!("{place}remove {references}; the memory is then freed with its last user.")
    } else {
        format!("{place}look at {references} first; that removing it is enough is not proven.")
    }
}

/// What tells the line where no object of the cycle knows one, as a sentence to add.
fn nowhere(leak: &Leak) -> &'static str {
    let known = leak.is_library()
        || leak
            .cycle
            .iter()
            .any(|step| step.location.is_some() || step.allocated_at.is_some());
    match known {
        true => "",
        false => " (`python -X tracemalloc=8` tells the line that made the objects.)",
    }
}

/// True if the advice is sure enough to stand where the fix is told.
pub(super) fn advice_is_fix(leak: &Leak) -> bool {
    (leak.pattern.is_some() || leak.is_library()) && !leak.advice.text.is_empty()
}

/// A reference with its owner: `._callback of Model object`.
fn reference(cut: &Cut) -> String {
    format!("{} of {}", name(&cut.edge, NAME), name(&cut.owner, NAME))
}

/// The cycle and the ways from it to the buffers, without words around them.
pub(super) fn drawing(leak: &Leak) -> String {
    let mut out = Lines::new(false);
    draw_cycle(&mut out, leak);
    draw_buffers(&mut out, leak);
    draw_other_cuts(&mut out, leak);
    out.into_text()
}

fn draw_cycle(out: &mut Lines, leak: &Leak) {
    let Some(first) = leak.cycle.first() else {
        return;
    };
    out.line("");
    let column = leak
        .cycle
        .iter()
        .map(|step| describe_step(step).chars().count())
        .max()
        .unwrap_or(0);
    for (index, step) in leak.cycle.iter().enumerate() {
        let corner = if index == 0 { "  ╭→ " } else { "  │  " };
        let label = describe_step(step);
        match &step.location {
            Some(location) => {
                let label = format!("{label:column$}  ");
                let room = WIDTH - label.chars().count() - corner.chars().count();
                out.inked(&[
                    (Ink::Plain, corner),
                    (Ink::Plain, &label),
                    (Ink::Faint, &place_within(location, room)),
                ]);
            }
            None => out.line(format!("{corner}{label}")),
        }
        draw_allocation(out, "  │    ", step.allocated_at.as_ref(), &[]);
        draw_reference(out, "  │    ", &step.edge, cut_of(leak, step));
        if leak.cycle_omitted > 0 && index + 1 == steps_before_gap(leak) {
            let more = counted(leak.cycle_omitted, "more object", "more objects");
            out.line(format!("  │  ⋮ {more} on the way"));
            out.line("  │    ↓");
        }
    }
    out.line(format!("  ╰─ back to {}", name(&first.label, LABEL)));
}

/// A reference on a line of its own, underlined if it is one to remove.
fn draw_reference(out: &mut Lines, margin: &str, edge: &str, cut: Option<&Cut>) {
    let edge = name(edge, WIDTH - MARGIN);
    let Some(cut) = cut else {
        out.line(format!("{margin}↓ {edge}"));
        return;
    };
    let remark = if cut.proven {
        "cut here"
    } else {
        "look here first"
    };
    let room = WIDTH - MARGIN - remark.len() - 1;
    let line = "~".repeat(edge.chars().count().clamp(1, room));
    let arrow = format!("{margin}↓ ");
    out.inked(&[(Ink::Plain, &arrow), (Ink::Suspect, &edge)]);
    let blank = format!("{margin}  ");
    out.inked(&[
        (Ink::Plain, &blank),
        (Ink::Suspect, &format!("{line} {remark}")),
    ]);
}

/// The references to remove that the drawing does not show.
fn draw_other_cuts(out: &mut Lines, leak: &Leak) {
    let shown = |cut: &Cut| {
        let step = |step: &Step| step.node == cut.from && step.edge == cut.edge;
        leak.cycle.iter().any(step)
            || kinds_of_buffers(leak)
                .iter()
                .take(BUFFERS_WITH_PATH)
                .any(|(buffer, _)| {
                    (0..buffer.path.len())
                        .any(|index| path_cut(leak, buffer, index).is_some_and(|c| c == cut))
                })
    };
    let hidden: Vec<&Cut> = leak
        .cuts
        .iter()
        .filter(|cut| !shown(cut))
        .take(16)
        .collect();
    if !hidden.is_empty() {
        out.line("");
    }
    let alike =
        |a: &Cut, b: &Cut| (&a.owner, &a.edge, &a.location) == (&b.owner, &b.edge, &b.location);
    for (index, cut) in hidden.iter().enumerate() {
        if hidden[..index].iter().any(|other| alike(other, cut)) {
            continue;
        }
        let place = cut.location.as_ref().map(|at| format!(" at {}", place(at)));
        let count = hidden.iter().filter(|other| alike(other, cut)).count();
        let times = match count {
            1 => String::new(),
            _ => format!(", in {count} objects"),
        };
        let also = if leak.cuts.len() > 1 { "also " } else { "" };
        let verb = if cut.proven { "cut" } else { "look at" };
        let sentence = format!(
            "{also}{verb} {}{times}{}",
            reference(cut),
            place.unwrap_or_default()
        );
        out.wrapped(Ink::Suspect, "  ~ ", &sentence);
    }
}

/// Where an object, or its memory, was allocated: the stack if that is known, or else the line.
fn draw_allocation(out: &mut Lines, indent: &str, at: Option<&Location>, stack: &[String]) {
    if let (Some(at), true) = (at, stack.is_empty()) {
        let head = format!("{indent}allocated at ");
        let room = WIDTH - head.chars().count();
        out.inked(&[(Ink::Faint, &head), (Ink::Faint, &place_within(at, room))]);
    }
    for (index, frame) in stack.iter().take(FRAMES).enumerate() {
        let word = if index == 0 {
            "allocated at"
        } else {
            "called from"
        };
        let head = format!("{indent}{word} ");
        let room = WIDTH - head.chars().count();
        out.inked(&[
            (Ink::Faint, &head),
            (Ink::Faint, &shortened(&name(frame, NAME), room)),
        ]);
    }
}

/// An object as the drawing names it: label, and type unless the label says it.
fn describe_step(step: &Step) -> String {
    let mut line = name(&step.label, LABEL);
    if !step.label.contains(&step.type_name) {
        line += &format!(" ({})", name(&step.type_name, LABEL));
    }
    shortened(&line, LABEL).into_owned()
}

fn place(location: &Location) -> String {
    name(&location.to_string(), NAME)
}

/// The buffers with how many others there are that look the same and are reached in the same way.
fn kinds_of_buffers(leak: &Leak) -> Vec<(&Buffer, u64)> {
    let same = |a: &Buffer, b: &Buffer| {
        a.from_step == b.from_step
            && a.confirmed == b.confirmed
            && describe(a) == describe(b)
            && a.path.len() == b.path.len()
            && a.path
                .iter()
                .zip(&b.path)
                .all(|(a, b)| without_indices(a) == without_indices(b))
    };
    let mut kinds: Vec<(&Buffer, u64)> = Vec::new();
    for buffer in &leak.buffers {
        match kinds.iter_mut().find(|(first, _)| same(first, buffer)) {
            Some((_, count)) => *count += 1,
            None => kinds.push((buffer, 1)),
        }
    }
    kinds
}

fn draw_buffers(out: &mut Lines, leak: &Leak) {
    let kinds = kinds_of_buffers(leak);
    for (index, &(buffer, count)) in kinds.iter().take(BUFFERS).enumerate() {
        if index < BUFFERS_WITH_PATH {
            out.line("");
            draw_path(out, leak, buffer, count > 1);
        }
        let mut what = describe(buffer);
        if count > 1 {
            what = format!("{} × {what}", grouped(count));
        }
        if buffer.confirmed {
            what += " (confirmed by the CUDA driver)";
        }
        out.wrapped(Ink::Held, "    ■ ", &what);
        let at = buffer.allocated_at.as_ref();
        draw_allocation(out, "      ", at, &buffer.allocation);
    }
    let more: u64 = kinds.iter().skip(BUFFERS).map(|(_, count)| count).sum();
    let more = more.saturating_add(leak.buffers_omitted);
    if more > 0 {
        let more = counted(more, "more buffer", "more buffers");
        out.wrapped(Ink::Held, "    ■ ", &format!("and {more}"));
    }
}

/// The cut, if any, of one reference on the way to a buffer.
fn path_cut<'a>(leak: &'a Leak, buffer: &Buffer, index: usize) -> Option<&'a Cut> {
    let from = match index.checked_sub(1) {
        Some(previous) => *buffer.path_nodes.get(previous)?,
        None => leak.cycle.get(buffer.from_step as usize)?.node,
    };
    let edge = buffer.path.get(index)?;
    leak.cuts
        .iter()
        .find(|cut| cut.from == from && cut.edge == *edge)
}

/// The references from the cycle to the buffer, one a line, each followed by what it leads to.
/// If `several` buffers are reached in this way, their indices differ and are written `[x]`.
fn draw_path(out: &mut Lines, leak: &Leak, buffer: &Buffer, several: bool) {
    let Some(start) = leak.cycle.get(buffer.from_step as usize) else {
        return;
    };
    if buffer.path.is_empty() && buffer.type_name != start.type_name {
        out.line("  Another cycle of this leak holds");
        return;
    }
    let alike = leak
        .cycle
        .iter()
        .filter(|step| step.label == start.label)
        .count();
    let mut owner = name(&start.label, LABEL);
    if alike > 1 {
        owner += &format!(" (step {})", buffer.from_step + 1);
    }
    if buffer.path.is_empty() {
        out.line(format!("  {owner} is"));
        return;
    }
    out.line(format!("  {owner} holds"));
    let length = buffer.path.len();
    let gap = if length > PATH + 1 {
        PATH / 2..length - PATH / 2
    } else {
        0..0
    };
    for (index, edge) in buffer.path.iter().enumerate() {
        if gap.contains(&index) {
            if index == gap.start {
                let more = gap.len() as u64;
                out.line(format!(
                    "    ⋮ {}",
                    counted(more, "more reference", "more references")
                ));
            }
            continue;
        }
        let cut = path_cut(leak, buffer, index);
        match several {
            true => draw_reference(out, "    ", &without_indices(edge), cut),
            false => draw_reference(out, "    ", edge, cut),
        }
        // Of a second occurrence only the references are known, not what lies between them.
        let next = buffer
            .path_nodes
            .get(index)
            .and_then(|&node| leak.graph.nodes.get(node as usize));
        if let Some(next) = next.filter(|_| index + 1 < length) {
            out.line(format!("    {}", name(&next.label, NAME)));
        }
    }
}

/// A buffer in a few words: `torch.Tensor float32[4096, 4096] of 64.0 MiB on cuda:0`.
fn describe(buffer: &Buffer) -> String {
    format!(
        "{} {} of {} on {}",
        name(&buffer.type_name, NAME),
        element_type(buffer),
        human_bytes(buffer.bytes),
        name(&buffer.device, NAME)
    )
}

fn give_advice(out: &mut Lines, leak: &Leak) {
    let advice = &leak.advice;
    let pattern = leak
        .pattern
        .as_ref()
        .filter(|pattern| PATTERNS.iter().any(|known| known.name == **pattern));
    let code = advice.before.is_some() || advice.after.is_some();
    // Where the fix names the references alone, what else is known of them.
    let text = !advice_is_fix(leak) && !leak.cuts.is_empty() && !advice.text.is_empty();
    if code || text || pattern.is_some() {
        out.line("");
    }
    if text {
        out.wrapped(Ink::Plain, "  ", &name(&advice.text, 2000));
    }
    for (word, code) in [("before", &advice.before), ("after", &advice.after)] {
        let Some(code) = code else { continue };
        for (index, line) in code.lines().take(40).enumerate() {
            let word = if index == 0 { word } else { "" };
            let line = line.replace('\t', "    ");
            let line = name(&line, WIDTH - 13);
            out.inked(&[
                (Ink::Strong, &format!("    {word:6} │ ")),
                (Ink::Plain, &line),
            ]);
        }
    }
    if let Some(pattern) = pattern {
        out.line(format!("  Why:  python -m cyclescope explain {pattern}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::super::words::printable;
    use super::*;

    #[test]
    fn trace_of_a_callback_cycle() {
        insta::assert_snapshot!(trace(&samples::callback()));
    }

    #[test]
    fn trace_of_two_leaks() {
        insta::assert_snapshot!(trace(&samples::linked_nodes_and_exception()));
    }

    #[test]
    fn trace_of_a_million_objects() {
        insta::assert_snapshot!(trace(&samples::million_ring()));
    }

    #[test]
    fn trace_without_leaks() {
        insta::assert_snapshot!(trace(&samples::no_leaks()));
    }

    #[test]
    fn the_first_three_lines_say_what_holds_and_what_to_change() {
        let text = trace(&samples::callback());
        let lines: Vec<&str> = text
            .lines()
            .skip_while(|l| !l.starts_with("LEAK"))
            .take(3)
            .collect();
        assert!(lines[0].contains("64.0 MiB"), "{}", lines[0]);
        assert!(lines[1].starts_with("  Fix:  train/awaitable.py:31: "));
        assert!(lines[1].contains("`_callback`"), "{}", lines[1]);
    }

    #[test]
    fn the_reference_that_is_cut_is_underlined_and_no_other() {
        let text = trace(&samples::callback());
        let lines: Vec<&str> = text.lines().collect();
        let marked: Vec<usize> = (0..lines.len())
            .filter(|&index| lines[index].contains('~'))
            .collect();
        let [mark] = marked[..] else {
            panic!("{text}");
        };
        assert_eq!(lines[mark - 1], "  │    ↓ ._callback");
        assert_eq!(lines[mark], "  │      ~~~~~~~~~~ cut here");
    }

    #[test]
    fn a_cut_outside_of_the_cycle_is_underlined_on_the_way_to_the_buffer() {
        let mut report = samples::callback();
        let cut = &mut report.leaks[0].cuts[0];
        (cut.edge, cut.from, cut.to) = ("._tensor".into(), 2, 3);
        let text = trace(&report);
        assert!(
            text.contains("    ↓ ._tensor\n      ~~~~~~~~ cut here\n"),
            "{text}"
        );
        report.leaks[0].cuts[0].from = 4;
        let text = trace(&report);
        assert!(!text.contains("~~~"), "{text}");
        assert!(text.contains("  ~ cut ._tensor of AwaitableTensorWithViewCallBack object"));
    }

    #[test]
    fn buffers_alike_are_one() {
        let mut report = samples::callback();
        let buffer = report.leaks[0].buffers[0].clone();
        for index in 0..3 {
            let edge = format!("[{index}]");
            let path = vec!["._tensor_awaitable".into(), edge];
            report.leaks[0].buffers.push(Buffer {
                path,
                ..buffer.clone()
            });
        }
        let text = trace(&report);
        assert_eq!(text.matches('■').count(), 2, "{text}");
        assert!(text.contains("↓ [x]\n    ■ 3 × torch.Tensor"), "{text}");
    }

    #[test]
    fn colour_changes_no_character() {
        for report in [
            samples::callback(),
            samples::hostile(),
            samples::million_ring(),
        ] {
            let colored = colored_trace(&report, true);
            assert!(colored.contains("\u{1b}["));
            let mut plain = colored;
            for code in ["0", "1", "2", "1;31", "33"] {
                plain = plain.replace(&format!("\u{1b}[{code}m"), "");
            }
            let text = trace(&report);
            assert!(!text.contains('\u{1b}'));
            assert_eq!(plain, text);
        }
    }

    #[test]
    fn what_is_not_proven_is_not_claimed() {
        let mut report = samples::callback();
        report.leaks[0].cuts[0].proven = false;
        report.leaks[0].buffers[0].confirmed = false;
        let text = trace(&report);
        assert!(text.contains("is not proven") && !text.contains("is then freed"));
        assert!(!text.contains("confirmed by"));
        assert!(one_line(&report.leaks[0]).contains("look at ._callback"));
    }

    #[test]
    fn one_line_is_one_line() {
        let leak = &samples::callback().leaks[0];
        assert_eq!(
            one_line(leak),
            "64.0 MiB held by a reference cycle of 2 objects: \
             AwaitableTensorWithViewCallBack._callback → <lambda>.self → \
             AwaitableTensorWithViewCallBack; cut ._callback of \
             AwaitableTensorWithViewCallBack object (train/awaitable.py:31)"
        );
        for leak in &samples::hostile().leaks {
            assert_eq!(one_line(leak).lines().count(), 1);
        }
    }

    #[test]
    fn hostile_names_cannot_break_the_lines() {
        let text = trace(&samples::hostile());
        assert!(
            text.chars()
                .all(|c| c == '\n' || printable(&c.to_string()) == c.to_string())
        );
        for report in [samples::hostile(), samples::callback(), samples::dangling()] {
            let text = trace(&report);
            let long = text.lines().find(|line| line.chars().count() > WIDTH);
            assert_eq!(long, None);
        }
        assert!(
            !text
                .lines()
                .any(|line| line.starts_with(samples::FORGED_LINE))
        );
    }

    #[test]
    fn indices_that_point_nowhere_are_survived() {
        let text = trace(&samples::dangling());
        assert!(text.contains("LEAK 1 of"));
    }

    #[test]
    fn the_autograd_graph_is_named_only_where_there_is_one() {
        let mut report = samples::callback();
        let leak = &mut report.leaks[0];
        // The rounding of the allocator is no graph.
        leak.bytes_freed = Some(leak.bytes_held + 4096);
        assert_eq!(freed_beyond_held(leak), None);
        leak.bytes_freed = Some(leak.bytes_held + (64 << 20));
        let words = freed_beyond_held(leak).unwrap_or_default();
        assert!(words.starts_with("128.0 MiB although the buffer holds 64.0 MiB: "));
        assert!(!words.contains("grad_fn"));
        leak.buffers[0].has_grad_fn = true;
        assert!(freed_beyond_held(leak).is_some_and(|words| words.contains("(grad_fn)")));
    }

    #[test]
    fn long_ways_are_shown_from_both_ends() {
        let mut report = samples::callback();
        let buffer = &mut report.leaks[0].buffers[0];
        buffer.path = (0..100).map(|i| format!("[{i}]")).collect();
        buffer.path_nodes = vec![2; 100];
        let text = trace(&report);
        assert!(
            text.contains("↓ [0]\n") && text.contains("↓ [99]\n") && !text.contains("↓ [50]\n")
        );
        let shown = text
            .lines()
            .filter(|l| l.trim_start().starts_with("↓ ["))
            .count();
        assert!(
            text.contains(&format!("⋮ {} more references", 100 - shown)),
            "{text}"
        );
    }
}
