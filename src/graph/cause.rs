//! A cause of a leak, and what decides on it: what the code says, and how much may be tried.

use petgraph::graph::EdgeIndex;

use super::cycle::Cycle;
use super::leak_graph::LeakGraph;
use crate::cpython::Binding;

/// So many objects and references are visited in search of the cuts, in all trials together. Where everything refers to
/// everything, no few cuts free anything, and each trial is long.
const VISIT_LIMIT: usize = 4_000_000;

/// A cycle that keeps a buffer, and the references to remove from it.
#[derive(Clone, Debug)]
pub struct Cause {
    pub cycle: Cycle,
    /// Those of the cycle first.
    pub cuts: Vec<EdgeIndex>,
    /// Which strongly connected component of the graph the cycle is in.
    pub component: usize,
    /// False if the reference to remove is the interpreter's, or the cycle is known to be a library's making.
    pub is_own: bool,
    /// True if the cycle is known to be a library's making, with nothing of the program's in it.
    pub is_of_library: bool,
    /// True if the cycle alone would be cut elsewhere: something else keeps the buffer too.
    pub is_for_others: bool,
}

/// What is known of the part that libraries have in a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LibrarysPart {
    /// Nothing: the program has made it, or nobody knows who.
    #[default]
    None,
    /// A library stores what it was given.
    Stored,
    /// A library has made it of its own accord.
    Made,
}

/// Where a reference leads, by the code that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    #[default]
    Unknown,
    /// To what the owner has made and has passed itself to: `self.child = Child(self)`.
    Forth,
    /// To what has made the owner: `self.parent = parent`, in the constructor of the child.
    Back,
}

/// What the code that made the references of a cycle says of them. To ask takes longer than to look at the graph.
pub trait Code {
    /// For each reference what part libraries have in it; empty if nothing is known.
    fn librarys_parts(&self, cycle: &Cycle) -> Vec<LibrarysPart>;

    /// For each reference whether it is an attribute that the code of its owner's own class stores. Empty if nothing is
    /// known.
    fn are_stored_by_owner(&self, cycle: &Cycle) -> Vec<bool>;

    /// For each reference that is an attribute what the class of its owner does with that. Empty if nothing is known.
    fn bindings(&self, cycle: &Cycle) -> Vec<Binding>;

    /// For each reference whether it leads from what made an object to that, or back. Empty if nothing is known.
    fn ways(&self, cycle: &Cycle) -> Vec<Way>;
}

/// Nothing is known.
#[cfg(test)]
impl Code for () {
    fn librarys_parts(&self, _: &Cycle) -> Vec<LibrarysPart> {
        Vec::new()
    }

    fn are_stored_by_owner(&self, _: &Cycle) -> Vec<bool> {
        Vec::new()
    }

    fn bindings(&self, _: &Cycle) -> Vec<Binding> {
        Vec::new()
    }

    fn ways(&self, _: &Cycle) -> Vec<Way> {
        Vec::new()
    }
}

/// How many trials are left, each a visit of the whole graph.
pub struct Trials(usize);

impl Trials {
    pub fn of(graph: &LeakGraph) -> Self {
        Self(VISIT_LIMIT / (graph.node_count() + graph.edge_count()).max(1))
    }

    /// False if there are not so many left to take.
    pub fn take(&mut self, count: usize) -> bool {
        let left = self.0.checked_sub(count);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }
}
