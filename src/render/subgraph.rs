//! The part of a leak's graph that is drawn: which objects have a box of their own, and which are
//! folded into one.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::clusters::clusters;
use super::stacks::{Held, Memory, Rest, Step, StepKind, memory, nodes, rest_of, without_middle};
use crate::model::report::{Leak, NodeKind};

/// More boxes than this are not drawn.
const BOXES: usize = 200;
/// Of more objects than this, those beside the leak are drawn in clusters.
const SEPARATE: usize = 48;
/// So many references to remove are drawn where only the leak itself is.
const CUTS: usize = 6;
/// A reference to remove is not drawn there if more objects than this join it to the rest; nor is
/// one that is only to be looked at, if it does not touch the rest.
const CUT_DISTANCE: usize = 5;
const UNPROVEN_DISTANCE: usize = 1;
/// Maximum number of boxes for objects that are not drawn.
pub const FOLDS: usize = 4;
/// So many objects of a fold or a cluster are drawn where it is opened; as in facts.js.
const OPENED: usize = 20;

/// How much of a leak is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The cycle, what it holds, the references to remove, and how much more there is.
    Leak,
    /// As `Leak`, with the interpreter's own objects that references pass.
    Plumbing,
    /// As `Leak`, with the objects that this one of its folds stands for, up to a limit.
    Opened(usize),
    /// Every object that the report describes: of many, those beside the leak in clusters.
    All,
    /// As `All`, with the objects of this one of its clusters by themselves, up to a limit.
    Unfolded(usize),
}

impl Detail {
    /// True if every object is drawn, by itself or with others.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::All | Self::Unfolded(_))
    }
}

/// Objects that are not drawn.
pub struct Fold {
    /// The drawn object that is nearest to them.
    pub at: u32,
    /// The nearest to it first.
    pub nodes: Vec<u32>,
    /// What [`Detail::Opened`] calls it; `None` if it has no drawing that opens it.
    pub number: Option<usize>,
}

/// What of a leak's graph is drawn beside the ring.
pub struct Subgraph {
    /// The objects with a box of their own: those on paths to buffers first, then the others.
    pub nodes: Vec<Step>,
    /// For each of them how large the stack of buffers is that it holds, if it does.
    pub sizes: HashMap<u32, Held>,
    pub folds: Vec<Fold>,
    /// The memory that none of them holds.
    pub rest: Option<Rest>,
}

/// Selects what is drawn beside the ring, whose objects are given.
pub fn subgraph(leak: &Leak, detail: Detail, ring: &HashMap<u32, usize>) -> Subgraph {
    let mut selection = Selection {
        drawn: vec![false; leak.graph.nodes.len()],
        nodes: vec![],
        neighbours: neighbours(leak),
        leak,
    };
    for &index in ring.keys() {
        if let Some(drawn) = selection.drawn.get_mut(index as usize) {
            *drawn = true;
        }
    }
    let Memory { stacks, others } = memory(leak);
    let mut sizes = HashMap::new();
    if detail.is_whole() && leak.graph.nodes.len() <= SEPARATE {
        let buffers = leak.buffers.iter().flat_map(nodes);
        for index in buffers.chain(0..leak.graph.nodes.len() as u32) {
            selection.take(Step::of(index));
        }
    } else {
        for stack in &stacks {
            if let Some(node) = stack.buffers[0].node {
                sizes.insert(node, stack.held());
            }
            for step in without_middle(stack.path()) {
                selection.take(step);
            }
        }
        selection.take_cuts();
    }
    let mut folds = vec![];
    if detail.is_whole() {
        selection.take_clusters(detail);
    } else {
        selection.take_single();
        folds = selection.folds();
    }
    if let Detail::Opened(number) = detail
        && number < folds.len()
    {
        folds = selection.open(number, &folds);
    }
    let shown = folds.iter().filter(|fold| fold.at != u32::MAX);
    let counted: HashSet<u32> = shown.flat_map(|fold| fold.nodes.iter().copied()).collect();
    let is_drawn = |node: u32| selection.drawn.get(node as usize) == Some(&true);
    let is_counted = |node: u32| counted.contains(&node) || is_drawn(node);
    let uncounted = others.into_iter();
    let uncounted = uncounted.filter(|buffer| !buffer.node.is_some_and(is_counted));
    let rest = rest_of(leak, &uncounted.collect::<Vec<_>>());
    Subgraph {
        nodes: selection.nodes,
        sizes,
        folds,
        rest,
    }
}

