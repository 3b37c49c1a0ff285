//! The paths that keep objects alive: the model.

use serde::{Deserialize, Serialize};

use super::report::{Process, Step};
use super::words::with_padded_indices;

/// The version of the JSON.
const SCHEMA: u32 = 1;

/// The paths that keep objects alive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "python", pyo3::pyclass(frozen, module = "cyclescope"))]
#[non_exhaustive]
pub struct Retention {
    /// Version of this format: 1.
    pub schema: u32,
    /// The objects asked about.
    pub objects: Vec<Kept>,
    /// Distinct paths from a GC root to one of them, shortest and most telling first.
    pub paths: Vec<Path>,
    /// Number of further paths to the same objects.
    pub paths_omitted: u64,
    /// Paths from an object through C or C++ back to itself, which no collection can free: from one of those
    /// asked about, or one that leads to them.
    pub loops: Vec<Path>,
    /// The references that keep the objects alive, each by itself: remove all of them, and nothing else
    /// needs to be removed.
    #[serde(default)]
    pub keepers: Vec<Keeper>,
    /// Number of further such references, which are not listed.
    #[serde(default)]
    pub keepers_omitted: u64,
    /// True if it is proven that the objects are freed without [`keepers`](field@Retention::keepers) and those that
    /// are not listed.
    #[serde(default)]
    pub is_enough: bool,
    /// True if only a garbage collection frees them then, because a cycle or garbage holds them too.
    #[serde(default)]
    pub by_collection: bool,
    /// True if nothing holds them and no collection frees them all the same.
    #[serde(default)]
    pub is_uncollectable: bool,
    /// Remarks about the result.
    pub notes: Vec<String>,
    /// How long the search paused the program, in milliseconds.
    pub pause_ms: f64,
    /// The process that was inspected.
    #[serde(default)]
    pub process: Process,
    /// When it was inspected, in seconds since 1970.
    #[serde(default)]
    pub time: f64,
}

/// An object asked about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Kept {
    /// Type of the object, with its module unless that is `builtins` or `__main__`.
    pub type_name: String,
    /// The object in a few words.
    pub label: String,
    /// Bytes of the memory that it holds, if it is a tensor or an array.
    pub bytes: Option<u64>,
    /// The device of that memory.
    pub device: Option<String>,
}

/// A reference that keeps an object alive as long as it is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, name = "Keeper", module = "cyclescope")
)]
#[non_exhaustive]
pub struct Keeper {
    /// The reference in one line: ``module `train` → `trainer` (Trainer) → .best``.
    pub words: String,
    /// A path through it to the object.
    pub path: Path,
    /// The step of the path that has the reference.
    pub step: u64,
    /// True for a variable of a running function: it goes when the function returns.
    pub goes_by_itself: bool,
    /// What to do instead of removing the reference, if a library has something for it: ``call
    /// `prepare.cache_clear()` ``; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub release: String,
}

/// The name of the root of what no root of the program leads to: garbage, or kept by C++ only.
pub const UNREACHABLE: &str = "referenced by unreachable objects only";
/// Before the name of a root that is an object in a cycle that no collection frees.
pub const UNCOLLECTABLE: &str = "uncollectable: ";

/// Kind of the GC root of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RootKind {
    /// An imported module.
    Module,
    /// A function call that a thread is running.
    Local,
    /// What the interpreter or its standard library keeps: a thread, a context, a notebook's history.
    Library,
    /// A reference from C or C++ that no Python object accounts for.
    Outside,
    /// Nothing: a collection would free it.
    Garbage,
    /// The object itself, through C or C++: nothing will free it.
    Itself,
    #[default]
    Unknown,
}

impl RootKind {
    /// The kind in a word, as the JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Local => "local",
            Self::Library => "library",
            Self::Outside => "outside",
            Self::Garbage => "garbage",
            Self::Itself => "itself",
            Self::Unknown => "unknown",
        }
    }
}

impl RootKind {
    /// True for a root that has a name, with which its path begins.
    pub fn is_named(self) -> bool {
        matches!(self, Self::Module | Self::Local | Self::Library)
    }
}

/// A path from a GC root to an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, sequence, name = "RetentionPath", module = "cyclescope")
)]
#[non_exhaustive]
pub struct Path {
    pub root: RootKind,
    /// Readable name of the root: ``module `train` ``.
    pub root_words: String,
    /// The whole path in one line.
    pub words: String,
    /// The objects on the path; the object asked about comes last.
    pub steps: Vec<Step>,
    /// Number of paths that differ only in an index.
    pub alike: u64,
    /// The objects that it leads to, or passes, as indices in [`Retention::objects`].
    pub leads_to: Vec<u32>,
}

impl Path {
    /// The order to show paths in: those from what has a name first, then the shortest, then by their words, which are
    /// the same in each run, as addresses are not.
    pub fn order(&self) -> (u8, usize, String) {
        let rank = match self.root {
            RootKind::Module | RootKind::Local | RootKind::Library => 0,
            RootKind::Outside | RootKind::Unknown => 1,
            RootKind::Garbage | RootKind::Itself => 2,
        };
        (rank, self.steps.len(), with_padded_indices(&self.words))
    }
}

impl Retention {
    /// An empty result for some objects.
    pub fn about(objects: Vec<Kept>) -> Self {
        Self {
            schema: SCHEMA,
            objects,
            ..Self::default()
        }
    }

    /// True if a loop passes an object that was asked about.
    pub fn passes_object(&self) -> bool {
        self.loops.iter().any(|it| !it.leads_to.is_empty())
    }

    /// An empty result, with the reason.
    pub fn nothing(note: &str) -> Self {
        Self {
            notes: vec![note.to_owned()],
            ..Self::about(Vec::new())
        }
    }
}
