//! The owner treemap as SVG.

use std::fmt::Write as _;

use serde::Serialize;

use crate::model::heap::{Category, Heap};
use crate::model::words::{human_bytes, markup, name};
use crate::render::icicle::{Block, Icicle, Kind, icicle};

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
    pub figure: String,
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
        categories: Category::ALL.iter().map(|it| it.words()).collect(),
    };
    Owners {
        figure: figure(&icicle),
        data: serde_json::to_string(&data).unwrap_or_default(),
        icicle,
    }
}

fn figure(icicle: &Icicle) -> String {
    let total = icicle.blocks[0].bytes.max(1) as f64;
    let mut blocks = String::new();
    for (index, block) in icicle.blocks.iter().enumerate() {
        draw(&mut blocks, index, block, total);
    }
    format!(
        "<figure class=\"owners\">\n\
         <div class=\"trail\" role=\"group\" aria-label=\"Path to the enlarged block\" hidden></div>\n\
         <svg class=\"icicle\" role=\"tree\" aria-label=\"Owners of memory, by size. The arrow \
         keys move between blocks, Enter enlarges a block, Escape goes back.\" width=\"100%\" height=\"{}\">\n\
         {blocks}</svg>\n{}\
         <div class=\"facts-of-block\" role=\"region\" aria-label=\"The block\" \
         aria-live=\"polite\" hidden></div>\n</figure>\n",
        icicle.depth * ROW,
        legend(icicle),
    )
}

/// A box of its own for each block, so that its name ends where it ends.
fn draw(out: &mut String, index: usize, block: &Block, total: f64) {
    let share = |bytes: u64| 100.0 * bytes as f64 / total;
    let title = name(&block.title(), NAME);
    let size = human_bytes(block.bytes);
    // Writing to a `String` cannot fail.
    _ = write!(
        out,
        "<svg class=\"block {}\" id=\"block-{index}\" x=\"{:.4}%\" y=\"{}\" width=\"{:.4}%\" \
         height=\"{ROW}\" role=\"treeitem\" aria-level=\"{}\"><title>{}, {size}{}</title>\
         <rect width=\"100%\" height=\"100%\"/>",
        class(block),
        share(block.start),
        block.depth * ROW,
        share(block.bytes),
        block.depth + 1,
        markup(&title),
        block
            .category()
            .map_or(String::new(), |it| format!(", {}", it.words())),
    );
    if block.bytes as f64 >= NAMED * total {
        _ = write!(
            out,
            "<text x=\"6\" y=\"16\">{}  {size}</text>",
            markup(&title)
        );
    }
    *out += "</svg>\n";
}

fn class(block: &Block) -> String {
    let rest = if block.kind == Kind::Rest {
        " rest"
    } else {
        ""
    };
    match block.category() {
        Some(category) => category.words().replace(' ', "-") + rest,
        None => format!("several{rest}"),
    }
}

/// The meaning of the colours, with the size of each category.
fn legend(icicle: &Icicle) -> String {
    let swatch = |class: &str, words: &str| {
        format!(
            "<li><svg width=\"14\" height=\"14\" aria-hidden=\"true\" class=\"block {class}\">\
             <rect width=\"14\" height=\"14\" rx=\"3\"/></svg>{words}</li>"
        )
    };
    let mut entries = String::new();
    for (category, bytes) in Category::ALL.iter().zip(icicle.blocks[0].categories) {
        if bytes > 0 {
            let words = category.words();
            entries += &swatch(
                &words.replace(' ', "-"),
                &format!("{words} {}", human_bytes(bytes)),
            );
        }
    }
    entries += &swatch("several", "several categories");
    format!("<ul class=\"legend\" aria-label=\"Colours\">{entries}</ul>\n")
}
