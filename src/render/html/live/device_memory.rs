//! The page of what the memory of a device is used for.

use maud::{Markup, html};

use crate::model::device_memory::{DeviceMemory, MemoryRow};
use crate::model::words::{human_bytes, name};
use crate::render::html::live::owners::key;
use crate::render::html::live::{Page, as_text, facts, section, table};
use crate::render::html::parts::with_code;
use crate::render::html::plot::{self, WIDTH};
use crate::render::text;

/// How high the bar is.
const ROW: f64 = 34.0;
/// Names longer than this are shortened in their middle.
const NAME: usize = 300;

/// The page of a [`DeviceMemory`]: each use with its share, what holds most of it and what gives it back.
pub fn device_memory(memory: &DeviceMemory) -> String {
    let used = human_bytes(memory.in_use());
    let mut facts = facts(&memory.process, memory.time);
    facts.push(("Device", memory.device.clone()));
    facts.push(("Memory", human_bytes(memory.total)));
    facts.push(("Free", human_bytes(memory.free)));
    let host: u64 = memory.host.iter().map(|row| row.bytes).sum();
    Page {
        title: format!("{}: {used} in use", memory.device),
        lead: answer(memory),
        facts,
        body: html! {
            (section("Device memory", &html! {
                (bar(memory))
                (rows(&memory.rows, memory.in_use()))
            }))
            @if host > 0 { (section("Pinned host memory", &rows(&memory.host, host))) }
            (as_text(&text::device_memory(memory)))
        },
        notes: memory.notes.clone(),
        ..Page::default()
    }
    .html()
}

/// How much of so many bytes these are, in a word if there is one.
fn part(bytes: u64, of: u64) -> String {
    match bytes {
        all if all >= of => "all".to_owned(),
        most if most > of / 2 => "most".to_owned(),
        few => human_bytes(few),
    }
}

/// What most of the memory is used for, and what garbage could be given back.
fn answer(memory: &DeviceMemory) -> Markup {
    let most = memory.rows.iter().max_by_key(|row| row.bytes);
    let garbage = memory
        .rows
        .iter()
        .filter(|row| row.name.contains("garbage"));
    html! {
        @if let Some(most) = most {
            b {
                (human_bytes(most.bytes)) " of " (human_bytes(memory.in_use())) " in use is "
                (name(&most.name, NAME))
            }
            @if let Some(holder) = most.holders.first() {
                ", " (part(holder.bytes, most.bytes)) " of it in " (with_code(&name(&holder.name, NAME)))
            }
            ". "
        }
        @for row in garbage.filter(|row| row.bytes > 0) {
            b { (human_bytes(row.bytes)) " is " (name(&row.name, NAME)) }
            @if !row.freed_by.is_empty() { ", freed by " (with_code(&name(&row.freed_by, NAME))) }
            ". "
        }
        (human_bytes(memory.free)) " of " (human_bytes(memory.total)) " is free."
    }
}

/// The rows to scale, and what is free.
fn bar(memory: &DeviceMemory) -> Markup {
    let scale = WIDTH / memory.total.max(memory.in_use()).max(1) as f64;
    let width = |bytes: u64| bytes as f64 * scale;
    let blocks = memory.rows.iter().map(|row| {
        let title = html! { title { (name(&row.name, NAME)) ": " (human_bytes(row.bytes)) } };
        (colour(&row.name).to_owned(), width(row.bytes), title)
    });
    let free = [(
        "free".to_owned(),
        width(memory.free),
        html! { title { "free: " (human_bytes(memory.free)) } },
    )];
    html! {
        (plot::chart("bars", "Device memory by use, to scale", ROW, &plot::blocks(blocks.chain(free), ROW)))
    }
}

/// The colour of a use, which is that of its category.
fn colour(name: &str) -> &'static str {
    const COLOURS: [(&str, &str); 9] = [
        ("cached", "cached"),
        ("outside", "elsewhere"),
        ("parameter", "parameter"),
        ("optimizer", "optimizer-state"),
        ("gradient", "gradient"),
        ("activation", "activation"),
        ("input", "input"),
        ("garbage", "garbage"),
        ("tensor", "other"),
    ];
    let known = COLOURS.iter().find(|(word, _)| name.contains(word));
    known.map_or("several", |&(_, colour)| colour)
}

fn rows(rows: &[MemoryRow], all: u64) -> Markup {
    let row = |row: &MemoryRow| {
        html! {
            tr {
                td.number { (human_bytes(row.bytes)) }
                td.number { (format!("{:.0} %", row.bytes as f64 / all.max(1) as f64 * 100.0)) }
                td {
                    (key(colour(&row.name))) " " (name(&row.name, NAME))
                    @for holder in &row.holders {
                        p.more { (human_bytes(holder.bytes)) " " (with_code(&name(&holder.name, NAME))) }
                    }
                }
                td { (with_code(&name(&row.freed_by, NAME))) }
            }
        }
    };
    table(
        &["Bytes", "Share", "Used for", "Freed by"],
        rows.iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_is_more_than_half_and_all_is_all() {
        assert_eq!(part(8 << 20, 8 << 20), "all");
        assert_eq!(part(5 << 20, 8 << 20), "most");
        assert_eq!(part(3 << 20, 8 << 20), "3.0 MiB");
    }
}
