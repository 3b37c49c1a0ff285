//! Growth with the number of steps: the model.

use serde::{Deserialize, Serialize};

use crate::model::heap::same_owner;
use crate::model::report::Process;
use crate::model::source::SourceLines;
use crate::model::words::{counted, human_bytes, one_of};

/// How the owner of what a `functools.lru_cache` keeps ends.
pub const CACHED: &str = " → a cached call";

/// The growing groups of tensors, and their size at each sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(feature = "python", pyo3::pyclass(frozen, module = "cyclescope"))]
#[non_exhaustive]
pub struct GrowthReport {
    /// When it was written, in seconds since 1970-01-01 UTC.
    pub time: f64,
    /// The process that was inspected.
    pub process: Process,
    /// Number of steps so far, and number of steps between samples.
    pub steps: u64,
    pub every: u64,
    /// Time spent on samples, in seconds and as a fraction of the program's time.
    pub samples: u64,
    /// Number of samples needed before growth is detected.
    pub needed: u64,
    pub seconds: f64,
    pub share: f64,
    pub found: Vec<Grown>,
    /// What was reported as growing, but has given back most of that since.
    pub cleared: Vec<Growth>,
    /// The step at which the first growing groups can be known.
    pub known_from: u64,
    /// By how many bytes memory has grown since a step: by the allocator's count, or else all tensors and what
    /// the autograd graphs of growing groups keep.
    pub since: u64,
    pub grown: i64,
    /// All tensors visible from Python.
    pub all: Vec<Sample>,
    /// Bytes allocated by PyTorch on all GPUs; empty if none is used.
    pub allocated: Vec<Sample>,
    /// What was reported as growing and does not any longer, though it is kept.
    pub stopped: Vec<Grown>,
    /// What grows, but may be limited or emptied by the program's own lines, and is not reported for now.
    pub limited: Vec<Grown>,
    /// The types that have more and more objects, of which too little is known, or too few bytes, to report them.
    pub untold: Vec<MoreObjects>,
    /// What the operating system counts of the process, at each sample.
    pub counters: Vec<Counters>,
    /// Remarks about the result.
    pub notes: Vec<String>,
}

/// A type that has more and more objects and is not reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct MoreObjects {
    pub class: String,
    /// Who keeps most of them; empty if that is not known.
    pub owner: String,
    /// How many more there are than at a step, and their bytes by an estimate; 0 if that is not known.
    pub objects: u64,
    pub bytes: u64,
    pub since: u64,
}

/// What is counted of the whole process at a sample; 0 where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct Counters {
    pub step: u64,
    /// Bytes of the process in main memory.
    pub resident: u64,
    /// Bytes of pinned host memory that PyTorch holds, in use or cached.
    pub pinned: u64,
    pub threads: u64,
    /// Open file descriptors.
    pub files: u64,
}

/// A growing group with its size at each sample; empty if its number does not grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct Grown {
    #[serde(flatten)]
    pub growth: Growth,
    pub history: Vec<Sample>,
    /// How many bytes of the growth of all memory it explains.
    pub explains: u64,
    /// How many more objects of their type there are than when it was reported, or of what is in one container; of the
    /// process, threads or files.
    pub since: u64,
}

/// A growing group, as it was when it was detected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, eq, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Growth {
    /// ``kept-with-graph``, ``evaluation-with-graph``, ``graph-retained``,
    /// ``state-not-detached``, ``uncollectable-cycles``, ``garbage-accumulates``,
    /// ``gradients-never-cleared``,
    /// ``activations-kept-by-hook``, ``activation-on-module``, ``grad-fn-kept``, ``model-copies``,
    /// ``tensor-grows``, ``exceptions-kept``, ``container-grows``, ``objects-accumulate``,
    /// ``cache-without-limit``, ``threads-grow`` or ``files-grow``.
    pub pattern: String,
    /// Where the program keeps the group, as :func:`cyclescope.why_alive` says it:
    /// ``module `train` → `history```, ``local `hidden` in `fit`, train.py:12, thread MainThread``.
    pub owner: String,
    /// What happens, in one line.
    pub summary: String,
    /// What to change.
    pub advice: String,
    /// The step at which the growth was detected.
    pub step: u64,
    /// Number of tensors of one device and dtype, all with or all without a graph, that were
    /// added while the group was watched.
    pub tensors: u64,
    /// Number of objects other than tensors, or of threads or files, that were added while the group was watched.
    pub objects: u64,
    /// Bytes that only the group keeps: storages, and what their autograd graphs keep; of objects, the Python objects
    /// that only they keep.
    pub bytes: u64,
    /// Growth per step; for ``state-not-detached``, what the graph of one step adds.
    pub bytes_per_step: f64,
    /// One of the tensors: ``float32[64, 128] on cuda:0``; of objects, their type.
    pub example: String,
    /// ``file:line`` that allocated it, if ``tracemalloc`` or PyTorch's history recorded it.
    pub allocated_at: Option<String>,
    /// Number of samples on which the finding is based.
    pub samples: u64,
    /// The program's lines that add to the owner, or the few of which one does; empty if they are not known.
    pub added_at: Vec<SourceLines>,
    /// The program's lines that may limit or empty what grows. With them it is reported only if it grows for ten times as
    /// long as otherwise, or beyond the limit.
    pub limited_at: Vec<SourceLines>,
}

/// A sample: the step, the number of tensors, and the bytes of their storages.
pub type Sample = (u64, u64, u64);

