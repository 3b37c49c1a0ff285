//! References that only C++ knows, to be added to those of a heap.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::capture::ReferenceName;
use crate::device::DeviceBuffer;
use crate::memory::Regions;

/// The references to add, and what is known while they are gathered.
#[derive(Default)]
pub(super) struct Edges {
    pub list: Vec<(u32, u32)>,
    pub names: FxHashMap<(u32, u32), ReferenceName>,
    pub(super) regions: Regions,
    /// Index in [`Live::buffers`], by the number of a region, and by holder.
    pub(super) memory: FxHashMap<usize, usize>,
    pub(super) memory_of: FxHashMap<u32, usize>,
    /// Regions that are memory of an array or another object: tensors on it hold that.
    pub(super) lent: FxHashSet<usize>,
    /// Nodes of objects that are not of the heap, by address: they are held in [`Live::extra`].
    pub(super) made: FxHashMap<usize, u32>,
    pub(super) some_hidden: bool,
    /// Tensors: to the Python object of one, all references that C++ has to it count as one.
    pub(super) tensors: FxHashSet<u32>,
    /// Tensors that are gradients.
    pub(super) gradients: FxHashSet<u32>,
    /// How many references C++ has to an object, as far as they are known.
    pub(super) in_c: FxHashMap<u32, i64>,
}

impl Edges {
    /// The number of the region that some memory is in.
    pub fn region(&mut self, buffer: &DeviceBuffer, is_whole: bool) -> usize {
        // Where nobody knows the place, the holder's address stands for it: that is no other memory's, but what
        // comes after may be.
        let bytes = if buffer.is_placed { buffer.bytes } else { 1 };
        let start = buffer.pointer;
        self.regions.add(buffer.space(), start, bytes, is_whole)
    }

    /// Adds a reference, also beside another one between the two, of which the name of the first is known here.
    pub fn add_again(&mut self, from: u32, to: u32, name: ReferenceName) {
        self.names.entry((from, to)).or_insert(name);
        self.list.push((from, to));
    }

    /// Adds a reference, which keeps its first name.
    pub fn add(&mut self, from: u32, to: u32, name: ReferenceName) {
        if let Entry::Vacant(free) = self.names.entry((from, to)) {
            free.insert(name);
            self.list.push((from, to));
        }
    }
}
