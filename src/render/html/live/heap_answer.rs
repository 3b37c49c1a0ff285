//! The first sentence of the page of a heap: where most of the memory is, and what is known of freeing it.

use std::cmp::Reverse;

use maud::{Markup, html};

use crate::model::heap::{Buffer, By, Heap, KEPT_BY_TRACEBACK, Row};
use crate::model::retention::{UNCOLLECTABLE, UNREACHABLE};
use crate::model::words::{human_bytes, name};
use crate::render::html::parts::with_code;
use crate::render::icicle::{Block, Icicle};

/// How many owners beside the largest the answer names.
const NEXT: usize = 2;
/// A smaller part without an owner is not told first.
const UNREACHABLE_PART: f64 = 0.02;
/// The root of the variables that need no module before them.
const MAIN: &str = "module __main__";

/// Where most of the memory is: at the owner where it divides. What deleting a variable frees is known, and of a
/// reference behind it only what the object retains.
pub fn answer(heap: &Heap, icicle: &Icicle) -> Markup {
    let path = icicle.largest_part();
    let uncollectable = |block: &&Block| {
        let object = block.label.strip_prefix(UNCOLLECTABLE)?;
        Some(in_cycles(object, block.bytes, icicle.blocks[0].bytes))
    };
    if let Some(answer) = path.iter().flatten().find_map(uncollectable) {
        return answer;
    }
    if let Some(path) = path
        && let Some(block) = path.last()
        && let Some(retained) = block.retained
    {
        let part = part_of(block.bytes, icicle.blocks[0].bytes);
        let reference = words(&path);
        if reference.is_empty() {
            // A module, which nobody deletes.
            return html! {
                b { (part) " is in " (name(&block.label, 80)) } ". "
                (beside(icicle, &path))
            };
        }
        return html! {
            b { (part) " is in " (with_code(&name(&reference, 200))) } " (" (name(&block.label, 80)) "). "
            @match variable(heap, &path) {
                Some(row) => (deletion(&row)),
                None if retained == 0 => "Other references lead to all of it, too.",
                None => { "Its retained size is " (human_bytes(retained)) "." },
            }
            " " (beside(icicle, &path))
        };
    }
    let top = heap.top(By::Owner, 1);
    let Some(row) = top.rows.first() else {
        return html! { "No tensor or array is alive." };
    };
    let (part, all) = match heap.device_bytes() {
        0 => (row.host_bytes, heap.host_bytes()),
        bytes => (row.device_bytes, bytes),
    };
    if let Some(path) = row.name.strip_prefix(UNCOLLECTABLE) {
        return in_cycles(path.split(" → ").next().unwrap_or(path), part, all);
    }
    html! {
        b { (part_of(part, all)) } " is in " (with_code(&name(&row.name, 200))) ". "
        (deletion(row))
    }
}

/// The owner that a path leads to, if that is a variable, and the only one of its name: another call of a function has
/// one of the same.
fn variable(heap: &Heap, path: &[&Block]) -> Option<Row> {
    let references = path.iter().filter(|block| !block.edge.is_empty());
    let at = path.last()?.branch.filter(|_| references.count() == 1)?;
    let is_below = |buffer: &Buffer| heap.branches_to(buffer).any(|branch| branch == at);
    let is_of_traceback = |buffer: &Buffer| buffer.first_owner.contains(KEPT_BY_TRACEBACK);
    let mut own = heap.buffers.iter().filter(|it| !is_of_traceback(it));
    let owner = &own.clone().find(|it| is_below(it))?.first_owner;
    own.all(|it| is_below(it) == (it.first_owner == *owner))
        .then(|| heap.top(By::Owner, usize::MAX).rows)?
        .into_iter()
        .find(|row| row.name == *owner)
}

