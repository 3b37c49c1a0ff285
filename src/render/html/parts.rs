//! Parts that several pages have.

use std::borrow::Cow;
use std::path::Path;

use maud::{Markup, Render, html};

use crate::model::source::SourceLines;
use crate::model::words::name;
use crate::render::html::NAME;
use crate::render::source::numbered;

/// What a page begins with: a title, the answer, and what is known of the program, folded into one line. A fact
/// without a value is left out.
pub fn head(title: &str, lead: &Markup, facts: &[(&str, String)]) -> Markup {
    let known = || facts.iter().filter(|(_, value)| !value.is_empty());
    let run: Vec<String> = known()
        .filter_map(|(key, value)| brief(key, value))
        .collect();
    html! {
        header {
            h1 { (title) }
            p.lead { (lead) }
            @if known().next().is_some() {
                details.run {
                    summary {
                        @if run.is_empty() { "About this result" } @else { (name(&run.join(" · "), NAME)) }
                    }
                    dl.facts {
                        @for (key, value) in known() { (entry(key, &name(value, NAME))) }
                    }
                }
            }
            button.theme type="button" data-theme-switch hidden { "Theme" }
        }
    }
}

/// A fact as the line has it; only the most telling are in it.
fn brief(key: &str, value: &str) -> Option<String> {
    match key {
        "Program" => Some(value.rsplit('/').next().unwrap_or(value).to_owned()),
        "Host" | "Hosts" | "Frameworks" | "When" | "Examined" => Some(value.to_owned()),
        "Rank" | "Ranks" => Some(format!("{} {value}", key.to_lowercase())),
        "Inspected" => Some(value.to_owned()),
        "Pause" => Some(format!("the program paused for {value}")),
        _ => None,
    }
}

/// A term and what is said of it. What to change stands out.
pub fn entry(term: &str, text: &impl Render) -> Markup {
    html! {
        div class=[(term == "Fix").then_some("fix")] { dt { (term) } dd { (text) } }
    }
}

/// The titles of columns of numbers, which are aligned to the right.
const NUMBERS: [&str; 11] = [
    "Size",
    "Bytes",
    "Share",
    "Change",
    "Before",
    "After",
    "Buffers",
    "Objects",
    "Retained",
    "On devices",
    "On the host",
];

/// A table: the titles of its columns, and its rows.
pub fn table(class: Option<&str>, titles: &[&str], rows: impl Iterator<Item = Markup>) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label=(titles.last().unwrap_or(&"Table")) {
            table class=[class] {
                thead { tr { @for title in titles {
                            th.number[NUMBERS.contains(title)] scope="col" { (title) }
                        } } }
                tbody { @for row in rows { (row) } }
            }
        }
    }
}

/// What the reader should know besides; nothing without any.
pub fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() {
            ul.notes { @for note in notes { li { (with_code(&name(note, 1000))) } } }
        }
    }
}

/// The text with its first letter in upper case.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Buttons that copy a line's place and open it in an editor; a script shows what it can do.
pub fn at_line(file: &str, line: u32) -> Markup {
    let place = name(&format!("{file}:{line}"), NAME);
    html! {
        button type="button" data-copy="place" data-place=(place) { "Copy file:line" }
        @if is_file(file) {
            a.open data-file=(name(file, 1000)) data-line=(line) { "Open" }
            select data-editor aria-label="Open in" {}
        }
    }
}

/// False for the cell of a notebook, which no editor opens by this name.
fn is_file(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|it| it.to_str());
    extension.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Lines of the program's own code, with the expression marked, under a heading of this level.
pub fn own_code(source: &SourceLines, level: u8) -> Markup {
    let place = format!("Your code, {}:{}", source.file, source.marked);
    let lines: Vec<_> = numbered(source).collect();
    let width = lines.iter().map(|(number, _)| number.len()).max();
    let width = width.unwrap_or_default();
    let lines = lines.into_iter();
    let lines = lines.map(|(number, line)| format!("{number:>width$} │ {line}"));
    html! {
        div.code {
            div.source {
                @match level {
                    3 => h3.small { (name(&place, NAME)) },
                    _ => h4 { (name(&place, NAME)) },
                }
                pre tabindex="0" { (lines_of(lines)) }
            }
        }
    }
}

pub fn lines_of(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.map(|line| name(&line, NAME)).collect();
    lines.join("\n")
}

/// The text, with code where it has that between backticks. Of a shortened text, one of a pair may have been cut out.
pub fn with_code(text: &str) -> Markup {
    let mended = mended(text);
    let parts: Vec<&str> = mended.split('`').collect();
    let paired = !parts.len().is_multiple_of(2);
    html! {
        @if paired {
            @for (index, part) in parts.iter().enumerate() {
                @if index % 2 == 1 { code { (part) } } @else { (part) }
            }
        } @else { (text) }
    }
}

/// The text with a backtick where one was cut out, which is at the ellipsis nearest to where
/// [`crate::model::words::shortened`] has it.
fn mended(text: &str) -> Cow<'_, str> {
    if text.matches('`').count().is_multiple_of(2) {
        return Cow::Borrowed(text);
    }
    let cut = text.len() * 2 / 5;
    let ellipses = text.match_indices('…').map(|(at, _)| at);
    match ellipses.min_by_key(|at| at.abs_diff(cut)) {
        Some(at) => {
            let (head, tail) = text.split_at(at + '…'.len_utf8());
            Cow::Owned(format!("{head}`{tail}"))
        }
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backticks_make_code_where_they_pair() {
        let code = |text| with_code(text).into_string();
        assert_eq!(
            code("set `a` and `b`"),
            "set <code>a</code> and <code>b</code>"
        );
        assert_eq!(code("one ` alone"), "one ` alone");
        assert_eq!(code("of `half…, 1) → x"), "of <code>half…</code>, 1) → x");
        assert_eq!(
            code("of `a`, …half` → x"),
            "of <code>a</code>, …<code>half</code> → x"
        );
        assert_eq!(code("`<b>`"), "<code>&lt;b&gt;</code>");
    }
}
