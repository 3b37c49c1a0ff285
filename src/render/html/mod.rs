//! The report as one HTML page that needs no network, no server and no script.

mod contents;
mod header;
mod leak;
pub mod live;
mod memory;
mod packed;
mod page;
mod parts;
mod plot;
mod processes;
mod timeline;

use maud::{Markup, PreEscaped, html};

use crate::model::compare::Change;
use crate::model::json::to_json;
use crate::model::report::{Leak, Report};
use crate::model::words::shortened;
use crate::render::dot::dot;
use crate::render::html::packed::packed;
use crate::render::html::page::{Page, Script};
use crate::render::svg;

const STYLE: &str = concat!(
    include_str!("../assets/page.css"),
    include_str!("../assets/leak.css"),
    include_str!("../assets/figure.css"),
    include_str!("../assets/contents.css"),
    include_str!("../assets/print.css"),
);
const SCRIPT: &str = concat!(
    include_str!("../assets/common.js"),
    include_str!("../assets/camera.js"),
    include_str!("../assets/asleep.js"),
    include_str!("../assets/selection.js"),
    include_str!("../assets/facts.js"),
    include_str!("../assets/figure.js"),
    include_str!("../assets/save.js"),
    include_str!("../assets/chart.js"),
    include_str!("../assets/contents.js"),
    include_str!("../assets/page.js"),
    include_str!("../assets/editor.js"),
);

/// The list of keyboard shortcuts, opened by script.
const HELP: &str = include_str!("../assets/help.html");

/// A longer text of the report, in characters, is shortened where the script reads it.
const LONG_TEXT: usize = 20_000;
/// Shorter JSON, in bytes, is not searched for such texts.
const LARGE_DATA: usize = 1 << 20;
/// How many leaks are drawn; the further ones are there as text.
const DRAWN: usize = 40;
/// How many leaks are in the page at all.
const LEAKS: usize = 500;
/// Names longer than this are shortened in their middle.
const NAME: usize = 300;

/// The report as a self-contained page: what is held, by what, what to change, and the drawing of
/// each leak. Script adds only comfort: zoom, search and the facts of an object.
pub fn html(report: &Report) -> String {
    Page {
        title: &header::title(report),
        styles: &[(Some("drawing-style"), svg::STYLE), (None, STYLE)],
        body: body(report),
        script: Some(Script {
            code: SCRIPT,
            data: Some(data(report)),
        }),
    }
    .html()
}

fn body(report: &Report) -> Markup {
    let mut leaks: Vec<(usize, &Leak)> = report.leaks.iter().enumerate().collect();
    let is_worse = |leak| report.change(leak).is_some_and(Change::is_for_worse);
    leaks.sort_by_key(|&(_, leak)| std::cmp::Reverse((is_worse(leak), leak.bytes_held)));
    leaks.truncate(LEAKS);
    let leaks = contents::listed(&leaks, report);
    html! {
        (header::header(report))
        (processes::section(report, &leaks))
        div.split[leaks.len() > 1] {
            (contents::contents(&leaks, report.bytes_held()))
            main {
                @if leaks.is_empty() { (header::nothing_found(report)) }
                @for rank in 0..leaks.len() { (leak::section(rank, &leaks)) }
            }
        }
        (contents::gone(report))
        (header::footer(report))
        (PreEscaped(HELP))
        template id="dot" { (packed(&dot(report))) }
    }
}

/// The page in a frame, for a notebook. It leaves out what who runs the notebook knows, so that
/// the drawing is in sight.
pub fn framed(report: &Report) -> String {
    page::framed(html(report))
}

/// The report as JSON, with the middle of very long texts left out.
fn data(report: &Report) -> String {
    let json = to_json(report);
    if json.len() <= LARGE_DATA {
        return json;
    }
    match serde_json::from_str(&json) {
        Ok(mut value) => {
            shorten(&mut value);
            value.to_string()
        }
        Err(_) => json,
    }
}