impl GrowthReport {
    /// True while there are too few samples to tell anything.
    pub fn is_early(&self) -> bool {
        self.found.is_empty() && self.samples < self.needed
    }
}

/// True for the names of two patterns that are one growth if they have the same owner: what keeps models keeps the state of
/// their optimizers.
pub fn are_told_together(one: &str, other: &str) -> bool {
    let is_of_tensors = |name| ["container-grows", "model-copies"].contains(&name);
    one == other || is_of_tensors(one) && is_of_tensors(other)
}

impl Growth {
    /// True for what the operating system counts of the whole process.
    pub fn is_of_process(&self) -> bool {
        matches!(self.pattern.as_str(), "threads-grow" | "files-grow")
    }

    /// True if both tell the same of the same owner.
    pub fn is_same(&self, other: &Self) -> bool {
        are_told_together(&self.pattern, &other.pattern) && self.has_owner_of(other)
    }

    /// True if both have the same owner.
    pub fn has_owner_of(&self, other: &Self) -> bool {
        same_owner(&self.owner, &other.owner)
    }

    fn is_of_arrays(&self) -> bool {
        ["accumulates arrays", "a longer array"]
            .iter()
            .any(|words| self.summary.contains(words))
    }

    /// How many there are of what: "3 tensors", "3 objects", "3 threads".
    pub fn count(&self) -> String {
        let (count, words) = match self.pattern.as_str() {
            "threads-grow" => return counted(self.objects, "more thread", "more threads"),
            "files-grow" => return counted(self.objects, "more open file", "more open files"),
            "grad-fn-kept" => (self.tensors, ["autograd node", "autograd nodes"]),
            _ if self.objects > 0 => (self.objects, ["object", "objects"]),
            _ if self.is_of_arrays() => (self.tensors, ["array", "arrays"]),
            _ => (self.tensors, ["tensor", "tensors"]),
        };
        // Those that were there before are not counted.
        let least = if count > 1 { "at least " } else { "" };
        format!("{least}{}", counted(count, words[0], words[1]))
    }

    /// The same with one of them and their bytes.
    pub fn amount(&self) -> String {
        let mut words = self.count();
        if !self.example.is_empty() {
            words += &format!(" such as {}", self.example);
        }
        if self.bytes > 0 || self.objects == 0 {
            words += &format!(", {}", human_bytes(self.bytes));
        }
        words
    }

    /// What to change, with the lines where.
    pub fn fix(&self) -> String {
        match self.places().filter(|_| !self.advice.is_empty()) {
            Some(places) => format!("{places}: {}", self.advice),
            None => self.advice.clone(),
        }
    }

    /// The places of the lines to show: "train.py:12 or train.py:30"; `None` without any.
    pub fn places(&self) -> Option<String> {
        let places = places_of(self.shown_lines());
        (!places.is_empty()).then(|| one_of(&places))
    }

    /// The lines to show: those that should limit it, or else those that add to it.
    pub fn shown_lines(&self) -> &[SourceLines] {
        match self.limited_at.is_empty() {
            true => &self.added_at,
            false => &self.limited_at,
        }
    }

    /// What to do where the program's lines do not limit it.
    pub fn beyond_limit(&self) -> String {
        let (these, remedy) = match self.limited_at.len() {
            1 => ("This line", "Let it do so sooner, or keep less."),
            _ => ("These lines", "Let them do so sooner, or keep less."),
        };
        let samples = counted(self.samples, "sample", "samples");
        format!(
            "{these} may be there to limit or empty it, but it has grown over {samples} all the same. {remedy}"
        )
    }

    /// The first of the lines that may limit it, by the name of its file: "train.py:12".
    pub fn limited_at_first(&self) -> Option<String> {
        let line = self.limited_at.first()?;
        let file = line.file.rsplit(['/', '\\']).next().unwrap_or_default();
        Some(format!("{file}:{}", line.marked))
    }

    /// The places of the lines that may limit it: "train.py:12 or train.py:30".
    pub fn limited_by(&self) -> String {
        one_of(&places_of(&self.limited_at))
    }

    /// The owner without the way to it: `` `Trainer.outputs` ``, `` `losses` ``.
    pub fn short_owner(&self) -> String {
        short_owner(&self.owner)
    }
}

impl MoreObjects {
    /// How many there are, and of what: "2,000 more `Meter` objects in `meters`".
    pub fn amount(&self) -> String {
        let number = counted(self.objects, "more object", "more objects");
        let mut words = format!("{number} of `{}`", self.class);
        if !self.owner.is_empty() {
            words += &format!(" in {}", short_owner(&self.owner));
        }
        if self.bytes > 0 {
            words += &format!(", about {}", human_bytes(self.bytes));
        }
        words
    }
}

fn places_of(lines: &[SourceLines]) -> Vec<String> {
    let places = lines.iter();
    places
        .map(|it| format!("{}:{}", it.file, it.marked))
        .collect()
}

/// An owner without the way to it.
fn short_owner(owner: &str) -> String {
    let mut parts = owner.strip_suffix(CACHED).unwrap_or(owner).rsplit(" → ");
    let last = parts.next().unwrap_or_default();
    let class = parts.next().and_then(|part| {
        let (_, noun) = part.strip_suffix(')')?.rsplit_once('(')?;
        noun.rsplit(' ').next()
    });
    match (last.strip_prefix('.'), class, last.split('`').nth(1)) {
        (Some(attribute), Some(class), _) => format!("`{class}.{attribute}`"),
        (None, _, Some(variable)) => format!("`{variable}`"),
        _ => owner.to_owned(),
    }
}
