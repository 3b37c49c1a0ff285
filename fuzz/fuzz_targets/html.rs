//! The page and the drawings of any report are markup of ours throughout.

#![no_main]

use cyclescope::model::json::from_json;
use cyclescope::render::html::{framed, html};
use cyclescope::render::svg;
use cyclescope_fuzz::markup::check;
use cyclescope_fuzz::mutate::mutate;
use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(report) = from_json(&String::from_utf8_lossy(data)) else {
        return Corpus::Reject;
    };
    check(&html(&report));
    check(&svg::sheet(&report));
    let frame = framed(&report);
    let (_, page) = frame.split_once("srcdoc=\"").expect("a page in a frame");
    assert_eq!(page.find('"'), Some(page.len() - "\"></iframe>".len()));
    Corpus::Keep
});
