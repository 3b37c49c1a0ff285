//! What some reports (an array of them) say is all there when they are merged, and what names the
//! machine is gone when that is redacted.

#![no_main]

use cyclescope::model::json::{from_json, to_json};
use cyclescope::model::merge::merge;
use cyclescope::model::redact::redact;
use cyclescope::model::report::Report;
use cyclescope_fuzz::mutate::mutate;
use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};
use serde_json::Value;

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(Value::Array(items)) = serde_json::from_slice(data) else {
        return Corpus::Reject;
    };
    let reports: Vec<Report> = items
        .iter()
        .filter_map(|item| from_json(&item.to_string()).ok())
        .collect();
    let Some(mut merged) = merge(&reports.iter().collect::<Vec<_>>()) else {
        return Corpus::Reject;
    };
    let held = reports.iter().map(Report::bytes_held);
    assert_eq!(merged.bytes_held(), held.fold(0, u64::saturating_add));
    for leak in reports.iter().flat_map(|report| &report.leaks) {
        assert!(
            merged
                .leaks
                .iter()
                .any(|kept| kept.signature == leak.signature)
        );
    }
    redact(&mut merged);
    assert!(merged.process.host.is_empty());
    let seen = merged.leaks.iter().flat_map(|leak| &leak.occurrences);
    assert!(seen.map(|one| &one.host).all(String::is_empty));
    let once = merged.clone();
    redact(&mut merged);
    assert_eq!(merged, once);
    assert_eq!(from_json(&to_json(&merged)), Ok(merged));
    Corpus::Keep
});
