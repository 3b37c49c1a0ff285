//! The owner treemap as numbers: blocks in levels.
//!
//! The width of a block is proportional to the bytes reached through it. The blocks below it fill its whole
//! width: what is too small to be drawn is one block, and the memory of an object that leads on to
//! more is another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use crate::device::is_host;
use crate::model::device_memory::on_device;
use crate::model::heap::{Buffer, Category, Heap};
use crate::model::retention::UNREACHABLE;
use crate::model::words::{counted, grouped, name, place_within};

/// Number of categories: those of buffers, and what only unreachable objects refer to.
const KINDS: usize = Category::ALL.len() + 1;
/// The last of them.
pub const UNREACHABLE_MEMORY: &str = "unreachable";
/// Fraction of a block's memory in one category from which the block has that colour.
const MOSTLY: f64 = 0.9;
/// Names longer than this are shortened in their middle.
const NAME: usize = 160;
/// Maximum number of further paths listed for a block.
const ALSO: usize = 6;

/// The blocks, each before those below it, siblings by size.
pub struct Icicle {
    pub blocks: Vec<Block>,
    /// True if only memory on devices is counted; false if there is none, and host memory counts.
    pub on_devices: bool,
    /// Number of levels.
    pub depth: u32,
}

impl Icicle {
    /// How much of all memory is of a category.
    pub fn bytes_of(&self, category: &str) -> u64 {
        let sizes = self.blocks.first().map(|all| all.categories);
        let named = category_names().zip(sizes.into_iter().flatten());
        named
            .filter(|(name, _)| *name == category)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    /// The blocks from the root to the largest part of what has nearly all memory, where that divides; nothing where
    /// that is below no object.
    pub fn largest_part(&self) -> Option<Vec<&Block>> {
        let mut path = vec![self.blocks.first()?];
        let mut at = 0;
        let mut divided = false;
        loop {
            let below = (at + 1..self.blocks.len())
                .filter(|&index| self.blocks[index].parent == Some(at as u32));
            let largest = below.max_by_key(|&index| (self.blocks[index].bytes, Reverse(index)));
            let Some(largest) = largest else {
                return divided.then_some(path);
            };
            let block = &self.blocks[largest];
            let is_most = block.bytes as f64 >= MOSTLY * self.blocks[at].bytes as f64;
            let is_item = block.edge.starts_with('[') || block.kind != Kind::Owner;
            if path.len() > 2 && (is_item || block.edge.is_empty()) {
                return Some(path);
            }
            // Below where it divides, only what has nearly all of that part says more.
            if divided && !is_most {
                return Some(path);
            }
            path.push(block);
            if !is_most {
                if block.kind != Kind::Owner {
                    return None;
                }
                divided = true;
            }
            at = largest;
        }
    }
}

/// One rectangle.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Block {
    /// The block above it; `None` for the first, which is all memory.
    pub parent: Option<u32>,
    pub depth: u32,
    /// Where it begins, and how wide it is, in bytes.
    pub start: u64,
    pub bytes: u64,
    /// The reference that leads to it.
    pub edge: String,
    /// What it is, in a word or two.
    pub label: String,
    pub place: String,
    /// Number of buffers.
    pub buffers: u64,
    /// Retained size; unknown for a block of several owners.
    pub retained: Option<u64>,
    /// The index of its branch; `None` for a block of several or of none.
    #[serde(skip)]
    pub branch: Option<u32>,
    /// Bytes by category, in the order of [`category_names`].
    pub categories: [u64; KINDS],
    pub kind: Kind,
    /// The contents, if the block is one buffer: `float32[64, 64] on cuda:0`.
    pub memory: String,
    /// Further paths to it.
    pub also: Vec<String>,
}

/// Kind of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    #[default]
    Owner,
    /// The memory of the object above it, which refers to more.
    Itself,
    /// Several that are too small to be drawn.
    Rest,
}

impl Block {
    /// The category of nearly all its memory, if there is one.
    pub fn category(&self) -> Option<&'static str> {
        let (index, most) = self
            .categories
            .iter()
            .enumerate()
            .max_by_key(|&(index, bytes)| (bytes, Reverse(index)))?;
        let mostly = *most as f64 >= MOSTLY * self.bytes as f64;
        category_names().nth(index).filter(|_| mostly)
    }

    /// The reference and what it leads to: `.weight (Parameter)`.
    pub fn title(&self) -> String {
        step(&self.edge, &self.label)
    }
}

/// The names of the categories.
pub fn category_names() -> impl Iterator<Item = &'static str> {
    let of_buffers = Category::ALL.into_iter().map(Category::words);
    of_buffers.chain([UNREACHABLE_MEMORY])
}