fn shorten(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) if text.len() > LONG_TEXT => {
            *text = shortened(text, LONG_TEXT).into_owned();
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::model::json::from_json;
    use crate::model::shared::Shared;
    use crate::render::markdown::leak_markdown;
    use crate::render::samples;

    const PLAIN: &str = "<script type=\"application/json\" id=\"report\">";
    const PACKED: &str = "<template id=\"packed\">";

    /// The page with what it holds compressed in the clear.
    fn unpacked(page: &str) -> String {
        let mut parts = page.split("<template ");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (text, rest) = part.split_once("</template>").expect("an end tag");
            let (_, text) = text.split_once('>').expect("a start tag");
            out += &packed::unpacked(text);
            out += rest;
        }
        out
    }

    /// What stands between two marks.
    fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
        let rest = text.split_once(start).expect(start).1;
        rest.split_once(end).expect(end).0
    }

    #[test]
    fn the_policy_names_the_style_and_the_script_that_are_there() {
        let page = html(&samples::callback());
        let policy = between(&page, "Content-Security-Policy\" content=\"", "\">");
        for (open, close) in [
            ("<style id=\"drawing-style\">", "</style>"),
            ("<style>", "</style>"),
            ("<script>", "</script>"),
        ] {
            let hash = BASE64.encode(Sha256::digest(between(&page, open, close).as_bytes()));
            assert!(policy.contains(&format!(" 'sha256-{hash}'")), "{policy}");
        }
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"));
        // Those, and nothing that the policy would block or that would need a network.
        let markup = page.replace(between(&page, "<script>", "</script>"), "");
        assert_eq!(markup.matches("<style").count(), 2);
        assert_eq!(markup.matches("<script").count(), 2);
        let body = between(&page, "<body>", "<script");
        for forbidden in [" style=", " onclick", " src=", "<link", "<img"] {
            assert!(!body.contains(forbidden), "{forbidden}");
        }
        for forbidden in ["@import", "url(", "<link", "fetch(", "import("] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!addresses.contains("http://") && !addresses.contains("https://"));
    }

    #[test]
    fn the_data_come_back_from_the_page() {
        for report in [samples::callback(), samples::hostile(), samples::no_leaks()] {
            let page = html(&report);
            let data = match page.contains(PLAIN) {
                true => between(&page, PLAIN, "</script>").to_owned(),
                false => packed::unpacked(between(&page, PACKED, "</template>")),
            };
            let is_plain = page.contains(PLAIN);
            let hazards = ['<', '>', '&', '\u{2028}', '\u{202e}', '\u{9b}', '\u{ffff}'];
            assert!(!is_plain || !data.contains(hazards));
            assert_eq!(is_plain, report != samples::hostile());
            assert_eq!(from_json(&data), Ok(report));
        }
    }

    #[test]
    fn nothing_hostile_survives() {
        let report = samples::hostile();
        let page = html(&report);
        let data = between(&page, PACKED, "</template>");
        let mut visible = unpacked(&page.replace(data, &packed("")));
        // What is only copied or saved is text, never markup.
        for text in report.leaks.iter().map(leak_markdown).chain([dot(&report)]) {
            visible = visible.replace(&text, "");
        }
        let page = &visible;
        for forbidden in [
            "<img",
            "onerror=alert(1)>",
            "\u{202e}",
            "\u{1b}",
            "\u{0}",
            "<!--",
        ] {
            assert!(!visible.contains(forbidden), "{forbidden:?}");
        }
        // The data are not among the scripts, as they are compressed.
        assert_eq!(page.matches("<script").count(), 1);
        assert_eq!(page.matches("</script").count(), 1);
        assert!(visible.len() < 300_000, "{}", visible.len());
    }

    #[test]
    fn the_page_reads_without_script() {
        let page = html(&samples::linked_nodes_and_exception());
        let body = between(&page, "<body>", "<script");
        assert_eq!(body.matches("class=\"leak-drawing\"").count(), 2);
        assert_eq!(body.matches("<section class=\"leak\"").count(), 2);
        for told in [
            "3.0 GiB held by 2 leaks",
            "<dd>node17</dd>",
            "<dt>Rank</dt><dd>3</dd>",
            "torch 2.9.1, numpy 2.3.4",
            "<dt>GPU</dt><dd>NVIDIA H200</dd>",
            "2026-09-21 14:13:20 UTC",
            "model.py:7, in class",
            "Keep a weak reference",
            "self.previous = weakref.ref(previous)",
            "Node object .weight",
            "✓ driver",
            "and 4 more buffers",
            "~~~~~~~~~ cut here",
            "The sizes of 2 buffers on cuda:1 could not be read.",
        ] {
            assert!(body.contains(told), "{told}");
        }
        // Of the two storages only one was confirmed.
        assert_eq!(
            between(body, "<section class=\"leak\"", "</section>")
                .matches("✓ driver")
                .count(),
            1
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn the_largest_leak_comes_first_and_many_leaks_are_bounded() {
        let mut report = samples::linked_nodes_and_exception();
        report.leaks.reverse();
        let page = html(&report);
        let first = between(&page, "<section class=\"leak\"", "</h2>");
        assert!(first.contains("3.0 GiB") && first.contains("data-leak=\"1\""));
        let leak = report.leaks[0].clone();
        report.leaks = vec![leak; LEAKS + 7];
        let page = html(&report);
        assert_eq!(page.matches("<figure ").count(), DRAWN);
        assert!(page.contains("7 smaller leaks are not shown."));
    }

    #[test]
    fn the_lead_claims_no_more_than_is_proven() {
        let claim = "Removing the marked reference frees the memory";
        assert!(html(&samples::callback()).contains(claim));
        assert!(!html(&samples::linked_nodes_and_exception()).contains(claim));
        assert!(!html(&samples::million_ring()).contains(claim));
        let mut report = samples::callback();
        report.leaks[0].shared = vec![Shared {
            others: vec!["0123456789abcdef".to_owned()],
            bytes: 64 << 20,
        }];
        let page = html(&report);
        assert!(!page.contains(claim) && page.contains("references of all leaks frees"));
        assert!(page.contains("Leak 0123456789abcdef holds some of this memory too"));
    }

    #[test]
    fn no_leaks_is_a_page_too() {
        let page = html(&samples::no_leaks());
        assert!(page.contains("<h1>No leaks</h1>") && !page.contains("<figure"));
        assert!(page.contains("cyclescope.watch_growth()"));
        html(&samples::dangling());
    }
}
