//! The page of what keeps objects alive.

use maud::{Markup, PreEscaped, html};

use crate::model::retention::{Keeper, Path, Retention, RootKind};
use crate::model::words::{counted, grouped, name, place_within};
use crate::render::html::live::{Page, as_text, facts, folded, section};
use crate::render::html::parts::{sentence, with_code};
use crate::render::live_sentences::{LISTED, Removal, object, removals, verdict};
use crate::render::outline::{End, is_chain, outline};
use crate::render::retaining::{Plan, plan, retaining};
use crate::render::text;

/// How many objects that were asked about are named in the title.
const NAMED: usize = 4;
/// Of more entries than these the drawing, which has all, comes first.
const FEW: usize = 4;
/// How many references the first sentence names if these are all; else it names one.
const KEEPERS: usize = 2;
/// Names in the first sentence that are longer are shortened in their middle.
const BRIEF: usize = 120;
/// Names longer than this are shortened in their middle.
const NAME: usize = 300;
/// A wider drawing is scaled down to the window, but no further than to this width.
const WIDE: f64 = 900.0;
/// One that is wider than this needs a wide window too, as its letters are to be 9 pixels high at the least.
const WIDER: f64 = 1400.0;
/// And one that is wider than this no window has room for.
const WIDEST: f64 = 1800.0;

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
    let mut facts = facts(&retention.process, retention.time);
    facts.push(("Pause", format!("{:.0} ms", retention.pause_ms)));
    Page {
        title,
        lead: html! { b { (name(&lead, NAME)) } (keepers(retention)) "." },
        facts,
        body: body(retention),
        notes,
        ..Page::default()
    }
    .html()
}

/// The references that keep the objects alive, the first ones by name.
fn keepers(retention: &Retention) -> Markup {
    let mut all: Vec<&Keeper> = match retention.loops.is_empty() {
        true => retention.keepers.iter().collect(),
        false => vec![],
    };
    // What is to be removed first.
    all.sort_by_key(|keeper| keeper.goes_by_itself);
    let named = match all.len() {
        few if few <= KEEPERS => few,
        _ => 1,
    };
    let more = (all.len() - named) as u64 + retention.keepers_omitted;
    html! {
        @for (index, keeper) in all.iter().take(named).enumerate() {
            (if index == 0 { ": " } else { " and " })
            (with_code(&name(&keeper.words, BRIEF)))
        }
        @if more > 0 { " and " (grouped(more)) " more" }
    }
}