fn step(edge: &str, label: &str) -> String {
    match edge.is_empty() {
        true => label.to_owned(),
        false => format!("{edge} ({label})"),
    }
}

/// The path to a buffer in one line, with a walk along an autograd graph as one step.
pub fn way(heap: &Heap, buffer: &Buffer) -> String {
    let above = heap
        .branches_to(buffer)
        .map(|at| &heap.branches[at as usize]);
    let mut steps: Vec<String> = above.map(|it| step(&it.edge, &it.label)).collect();
    steps.reverse();
    steps.join(" → ")
}

/// A branch with the memory that lies behind it.
#[derive(Clone, Debug, Default)]
struct Sum {
    bytes: u64,
    buffers: u64,
    categories: [u64; KINDS],
    /// The buffers of its own, by index.
    own: Vec<usize>,
    children: Vec<usize>,
}

impl Sum {
    fn add(&mut self, buffer: &Buffer) {
        self.bytes = self.bytes.saturating_add(buffer.bytes);
        self.buffers += 1;
        let category = match buffer.owner.starts_with(UNREACHABLE) {
            true => None,
            false => Category::ALL.iter().position(|it| *it == buffer.category),
        };
        let sum = &mut self.categories[category.unwrap_or(KINDS - 1)];
        *sum = sum.saturating_add(buffer.bytes);
    }

