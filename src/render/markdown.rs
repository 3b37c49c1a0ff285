//! The report as Markdown, to paste into an issue tracker.
//!
//! It has what makes the bug (names, references, lines, sizes) and nothing that differs between two
//! runs: no times, processes, addresses or indices. What the program under test named stands in code
//! only, where a tracker makes no links, mentions or markup of it.

use super::diagram::diagram;
use super::sentences::{also_held, size_and_device};
use super::source::{changed_lines, numbered};
use super::text::table_of_processes;
use crate::diagnose::patterns::PATTERNS;
use crate::model::compare::Change;
use crate::model::redact::has_no_limits;
use crate::model::report::{Leak, Location, Report};
use crate::model::words::{human_bytes, name, one_of, printable, without_indices};

/// Names in headings and sentences are shortened to this.
const NAME: usize = 120;

/// Every leak of the report, one after the other.
pub fn markdown(report: &Report) -> String {
    let leaks: Vec<String> = report.leaks.iter().map(leak_markdown).collect();
    let mut out = match leaks.is_empty() {
        true => match has_no_limits(report) {
            true => "No tensor was held by a reference cycle.\n".to_owned(),
            false => "No leaks were reported.\n".to_owned(),
        },
        false => leaks.join("\n"),
    };
    if let (Some(changes), Some(earlier)) = (report.changes(), &report.earlier) {
        let gone = earlier.gone.iter();
        let gone = gone.map(|it| {
            format!(
                "\n- gone: {}, signature {}",
                code(&it.summary),
                code(&it.signature)
            )
        });
        let new = report
            .leaks
            .iter()
            .filter_map(|leak| match report.change(leak)? {
                change @ (Change::New | Change::Grown(_)) => Some(format!(
                    "\n- {}: signature {}",
                    change.words(),
                    code(&leak.signature)
                )),
                _ => None,
            });
        let listed: String = new.chain(gone).collect();
        out = format!("Compared with the earlier report: {changes}.\n{listed}\n\n{out}");
    }
    for note in &report.notes {
        out += &format!("\n{}\n", prose(&name(note, 1000)));
    }
    if !report.processes.is_empty() {
        out += &format!("\n{}", fenced("", &table_of_processes(report)));
    }
    out
}