/// What deleting the variable of an owner frees, and when.
fn deletion(row: &Row) -> Markup {
    html! {
        @if row.retained_bytes == 0 {
            "Other references lead to all of it: deleting this one alone frees none."
        } @else {
            "Deleting that reference frees " (human_bytes(row.retained_bytes))
            @match row.collected_bytes {
                0 => {}
                all if all == row.retained_bytes => " at the next garbage collection",
                part => { ", " (human_bytes(part)) " of it at the next garbage collection" }
            }
            "."
        }
    }
}

/// The references of a path: `trainer.losses` as code, and in words what is no code.
fn words(path: &[&Block]) -> String {
    // Each part with whether it is code.
    let mut parts: Vec<(bool, String)> = Vec::new();
    for block in path {
        let edge = &*block.edge;
        let module = block.label.strip_prefix("module ");
        let local = edge
            .strip_prefix("local '")
            .and_then(|it| it.strip_suffix('\''));
        let is_code = edge.starts_with(['.', '[']);
        match (parts.last_mut(), local, module) {
            (_, _, Some(module)) if edge.is_empty() => {
                parts.extend((block.label != MAIN).then(|| (true, module.to_owned())));
            }
            _ if edge.is_empty() => {}
            (None, Some(local), _) => parts.push((true, local.to_owned())),
            (Some((true, code)), _, _) if is_code => code.push_str(edge),
            _ if is_code => parts.push((true, edge.trim_start_matches('.').to_owned())),
            _ => parts.push((false, edge.replace('\'', "`"))),
        }
    }
    let parts = parts.into_iter().map(|(is_code, part)| match is_code {
        true => format!("`{part}`"),
        false => part,
    });
    parts.collect::<Vec<_>>().join(" → ")
}

/// `59.3 MiB of 102.4 MiB`; all of it is not said twice.
fn part_of(part: u64, all: u64) -> String {
    match part == all {
        true => human_bytes(all),
        false => format!("{} of {}", human_bytes(part), human_bytes(all)),
    }
}

/// How much memory no owner keeps, if it is a part that counts.
pub fn unreachable(heap: &Heap) -> Markup {
    let garbage = |buffer: &&Buffer| buffer.owner.starts_with(UNREACHABLE);
    let garbage = heap.buffers.iter().filter(garbage);
    let bytes = garbage.fold(0, |all: u64, buffer| all.saturating_add(buffer.bytes));
    let all = heap.device_bytes().saturating_add(heap.host_bytes());
    html! {
        @if bytes > 0 && bytes as f64 >= UNREACHABLE_PART * all as f64 {
            " " b { (human_bytes(bytes)) " is held by unreachable objects only" } ": garbage, or kept alive only by C++."
        }
    }
}

/// Of memory in cycles that no collection frees, by an object of them.
fn in_cycles(object: &str, bytes: u64, all: u64) -> Markup {
    html! {
        b { (part_of(bytes, all)) " is in cycles that no collection frees" }
        ", with the " code { (name(object, 200)) } ". Remove one of their references, such as a tensor's hook."
    }
}

/// What else is held where the path to the largest divides, the largest first.
fn beside(icicle: &Icicle, path: &[&Block]) -> Markup {
    let divided = path
        .windows(2)
        .rposition(|pair| pair[0].bytes > pair[1].bytes);
    let shared = &path[..divided.map_or(0, |at| at + 1)];
    let mut parts: Vec<&Block> = Vec::new();
    if let Some(&[above, block]) = divided.map(|at| &path[at..at + 2]) {
        let at = icicle.blocks.iter().position(|it| it == above);
        let siblings = icicle.blocks.iter().filter(|it| {
            it.parent.map(|parent| parent as usize) == at && *it != block && !it.edge.is_empty()
        });
        parts.extend(siblings);
        parts.sort_by_key(|part| Reverse(part.bytes));
        parts.truncate(NEXT);
    }
    html! {
        @if !parts.is_empty() {
            "Beside it: "
            @for (index, part) in parts.iter().enumerate() {
                @if index > 0 { ", " }
                (with_code(&name(&words(&[shared, &[*part]].concat()), 100))) " " (human_bytes(part.bytes))
            }
            "."
        }
    }
}