    fn merge(&mut self, other: &Sum) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.buffers += other.buffers;
        for (sum, bytes) in self.categories.iter_mut().zip(other.categories) {
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// The largest blocks of a heap, at most `limit`, and all others summed up where they belong.
pub fn icicle(heap: &Heap, limit: usize) -> Icicle {
    let on_devices = heap.device_bytes() > 0;
    let tree = Tree::new(heap, on_devices);
    let shown = tree.largest(limit);
    let mut icicle = Icicle {
        blocks: Vec::new(),
        on_devices,
        depth: 0,
    };
    let root = Block {
        label: match on_devices {
            true => "all tensors and arrays on devices".to_owned(),
            false => "all tensors and arrays on the host".to_owned(),
        },
        ..block(tree.root())
    };
    // Depth first, without recursion: a way may be long.
    let mut pending = vec![(tree.sums.len() - 1, root)];
    while let Some((index, root)) = pending.pop() {
        let at = icicle.blocks.len() as u32;
        icicle.depth = icicle.depth.max(root.depth + 1);
        let mut start = root.start;
        let depth = root.depth + 1;
        icicle.blocks.push(root);
        if index == LEAF {
            continue;
        }
        let mut below: Vec<(usize, Block)> = tree
            .below(heap, index, &shown)
            .into_iter()
            .map(|(index, block)| {
                let placed = Block {
                    parent: Some(at),
                    depth,
                    start,
                    ..block
                };
                start = start.saturating_add(placed.bytes);
                (index, placed)
            })
            .collect();
        below.reverse();
        pending.extend(below);
    }
    icicle
}

/// All branches with their sums; the last is the root of all.
struct Tree {
    sums: Vec<Sum>,
    on_devices: bool,
}

/// In place of a branch: a block with nothing below it.
const LEAF: usize = usize::MAX;

impl Tree {
    fn new(heap: &Heap, on_devices: bool) -> Self {
        let count = heap.branches.len();
        let mut sums = vec![Sum::default(); count + 1];
        for (index, buffer) in heap.buffers.iter().enumerate() {
            if is_host(&buffer.device) == on_devices {
                continue;
            }
            // One that a report from elsewhere puts on no branch hangs from the root.
            let at = (buffer.branch as usize).min(count);
            sums[at].add(buffer);
            sums[at].own.push(index);
        }
        // Each branch comes after its parent.
        for index in (0..count).rev() {
            let parent = heap.branches[index].parent.map_or(count, |it| it as usize);
            let parent = if parent < index { parent } else { count };
            if sums[index].bytes > 0 {
                let sum = std::mem::take(&mut sums[index]);
                sums[parent].merge(&sum);
                sums[index] = sum;
                sums[parent].children.push(index);
            }
        }
        for index in 0..=count {
            let mut children = std::mem::take(&mut sums[index].children);
            children.sort_unstable_by_key(|&child| (Reverse(sums[child].bytes), child));
            sums[index].children = children;
        }
        Self { sums, on_devices }
    }

    fn root(&self) -> &Sum {
        &self.sums[self.sums.len() - 1]
    }

    /// Which branches are drawn: the largest, but none without its parent, such that there are no
    /// more than `limit` blocks with those for the rest.
    fn largest(&self, limit: usize) -> Vec<bool> {
        let root = self.sums.len() - 1;
        let mut shown = vec![false; self.sums.len()];
        let mut hidden: Vec<usize> = self.sums.iter().map(|sum| sum.children.len()).collect();
        let mut parent = vec![root; self.sums.len()];
        shown[root] = true;
        // The root, and what stands below it.
        let mut count = 1 + self.extra(root);
        let mut queue = BinaryHeap::new();
        let push = |queue: &mut BinaryHeap<_>, index: usize| {
            for &child in &self.sums[index].children {
                queue.push((self.sums[child].bytes, Reverse(child)));
            }
        };
        push(&mut queue, root);
        while let Some((_, Reverse(index))) = queue.pop() {
            // Itself, and what stands below it; where it is the last of its siblings, none for the rest.
            let above = parent[index];
            let last = usize::from(hidden[above] == 1);
            if count + 1 + self.extra(index) > limit + last {
                continue;
            }
            count = count + 1 + self.extra(index) - last;
            hidden[above] -= 1;
            shown[index] = true;
            for &child in &self.sums[index].children {
                parent[child] = index;
            }
            push(&mut queue, index);
        }
        shown
    }

    /// How many blocks stand below a branch at the least: its own memory, and the rest.
    fn extra(&self, index: usize) -> usize {
        let sum = &self.sums[index];
        match sum.children.is_empty() {
            true => 0,
            false => 1 + usize::from(!sum.own.is_empty()),
        }
    }

    /// The blocks below a branch, the largest first and the rest last, with their branches.
    fn below(&self, heap: &Heap, index: usize, shown: &[bool]) -> Vec<(usize, Block)> {
        let sum = &self.sums[index];
        if sum.children.is_empty() {
            return Vec::new();
        }
        let (drawn, folded): (Vec<usize>, Vec<usize>) =
            sum.children.iter().partition(|&&child| shown[child]);
        let mut below: Vec<(usize, Block)> = drawn
            .iter()
            .map(|&child| (child, self.owner(heap, child)))
            .collect();
        if !sum.own.is_empty() {
            below.push((LEAF, itself(heap, sum)));
        }
        below.sort_by_key(|(_, block)| Reverse(block.bytes));
        if let &[only] = folded.as_slice() {
            // As it takes a block anyhow; what is below it stays out.
            below.push((LEAF, self.owner(heap, only)));
        } else if !folded.is_empty() {
            let mut rest = Sum::default();
            for &child in &folded {
                rest.merge(&self.sums[child]);
            }
            let rest = Block {
                label: format!("+ {} more", grouped(folded.len() as u64)),
                kind: Kind::Rest,
                ..block(&rest)
            };
            below.push((LEAF, rest));
        }
        below
    }

    /// The block of a branch.
    fn owner(&self, heap: &Heap, index: usize) -> Block {
        let sum = &self.sums[index];
        let branch = &heap.branches[index];
        Block {
            edge: name(&branch.edge, NAME),
            // The blocks have no code in them.
            label: name(&branch.label.replace('`', ""), NAME),
            place: branch
                .location
                .as_ref()
                .map(|place| place_within(place, NAME))
                .unwrap_or_default(),
            branch: u32::try_from(index).ok(),
            retained: branch
                .retained
                .map(|[device, host]| if self.on_devices { device } else { host }),
            memory: match sum.children.is_empty() {
                true => memory(heap, &sum.own),
                false => String::new(),
            },
            also: also(heap, &sum.own),
            ..block(sum)
        }
    }
}

fn block(sum: &Sum) -> Block {
    Block {
        bytes: sum.bytes,
        buffers: sum.buffers,
        categories: sum.categories,
        ..Block::default()
    }
}

/// The memory of an object that leads on to more.
fn itself(heap: &Heap, sum: &Sum) -> Block {
    let mut own = Sum::default();
    for &index in &sum.own {
        own.add(&heap.buffers[index]);
    }
    Block {
        label: "its own memory".to_owned(),
        kind: Kind::Itself,
        memory: memory(heap, &sum.own),
        ..block(&own)
    }
}

/// What some pieces of memory are.
fn memory(heap: &Heap, own: &[usize]) -> String {
    match own {
        [] => String::new(),
        &[index] => {
            let buffer = &heap.buffers[index];
            format!(
                "{} {}",
                elements(buffer),
                on_device(&name(&buffer.device, 40))
            )
        }
        [first, ..] => format!(
            "{}, such as {} {}",
            counted(own.len() as u64, "tensor or array", "tensors or arrays"),
            elements(&heap.buffers[*first]),
            on_device(&name(&heap.buffers[*first].device, 40)),
        ),
    }
}

/// `float32[64, 64]`, or the type of its holder.
pub fn elements(buffer: &Buffer) -> String {
    let shape = buffer.shape.as_ref();
    let shape = shape.map(|extents| name(&extents.to_string(), 80));
    match &buffer.dtype {
        Some(dtype) => name(dtype, 60) + &shape.unwrap_or_default(),
        None => name(&buffer.type_name, 80),
    }
}

fn also(heap: &Heap, own: &[usize]) -> Vec<String> {
    let all = own.iter().flat_map(|&index| &heap.buffers[index].also);
    all.take(ALSO).map(|way| name(way, 400)).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::render::live_samples as samples;

    fn drawn(icicle: &Icicle) -> String {
        let mut out = String::new();
        for block in &icicle.blocks {
            let indent = "  ".repeat(block.depth as usize);
            let retained = block
                .retained
                .map_or(String::new(), |it| format!(" retained {it}"));
            let category = block.category().unwrap_or("several");
            // Writing to a `String` cannot fail.
            _ = writeln!(
                out,
                "{indent}{} {}+{} in {}{retained}, {category}",
                block.title(),
                block.start,
                block.bytes,
                block.buffers,
            );
        }
        out
    }

    /// What holds of every icicle.
    fn check(heap: &Heap, icicle: &Icicle, limit: usize) {
        let blocks = &icicle.blocks;
        assert!(blocks.len() <= limit, "{} of {limit}", blocks.len());
        let total = match icicle.on_devices {
            true => heap.device_bytes(),
            false => heap.host_bytes(),
        };
        assert_eq!(blocks[0].bytes, total);
        for (index, block) in blocks.iter().enumerate() {
            assert_eq!(block.categories.iter().sum::<u64>(), block.bytes);
            assert!(block.retained.unwrap_or(0) <= block.bytes);
            let below: Vec<&Block> = blocks
                .iter()
                .filter(|other| other.parent == Some(index as u32))
                .collect();
            // Side by side, from the one's beginning to its end, and nothing between them.
            let mut end = block.start;
            for other in &below {
                assert_eq!((other.start, other.depth), (end, block.depth + 1));
                end += other.bytes;
            }
            if !below.is_empty() {
                assert_eq!(end, block.start + block.bytes, "{}", drawn(icicle));
                assert_eq!(
                    below.iter().map(|it| it.buffers).sum::<u64>(),
                    block.buffers
                );
            }
        }
    }

    #[test]
    fn every_level_adds_up() {
        let heap = samples::training();
        let icicle = icicle(&heap, 500);
        check(&heap, &icicle, 500);
        insta::assert_snapshot!(drawn(&icicle));
    }

    #[test]
    fn what_is_too_small_is_summed_up_and_no_byte_is_lost() {
        let heap = samples::training();
        for limit in 3..if cfg!(miri) { 6 } else { 30 } {
            check(&heap, &icicle(&heap, limit), limit);
        }
        let few = drawn(&icicle(&heap, 8));
        assert!(few.contains("more"), "{few}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn of_very_many_a_few_are_shown() {
        let many = samples::kept_losses(5_000);
        let icicle = icicle(&many, 500);
        check(&many, &icicle, 500);
        assert!(icicle.blocks.len() > 490);
        assert!(drawn(&icicle).contains("+ 4,75"), "{}", drawn(&icicle));
    }

    #[test]
    fn without_memory_on_devices_that_on_the_host_counts() {
        let mut heap = samples::training();
        for buffer in &mut heap.buffers {
            buffer.device = "cpu".to_owned();
        }
        let icicle = icicle(&heap, 500);
        check(&heap, &icicle, 500);
        assert!(!icicle.on_devices);
        assert!(icicle.blocks[0].bytes > 0);
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_too() {
        let nothing = Heap::default();
        assert_eq!(icicle(&nothing, 500).blocks.len(), 1);
        let mut heap = samples::training();
        for (index, branch) in heap.branches.iter_mut().enumerate() {
            branch.parent = Some(index as u32 + 1);
        }
        heap.buffers[0].branch = 1_000_000;
        check(&heap, &icicle(&heap, 500), 500);
    }

    proptest! {
        #[test]
        fn widths_add_up_whatever_the_tree(
            parents in prop::collection::vec(0usize..64, 1..64),
            buffers in prop::collection::vec((0usize..64, 0u64..1 << 40, 0usize..6, any::<bool>()), 0..200),
            limit in 3usize..80,
        ) {
            let heap = samples::random(&parents, &buffers);
            check(&heap, &icicle(&heap, limit), limit);
        }
    }
}
