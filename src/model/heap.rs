//! The live heap: the model and its tables.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::device::is_host;

use super::report::{Location, Process};
use super::words::without_indices;
use crate::model::report::Extents;
use crate::model::words::human_bytes;

/// The version of the JSON.
pub const SCHEMA: u32 = 1;

/// That of what was written before it said so.
pub(super) fn version() -> u32 {
    SCHEMA
}

/// A snapshot of live memory. It keeps no object alive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(feature = "python", pyo3::pyclass(frozen, module = "cyclescope"))]
#[non_exhaustive]
pub struct Heap {
    /// Version of this format: 1.
    pub schema: u32,
    /// Time of the snapshot, in seconds since 1970-01-01 UTC.
    pub time: f64,
    /// Number of objects, and of references between them.
    pub objects: u64,
    pub references: u64,
    /// Number of objects unreachable from the roots: garbage that no collection has freed yet.
    pub unreachable: u64,
    /// How long the program was paused, in milliseconds, in total and for each phase.
    pub pause_ms: f64,
    pub phases: Vec<(String, f64)>,
    /// Peak memory of the inspection.
    pub working_bytes: u64,
    /// The buffers, largest first.
    pub buffers: Vec<Buffer>,
    /// The memory that the objects of each class retain.
    pub classes: Vec<Class>,
    /// Statistics of the frameworks' allocators.
    pub devices: Vec<Device>,
    /// Remarks about the result.
    pub notes: Vec<String>,
    /// The process that was inspected.
    #[serde(default)]
    pub process: Process,
    /// The paths to all buffers, as one tree.
    #[serde(default)]
    pub branches: Vec<Branch>,
}

/// The use of a buffer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Category {
    /// A parameter or a buffer of a module.
    Parameter,
    /// The gradient of a leaf.
    Gradient,
    /// The state of an optimizer.
    OptimizerState,
    /// Computed in a forward pass and kept by autograd for the backward pass.
    Activation,
    /// Kept by autograd and not computed: the input of a forward pass.
    Input,
    #[default]
    Other,
}

impl Category {
    /// All of them, in their order.
    pub const ALL: [Self; 6] = [
        Self::Parameter,
        Self::Gradient,
        Self::OptimizerState,
        Self::Activation,
        Self::Input,
        Self::Other,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Gradient => "gradient",
            Self::OptimizerState => "optimizer state",
            Self::Activation => "activation",
            Self::Input => "input",
            Self::Other => "other",
        }
    }
}

/// A buffer in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, name = "HeapBuffer", module = "cyclescope")
)]
#[non_exhaustive]
pub struct Buffer {
    /// Size of the whole storage.
    pub bytes: u64,
    /// The device, such as ``cuda:0``.
    pub device: String,
    /// Element type, such as ``float32``; None for raw storage.
    pub dtype: Option<String>,
    /// Extent of each dimension; None for raw storage.
    pub shape: Option<Extents>,
    /// Address of the storage on the device.
    pub pointer: u64,
    /// Type of the object that holds the buffer.
    pub type_name: String,
    /// Number of objects that share the buffer.
    pub holders: u32,
    /// The most telling path from a GC root to the buffer, in one line.
    pub owner: String,
    /// The first named object on the path in ``owner``, and its type.
    pub first_owner: String,
    /// The module at the start of the path in ``owner``, or the file of the running function; empty if there is none.
    pub module: String,
    /// True if deleting the reference to ``first_owner`` frees the buffer.
    pub alone: bool,
    /// True if only a garbage collection frees the buffer then, because a reference cycle or garbage holds it as well.
    #[serde(default)]
    pub by_collection: bool,
    /// ``file:line`` where the buffer's holder was allocated, if ``tracemalloc`` was tracing.
    pub site: Option<Location>,
    /// Parameter, gradient, optimizer state, activation, input or other.
    pub category: Category,
    /// Index among ``branches`` of the JSON at which the path in ``owner`` ends.
    #[serde(default)]
    pub branch: u32,
    /// Further paths to the object that holds the buffer; only for the largest buffers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

/// Stands between a local variable of a frame that has ended and who has its traceback.
pub(crate) const KEPT_BY_TRACEBACK: &str = ", kept by the traceback in ";

/// The memory that all objects of one class retain together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Class {
    pub name: String,
    /// Number of its objects that retain memory.
    pub objects: u64,
    pub device_bytes: u64,
    pub host_bytes: u64,
}