/// The objects that each object refers to or is referred to by.
fn neighbours(leak: &Leak) -> Vec<Vec<u32>> {
    let mut neighbours = vec![vec![]; leak.graph.nodes.len()];
    for edge in &leak.graph.edges {
        let (from, to) = (edge.from as usize, edge.to as usize);
        if from < neighbours.len() && to < neighbours.len() {
            neighbours[from].push(edge.to);
            neighbours[to].push(edge.from);
        }
    }
    neighbours
}

/// The objects from this one to the nearest drawn one, which is left out.
fn path(nearest: &[Option<(u32, u32)>], end: u32) -> Vec<u32> {
    let mut path = vec![];
    let mut here = end;
    while let Some(Some((before, _))) = nearest.get(here as usize).copied()
        && before != here
    {
        path.push(here);
        here = before;
    }
    path
}

struct Selection<'a> {
    leak: &'a Leak,
    drawn: Vec<bool>,
    nodes: Vec<Step>,
    neighbours: Vec<Vec<u32>>,
}

impl Selection<'_> {
    /// Takes an object, with those that its box stands for, but for what is drawn already.
    fn take(&mut self, step: Step) {
        if self.nodes.len() >= BOXES {
            return;
        }
        let all = [step.index].into_iter().chain(step.alike);
        let mut fresh = all.filter(|&index| {
            let drawn = self.drawn.get_mut(index as usize);
            drawn.is_some_and(|drawn| !std::mem::replace(drawn, true))
        });
        if let Some(index) = fresh.next() {
            let alike = fresh.collect();
            self.nodes.push(Step {
                index,
                alike,
                kind: step.kind,
            });
        }
    }

    /// For each object the one before it on the path from the nearest drawn object, and that one;
    /// and the objects that are reached, the nearest first.
    fn nearest(&self) -> (Vec<Option<(u32, u32)>>, Vec<u32>) {
        let mut nearest: Vec<Option<(u32, u32)>> = vec![None; self.drawn.len()];
        let mut order: Vec<u32> = (0..self.drawn.len() as u32)
            .filter(|&index| self.drawn[index as usize])
            .collect();
        for &index in &order {
            nearest[index as usize] = Some((index, index));
        }
        let mut position = 0;
        while let Some(&index) = order.get(position) {
            position += 1;
            let Some((_, root)) = nearest[index as usize] else {
                continue;
            };
            for &next in &self.neighbours[index as usize] {
                let entry = &mut nearest[next as usize];
                if entry.is_none() {
                    *entry = Some((index, root));
                    order.push(next);
                }
            }
        }
        (nearest, order)
    }

    /// The references to remove, with what joins them to the rest.
    fn take_cuts(&mut self) {
        let (nearest, _) = self.nearest();
        for cut in self.leak.cuts.iter().take(CUTS) {
            let limit = match cut.proven {
                true => CUT_DISTANCE,
                false => UNPROVEN_DISTANCE,
            };
            let paths = [cut.source, cut.target].map(|end| path(&nearest, end));
            if paths.iter().map(Vec::len).sum::<usize>() <= limit {
                for &index in paths.iter().flat_map(|path| path.iter().rev()) {
                    self.take(Step::of(index));
                }
            }
        }
    }

    /// Where a box for what is not drawn would stand for one object, that object itself.
    fn take_single(&mut self) {
        let mut hidden = (0..self.drawn.len()).filter(|&index| !self.drawn[index]);
        if let (Some(index), None) = (hidden.next(), hidden.next())
            && !self.is_minor(index as u32)
        {
            self.take(Step::of(index as u32));
        }
    }

    /// True for objects that say nothing of a leak unless they are a part of it.
    fn is_minor(&self, index: u32) -> bool {
        let node = &self.leak.graph.nodes[index as usize];
        matches!(node.kind, NodeKind::Plumbing | NodeKind::Class)
    }

    /// The objects that are not drawn, by the nearest one that is, the nearest to it first.
    fn hidden(&self) -> BTreeMap<Option<u32>, Vec<u32>> {
        let (nearest, order) = self.nearest();
        let strangers =
            (0..nearest.len() as u32).filter(|&index| nearest[index as usize].is_none());
        let mut hidden: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        for index in order.into_iter().chain(strangers) {
            if !self.drawn[index as usize] {
                let root = nearest[index as usize].map(|(_, root)| root);
                hidden.entry(root).or_default().push(index);
            }
        }
        hidden
    }

    /// What is not drawn yet: the objects of one cluster, if it is to be unfolded, by themselves, the others in their
    /// clusters.
    fn take_clusters(&mut self, detail: Detail) {
        let (nearest, order) = self.nearest();
        let mut distances = vec![u32::MAX; nearest.len()];
        for &index in &order {
            distances[index as usize] = match nearest[index as usize] {
                Some((before, _)) if before != index => {
                    distances[before as usize].saturating_add(1)
                }
                _ => 0,
            };
        }
        let strangers =
            (0..nearest.len() as u32).filter(|&index| nearest[index as usize].is_none());
        let all = order.iter().copied().chain(strangers);
        let hidden: Vec<(u32, u32)> = all
            .filter(|&index| !self.drawn[index as usize])
            .map(|index| (index, distances[index as usize]))
            .collect();
        for (number, cluster) in clusters(self.leak, &hidden).iter().enumerate() {
            let alone = match (detail == Detail::Unfolded(number), cluster.len()) {
                (true, _) => OPENED,
                (_, 1) => 1,
                _ => 0,
            };
            let (alone, together) = cluster.split_at(alone.min(cluster.len()));
            let kind = StepKind::Cluster(number);
            let alone = alone.iter().map(|&index| Step::of(index));
            for step in alone.chain(Step::several(together, kind)) {
                self.take(step);
            }
        }
    }

    fn folds(&self) -> Vec<Fold> {
        let mut folds: Vec<Fold> = self
            .hidden()
            .into_iter()
            .filter(|(_, nodes)| !nodes.iter().all(|&index| self.is_minor(index)))
            .map(|(at, nodes)| Fold {
                at: at.unwrap_or(u32::MAX),
                nodes,
                number: None,
            })
            .collect();
        folds.sort_by_key(|fold| std::cmp::Reverse(fold.nodes.len()));
        for fold in folds.iter_mut().skip(FOLDS) {
            fold.at = u32::MAX;
        }
        for (number, fold) in folds.iter_mut().enumerate() {
            fold.number = (fold.at != u32::MAX).then_some(number);
        }
        folds
    }

    /// Takes the first objects of a fold; the folds that there are then. Those that were there
    /// before keep their numbers.
    fn open(&mut self, number: usize, folds: &[Fold]) -> Vec<Fold> {
        for &index in folds[number].nodes.iter().take(OPENED) {
            self.take(Step::of(index));
        }
        let mut rest = self.folds();
        for fold in &mut rest {
            let before = folds.iter().find(|before| before.at == fold.at);
            fold.number = before
                .and_then(|before| before.number)
                .filter(|&other| other != number);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;
    use crate::render::scene::scene;
    use crate::render::shape::ShapeKind;

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn limits_hold_and_buffers_are_drawn_first() {
        let count = 6000;
        let mut report = samples::dense(count);
        let leak = &mut report.leaks[0];
        leak.graph.nodes.swap(3, count as usize - 1);
        leak.buffers[0].node = Some(count - 1);
        for detail in [Detail::All, Detail::Unfolded(0), Detail::Unfolded(1)] {
            let scene = scene(leak, detail);
            assert!(scene.boxes.len() < BOXES, "{}", scene.boxes.len());
            let held =
                |shape: &&crate::render::shape::Shape| shape.size.is_some() && shape.node.is_some();
            assert_eq!(scene.boxes.iter().filter(held).count(), 1);
            let hidden: usize = scene.boxes.iter().map(|shape| shape.hidden.len()).sum();
            let alone = scene.boxes.iter().filter(|shape| shape.node.is_some());
            let alone = alone.count();
            // Each object once, the one that the report leaves out aside.
            assert_eq!((hidden + alone, scene.omitted), (count as usize, 0));
        }
    }

    #[test]
    fn few_objects_are_each_drawn_and_of_many_those_of_a_type_are_one() {
        let boxes = |count| scene(&samples::dense(count).leaks[0], Detail::All).boxes;
        let clusters = |count| {
            let is_cluster = |shape: &crate::render::shape::Shape| shape.kind == ShapeKind::Cluster;
            boxes(count).into_iter().filter(is_cluster).count()
        };
        assert_eq!(clusters(SEPARATE as u32), 0);
        assert!((1..=16).contains(&clusters(SEPARATE as u32 + 1)));
        assert!((1..=16).contains(&clusters(MANY)));
    }

    /// So many objects that most are folded.
    const MANY: u32 = if cfg!(miri) { 60 } else { 500 };

    #[test]
    fn the_rest_of_a_large_component_is_folded() {
        let report = samples::dense(MANY);
        let scene = scene(&report.leaks[0], Detail::Leak);
        assert!(scene.boxes.len() < 20, "{}", scene.boxes.len());
        let more = |shape: &&crate::render::shape::Shape| shape.kind == ShapeKind::More;
        let hidden: usize = scene
            .boxes
            .iter()
            .filter(more)
            .map(|s| s.hidden.len())
            .sum();
        assert!(hidden as u32 > MANY - 20, "{hidden}");
    }

    #[test]
    fn a_fold_opens_by_itself_up_to_a_limit() {
        let report = samples::dense(MANY);
        let leak = &report.leaks[0];
        let stands = |detail| {
            let scene = scene(leak, detail);
            let drawn = scene.boxes.iter().filter(|shape| shape.node.is_some());
            let hidden: usize = scene.boxes.iter().map(|shape| shape.hidden.len()).sum();
            let folds: Vec<usize> = (0..FOLDS)
                .filter(|number| {
                    let name = Some(format!("fold-{number}"));
                    scene.boxes.iter().any(|shape| shape.opens == name)
                })
                .collect();
            (drawn.count(), hidden as u64 + scene.omitted, folds)
        };
        let (closed, hidden, folds) = stands(Detail::Leak);
        assert_eq!(closed as u64 + hidden, u64::from(MANY));
        assert!(folds.len() > 1, "{folds:?}");
        for &number in &folds {
            let (opened, rest, others) = stands(Detail::Opened(number));
            assert_eq!(opened as u64 + rest, u64::from(MANY));
            assert!(opened > closed && opened <= closed + OPENED);
            assert!(!others.contains(&number), "{others:?}");
        }
        assert_eq!(stands(Detail::Opened(FOLDS)).0, closed);
    }

    #[test]
    fn buffers_that_are_alike_share_a_box_and_every_drawing_has_memory() {
        let held = |leak: &Leak| -> Vec<String> {
            let boxes = scene(leak, Detail::Leak).boxes;
            boxes.into_iter().filter_map(|shape| shape.size).collect()
        };
        let mut report = samples::many_buffers(100);
        let leak = &mut report.leaks[0];
        assert_eq!(held(leak), ["100 × 1.0 MiB = 100.0 MiB"]);
        // Of none is known which object holds it.
        leak.graph.nodes.truncate(2);
        leak.graph.edges.truncate(2);
        for buffer in &mut leak.buffers {
            (buffer.node, buffer.path_nodes) = (None, Vec::new());
        }
        let scene = scene(leak, Detail::Leak);
        assert_eq!(held(leak), ["100 × 1.0 MiB = 100.0 MiB"]);
        let stack = scene
            .boxes
            .iter()
            .position(|it| it.kind == ShapeKind::Stack);
        let link = scene.links.iter().find(|link| Some(link.to) == stack);
        assert_eq!(link.map(|link| &*link.label), Some("[x]"));
    }
}
