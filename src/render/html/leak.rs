//! One leak of the page.

use maud::{Markup, PreEscaped, html};

use crate::model::report::{Known, Leak, Library};
use crate::model::words::{brief, human_bytes, name, printable_code};
use crate::render::canvas::Drawing;
use crate::render::clusters::CLUSTERS;
use crate::render::html::contents::Listed;
use crate::render::html::memory::buffers;
use crate::render::html::packed::packed;
use crate::render::html::parts::{at_line, entry, lines_of, own_code, sentence, with_code};
use crate::render::html::timeline::timeline;
use crate::render::html::{DRAWN, NAME};
use crate::render::markdown::leak_markdown;
use crate::render::source::{changed_lines, fix_command};
use crate::render::subgraph::{Detail, FOLDS};
use crate::render::svg::Look;
use crate::render::{sentences, svg, text};

/// Below a drawing that is higher than this, what to change would be out of sight.
const TALL: f64 = 640.0;
/// Of a drawing that is wider than this, the column is shown beside a list; see `legible` in figure.js.
const WIDE: f64 = 1300.0;

/// One leak: `rank` is its place in the page.
pub fn section(rank: usize, all: &[Listed<'_>]) -> Markup {
    let listed = &all[rank];
    let (leak, number) = (listed.leak, rank + 1);
    let trace = format!("{}\n{}", sentences::title(leak), text::body(leak));
    let figure = (rank < DRAWN).then(|| figure(number, leak));
    let is_tall = figure.as_ref().is_some_and(|it| it.height > TALL);
    html! {
        section.leak id=(listed.id) data-leak=(listed.index) {
            h2 { (sentences::size_and_cycle(leak)) }
            (marks(listed))
            (gist(leak, all))
            @if is_tall { (advice(leak)) }
            @if let Some(figure) = figure { (figure.markup) }
            @if !is_tall { (advice(leak)) }
            (buffers(leak))
            (timeline(leak))
            details.trace {
                summary { "The leak trace, as text" }
                pre tabindex="0" { (printable_code(&trace)) }
            }
            template data-markdown { (packed(&leak_markdown(leak))) }
            details.raw hidden { summary { "All objects and references" } }
        }
    }
}

/// A leak on another page: what to change and the drawing, with nothing that a script works on.
pub fn card(leak: &Leak) -> Markup {
    let draw = |id, narrow| {
        let look = Look {
            detail: Detail::Leak,
            style: None,
            titles: true,
            narrow,
        };
        PreEscaped(svg::draw(leak, id, &look).svg)
    };
    html! {
        section.leak.card {
            h2 { (sentences::size_and_cycle(leak)) }
            @if let Some(place) = leak.line_to_change() {
                ul.marks { li.share-it hidden { (at_line(&place.file, place.line)) } }
            }
            (gist(leak, &[]))
            div.drawn tabindex="0" role="group" aria-label="Drawing of the leak" { (draw("card", false)) }
            div.drawn-narrow { (draw("card-narrow", true)) }
            (advice(leak))
        }
    }
}

/// What to change, and what holds what.
fn gist(leak: &Leak, all: &[Listed<'_>]) -> Markup {
    let fix = sentences::fix(leak);
    html! {
        dl.gist {
            (entry("Fix", &with_code(&brief(&fix))))
            (entry("Held", &brief(&sentence(&sentences::held(leak)))))
            @if let Some(others) = sentences::also_held(leak, &[]) {
                (entry("Also", &linked(&brief(&sentence(&others)), &leak.also_held_by(), all)))
            }
            @let same = sentences::of_same_line(leak, all.iter().map(|it| it.leak));
            @if let Some(others) = sentences::same_line(&same, &[]) {
                (entry("Line", &linked(&sentence(&others), &same, all)))
            }
            @if let Some(frozen) = sentences::frozen(leak) {
                (entry("Frozen", &with_code(&sentence(&frozen))))
            }
            @if let Some(library) = &leak.library { (entry("Library", &of_library(library, leak.stores_given))) }
            @if let Some(known) = &leak.known { (entry("Known", &of_known(known, &fix))) }
        }
    }
}

/// Pattern, whose it is, signature and what was measured, as small tags.
fn marks(listed: &Listed<'_>) -> Markup {
    let leak = listed.leak;
    html! {
        ul.marks {
            @if let Some(change) = listed.change {
                li class={ "change " (change.word()) } { (change.words()) }
            }
            @if let Some(pattern) = &leak.pattern { li.pattern { (name(pattern, NAME)) } }
            @if leak.is_library() { li.library { "a library's" } }
            @else if !leak.is_of_unknown_code() { li.yours { "yours" } }
            @if leak.known.is_some() { li.known { "known leak" } }
            @if let Some(freed) = leak.bytes_freed {
                li.freed { (human_bytes(freed)) " freed by the collection" }
            }
            li.signature {
                span title="Signature: the same for this leak in every run" {
                    (name(&leak.signature, NAME))
                }
                button type="button" data-copy="signature" hidden { "Copy" }
            }
            li.share-it hidden {
                button type="button" data-copy="trace" { "Copy trace" }
                button type="button" data-copy="markdown" { "Copy as Markdown" }
                button type="button" data-copy="link" { "Copy link" }
                @if let Some(place) = leak.line_to_change() { (at_line(&place.file, place.line)) }
            }
        }
    }
}

/// The library that the leak is of.
fn of_library(library: &Library, stores_given: bool) -> String {
    let mut text = library.name.clone();
    if let Some(version) = &library.version {
        text += &format!(" {version}");
    }
    text += match stores_given {
        true => ". Its code made the cycle, perhaps of what yours gave it",
        false => ". Its code made the whole cycle",
    };
    if let Some(line) = &library.your_line {
        text += &format!("; your nearest line is {line}");
    }
    name(&format!("{text}."), 600)
}

/// The sentence about other leaks, with each of them that is on the page as a link that names it.
fn linked(text: &str, others: &[&str], all: &[Listed<'_>]) -> Markup {
    let mut rest = text;
    let mut parts = Vec::new();
    let found = |rest: &str| {
        let places = others.iter().filter_map(|&it| Some((rest.find(it)?, it)));
        places.min()
    };
    while let Some((at, signature)) = found(rest) {
        let other = all.iter().find(|other| other.leak.signature == signature);
        parts.push((&rest[..at], other, signature));
        rest = &rest[at + signature.len()..];
    }
    html! {
        @for (before, other, signature) in parts {
            (before)
            @match other {
                Some(other) if !other.leak.summary.is_empty() => {
                    a href={ "#" (other.id) } { (name(&brief(&other.leak.summary), 120)) }
                }
                _ => (signature),
            }
        }
        (rest)
    }
}

/// What others know of the leak, but for the sentences that the fix has.
fn of_known(known: &Known, fix: &str) -> Markup {
    let sentences = known.remedy.split_inclusive(". ");
    let fresh = |it: &&str| !fix.contains(it.trim().trim_end_matches('.'));
    let remedy: String = sentences.filter(fresh).collect();
    html! {
        (with_code(&name(remedy.trim_end(), 1000)))
        @if let Some(fixed) = &known.fixed_in {
            " Fixed in " (name(&known.library, 80)) " " (name(fixed, 40)) "."
        }
        // Nothing but a web page: `javascript:` would run.
        @if let Some(link) = known.link.as_ref().filter(|link| link.starts_with("https://")) {
            " " a href=(name(link, 2000)) rel="noopener noreferrer" { (name(link, 100)) }
        }
    }
}

/// A leak's drawing, and how high it is as long as the leak alone is drawn.
struct Figure {
    markup: Markup,
    height: f64,
}

/// The drawing with what works on it. The more detailed drawings are asleep until they are asked
/// for.
fn figure(number: usize, leak: &Leak) -> Figure {
    let draw = |suffix: &str, detail, titles| {
        let look = Look {
            detail,
            style: None,
            titles,
            narrow: suffix == "n",
        };
        svg::draw(leak, &format!("drawing-{number}{suffix}"), &look)
    };
    let wide = draw("", Detail::Leak, true);
    let width = wide.width;
    // On paper, and where no script runs, the first is as wide as the page is.
    let (name, first, other) = match width > WIDE {
        true => ("narrow", draw("n", Detail::Leak, true), ("leak", wide)),
        false => ("leak", wide, ("narrow", draw("n", Detail::Leak, false))),
    };
    let Drawing {
        svg: first, height, ..
    } = first;
    let draw = |suffix: &str, detail, titles| draw(suffix, detail, titles).svg;
    let mut asleep = vec![(other.0.to_owned(), other.1.svg)];
    if leak.graph.edges.iter().any(|edge| !edge.through.is_empty()) {
        asleep.push(("plumbing".to_owned(), draw("p", Detail::Plumbing, false)));
    }
    let objects = |drawing: &str| drawing.matches("data-node=").count();
    if objects(&first) < leak.graph.nodes.len() {
        let all = draw("a", Detail::All, false);
        let opens = |drawing: &str, name: &str| drawing.contains(&format!("data-opens=\"{name}\""));
        let is_clustered = all.contains("data-opens=");
        for fold in 0..FOLDS {
            let name = format!("fold-{fold}");
            if opens(&first, &name) {
                let opened = draw(&format!("f{fold}"), Detail::Opened(fold), false);
                if is_clustered || objects(&opened) < objects(&all) {
                    asleep.push((name, opened));
                }
            }
        }
        for cluster in 0..CLUSTERS {
            let name = format!("all-{cluster}");
            if opens(&all, &name) {
                let unfolded = draw(&format!("a{cluster}"), Detail::Unfolded(cluster), false);
                asleep.push((name, unfolded));
            }
        }
        asleep.push(("all".to_owned(), all));
    }
    let markup = html! {
        figure data-first=(name) data-width=(width.ceil()) {
            (tools(|view| view == "leak" || asleep.iter().any(|(key, _)| key == view)))
            div.stage {
                div.view { (PreEscaped(first)) }
                div.facts-of-object role="region" tabindex="0" aria-label="The object" aria-live="polite"
                    hidden {}
            }
            @for (view, drawing) in &asleep {
                template data-view=(view) { (packed(drawing)) }
            }
        }
    };
    Figure { markup, height }
}

/// What works on a drawing, with a button for each view that is there.
fn tools(is_there: impl Fn(&str) -> bool) -> Markup {
    let view = |key, label, title| {
        html! {
            @if is_there(key) {
                button type="button" data-view=(key) title=(title) { (label) }
            }
        }
    };
    html! {
        div.tools role="toolbar" aria-label="Drawing" hidden {
            div.views role="group" aria-label="Detail" {
                (view("leak", "The leak",
                    "The cycle, the memory it holds and the reference to cut"))
                (view("plumbing", "Plumbing",
                    "Includes the dictionaries, closure tuples and cells between objects"))
                (view("all", "Everything", "All objects in the report; of many, those of a type are one box"))
            }
            input type="search" placeholder="Find an object" aria-label="Find an object";
            select aria-label="Type of objects" { option value="" { "All types" } }
            output {}
            div.camera {
                button type="button" data-zoom="in" title="Zoom in" aria-label="Zoom in" { "+" }
                button type="button" data-zoom="out" title="Zoom out" aria-label="Zoom out" { "−" }
                button type="button" data-zoom="fit" { "Fit" }
                button type="button" data-save="svg" title="Save this drawing" { "SVG" }
                button type="button" data-help title="Keyboard shortcuts" { "?" }
            }
        }
    }
}

/// What to change, where more is to be said than the gist has.
fn advice(leak: &Leak) -> Markup {
    let advice = &leak.advice;
    let is_text = !advice.text.is_empty() && !sentences::advice_is_fix(leak);
    let is_shown = leak.own_lines().next().is_some();
    let patch = leak.patch.as_ref().filter(|_| is_shown);
    let is_code = !is_shown && (advice.before.is_some() || advice.after.is_some());
    html! {
        @if is_text || is_code || is_shown {
            div.advice {
                h3 { "What to change" }
                @if is_text { p { (with_code(&brief(&name(&advice.text, 2000)))) } }
                @if leak.candidate_sources.len() > 1 { p { "Any of these statements may make the reference." } }
                @for source in leak.own_lines() {
                    (own_code(source, 4))
                }
                @if let Some(patch) = patch {
                    p { (with_code(&name(&patch.summary, NAME))) }
                    div.code {
                        div.patch {
                            h4 { "The change" }
                            pre tabindex="0" { @for line in changed_lines(patch) { (changed(&name(&line, NAME))) "\n" } }
                        }
                    }
                    p { "As a patch: " code { (name(&fix_command(patch), NAME)) } }
                }
                @if is_code {
                    p { "For example:" }
                    div.code {
                        @if let Some(code) = &advice.before { (example("before", "Before", code)) }
                        @if let Some(code) = &advice.after { (example("after", "After", code)) }
                    }
                }
            }
        }
    }
}

fn example(class: &str, title: &str, code: &str) -> Markup {
    let lines = code.lines().take(40);
    let lines = lines.map(|line| line.replace('\t', "    "));
    html! {
        div class=(class) { h4 { (title) } pre tabindex="0" { (lines_of(lines)) } }
    }
}

/// A line of a diff.
fn changed(line: &str) -> Markup {
    html! {
        @match line.as_bytes().first() {
            Some(b'+') => ins { (line) },
            Some(b'-') => del { (line) },
            _ => (line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::html::contents::listed;
    use crate::render::samples;

    fn page_of(leak: &Leak) -> String {
        section(0, &listed(&[(0, leak)], &samples::no_leaks())).0
    }

    #[test]
    fn a_library_s_leak_says_so_and_links_to_web_pages_only() {
        let mut leak = samples::callback().leaks.remove(0);
        assert!(page_of(&leak).contains("<li class=\"yours\">yours</li>"));
        leak.library = Some(Library {
            name: "torch".into(),
            version: Some("2.9.1".into()),
            your_line: None,
        });
        leak.known = Some(Known {
            remedy: "Use <one>.".into(),
            library: "torch".into(),
            fixed_in: Some("2.12".into()),
            link: Some("https://example.org/1".into()),
            ..Known::default()
        });
        let page = page_of(&leak);
        for told in [
            "<li class=\"library\">a library's</li>",
            "torch 2.9.1. Its code made the whole cycle.",
            "Use &lt;one&gt;. Fixed in torch 2.12. <a href=\"https://example.org/1\"",
        ] {
            assert!(page.contains(told), "{told}");
        }
        if let Some(known) = &mut leak.known {
            known.link = Some("javascript:alert(1)".into());
        }
        assert!(!page_of(&leak).contains("href="));
    }

    #[test]
    fn what_to_change_stands_above_a_drawing_that_would_hide_it() {
        let is_above = |leak: &Leak| {
            let page = page_of(leak);
            page.find("What to change") < page.find("<figure")
        };
        assert!(!is_above(&samples::callback().leaks[0]));
        assert!(!is_above(&samples::many_buffers(5).leaks[0]));
        let mut leak = samples::million_ring().leaks.remove(0);
        leak.advice = samples::callback().leaks.remove(0).advice;
        assert!(is_above(&leak));
    }

    #[test]
    fn what_is_known_repeats_no_sentence_of_the_fix() {
        let known = Known {
            remedy: "It refers to itself. Reuse the `result`.".into(),
            ..Known::default()
        };
        let told = |fix: &str| of_known(&known, fix).0;
        assert_eq!(
            told("a.py:1: Torch makes it. Reuse the `result`."),
            "It refers to itself."
        );
        assert!(told("Something else.").contains("Reuse the <code>result</code>."));
    }

    #[test]
    fn further_drawings_are_offered_where_there_is_more_to_see() {
        let views = |report: &crate::model::report::Report| {
            let page = figure(1, &report.leaks[0]).markup.0;
            ["leak", "plumbing", "all"]
                .map(|view| page.contains(&format!("<button type=\"button\" data-view=\"{view}\"")))
        };
        assert_eq!(views(&samples::through_dictionary()), [true, true, false]);
        assert_eq!(views(&samples::dense(60)), [true, false, true]);
        assert_eq!(views(&samples::million_ring()), [true, false, false]);
    }
}
