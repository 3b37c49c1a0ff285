//! Divides the memory of a device by use, so that each byte that is not free is in one row.
//!
//! The driver says how much is not free. Of that, PyTorch's allocator has its segments, whose blocks are in use or
//! not (`torch.cuda.memory_snapshot`); the tensors that Python sees are in the blocks in use. What is left is outside
//! PyTorch.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::segments::Segment;
use crate::model::device_memory::{MemoryHolder, MemoryRow};
use crate::model::heap::Category;

/// How many holders of each use are named.
const HOLDERS: usize = 5;

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    Live(Category),
    Garbage,
    FrozenGarbage,
    /// In use, but by no tensor that Python sees.
    Unseen,
    /// Freed by the program, and still needed by a stream.
    Waiting,
    Cached,
    Fragmented,
    /// Not in use, and reserved for one pool.
    Pool(u64, u64),
    Outside,
}

/// A piece of memory that a tensor has.
#[derive(Clone, Debug)]
pub struct Piece {
    pub address: u64,
    pub used_for: Use,
    /// What holds it: an owner or a leak.
    pub holder: String,
}

/// Memory that another framework's allocator has: its name, its bytes, and what gives it back.
pub type Pool = (String, u64, String);

/// All rows of a device of which so many bytes are not free, largest first.
pub fn divide(
    used: u64,
    segments: &[Segment],
    mut pieces: Vec<Piece>,
    pools: Vec<Pool>,
) -> Vec<MemoryRow> {
    pieces.sort_by_key(|piece| piece.address);
    let mut rows = Rows::default();
    for segment in segments {
        rows.add_segment(segment, &pieces);
    }
    let reserved: u64 = segments.iter().map(|segment| segment.total_size).sum();
    let elsewhere: u64 = pools.iter().map(|(_, bytes, _)| bytes).sum();
    rows.add(
        Use::Outside,
        used.saturating_sub(reserved.saturating_add(elsewhere)),
        "",
    );
    let pools = pools.into_iter().map(|(name, bytes, freed_by)| MemoryRow {
        name,
        bytes,
        freed_by,
        holders: Vec::new(),
    });
    let mut rows: Vec<MemoryRow> = rows
        .done()
        .chain(pools)
        .filter(|row| row.bytes > 0)
        .collect();
    rows.sort_by(|one, other| {
        (Reverse(one.bytes), &one.name).cmp(&(Reverse(other.bytes), &other.name))
    });
    rows
}

/// The row of the pinned host memory that PyTorch holds; `None` if it holds none.
pub fn pinned_row(bytes: u64) -> Option<MemoryRow> {
    (bytes > 0).then(|| MemoryRow {
        name: "pinned tensors, and cached for new ones".to_owned(),
        bytes,
        freed_by: "the end of the process; new pinned tensors reuse what deleted ones had"
            .to_owned(),
        holders: Vec::new(),
    })
}

#[derive(Default)]
struct Rows<'a>(BTreeMap<Use, (u64, FxHashMap<&'a str, u64>)>);

impl<'a> Rows<'a> {
    fn add(&mut self, used_for: Use, bytes: u64, holder: &'a str) {
        let (all, holders) = self.0.entry(used_for).or_default();
        *all += bytes;
        if !holder.is_empty() {
            *holders.entry(holder).or_default() += bytes;
        }
    }

    fn add_segment(&mut self, segment: &Segment, pieces: &'a [Piece]) {
        let mut listed = 0;
        for (address, block) in segment.blocks() {
            listed += block.size;
            let at = pieces.partition_point(|piece| piece.address < address);
            let piece = pieces
                .get(at)
                .filter(|piece| piece.address < address + block.size);
            match piece {
                _ if !block.is_in_use() => {}
                Some(piece) => self.add(piece.used_for, block.size, &piece.holder),
                None if block.is_waiting() => self.add(Use::Waiting, block.size, ""),
                None => self.add(Use::Unseen, block.size, ""),
            }
        }
        let (pool, number) = segment.segment_pool_id;
        let (returnable, rest) = segment.unused();
        if segment.is_private() {
            self.add(Use::Pool(pool, number), returnable + rest, "");
        } else {
            self.add(Use::Cached, returnable, "");
            self.add(Use::Fragmented, rest, "");
        }
        // Never so today; the sum holds even if a segment has more than its blocks.
        self.add(Use::Unseen, segment.total_size.saturating_sub(listed), "");
    }

    fn done(self) -> impl Iterator<Item = MemoryRow> {
        self.0.into_iter().map(|(used_for, (bytes, holders))| {
            let holders = holders.into_iter().map(|(name, bytes)| MemoryHolder {
                name: name.to_owned(),
                bytes,
            });
            let mut holders: Vec<MemoryHolder> = holders.collect();
            holders.sort_by(|one, other| {
                (Reverse(one.bytes), &one.name).cmp(&(Reverse(other.bytes), &other.name))
            });
            holders.truncate(HOLDERS);
            let (name, freed_by) = words(used_for);
            MemoryRow {
                name,
                bytes,
                freed_by: freed_by.to_owned(),
                holders,
            }
        })
    }
}

/// The name of a use, and what gives the memory back.
fn words(used_for: Use) -> (String, &'static str) {
    let (name, freed_by) = match used_for {
        Use::Live(Category::Parameter) => ("parameters", "deleting the model"),
        Use::Live(Category::Gradient) => ("gradients", "`optimizer.zero_grad(set_to_none=True)`"),
        Use::Live(Category::OptimizerState) => ("optimizer state", "deleting the optimizer"),
        Use::Live(Category::Activation) => (
            "activations that autograd keeps",
            "`backward()`, or deleting the tensors with these graphs",
        ),
        Use::Live(Category::Input) => (
            "inputs that autograd keeps",
            "`backward()`, or deleting the tensors with these graphs",
        ),
        Use::Live(Category::Other) => ("other tensors", "deleting what holds them"),
        Use::Garbage => ("garbage in reference cycles", "`gc.collect()`"),
        Use::FrozenGarbage => ("frozen garbage", "`gc.unfreeze()`, then `gc.collect()`"),
        Use::Unseen => (
            "held by no Python object",
            "C++ code that holds it, such as cuBLAS for its workspaces",
        ),
        Use::Waiting => (
            "freed, and still used by a stream",
            "the end of the stream's work",
        ),
        Use::Cached => (
            "cached by PyTorch",
            "the next tensors, which reuse it, or `torch.cuda.empty_cache()`",
        ),
        Use::Fragmented => (
            "free between blocks in use",
            "smaller tensors, which reuse it; `expandable_segments:True` in PYTORCH_CUDA_ALLOC_CONF leaves less",
        ),
        // A pool that a capture made for itself has a number in the first place (`CUDAGraph::capture_begin`).
        Use::Pool(capture, 0) => {
            let name = format!("free in the pool of CUDA graph {capture}");
            return (name, "deleting the graph");
        }
        Use::Pool(_, number) => {
            let name = format!("free in the private pool {number}");
            return (
                name,
                "deleting its `MemPool`, or the CUDA graphs that share it",
            );
        }
        Use::Outside => (
            "outside PyTorch",
            "what uses it: CUDA itself, libraries, other frameworks, other processes",
        ),
    };
    (name.to_owned(), freed_by)
}
