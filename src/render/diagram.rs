//! A leak as a diagram of characters: the cycle, and the paths from it to the memory.

use super::lines::{Ink, Lines, WIDTH};
use super::sentences::{NAME, describe, place, reference};
use crate::model::report::{Buffer, Cut, Leak, Location, Step};
use crate::model::words::{
    columns, counted, cut_of, grouped, name, padded, place_within, shortened, steps_before_gap,
    without_numbers,
};

/// Objects of the diagram get at most so much of a line, so that their places stand in a column.
const LABEL: usize = 56;
/// What stands before a reference in the diagram, and before what marks it, is this wide.
const MARGIN: usize = 9;
/// Maximum number of paths to buffers that are shown in full.
const BUFFERS_WITH_PATH: usize = 4;
/// How many kinds of buffers are shown at all.
const BUFFERS: usize = 16;
/// How many frames of an allocation's stack are shown.
const FRAMES: usize = 3;
/// Number of kinds of other cuts that are written.
const KINDS_OF_CUTS: usize = 16;
/// How many references of a path to a buffer are shown.
const PATH: usize = 12;

/// The diagram as plain text.
pub fn diagram(leak: &Leak) -> String {
    let mut out = Lines::new(false);
    draw(&mut out, leak);
    out.into_text()
}

/// The cycle, the buffers, and the references to remove that neither shows.
pub fn draw(out: &mut Lines, leak: &Leak) {
    draw_cycle(out, leak);
    draw_buffers(out, leak);
    draw_other_cuts(out, leak);
}

