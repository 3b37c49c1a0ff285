//! The owner treemap as SVG.

use maud::{Markup, Render, html};
use serde::Serialize;

use crate::model::heap::Heap;
use crate::model::words::{human_bytes, name};
use crate::render::html::plot;
use crate::render::icicle::{Block, Icicle, Kind, UNREACHABLE_MEMORY, category_names, icicle};

/// How many blocks are drawn.
const BLOCKS: usize = 500;
/// How high a block is.
const ROW: u32 = 24;
/// Names longer than this are shortened in their middle.
const NAME: usize = 90;
/// A narrower block, as a share of the whole, has its name only where it is enlarged.
const NAMED: f64 = 0.015;

/// The drawing, and what its script reads.
pub struct Owners {
    pub figure: Markup,
    pub data: String,
    pub icicle: Icicle,
}

#[derive(Serialize)]
struct Data<'a> {
    blocks: &'a [Block],
    categories: Vec<&'static str>,
}

/// Draws the owner treemap of a heap.
pub fn owners(heap: &Heap) -> Owners {
    let icicle = icicle(heap, BLOCKS);
    let data = Data {
        blocks: &icicle.blocks,
        categories: category_names().collect(),
    };
    Owners {
        figure: figure(&icicle),
        data: serde_json::to_string(&data).unwrap_or_default(),
        icicle,
    }
}

fn figure(icicle: &Icicle) -> Markup {
    let total = icicle.blocks[0].bytes.max(1) as f64;
    let keys = "Owners of memory, by size. The arrow keys move between blocks, Enter enlarges a \
                block, Escape goes back.";
    html! {
        figure.owners {
            div.trail role="group" aria-label="Path to the enlarged block" hidden {}
            svg.icicle role="tree" aria-label=(keys) width="100%" height=(icicle.depth * ROW) {
                @for (index, block) in icicle.blocks.iter().enumerate() {
                    (draw(index, block, total))
                }
            }
            (legend(icicle))
            div.facts-of-block role="region" tabindex="0" aria-label="The block" aria-live="polite" hidden {}
        }
    }
}

/// A box of its own for each block, so that its name ends where it ends.
fn draw(index: usize, block: &Block, total: f64) -> Markup {
    let share = |bytes: u64| format!("{:.4}%", 100.0 * bytes as f64 / total);
    let title = name(&block.title(), NAME);
    let size = human_bytes(block.bytes);
    html! {
        svg class={ "block " (class(block)) } id={ "block-" (index) } x=(share(block.start))
            y=(block.depth * ROW) width=(share(block.bytes)) height=(ROW) role="treeitem"
            aria-level=(block.depth + 1) {
            title {
                (title) ", " (size)
                @if let Some(category) = block.category() { ", " (category) }
            }
            rect width="100%" height="100%" {}
            (plot::texture(&class(block), "100%"))
            @if block.bytes as f64 >= NAMED * total {
                text x="6" y="16" { (title) "  " (size) }
            }
        }
    }
}

fn class(block: &Block) -> String {
    let rest = match block.kind {
        Kind::Rest => " rest",
        _ => "",
    };
    block.category().map_or("several".to_owned(), colour) + rest
}

/// The class that has a category's colour.
pub fn colour(category: &str) -> String {
    match category {
        UNREACHABLE_MEMORY => "garbage".to_owned(),
        known => known.replace(' ', "-"),
    }
}

/// The meaning of the colours, with the size of each category.
fn legend(icicle: &Icicle) -> Markup {
    let sizes = category_names().zip(icicle.blocks[0].categories);
    html! {
        ul.legend aria-label="Colours" {
            @for (category, bytes) in sizes.filter(|&(_, bytes)| bytes > 0) {
                (swatch(&colour(category), &html! { (category) " " (human_bytes(bytes)) }))
            }
            @if icicle.blocks.iter().any(|block| block.category().is_none()) {
                (swatch("several", &"several categories"))
            }
        }
    }
}

/// The meaning of a colour.
pub fn swatch(class: &str, words: &impl Render) -> Markup {
    html! {
        li { (key(class)) (words) }
    }
}

/// A colour, to stand before what it means.
pub fn key(class: &str) -> Markup {
    html! {
        svg.swatch width="14" height="14" aria-hidden="true" {
            svg class={ "block " (class) } width="14" height="14" {
                rect width="14" height="14" {}
                (plot::texture(class, 14))
            }
        }
    }
}
