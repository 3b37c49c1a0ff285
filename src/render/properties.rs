//! What must hold for every report, also one from elsewhere that says anything at all.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::Deserialize as _;
use serde_json::Value;

use super::{dot, html, markdown, samples, svg, text};
use crate::model::json::{from_json, to_json};
use crate::model::merge;
use crate::model::redact::redact;
use crate::model::report::{Report, SCHEMA};

/// Texts that mean something to whoever reads a rendering.
const ATTACKS: [&str; 14] = [
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "]]>&amp;<!--",
    "\"]; a -> b [label=\"",
    "\\N\\l\\\"",
    "line\nbreak\r\nforged",
    "\u{1b}[31m\u{1b}]0;title\u{7}",
    "\u{202e}left\u{2066}",
    "\0\u{fffe}\u{fffd}",
    "```\n# heading\n| a | b |",
    "<details><summary>",
    "",
    " ",
    "\u{1f600}\u{301}\u{301}\u{301}",
];

/// What moves a terminal's cursor, or the reader's eye.
const HARMFUL: [char; 4] = ['\u{1b}', '\u{202e}', '\r', '\0'];

/// One change to a model: at some place, another value of the kind that is there.
#[derive(Clone, Debug)]
struct Change {
    place: Index,
    text: String,
    number: Value,
    drop: bool,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let text = prop_oneof![
        4 => select(ATTACKS.as_slice()).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
        1 => Just("x".repeat(3000)),
    ];
    let number = prop_oneof![
        6 => select(vec![0, 1, 2, 7, 99, 1 << 31, u64::from(u32::MAX), u64::MAX]).prop_map(Value::from),
        1 => select(vec![-1.0, 0.5, 1e308, -1e308]).prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    let change = (any::<Index>(), text, number, prop::bool::weighted(0.1));
    let change = change.prop_map(|(place, text, number, drop)| Change {
        place,
        text,
        number,
        drop,
    });
    proptest::collection::vec(change, 1..12)
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Changes the value at a place, counted from `left` downwards; true once that is done.
fn apply(value: &mut Value, left: &mut usize, change: &Change) -> bool {
    if *left > 0 {
        *left -= 1;
        return match value {
            Value::Array(items) => items.iter_mut().any(|item| apply(item, left, change)),
            Value::Object(fields) => fields.values_mut().any(|field| apply(field, left, change)),
            _ => false,
        };
    }
    match value {
        Value::String(text) => text.clone_from(&change.text),
        Value::Number(_) | Value::Null => *value = change.number.clone(),
        Value::Bool(is) => *is = !*is,
        Value::Array(items) if change.drop => items.clear(),
        Value::Array(items) => items.extend(items.first().cloned()),
        Value::Object(_) if change.drop => *value = Value::Null,
        Value::Object(_) => {}
    }
    true
}

/// A report that was changed here and there. A change that no report can have, such as a number too large
/// for its place, is left out: all that is tried is a report.
fn changed(report: &Report, changes: &[Change]) -> Report {
    let mut model = serde_json::to_value(report).expect("a report is a value");
    for change in changes {
        let mut next = model.clone();
        let mut left = change.place.index(count(&model));
        apply(&mut next, &mut left, change);
        if Report::deserialize(&next).is_ok_and(|report| report.schema <= SCHEMA) {
            model = next;
        }
    }
    from_json(&model.to_string()).expect("a report")
}

/// Some report. Seldom the one whose every text is very long: to write and read its megabyte takes as long
/// as a hundred of the others, in which texts are longer than any limit of the renderings too.
fn some_report() -> impl Strategy<Value = Report> {
    let reports = vec![
        samples::callback(),
        samples::linked_nodes_and_exception(),
        samples::many_buffers(3),
        samples::seen_on_ranks(2),
        samples::hostile_and_long(if cfg!(miri) { 100 } else { 1_200 }),
        samples::dangling(),
    ];
    prop_oneof![
        200 => select(reports),
        1 => Just(samples::hostile()),
    ]
}

proptest! {
    /// Nothing that a file can say makes a rendering panic, and what comes back is what was read.
    #[test]
    fn any_report_that_can_be_read_can_be_rendered(sample in some_report(), changes in changes()) {
        let report = changed(&sample, &changes);
        let page = html::html(&report);
        prop_assert!(!page.contains("<script>alert") && !page.contains("<img src"));
        prop_assert!(page.ends_with("</html>\n"));
        let trace = text::trace(&report);
        prop_assert!(!trace.contains(HARMFUL), "{trace:?}");
        let written = svg::sheet(&report);
        prop_assert!(!written.contains("<script") && !written.contains("<img"));
        let written = markdown::markdown(&report);
        prop_assert!(!written.contains(HARMFUL));
        let graph = dot::dot(&report);
        for line in graph.lines() {
            let bare = line.replace("\\\\", "").replace("\\\"", "");
            prop_assert!(bare.matches('"').count().is_multiple_of(2), "{line}");
        }
        prop_assert_eq!(from_json(&to_json(&report)), Ok(report));
    }

    /// What several reports say is all there in one, but for what is redacted.
    #[test]
    fn any_reports_can_be_merged_and_redacted(
        first in some_report(), second in some_report(), changes in changes()
    ) {
        let third = changed(&second, &changes);
        let all = [&first, &second, &third];
        let merged = merge::merge(&all).expect("there are some");
        let mut leaks = all.iter().flat_map(|report| &report.leaks);
        prop_assert!(merged.leaks.len() <= leaks.clone().count());
        prop_assert!(leaks.all(|leak| merged.leaks.iter().any(|kept| kept.signature == leak.signature)));
        let held = all.iter().map(|report| report.bytes_held()).fold(0, u64::saturating_add);
        prop_assert!(merged.bytes_held() <= held);
        // What was seen and not collected may have been seen twice.
        let seen = all.iter().flat_map(|report| &report.leaks).flat_map(|leak| &leak.occurrences);
        if seen.clone().all(|seen| seen.collections > 0) {
            prop_assert_eq!(merged.bytes_held(), held);
        }
        let mut redacted = merged;
        redact(&mut redacted);
        prop_assert!(redacted.process.host.is_empty());
        html::html(&redacted);
        let once = redacted.clone();
        redact(&mut redacted);
        prop_assert_eq!(redacted, once);
    }

    /// Cut off or with a byte changed, a file is refused with a sentence, or read.
    #[test]
    fn a_damaged_file_is_refused_or_read(sample in some_report(), at in any::<Index>(), byte: u8, cut: bool) {
        let mut bytes = to_json(&sample).into_bytes();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] = byte;
        }
        match from_json(&String::from_utf8_lossy(&bytes)) {
            Ok(report) => drop(html::html(&report)),
            Err(error) => prop_assert!(error.to_string().starts_with("this ")),
        }
    }
}

