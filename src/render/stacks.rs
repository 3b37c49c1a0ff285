//! The memory of a drawing: buffers that are alike are one stack, and a long path to one is drawn without its middle.

use std::collections::HashMap;
use std::hash::Hash;

use crate::model::device_memory::on_device;
use crate::model::report::{Buffer, Leak};
use crate::model::words::{element_type, human_bytes, shape_of_path, without_numbers};

/// So many stacks are drawn one by one where only the leak itself is.
const STACKS: usize = 5;
/// A path of more objects is drawn without its middle.
const PATH: usize = 4;

/// Buffers that are reached in one way, but for the indices: of one size and type, or of several where there are many
/// stacks.
pub struct Stack<'a> {
    pub buffers: Vec<&'a Buffer>,
}

impl Stack<'_> {
    pub fn bytes(&self) -> u64 {
        let bytes = self.buffers.iter().map(|buffer| buffer.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    pub fn held(&self) -> Held {
        let (first, count) = (self.buffers[0], self.buffers.len() as u64);
        let mut others = self.buffers[1..].iter();
        let is_one_kind = others.all(|it| material(it) == material(first));
        Held {
            size: match is_one_kind {
                true => size(count, first.bytes, self.bytes()),
                false => human_bytes(self.bytes()),
            },
            unlike: (!is_one_kind).then_some(count),
        }
    }

    /// The objects from the cycle to the first buffer, itself the last; those of the others that
    /// stand in the same place of their path are with it.
    pub fn path(&self) -> Vec<Step> {
        let first = nodes(self.buffers[0]);
        let mut steps: Vec<Step> = first.iter().map(|&index| Step::of(index)).collect();
        for other in &self.buffers[1..] {
            let others = nodes(other);
            if others.is_empty() {
                continue;
            }
            let start = others
                .len()
                .saturating_sub(match others.len() == steps.len() {
                    true => others.len(),
                    // Of a path of another length only the buffer stands in the same place.
                    false => 1,
                });
            let places = steps.len() - (others.len() - start)..;
            for (step, &index) in steps[places].iter_mut().zip(&others[start..]) {
                if step.index != index && !step.alike.contains(&index) {
                    step.alike.push(index);
                }
            }
        }
        steps
    }
}

/// What the box of a stack says of its buffers.
#[derive(Debug, PartialEq, Eq)]
pub struct Held {
    /// `4.0 MiB`, or `10 × 4.0 MiB = 40.0 MiB`.
    pub size: String,
    /// How many they are, if they are of several sizes or types.
    pub unlike: Option<u64>,
}

/// An object to draw, with those that its box stands for besides.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub index: u32,
    pub alike: Vec<u32>,
    pub kind: StepKind,
}

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// An object, and those that look the same and stand in the same place.
    Object,
    /// The middle of a path.
    Gap,
    /// One of the clusters, by its number.
    Cluster(usize),
}

impl Step {
    pub fn of(index: u32) -> Self {
        Self {
            index,
            alike: Vec::new(),
            kind: StepKind::Object,
        }
    }

    /// Several objects as one; `None` of none.
    pub fn several(objects: &[u32], kind: StepKind) -> Option<Self> {
        let (&index, alike) = objects.split_first()?;
        Some(Self {
            index,
            alike: alike.to_vec(),
            kind,
        })
    }
}

/// The objects from the cycle to a buffer, the one that holds it the last.
pub fn nodes(buffer: &Buffer) -> Vec<u32> {
    let mut nodes = buffer.path_nodes.clone();
    nodes.extend(buffer.node.filter(|node| nodes.last() != Some(node)));
    nodes
}

/// The path without its middle, if it is long.
pub fn without_middle(mut path: Vec<Step>) -> Vec<Step> {
    if path.len() <= PATH + 1 {
        return path;
    }
    let tail = path.split_off(path.len() - 2);
    let middle = path.split_off(1);
    let middle: Vec<u32> = middle.iter().map(|step| step.index).collect();
    let gap = Step::several(&middle, StepKind::Gap);
    path.into_iter().chain(gap).chain(tail).collect()
}

/// The memory of a leak: the stacks that are drawn, and the other buffers.
pub struct Memory<'a> {
    pub stacks: Vec<Stack<'a>>,
    pub others: Vec<&'a Buffer>,
}