fn draw_cycle(out: &mut Lines, leak: &Leak) {
    let Some(first) = leak.cycle.first() else {
        return;
    };
    out.line("");
    let column = leak
        .cycle
        .iter()
        .map(|step| columns(&describe_step(step)))
        .max()
        .unwrap_or(0);
    for (index, step) in leak.cycle.iter().enumerate() {
        let corner = if index == 0 { "  ╭→ " } else { "  │  " };
        let label = describe_step(step);
        match &step.location {
            Some(location) => {
                let label = padded(&label, column) + "  ";
                let room = WIDTH - columns(&label) - columns(corner);
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
    let line = "~".repeat(columns(&edge).clamp(1, room));
    let arrow = format!("{margin}↓ ");
    out.inked(&[(Ink::Plain, &arrow), (Ink::Suspect, &edge)]);
    let blank = format!("{margin}  ");
    out.inked(&[
        (Ink::Plain, &blank),
        (Ink::Suspect, &format!("{line} {remark}")),
    ]);
}

/// Where an object, or its memory, was allocated: the stack if that is known, or else the line.
fn draw_allocation(out: &mut Lines, indent: &str, at: Option<&Location>, stack: &[String]) {
    if let (Some(at), true) = (at, stack.is_empty()) {
        let head = format!("{indent}allocated at ");
        let room = WIDTH - columns(&head);
        out.inked(&[(Ink::Faint, &head), (Ink::Faint, &place_within(at, room))]);
    }
    for (index, frame) in stack.iter().take(FRAMES).enumerate() {
        let word = if index == 0 {
            "allocated at"
        } else {
            "called from"
        };
        let head = format!("{indent}{word} ");
        let room = WIDTH - columns(&head);
        out.inked(&[
            (Ink::Faint, &head),
            (Ink::Faint, &shortened(&name(frame, NAME), room)),
        ]);
    }
}

/// An object as the diagram names it: label, and type unless the label says it.
fn describe_step(step: &Step) -> String {
    let mut line = name(&step.label, LABEL);
    if !step.label.contains(&step.type_name) {
        line += &format!(" ({})", name(&step.type_name, LABEL));
    }
    shortened(&line, LABEL).into_owned()
}

/// The buffers, the first with the references from the cycle to each.
fn draw_buffers(out: &mut Lines, leak: &Leak) {
    let (behind, reached): (Vec<_>, Vec<_>) = kinds_of_buffers(leak)
        .into_iter()
        .partition(|(buffer, _)| buffer.kept_by.is_some());
    let (elsewhere, here): (Vec<_>, Vec<_>) = reached
        .into_iter()
        .partition(|(buffer, _)| is_elsewhere(leak, buffer));
    let (shown, others) = here.split_at(here.len().min(BUFFERS_WITH_PATH));
    for &(buffer, count) in shown {
        out.line("");
        draw_path(out, leak, buffer, count > 1);
        draw_buffer(out, buffer, count);
    }
    let mut others = others.to_vec();
    if leak.count > 1 {
        draw_more_buffers(
            out,
            "Other cycles of this leak hold",
            &by_looks(&elsewhere),
            0,
        );
    } else {
        others.extend(elsewhere);
    }
    draw_more_buffers(out, "Also held", &by_looks(&others), leak.buffers_omitted);
    draw_more_buffers(out, "Freed with the cycle", &by_looks(&behind), 0);
}

/// True for a buffer to which no reference of the cycle that is shown leads.
fn is_elsewhere(leak: &Leak, buffer: &Buffer) -> bool {
    let start = leak.cycle.get(buffer.from_step as usize);
    buffer.path.is_empty() && start.is_some_and(|start| buffer.type_name != start.type_name)
}

fn draw_more_buffers(out: &mut Lines, title: &str, kinds: &[(&Buffer, u64)], omitted: u64) {
    if kinds.is_empty() && omitted == 0 {
        return;
    }
    out.line("");
    out.line(format!("  {title}"));
    for &(buffer, count) in kinds.iter().take(BUFFERS) {
        draw_buffer(out, buffer, count);
    }
    let more: u64 = kinds.iter().skip(BUFFERS).map(|(_, count)| count).sum();
    let more = more.saturating_add(omitted);
    if more > 0 {
        let and = if kinds.is_empty() { "" } else { "and " };
        let more = counted(more, "more buffer", "more buffers");
        out.wrapped(Ink::Held, "    ■ ", &format!("{and}{more}"));
    }
}

fn draw_buffer(out: &mut Lines, buffer: &Buffer, count: u64) {
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

/// What looks the same and was allocated at the same place, however it is reached, with how many there are.
fn by_looks<'a>(kinds: &[(&'a Buffer, u64)]) -> Vec<(&'a Buffer, u64)> {
    let looks = |buffer: &Buffer| (describe(buffer), buffer.confirmed);
    let place = |buffer: &Buffer| (buffer.allocated_at.clone(), buffer.allocation.clone());
    let mut merged: Vec<(&Buffer, u64)> = Vec::new();
    for &(buffer, count) in kinds {
        let same = merged
            .iter_mut()
            .find(|(first, _)| looks(first) == looks(buffer) && place(first) == place(buffer));
        match same {
            Some((_, all)) => *all += count,
            None => merged.push((buffer, count)),
        }
    }
    merged
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
                .all(|(a, b)| without_numbers(a) == without_numbers(b))
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

/// The references from the cycle to the buffer, one a line, each followed by what it leads to.
/// If `several` buffers are reached in this way, their indices differ and are written `[x]`.
fn draw_path(out: &mut Lines, leak: &Leak, buffer: &Buffer, several: bool) {
    let Some(start) = leak.cycle.get(buffer.from_step as usize) else {
        return;
    };
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
    out.line(match is_of_several(leak, buffer) {
        true => format!("  {owner} and others like it hold"),
        false => format!("  {owner} holds"),
    });
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
            true => draw_reference(out, "    ", &without_numbers(edge), cut),
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

/// True if one path of attributes leads to several buffers: then each is held by an object of its own, in another cycle of
/// the leak. The members of a set all have the same path.
fn is_of_several(leak: &Leak, buffer: &Buffer) -> bool {
    let is_attribute = |edge: &String| edge.starts_with('.');
    let way = |it: &Buffer| (it.from_step, it.path.clone());
    let same = leak.buffers.iter().filter(|it| way(it) == way(buffer));
    leak.count > 1 && buffer.path.iter().all(is_attribute) && same.count() > 1
}

/// The cut, if any, of one reference on the path to a buffer.
fn path_cut<'a>(leak: &'a Leak, buffer: &Buffer, index: usize) -> Option<&'a Cut> {
    let from = match index.checked_sub(1) {
        Some(previous) => *buffer.path_nodes.get(previous)?,
        None => leak.cycle.get(buffer.from_step as usize)?.node?,
    };
    let edge = buffer.path.get(index)?;
    leak.cuts
        .iter()
        .find(|cut| cut.source == from && cut.edge == *edge)
}

/// The references to remove that the diagram does not show.
fn draw_other_cuts(out: &mut Lines, leak: &Leak) {
    let kinds = kinds_of_buffers(leak);
    let shown = |cut: &Cut| {
        let step = |step: &Step| step.node == Some(cut.source) && step.edge == cut.edge;
        leak.cycle.iter().any(step)
            || kinds
                .iter()
                .filter(|(buffer, _)| buffer.kept_by.is_none())
                .take(BUFFERS_WITH_PATH)
                .any(|(buffer, _)| {
                    (0..buffer.path.len())
                        .any(|index| path_cut(leak, buffer, index).is_some_and(|c| c == cut))
                })
    };
    // Each kind of cut, with how many there are of it.
    let mut hidden: Vec<(&Cut, u64)> = Vec::new();
    for cut in leak.cuts.iter().filter(|cut| !shown(cut)) {
        match hidden.iter_mut().find(|(other, _)| other.is_like(cut)) {
            Some((_, count)) => *count += 1,
            None => hidden.push((cut, 1)),
        }
    }
    if !hidden.is_empty() {
        out.line("");
    }
    let more = hidden.iter().skip(KINDS_OF_CUTS);
    let more: u64 = more.map(|(_, count)| count).sum();
    for (cut, count) in hidden.into_iter().take(KINDS_OF_CUTS) {
        if leak
            .cuts
            .iter()
            .any(|other| shown(other) && other.is_like(cut))
        {
            let others = counted(count, "other object", "other objects");
            let verb = if cut.proven { "cut" } else { "look at" };
            let least = if leak.graph.omitted > 0 {
                "at least "
            } else {
                ""
            };
            let sentence = format!("also {verb} the same reference in {least}{others} like it");
            out.wrapped(Ink::Suspect, "  ~ ", &sentence);
            continue;
        }
        let place = cut.location.as_ref().map(|at| format!(" at {}", place(at)));
        let times = match count {
            1 => String::new(),
            _ => format!(", in {} objects", grouped(count)),
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
    if more > 0 {
        let more = counted(more, "more reference", "more references");
        out.wrapped(Ink::Suspect, "  ~ ", &format!("and {more}"));
    }
}
