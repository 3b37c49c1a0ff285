//! What holds of all these pages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

use crate::model::growth::{Grown, Growth, GrowthReport};
use crate::model::post_mortem::{Finding, Numbers, PostMortem};
use crate::model::report::Step;
use crate::model::retention::{Keeper, Kept, Path, Retention, RootKind};
use crate::render::html::live::*;
use crate::render::live_samples as samples;
use crate::render::samples as cycles;

const HOSTILE: &str = "</script></svg><img src=x onerror=alert(1)><!--\u{202e}\u{1b}[2J\u{0}`\"'&";

fn grew(text: &str) -> GrowthReport {
    let history: Vec<(u64, u64, u64)> = (0..40).map(|i| (10 * i, 4 * i, i << 20)).collect();
    GrowthReport {
        steps: 400,
        every: 10,
        samples: 40,
        found: vec![Grown {
            growth: Growth {
                pattern: "kept-with-graph".to_owned(),
                owner: format!("train.history{text}"),
                summary: format!("`train.history` collects tensors{text}"),
                advice: format!("Store numbers: `.item()`{text}"),
                step: 130,
                tensors: 52,
                bytes: 13 << 20,
                bytes_per_step: 1e5,
                example: format!("float32[] on cuda:0{text}"),
                allocated_at: Some(format!("train.py:7{text}")),
                samples: 13,
                ..Growth::default()
            },
            history: history.clone(),
            explains: 30 << 20,
            since: 0,
        }],
        grown: 37 << 20,
        all: history.clone(),
        allocated: history,
        ..GrowthReport::default()
    }
}

fn died(text: &str) -> PostMortem {
    let finding = |what: &str| Finding {
        what: format!("{what}{text}"),
        bytes: 600 << 20,
        would_fit: Some(true),
        details: vec![format!("activation{text}")],
    };
    PostMortem {
        process: Process::default(),
        verdict: format!("kept-graphs{text}"),
        headline: format!("`history` keeps the graphs{text}"),
        advice: format!("Store `.item()`{text}"),
        time: 1_790_000_000.0,
        device: format!("cuda:0{text}"),
        numbers: Some(Numbers {
            requested: 512 << 20,
            limit: 2 << 30,
            reserved: 1900 << 20,
            allocated: 1700 << 20,
            free: 100 << 20,
            elsewhere: Some(3 << 30),
            largest_free_block: 64 << 20,
            free_in_blocks: 200 << 20,
            ..Numbers::default()
        }),
        requested_at: vec![format!("train.py:12 step{text}")],
        cycles: Some(finding("cycles")),
        trace: format!("LEAK 1 of 1{text}"),
        graphs: vec![finding("history")],
        roles: [
            (format!("parameters{text}"), 700 << 20),
            ("gradients".to_owned(), 900 << 20),
        ]
        .into(),
        owners: vec![finding("weight")],
        growth: Vec::new(),
        left_out: vec![format!("cycles: no time left{text}")],
        seconds: 1.5,
    }
}

fn kept(text: &str) -> Retention {
    let step = |edge: &str| Step {
        type_name: text.to_owned(),
        label: format!("list{text}"),
        edge: edge.to_owned() + text,
        ..Step::default()
    };
    let path = |root| Path {
        root,
        root_words: format!("module `train`{text}"),
        words: format!("module `train` → `history`{text}"),
        steps: vec![step(".history"), step("[17]")],
        alike: 3,
        leads_to: vec![0],
    };
    Retention {
        objects: vec![Kept {
            label: format!("torch.Tensor{text}"),
            bytes: Some(4096),
            device: Some(format!("cpu{text}")),
            ..Kept::default()
        }],
        paths: vec![path(RootKind::Module)],
        loops: vec![path(RootKind::Itself)],
        keepers: vec![Keeper {
            words: format!("module `train` → `history` → [17]{text}"),
            path: path(RootKind::Module),
            ..Keeper::default()
        }],
        paths_omitted: 2,
        notes: vec![format!("A note.{text}")],
        ..Retention::default()
    }
}

/// One page of each kind, with this text wherever a program's own may stand.
fn pages(text: &str) -> Vec<String> {
    let hostile = !text.is_empty();
    let of = if hostile {
        samples::hostile()
    } else {
        samples::training()
    };
    let process = || of.process.clone();
    let leaks = match hostile {
        true => cycles::hostile(),
        false => cycles::callback(),
    };
    let grown = GrowthReport {
        process: process(),
        ..grew(text)
    };
    let died = PostMortem {
        process: process(),
        ..died(text)
    };
    let looked = Looked {
        heap: Some(&of),
        grew: Some(&grown),
        leaks: Some(&leaks),
    };
    vec![
        heap(&of),
        diff(&of.diff(&samples::kept_losses(3))),
        retention(&kept(text)),
        growth(&grown),
        post_mortem(&died, looked),
    ]
}

