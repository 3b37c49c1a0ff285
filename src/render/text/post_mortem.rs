//! The post-mortem of a failed request for memory, as text.

use std::cmp::Reverse;
use std::fmt::Display;

use crate::model::post_mortem::{Finding, PostMortem};
use crate::model::words::human_bytes;

/// How many containers of tensors with graphs are named.
const GRAPHS: usize = 5;

/// The first line is the verdict.
pub fn post_mortem(found: &PostMortem) -> String {
    let size = |bytes, what: &dyn Display| format!("  {:>10}  {what}", human_bytes(bytes));
    let finding = |it: &Finding| size(it.bytes, &it.what);
    let indented = |it: &String| format!("  {it}");
    let mut text = format!("{}: {}\n", found.verdict, found.headline);
    if !found.advice.is_empty() {
        text += &format!("\n{}\n", found.advice);
    }
    let is_first = found
        .cycles
        .as_ref()
        .is_some_and(|it| it.would_fit == Some(true));
    if is_first {
        text += &cycles(found);
    }
    if let Some(numbers) = &found.numbers {
        let title = format!("Memory of {} when the request failed", found.device);
        text += &part(&title, numbers.rows().map(|(it, name)| size(it, &name)));
    }
    let mut roles = Vec::from_iter(&found.roles);
    roles.sort_by_key(|(_, bytes)| Reverse(**bytes));
    let roles = roles.iter().map(|(name, bytes)| size(**bytes, name));
    text += &part("Allocated memory by category", roles);
    let graphs = found.graphs.iter().take(GRAPHS).map(finding);
    text += &part(
        "Autograd graphs in containers: what all tensors but the newest keep",
        graphs,
    );
    text += &part("Who has the most memory", found.owners.iter().map(finding));
    let growth = found.growth.iter();
    let growth = growth.map(|it| format!("  {}. {}", it.summary, it.advice));
    text += &part("Growing tensors", growth);
    text += &part("Requested at", found.requested_at.iter().map(indented));
    if !is_first {
        text += &cycles(found);
    }
    text + &part("Not examined", found.left_out.iter().map(indented))
}

/// The leaks in cycles, with their traces.
fn cycles(found: &PostMortem) -> String {
    let known = found.cycles.as_ref().map(|cycles| {
        let title = format!("Unreachable cycles hold {}", human_bytes(cycles.bytes));
        part(&title, [format!("\n{}", found.trace)].into_iter())
    });
    known.unwrap_or_default()
}

/// A part of the text; nothing without lines.
fn part(title: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: String = lines.map(|line| line + "\n").collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\n{title}:\n{lines}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_begins_with_the_verdict_and_ends_with_what_is_not_known() {
        let found = PostMortem {
            verdict: "cycles".to_owned(),
            headline: "garbage holds 1 GiB".to_owned(),
            left_out: vec!["owners: no time left".to_owned()],
            ..PostMortem::default()
        };
        assert_eq!(
            post_mortem(&found),
            "cycles: garbage holds 1 GiB\n\nNot examined:\n  owners: no time left\n"
        );
    }
}
