//! Changes of a text, and the unified diff that `git apply` takes.

use std::ops::Range;

use crate::model::source::LineEdit;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// A part of the text, and what takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub range: Range<usize>,
    pub text: String,
}

impl Edit {
    pub fn insert(at: usize, text: String) -> Self {
        Self {
            range: at..at,
            text,
        }
    }
}

/// Whole lines of a text and what takes their place: each the smallest that has all edits that touch.
pub fn line_edits(text: &str, edits: &[Edit]) -> Vec<LineEdit> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut starts: Vec<usize> = Vec::with_capacity(lines.len());
    let mut at = 0;
    for line in &lines {
        starts.push(at);
        at += line.len();
    }
    let line_of = |at: usize| {
        starts
            .partition_point(|&start| start <= at)
            .saturating_sub(1)
    };
    let mut edits = edits.to_vec();
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut groups: Vec<(Range<usize>, Vec<Edit>)> = Vec::new();
    for edit in edits {
        let at_end = edit.range.start == text.len() && (text.is_empty() || text.ends_with('\n'));
        let is_new_line = edit.range.is_empty() && (at_end || starts.contains(&edit.range.start));
        let first = match at_end {
            true => lines.len(),
            false => line_of(edit.range.start),
        };
        let end = match is_new_line {
            true => first,
            false => line_of(edit.range.end.saturating_sub(1).max(edit.range.start)) + 1,
        };
        match groups.last_mut() {
            Some((range, group)) if first <= range.end => {
                range.end = range.end.max(end);
                group.push(edit);
            }
            _ => groups.push((first..end, vec![edit])),
        }
    }
    groups
        .into_iter()
        .map(|(range, group)| {
            let start = starts.get(range.start).copied().unwrap_or(text.len());
            let end = starts.get(range.end).copied().unwrap_or(text.len());
            let mut inserted = String::new();
            let mut at = start;
            for edit in group {
                inserted += &text[at..edit.range.start];
                inserted += &edit.text;
                at = edit.range.end;
            }
            inserted += &text[at..end];
            trimmed(&lines[range.clone()], range.start, &inserted)
        })
        .collect()
}

/// The edit without the lines at both of its ends that stay as they are.
fn trimmed(old: &[&str], first: usize, new: &str) -> LineEdit {
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let before = old.iter().zip(&new).take_while(same).count();
    let rest = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev());
    let after = after.take_while(same).take(rest).count();
    LineEdit {
        line: (first + before + 1) as u32,
        removed: (old.len() - before - after) as u32,
        inserted: new[before..new.len() - after].concat(),
    }
}

/// The changes of the lines of a text as a unified diff, without the names of files.
pub fn unified(text: &str, edits: &[LineEdit]) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut out = String::new();
    let mut shift: isize = 0;
    let mut index = 0;
    while index < edits.len() {
        let mut last = index;
        while let Some(next) = edits.get(last + 1)
            && next.line as usize - 1 <= end_of(&edits[last]) + 2 * CONTEXT
        {
            last += 1;
        }
        let hunk = &edits[index..=last];
        let from = (hunk[0].line as usize - 1).saturating_sub(CONTEXT);
        let to = (end_of(&edits[last]) + CONTEXT).min(lines.len());
        let mut body = String::new();
        let (mut at, mut growth) = (from, 0);
        for edit in hunk {
            let first = edit.line as usize - 1;
            push_lines(&mut body, ' ', &lines[at..first]);
            push_lines(&mut body, '-', &lines[first..end_of(edit)]);
            let inserted: Vec<&str> = edit.inserted.split_inclusive('\n').collect();
            push_lines(&mut body, '+', &inserted);
            growth += inserted.len() as isize - edit.removed as isize;
            at = end_of(edit);
        }
        push_lines(&mut body, ' ', &lines[at..to]);
        let old = to - from;
        let new = old.saturating_add_signed(growth);
        let start = |count: usize, shift: isize| {
            (from + usize::from(count > 0)).saturating_add_signed(shift)
        };
        out += &format!(
            "@@ -{},{old} +{},{new} @@\n{body}",
            start(old, 0),
            start(new, shift)
        );
        shift += growth;
        index = last + 1;
    }
    out
}

/// The index of the line after those that an edit takes away.
fn end_of(edit: &LineEdit) -> usize {
    (edit.line - 1 + edit.removed) as usize
}

fn push_lines(out: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        out.push(sign);
        *out += line;
        if !line.ends_with('\n') {
            *out += "\n\\ No newline at end of file\n";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(text: &str, edits: &[Edit]) -> String {
        unified(text, &line_edits(text, edits))
    }

    #[test]
    fn lines_that_touch_are_one_change() {
        let text = "a\nb\nc\n";
        let edits = [
            Edit::insert(2, "x\n".into()),
            Edit {
                range: 2..3,
                text: "B".into(),
            },
        ];
        assert_eq!(diff(text, &edits), "@@ -1,3 +1,4 @@\n a\n-b\n+x\n+B\n c\n");
    }

    #[test]
    fn a_text_may_end_without_a_newline() {
        let edits = [Edit {
            range: 2..3,
            text: "B".into(),
        }];
        let end = "\n\\ No newline at end of file\n";
        assert_eq!(
            diff("a\nb", &edits),
            format!("@@ -1,2 +1,2 @@\n a\n-b{end}+B{end}")
        );
        let added = [Edit::insert(3, "\nc\n".into())];
        assert_eq!(
            diff("a\nb", &added),
            format!("@@ -1,2 +1,3 @@\n a\n-b{end}+b\n+c\n")
        );
    }

    #[test]
    fn changes_far_from_each_other_are_hunks_of_their_own() {
        let text = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let edits = [
            Edit::insert(0, "x\n".into()),
            Edit::insert(20, "y\n".into()),
        ];
        assert_eq!(
            diff(text, &edits),
            "@@ -1,3 +1,4 @@\n+x\n 0\n 1\n 2\n@@ -8,3 +9,4 @@\n 7\n 8\n 9\n+y\n"
        );
    }

    #[test]
    fn lines_that_stay_are_not_part_of_a_change() {
        let text = "a\nb\nc\n";
        let edit = Edit {
            range: 0..6,
            text: "a\nB\nc\n".into(),
        };
        let edits = line_edits(text, &[edit]);
        assert_eq!((edits[0].line, edits[0].removed), (2, 1));
        assert_eq!(edits[0].inserted, "B\n");
    }
}
