//! The leak trace: a report as text for a terminal, narrow and in the order in which it is needed.

use super::processes::table_of_processes;
use crate::diagnose::known::normal;
use crate::diagnose::patterns::PATTERNS;
use crate::model::redact::has_no_limits;
use crate::model::report::{Collection, Leak, Process, RUN, Report};
use crate::model::words::{counted, grouped, human_bytes, name, utc};
use crate::render::diagram;
use crate::render::lines::{Ink, Lines, WIDTH};
use crate::render::sentences::{
    NAME, advice_is_fix, also_held, fix, freed_beyond_held, frozen, held, of_same_line, place,
    reference, same_line, seen, size_and_cycle, title, whose, with_version,
};
use crate::render::source::{self, changed_lines, fix_command};

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
    if let (Some(changes), Some(earlier)) = (report.changes(), &report.earlier) {
        let since = format!(
            "Compared with the report of {}: {changes}.",
            utc(earlier.time)
        );
        out.wrapped(Ink::Strong, "", &since);
    }
    for (index, leak) in report.leaks.iter().enumerate() {
        out.line("");
        let change = report
            .change(leak)
            .map(|change| format!(" · {}", change.words()));
        out.inked(&[
            (
                Ink::Strong,
                &format!("LEAK {} of {}", index + 1, report.leaks.len()),
            ),
            (Ink::Plain, " · "),
            (Ink::Strong, &title(leak)),
            (Ink::Strong, &change.unwrap_or_default()),
        ]);
        draw(&mut out, leak, &report.leaks);
    }
    for gone in report.earlier.iter().flat_map(|earlier| &earlier.gone) {
        out.line("");
        out.inked(&[
            (Ink::Strong, "GONE"),
            (Ink::Plain, " · "),
            (
                Ink::Strong,
                &format!(
                    "{} held · {}",
                    human_bytes(gone.bytes_held),
                    name(&gone.signature, 16)
                ),
            ),
        ]);
        out.wrapped(Ink::Plain, "  ", &name(&gone.summary, NAME));
    }
    if !report.notes.is_empty() {
        out.line("");
    }
    for note in &report.notes {
        out.wrapped(Ink::Strong, "Note: ", &name(note, 1000));
    }
    let mut text = out.into_text();
    if !report.processes.is_empty() {
        text += &format!("\n{}\n", table_of_processes(report));
    }
    text
}

/// The leak in one line, for a log: bytes, how often, the cycle, and where to cut it; of a known leak
/// of a library, what its user can do.
pub fn one_line(leak: &Leak) -> String {
    let mut line = size_and_cycle(leak);
    if !leak.summary.is_empty() {
        line += &format!(": {}", name(&leak.summary, NAME));
    }
    if let Some(known) = &leak.known {
        let whose = match &leak.library {
            Some(library) if normal(&library.name) == normal(&known.library) => {
                with_version(library)
            }
            _ => name(&known.library, NAME),
        };
        line += &format!(
            "; a known leak of {whose}: {}",
            name(&leak.advice.text, 1000)
        );
        return line;
    }
    if let Some(cut) = leak.cuts.first() {
        let verb = if cut.proven { "cut" } else { "look at" };
        let others = leak.cuts.iter().filter(|other| !other.is_like(cut)).count();
        let which = match others {
            0 => String::new(),
            _ => format!("{} references, such as ", others + 1),
        };
        line += &format!("; {verb} {which}{}", reference(cut));
        if let Some(location) = leak.line_to_change() {
            line += &format!(" ({})", place(&location));
        }
    }
    if let Some(library) = &leak.library {
        line += &format!("; in {}", with_version(library));
    }
    line
}

/// A leak as a watch reports it: how much is held and by what, what to change, and the command that says more.
pub fn warning(leak: &Leak) -> String {
    let mut out = Lines::new(false);
    out.line(format!("{}.", size_and_cycle(leak)));
    out.wrapped(Ink::Plain, "  Fix:  ", &fix(leak));
    out.wrapped(Ink::Plain, "  Held: ", &held(leak));
    if let Some(others) = also_held(leak, &[]) {
        out.wrapped(Ink::Plain, "  Also: ", &others);
    }
    for line in whose(leak) {
        out.wrapped(Ink::Plain, "  ", &line);
    }
    if let Some(patch) = &leak.patch {
        out.command("  Patch:", &fix_command(patch));
    }
    if let Some(pattern) = explained(leak) {
        out.line(format!("  Why:  {}", explain_command(pattern)));
    }
    out.into_text().trim_end().to_owned()
}

/// The command that says more of a leak: it prints the patch or, where there is none, explains the pattern.
pub fn command(leak: &Leak) -> Option<String> {
    let patch = leak.patch.as_ref().map(fix_command);
    patch.or_else(|| explained(leak).map(explain_command))
}

