//! References that only C++ knows, to be added to those of a heap.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::capture::ReferenceName;

/// The references to add, and what is known while they are gathered.
#[derive(Default)]
pub(super) struct Edges {
    pub list: Vec<(u32, u32)>,
    pub names: FxHashMap<(u32, u32), ReferenceName>,
    /// Index in [`Live::buffers`], by device and pointer, and by holder.
    pub(super) memory: FxHashMap<(String, u64), usize>,
    pub(super) memory_of: FxHashMap<u32, usize>,
    /// Nodes of objects that are not of the heap, by address: they are held in [`Live::extra`].
    pub(super) made: FxHashMap<usize, u32>,
    /// Objects of which a reference from C++ was accounted for.
    pub(super) taken: FxHashSet<u32>,
    pub(super) some_hidden: bool,
}

impl Edges {
    pub fn add(&mut self, from: u32, to: u32, name: ReferenceName) {
        if self.names.insert((from, to), name).is_none() {
            self.list.push((from, to));
        }
    }
}
