//! The pages and texts of what is alive, what grows and what filled the memory, of any model of them.

#![no_main]

use cyclescope::model::growth::GrowthReport;
use cyclescope::model::heap::{By, Heap};
use cyclescope::model::post_mortem::PostMortem;
use cyclescope::model::report::Process;
use cyclescope::model::retention::Retention;
use cyclescope::render::html::live;
use cyclescope::render::text;
use cyclescope_fuzz::HARMFUL;
use cyclescope_fuzz::markup::check;
use cyclescope_fuzz::mutate::mutate;
use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};
use serde_json::{Value, from_value as read};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(mut models) = serde_json::from_slice::<Value>(data) else {
        return Corpus::Reject;
    };
    let mut take = |name: &str| models.get_mut(name).map(Value::take).unwrap_or_default();
    let heap: Option<Heap> = read(take("heap")).ok();
    let earlier: Option<Heap> = read(take("earlier")).ok();
    let growth: Option<GrowthReport> = read(take("growth")).ok();
    let found: Option<PostMortem> = read(take("post_mortem")).ok();
    let retention: Option<Retention> = read(take("retention")).ok();
    let process = heap
        .as_ref()
        .map_or_else(Process::default, |heap| heap.process.clone());
    if let Some(heap) = &heap {
        check(&live::heap(heap));
        for by in [By::Owner, By::Class, By::Module, By::Site, By::Category] {
            check_text(&text::table(&heap.top(by, 10)));
        }
        check_text(&text::heap(heap));
        if let Some(earlier) = &earlier {
            let diff = heap.diff(earlier);
            check(&live::diff(&diff));
            check_text(&text::diff(&diff));
        }
    }
    if let Some(growth) = &growth {
        check(&live::growth(growth, &process));
    }
    if let Some(found) = &found {
        let looked = live::Looked {
            heap: heap.as_ref(),
            grew: growth.as_ref(),
            leaks: None,
        };
        check(&live::post_mortem(found, looked, &process));
    }
    if let Some(retention) = &retention {
        check(&live::retention(retention));
        check_text(&text::retention(retention));
    }
    Corpus::Keep
});

fn check_text(text: &str) {
    assert!(!text.contains(HARMFUL), "{text:?}");
}
