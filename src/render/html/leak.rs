//! One leak of the page.

use crate::model::report::{Known, Leak, Library};
use crate::model::words::{human_bytes, markup, markup_code, name};
use crate::render::html::memory::buffers;
use crate::render::html::packed::packed;
use crate::render::html::timeline::timeline;
use crate::render::html::{DRAWN, NAME, shown};
use crate::render::subgraph::{Detail, FOLDS};
use crate::render::svg::Look;
use crate::render::{sentences, svg, text};

/// One leak: `rank` is its place in the page, `index` that in the report.
pub fn section(rank: usize, index: usize, leak: &Leak) -> String {
    let number = rank + 1;
    let drawing = if rank < DRAWN {
        figure(number, leak)
    } else {
        String::new()
    };
    format!(
        "<section class=\"leak\" id=\"leak-{number}\" data-leak=\"{index}\">\n<h2>{}</h2>\n{}\
         <dl class=\"gist\">\n<div><dt>Held</dt><dd>{}</dd></div>\n\
         <div class=\"fix\"><dt>Fix</dt><dd>{}</dd></div>\n{}</dl>\n\
         {drawing}{}{}{}\
         <details class=\"trace\"><summary>The leak trace, as text</summary>\n\
         <div class=\"copied\"><button type=\"button\" data-copy=\"trace\" hidden>Copy</button>\n\
         <pre>{}</pre></div></details>\n\
         <details class=\"raw\" hidden><summary>All objects and references</summary></details>\n\
         </section>\n",
        markup(&sentences::size_and_cycle(leak)),
        marks(leak),
        markup(&sentence(&sentences::held(leak))),
        with_code(&markup(&sentence(&sentences::fix(leak)))),
        origin(leak),
        advice(leak),
        buffers(leak),
        timeline(leak),
        markup_code(&format!("{}\n{}", sentences::title(leak), text::body(leak))),
    )
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Pattern, whose it is, signature and what was measured, as small tags.
fn marks(leak: &Leak) -> String {
    let tag = |class: &str, text: &str| format!("<li class=\"{class}\">{}</li>", shown(text, NAME));
    let mut tags = String::new();
    if let Some(pattern) = &leak.pattern {
        tags += &tag("pattern", pattern);
    }
    tags += &match leak.is_library() {
        true => tag("library", "a library's"),
        false => tag("yours", "yours"),
    };
    if leak.known.is_some() {
        tags += &tag("known", "known leak");
    }
    if let Some(freed) = leak.bytes_freed {
        let freed = human_bytes(freed);
        tags += &tag("freed", &format!("{freed} freed by the collection"));
    }
    tags += &format!(
        "<li class=\"signature\"><span title=\"Signature: the same for this leak in every run\">{}\
         </span><button type=\"button\" data-copy=\"signature\" hidden>Copy</button></li>",
        shown(&leak.signature, NAME)
    );
    format!("<ul class=\"marks\">{tags}</ul>\n")
}

/// The library that the leak is of, and what others know of it.
fn origin(leak: &Leak) -> String {
    let mut rows = String::new();
    let mut row = |term: &str, text: String| {
        rows += &format!("<div><dt>{term}</dt><dd>{text}</dd></div>\n");
    };
    if let Some(library) = &leak.library {
        row("Library", of_library(library));
    }
    if let Some(known) = &leak.known {
        row("Known", of_known(known));
    }
    rows
}

fn of_library(library: &Library) -> String {
    let version = library
        .version
        .as_ref()
        .map(|version| format!(" {version}"));
    let mut text = format!(
        "{}{}. Every object in the cycle belongs to it",
        library.name,
        version.unwrap_or_default()
    );
    if let Some(line) = &library.your_line {
        text += &format!("; your nearest line is {line}");
    }
    shown(&format!("{text}."), 600)
}

fn of_known(known: &Known) -> String {
    let mut text = with_code(&shown(&known.remedy, 1000));
    if let Some(fixed) = &known.fixed_in {
        text += &format!(
            " Fixed in {} {}.",
            shown(&known.library, 80),
            shown(fixed, 40)
        );
    }
    // Nothing but a web page: `javascript:` would run.
    if let Some(link) = known
        .link
        .as_ref()
        .filter(|link| link.starts_with("https://"))
    {
        text += &format!(
            " <a href=\"{}\" rel=\"noopener noreferrer\">{}</a>",
            markup(&name(link, 2000)),
            shown(link, 100)
        );
    }
    text
}

/// The drawing with what works on it. The more detailed drawings are asleep until they are asked
/// for.
fn figure(number: usize, leak: &Leak) -> String {
    let draw = |suffix: &str, detail, titles| {
        let look = Look {
            detail,
            style: None,
            titles,
        };
        svg::draw(leak, &format!("drawing-{number}{suffix}"), &look).svg
    };
    let first = draw("", Detail::Leak, true);
    let mut views = view(
        "leak",
        "The leak",
        "The cycle, the memory it holds and the reference to cut",
    );
    let mut asleep = String::new();
    if leak.graph.edges.iter().any(|edge| !edge.through.is_empty()) {
        let title = "Includes the dictionaries, closure tuples and cells between objects";
        views += &view("plumbing", "Plumbing", title);
        asleep += &packed(
            "data-view=\"plumbing\"",
            &draw("p", Detail::Plumbing, false),
        );
    }
    let objects = |drawing: &str| drawing.matches("data-node=").count();
    if objects(&first) < leak.graph.nodes.len() {
        views += &view("all", "Everything", "All objects in the report");
        let all = draw("a", Detail::All, false);
        for fold in (0..FOLDS).filter(|fold| first.contains(&format!("data-fold=\"{fold}\""))) {
            let opened = draw(&format!("f{fold}"), Detail::Opened(fold), false);
            if objects(&opened) < objects(&all) {
                asleep += &packed(&format!("data-view=\"fold-{fold}\""), &opened);
            }
        }
        asleep += &packed("data-view=\"all\"", &all);
    }
    format!(
        "<figure>\n<div class=\"tools\" role=\"toolbar\" aria-label=\"Drawing\" hidden>\
         <div class=\"views\" role=\"group\" aria-label=\"Detail\">{views}</div>\
         <input type=\"search\" placeholder=\"Find an object\" aria-label=\"Find an object\">\
         <select aria-label=\"Type of objects\"><option value=\"\">All types</option></select>\
         <output></output>\
         <div class=\"camera\"><button type=\"button\" data-zoom=\"in\" title=\"Zoom in\" aria-label=\"Zoom in\">+</button>\
         <button type=\"button\" data-zoom=\"out\" title=\"Zoom out\" aria-label=\"Zoom out\">−</button>\
         <button type=\"button\" data-zoom=\"fit\">Fit</button>\
         <button type=\"button\" data-save=\"svg\" title=\"Save this drawing\">SVG</button>\
         <button type=\"button\" data-help title=\"Keyboard shortcuts\">?</button></div></div>\n\
         <div class=\"stage\"><div class=\"view\">\n{first}</div>\n\
         <div class=\"facts-of-object\" role=\"region\" aria-label=\"The object\" \
         aria-live=\"polite\" hidden></div></div>\n{asleep}</figure>\n"
    )
}

/// The button that shows a drawing.
fn view(key: &str, label: &str, title: &str) -> String {
    format!("<button type=\"button\" data-view=\"{key}\" title=\"{title}\">{label}</button>")
}

fn advice(leak: &Leak) -> String {
    let advice = &leak.advice;
    let mut out = String::new();
    if !advice.text.is_empty() && !sentences::advice_is_fix(leak) {
        out += &format!("<p>{}</p>\n", with_code(&shown(&advice.text, 2000)));
    }
    let mut code = String::new();
    for (class, title, text) in [
        ("before", "Before", &advice.before),
        ("after", "After", &advice.after),
    ] {
        if let Some(text) = text {
            let text = markup_code(&lines_shortened(text));
            code += &format!("<div class=\"{class}\"><h4>{title}</h4><pre>{text}</pre></div>\n");
        }
    }
    if !code.is_empty() {
        out += &format!("<div class=\"code\">\n{code}</div>\n");
    }
    if out.is_empty() {
        return out;
    }
    format!("<div class=\"advice\">\n<h3>What to change</h3>\n{out}</div>\n")
}

/// What stands between backticks, set as code; `text` is markup already.
pub fn with_code(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return text.to_owned();
    }
    let part = |(index, part): (usize, &&str)| match index % 2 {
        1 => format!("<code>{part}</code>"),
        _ => (*part).to_owned(),
    };
    parts.iter().enumerate().map(part).collect()
}

