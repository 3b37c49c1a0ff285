//! The pages of live memory: who owns it, what keeps an object, what grew, why it ran out.
//!
//! Each is one file that needs no network, as the page of leaks, and reads without script.

mod chart;
mod device_memory;
mod diff;
mod growth;
mod heap;
mod heap_answer;
mod owners;
mod post_mortem;
mod retention;
mod tree;

pub use device_memory::device_memory;
pub use diff::diff;
pub use growth::growth;
pub use heap::heap;
use maud::{Markup, html};
pub use post_mortem::{Looked, post_mortem};
pub use retention::retention;

use crate::model::report::Process;
use crate::model::words::{grouped, printable_code};
use crate::render::html::header::{place, process_facts};
pub use crate::render::html::page::framed;
use crate::render::html::page::{self, Script};
use crate::render::html::parts::{self, head, notes};
use crate::render::html::plot::textures;

const STYLE: &str = concat!(
    include_str!("../../assets/drawing.css"),
    include_str!("../../assets/page.css"),
    include_str!("../../assets/leak.css"),
    include_str!("../../assets/print.css"),
    include_str!("../../assets/live.css"),
);
const SCRIPT: &str = concat!(
    include_str!("../../assets/common.js"),
    include_str!("../../assets/icicle.js"),
    include_str!("../../assets/chart.js"),
    include_str!("../../assets/live.js"),
    include_str!("../../assets/editor.js"),
);
const TOOL: &str = concat!("cyclescope ", env!("CARGO_PKG_VERSION"));

/// A page, but for what all have.
#[derive(Default)]
struct Page {
    title: String,
    /// What to know first.
    lead: Markup,
    facts: Vec<(&'static str, String)>,
    body: Markup,
    /// The blocks of the treemap, as JSON.
    data: Option<String>,
    notes: Vec<String>,
}

impl Page {
    fn html(self) -> String {
        page::Page {
            title: &self.title,
            styles: &[(None, STYLE)],
            body: html! {
                (head(&self.title, &self.lead, &self.facts))
                main { (self.body) }
                (textures())
                footer { (notes(&self.notes)) p { (TOOL) } }
            },
            script: Some(Script {
                code: SCRIPT,
                data: self.data,
            }),
        }
        .html()
    }
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
fn section(title: &str, body: &Markup) -> Markup {
    html! {
        section.leak { h2 { (title) } (body) }
    }
}

/// A table of numbers.
fn table(titles: &[&str], rows: impl Iterator<Item = Markup>) -> Markup {
    parts::table(Some("figures"), titles, rows)
}

/// More of a part, folded.
fn folded(title: &str, body: &Markup) -> Markup {
    html! {
        details.trace { summary { (title) } (body) }
    }
}

/// How many rows are left out of a table, and what they are together.
fn more(rows: u64, bytes: &str) -> Markup {
    html! {
        @if rows > 0 { p.more { "and " (grouped(rows)) " more, " (bytes) } }
    }
}

/// The text that a terminal gets, to copy.
fn as_text(text: &str) -> Markup {
    html! {
        section.leak {
            details.trace {
                summary { "As text" }
                div.copied {
                    button type="button" data-copy="text" hidden { "Copy" }
                    pre tabindex="0" { (printable_code(text)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
