//! What was shown for a leak: a watch may tell of the same one after every collection.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::cache::Cache;
use super::files::modified;
use super::sources::Program;
use crate::model::report::{Cut, Leak, Location};
use crate::model::source::{Patch, SourceLines};

/// By all that decides it. A patch stays what it was when other files of the project change that the program has not
/// imported; `cyclescope fix` searches them again.
static SHOWN: Cache<u64, Shown> = Cache::new(512);

/// What the source adds to a leak.
#[derive(Clone)]
struct Shown {
    source: Option<SourceLines>,
    candidates: Vec<SourceLines>,
    patch: Option<Patch>,
    /// Where the reference of each cut is made.
    cuts: Vec<CutPlace>,
}

/// The location, the class and the candidates of a cut.
type CutPlace = (Option<Location>, Option<String>, Vec<Location>);

/// A hash of the files of a program and of when they were changed, and of its cells.
pub fn state_of(program: &Program) -> u64 {
    let mut hasher = DefaultHasher::new();
    program.cells.hash(&mut hasher);
    program.is_typed_in.hash(&mut hasher);
    for file in &program.files {
        (file, modified(file)).hash(&mut hasher);
    }
    hasher.finish()
}

/// Adds to a leak what was shown for one like it, or else has it shown. `files` is the state of the program's.
pub fn or(leak: &mut Leak, files: u64, show: impl FnOnce(&mut Leak)) {
    let asked = what_is_asked(leak, files);
    match SHOWN.get(&asked) {
        Some(shown) => shown.add_to(leak),
        None => {
            show(leak);
            SHOWN.insert(asked, Shown::of(leak));
        }
    }
}

fn what_is_asked(leak: &Leak, files: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    format!("{:?}", leak.origin).hash(&mut hasher);
    for file in &leak.origin.files {
        modified(file).hash(&mut hasher);
    }
    (&leak.pattern, &leak.advice.text).hash(&mut hasher);
    for step in &leak.cycle {
        (step.node, &step.edge, &step.label, &step.location).hash(&mut hasher);
    }
    for node in &leak.graph.nodes {
        (node.kind, &node.label, &node.location).hash(&mut hasher);
    }
    for cut in &leak.cuts {
        (cut.source, cut.target, cut.proven).hash(&mut hasher);
        (&cut.owner, &cut.edge, &cut.location, &cut.in_class).hash(&mut hasher);
    }
    hasher.finish()
}

impl Shown {
    fn of(leak: &Leak) -> Self {
        let place = |cut: &Cut| {
            let cut = cut.clone();
            (cut.location, cut.in_class, cut.candidates)
        };
        Self {
            source: leak.source.clone(),
            candidates: leak.candidate_sources.clone(),
            patch: leak.patch.clone(),
            cuts: leak.cuts.iter().map(place).collect(),
        }
    }

    fn add_to(self, leak: &mut Leak) {
        (leak.source, leak.patch) = (self.source, self.patch);
        leak.candidate_sources = self.candidates;
        for (cut, place) in leak.cuts.iter_mut().zip(self.cuts) {
            (cut.location, cut.in_class, cut.candidates) = place;
        }
    }
}
