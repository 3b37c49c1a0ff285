//! The pages of live memory: who owns it, what keeps an object, what grew, why it ran out.
//!
//! Each is one file that needs no network, as the page of leaks, and reads without script.

mod chart;
mod diff;
mod growth;
mod heap;
mod owners;
mod post_mortem;
mod retention;

pub use diff::diff;
pub use growth::growth;
pub use heap::heap;
pub use post_mortem::post_mortem;
pub use retention::retention;

use crate::model::report::Process;
use crate::model::words::{markup, markup_code};
use crate::render::html::header::{head, place, process_facts};
use crate::render::html::{embedded, in_frame, policy, shown};

const STYLE: &str = concat!(
    include_str!("../../assets/page.css"),
    include_str!("../../assets/leak.css"),
    include_str!("../../assets/print.css"),
    include_str!("../../assets/live.css"),
);
const SCRIPT: &str = include_str!("../../assets/icicle.js");
const TOOL: &str = concat!("cyclescope ", env!("CARGO_PKG_VERSION"));

/// A page, but for what all have.
#[derive(Default)]
struct Page {
    title: String,
    /// What to know first, as markup.
    lead: String,
    facts: Vec<(&'static str, String)>,
    /// As markup.
    body: String,
    /// What the script reads, as JSON; without it there is no script.
    data: Option<String>,
    notes: Vec<String>,
}

impl Page {
    /// The whole page. A Content-Security-Policy forbids everything but its own style and script.
    fn html(&self) -> String {
        let scripts: &[&str] = match self.data {
            Some(_) => &[SCRIPT],
            None => &[],
        };
        let script = self.data.as_ref().map(|data| {
            format!(
                "<script type=\"application/json\" id=\"report\">{}</script>\n\
                 <script>{SCRIPT}</script>\n",
                embedded(data)
            )
        });
        let notes = self
            .notes
            .iter()
            .map(|note| format!("<li>{}</li>\n", shown(note, 1000)));
        let notes: String = notes.collect();
        let notes = match notes.is_empty() {
            true => notes,
            false => format!("<ul class=\"notes\">\n{notes}</ul>\n"),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{}<main>\n{}</main>\n\
             <footer>\n{notes}<p>{TOOL}</p>\n</footer>\n{}</body>\n</html>\n",
            policy(&[STYLE], scripts),
            markup(&format!("{} · cyclescope", self.title)),
            head(&self.title, &self.lead, &self.facts),
            self.body,
            script.unwrap_or_default(),
        )
    }
}

/// A page in a frame, for a notebook: neither its style nor its script reaches the rest.
pub fn framed(page: String) -> String {
    in_frame(page)
}

/// Where and when.
fn facts(process: &Process, time: f64) -> Vec<(&'static str, String)> {
    // A report that knows of no process says none.
    match process.pid {
        0 => Vec::new(),
        _ => process_facts(process, place(process), time),
    }
}

/// A part of a page.
fn section(title: &str, body: &str) -> String {
    format!(
        "<section class=\"leak\">\n<h2>{}</h2>\n{body}</section>\n",
        markup(title)
    )
}

/// A table: the titles of its columns, and its rows as markup.
fn table(titles: &[&str], rows: &str) -> String {
    let titles: String = titles.iter().map(|it| format!("<th>{it}</th>")).collect();
    format!(
        "<div class=\"wide\"><table class=\"figures\">\n<thead><tr>{titles}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

/// The text that a terminal gets, to copy.
fn as_text(text: &str) -> String {
    format!(
        "<section class=\"leak\">\n<details class=\"trace\"><summary>As text</summary>\n\
         <pre>{}</pre></details>\n</section>\n",
        markup_code(text)
    )
}

#[cfg(test)]
mod tests;
