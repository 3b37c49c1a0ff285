//! The program's own lines and their change, line by line as text.

use crate::model::source::{Patch, SourceLines};
use crate::model::words::name;
use crate::render::lines::{Ink, Lines, WIDTH};

/// Maximum number of lines of a change that are shown.
const LINES: usize = 40;
/// How wide a tab is shown.
const TAB: &str = "    ";
/// So much is shown before an expression that is far to the right.
const BEFORE_MARK: usize = 12;

/// The lines with their numbers, and the marks below the expression, which have none.
pub fn numbered(source: &SourceLines) -> impl Iterator<Item = (String, String)> + '_ {
    let shown = source.lines.iter().take(LINES).enumerate();
    shown.flat_map(|(index, line)| {
        let number = source.line.saturating_add(index as u32);
        let mut rows = vec![(number.to_string(), line.replace('\t', TAB))];
        if number == source.marked {
            rows.extend(marks(line, source.start, source.end).map(|marks| (String::new(), marks)));
        }
        rows
    })
}

/// `^^^^` below some characters of a line; `None` if it has none there.
fn marks(line: &str, from: u32, to: u32) -> Option<String> {
    let before: String = line.chars().take(from as usize).collect();
    let marked = to.checked_sub(from).filter(|&count| count > 0)?;
    let marked: String = line
        .chars()
        .skip(from as usize)
        .take(marked as usize)
        .collect();
    let width = |text: &str| unicode_width::UnicodeWidthStr::width(&*text.replace('\t', TAB));
    let count = width(&marked);
    (count > 0).then(|| " ".repeat(width(&before)) + &"^".repeat(count))
}

/// The lines of a change that are removed and added, and those around them.
pub fn changed_lines(patch: &Patch) -> impl Iterator<Item = String> + '_ {
    let lines = patch.diff.lines().filter(|line| !line.starts_with('\\'));
    let lines = lines.map(|line| match line.starts_with("@@") {
        true => "⋮".to_owned(),
        false => line.trim_end().replace('\t', TAB),
    });
    lines.skip(1).take(LINES)
}

/// Adds the lines to a text.
pub fn draw(out: &mut Lines, source: &SourceLines) {
    const ROOM: usize = WIDTH - 13;
    let left = left_of_mark(source, ROOM);
    for (number, line) in numbered(source) {
        let is_marked = number.is_empty() || number == source.marked.to_string();
        let line = match is_marked {
            true => without_start(&line, left),
            false => line,
        };
        let line = name(&clipped(&line, ROOM), ROOM);
        out.inked(&[
            (Ink::Plain, &format!("    {number:>6} │ ")),
            (Ink::Plain, &line),
        ]);
    }
}

/// How many characters of the marked line are left out before the expression, so that it is within a width.
fn left_of_mark(source: &SourceLines, width: usize) -> usize {
    let at = source.marked.saturating_sub(source.line) as usize;
    let Some(line) = source.lines.get(at) else {
        return 0;
    };
    let columns = |count: u32| {
        let part: String = line.chars().take(count as usize).collect();
        part.replace('\t', TAB).chars().count()
    };
    match columns(source.end) < width {
        true => 0,
        false => columns(source.start).saturating_sub(BEFORE_MARK),
    }
}

/// A line without its first characters, with an ellipsis in their place.
fn without_start(line: &str, count: usize) -> String {
    let is_left = line.chars().nth(count).is_some();
    let is_mark = line.trim_start().starts_with('^');
    match count {
        0 => line.to_owned(),
        _ if is_mark || !is_left => line.chars().skip(count).collect(),
        _ => std::iter::once('…')
            .chain(line.chars().skip(count + 1))
            .collect(),
    }
}

/// A line without what is beyond a width.
pub fn clipped(line: &str, width: usize) -> String {
    match line.chars().count() > width {
        true => line.chars().take(width - 1).chain(['…']).collect(),
        false => line.to_owned(),
    }
}

/// The command that prints the change as a patch.
pub fn fix_command(patch: &Patch) -> String {
    let place = quoted(&format!("{}:{}", patch.file, patch.line));
    format!("python -m cyclescope fix {place} --diff")
}

/// A word as a POSIX shell reads it; most are as they are.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:,@%=".contains(letter);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marks_are_below_the_expression_whatever_stands_before_it() {
        let source = SourceLines {
            file: "a.py".into(),
            line: 7,
            lines: vec!["\tä = 1; 名.cb = f".into(), "\tb".into()],
            marked: 7,
            start: 8,
            end: 16,
        };
        let rows: Vec<(String, String)> = numbered(&source).collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0].1, "    ä = 1; 名.cb = f");
        assert_eq!(rows[1].1, "           ^^^^^^^^^");
        assert_eq!(rows[2].0, "8");
    }

    #[test]
    fn marks_that_point_nowhere_are_left_out() {
        let source = SourceLines {
            lines: vec!["a".into()],
            marked: 0,
            start: 9,
            end: 3,
            ..SourceLines::default()
        };
        assert_eq!(numbered(&source).count(), 1);
    }
}
