//! The report model: what was found, as plain data.
//!
//! Everything cyclescope prints, draws or writes is a rendering of [`Report`]. Its JSON form is
//! versioned by [`SCHEMA`]; fields may be added within a version, never renamed or removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::earlier::Earlier;
pub use super::graph::{Edge, EdgeRole, Graph, Hop, Node, NodeKind};
use super::shared::{Shared, total};
pub use super::source::{Location, Origin};
use super::source::{Patch, SourceLines};
use crate::capture::is_library_file;

/// The version of the JSON form of [`Report`].
pub const SCHEMA: u32 = 1;

/// Maximum number of buffers listed per leak; the bytes of all are counted.
pub const BUFFER_LIMIT: usize = 100;

/// The [trigger](Collection::trigger) of a report about the whole run of a program in which no leak was reported.
pub const RUN: &str = "run";

/// The leaks found in one collection or explicit check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Report {
    /// Version of this model: [`SCHEMA`].
    pub schema: u32,
    /// Name and version of the program that wrote the report, such as `cyclescope 0.1.0`.
    pub tool: String,
    /// When the garbage was inspected, in seconds since 1970-01-01 UTC.
    pub time: f64,
    /// The process that was inspected.
    pub process: Process,
    /// The collection, or the explicit check, that found the garbage.
    pub collection: Collection,
    /// The distinct leaks, sorted by bytes held, largest first.
    pub leaks: Vec<Leak>,
    /// Remarks about the report: limits that were reached, facts that
    /// could not be established.
    pub notes: Vec<String>,
    /// Number of groups of cycles that held buffers and are not described: the bytes of all leaks are more than is told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// What each process held, where the report is of a job of several: see
    /// [`super::merge::merge_processes`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessShare>,
    /// The earlier report that it is compared with: see [`super::compare`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Earlier>,
    /// By signature, in which epochs the youngest objects of the leak's cycles were made, where that was asked
    /// for; `None` where it is not known. A fact about this process, which is not written out.
    #[serde(skip)]
    pub epochs: HashMap<String, Vec<Option<u64>>>,
}

/// The process that a report is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, eq, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Process {
    /// Name of the host.
    pub host: String,
    /// Process ID.
    pub pid: u32,
    /// Rank in a distributed job; None outside of one.
    pub rank: Option<u32>,
    /// Number of processes in the job, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// Version of the interpreter, such as ``3.12.1``.
    pub python: String,
    /// The program: ``sys.argv[0]``.
    pub program: String,
    /// Name and version of each known framework that the process has imported.
    pub frameworks: Vec<(String, String)>,
    /// Names of the GPUs that the process uses, by CUDA ordinal; empty if it uses none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
}

/// What one process of a job held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ProcessShare {
    /// As [`Process::host`], [`Process::pid`] and [`Process::rank`]; of several processes with the
    /// same rank, those of the first.
    pub host: String,
    pub pid: u32,
    pub rank: Option<u32>,
    /// Bytes that each leak held, by its signature.
    pub bytes_held: BTreeMap<String, u64>,
}

/// What made cyclescope look at the garbage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Collection {
    /// `watch` (an ordinary collection was observed), `find` (an explicit check), `look` (a check without a collection),
    /// `exit`, or `run` (a program was watched from its start to its end, and no leak was reported).
    pub trigger: String,
    /// The generation that was collected; `None` for a check without a collection.
    pub generation: Option<u32>,
    /// Total number of unreachable objects, with or without a buffer.
    pub garbage_objects: u64,
    /// How long the inspection and analysis paused the program, in microseconds.
    pub pause_us: u64,
    /// Of a whole run: the devices whose memory was watched, such as `cuda` or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// The library module that was being imported meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importing: Option<String>,
}