/// A framework's allocator on one device, and the memory visible from Python.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Device {
    pub name: String,
    /// Bytes of the distinct buffers that Python objects hold.
    pub visible: u64,
    /// Allocated bytes; `None` if the allocator does not say.
    pub allocated: Option<u64>,
    /// Reserved bytes.
    pub reserved: Option<u64>,
}

impl Device {
    /// Allocated bytes that no Python object holds.
    pub fn remainder(&self) -> Option<u64> {
        Some(self.allocated?.saturating_sub(self.visible))
    }
}

/// A step shared by several paths: a root, or an object and the reference to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Branch {
    /// Index of its parent; `None` for a root.
    pub parent: Option<u32>,
    /// The reference to it, as in source code; empty for a root.
    pub edge: String,
    /// The object in a word or two.
    pub label: String,
    /// Location of its code or class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
    /// Retained size on devices and on the host: every path to these bytes
    /// passes through this object; `None` if the branch is not an object.
    pub retained: Option<[u64; 2]>,
}

/// How the rows of a table are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    Owner,
    Class,
    Module,
    Site,
    Category,
}

impl std::str::FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "owner" => Ok(Self::Owner),
            "class" => Ok(Self::Class),
            "module" => Ok(Self::Module),
            "site" => Ok(Self::Site),
            "category" => Ok(Self::Category),
            other => Err(format!(
                "by must be 'owner', 'class', 'module', 'site' or 'category', not {other:?}"
            )),
        }
    }
}

/// A table of memory by owner, class, module, site or category.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, name = "HeapTable", module = "cyclescope")
)]
#[non_exhaustive]
pub struct Table {
    /// Version of this format: 1.
    #[serde(default = "version")]
    pub schema: u32,
    /// How its rows are grouped.
    pub by: String,
    pub rows: Vec<Row>,
    /// Number of rows left out, and their bytes.
    pub omitted: u64,
    pub omitted_bytes: u64,
    pub devices: Vec<Device>,
    pub notes: Vec<String>,
}

/// One owner, class, module or line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, name = "HeapRow", module = "cyclescope")
)]
#[non_exhaustive]
pub struct Row {
    /// The owner, class, module, line or category.
    pub name: String,
    /// Number of buffers; for a class, number of its objects that hold any.
    pub count: u64,
    /// Bytes on devices.
    pub device_bytes: u64,
    /// Bytes in host memory.
    pub host_bytes: u64,
    /// Retained size on host and devices.
    pub retained_bytes: u64,
    /// The part of `retained_bytes` that only a garbage collection frees, because a reference cycle or garbage holds it as
    /// well.
    #[serde(default)]
    pub collected_bytes: u64,
    /// The bytes by what they are for, the most first.
    pub categories: Categories,
}

/// Of each owner whose tracebacks keep local variables, what they keep and how much of it a garbage collection frees.
fn kept_by_tracebacks(rows: &BTreeMap<String, Row>) -> Vec<(String, u64, u64)> {
    // An exception may be a local variable that another traceback keeps.
    let kept = rows.iter().flat_map(|(name, row)| {
        let owners = name.match_indices(KEPT_BY_TRACEBACK);
        let owners = owners.map(|(at, words)| name[at + words.len()..].to_owned());
        owners.map(|owner| (owner, row.retained_bytes, row.collected_bytes))
    });
    kept.collect()
}

/// Bytes by what they are for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Categories(pub Vec<(Category, u64)>);

impl Row {
    /// What deleting the reference does not free at once; `None` if it does.
    pub(crate) fn collected(&self) -> Option<String> {
        let part = match self.collected_bytes {
            0 => return None,
            all if all == self.retained_bytes => "freed".to_owned(),
            part => format!("{} of it freed", human_bytes(part)),
        };
        Some(format!(
            "{part} only by a garbage collection, once the reference is deleted"
        ))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.device_bytes.saturating_add(self.host_bytes)
    }
}

impl Heap {
    /// The branches of the path to a buffer, each before the one above it.
    pub(crate) fn branches_to(&self, buffer: &Buffer) -> impl Iterator<Item = u32> {
        let known = |at: u32| self.branches.get(at as usize).map(|_| at);
        let above = move |at: &u32| known(self.branches[*at as usize].parent?);
        // A file may have a ring of them.
        std::iter::successors(known(buffer.branch), above).take(self.branches.len())
    }

