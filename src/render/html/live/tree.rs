//! The paths to memory that changed, as a tree.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::model::diff::Change;

/// What one part of a change must be of it to stand for all of it.
const MOSTLY: f64 = 0.9;

/// The owners by what leads to them; the first is the root of all.
pub struct Tree {
    pub nodes: Vec<Node>,
}

/// An owner, with all memory that it leads to.
#[derive(Debug, Default)]
pub struct Node {
    /// The last step of the path to it.
    pub step: String,
    pub change: i64,
    /// What came and what went, added up.
    pub moved: u64,
    pub before: u64,
    pub now: u64,
    pub buffers: i64,
    /// True if some of its memory has changed, be it only in the number of buffers.
    pub is_changed: bool,
    pub children: Vec<usize>,
}

impl Tree {
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Change>) -> Self {
        let mut nodes = vec![Node::default()];
        let mut places: HashMap<(usize, &str), usize> = HashMap::new();
        for row in rows {
            let mut at = 0;
            nodes[at].add(row);
            for step in row.name.split(" → ") {
                let next = *places.entry((at, step)).or_insert(nodes.len());
                if next == nodes.len() {
                    nodes[at].children.push(next);
                    nodes.push(Node {
                        step: step.to_owned(),
                        ..Node::default()
                    });
                }
                at = next;
                nodes[at].add(row);
            }
        }
        Self { nodes }
    }

    /// What has changed below an owner.
    pub fn changed(&self, at: usize) -> impl Iterator<Item = usize> {
        let children = self.nodes[at].children.iter().copied();
        children.filter(|&child| self.nodes[child].is_changed)
    }

    /// The way from the root to the owner with the largest part of the change, where that divides. An item of a
    /// container is not an owner.
    pub fn largest_part(&self) -> Vec<usize> {
        let mut path = Vec::new();
        let mut at = 0;
        let mut divided = false;
        loop {
            let children = self.changed(at);
            let largest =
                children.max_by_key(|&child| (self.nodes[child].weight(1), Reverse(child)));
            let Some(largest) = largest else { return path };
            if !path.is_empty() && self.nodes[largest].step.starts_with('[') {
                return path;
            }
            let is_most = self.nodes[largest].moved as f64 >= MOSTLY * self.nodes[at].moved as f64;
            // Below where it divides, only what has nearly all of that part says more.
            if divided && !is_most {
                return path;
            }
            path.push(largest);
            divided |= !is_most;
            at = largest;
        }
    }
}

impl Node {
    /// By what the largest of some changes is chosen: what so many owners that changed alike have gained or lost in
    /// all, and then what came and went.
    pub fn weight(&self, times: u64) -> (u64, u64) {
        let of = |bytes: u64| bytes.saturating_mul(times);
        (of(self.change.unsigned_abs()), of(self.moved))
    }

    fn add(&mut self, row: &Change) {
        self.change = self.change.saturating_add(row.bytes);
        self.moved = self.moved.saturating_add(row.bytes.unsigned_abs());
        self.now = self.now.saturating_add(row.now_bytes);
        let before = row
            .now_bytes
            .saturating_add_signed(row.bytes.saturating_neg());
        self.before = self.before.saturating_add(before);
        self.buffers = self.buffers.saturating_add(row.buffers);
        self.is_changed |= row.bytes != 0 || row.buffers != 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, bytes: i64) -> Change {
        Change {
            name: name.to_owned(),
            bytes,
            buffers: bytes.signum(),
            now_bytes: bytes.max(0) as u64,
        }
    }

    #[test]
    fn owners_add_up_and_the_largest_part_is_where_it_divides() {
        let tree = Tree::of(&[
            change("a → b → .losses (list) → [x] → Tensor", 60),
            change("a → b → .losses (list) → [x] → grad", 30),
            change("a → b → .best → Tensor", -20),
            change("c", 1),
        ]);
        let way: Vec<&str> = tree
            .largest_part()
            .iter()
            .map(|&index| &*tree.nodes[index].step)
            .collect();
        assert_eq!(way, ["a", "b", ".losses (list)"]);
        let root = &tree.nodes[0];
        assert_eq!((root.change, root.moved, root.before), (71, 111, 20));
        assert!(Tree::of([]).largest_part().is_empty());
        let replaced_beside =
            Tree::of(&[change("a → x", 500), change("a → y", -450), change("b", 70)]);
        let largest = replaced_beside.largest_part();
        assert_eq!(replaced_beside.nodes[largest[0]].step, "b");
        let replaced = Change {
            buffers: 1,
            ..change("a", 0)
        };
        assert_eq!(Tree::of([&replaced, &change("b", 0)]).largest_part(), [1]);
    }
}
