//! The leak trace: a report as plain text, a sentence a line.

use super::model::{Buffer, Collection, Cut, Graph, Leak, Location, Process, Report, Step};
use super::words::{
    buffer_count, counted, cut_of, element_type, grouped, human_bytes, name, printable,
    steps_before_gap, utc,
};

/// Names longer than this are shortened in their middle.
const NAME: usize = 240;
/// How many buffers are shown with the whole way to them.
const BUFFERS_WITH_PATH: usize = 4;
/// How many buffers are shown at all.
const BUFFERS: usize = 16;
/// How many frames of an allocation's stack are shown.
const FRAMES: usize = 3;
/// How many references of a way to a buffer are shown.
const PATH: usize = 12;

/// The whole report as text, to print or to log.
///
/// Each leak begins with three lines that need no knowledge of this tool: how much is held, what
/// is held by what, and which reference to remove where. The cycle, the ways to the buffers and
/// the advice follow. Names of the program under test cannot break a line or reach the terminal.
pub fn trace(report: &Report) -> String {
    let mut out = Lines::default();
    out.line(headline(report));
    out.line(circumstances(report));
    for (index, leak) in report.leaks.iter().enumerate() {
        out.line("");
        out.line(format!(
            "LEAK {} of {}: {}",
            index + 1,
            report.leaks.len(),
            title(leak)
        ));
        out.append(&body(leak));
    }
    if !report.notes.is_empty() {
        out.line("");
    }
    for note in &report.notes {
        out.line(format!("Note: {}", name(note, 1000)));
    }
    out.text
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

/// How much is held how often, with the pattern and the signature.
pub(super) fn title(leak: &Leak) -> String {
    let mut line = size_and_cycle(leak);
    if let Some(freed) = leak.bytes_freed {
        line += &format!(", {} freed when it was broken", human_bytes(freed));
    }
    let pattern = leak.pattern.iter().map(|pattern| name(pattern, NAME));
    let signature = Some(&leak.signature)
        .filter(|s| !s.is_empty())
        .map(|s| name(s, 40));
    let marks: Vec<String> = pattern.chain(signature).collect();
    if !marks.is_empty() {
        line += &format!(" [{}]", marks.join(", "));
    }
    line
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

/// Everything about a leak after its title.
pub(super) fn body(leak: &Leak) -> String {
    let mut out = Lines::default();
    out.line(format!("  Held: {}", held(leak)));
    out.line(format!("  Fix:  {}", fix(leak)));
    if let Some(freed) = freed_beyond_held(leak) {
        out.line(format!("  Freed: {freed}"));
    }
    draw_cycle(&mut out, leak);
    draw_buffers(&mut out, leak);
    give_advice(&mut out, leak);
    out.text
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
        false => "the rest was held by something that Python's references do not show",
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
        let place = leak
            .cuts
            .first()
            .and_then(|cut| cut.location.as_ref())
            .map(place);
        let place = place.map_or_else(String::new, |place| format!("{place}: "));
        let doubt = match leak.cuts.iter().all(|cut| cut.proven) {
            true => "",
            false => " (That this is enough is not proven.)",
        };
        return format!("{place}{}{doubt}", name(&leak.advice.text, 1000));
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

/// True if the advice is sure enough to stand where the fix is told.
pub(super) fn advice_is_fix(leak: &Leak) -> bool {
    leak.pattern.is_some() && !leak.advice.text.is_empty()
}

/// A reference with its owner: `._callback of Model object`.
fn reference(cut: &Cut) -> String {
    format!("{} of {}", name(&cut.edge, NAME), name(&cut.owner, NAME))
}

fn draw_cycle(out: &mut Lines, leak: &Leak) {
    let Some(first) = leak.cycle.first() else {
        return;
    };
    out.line("");
    for (index, step) in leak.cycle.iter().enumerate() {
        let corner = if index == 0 { "╭→" } else { "│ " };
        out.line(format!("  {corner} {}", describe_step(step)));
        draw_allocation(out, "  │    ", step.allocated_at.as_ref(), &[]);
        let (mark, remark) = match cut_of(leak, step) {
            Some(cut) if cut.proven => ("✂ ", "   ← cut the cycle here"),
            Some(_) => ("✂ ", "   ← look at this reference first"),
            None => ("", ""),
        };
        out.line(format!("  │    ↓ {mark}{}{remark}", name(&step.edge, NAME)));
        if leak.cycle_omitted > 0 && index + 1 == steps_before_gap(leak) {
            let more = counted(leak.cycle_omitted, "more object", "more objects");
            out.line(format!("  │  ⋮ {more} on the way"));
            out.line("  │    ↓");
        }
    }
    out.line(format!("  ╰─ back to {}", name(&first.label, NAME)));
    draw_other_cuts(out, leak);
}

/// The references to remove that the drawn cycle does not show.
fn draw_other_cuts(out: &mut Lines, leak: &Leak) {
    let shown = |cut: &Cut| {
        leak.cycle
            .iter()
            .any(|s| s.node == cut.from && s.edge == cut.edge)
    };
    for cut in leak.cuts.iter().filter(|cut| !shown(cut)).take(16) {
        let place = cut.location.as_ref().map(|at| format!(" at {}", place(at)));
        out.line(format!(
            "  ✂ also {}{}",
            reference(cut),
            place.unwrap_or_default()
        ));
    }
}

/// Where an object, or its memory, was allocated: the stack if that is known, or else the line.
fn draw_allocation(out: &mut Lines, indent: &str, at: Option<&Location>, stack: &[String]) {
    if let (Some(at), true) = (at, stack.is_empty()) {
        out.line(format!("{indent}allocated at {}", place(at)));
    }
    for (index, frame) in stack.iter().take(FRAMES).enumerate() {
        let word = if index == 0 {
            "allocated at"
        } else {
            "called from"
        };
        out.line(format!("{indent}{word} {}", name(frame, NAME)));
    }
}

/// An object as the drawing names it: label, type unless the label says it, and place.
fn describe_step(step: &Step) -> String {
    let mut line = name(&step.label, NAME);
    if !step.label.contains(&step.type_name) {
        line += &format!(" ({})", name(&step.type_name, NAME));
    }
    if let Some(location) = &step.location {
        line += &format!(" at {}", place(location));
    }
    line
}

fn place(location: &Location) -> String {
    name(&location.to_string(), NAME)
}

fn draw_buffers(out: &mut Lines, leak: &Leak) {
    for (index, buffer) in leak.buffers.iter().take(BUFFERS).enumerate() {
        if index < BUFFERS_WITH_PATH {
            out.line("");
            draw_path(out, leak, buffer);
        }
        out.line(format!("    ■ {}", describe_fully(buffer)));
        let at = buffer.allocated_at.as_ref();
        draw_allocation(out, "      ", at, &buffer.allocation);
    }
    let more = leak.buffers.len().saturating_sub(BUFFERS) as u64;
    let more = more.saturating_add(leak.buffers_omitted);
    if more > 0 {
        out.line(format!(
            "    ■ and {}",
            counted(more, "more buffer", "more buffers")
        ));
    }
}

/// The references from the cycle to the buffer, one a line, each followed by what it leads to.
fn draw_path(out: &mut Lines, leak: &Leak, buffer: &Buffer) {
    let Some(start) = leak.cycle.get(buffer.from_step as usize) else {
        return;
    };
    let alike = leak
        .cycle
        .iter()
        .filter(|step| step.label == start.label)
        .count();
    let mut owner = name(&start.label, NAME);
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
        out.line(format!("    ↓ {}", name(edge, NAME)));
        if index + 1 < length {
            out.line(format!(
                "    {}",
                node_label(&leak.graph, buffer.path_nodes.get(index))
            ));
        }
    }
}

fn node_label(graph: &Graph, node: Option<&u32>) -> String {
    match node.and_then(|&index| graph.nodes.get(index as usize)) {
        Some(node) => name(&node.label, NAME),
        None => "(an object that is not shown)".to_owned(),
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

fn describe_fully(buffer: &Buffer) -> String {
    let confirmed = if buffer.confirmed {
        " (confirmed by the CUDA driver)"
    } else {
        ""
    };
    format!("{} at {:#x}{confirmed}", describe(buffer), buffer.pointer)
}

fn give_advice(out: &mut Lines, leak: &Leak) {
    let advice = &leak.advice;
    let code = advice.before.is_some() || advice.after.is_some();
    if code || !advice.text.is_empty() && !advice_is_fix(leak) {
        out.line("");
    }
    if !advice_is_fix(leak) && !advice.text.is_empty() {
        out.line(format!("  {}", name(&advice.text, 2000)));
    }
    for (word, code) in [("before", &advice.before), ("after", &advice.after)] {
        let Some(code) = code else { continue };
        for (index, line) in code.lines().take(40).enumerate() {
            let word = if index == 0 { word } else { "" };
            let line = line.replace('\t', "    ");
            out.line(format!("    {word:6} │ {}", name(&line, NAME)));
        }
    }
}

/// Text made of lines, each free of spaces at its end.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, line: impl AsRef<str>) {
        // Everything has passed `name`; this holds for what a later change forgets.
        self.text.push_str(printable(line.as_ref()).trim_end());
        self.text.push('\n');
    }

    fn append(&mut self, lines: &str) {
        self.text.push_str(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
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
        assert!(lines[1].contains("torch.Tensor") && lines[1].contains("._callback → "));
        assert!(lines[2].contains("`_callback`") && lines[2].contains("awaitable.py:31"));
    }

    #[test]
    fn the_scissors_stand_on_the_reference_that_is_cut_and_nowhere_else() {
        let text = trace(&samples::callback());
        let marked: Vec<&str> = text.lines().filter(|l| l.contains('✂')).collect();
        assert_eq!(marked, ["  │    ↓ ✂ ._callback   ← cut the cycle here"]);
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
        assert!(text.lines().all(|line| line.chars().count() < 2100));
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