/// Buffers without a box of their own.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rest {
    pub count: u64,
    /// What they are, if all are alike: `float32[4096] on cuda:0`. Of many that the report does not list, one is told.
    pub what: Option<String>,
    pub type_name: Option<String>,
    pub bytes: u64,
    pub size: String,
    /// The references that lead to them, if these are known and the same for all.
    pub path: Vec<String>,
    /// The objects of the report that hold them.
    pub nodes: Vec<u32>,
}

/// The buffers by kind, the largest first as in the report.
pub fn memory(leak: &Leak) -> Memory<'_> {
    let mut stacks = stacked(leak, |buffer| (way(buffer), material(buffer)));
    if stacks.len() > STACKS {
        stacks = stacked(leak, way);
    }
    // The first is drawn, so it is one of which the object is known.
    for stack in &mut stacks {
        stack.buffers.sort_by_key(|buffer| buffer.node.is_none());
    }
    let is_drawn = |stack: &Stack| stack.buffers[0].node.is_some();
    let (mut drawn, others): (Vec<_>, Vec<_>) = stacks.into_iter().partition(is_drawn);
    // What holds most together is drawn first, however small its buffers are.
    drawn.sort_by_key(|stack| std::cmp::Reverse(stack.bytes()));
    let late = drawn.split_off(drawn.len().min(STACKS));
    let others = late.into_iter().chain(others);
    Memory {
        stacks: drawn,
        others: others.flat_map(|stack| stack.buffers).collect(),
    }
}

/// The buffers by what they have in common, in the order of the first of each.
fn stacked<K: Hash + Eq>(leak: &Leak, kind: impl Fn(&Buffer) -> K) -> Vec<Stack<'_>> {
    let mut stacks: Vec<Stack> = Vec::new();
    let mut places: HashMap<K, usize> = HashMap::new();
    for buffer in &leak.buffers {
        let place = *places.entry(kind(buffer)).or_insert(stacks.len());
        match stacks.get_mut(place) {
            Some(stack) => stack.buffers.push(buffer),
            None => stacks.push(Stack {
                buffers: vec![buffer],
            }),
        }
    }
    stacks
}

/// Its size and what it is made of.
fn material(buffer: &Buffer) -> (u64, String) {
    (buffer.bytes, element_type(buffer))
}

/// How it is reached, and what holds it.
fn way(buffer: &Buffer) -> impl Hash + Eq + use<> {
    (
        buffer.from_step,
        shape_of_path(&buffer.path),
        buffer.kept_by.clone(),
        buffer.device.clone(),
        buffer.type_name.clone(),
    )
}

/// These buffers, which no other box counts, and those that the report does not list, as one box.
pub fn rest_of(leak: &Leak, listed: &[&Buffer]) -> Option<Rest> {
    let count = (listed.len() as u64).saturating_add(leak.buffers_omitted);
    if count == 0 {
        return None;
    }
    let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
    let mut bytes = sum(&mut listed.iter().map(|buffer| buffer.bytes));
    if leak.buffers_omitted > 0 {
        let all = sum(&mut leak.buffers.iter().map(|buffer| buffer.bytes));
        bytes = bytes.saturating_add(leak.bytes_held.saturating_sub(all));
    }
    let mut rest = Rest {
        count,
        bytes,
        size: human_bytes(bytes),
        nodes: listed.iter().filter_map(|buffer| buffer.node).collect(),
        ..Rest::default()
    };
    let Some((first, others)) = listed.split_first() else {
        return Some(rest);
    };
    let all = |same: &dyn Fn(&Buffer) -> bool| others.iter().all(|other| same(other));
    let what = |buffer: &Buffer| format!("{} {}", element_type(buffer), on_device(&buffer.device));
    let are_alike = all(&|other| what(other) == what(first) && other.bytes == first.bytes);
    let is_whole =
        leak.buffers_omitted == 0 || are_alike && bytes == count.saturating_mul(first.bytes);
    if is_whole && all(&|other| other.type_name == first.type_name) {
        rest.type_name = Some(first.type_name.clone());
    }
    if are_alike && is_whole {
        rest.what = Some(what(first));
        rest.size = size(count, first.bytes, bytes);
    } else if leak.buffers_omitted > 0 {
        rest.what = Some(format!("such as {}", what(first)));
    }
    let path = |buffer: &Buffer| -> Vec<String> {
        let edges = buffer.path.iter();
        edges.map(|edge| without_numbers(edge)).collect()
    };
    if all(&|other| path(other) == path(first)) {
        rest.path = path(first);
    }
    Some(rest)
}

