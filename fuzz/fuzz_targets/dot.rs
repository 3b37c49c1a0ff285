//! In the DOT of any report all text stays in its quotes.

#![no_main]

use cyclescope::model::json::from_json;
use cyclescope::render::dot::dot;
use cyclescope_fuzz::HARMFUL;
use cyclescope_fuzz::mutate::mutate;
use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(report) = from_json(&String::from_utf8_lossy(data)) else {
        return Corpus::Reject;
    };
    let graph = dot(&report);
    assert!(!graph.contains("</") && !graph.contains(HARMFUL), "{graph}");
    let bare = without_texts(&graph);
    let ours = |c: char| c.is_ascii_alphanumeric() || "_ \n\t{}[]=;,->.".contains(c);
    assert!(bare.chars().all(ours), "{bare}");
    let keys = |name: &str| bare.matches(name).count();
    assert_eq!(keys("{"), keys("}"));
    assert_eq!(keys("subgraph "), report.leaks.len());
    Corpus::Keep
});

/// The graph without what stands in quotes.
fn without_texts(graph: &str) -> String {
    let mut bare = String::new();
    let mut within = false;
    let mut chars = graph.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if within => drop(chars.next()),
            '"' => within = !within,
            c if !within => bare.push(c),
            _ => {}
        }
    }
    assert!(!within, "a text without an end: {graph}");
    bare
}