fn lines_shortened(code: &str) -> String {
    let lines: Vec<String> = code
        .lines()
        .take(40)
        .map(|line| name(&line.replace('\t', "    "), NAME))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn a_library_s_leak_says_so_and_links_to_web_pages_only() {
        let mut leak = samples::callback().leaks.remove(0);
        assert!(marks(&leak).contains("<li class=\"yours\">yours</li>"));
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
        let page = section(0, 0, &leak);
        for told in [
            "<li class=\"library\">a library&#39;s</li>",
            "torch 2.9.1. Every object in the cycle belongs to it.",
            "Use &lt;one&gt;. Fixed in torch 2.12. <a href=\"https://example.org/1\"",
        ] {
            assert!(page.contains(told), "{told}");
        }
        if let Some(known) = &mut leak.known {
            known.link = Some("javascript:alert(1)".into());
        }
        assert!(!section(0, 0, &leak).contains("<a "));
    }

    #[test]
    fn further_drawings_are_offered_where_there_is_more_to_see() {
        let views = |report: &crate::model::report::Report| {
            let page = figure(1, &report.leaks[0]);
            ["leak", "plumbing", "all"]
                .map(|view| page.contains(&format!("<button type=\"button\" data-view=\"{view}\"")))
        };
        assert_eq!(views(&samples::through_dictionary()), [true, true, false]);
        assert_eq!(views(&samples::dense(60)), [true, false, true]);
        assert_eq!(views(&samples::million_ring()), [true, false, false]);
    }

    #[test]
    fn backticks_make_code_where_they_pair() {
        assert_eq!(
            with_code("set `a` and `b`"),
            "set <code>a</code> and <code>b</code>"
        );
        assert_eq!(with_code("one ` alone"), "one ` alone");
        assert_eq!(with_code(&markup("`<b>`")), "<code>&lt;b&gt;</code>");
    }
}