#[test]
fn the_card_of_the_leak_comes_first_where_it_held_the_memory() {
    let leaks = cycles::callback();
    let looked = Looked {
        leaks: Some(&leaks),
        ..Looked::default()
    };
    let mut found = died("");
    let page = |found: &PostMortem, looked| post_mortem(found, looked);
    let place = |page: &str, what: &str| page.find(what).expect(what);
    let first = page(&found, looked);
    assert!(place(&first, "id=\"card\"") < place(&first, "Autograd graphs in containers"));
    assert!(first.contains("class=\"scissors\"") && first.contains("LEAK 1 of 1"));
    found.cycles.as_mut().expect("cycles").would_fit = Some(false);
    let last = page(&found, looked);
    assert!(place(&last, "id=\"card\"") > place(&last, "Autograd graphs in containers"));
    assert!(!page(&found, Looked::default()).contains("id=\"card\""));
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let rest = text.split_once(start).expect(start).1;
    rest.split_once(end).expect(end).0
}

#[test]
fn the_policy_names_what_is_there_and_nothing_else() {
    for page in pages("") {
        let policy = between(&page, "Content-Security-Policy\" content=\"", "\">");
        let hash = |text: &str| format!("'sha256-{}'", BASE64.encode(Sha256::digest(text)));
        assert!(policy.contains(&hash(between(&page, "<style>", "</style>"))));
        match page.matches("<script").count() {
            0 => assert!(policy.contains("script-src 'none'")),
            _ => assert!(policy.contains(&hash(between(&page, "<script>", "</script>")))),
        }
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"));
        let body = between(&page, "<body>", "</body>");
        for forbidden in [
            " style=", " onclick", " src=", "<link", "<img", "url(", "import(",
        ] {
            assert!(!body.contains(forbidden), "{forbidden}");
        }
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!addresses.contains("http://") && !addresses.contains("https://"));
        assert!(!page.contains("NaN") && !page.contains("inf%"));
    }
}

#[test]
fn nothing_hostile_survives() {
    for (number, page) in pages(HOSTILE).into_iter().enumerate() {
        for forbidden in ["<img", "<!--", "\u{202e}", "\u{1b}", "\u{0}"] {
            assert!(!page.contains(forbidden), "{forbidden:?} on page {number}");
        }
        assert_eq!(
            page.matches("<script").count(),
            page.matches("</script").count()
        );
        assert!(page.contains("&lt;img src=x"), "page {number}");
    }
}

#[test]
fn ordinary_pages_are_small_and_say_what_they_are_about() {
    let told: [&[&str]; 5] = [
        &[
            "on devices",
            "module `__main__`",
            "optimizer state 24.0 MiB",
            "its own memory",
        ],
        &["in total", "by owner", "+12.0 MiB"],
        &[
            "torch.Tensor of 4.0 KiB on cpu",
            "Loop 1 of 1",
            "↓ .history",
            "further paths",
        ],
        &["grows by", "kept-with-graph", ">by step</text>", "39.0 MiB"],
        &[
            "Out of memory on cuda:0",
            "512.0 MiB",
            "treeitem",
            "LEAK 1 of 1",
            "not examined",
        ],
    ];
    for (page, told) in pages("").into_iter().zip(told) {
        assert!(page.len() < 100_000, "{}", page.len());
        for words in told {
            assert!(page.contains(words), "{words}");
        }
    }
    let many = if cfg!(miri) { 200 } else { 20_000 };
    let large = heap(&samples::kept_losses(many));
    assert!(large.len() < 300_000, "{}", large.len());
}

#[test]
fn a_page_of_nothing_is_a_page_too() {
    use crate::model::diff::Diff;
    use crate::model::heap::Heap;
    heap(&Heap::default());
    assert!(diff(&Diff::default()).contains("No change in memory"));
    retention(&Retention::default());
    assert!(growth(&GrowthReport::default()).contains("No growth was found"));
    post_mortem(&PostMortem::default(), Looked::default());
}

/// Writes what `make fuzz` begins with to the folder that `CYCLESCOPE_SEEDS` names.
#[test]
#[ignore = "writes files for the fuzzer"]
fn seeds() {
    let folder = std::env::var_os("CYCLESCOPE_SEEDS").expect("CYCLESCOPE_SEEDS, a folder");
    let folder = std::path::Path::new(&folder).join("live");
    std::fs::create_dir_all(&folder).expect("a folder for the seeds");
    let (training, losses) = (samples::training(), samples::kept_losses(3));
    for (index, heap) in [&training, &losses, &samples::hostile()]
        .into_iter()
        .enumerate()
    {
        let text = ["", "<", HOSTILE][index];
        let models = serde_json::json!({
            "heap": heap,
            "earlier": &losses,
            "growth": grew(text),
            "post_mortem": died(text),
            "retention": kept(text),
        });
        let file = folder.join(format!("{index}.json"));
        std::fs::write(file, models.to_string()).expect("room for a seed");
    }
}
