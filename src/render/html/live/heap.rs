//! The page of a heap: who owns all memory.

use maud::{Markup, html};

use crate::model::heap::{Buffer, By, Category, Heap, Row};
use crate::model::words::{counted, grouped, human_bytes, name};
use crate::render::html::live::owners::{colour, owners};
use crate::render::html::live::{Page, as_text, facts, more, section, table};
use crate::render::html::plot;
use crate::render::icicle::{elements, way};
use crate::render::live_sentences::allocator;
use crate::render::text;

/// How many rows a table has.
const ROWS: usize = 20;
/// How wide a row's bar may be.
const BAR: f64 = 90.0;

/// The page of a heap: the treemap of owners, and tables of the largest.
pub fn heap(heap: &Heap) -> String {
    let owners = owners(heap);
    let mut facts = facts(&heap.process, heap.time);
    facts.push(("Inspected", looked_at(heap)));
    let mut notes = heap.notes.clone();
    if owners.icicle.on_devices && heap.host_bytes() > 0 {
        notes.push(format!(
            "The drawing shows device memory; another {} are on the host.",
            human_bytes(heap.host_bytes())
        ));
    }
    let drawing = html! {
        p {
            "The width of a block is proportional to the bytes reached through it, on the shortest \
             path from a GC root: a module, a running function or C++. Its parts are drawn below it."
        }
        (owners.figure)
    };
    Page {
        title: title(heap),
        lead: html! {
            "Memory in use, by owner and category. No garbage collection frees it: it is freed when \
             its owner drops the reference."
        },
        facts,
        body: html! {
            (section("Owners", &drawing))
            (tables(heap))
            (as_text(&text::heap(heap)))
        },
        data: Some(owners.data),
        notes,
    }
    .html()
}

fn title(heap: &Heap) -> String {
    let host = human_bytes(heap.host_bytes());
    match heap.device_bytes() {
        0 => format!("{host} on the host"),
        bytes => format!("{} on devices, {host} on the host", human_bytes(bytes)),
    }
}

fn looked_at(heap: &Heap) -> String {
    format!(
        "{} with {}, in {:.0} ms",
        counted(heap.objects, "object", "objects"),
        counted(heap.references, "reference", "references"),
        heap.pause_ms,
    )
}

/// Owners, the largest pieces of memory, classes, devices.
fn tables(heap: &Heap) -> Markup {
    let devices: Vec<String> = heap.devices.iter().filter_map(allocator).collect();
    html! {
        (section("Largest owners", &largest_owners(heap)))
        (section("Largest tensors and arrays", &largest_buffers(heap)))
        (section("Retained size by class", &classes(heap)))
        @if !devices.is_empty() {
            (section("Allocator", &html! { @for words in &devices { p { (words) } } }))
        }
    }
}

fn largest_owners(heap: &Heap) -> Markup {
    let top = heap.top(By::Owner, ROWS);
    let most = top.rows.iter().map(Row::bytes).max().unwrap_or(0).max(1);
    let row = |row: &Row| {
        html! {
            tr {
                (sizes(heap, row))
                td.number {
                    (human_bytes(row.retained_bytes))
                    @if let Some(collected) = row.collected() { p.more { (collected) } }
                }
                td { (bar(row, most)) }
                td { (grouped(row.count)) }
                td.name { (name(&row.name, 200)) }
            }
        }
    };
    let titles = ["Retained", "Category", "Buffers", "Owner"];
    html! {
        (table(&[places(heap), &titles].concat(), top.rows.iter().map(row)))
        (more(top.omitted, &in_total(top.omitted_bytes)))
    }
}

fn in_total(bytes: u64) -> String {
    format!("{} in total", human_bytes(bytes))
}

/// Where there is memory.
fn places(heap: &Heap) -> &'static [&'static str] {
    match heap.device_bytes() {
        0 => &["On the host"],
        _ => &["On devices", "On the host"],
    }
}

/// How much of a row is where.
fn sizes(heap: &Heap, row: &Row) -> Markup {
    html! {
        @if heap.device_bytes() > 0 { td.number { (human_bytes(row.device_bytes)) } }
        td.number { (human_bytes(row.host_bytes)) }
    }
}

/// An owner's memory by category, as a coloured bar.
fn bar(row: &Row, most: u64) -> Markup {
    let width = |bytes: u64| BAR * bytes as f64 / most as f64;
    let parts = &row.categories.0;
    let words = parts
        .iter()
        .map(|(category, bytes)| format!("{}: {}", category.words(), human_bytes(*bytes)));
    let words: Vec<String> = words.collect();
    let blocks = parts
        .iter()
        .map(|&(category, bytes)| (colour(category), width(bytes), html! {}));
    html! {
        svg.share role="img" width=(BAR) height="12" {
            title { (words.join(", ")) }
            (plot::blocks(blocks, 12.0))
        }
    }
}

fn largest_buffers(heap: &Heap) -> Markup {
    let (listed, rest) = heap.buffers.split_at(heap.buffers.len().min(ROWS));
    let bytes = rest.iter().map(|buffer| buffer.bytes);
    let titles = ["Size", "Type", "Device", "Category", "Path"];
    html! {
        (table(&titles, listed.iter().map(|it| buffer(heap, it))))
        (more(rest.len() as u64, &in_total(bytes.fold(0, u64::saturating_add))))
    }
}

fn buffer(heap: &Heap, buffer: &Buffer) -> Markup {
    html! {
        tr {
            td.number { (human_bytes(buffer.bytes)) }
            td { (elements(buffer)) }
            td { (name(&buffer.device, 40)) }
            td { @if buffer.category != Category::Other { (buffer.category.words()) } }
            td.name {
                (name(&way(heap, buffer), 400))
                @for way in buffer.also.iter().take(2) { p.more { "also " (name(way, 400)) } }
            }
        }
    }
}

fn classes(heap: &Heap) -> Markup {
    let top = heap.top(By::Class, ROWS / 2);
    let row = |row: &Row| {
        html! {
            tr {
                (sizes(heap, row))
                td { (grouped(row.count)) }
                td.name { (name(&row.name, 200)) }
            }
        }
    };
    let titles = [places(heap), &["Objects", "Class"]].concat();
    table(&titles, top.rows.iter().map(row))
}
