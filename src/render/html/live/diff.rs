//! The page of what changed between two heaps.

use std::cmp::Reverse;

use maud::{Markup, html};

use crate::model::diff::Diff;
use crate::model::words::{counted, grouped, human_bytes, name, signed, utc};
use crate::render::html::live::tree::Tree;
use crate::render::html::live::{Page, as_text, facts, section, table};
use crate::render::html::parts::with_code;
use crate::render::text;

/// How many rows the tree has.
const ROWS: usize = 60;
/// What is deeper is not indented further.
const INDENTS: usize = 9;
/// A smaller part of all change is summed up with others.
const PART: f64 = 0.01;
/// More that changed alike are one row.
const ALIKE: usize = 3;
/// How wide a bar may be.
const BAR: f64 = 150.0;

/// The page of a [`Diff`]: the owners of memory as a tree, with what each had before and has now.
pub fn diff(diff: &Diff) -> String {
    let mut facts = facts(&diff.process, diff.times[1]);
    if diff.times[0] > 0.0 {
        facts.push(("Since", utc(diff.times[0])));
    }
    facts.push(("Objects", signed(diff.objects, grouped)));
    let title = match diff.rows.is_empty() {
        true => "No change in memory".to_owned(),
        false => format!("{} in total", signed(diff.bytes, human_bytes)),
    };
    let tree = Tree::of(&diff.rows);
    Page {
        title,
        lead: answer(&tree),
        facts,
        body: html! {
            @if !diff.rows.is_empty() {
                (section("What changed, by owner", &changes(&tree)))
                (as_text(&text::diff(diff)))
            }
        },
        notes: vec![
            "Paths that differ only in indices, lengths and the lines of running functions count as one.".to_owned(),
        ],
        ..Page::default()
    }
    .html()
}

/// Where most of the change is, at the owner where it divides.
fn answer(tree: &Tree) -> Markup {
    let path = tree.largest_part();
    let Some(&last) = path.last() else {
        return html! { "No tensor or array came or went." };
    };
    let steps: Vec<&str> = path.iter().map(|&index| &*tree.nodes[index].step).collect();
    let node = &tree.nodes[last];
    let buffers = counted(node.buffers.unsigned_abs(), "buffer", "buffers");
    let verb = match node.buffers {
        0 => String::new(),
        more if more > 0 => format!(", {buffers} more"),
        _ => format!(", {buffers} fewer"),
    };
    let all = tree.nodes[0].change;
    let is_part = node.change.signum() == all.signum() && node.change.abs() <= all.abs();
    html! {
        b { (signed(node.change, human_bytes)) @if is_part { " of " (signed(all, human_bytes)) } }
        " is in " (with_code(&name(&steps.join(" → "), 400))) (verb) "."
        @if !is_part { " All changes add up to " (signed(all, human_bytes)) "." }
    }
}

/// A row of the tree: an owner, or several that changed alike.
struct Row {
    index: usize,
    depth: usize,
    steps: String,
    times: u64,
}

/// The tree, the largest change of each owner first.
fn changes(tree: &Tree) -> Markup {
    let (rows, left_out) = rows(tree);
    let most = tree.nodes.iter().map(|node| node.now.max(node.before));
    let most = most.skip(1).max().unwrap_or(0).max(1);
    html! {
        (table(
            &["Change", "Before", "After", "Buffers", "Before and after", "Owner"],
            rows.iter().map(|it| row(tree, it, most)),
        ))
        @if left_out > 0 {
            p.more { (counted(left_out, "smaller change is", "smaller changes are")) " not shown." }
        }
    }
}

/// The rows from the top down, and how many are left out.
fn rows(tree: &Tree) -> (Vec<Row>, u64) {
    let all: u64 = tree.nodes[0].moved.max(1);
    let mut rows = Vec::new();
    let mut open: Vec<(usize, usize, Vec<&str>, u64)> = vec![(0, 0, Vec::new(), 1)];
    let mut left_out = 0u64;
    while let Some((index, depth, mut above, times)) = open.pop() {
        let node = &tree.nodes[index];
        if index > 0 {
            above.push(&node.step);
        }
        // Owners of one thing only are one row with it.
        if let &[only] = &*node.children
            && (index == 0 || tree.nodes[only].change == node.change)
        {
            open.push((only, depth, above, times));
            continue;
        }
        let is_small = (node.moved.saturating_mul(times) as f64) < PART * all as f64;
        if index > 0 && (rows.len() >= ROWS || is_small) {
            left_out += times;
            continue;
        }
        let below = depth + usize::from(index > 0);
        if index > 0 {
            rows.push(Row {
                index,
                depth,
                steps: above.join(" → "),
                times,
            });
        }
        if times == 1 {
            let children = alike(tree, &node.children).into_iter().rev();
            open.extend(children.map(|(child, times)| (child, below, Vec::new(), times)));
        }
    }
    (rows, left_out)
}

/// The largest first, and of many that changed alike the first with their number.
fn alike(tree: &Tree, children: &[usize]) -> Vec<(usize, u64)> {
    let numbers = |index: usize| {
        let node = &tree.nodes[index];
        (node.change, node.before, node.now, node.buffers)
    };
    let mut sorted = children.to_vec();
    sorted.sort_by_key(|&child| (Reverse(tree.nodes[child].moved), numbers(child)));
    let runs = sorted.chunk_by(|&a, &b| numbers(a) == numbers(b));
    let runs = runs.flat_map(|run| match run.len() > ALIKE {
        true => vec![(run[0], run.len() as u64)],
        false => run.iter().map(|&child| (child, 1)).collect(),
    });
    runs.collect()
}

fn row(tree: &Tree, row: &Row, most: u64) -> Markup {
    let node = &tree.nodes[row.index];
    let times = |bytes: u64| bytes.saturating_mul(row.times);
    let signed_times = |number: i64| number.saturating_mul(row.times as i64);
    let width = |bytes: u64| format!("{:.1}", BAR * times(bytes) as f64 / most as f64);
    let class = if node.change > 0 { "grew" } else { "shrank" };
    html! {
        tr class=(class) {
            td.number { (signed(signed_times(node.change), human_bytes)) }
            td.number { (human_bytes(times(node.before))) }
            td.number { (human_bytes(times(node.now))) }
            td.number { (signed(signed_times(node.buffers), grouped)) }
            td {
                svg.share width=(BAR) height="14" aria-hidden="true" {
                    rect.before width=(width(node.before)) height="6" {}
                    rect.bar y="7" width=(width(node.now)) height="6" {}
                }
            }
            td class={ "name d" (row.depth.min(INDENTS)) } {
                @if row.times > 1 { (grouped(row.times)) " × such as " }
                (with_code(&name(&row.steps, 400)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::diff::Change;

    #[test]
    fn many_that_changed_alike_are_one_row() {
        let change = |name: String, bytes| Change {
            name,
            bytes,
            buffers: 1,
            now_bytes: bytes as u64,
        };
        let items =
            (0..10).map(|index| change(format!("a → .cache (dict) → ['{index}'] → Tensor"), 100));
        let tree = Tree::of(
            &items
                .chain([change("a → .best".to_owned(), 7)])
                .collect::<Vec<_>>(),
        );
        let (rows, left_out) = rows(&tree);
        let said: Vec<(&str, u64)> = rows.iter().map(|row| (&*row.steps, row.times)).collect();
        assert_eq!(
            said,
            [("a", 1), (".cache (dict)", 1), ("['0'] → Tensor", 10)]
        );
        assert_eq!(left_out, 1);
    }
}
