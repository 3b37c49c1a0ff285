//! The page of what keeps objects alive.

use maud::{Markup, PreEscaped, html};

use crate::model::retention::{Path, Retention, RootKind};
use crate::model::words::{counted, grouped, name, place_within};
use crate::render::html::live::{Page, as_text, folded, section};
use crate::render::html::parts::{sentence, with_code};
use crate::render::live_sentences::{object, removals, verdict};
use crate::render::retaining::retaining;
use crate::render::text;

/// How many objects that were asked about are named in the title.
const NAMED: usize = 4;
/// How many references the first sentence names.
const KEEPERS: usize = 2;
/// Names longer than this are shortened in their middle.
const NAME: usize = 300;
/// A wider drawing is scaled down, but no further than to this.
const WIDE: f64 = 900.0;

/// The page of a [`Retention`]: each path step by step.
pub fn retention(retention: &Retention) -> String {
    let named: Vec<String> = retention.objects.iter().take(NAMED).map(object).collect();
    let mut title = match named.is_empty() {
        true => "No objects".to_owned(),
        false => named.join(", "),
    };
    let more = retention.objects.len().saturating_sub(NAMED) as u64;
    if more > 0 {
        title += &format!(" and {} more", grouped(more));
    }
    let mut notes = retention.notes.clone();
    if retention.paths_omitted > 0 {
        let more = counted(
            retention.paths_omitted,
            "further path is",
            "further paths are",
        );
        notes.push(format!("{more} not shown."));
    }
    let lead = sentence(&verdict(retention));
    Page {
        title,
        lead: html! { b { (name(&lead, NAME)) } (keepers(retention)) "." },
        facts: vec![("Pause", format!("{:.0} ms", retention.pause_ms))],
        body: body(retention),
        notes,
        ..Page::default()
    }
    .html()
}

/// The references that keep the objects alive, the first ones by name.
fn keepers(retention: &Retention) -> Markup {
    let all = match retention.loops.is_empty() {
        true => &*retention.keepers,
        false => &[],
    };
    let more = all.len().saturating_sub(KEEPERS) as u64 + retention.keepers_omitted;
    html! {
        @for (index, keeper) in all.iter().take(KEEPERS).enumerate() {
            @match index {
                0 => ": ",
                _ if index + 1 == all.len() => " and ",
                _ => ", ",
            }
            (with_code(&name(&keeper.words, NAME)))
        }
        @if more > 0 { " and " (grouped(more)) " more" }
    }
}

fn body(retention: &Retention) -> Markup {
    let Retention { loops, paths, .. } = retention;
    let drawing = retaining(retention, "keeps", false);
    let narrow = retaining(retention, "keeps-narrow", true);
    html! {
        section.leak {
            @for part in removals(retention) {
                h2 { (part.title.trim_end_matches(':')) }
                ul.keepers { @for keeper in part.keepers { li {
                    (with_code(&name(&keeper.words, 1000)))
                    @if !keeper.release.is_empty() {
                        p.more.release { "or " (with_code(&name(&keeper.release, 1000))) }
                    }
                } } }
                @if part.more > 0 { p.more { "and " (grouped(part.more)) " more" } }
            }
            @if let Some(drawing) = &drawing {
                @if retention.keepers.is_empty() { h2 { "What keeps it alive" } }
                @let class = if drawing.width > WIDE { "drawn large" } else { "drawn" };
                div class=(class) tabindex="0" role="group" aria-label="Drawing" {
                    (PreEscaped(&drawing.svg))
                }
                @if let Some(narrow) = narrow {
                    div.drawn-narrow { (PreEscaped(narrow.svg)) }
                }
            }
            @if drawing.is_some() && !paths.is_empty() {
                (folded(&counted(paths.len() as u64, "path, step by step", "paths, step by step"), &html! {
                    @for path in paths {
                        p { (with_code(&name(&path.words, 1000))) }
                        (steps(path))
                    }
                }))
            }
        }
        @for (index, path) in loops.iter().enumerate() {
            @let number = format!("Loop {} of {}", index + 1, loops.len());
            (section(&format!("{number}: no collection can free this"), &html! {
                p { (with_code(&name(&path.words, 1000))) }
                (steps(path))
            }))
        }
        @if drawing.is_none() {
            @for (index, path) in paths.iter().enumerate() {
                (section(&format!("Path {} of {}", index + 1, paths.len()), &html! {
                    p { (with_code(&name(&path.words, 1000))) }
                    (steps(path))
                }))
            }
        }
        (as_text(&text::retention(retention)))
    }
}

/// A path step by step.
fn steps(path: &Path) -> Markup {
    let named = path.root.is_named();
    html! {
        @if path.alike > 1 { p.more { (grouped(path.alike)) " similar paths." } }
        ol.way {
            @for (index, step) in path.steps.iter().enumerate() {
                @let root = (index == 0 && named).then_some(&path.root_words);
                li {
                    b { (with_code(&name(root.unwrap_or(&step.label), NAME))) }
                    @if let (None, Some(location)) = (root, &step.location) {
                        " " span { (name(&place_within(location, 80), 80)) }
                    }
                }
                @if !step.edge.is_empty() { li { i { "↓ " (name(&step.edge, NAME)) } } }
            }
            @if path.root == RootKind::Itself { li { "╰─ the same object again" } }
        }
    }
}
