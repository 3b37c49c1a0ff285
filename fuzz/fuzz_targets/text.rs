//! What any report says in a terminal or on a web site of others moves no cursor and forges no line.

#![no_main]

use cyclescope::model::json::from_json;
use cyclescope::render::{markdown, text};
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
    let trace = text::trace(&report);
    assert!(!trace.contains(HARMFUL), "{trace:?}");
    let leaks = trace.lines().filter(|line| line.starts_with("LEAK "));
    assert!(leaks.count() <= report.leaks.len(), "{trace}");
    text::colored_trace(&report, true);
    for leak in &report.leaks {
        assert_eq!(text::one_line(leak).lines().count().max(1), 1);
    }
    let written = markdown::markdown(&report);
    assert!(!written.contains(HARMFUL), "{written:?}");
    Corpus::Keep
});