/// One leak: reference cycles that kept device memory alive for one cause, and all others with the same
/// signature in the same garbage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Leak {
    /// Identifies this leak: 16 hexadecimal digits, a hash of the cycle's types, reference
    /// names and code locations. Equal across runs, processes and ranks.
    pub signature: String,
    /// The signature without the line numbers of functions, if it has some: by it, a comparison knows the leak again when
    /// code above these functions was added or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outline: Option<String>,
    /// Name of the recognised pattern, such as `closure-captures-owner`; `None` if none fits.
    pub pattern: Option<String>,
    /// The cycle in one line, such as `Model._callback → <lambda>.self → Model`.
    pub summary: String,
    /// Number of occurrences.
    pub count: u64,
    /// Number of occurrences that no collection frees, because objects that `gc.freeze()` excluded keep them alive.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frozen: u64,
    /// Bytes of the buffers that the leak held, each storage counted once.
    pub bytes_held: u64,
    /// Bytes by which the framework's allocator shrank when this leak alone was broken; `None`
    /// if not measured.
    pub bytes_freed: Option<u64>,
    /// Number of objects in the cycles, over all occurrences.
    pub objects: u64,
    /// The most telling cycle, in order; the last step refers to the first.
    pub cycle: Vec<Step>,
    /// Number of steps left out of the middle of `cycle`, if it is long.
    pub cycle_omitted: u64,
    /// The device buffers that the leak held, largest first.
    pub buffers: Vec<Buffer>,
    /// Number of buffers left out of `buffers`; their bytes are counted.
    pub buffers_omitted: u64,
    /// The references to remove, so that the buffers are freed without a collection, once the leaks of
    /// [`Leak::also_held_by`] are fixed too.
    pub cuts: Vec<Cut>,
    /// The buffers that other leaks hold too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<Shared>,
    /// What to change.
    pub advice: Advice,
    /// True if `tracemalloc` was tracing allocations.
    #[serde(default, skip_serializing_if = "is_false")]
    pub traced: bool,
    /// Where to look for the source. A fact about this process, which is not written out.
    #[serde(skip)]
    pub origin: Origin,
    /// The program's own lines that make the reference to remove, if they could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLines>,
    /// The lines of each statement that may have made it, where several may have; see [`Cut::candidates`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidate_sources: Vec<SourceLines>,
    /// The change of the program that removes it, if nothing is found that could notice it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// The part of the object graph that is drawn.
    pub graph: Graph,
    /// The code that made the cycle: a function or class. The program's if part of the cycle is of its making;
    /// a library's if all of it is. `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Location>,
    /// True if the library's code that made the cycle stores something that it may have been given by the program.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stores_given: bool,
    /// The library whose code made the whole cycle; `None` if part of it is the program's, or
    /// may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<Library>,
    /// The known library leak that this leak matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// The occurrences in order of time; if there are many, neighbours are combined
    /// (see [`super::occurrences::add`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occurrences: Vec<Occurrence>,
}

/// A collection that found a leak, or several neighbouring ones of the same process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Occurrence {
    /// When it ended, in seconds since 1970-01-01 UTC.
    pub time: f64,
    /// Number of collections combined here; 0 for garbage that was seen and not collected.
    pub collections: u64,
    /// A check that collects nothing has seen it: what was collected later may be the same.
    #[serde(default, skip_serializing_if = "is_false")]
    pub looked: bool,
    /// Number of groups of objects that leaked.
    pub count: u64,
    /// Bytes of the buffers that they held.
    pub bytes: u64,
    /// For how many microseconds the program waited for these collections, each from its beginning to its end; 0 if
    /// that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pause_us: u64,
    /// As [`Process::host`], [`Process::pid`] and [`Process::rank`].
    pub host: String,
    pub pid: u32,
    pub rank: Option<u32>,
}

/// The library that a leak belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Library {
    /// Name of the distribution or, where its metadata is not found, of the top-level package;
    /// `the standard library` for Python's own modules.
    pub name: String,
    /// Version, from the installed metadata.
    pub version: Option<String>,
    /// The place in the program's own code that is nearest to the cycle.
    pub your_line: Option<Location>,
}

/// A known leak in a library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Known {
    /// Name of the entry, such as `torch-parametrized-class`.
    pub name: String,
    /// The distribution that leaks.
    pub library: String,
    /// Versions that were tested and leak; others may leak too.
    pub versions: Vec<String>,
    /// The first tested version without the leak.
    pub fixed_in: Option<String>,
    /// URL of the discussion.
    pub link: Option<String>,
    /// What a program can do about it.
    pub remedy: String,
}

