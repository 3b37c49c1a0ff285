//! The graph of one group, with objects described and references named, on which a leak is analysed.

use petgraph::stable_graph::StableDiGraph;

use crate::capture::{Description, ReferenceName, is_library_file};
use crate::cpython::ObjectKind;

/// The described objects of one group of cycles and the named references between them.
///
/// Stable, so that a reference can be removed (which cut is enough?) and the others keep their
/// indices. Its nodes are never removed: their indices are 0 to `node_count() - 1`.
pub type LeakGraph = StableDiGraph<LeakNode, LeakEdge>;

/// One object, or a run of omitted objects.
#[derive(Clone, Debug)]
pub struct LeakNode {
    pub description: Description,
    /// Index in the snapshot; `None` for omitted objects.
    pub object: Option<u32>,
    /// True if the object holds a device buffer.
    pub is_buffer: bool,
    /// True for tensors, including those of subclasses and those without memory.
    pub is_tensor: bool,
    /// The number of omitted objects that this node represents; 0 for a single object.
    pub stands_for: u64,
}

impl LeakNode {
    /// What stands for so many objects that are left out.
    pub fn gap(omitted: u64) -> Self {
        Self {
            description: Description::blank(
                ObjectKind::Instance,
                format!("… {omitted} more objects …"),
            ),
            object: None,
            is_buffer: false,
            is_tensor: false,
            stands_for: omitted,
        }
    }
}

/// One reference.
#[derive(Clone, Debug)]
pub struct LeakEdge {
    pub name: ReferenceName,
    /// The objects folded into the reference, in order; empty for a direct reference.
    pub through: Vec<Hop>,
}

/// An object that was folded into a reference.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Index in the snapshot.
    pub object: Option<u32>,
    pub label: String,
    /// The reference to the object, and its own reference to the next.
    pub into: ReferenceName,
    pub onwards: ReferenceName,
}

impl LeakEdge {
    pub fn new(name: ReferenceName) -> Self {
        Self {
            name,
            through: Vec::new(),
        }
    }

    /// True for references that belong to the interpreter's own machinery.
    pub fn is_plumbing(&self) -> bool {
        match &self.name {
            ReferenceName::Attribute(name) => {
                matches!(
                    name.as_str(),
                    "__dict__"
                        | "__mro__"
                        | "__bases__"
                        | "__base__"
                        | "__closure__"
                        | "__defaults__"
                        | "__kwdefaults__"
                        | "__globals__"
                        | "cell_contents"
                        | "f_back"
                        | "f_locals"
                        | "__objclass__"
                        | "__weakref__"
                        | "gi_frame"
                        | "cr_frame"
                        | "ag_frame"
                )
            }
            ReferenceName::Type
            | ReferenceName::ContextVariable(_)
            | ReferenceName::Cached
            | ReferenceName::Unnamed
            | ReferenceName::Omitted
            | ReferenceName::KeyItself => true,
            _ => false,
        }
    }
}

impl LeakNode {
    /// True for objects that belong to the interpreter's own machinery.
    pub fn is_plumbing(&self) -> bool {
        matches!(
            self.description.kind,
            ObjectKind::Cell | ObjectKind::Code | ObjectKind::Descriptor | ObjectKind::Class
        )
    }

    /// True if the object's code belongs to a library or the interpreter, judged by its file.
    pub fn is_library(&self) -> bool {
        let place = self.description.place.as_ref();
        place.map_or(self.description.of_library, |it| is_library_file(&it.file))
    }
}