/// One leak: a line that names it, the trace, what to change.
pub fn leak_markdown(leak: &Leak) -> String {
    let leak = &comparable(leak);
    let mut size = size_and_device(leak);
    if let Some(freed) = leak.bytes_freed {
        size += &format!(", {} freed", human_bytes(freed));
    }
    let mut out = format!("### {}: {}\n\n", what_keeps_what(leak), prose(&size));
    out += &fenced("text", diagram(leak).trim_matches('\n'));
    let advice = prose(&name(&leak.advice.text, 2000));
    if !advice.is_empty() {
        let candidates = leak.cuts.first().map_or(&[][..], |cut| &cut.candidates);
        let places: Vec<String> = match candidates {
            [] => leak
                .line_to_change()
                .iter()
                .map(|place| code(&place.to_string()))
                .collect(),
            several => several
                .iter()
                .map(|place| code(&place.to_string()))
                .collect(),
        };
        let place = (!places.is_empty()).then(|| format!("{}: ", one_of(&places)));
        out += &format!("\n{}{advice}\n", place.unwrap_or_default());
    }
    for source in leak.own_lines() {
        let lines: Vec<String> = numbered(source)
            .map(|(number, line)| format!("{number:>6} │ {}", name(&line, 240)))
            .collect();
        out += &format!("\n{}", fenced("text", &lines.join("\n")));
    }
    if let Some(others) = also_held(leak, &[]) {
        out += &format!("\n{}\n", prose(&format!("Also: {others}")));
    }
    if let Some(patch) = leak.patch.as_ref().filter(|_| leak.source.is_some()) {
        let lines: Vec<String> = changed_lines(patch).map(|line| name(&line, 240)).collect();
        out += &format!(
            "\n{}\n\n{}",
            prose(&name(&patch.summary, 400)),
            fenced("diff", &lines.join("\n"))
        );
    }
    let is_example = leak.own_lines().next().is_none();
    if is_example && (leak.advice.before.is_some() || leak.advice.after.is_some()) {
        let parts = [
            ("before", &leak.advice.before),
            ("after", &leak.advice.after),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter_map(|(word, lines)| Some((word, lines.as_ref()?)))
            .map(|(word, lines)| format!("# {word}\n{}", code_lines(lines)))
            .collect();
        out += &format!(
            "\nFor example:\n\n{}",
            fenced("python", &parts.join("\n\n"))
        );
    }
    out += &format!("\nSignature {}", code(&leak.signature));
    let known = |name: &&String| PATTERNS.iter().any(|pattern| pattern.name == **name);
    if let Some(pattern) = leak.pattern.as_ref().filter(known) {
        out += &format!(
            "; why: {}",
            code(&format!("python -m cyclescope explain {pattern}"))
        );
    }
    out + "\n"
}

/// The leak without what differs between two runs of the same program, or two machines.
fn comparable(leak: &Leak) -> Leak {
    let mut leak = leak.clone();
    let edges = leak.cycle.iter_mut().map(|step| &mut step.edge);
    let edges = edges.chain(leak.cuts.iter_mut().map(|cut| &mut cut.edge));
    let paths = leak.buffers.iter_mut().flat_map(|buffer| &mut buffer.path);
    let others = [&mut leak.summary, &mut leak.advice.text];
    for text in edges.chain(paths).chain(others) {
        *text = without_indices(text);
    }
    let steps = leak.cycle.iter_mut().map(|step| &mut step.location);
    let cuts = leak.cuts.iter_mut();
    let cuts = cuts.flat_map(|cut| cut.location.iter_mut().chain(&mut cut.candidates));
    for location in steps.flatten().chain(cuts) {
        location.file = last_parts(location);
    }
    if let Some(place) = leak.line_to_change()
        && let Some(source) = &mut leak.source
    {
        source.file = last_parts(&place);
    }
    let candidates = leak.cuts.first().map(|cut| cut.candidates.clone());
    for (source, place) in leak
        .candidate_sources
        .iter_mut()
        .zip(candidates.iter().flatten())
    {
        source.file = last_parts(place);
    }
    leak
}

/// The file with the folder that it is in: whose machine it was says nothing of the leak.
fn last_parts(location: &Location) -> String {
    let parts: Vec<&str> = location.file.split(['/', '\\']).collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

/// The leak in a few words: ``closure `hook` keeps `self` ``.
fn what_keeps_what(leak: &Leak) -> String {
    let closure = leak.cycle.iter().find_map(|step| {
        let function = step.label.strip_prefix("function ")?;
        Some((function, variable("closure variable ", &step.edge)?))
    });
    if let Some((function, variable)) = closure {
        return format!("closure {} keeps {}", code(short(function)), code(variable));
    }
    let Some(cut) = leak.cuts.first() else {
        return match leak.summary.as_str() {
            "" => "a reference cycle".to_owned(),
            summary => format!("cycle {}", code(summary)),
        };
    };
    let owner = match cut.owner.strip_prefix("frame of ") {
        Some(function) => function,
        None => short(&cut.owner),
    };
    let reference = match variable("local ", &cut.edge) {
        Some(local) => format!("local {} of {}", code(local), code(owner)),
        None if cut.edge.starts_with(['.', '[']) => code(&format!("{owner}{}", cut.edge)),
        None => format!("{} of {}", code(&cut.edge), code(owner)),
    };
    match leak.graph.nodes.get(cut.target as usize) {
        Some(kept) => format!("{reference} keeps {}", code(&kept.label)),
        None => format!("{reference} closes a cycle"),
    }
}

/// `x` of `local 'x'`.
fn variable<'a>(kind: &str, edge: &'a str) -> Option<&'a str> {
    edge.strip_prefix(kind)?
        .strip_prefix('\'')?
        .strip_suffix('\'')
}

/// The last part of a qualified name.
fn short(label: &str) -> &str {
    label.rsplit('.').next().unwrap_or(label)
}

/// A code span, which nothing in the text can end (CommonMark 0.31.2, section 6.1).
fn code(text: &str) -> String {
    let text = name(text, NAME);
    let ticks = "`".repeat(longest_run(&text) + 1);
    match text.is_empty() || text.contains('`') || text.starts_with(' ') && text.ends_with(' ') {
        true => format!("{ticks} {text} {ticks}"),
        false => format!("{ticks}{text}{ticks}"),
    }
}

/// A code block, which no line of the text can end (CommonMark 0.31.2, section 4.5).
fn fenced(language: &str, text: &str) -> String {
    let fence = "`".repeat((longest_run(text) + 1).max(3));
    format!("{fence}{language}\n{text}\n{fence}\n")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

fn code_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .take(40)
        .map(|line| name(&line.replace('\t', "    "), 240))
        .collect();
    lines.join("\n")
}

/// Sentences in which code stands in backticks. Of what is outside of them only plain words stay
/// as they are; anything that some tracker may read as a link, a mention or markup becomes code.
fn prose(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in printable(text).split('`').enumerate() {
        if index % 2 == 1 {
            push_code(&mut out, part);
            continue;
        }
        for (index, word) in part.split(' ').enumerate() {
            if index > 0 && !out.ends_with(' ') {
                out.push(' ');
            }
            match is_plain(word) {
                true => out += word,
                false => push_code(&mut out, word),
            }
        }
    }
    out.trim().to_owned()
}

fn push_code(out: &mut String, text: &str) {
    if text.is_empty() {
        return;
    }
    // Two code spans that touch would be one.
    if out.ends_with('`') {
        out.push(' ');
    }
    *out += &code(text);
}

