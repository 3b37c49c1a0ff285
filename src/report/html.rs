//! The report as one HTML page that needs no network, no server and no script.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

use super::json::to_json;
use super::model::{Buffer, Leak, Report};
use super::words::{
    buffer_count, counted, element_type, human_bytes, markup, markup_code, name, utc,
};
use super::{svg, text};

const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");

/// How many leaks are drawn; the further ones are there as text.
const DRAWN: usize = 40;
/// How many leaks are in the page at all.
const LEAKS: usize = 500;
/// How many buffers of a leak are listed.
const BUFFERS: usize = 200;
/// Names longer than this are shortened in their middle.
const NAME: usize = 300;

/// The report as a self-contained page: what is held, by what, what to change, and the drawing of
/// each leak. Script adds only comfort: zoom, search and the facts of an object.
///
/// A Content-Security-Policy forbids everything but the page's own style and script, which it
/// names by their hashes, so that not even a name that slipped through the escaping could run.
pub fn html(report: &Report) -> String {
    let mut leaks: Vec<(usize, &Leak)> = report.leaks.iter().enumerate().collect();
    leaks.sort_by_key(|(_, leak)| std::cmp::Reverse(leak.bytes_held));
    leaks.truncate(LEAKS);
    let style = format!("{}{STYLE}", svg::STYLE);
    let sections: String = leaks
        .iter()
        .enumerate()
        .map(|(rank, &(index, leak))| section(rank, index, leak))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         {}{}<main>\n{sections}</main>\n{}\
         <script type=\"application/json\" id=\"report\">{}</script>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        policy(&style),
        markup(&format!("{} · cyclescope", headline(report))),
        header(report),
        contents(&leaks),
        footer(report),
        embedded(&to_json(report)),
    )
}

/// The page in a frame, for a notebook: neither its style nor its script reaches the rest.
pub fn framed(report: &Report) -> String {
    format!(
        "<iframe title=\"cyclescope\" sandbox=\"allow-scripts allow-downloads\" width=\"100%\" \
         height=\"620\" frameborder=\"0\" srcdoc=\"{}\"></iframe>",
        html(report).replace('&', "&amp;").replace('"', "&quot;")
    )
}

