//! The list of leaks: the master beside the leak that is shown.

use std::collections::BTreeSet;

use maud::{Markup, html};

use crate::model::report::Leak;
use crate::model::words::{counted, grouped, human_bytes, name, short_location};
use crate::render::html::NAME;

/// The leaks of the page in its order, the one that holds most bytes first, each with the id of its section.
pub struct Listed<'a> {
    pub leak: &'a Leak,
    /// Its place in the report.
    pub index: usize,
    pub id: String,
}

/// A section's id is the signature, so that a link to a leak stays a link to it; where several have the same or it is
/// none, its place.
pub fn listed<'a>(leaks: &[(usize, &'a Leak)]) -> Vec<Listed<'a>> {
    let mut taken = BTreeSet::new();
    let place = |(rank, &(index, leak)): (usize, &(usize, &'a Leak))| {
        let signature = &leak.signature;
        let is_one = signature.len() >= 8
            && signature.len() <= 64
            && signature.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = match is_one && taken.insert(signature.clone()) {
            true => signature.clone(),
            false => format!("leak-{}", rank + 1),
        };
        Listed { leak, index, id }
    };
    leaks.iter().enumerate().map(place).collect()
}

/// The list; nothing for a single leak.
pub fn contents(leaks: &[Listed<'_>]) -> Markup {
    let held = || leaks.iter().map(|it| it.leak.bytes_held);
    let most = held().max().unwrap_or(0).max(1) as f64;
    let all = held().fold(0, u64::saturating_add);
    html! {
        @if leaks.len() > 1 {
            nav aria-label="Leaks" {
                p.total {
                    b { (counted(leaks.len() as u64, "leak", "leaks")) } " · " (human_bytes(all))
                    output {}
                }
                (filters(leaks))
                ol {
                    @for it in leaks {
                        li data-whose=(whose(it.leak)) data-pattern=(pattern(it.leak))
                            data-device=(devices(it.leak).into_iter().collect::<Vec<_>>().join("\n")) {
                            a href={ "#" (it.id) } { (line(it.leak, most)) }
                        }
                    }
                }
                button.rest type="button" hidden {}
            }
        }
    }
}

/// Search, filters and order, for the script.
fn filters(leaks: &[Listed<'_>]) -> Markup {
    let choice = |words: &str, key: &str, all: &str, values: BTreeSet<String>| {
        html! {
            @if values.len() > 1 {
                select aria-label=(words) data-by=(key) {
                    option value="" { (all) }
                    @for value in &values { option value=(value) { (value) } }
                }
            }
        }
    };
    let set = |of: fn(&Leak) -> String| leaks.iter().map(|it| of(it.leak)).collect();
    let all_devices = leaks.iter().flat_map(|it| devices(it.leak)).collect();
    html! {
        div.filters hidden {
            input type="search" placeholder="Find a leak" aria-label="Find a leak";
            (choice("Whose", "whose", "Yours and libraries", set(whose)))
            (choice("Pattern", "pattern", "All patterns", set(pattern)))
            (choice("Device", "device", "All devices", all_devices))
            select aria-label="Order" data-order {
                option value="0" { "Most memory" }
                option value="1" { "Most often" }
                option value="2" { "By file" }
            }
        }
    }
}

fn whose(leak: &Leak) -> String {
    match (leak.is_library(), leak.is_of_unknown_code()) {
        (true, _) => "library",
        (_, true) => "unknown",
        _ => "yours",
    }
    .to_owned()
}

fn pattern(leak: &Leak) -> String {
    name(leak.pattern.as_deref().unwrap_or("other"), 60)
}

fn devices(leak: &Leak) -> BTreeSet<String> {
    let devices = leak.buffers.iter().map(|buffer| name(&buffer.device, 40));
    devices.collect()
}

/// A leak in the list, with a bar that tells its share of `most` bytes.
fn line(leak: &Leak, most: f64) -> Markup {
    let width = (64.0 * leak.bytes_held as f64 / most).max(1.0);
    html! {
        b { (human_bytes(leak.bytes_held)) }
        svg.share width="64" height="8" aria-hidden="true" {
            rect width=(format_args!("{width:.1}")) height="8" rx="2" {}
        }
        i { @if leak.count != 1 { (grouped(leak.count)) " ×" } }
        em {
            @if let Some(pattern) = &leak.pattern { (name(pattern, 60)) }
            @if leak.is_library() { " · library" }
        }
        span { (name(&leak.summary, 160)) }
        @if let Some(place) = leak.line_to_change() {
            small { (name(&short_location(&place), NAME)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn the_list_says_whose_a_leak_is() {
        let mut report = samples::linked_nodes_and_exception();
        report.leaks[0].known = Some(Default::default());
        let leaks: Vec<(usize, &Leak)> = report.leaks.iter().enumerate().collect();
        let list = contents(&listed(&leaks)).0;
        assert_eq!(list.matches("· library").count(), 1);
        assert!(
            list.contains("<i>3 ×</i><em>both-ways · library</em>"),
            "{list}"
        );
    }

    #[test]
    fn a_link_is_the_signature_unless_it_is_none_or_not_the_only_one() {
        let leak = |signature: &str| Leak {
            signature: signature.to_owned(),
            ..samples::callback().leaks.remove(0)
        };
        let leaks = ["0123456789abcdef", "\"><b>", "0123456789abcdef", ""].map(leak);
        let leaks: Vec<(usize, &Leak)> = leaks.iter().enumerate().collect();
        let ids: Vec<String> = listed(&leaks).into_iter().map(|it| it.id).collect();
        assert_eq!(ids, ["0123456789abcdef", "leak-2", "leak-3", "leak-4"]);
    }
}