/// True for words, small numbers and punctuation that no flavour of Markdown gives a meaning.
fn is_plain(word: &str) -> bool {
    let core = word
        .trim_start_matches(['(', '"', '\''])
        .trim_end_matches([',', '.', ';', ':', ')', '"', '\'', '?', '…']);
    let commit = core.len() >= 7 && core.bytes().all(|b| b.is_ascii_hexdigit());
    let words = |core: &str| core.split(['-', '\'']).all(is_letters);
    let number = |core: &str| {
        core.split('.')
            .all(|part| !part.is_empty() && is_digits(part))
    };
    let device = |core: &str| {
        let (kind, number) = core.split_once(':').unwrap_or((core, "0"));
        kind == "cuda" && is_digits(number)
    };
    !commit && (core.is_empty() || words(core) || number(core) && core == word || device(core))
}

fn is_letters(text: &str) -> bool {
    !text.is_empty() && text.chars().all(char::is_alphabetic)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn markdown_of_a_callback_cycle() {
        insta::assert_snapshot!(markdown(&samples::callback()));
    }

    #[test]
    fn markdown_of_two_leaks() {
        insta::assert_snapshot!(markdown(&samples::linked_nodes_and_exception()));
    }

    #[test]
    fn markdown_without_leaks() {
        insta::assert_snapshot!(markdown(&samples::no_leaks()));
    }

    /// What is left of a document without its code blocks and code spans, as CommonMark finds them.
    fn outside_of_code(document: &str) -> String {
        let mut out = String::new();
        let mut fence: Option<String> = None;
        for line in document.lines() {
            let ticks: String = line.chars().take_while(|&c| c == '`').collect();
            match &fence {
                Some(open) => {
                    if ticks.len() >= open.len() && line.len() == ticks.len() {
                        fence = None;
                    }
                }
                None if ticks.len() >= 3 && !line[ticks.len()..].contains('`') => {
                    fence = Some(ticks);
                }
                None => {
                    out += &without_spans(line);
                    out.push('\n');
                }
            }
        }
        assert_eq!(fence, None, "an open fence");
        out
    }

    fn without_spans(line: &str) -> String {
        let run = |text: &str| text.len() - text.trim_start_matches('`').len();
        let mut out = String::new();
        let mut rest = line;
        while let Some(start) = rest.find('`') {
            out += &rest[..start];
            let ticks = run(&rest[start..]);
            rest = &rest[start + ticks..];
            let mut at = 0;
            loop {
                let close = at + rest[at..].find('`').expect("an open code span");
                let closing = run(&rest[close..]);
                at = close + closing;
                if closing == ticks {
                    break;
                }
            }
            rest = &rest[at..];
        }
        out + rest
    }

    #[test]
    fn nothing_of_the_program_stands_outside_of_code() {
        let mut report = samples::hostile();
        for evil in [
            "@everyone see #1, GH-2 http://x.example www.x.example deadbeefdeadbeef",
            "``` ` `` \n```\n# x <img> [a](b) ![c](d) &amp; | * _ ~ - + 1. x",
            "`",
            "`a``b`c",
            "``@you``",
        ] {
            let mut leak = samples::callback().leaks.remove(0);
            leak.pattern = Some(evil.into());
            leak.signature = evil.into();
            leak.advice.text = evil.into();
            leak.advice.before = Some(evil.into());
            leak.cuts[0].owner = evil.into();
            leak.cuts[0].edge = evil.into();
            leak.cycle[1].edge = format!("closure variable '{evil}'");
            leak.cycle[0].label = evil.into();
            report.leaks.push(leak.clone());
            leak.cycle.truncate(1);
            report.leaks.push(leak);
        }
        let text = markdown(&report);
        let outside = outside_of_code(&text).replace("### ", "");
        let odd = outside
            .chars()
            .find(|&c| !c.is_alphanumeric() && !" \n.,:;()\"'?-…".contains(c));
        assert_eq!(odd, None, "{outside}");
        for word in ["http", "www", "GH-", "deadbeef", "img"] {
            assert!(!outside.contains(word), "{word} in {outside}");
        }
    }

    #[test]
    fn equal_leaks_read_equal() {
        let report = samples::linked_nodes_and_exception();
        let mut other = report.clone();
        other.time += 1.0;
        other.process.pid += 1;
        other.process.host = "elsewhere".into();
        for leak in &mut other.leaks {
            for buffer in &mut leak.buffers {
                buffer.pointer += 4096;
            }
        }
        assert_eq!(markdown(&report), markdown(&other));

        let mut first = samples::callback();
        let mut second = first.clone();
        first.leaks[0].cycle[0].edge = "[0]".into();
        second.leaks[0].cycle[0].edge = "[17]".into();
        second.leaks[0].cycle[1].location = Some(Location {
            file: "/home/you/train/awaitable.py".into(),
            line: 31,
        });
        assert!(markdown(&first).contains("↓ [x]"));
        assert_eq!(markdown(&first), markdown(&second));
    }

    #[test]
    fn indices_that_point_nowhere_are_survived() {
        assert!(markdown(&samples::dangling()).starts_with("### "));
    }
}