    /// The largest holders: at most `count` rows, device memory before host memory.
    pub fn top(&self, by: By, count: usize) -> Table {
        let mut rows = match by {
            By::Class => self
                .classes
                .iter()
                .map(|class| Row {
                    name: class.name.clone(),
                    count: class.objects,
                    device_bytes: class.device_bytes,
                    host_bytes: class.host_bytes,
                    retained_bytes: class.device_bytes.saturating_add(class.host_bytes),
                    collected_bytes: 0,
                    categories: Categories::default(),
                })
                .collect(),
            _ => self.grouped(by),
        };
        rows.sort_by(|a, b| {
            let rank = |row: &Row| Reverse((row.device_bytes, row.host_bytes));
            (rank(a), &a.name).cmp(&(rank(b), &b.name))
        });
        let rest = rows.split_off(count.min(rows.len()));
        let mut notes = self.notes.clone();
        if by == By::Site && self.buffers.iter().all(|buffer| buffer.site.is_none()) {
            notes.push(
                "No allocations were traced: call tracemalloc.start() early, or run with -X \
                 tracemalloc."
                    .to_owned(),
            );
        }
        Table {
            schema: SCHEMA,
            by: by.words().to_owned(),
            rows,
            omitted: rest.len() as u64,
            omitted_bytes: rest.iter().map(Row::bytes).fold(0, u64::saturating_add),
            devices: self.devices.clone(),
            notes,
        }
    }

    fn grouped(&self, by: By) -> Vec<Row> {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for buffer in &self.buffers {
            let key = buffer.group(by);
            let row = rows.entry(key.clone()).or_insert_with(|| Row {
                name: key,
                ..Row::default()
            });
            row.count += 1;
            if is_host(&buffer.device) {
                row.host_bytes = row.host_bytes.saturating_add(buffer.bytes);
            } else {
                row.device_bytes = row.device_bytes.saturating_add(buffer.bytes);
            }
            if buffer.alone {
                row.retained_bytes = row.retained_bytes.saturating_add(buffer.bytes);
                if buffer.by_collection {
                    row.collected_bytes = row.collected_bytes.saturating_add(buffer.bytes);
                }
            }
            let categories = &mut row.categories.0;
            match categories.iter_mut().find(|it| it.0 == buffer.category) {
                Some((_, bytes)) => *bytes = bytes.saturating_add(buffer.bytes),
                None => categories.push((buffer.category, buffer.bytes)),
            }
        }
        // With a variable goes what the tracebacks behind it keep, which has rows of its own.
        for (name, retained, collected) in kept_by_tracebacks(&rows) {
            if let Some(row) = rows.get_mut(&name) {
                row.retained_bytes = row.retained_bytes.saturating_add(retained);
                row.collected_bytes = row.collected_bytes.saturating_add(collected);
            }
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        for row in &mut rows {
            row.categories
                .0
                .sort_by_key(|&(category, bytes)| (Reverse(bytes), category));
        }
        rows
    }

    pub fn device_bytes(&self) -> u64 {
        self.sum(|buffer| !is_host(&buffer.device))
    }

    pub fn host_bytes(&self) -> u64 {
        self.sum(|buffer| is_host(&buffer.device))
    }

    fn sum(&self, choose: impl Fn(&Buffer) -> bool) -> u64 {
        self.buffers
            .iter()
            .filter(|buffer| choose(buffer))
            .map(|buffer| buffer.bytes)
            .fold(0, u64::saturating_add)
    }

    /// An empty heap, with the reason.
    pub fn nothing(process: Process, note: &str) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            schema: SCHEMA,
            time: time.map_or(0.0, |time| time.as_secs_f64()),
            notes: vec![note.to_owned()],
            process,
            ..Self::default()
        }
    }
}

impl By {
    fn words(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Class => "class",
            Self::Module => "module",
            Self::Site => "site",
            Self::Category => "category",
        }
    }
}

impl Buffer {
    /// The owner without indices and lengths, so that it is equal for all buffers in one list,
    /// however long that has become.
    pub fn kind(&self) -> String {
        without_numbers(&self.owner)
    }

