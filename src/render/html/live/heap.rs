//! The page of a heap: who owns all memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use maud::{Markup, html};

use crate::model::heap::{Buffer, By, Category, Heap, Row};
use crate::model::words::{counted, grouped, human_bytes, name, without_indices};
use crate::render::html::live::heap_answer::{answer, unreachable};
use crate::render::html::live::owners::{colour, owners};
use crate::render::html::live::{Page, as_text, facts, more, section, table};
use crate::render::html::parts::with_code;
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
        lead: html! { (answer(heap, &owners.icicle)) (unreachable(heap)) },
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
                td.number { (grouped(row.count)) }
                td.name { (with_code(&name(&row.name, 200))) }
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
        .map(|&(category, bytes)| (colour(category.words()), width(bytes), html! {}));
    html! {
        svg.share role="img" width=(BAR) height="12" {
            title { (words.join(", ")) }
            (plot::blocks(blocks, 12.0))
        }
    }
}

fn largest_buffers(heap: &Heap) -> Markup {
    let groups = alike(heap);
    let (listed, rest) = groups.split_at(groups.len().min(ROWS));
    let count = rest.iter().map(|group| group.count).sum();
    let bytes = rest.iter().map(|group| group.bytes);
    // A column that says the same in each row says nothing.
    let devices = heap
        .buffers
        .iter()
        .any(|it| it.device != heap.buffers[0].device);
    let categories = heap.buffers.iter().any(|it| it.category != Category::Other);
    let mut titles = vec!["Size", "Type"];
    titles.extend(devices.then_some("Device"));
    titles.extend(categories.then_some("Category"));
    titles.push("Path");
    let row = |group| row_of(group, devices, categories);
    html! {
        (table(&titles, listed.iter().map(row)))
        (more(count, &in_total(bytes.fold(0, u64::saturating_add))))
    }
}

fn row_of(group: &Alike, devices: bool, categories: bool) -> Markup {
    let buffer = group.first;
    html! {
        tr {
            td.number {
                (human_bytes(group.bytes))
                @if group.count > 1 {
                    p.more { (grouped(group.count)) " × " (human_bytes(buffer.bytes)) }
                }
            }
            td.elements { (elements(buffer)) }
            @if devices { td { (name(&buffer.device, 40)) } }
            @if categories {
                td { @if buffer.category != Category::Other { (buffer.category.words()) } }
            }
            td.name {
                (with_code(&name(&group.way, 400)))
                @for way in buffer.also.iter().take(2) { p.more { "also " (with_code(&name(way, 400))) } }
            }
        }
    }
}

/// Buffers of one size and type that differ in the indices of their paths only.
struct Alike<'h> {
    first: &'h Buffer,
    count: u64,
    /// Their size in total.
    bytes: u64,
    /// The path to the only one; to several, without the indices.
    way: String,
}

/// All buffers, those alike together, the largest first.
fn alike(heap: &Heap) -> Vec<Alike<'_>> {
    let mut groups: Vec<Alike> = Vec::new();
    let mut places = HashMap::new();
    for buffer in &heap.buffers {
        let full = way(heap, buffer);
        let common = without_indices(&full);
        let key = (
            buffer.bytes,
            elements(buffer),
            &buffer.device,
            buffer.category,
            common,
        );
        match places.entry(key) {
            Entry::Occupied(place) => {
                let group: &mut Alike = &mut groups[*place.get()];
                group.count += 1;
                group.bytes = group.bytes.saturating_add(buffer.bytes);
                group.way.clone_from(&place.key().4);
            }
            Entry::Vacant(place) => {
                place.insert(groups.len());
                groups.push(Alike {
                    first: buffer,
                    count: 1,
                    bytes: buffer.bytes,
                    way: full,
                });
            }
        }
    }
    groups.sort_by_key(|group| Reverse(group.bytes));
    groups
}

fn classes(heap: &Heap) -> Markup {
    let top = heap.top(By::Class, ROWS / 2);
    let row = |row: &Row| {
        html! {
            tr {
                (sizes(heap, row))
                td.number { (grouped(row.count)) }
                td.name { (name(&row.name, 200)) }
            }
        }
    };
    let titles = [places(heap), &["Objects", "Class"]].concat();
    table(&titles, top.rows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::heap::Branch;
    use crate::render::icicle::icicle;

    /// A list in a module that holds some buffers of one MiB.
    fn list_of(count: u32) -> Heap {
        let branch = |parent, edge: &str, label: &str| Branch {
            parent,
            edge: edge.to_owned(),
            label: label.to_owned(),
            ..Branch::default()
        };
        let mut heap = Heap::default();
        heap.branches.push(branch(None, "", "module `train`"));
        heap.branches.push(branch(Some(0), ".losses", "list"));
        for index in 0..count {
            heap.branches
                .push(branch(Some(1), &format!("[{index}]"), "ndarray"));
            heap.buffers.push(Buffer {
                bytes: 1 << 20,
                device: "cpu".to_owned(),
                first_owner: "module `train` → `losses` (list)".to_owned(),
                branch: 2 + index,
                alone: true,
                ..Buffer::default()
            });
        }
        heap
    }

    #[test]
    fn buffers_that_differ_in_their_index_are_one_row() {
        let mut heap = list_of(12);
        heap.buffers[3].bytes = 5 << 20;
        let groups = alike(&heap);
        let rows: Vec<(u64, u64, &str)> = groups
            .iter()
            .map(|group| (group.count, group.bytes, &*group.way))
            .collect();
        let way = |index: &str| format!("module `train` → .losses (list) → {index} (ndarray)");
        assert_eq!(
            rows,
            [(11, 11 << 20, &*way("[x]")), (1, 5 << 20, &*way("[3]"))]
        );
    }

    #[test]
    fn the_answer_says_what_deleting_the_largest_owner_frees() {
        let mut heap = list_of(2);
        let said = |heap: &Heap| answer(heap, &icicle(heap, 100)).into_string();
        assert!(
            said(&heap).starts_with("<b>2.0 MiB</b> is in"),
            "{}",
            said(&heap)
        );
        assert!(said(&heap).ends_with("frees 2.0 MiB."), "{}", said(&heap));
        heap.buffers[0].by_collection = true;
        assert!(
            said(&heap).ends_with("frees 2.0 MiB, 1.0 MiB of it at the next garbage collection."),
            "{}",
            said(&heap)
        );
        heap.buffers[1].by_collection = true;
        assert!(
            said(&heap).ends_with("frees 2.0 MiB at the next garbage collection."),
            "{}",
            said(&heap)
        );
        heap.buffers.iter_mut().for_each(|it| it.alone = false);
        assert!(said(&heap).contains("frees none"), "{}", said(&heap));
        assert!(said(&Heap::default()).contains("No tensor or array"));
    }
}
