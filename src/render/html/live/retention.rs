//! The page of what keeps objects alive.

use crate::model::retention::{Path, Retention, RootKind};
use crate::model::words::{counted, grouped, place_within};
use crate::render::html::leak::with_code;
use crate::render::html::live::{Page, as_text, section};
use crate::render::html::shown;

/// How many objects that were asked about are named in the title.
const NAMED: usize = 4;
/// Names longer than this are shortened in their middle.
const NAME: usize = 300;

/// The page of a [`Retention`]: each path step by step.
pub fn retention(retention: &Retention) -> String {
    let named: Vec<String> = retention
        .objects
        .iter()
        .take(NAMED)
        .map(|it| it.words())
        .collect();
    let mut title = match named.is_empty() {
        true => "No objects".to_owned(),
        false => named.join(", "),
    };
    let more = retention.objects.len().saturating_sub(NAMED) as u64;
    if more > 0 {
        title += &format!(" and {} more", grouped(more));
    }
    let mut body = String::new();
    for (index, path) in retention.loops.iter().enumerate() {
        let title = format!(
            "Loop {} of {}: no collection can free this",
            index + 1,
            retention.loops.len()
        );
        body += &section(&title, &steps(path));
    }
    for (index, path) in retention.paths.iter().enumerate() {
        let title = format!("Path {} of {}", index + 1, retention.paths.len());
        body += &section(&title, &steps(path));
    }
    body += &as_text(&retention.to_text());
    let mut notes = retention.notes.clone();
    if retention.paths_omitted > 0 {
        let more = counted(
            retention.paths_omitted,
            "further path is",
            "further paths are",
        );
        notes.push(format!("{more} not shown."));
    }
    let verdict = retention.verdict();
    let mut letters = verdict.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    Page {
        title,
        lead: shown(
            &format!("{}.", first.into_iter().chain(letters).collect::<String>()),
            NAME,
        ),
        facts: vec![("Pause", format!("{:.0} ms", retention.pause_ms))],
        body,
        notes,
        ..Page::default()
    }
    .html()
}

/// A path in one line and step by step.
fn steps(path: &Path) -> String {
    let alike = match path.alike {
        0 | 1 => String::new(),
        more => format!("<p class=\"more\">{} similar paths.</p>\n", grouped(more)),
    };
    let named = matches!(path.root, RootKind::Module | RootKind::Local);
    let mut lines = String::new();
    for (index, step) in path.steps.iter().enumerate() {
        let label = match index {
            0 if named => &path.root_words,
            _ => &step.label,
        };
        let place = step.location.as_ref().filter(|_| index > 0 || !named);
        let place = place.map(|it| format!(" <span>{}</span>", shown(&place_within(it, 80), 80)));
        lines += &format!(
            "<li><b>{}</b>{}</li>\n",
            shown(label, NAME),
            place.unwrap_or_default()
        );
        if !step.edge.is_empty() {
            lines += &format!("<li><i>↓ {}</i></li>\n", shown(&step.edge, NAME));
        }
    }
    if path.root == RootKind::Itself {
        lines += "<li>╰─ the same object again</li>\n";
    }
    format!(
        "<p>{}</p>\n{alike}<h3>Step by step</h3>\n<ol class=\"way\">\n{lines}</ol>\n",
        with_code(&shown(&path.words, 1000))
    )
}
