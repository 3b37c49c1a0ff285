//! What keeps objects alive, as text.

use crate::model::retention::{Path, Retention, RootKind};
use crate::model::words::{counted, grouped, name, padded, place_within};
use crate::render::lines::{Ink, Lines};
use crate::render::live_sentences::{LISTED, object, removals, verdict};

/// Maximum width of an object's name, so that locations form a column.
const LABEL: usize = 56;
/// So many steps are shown at either end of a long path.
const ENDS: usize = 20;
/// References longer than this are shortened in their middle.
const NAME: usize = 200;

/// A sentence, and each path step by step.
pub fn retention(retention: &Retention) -> String {
    let Retention { loops, paths, .. } = retention;
    let mut out = Lines::new(false);
    let objects: Vec<String> = retention.objects.iter().map(object).collect();
    if !objects.is_empty() {
        let sentence = format!("{}: {}.", objects.join(", "), verdict(retention));
        out.wrapped(Ink::Strong, "", &sentence);
    }
    for part in removals(retention) {
        out.line("");
        out.inked(&[(Ink::Suspect, &part.title)]);
        for keeper in part.keepers.iter().take(LISTED) {
            out.wrapped(Ink::Plain, "  ", &keeper.words);
            if !keeper.release.is_empty() {
                out.wrapped(Ink::Plain, "    ", &format!("or {}", keeper.release));
            }
        }
        let more = part.more(LISTED);
        if more > 0 {
            out.line(format!("  and {} more", grouped(more)));
        }
    }
    for (index, path) in loops.iter().enumerate() {
        out.line("");
        let number = format!("LOOP {} of {}", index + 1, loops.len());
        draw(
            &mut out,
            path,
            &format!("{number} · no collection can free this"),
        );
    }
    for (index, path) in paths.iter().enumerate() {
        out.line("");
        draw(
            &mut out,
            path,
            &format!("PATH {} of {}", index + 1, paths.len()),
        );
    }
    if retention.paths_omitted > 0 {
        let more = counted(retention.paths_omitted, "further path", "further paths");
        out.line("");
        out.line(format!("{more} not shown."));
    }
    for note in &retention.notes {
        out.line("");
        out.wrapped(Ink::Strong, "Note: ", note);
    }
    out.into_text()
}

fn draw(out: &mut Lines, path: &Path, title: &str) {
    let alike = match path.alike {
        0 | 1 => String::new(),
        more => format!(" · {} similar", grouped(more)),
    };
    out.inked(&[(Ink::Strong, title), (Ink::Plain, &alike)]);
    out.wrapped(Ink::Plain, "  ", &path.words);
    out.line("");
    let is_root_object = path.root.is_named();
    let left_out = ENDS..path.steps.len().saturating_sub(ENDS);
    for (index, step) in path.steps.iter().enumerate() {
        if left_out.len() > 1 && left_out.contains(&index) {
            if index == left_out.start {
                let more = counted(left_out.len() as u64, "more object", "more objects");
                out.line(format!("  ⋮ {more}"));
            }
            continue;
        }
        let root = (index == 0 && is_root_object).then_some(&path.root_words);
        let label = name(root.unwrap_or(&step.label), LABEL);
        match (root, &step.location) {
            (None, Some(location)) => out.line(format!(
                "  {}  {}",
                padded(&label, LABEL),
                place_within(location, 40)
            )),
            _ => out.line(format!("  {label}")),
        }
        if !step.edge.is_empty() {
            out.line(format!("    ↓ {}", name(&step.edge, NAME)));
        }
    }
    if path.root == RootKind::Itself {
        out.line("  ╰─ the same object again");
    }
}
