//! The page of a heap: who owns all memory.

use crate::model::heap::{Buffer, By, Category, Heap, Row};
use crate::model::words::{counted, grouped, human_bytes, markup};
use crate::render::html::live::owners::owners;
use crate::render::html::live::{Page, as_text, facts, section, table};
use crate::render::html::shown;
use crate::render::icicle::{elements, way};

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
    let drawing = format!(
        "<p>The width of a block is proportional to the bytes reached through it, on the shortest path \
         from a GC root: a module, a running function or C++. Its parts are drawn below it.</p>\n{}",
        owners.figure
    );
    Page {
        title: title(heap),
        lead: "Memory in use, by owner and category. No garbage collection frees it: it is freed \
               when its owner drops the reference."
            .to_owned(),
        facts,
        body: [
            section("Owners", &drawing),
            tables(heap),
            as_text(&heap.to_text()),
        ]
        .concat(),
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
fn tables(heap: &Heap) -> String {
    let mut out = section("Largest owners", &largest_owners(heap));
    out += &section("Largest tensors and arrays", &largest_buffers(heap));
    out += &section("Retained size by class", &classes(heap));
    let devices: String = heap
        .devices
        .iter()
        .filter_map(|device| device.words())
        .fold(String::new(), |all, words| {
            format!("{all}<p>{}</p>\n", markup(&words))
        });
    if !devices.is_empty() {
        out += &section("Allocator", &devices);
    }
    out
}

fn largest_owners(heap: &Heap) -> String {
    let top = heap.top(By::Owner, ROWS);
    let most = top.rows.iter().map(Row::bytes).max().unwrap_or(0).max(1);
    let row = |row: &Row| {
        format!(
            "<tr>{}<td class=\"number\">{}</td><td>{}</td><td>{}</td><td class=\"name\">{}</td></tr>\n",
            sizes(heap, row),
            human_bytes(row.retained_bytes),
            bar(row, most),
            grouped(row.count),
            shown(&row.name, 200),
        )
    };
    let rows: String = top.rows.iter().map(row).collect();
    let titles = ["Retained", "Category", "Buffers", "Owner"];
    table(&[places(heap), &titles].concat(), &rows) + &more(top.omitted, top.omitted_bytes)
}

/// Where there is memory.
fn places(heap: &Heap) -> &'static [&'static str] {
    match heap.device_bytes() {
        0 => &["On the host"],
        _ => &["On devices", "On the host"],
    }
}

/// How much of a row is where.
fn sizes(heap: &Heap, row: &Row) -> String {
    let cell = |bytes| format!("<td class=\"number\">{}</td>", human_bytes(bytes));
    match heap.device_bytes() {
        0 => cell(row.host_bytes),
        _ => cell(row.device_bytes) + &cell(row.host_bytes),
    }
}

/// An owner's memory by category, as a coloured bar.
fn bar(row: &Row, most: u64) -> String {
    let mut x = 0.0;
    let mut rects = String::new();
    let mut words = Vec::new();
    for &(category, bytes) in &row.categories.0 {
        let width = BAR * bytes as f64 / most as f64;
        rects += &format!(
            "<svg class=\"block {}\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"12\">\
             <rect width=\"100%\" height=\"12\"/></svg>",
            category.words().replace(' ', "-")
        );
        words.push(format!("{}: {}", category.words(), human_bytes(bytes)));
        x += width;
    }
    let words = words.join(", ");
    format!(
        "<svg class=\"share\" role=\"img\" width=\"{BAR}\" height=\"12\"><title>{words}</title>{rects}\
         </svg>"
    )
}

fn largest_buffers(heap: &Heap) -> String {
    let rows: String = heap
        .buffers
        .iter()
        .take(ROWS)
        .map(|it| buffer(heap, it))
        .collect();
    let rest = heap.buffers.iter().skip(ROWS);
    let sizes = rest.clone().map(|buffer| buffer.bytes);
    let bytes = sizes.fold(0, u64::saturating_add);
    table(&["Size", "Type", "Device", "Category", "Path"], &rows)
        + &more(rest.count() as u64, bytes)
}

fn buffer(heap: &Heap, buffer: &Buffer) -> String {
    let also: String = buffer
        .also
        .iter()
        .take(2)
        .map(|way| format!("<p class=\"more\">also {}</p>", shown(way, 400)))
        .collect();
    format!(
        "<tr><td class=\"number\">{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td class=\"name\">{}{also}</td></tr>\n",
        human_bytes(buffer.bytes),
        markup(&elements(buffer)),
        shown(&buffer.device, 40),
        match buffer.category {
            Category::Other => "",
            category => category.words(),
        },
        shown(&way(heap, buffer), 400),
    )
}

fn classes(heap: &Heap) -> String {
    let top = heap.top(By::Class, ROWS / 2);
    let row = |row: &Row| {
        format!(
            "<tr>{}<td>{}</td><td class=\"name\">{}</td></tr>\n",
            sizes(heap, row),
            grouped(row.count),
            shown(&row.name, 200),
        )
    };
    let rows: String = top.rows.iter().map(row).collect();
    table(&[places(heap), &["Objects", "Class"]].concat(), &rows)
}

/// The number of rows left out of a table.
fn more(rows: u64, bytes: u64) -> String {
    match rows {
        0 => String::new(),
        rows => format!(
            "<p class=\"more\">and {} more, {} in total</p>\n",
            grouped(rows),
            human_bytes(bytes)
        ),
    }
}