/// The pattern of a leak, if `cyclescope explain` knows it.
fn explained(leak: &Leak) -> Option<&str> {
    let pattern = leak.pattern.as_deref();
    pattern.filter(|pattern| PATTERNS.iter().any(|known| known.name == *pattern))
}

fn explain_command(pattern: &str) -> String {
    format!("python -m cyclescope explain {pattern}")
}

/// What the report says, in a sentence.
fn headline(report: &Report) -> String {
    let tool = name(&report.tool, NAME);
    match report.leaks.len() as u64 {
        0 if report.collection.trigger == RUN => match has_no_limits(report) {
            true => format!("{tool}: no leaks."),
            false => format!("{tool}: no leaks were reported."),
        },
        // Then nothing was looked at.
        0 if report.collection.garbage_objects == 0 && report.process.frameworks.is_empty() => {
            format!(
                "{tool}: no leaks, as the program has imported no library of tensors or arrays."
            )
        }
        0 => format!(
            "{tool}: no leaks among {}.",
            counted(
                report.collection.garbage_objects,
                "unreachable object",
                "unreachable objects"
            )
        ),
        count => {
            format!(
                "{tool}: {} held {}{}.",
                counted(count, "leak", "leaks"),
                if report.left_out > 0 { "at least " } else { "" },
                human_bytes(report.bytes_held())
            )
        }
    }
}

/// When, where and on which occasion the garbage was found, as a sentence.
fn circumstances(report: &Report) -> String {
    let of_several = match report.processes.len() {
        ..=1 => String::new(),
        several => format!(", the first of {} processes", grouped(several as u64)),
    };
    let found = match report.collection.trigger == RUN {
        true => "Written",
        false => "Found",
    };
    format!(
        "{found} at {} by {}, in {}{of_several}.",
        utc(report.time),
        occasion(&report.collection),
        process(&report.process)
    )
}

/// The occasion of the report, as a noun: `a garbage collection of generation 2`.
pub fn occasion(collection: &Collection) -> String {
    let trigger = match collection.trigger.as_str() {
        "watch" => "a garbage collection".to_owned(),
        "find" => "an explicit check".to_owned(),
        "look" => "a check without a collection".to_owned(),
        "exit" => "the check at exit".to_owned(),
        RUN => "a watch from the start of the program to its end".to_owned(),
        other => name(other, NAME),
    };
    let mut occasion = match collection.generation {
        Some(generation) if collection.trigger == "find" => {
            format!("{trigger} (generation {generation})")
        }
        Some(generation) => format!("{trigger} of generation {generation}"),
        None => trigger,
    };
    if let Some(module) = &collection.importing {
        occasion += &format!(" during the import of {}", name(module, NAME));
    }
    occasion
}

