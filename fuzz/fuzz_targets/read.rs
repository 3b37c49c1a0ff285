//! Any bytes are refused with a sentence, or read, and then they come back as they were read.

#![no_main]

use cyclescope::model::json::{from_json, to_json, to_json_pretty};
use cyclescope::model::report::SCHEMA;
use cyclescope_fuzz::mutate::mutate;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    match from_json(&String::from_utf8_lossy(data)) {
        Ok(report) => {
            assert!(report.schema <= SCHEMA);
            assert_eq!(from_json(&to_json_pretty(&report)).as_ref(), Ok(&report));
            assert_eq!(from_json(&to_json(&report)), Ok(report));
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.starts_with("this "), "{sentence}");
        }
    }
});