fn size(count: u64, each: u64, all: u64) -> String {
    match count {
        1 => human_bytes(all),
        count => format!(
            "{} × {} = {}",
            crate::model::words::grouped(count),
            human_bytes(each),
            human_bytes(all)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn buffers_that_are_alike_are_one_stack() {
        let report = samples::many_buffers(100);
        let Memory { stacks, others } = memory(&report.leaks[0]);
        assert_eq!((stacks.len(), others.len()), (1, 0));
        assert_eq!(stacks[0].held().size, "100 × 1.0 MiB = 100.0 MiB");
        let path = stacks[0].path();
        assert_eq!((path.len(), path[0].alike.len()), (1, 99));
    }

    #[test]
    fn a_buffer_whose_object_is_unknown_joins_those_that_are_reached_alike() {
        let mut report = samples::many_buffers(8);
        let leak = &mut report.leaks[0];
        for buffer in &mut leak.buffers[..7] {
            (buffer.node, buffer.path_nodes) = (None, Vec::new());
        }
        let Memory { stacks, others } = memory(leak);
        assert_eq!((stacks.len(), others.len()), (1, 0));
        assert_eq!(stacks[0].held().size, "8 × 1.0 MiB = 8.0 MiB");
        assert_eq!(stacks[0].path(), [Step::of(9)]);
    }

    #[test]
    fn many_stacks_that_are_reached_alike_are_one() {
        let mut report = samples::many_buffers(8);
        let leak = &mut report.leaks[0];
        for (index, buffer) in leak.buffers.iter_mut().enumerate() {
            buffer.bytes = (index as u64 + 1) << 20;
        }
        let Memory { stacks, others } = memory(leak);
        assert_eq!((stacks.len(), others.len()), (1, 0));
        let expected = Held {
            size: "36.0 MiB".to_owned(),
            unlike: Some(8),
        };
        assert_eq!(stacks[0].held(), expected);
        // Few are drawn by themselves.
        leak.buffers.truncate(STACKS);
        assert_eq!(memory(leak).stacks.len(), STACKS);
    }

    #[test]
    fn all_ways_down_a_tree_are_alike() {
        let mut report = samples::many_buffers(7);
        let leak = &mut report.leaks[0];
        for (depth, buffer) in leak.buffers.iter_mut().enumerate() {
            let steps = (0..=depth).flat_map(|step| [".kids".to_owned(), format!("[{step}]")]);
            buffer.path = steps.chain([".value".to_owned()]).collect();
        }
        assert_eq!(memory(leak).stacks.len(), 1);
        leak.buffers[6].path[0] = ".root".to_owned();
        assert_eq!(memory(leak).stacks.len(), 2);
    }

    #[test]
    fn what_has_no_box_is_counted_with_its_bytes() {
        let mut report = samples::many_buffers(10);
        let leak = &mut report.leaks[0];
        for buffer in &mut leak.buffers {
            (buffer.node, buffer.path_nodes) = (None, Vec::new());
        }
        let Memory { stacks, others } = memory(leak);
        assert!(stacks.is_empty());
        let rest = rest_of(leak, &others).expect("ten buffers");
        assert_eq!(rest.size, "10 × 1.0 MiB = 10.0 MiB");
        assert_eq!(rest.path, ["[x]"]);
        leak.buffers_omitted = 90;
        leak.bytes_held = 50 << 20;
        let rest = rest_of(leak, &memory(leak).others).expect("a hundred buffers");
        assert_eq!((rest.count, &*rest.size), (100, "50.0 MiB"));
    }

    #[test]
    fn a_long_path_loses_its_middle_and_no_object() {
        let path: Vec<Step> = (0..20).map(Step::of).collect();
        let short = without_middle(path);
        assert_eq!(short.len(), 4);
        assert_eq!(
            (short[0].index, short[2].index, short[3].index),
            (0, 18, 19)
        );
        assert!(short[1].kind == StepKind::Gap && short[1].index == 1);
        assert_eq!(short[1].alike, (2..18).collect::<Vec<u32>>());
        let path: Vec<Step> = (0..5).map(Step::of).collect();
        assert_eq!(without_middle(path).len(), 5);
    }
}