fn process(process: &Process) -> String {
    let mut parts = vec![name(&process.program, NAME), format!("pid {}", process.pid)];
    parts.extend(process.rank.map(|rank| format!("rank {rank}")));
    if !process.host.is_empty() {
        parts.push(format!("host {}", name(&process.host, NAME)));
    }
    parts.push(format!("Python {}", name(&process.python, NAME)));
    for (framework, version) in process.frameworks.iter().take(20) {
        parts.push(format!("{} {}", name(framework, NAME), name(version, NAME)));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// Everything about a leak after its title, as plain text.
pub fn body(leak: &Leak) -> String {
    let mut out = Lines::new(false);
    draw(&mut out, leak, &[]);
    out.into_text()
}

/// A leak after its title; `all` are those that have numbers in the same text.
fn draw(out: &mut Lines, leak: &Leak, all: &[Leak]) {
    out.wrapped(Ink::Strong, "  Fix:  ", &fix(leak));
    out.wrapped(Ink::Strong, "  Held: ", &held(leak));
    let more = [
        ("  Also: ", also_held(leak, all)),
        ("  Line: ", same_line(&of_same_line(leak, all.iter()), all)),
        ("  Frozen: ", frozen(leak)),
        ("  Seen: ", seen(leak).map(|it| format!("{it}."))),
    ];
    for (word, sentence) in more {
        sentence.inspect(|it| out.wrapped(Ink::Strong, word, it));
    }
    for line in whose(leak) {
        out.wrapped(Ink::Plain, "  ", &line);
    }
    if let Some(freed) = freed_beyond_held(leak) {
        out.wrapped(Ink::Plain, "  Freed: ", &freed);
    }
    diagram::draw(out, leak);
    give_advice(out, leak);
}

fn give_advice(out: &mut Lines, leak: &Leak) {
    let advice = &leak.advice;
    let pattern = explained(leak);
    let source = leak.own_lines().next().is_some();
    let code = !source && (advice.before.is_some() || advice.after.is_some());
    // Where the fix names the references alone, what else is known of them.
    let text = !advice_is_fix(leak) && !leak.cuts.is_empty() && !advice.text.is_empty();
    if code || source || text || pattern.is_some() {
        out.line("");
    }
    if text {
        out.wrapped(Ink::Plain, "  ", &name(&advice.text, 2000));
    }
    for (index, source) in leak.own_lines().enumerate() {
        if index > 0 {
            out.line("");
        }
        source::draw(out, source);
    }
    if let Some(patch) = leak.patch.as_ref().filter(|_| source) {
        out.wrapped(Ink::Strong, "  Change: ", &name(&patch.summary, 400));
        // Whole, however long: what is changed may stand at the end of a line.
        for line in changed_lines(patch) {
            out.whole(&format!("    {}", name(&line, 400)));
        }
        out.command("  Patch:", &fix_command(patch));
    }
    if code {
        out.line("    For example:");
    }
    for (word, code) in [("before", &advice.before), ("after", &advice.after)] {
        let Some(code) = code.as_ref().filter(|_| !source) else {
            continue;
        };
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
        out.line(format!("  Why:  {}", explain_command(pattern)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::{Buffer, Known, Library};
    use crate::model::shared::Shared;
    use crate::model::source::{Patch, SourceLines};
    use crate::model::words::printable;
    use crate::render::samples;

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
        (cut.edge, cut.source, cut.target) = ("._tensor".into(), 2, 3);
        let text = trace(&report);
        assert!(
            text.contains("    ↓ ._tensor\n      ~~~~~~~~ cut here\n"),
            "{text}"
        );
        report.leaks[0].cuts[0].source = 4;
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
    fn who_else_holds_the_memory_is_said() {
        let mut report = samples::callback();
        let others = ["0123456789abcdef", "fedcba9876543210"];
        report.leaks[0].shared = vec![Shared {
            others: others.map(str::to_owned).to_vec(),
            bytes: 64 << 20,
        }];
        report.leaks[0].pattern = None;
        let text = trace(&report);
        assert!(text.contains(
            "  Also: leaks 0123456789abcdef, fedcba9876543210 hold some of this memory too;"
        ));
        assert!(!text.contains("this frees the memory"), "{text}");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains("it is freed once all 3 are fixed."));
        report.leaks[0].shared[0].others.pop();
        assert!(words(&trace(&report)).contains(
            "Also: leak 0123456789abcdef holds some of this memory too; it is freed once both are fixed."
        ));
        report.leaks[0].cuts[0].proven = false;
        assert!(!words(&trace(&report)).contains("it is freed"));
    }

    #[test]
    fn one_line_counts_the_references_to_cut() {
        let mut leak = samples::callback().leaks.remove(0);
        assert!(one_line(&leak).contains("; cut ._callback of "));
        for index in 0..2 {
            let mut other = leak.cuts[0].clone();
            other.edge = format!("[{index}]");
            other.owner = format!("list {index}");
            leak.cuts.push(other);
        }
        assert!(one_line(&leak).contains("; cut 3 references, such as ._callback of "));
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
    fn one_line_of_a_librarys_leak_names_the_library_and_the_remedy() {
        let mut leak = samples::callback().leaks.remove(0);
        leak.library = Some(Library {
            name: "accelerate".into(),
            version: Some("1.15.0".into()),
            your_line: None,
        });
        assert!(one_line(&leak).ends_with("(train/awaitable.py:31); in accelerate 1.15.0"));
        leak.known = Some(Known {
            name: "accelerate-hooked-forward".into(),
            library: "accelerate".into(),
            versions: vec!["1.15.0".into()],
            fixed_in: None,
            link: None,
            remedy: String::new(),
        });
        leak.advice.text = "Call `remove_hook_from_module`\nbefore dropping the model.".into();
        let line = one_line(&leak);
        assert_eq!(line.lines().count(), 1);
        assert!(
            line.contains("; a known leak of accelerate 1.15.0: Call `remove_hook_from_module`"),
            "{line}"
        );
        leak.library = None;
        assert!(one_line(&leak).contains("; a known leak of accelerate: Call"));
    }

    #[test]
    fn a_change_at_the_end_of_a_long_line_is_seen() {
        let mut report = samples::callback();
        let leak = &mut report.leaks[0];
        leak.source = Some(SourceLines::default());
        let line = |end: &str| format!("    self.callback = lambda {}: {end}", "x".repeat(100));
        leak.patch = Some(Patch {
            diff: format!("@@ -1 +1 @@\n-{}\n+{}\n", line("self"), line("owner()")),
            ..Patch::default()
        });
        let text = trace(&report);
        assert!(text.contains("x: self\n"), "{text}");
        assert!(text.contains("x: owner()\n"), "{text}");
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