fn body(retention: &Retention) -> Markup {
    let Retention { loops, paths, .. } = retention;
    let plan = plan(retention);
    let parts = removals(retention);
    let entries: usize = parts.iter().map(|part| alike(&part.keepers).len()).sum();
    html! {
        @if plan.is_some() || !retention.keepers.is_empty() { section.leak {
            @if let Some(plan) = &plan && (entries == 0 || entries > FEW) {
                h2 { "What keeps it alive" }
                (drawn(plan, retention))
            }
            @for part in &parts { (removal(part)) }
            @if let Some(plan) = &plan && (1..=FEW).contains(&entries) { (drawn(plan, retention)) }
            @if plan.is_some() && !paths.is_empty() {
                (folded(&counted(paths.len() as u64, "path, step by step", "paths, step by step"), &html! {
                    @for path in paths {
                        p { (with_code(&name(&path.words, 1000))) }
                        (steps(path))
                    }
                }))
            }
        } }
        @for (index, path) in loops.iter().enumerate() {
            @let number = format!("Loop {} of {}", index + 1, loops.len());
            (section(&format!("{number}: no collection can free this"), &html! {
                p { (with_code(&name(&path.words, 1000))) }
                (steps(path))
            }))
        }
        @if plan.is_none() {
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

/// The references to remove, or those that go by themselves.
fn removal(part: &Removal<'_>) -> Markup {
    let groups = alike(&part.keepers);
    let shown = &groups[..groups.len().min(LISTED)];
    let more = part.more(shown.iter().map(Vec::len).sum());
    html! {
        h2 { (part.title.trim_end_matches(':')) }
        ul.keepers { @for alike in shown { li {
            (with_code(&name(&alike[0].words, 1000)))
            @if !alike[0].release.is_empty() {
                p.more.release { "or " (with_code(&name(&alike[0].release, 1000))) }
            }
            @if alike.len() > 1 {
                details.alike {
                    summary { "and " (alike.len() - 1) " that differ only in numbers" }
                    ul { @for other in &alike[1..] { li { (with_code(&name(&other.words, 1000))) } } }
                }
            }
        } } }
        @if more > 0 { p.more { "and " (grouped(more)) " more" } }
    }
}

/// The drawing; where there is no room for it as an outline, if it is more than a chain.
fn drawn(plan: &Plan, retention: &Retention) -> Markup {
    let drawing = retaining(plan, retention, "keeps", false);
    let class = match drawing.width {
        WIDEST.. => "drawn too-wide",
        WIDER.. => "drawn large larger",
        WIDE.. => "drawn large",
        _ => "drawn",
    };
    let left_out = retention.keepers.len().saturating_sub(plan.keepers);
    html! {
        div class=(class) tabindex="0" role="group" aria-label="Drawing" { (PreEscaped(drawing.svg)) }
        div.drawn-narrow {
            @if is_chain(plan) { (PreEscaped(retaining(plan, retention, "keeps-narrow", true).svg)) }
            @else { (as_outline(plan)) }
        }
        @if left_out > 0 {
            p.more { (counted(left_out as u64, "further reference is", "further references are")) " not drawn." }
        }
    }
}

/// Each root with what it leads to below it, to the objects that were asked about.
fn as_outline(plan: &Plan) -> Markup {
    let rows = outline(plan);
    let asked: Vec<&str> = rows
        .iter()
        .filter(|row| row.end == End::Asked)
        .map(|row| &*row.label)
        .collect();
    let is_one = asked.iter().all(|label| *label == asked[0]);
    html! {
        ul.outline {
            @for row in &rows {
                li class={ "o" (row.depth) } {
                    @if row.is_cut { b.cut { "✂ " (row.edge) } } @else { i { (row.edge) } }
                    " "
                    @match row.end {
                        End::Asked => span.asked { "■" @if !is_one { " " (row.label) } },
                        _ => {
                            @if !row.edge.is_empty() { "→ " }
                            span { (row.label) } " " small { (row.place) }
                            @if row.end == End::Above { small { " (above)" } }
                        }
                    }
                }
            }
        }
        p.more {
            "✂ keeps it alive by itself"
            @if let Some(label) = asked.first().filter(|_| is_one) { "; ■ is the " (label) }
            "."
        }
    }
}

/// The references with those that differ only in numbers together, by these numbers; two are not worth a group.
fn alike<'a>(keepers: &[&'a Keeper]) -> Vec<Vec<&'a Keeper>> {
    let shape = |keeper: &Keeper| {
        let words = keeper.words.split(|c: char| c.is_ascii_digit());
        words
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("#")
            + &keeper.release
    };
    let mut groups: Vec<(String, Vec<&Keeper>)> = vec![];
    for &keeper in keepers {
        let shape = shape(keeper);
        match groups.iter_mut().find(|(of, _)| *of == shape) {
            Some((_, group)) => group.push(keeper),
            None => groups.push((shape, vec![keeper])),
        }
    }
    let by_number = |mut group: Vec<&'a Keeper>| {
        group.sort_by_key(|keeper| keeper.words.len());
        match group.len() {
            2 => group.into_iter().map(|keeper| vec![keeper]).collect(),
            _ => vec![group],
        }
    };
    groups
        .into_iter()
        .flat_map(|(_, group)| by_number(group))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_that_differ_only_in_numbers_are_together() {
        let keeper = |words: &str| Keeper {
            words: words.to_owned(),
            ..Keeper::default()
        };
        let all = ["a.x", "a.1.y", "a.10.y", "a.2.y", "b[1]", "b[2]"].map(keeper);
        let groups = alike(&all.each_ref());
        let words = |group: &Vec<&Keeper>| group.iter().map(|it| it.words.clone()).collect();
        let words: Vec<Vec<String>> = groups.iter().map(words).collect();
        assert_eq!(
            words,
            [
                vec!["a.x"],
                vec!["a.1.y", "a.2.y", "a.10.y"],
                vec!["b[1]"],
                vec!["b[2]"]
            ]
        );
    }

    #[test]
    fn twenty_hooks_are_one_entry_and_what_goes_by_itself_is_named_last() {
        let hook = |number| Keeper {
            words: format!("module `train` → `model` → .{number} → .hook"),
            ..Keeper::default()
        };
        let local = Keeper {
            words: "local `t` in `main`".to_owned(),
            goes_by_itself: true,
            ..Keeper::default()
        };
        let found = Retention {
            keepers: [local].into_iter().chain((0..20).map(hook)).collect(),
            ..Retention::default()
        };
        let page = retention(&found);
        assert!(
            page.contains("and 19 that differ only in numbers"),
            "{page}"
        );
        assert!(page.contains(
            ": module <code>train</code> → <code>model</code> → .0 → .hook and 20 more."
        ));
        let shown = page.split("As text").next().expect("a part before");
        assert!(!shown.contains("and 4 more"));
    }

    #[test]
    fn what_nothing_keeps_has_no_empty_part() {
        assert!(!retention(&Retention::default()).contains("<section class=\"leak\"></section>"));
    }
}
