//! The part of an object graph that a report draws.

use serde::{Deserialize, Serialize};

use super::source::Location;

/// The part of an object graph that is drawn: the cycles, the buffers, the paths between
/// them and some of their surroundings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// Number of objects of the leak that are not drawn.
    pub omitted: u64,
    /// The most common types among those, with their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted_types: Vec<(String, u64)>,
    /// Number of references between the objects that are not drawn, as each object has many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub references_omitted: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Kind of an object in a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeKind {
    /// Instance of a class.
    Object,
    /// `dict`, `list`, `tuple`, `set`, `deque` and similar.
    Container,
    /// Function, bound method, partial, generator, coroutine.
    Function,
    /// Frame, traceback, exception.
    Frame,
    /// Class or module.
    Class,
    /// Cell, code object, descriptor: internal to the interpreter.
    Plumbing,
    /// Holder of a device buffer.
    Buffer,
}

/// One object of a drawing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Node {
    pub kind: NodeKind,
    /// As `type_name` of a step of the cycle.
    pub type_name: String,
    /// As `label` of a step of the cycle.
    pub label: String,
    pub location: Option<Location>,
    /// Index of the buffer that the object holds, among the leak's `buffers`.
    pub buffer: Option<u32>,
    /// True if some cycle of the leak goes through the object.
    pub in_cycle: bool,
    /// Further facts for the reader, as name and value: length, text, address.
    pub details: Vec<(String, String)>,
}

/// Role of a reference in the leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EdgeRole {
    /// A step of the cycle that is shown first.
    Cycle,
    /// As `Cycle`, or a step of another cycle of the leak, and the one to remove.
    Cut,
    /// On the path from the cycle to a buffer.
    Path,
    /// Anything else.
    Other,
}

/// One reference of a drawing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Edge {
    /// Index in [`Graph::nodes`].
    pub from: u32,
    /// Index in [`Graph::nodes`].
    pub to: u32,
    /// As `edge` of a step of the cycle.
    pub name: String,
    pub role: EdgeRole,
    /// The interpreter's own objects that the reference passes and that are not among the nodes:
    /// instance dictionaries, closure tuples, cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<Hop>,
}

/// An object that a reference passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Hop {
    /// Equal for the same object in one graph.
    pub object: u32,
    /// As `label` of a step of the cycle.
    pub label: String,
    /// The reference that leads to it, as `edge` of a step of the cycle.
    pub into: String,
    /// Its own reference that leads on.
    pub onwards: String,
}