fn policy(style: &str) -> String {
    let hash = |text: &str| BASE64.encode(Sha256::digest(text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; \
         base-uri 'none'; form-action 'none'",
        hash(style),
        hash(SCRIPT)
    )
}

/// JSON as a script element may hold it: nothing in it can end the element or begin a comment.
fn embedded(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out
}

fn headline(report: &Report) -> String {
    let bytes = report
        .leaks
        .iter()
        .fold(0, |sum: u64, leak| sum.saturating_add(leak.bytes_held));
    match report.leaks.len() as u64 {
        0 => "No leaks".to_owned(),
        count => format!(
            "{} held by {}",
            human_bytes(bytes),
            counted(count, "leak", "leaks")
        ),
    }
}

fn header(report: &Report) -> String {
    let process = &report.process;
    let mut facts = vec![
        ("Program", process.program.clone()),
        ("Host", process.host.clone()),
        (
            "Rank",
            process
                .rank
                .map(|rank| rank.to_string())
                .unwrap_or_default(),
        ),
        ("Process", process.pid.to_string()),
        ("Python", process.python.clone()),
    ];
    let versions = process
        .frameworks
        .iter()
        .take(20)
        .map(|(n, v)| format!("{n} {v}"));
    facts.push(("Frameworks", versions.collect::<Vec<_>>().join(", ")));
    facts.push(("When", utc(report.time)));
    facts.push(("Found by", text::occasion(&report.collection)));
    let garbage = report.collection.garbage_objects;
    facts.push((
        "Looked at",
        counted(garbage, "unreachable object", "unreachable objects"),
    ));
    facts.retain(|(_, value)| !value.is_empty());
    let facts: String = facts
        .iter()
        .map(|(key, value)| {
            format!(
                "<div><dt>{key}</dt><dd>{}</dd></div>\n",
                markup(&name(value, NAME))
            )
        })
        .collect();
    let proven = report
        .leaks
        .iter()
        .all(|l| !l.cuts.is_empty() && l.cuts.iter().all(|c| c.proven));
    let lead = match report.leaks.is_empty() {
        true => "None of the unreachable objects held a tensor or other buffer.".to_owned(),
        false => format!(
            "Objects that refer to each other in a cycle live until the garbage collector runs, \
             and what they hold lives as long. {}",
            match proven {
                true => "Without the marked reference the memory is freed with its last user.",
                false => "Each leak below says which reference to look at.",
            }
        ),
    };
    format!(
        "<header>\n<h1>{}</h1>\n<p class=\"lead\">{lead}</p>\n<dl class=\"facts\">\n{facts}</dl>\n\
         </header>\n",
        markup(&headline(report))
    )
}

/// The list of leaks, the one that holds most bytes first.
fn contents(leaks: &[(usize, &Leak)]) -> String {
    if leaks.len() < 2 {
        return String::new();
    }
    let entry = |(rank, (_, leak)): (usize, &(usize, &Leak))| {
        format!(
            "<li><a href=\"#leak-{}\"><b>{}</b> <span>{}</span></a></li>\n",
            rank + 1,
            human_bytes(leak.bytes_held),
            markup(&name(&leak.summary, 160))
        )
    };
    let entries: String = leaks.iter().enumerate().map(entry).collect();
    format!("<nav aria-label=\"Leaks\">\n<ol>\n{entries}</ol>\n</nav>\n")
}

/// One leak: `rank` is its place in the page, `index` that in the report.
fn section(rank: usize, index: usize, leak: &Leak) -> String {
    let number = rank + 1;
    let drawing = if rank < DRAWN {
        drawing(number, leak)
    } else {
        String::new()
    };
    format!(
        "<section class=\"leak\" id=\"leak-{number}\" data-leak=\"{index}\">\n<h2>{}</h2>\n{}\
         <dl class=\"gist\">\n<div><dt>Held</dt><dd>{}</dd></div>\n\
         <div class=\"fix\"><dt>Fix</dt><dd>{}</dd></div>\n</dl>\n\
         {drawing}{}{}\
         <details class=\"trace\"><summary>The same as text</summary>\n<pre>{}</pre></details>\n\
         </section>\n",
        markup(&text::size_and_cycle(leak)),
        marks(leak),
        markup(&sentence(&text::held(leak))),
        with_code(&markup(&sentence(&text::fix(leak)))),
        advice(leak),
        buffers(leak),
        markup_code(&format!("{}\n{}", text::title(leak), text::body(leak))),
    )
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Pattern, signature and what was measured, as small tags.
fn marks(leak: &Leak) -> String {
    let tag = |class: &str, text: &str| {
        format!("<li class=\"{class}\">{}</li>", markup(&name(text, NAME)))
    };
    let mut tags = String::new();
    if let Some(pattern) = &leak.pattern {
        tags += &tag("pattern", pattern);
    }
    if let Some(freed) = leak.bytes_freed {
        tags += &tag(
            "freed",
            &format!("{} freed when it was broken", human_bytes(freed)),
        );
    }
    tags += &tag("signature", &leak.signature);
    format!("<ul class=\"marks\">{tags}</ul>\n")
}

fn drawing(number: usize, leak: &Leak) -> String {
    format!(
        "<figure>\n<div class=\"tools\" hidden>\
         <input type=\"search\" placeholder=\"Find an object\" aria-label=\"Find an object\">\
         <button type=\"button\" data-zoom=\"in\" title=\"Zoom in\">+</button>\
         <button type=\"button\" data-zoom=\"out\" title=\"Zoom out\">−</button>\
         <button type=\"button\" data-zoom=\"fit\">Fit</button></div>\n\
         <div class=\"view\">\n{}</div>\n<div class=\"facts-of-object\" aria-live=\"polite\" hidden></div>\n\
         </figure>\n",
        svg::draw(
            leak,
            &format!("drawing-{number}"),
            &svg::Look {
                style: None,
                ..svg::Look::ALONE
            }
        )
        .svg
    )
}

fn advice(leak: &Leak) -> String {
    let advice = &leak.advice;
    let mut out = String::new();
    if !advice.text.is_empty() && !text::advice_is_fix(leak) {
        out += &format!("<p>{}</p>\n", with_code(&markup(&name(&advice.text, 2000))));
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
fn with_code(text: &str) -> String {
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

fn buffers(leak: &Leak) -> String {
    if leak.buffers.is_empty() {
        return String::new();
    }
    let rows: String = leak
        .buffers
        .iter()
        .take(BUFFERS)
        .map(|b| row(leak, b))
        .collect();
    let more = buffer_count(leak).saturating_sub(leak.buffers.len().min(BUFFERS) as u64);
    let more = match more {
        0 => String::new(),
        more => format!(
            "<p class=\"more\">and {}</p>\n",
            counted(more, "more buffer", "more buffers")
        ),
    };
    format!(
        "<h3>Held memory</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>Size</th><th>Holder</th>\
         <th>Elements</th><th>Device</th><th>Address</th><th>Way from the cycle</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n{more}"
    )
}

fn row(leak: &Leak, buffer: &Buffer) -> String {
    let start = leak
        .cycle
        .get(buffer.from_step as usize)
        .map(|step| step.label.as_str());
    let way: String = buffer
        .path
        .iter()
        .take(24)
        .map(|edge| format!(" {}", name(edge, 80)))
        .collect();
    let confirmed = match buffer.confirmed {
        true => " <span class=\"confirmed\" title=\"confirmed by the CUDA driver\">✓ driver</span>",
        false => "",
    };
    format!(
        "<tr><td class=\"number\">{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td><code>{:#x}</code>{confirmed}</td><td>{}</td></tr>\n",
        human_bytes(buffer.bytes),
        markup(&name(&buffer.type_name, 80)),
        markup(&element_type(buffer)),
        markup(&name(&buffer.device, 40)),
        buffer.pointer,
        markup(&format!("{}{way}", name(start.unwrap_or_default(), 80))),
    )
}

fn footer(report: &Report) -> String {
    let notes = report
        .notes
        .iter()
        .map(|note| format!("<li>{}</li>\n", markup(&name(note, 1000))));
    let mut notes: String = notes.collect();
    if report.leaks.len() > LEAKS {
        let more = counted(
            (report.leaks.len() - LEAKS) as u64,
            "smaller leak is",
            "smaller leaks are",
        );
        notes += &format!("<li>{more} not shown.</li>\n");
    }
    if !notes.is_empty() {
        notes = format!("<ul class=\"notes\">\n{notes}</ul>\n");
    }
    format!(
        "<footer>\n{notes}<p>{}</p>\n</footer>\n",
        markup(&name(&report.tool, NAME))
    )
}

#[cfg(test)]
mod tests {
    use super::super::json::from_json;
    use super::super::samples;
    use super::*;

    /// What stands between two marks.
    fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
        let rest = text.split_once(start).expect(start).1;
        rest.split_once(end).expect(end).0
    }

    #[test]
    fn the_policy_names_the_style_and_the_script_that_are_there() {
        let page = html(&samples::callback());
        let policy = between(&page, "Content-Security-Policy\" content=\"", "\">");
        for (directive, open, close) in [
            ("style-src", "<style>", "</style>"),
            ("script-src", "<script>", "</script>"),
        ] {
            let hash = BASE64.encode(Sha256::digest(between(&page, open, close).as_bytes()));
            assert!(
                policy.contains(&format!("{directive} 'sha256-{hash}'")),
                "{policy}"
            );
        }
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"));
        // One of each, and nothing that the policy would block or that would need a network.
        assert_eq!(page.matches("<style").count(), 1);
        assert_eq!(page.matches("<script").count(), 2);
        for forbidden in [
            " style=", " onclick", " src=", "@import", "url(", "<link", "<img",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!addresses.contains("http://") && !addresses.contains("https://"));
    }

    #[test]
    fn the_data_come_back_from_the_page() {
        for report in [samples::callback(), samples::hostile(), samples::no_leaks()] {
            let page = html(&report);
            let data = between(
                &page,
                "<script type=\"application/json\" id=\"report\">",
                "</script>",
            );
            assert!(!data.contains(['<', '>', '&', '\u{2028}', '\u{2029}']));
            assert_eq!(from_json(data), Ok(report));
        }
    }

    #[test]
    fn nothing_hostile_survives() {
        let page = html(&samples::hostile());
        let data = between(
            &page,
            "<script type=\"application/json\" id=\"report\">",
            "</script>",
        );
        let visible = page.replace(data, "");
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
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script").count(), 2);
        assert!(visible.len() < 300_000, "{}", visible.len());
    }

    #[test]
    fn the_page_reads_without_script() {
        let page = html(&samples::linked_nodes_and_exception());
        let body = between(&page, "<body>", "<script");
        assert_eq!(body.matches("<svg").count(), 2);
        assert_eq!(body.matches("<section class=\"leak\"").count(), 2);
        for told in [
            "3.0 GiB held by 2 leaks",
            "<dd>node17</dd>",
            "<dt>Rank</dt><dd>3</dd>",
            "torch 2.9.1, numpy 2.3.4",
            "2026-09-21 14:13:20 UTC",
            "model.py:7: Keep a weak reference",
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
            between(body, "id=\"leak-1\"", "</section>")
                .matches("✓ driver")
                .count(),
            1
        );
    }

    #[test]
    fn the_largest_leak_comes_first_and_many_leaks_are_bounded() {
        let mut report = samples::linked_nodes_and_exception();
        report.leaks.reverse();
        let page = html(&report);
        assert!(between(&page, "id=\"leak-1\"", "</h2>").contains("3.0 GiB"));
        assert!(between(&page, "id=\"leak-1\"", "<h2>").contains("data-leak=\"1\""));
        let leak = report.leaks[0].clone();
        report.leaks = vec![leak; LEAKS + 7];
        let page = html(&report);
        assert_eq!(page.matches("<svg").count(), DRAWN);
        assert!(page.contains("7 smaller leaks are not shown."));
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

    #[test]
    fn the_lead_claims_no_more_than_is_proven() {
        let claim = "Without the marked reference the memory is freed";
        assert!(html(&samples::callback()).contains(claim));
        assert!(!html(&samples::linked_nodes_and_exception()).contains(claim));
        assert!(!html(&samples::million_ring()).contains(claim));
    }

    #[test]
    fn no_leaks_is_a_page_too() {
        let page = html(&samples::no_leaks());
        assert!(page.contains("<h1>No leaks</h1>") && !page.contains("<section"));
        html(&samples::dangling());
    }
}
