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
/// How many changes beside the largest the answer names, and what part of all change they must be.
const NEXT: usize = 2;
const NEXT_PART: f64 = 0.05;
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
    let tree = Tree::of(diff.rows.iter().chain(&diff.unchanged));
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
    // Where some came and some went, no change is a part of the sum.
    let is_part = tree.nodes[0].moved == all.unsigned_abs();
    let is_gone = node.change < 0;
    let beside = beside(tree, &path);
    html! {
        b {
            (human_bytes(node.change.unsigned_abs()))
            @if is_part && node.change != all { " of " @if is_gone { "the " } (human_bytes(all.unsigned_abs())) }
        }
        @match (is_gone, is_part) {
            (false, _) => " more is in ",
            (true, true) => " that went was in ",
            (true, false) => " went from ",
        }
        (with_code(&name(&steps.join(" → "), 400))) (verb) "."
        @if !beside.is_empty() {
            " Beside it: "
            @for (index, it) in beside.iter().map(|&at| &tree.nodes[at]).enumerate() {
                @if index > 0 { ", " }
                code { (name(&it.step.replace('`', ""), 80)) } " " (signed(it.change, human_bytes))
            }
            "."
        }
        @if !is_part { " All changes add up to " (signed(all, human_bytes)) "." }
    }
}

/// The largest changes beside the path to one.
fn beside(tree: &Tree, path: &[usize]) -> Vec<usize> {
    let above = std::iter::once(&0).chain(path);
    let siblings = above.zip(path).flat_map(|(&above, &at)| {
        let changed = tree.changed(above);
        changed.filter(move |&it| it != at)
    });
    let least = NEXT_PART * tree.nodes[0].moved as f64;
    let mut largest: Vec<usize> = siblings
        .filter(|&it| tree.nodes[it].change.unsigned_abs() as f64 >= least)
        .collect();
    largest.sort_by_key(|&it| Reverse(tree.nodes[it].weight(1)));
    largest.truncate(NEXT);
    largest
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
        let changed: Vec<usize> = tree.changed(index).collect();
        // What autograd keeps is the tensor's.
        let is_graph = node.step.starts_with(".grad_fn");
        // Owners of one thing only are one row with it.
        if let [only] = changed[..]
            && !is_graph
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
        if times == 1 && !is_graph {
            let children = alike(tree, &changed).into_iter().rev();
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
    sorted.sort_by_key(|&child| (Reverse(tree.nodes[child].weight(1)), numbers(child)));
    let runs = sorted.chunk_by(|&a, &b| numbers(a) == numbers(b));
    let runs = runs.flat_map(|run| match run.len() > ALIKE {
        true => vec![(run[0], run.len() as u64)],
        false => run.iter().map(|&child| (child, 1)).collect(),
    });
    let mut runs: Vec<(usize, u64)> = runs.collect();
    runs.sort_by_key(|&(first, times)| Reverse(tree.nodes[first].weight(times)));
    runs
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
            td.before-and-after {
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
    fn the_answer_names_what_else_changed_and_counts_what_did_not() {
        let change = |name: &str, bytes: i64, now_bytes| Change {
            name: name.to_owned(),
            bytes,
            buffers: bytes.signum(),
            now_bytes,
        };
        let rows = [
            change("m → `val` (Val) → .outputs (dict) → ['a'] → Tensor", 60, 60),
            change("m → `val` (Val) → .best → Tensor", 2, 2),
            change(
                "m → `log` (Logger) → .history (list) → [x] → Tensor",
                40,
                40,
            ),
            change("m → `cache` (dict) → [x] → Tensor", -30, 10),
        ];
        let unchanged = [change("m → `model` (Net) → .weight → Tensor", 0, 1000)];
        let tree = Tree::of(rows.iter().chain(&unchanged));
        let said = answer(&tree).0;
        let expected = "Beside it: <code>log (Logger)</code> +40 bytes, <code>cache (dict)</code> -30 bytes. \
                        All changes add up to +72 bytes.";
        assert!(said.ends_with(expected), "{said}");
        assert_eq!((tree.nodes[1].before, tree.nodes[1].now), (1040, 1112));
        let (rows, left_out) = super::rows(&tree);
        assert!(rows.iter().all(|row| !row.steps.contains("model")));
        assert_eq!(left_out, 0);
    }

    #[test]
    fn a_graph_is_one_row_and_many_small_ones_come_before_a_larger_one() {
        let change = |name: String, bytes| Change {
            name,
            bytes,
            buffers: 1,
            now_bytes: bytes as u64,
        };
        let loss = "m → `losses` (list) → [x] (Tensor) → .grad_fn (MeanBackward0)";
        let saved = ["a", "b"].map(|it| change(format!("{loss} → .next_functions → .{it}"), 9));
        let kept = (0..10).map(|it| change(format!("m → `kept` (dict) → ['{it}']"), 50));
        let best = change("m → `kept` (dict) → ['best']".to_owned(), 60);
        let all: Vec<Change> = saved.into_iter().chain(kept).chain([best]).collect();
        let (rows, _) = rows(&Tree::of(&all));
        let said: Vec<(&str, u64)> = rows.iter().map(|row| (&*row.steps, row.times)).collect();
        let graph = "`losses` (list) → [x] (Tensor) → .grad_fn (MeanBackward0)";
        assert_eq!(
            said,
            [
                ("m", 1),
                ("`kept` (dict)", 1),
                ("['0']", 10),
                ("['best']", 1),
                (graph, 1)
            ]
        );
    }

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