/// Writes what `make fuzz` begins with to the folder that `CYCLESCOPE_SEEDS` names.
#[test]
#[ignore = "writes files for the fuzzer"]
fn seeds() {
    let folder = std::env::var_os("CYCLESCOPE_SEEDS").expect("CYCLESCOPE_SEEDS, a folder");
    let folder = std::path::Path::new(&folder);
    let write = |kind: &str, name: usize, text: String| {
        std::fs::create_dir_all(folder.join(kind)).expect("a folder for the seeds");
        let file = folder.join(kind).join(format!("{name}.json"));
        std::fs::write(file, text).expect("room for a seed");
    };
    let reports = [
        samples::callback(),
        samples::through_dictionary(),
        samples::linked_nodes_and_exception(),
        samples::million_ring(),
        samples::many_buffers(3),
        samples::seen_on_ranks(2),
        samples::hostile_and_long(0),
        samples::dangling(),
        samples::dense(30),
        samples::no_leaks(),
    ];
    for (index, report) in reports.iter().enumerate() {
        let next = &reports[(index + 1) % reports.len()];
        write("reports", index, to_json(report));
        write(
            "sets",
            index,
            format!("[{},{}]", to_json(report), to_json(next)),
        );
        write("sets", 100 + index, format!("[{0},{0}]", to_json(report)));
    }
}