fn is_false(fact: &bool) -> bool {
    !fact
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Leak {
    /// The number of collections that found it.
    pub fn collections(&self) -> u64 {
        let counts = self.occurrences.iter().map(|seen| seen.collections);
        counts.fold(0, u64::saturating_add)
    }

    /// The bytes of the listed buffers, if they are those of the first collections only: what a watch sees again it
    /// counts, and does not describe. `None` where they are all, or where not all that was described is listed.
    pub fn first_seen_bytes(&self) -> Option<u64> {
        let listed = self.buffers.iter().map(|buffer| buffer.bytes);
        let listed = listed.fold(0, u64::saturating_add);
        (self.collections() > 1 && self.buffers_omitted == 0 && listed < self.bytes_held)
            .then_some(listed)
    }

    /// The program's own lines that make the first reference to remove, or of which one does.
    pub fn own_lines(&self) -> impl Iterator<Item = &SourceLines> {
        self.source.iter().chain(&self.candidate_sources)
    }

    /// The line that makes the first reference to remove, from the source if that was read, or else the nearest line of
    /// code that is known.
    pub fn line_to_change(&self) -> Option<Location> {
        self.places_to_change().into_iter().next()
    }

    /// The same; of several lines that may make the reference, all.
    pub fn places_to_change(&self) -> Vec<Location> {
        let Some(cut) = self.cuts.first() else {
            return Vec::new();
        };
        let marked = self.source.as_ref().map(|source| Location {
            file: source.file.clone(),
            line: source.marked,
        });
        match (marked, cut.candidates.as_slice()) {
            (Some(line), _) => vec![line],
            (None, []) => cut.location.iter().cloned().collect(),
            (None, several) => several.to_vec(),
        }
    }

    /// True if the leak is in a library and not in the program's own code.
    pub fn is_library(&self) -> bool {
        self.library.is_some() || self.known.is_some()
    }

    /// True if the objects of the cycle whose code is known are libraries', but whose code made the cycle is not known: no
    /// line of the program is shown.
    pub fn is_of_unknown_code(&self) -> bool {
        let mut located = self.cycle.iter().filter_map(|step| step.location.as_ref());
        let all_of_libraries = located.clone().all(|at| is_library_file(&at.file));
        let is_shown = self
            .source
            .as_ref()
            .is_some_and(|it| !is_library_file(&it.file));
        let is_unknown = self.made_by.is_none() && !self.is_library() && !is_shown;
        is_unknown && located.next().is_some() && all_of_libraries
    }
}

/// One object of a cycle, or of a path to an object, and its reference to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Step {
    /// Index of the object among ``graph.nodes`` of the JSON; in a path, equal for the same object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Type of the object, with its module unless that is `builtins`.
    pub type_name: String,
    /// Readable name of the object, such as `function Model.__init__.<locals>.<lambda>`.
    pub label: String,
    /// Location of the object's code or class, if known.
    pub location: Option<Location>,
    /// The reference to the next step as a person writes it: `._callback`, `['loss']`, `[3]`,
    /// `closure variable 'self'`, `local 'batch'`; empty for the last of a path.
    pub edge: String,
    /// The line that allocated the object, if `tracemalloc` traced that: the innermost of the
    /// program's own, or else of a library.
    #[serde(default)]
    pub allocated_at: Option<Location>,
}

/// A buffer of device memory that a leak held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Buffer {
    /// Index of the buffer's holder among ``graph.nodes`` of the JSON; None if the holder is not drawn.
    pub node: Option<u32>,
    /// Type of the object that holds the buffer, such as `torch.Tensor`.
    pub type_name: String,
    /// Address of the first byte of the storage, on the device.
    pub pointer: u64,
    /// Size of the whole storage in bytes.
    pub bytes: u64,
    /// The device, such as `cuda:0` or `cpu`.
    pub device: String,
    /// Element type, such as `float32`; `None` for raw storage.
    pub dtype: Option<String>,
    /// Extent of each dimension; `None` for raw storage.
    pub shape: Option<Extents>,
    /// True if the CUDA driver said that the pointer is device memory; false where the
    /// framework's word is all there is (host memory, other accelerators).
    pub confirmed: bool,
    /// Index of the step in ``cycle`` where ``path`` starts.
    pub from_step: u32,
    /// The references from the cycle to the buffer; empty if its holder is in the cycle.
    pub path: Vec<String>,
    /// The objects on ``path``, as in ``node``; the buffer's holder is last.
    pub path_nodes: Vec<u32>,
    /// ``file:line`` where the buffer's holder was allocated, if ``tracemalloc`` was tracing.
    #[serde(default)]
    pub allocated_at: Option<Location>,
    /// The stack that allocated the memory, if PyTorch recorded it: each frame as
    /// `file:line function`, from the innermost of the program's own outwards.
    #[serde(default)]
    pub allocation: Vec<String>,
    /// True if a tensor on this memory had an autograd graph (`grad_fn`).
    #[serde(default)]
    pub has_grad_fn: bool,
    /// How many tensors, arrays and other objects of the leak hold this storage.
    #[serde(default = "one")]
    pub holders: u64,
    /// `gradient` if only C++ refers to the holder, as the gradient of a tensor of the leak; `C++` if the leak refers to
    /// it and C++ does too. Such memory is listed if it was freed with the leak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<String>,
    /// True for a tensor over memory that was there before it (``torch.from_numpy``, ``torch.from_dlpack``,
    /// ``torch.load``): another object may own it, and keep it when the tensor is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lent: bool,
}

/// As [`Buffer::kept_by`], of a gradient.
pub const GRADIENT: &str = "gradient";
/// As [`Buffer::kept_by`], of a tensor to which C++ refers too.
pub const CPP: &str = "C++";

fn one() -> u64 {
    1
}