    fn group(&self, by: By) -> String {
        match by {
            By::Owner | By::Class => self.first_owner.clone(),
            By::Module if self.module.is_empty() => "(no module)".to_owned(),
            By::Module => self.module.clone(),
            By::Site => match &self.site {
                Some(site) => site.to_string(),
                None => "(not traced)".to_owned(),
            },
            By::Category => self.category.words().to_owned(),
        }
    }
}

/// A path without indices and lengths, and without the line at which the function at its root is: the same
/// variable has the same one, wherever the function has come to.
pub(crate) fn without_numbers(path: &str) -> String {
    let owner = without_indices(&without_line(path));
    let mut kept = String::with_capacity(owner.len());
    let mut rest = owner.as_str();
    while let Some((before, after)) = rest.split_once(", ") {
        kept += before;
        let digits = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',');
        let counted = digits.len() < after.len();
        let end = digits
            .strip_prefix(" items)")
            .or_else(|| digits.strip_prefix(" item)"));
        match end.filter(|_| counted) {
            Some(end) => {
                kept.push(')');
                rest = end;
            }
            None => {
                kept += ", ";
                rest = after;
            }
        }
    }
    kept + rest
}

/// A path from a local variable without the line of its function: ``local `x` in `f`, train.py, thread MainThread``.
pub(crate) fn without_line(path: &str) -> Cow<'_, str> {
    let whole = Cow::Borrowed(path);
    let is_local = path.starts_with("local `") || path.starts_with("frame of `");
    let Some(place) = path.find("`, ").filter(|_| is_local) else {
        return whole;
    };
    let lines = path[place..].match_indices(':').map(|(at, _)| place + at);
    let line = lines
        .filter_map(|start| {
            let digits = path[start + 1..].bytes().take_while(u8::is_ascii_digit);
            let end = start + 1 + digits.count();
            let behind = &path[end..];
            let is_end = behind.is_empty()
                || [", thread ", " (", " →"]
                    .iter()
                    .any(|it| behind.starts_with(it));
            (end > start + 1 && is_end).then_some((start, end))
        })
        .next();
    match line {
        Some((start, end)) => Cow::Owned([&path[..start], &path[end..]].concat()),
        None => whole,
    }
}

/// True if two names are of one owner: the line of a running function and what kind of object it is make no difference, as
/// an instance and its dictionary have one name.
pub(crate) fn same_owner(one: &str, other: &str) -> bool {
    let plain = |owner: &str| {
        let owner = without_line(owner).into_owned();
        let last = owner.rfind(" → ").unwrap_or_default();
        let noun = owner.strip_suffix(')').and_then(|it| it.rfind(" ("));
        match noun.filter(|&start| start > last) {
            Some(start) => owner[..start].to_owned(),
            None => owner,
        }
    };
    one == other || plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(owner: &str, bytes: u64) -> Buffer {
        Buffer {
            owner: owner.to_owned(),
            bytes,
            device: "cuda:0".to_owned(),
            ..Buffer::default()
        }
    }

    #[test]
    fn kinds_have_no_numbers() {
        let kind = |owner| buffer(owner, 1).kind();
        assert_eq!(
            kind(
                "module `m` → `history` (list, 4,812 items) → [17] (dict, 1 item) → ['a'] → Tensor"
            ),
            "module `m` → `history` (list) → [x] (dict) → ['a'] → Tensor"
        );
        let local = "local `b` in `f`, train.py:88, thread 3 items";
        assert_eq!(kind(local), "local `b` in `f`, train.py, thread 3 items");
        let typed = "local `b` in `f`, a:1, b.py:88 (Trainer) → .x:3, thread";
        assert_eq!(
            kind(typed),
            "local `b` in `f`, a:1, b.py (Trainer) → .x:3, thread"
        );
        let unknown = "local `b` in `f`, thread MainThread";
        assert_eq!(kind(unknown), unknown);
        let of_module = "module `m`, train.py:88 (dict)";
        assert_eq!(kind(of_module), of_module);
    }

    #[test]
    fn the_remainder_is_what_the_allocator_has_more() {
        let device = Device {
            name: "cuda:0".to_owned(),
            visible: 600,
            allocated: Some(1024),
            reserved: Some(4096),
        };
        assert_eq!(device.remainder(), Some(424));
    }
}