impl Buffer {
    /// The bytes of the elements that `dtype` and `shape` tell of, which may be a part of the storage, or the same
    /// ones several times; `None` if that is not known.
    pub fn bytes_of_elements(&self) -> Option<u64> {
        let dtype = self.dtype.as_deref()?;
        let digits = dtype.trim_start_matches(|c: char| !c.is_ascii_digit());
        let bytes = match (dtype, digits.parse::<u64>()) {
            ("bool", _) => 1,
            (_, Ok(bits))
                if bits % 8 == 0 && ELEMENTS.contains(&&dtype[..dtype.len() - digits.len()]) =>
            {
                bits / 8
            }
            _ => return None,
        };
        let shape = &self.shape.as_ref()?.0;
        shape
            .iter()
            .try_fold(bytes, |product, &extent| product.checked_mul(extent))
    }
}

/// Names of element types, without the number of bits that follows.
const ELEMENTS: [&str; 5] = ["float", "bfloat", "int", "uint", "complex"];

/// How long each dimension of an array is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Extents(pub Vec<u64>);

impl std::fmt::Display for Extents {
    /// `[4096, 4096]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

/// A reference to remove.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Cut {
    /// The object that holds the reference.
    pub owner: String,
    /// The reference; see :attr:`Step.edge`.
    pub edge: String,
    /// The nearest known line of code: of the function or class at either end, the program's own first, or where a
    /// frame's function had stopped. The line that makes the reference is the leak's `source`, if it was found.
    pub location: Option<Location>,
    /// Name of the class that stores the reference, in which the location is, where it is not that of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_class: Option<String>,
    /// The statements of which one made the reference, where several may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Location>,
    /// True if the graph proves that removing all cuts of the leak frees the buffers.
    pub proven: bool,
    /// Index of the object that has the reference among ``graph.nodes`` of the JSON.
    #[serde(rename = "from")]
    pub source: u32,
    /// Index of the object that the reference leads to.
    #[serde(rename = "to")]
    pub target: u32,
}

impl Cut {
    /// True if both are the same reference in the source, of two objects or of one.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.owner, &self.edge, &self.location) == (&other.owner, &other.edge, &other.location)
    }
}

/// What to change, in words and, where the pattern allows, in code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Advice {
    /// One or two sentences with the program's own names.
    pub text: String,
    /// The code before the fix, one or two lines.
    pub before: Option<String>,
    /// The code after the fix.
    pub after: Option<String>,
}

impl Report {
    /// A report in which nothing is found.
    pub fn new(process: Process, time: f64, collection: Collection) -> Self {
        Self {
            schema: SCHEMA,
            tool: concat!("cyclescope ", env!("CARGO_PKG_VERSION")).to_owned(),
            time,
            process,
            collection,
            leaks: Vec::new(),
            notes: Vec::new(),
            left_out: 0,
            processes: Vec::new(),
            earlier: None,
            epochs: HashMap::new(),
        }
    }

    /// Says which rank the process of the report has.
    pub fn set_rank(&mut self, rank: Option<u32>) {
        let process = &mut self.process;
        process.rank = rank;
        for seen in self.leaks.iter_mut().flat_map(|leak| &mut leak.occurrences) {
            if (&seen.host, seen.pid) == (&process.host, process.pid) {
                seen.rank = rank;
            }
        }
    }

    /// Puts the leaks in order: the one that holds most bytes first, of several that hold as many the program's own.
    pub fn sort_leaks(&mut self) {
        self.leaks.sort_by(|a, b| {
            b.bytes_held
                .cmp(&a.bytes_held)
                .then_with(|| a.is_library().cmp(&b.is_library()))
                .then_with(|| a.signature.cmp(&b.signature))
        });
    }

    /// Bytes that all leaks of the report held together.
    pub fn bytes_held(&self) -> u64 {
        let leaks = self.leaks.iter();
        total(leaks.map(|leak| (&*leak.signature, leak.bytes_held, &*leak.shared)))
    }
}

impl Leak {
    /// The signatures of other leaks that hold some of the buffers too, ascending.
    pub fn also_held_by(&self) -> Vec<&str> {
        let others = self.shared.iter().flat_map(|shared| &shared.others);
        let others: BTreeSet<&str> = others.map(String::as_str).collect();
        others.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_leaks_that_hold_as_much_the_programs_own_come_first() {
        let leak = |signature: &str, bytes_held, is_library: bool| Leak {
            signature: signature.to_owned(),
            bytes_held,
            library: is_library.then(Library::default),
            ..Leak::default()
        };
        let mut report = Report::new(Process::default(), 0.0, Collection::default());
        report.leaks = vec![leak("a", 1, true), leak("b", 1, false), leak("c", 2, true)];
        report.sort_leaks();
        let order: Vec<&str> = report.leaks.iter().map(|it| &*it.signature).collect();
        assert_eq!(order, ["c", "b", "a"]);
    }
}
