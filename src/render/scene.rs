//! What a drawing of a leak shows: the cycle as a ring of boxes, and what hangs off it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::boxes::{Link, Scene};
use super::bundles::Bundles;
use super::shape::{LABEL, Shape, ShapeKind, TITLE};
use super::simplified::simplified;
use super::stacks::{Rest, StepKind};
use super::subgraph::{Detail, Fold, Subgraph, subgraph};
use crate::model::report::{Edge, EdgeRole, Leak, Step};
use crate::model::words::{cut_of, grouped, name, steps_before_gap, without_numbers};

/// A longer cycle is drawn without its middle.
const RING: usize = 24;
/// Where only the leak itself is drawn, so many of it fit into the first view, if the cut and the ways to the memory
/// are among them.
const SHORT_RING: usize = 14;
/// How many references are drawn.
const LINKS: usize = 4000;

/// Lists what of the leak is drawn.
pub fn scene(leak: &Leak, detail: Detail) -> Scene {
    let mut builder = Builder {
        leak,
        detail,
        scene: Scene {
            ring: 0,
            focus: 0,
            boxes: vec![],
            links: vec![],
            omitted: 0,
            untold: leak.graph.references_omitted,
        },
        box_of: HashMap::new(),
        hop_of: HashMap::new(),
        drawn: HashSet::new(),
        passed: HashSet::new(),
    };
    builder.ring();
    builder.focus();
    let drawn = subgraph(leak, detail, &builder.box_of);
    builder.objects(&drawn);
    builder.references();
    if let Some(rest) = drawn.rest {
        builder.rest(&rest);
    }
    builder.folds(drawn.folds);
    match detail {
        Detail::Leak | Detail::Plumbing => simplified(builder.scene),
        _ => builder.scene,
    }
}

struct Builder<'a> {
    leak: &'a Leak,
    detail: Detail,
    scene: Scene,
    /// The box of an object, by its index in the leak's graph.
    box_of: HashMap<u32, usize>,
    /// The box of an object that references pass, by [`crate::model::report::Hop::object`].
    hop_of: HashMap<u32, usize>,
    /// The references that are drawn.
    drawn: HashSet<usize>,
    /// Those from or to an object that others pass too, by their ends and their name.
    passed: HashSet<(End, End, String)>,
}

/// Where a reference begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    /// An object, by its index in the leak's graph.
    Node(u32),
    /// One that references pass, by [`crate::model::report::Hop::object`].
    Hop(u32),
}

impl<'a> Builder<'a> {
    /// The cycle's steps as boxes, and the links between them.
    fn ring(&mut self) {
        let steps = &self.leak.cycle;
        let limit = self.ring_limit();
        let before = steps_before_gap(self.leak).min(limit / 2);
        let after = if steps.len() > limit {
            limit / 2
        } else {
            steps.len() - before
        };
        let hidden = &steps[before..steps.len() - after];
        let omitted = self.leak.cycle_omitted.saturating_add(hidden.len() as u64);
        let mut items: Vec<Option<&Step>> = steps[..before].iter().map(Some).collect();
        if omitted > 0 && !steps.is_empty() {
            items.push(None);
        }
        items.extend(steps[steps.len() - after..].iter().map(Some));

        let mut leaving = vec![];
        for (place, item) in items.iter().enumerate() {
            let next = items[(place + 1) % items.len()].and_then(|step| step.node);
            match item {
                Some(step) => {
                    self.place(step);
                    self.scene.boxes.push(Shape::of_step(self.leak, step));
                    leaving.extend(self.step_out(step, next));
                }
                None => {
                    hidden.iter().for_each(|step| self.place(step));
                    let mut gap = Shape::gap(omitted, "the cycle");
                    gap.hidden = hidden.iter().filter_map(|step| step.node).collect();
                    self.scene.boxes.push(gap);
                    // Those that the report leaves out come after as many steps as these.
                    let is_listed = self.leak.cycle_omitted == 0
                        || steps_before_gap(self.leak) < steps.len() - after;
                    match hidden.last().filter(|_| is_listed) {
                        Some(step) => leaving.extend(self.step_out(step, next)),
                        None => leaving.push(Leaving::unknown()),
                    }
                }
            }
        }
        self.scene.ring = self.scene.boxes.len();
        for (from, leaving) in leaving.into_iter().enumerate() {
            let to = (from + 1) % self.scene.ring;
            self.scene.links.push(leaving.link(from, to));
        }
    }

    fn ring_limit(&self) -> usize {
        let steps = self.leak.cycle.iter().enumerate();
        let ends = SHORT_RING / 2;
        let middle = ends..self.leak.cycle.len().saturating_sub(ends);
        let is_told = |(index, step): (usize, &Step)| {
            let mut starts = self.leak.buffers.iter().map(|it| it.from_step as usize);
            cut_of(self.leak, step).is_some() || starts.any(|start| start == index)
        };
        let mut hidden = steps.filter(|(index, _)| middle.contains(index));
        match self.detail.is_whole() || hidden.any(is_told) {
            true => RING,
            false => SHORT_RING,
        }
    }

    /// Has the object of a step drawn as the box that comes next.
    fn place(&mut self, step: &Step) {
        if let Some(node) = step.node {
            self.box_of.entry(node).or_insert(self.scene.boxes.len());
        }
    }

    /// The reference of a step to the next, and the boxes of what it passes.
    fn step_out(&mut self, step: &Step, next: Option<u32>) -> Vec<Leaving> {
        let edges = &self.leak.graph.edges;
        let index = edges
            .iter()
            .position(|e| Some(e.from) == step.node && Some(e.to) == next && e.name == step.edge);
        self.drawn.extend(index);
        let role = match cut_of(self.leak, step) {
            Some(_) => EdgeRole::Cut,
            None => EdgeRole::Cycle,
        };
        let last = Leaving {
            edge: index,
            label: step.edge.clone(),
            title: reference_title(self.leak, &step.label, &step.edge, role),
            role,
        };
        let Some(edge) = index.map(|index| &edges[index]).filter(|e| self.passes(e)) else {
            return vec![last];
        };
        let mut leaving = vec![];
        for hop in &edge.through {
            self.hop_of.insert(hop.object, self.scene.boxes.len());
            self.scene.boxes.push(Shape::of_hop(hop));
            leaving.push(Leaving {
                label: hop.into.clone(),
                role: EdgeRole::Cycle,
                ..last.clone()
            });
        }
        let label = edge.through.last().map(|hop| hop.onwards.clone());
        leaving.push(Leaving {
            label: label.unwrap_or_default(),
            ..last
        });
        leaving
    }

    /// True if the objects that the reference passes are to be drawn.
    fn passes(&self, edge: &Edge) -> bool {
        self.detail == Detail::Plumbing && !edge.through.is_empty()
    }

    fn focus(&mut self) {
        let owner = self
            .leak
            .buffers
            .first()
            .and_then(|b| self.leak.cycle.get(b.from_step as usize));
        let focus = owner.and_then(|step| self.box_of.get(&step.node?)).copied();
        self.scene.focus = focus.unwrap_or(0).min(self.scene.ring.saturating_sub(1));
    }

    fn objects(&mut self, drawn: &Subgraph) {
        for step in &drawn.nodes {
            let Some(node) = self.leak.graph.nodes.get(step.index as usize) else {
                continue;
            };
            for &index in [&step.index].into_iter().chain(&step.alike) {
                self.box_of.insert(index, self.scene.boxes.len());
            }
            let shape = match step.kind {
                StepKind::Gap => Shape::middle(step),
                StepKind::Cluster(number) => Shape::cluster(self.leak, step, number),
                StepKind::Object => {
                    let shape = Shape::of_node(self.leak, node, step.index);
                    shape.stacked(step, drawn.sizes.get(&step.index))
                }
            };
            self.scene.boxes.push(shape);
        }
    }

    /// Memory of which no box shows what holds it, as one box that hangs on the cycle.
    fn rest(&mut self, rest: &Rest) {
        let is_alone = !self.scene.boxes.iter().any(|shape| shape.size.is_some());
        // What holds most is drawn as memory even if the way to it is not known.
        let is_memory = is_alone || rest.bytes > self.leak.bytes_held / 2;
        let shape = Shape::rest(rest, is_alone, is_memory);
        if self.scene.boxes.is_empty() {
            self.scene.boxes.push(shape);
            return;
        }
        let label = match rest.path.len() {
            0 => "…".to_owned(),
            1..=3 => rest.path.concat(),
            steps => format!("… {steps} steps …"),
        };
        self.scene.links.push(Link {
            from: self.scene.focus,
            to: self.scene.boxes.len(),
            edge: None,
            label: name(&label, LABEL),
            title: shape.title.clone(),
            role: match is_memory {
                true => EdgeRole::Path,
                false => EdgeRole::Other,
            },
        });
        self.scene.boxes.push(shape);
    }

    /// All references among the boxes that are not drawn yet.
    fn references(&mut self) {
        // How many references each drawn one stands for, besides those of the ring.
        let mut met: HashMap<(usize, usize, String), (Option<usize>, u64)> = self
            .scene
            .links
            .iter()
            .map(|link| ((link.from, link.to, link.label.clone()), (None, 1)))
            .collect();
        // Of two with the same name between the same boxes, the more important is drawn.
        let mut order: Vec<usize> = (0..self.leak.graph.edges.len()).collect();
        order.sort_by_key(|&index| self.leak.graph.edges[index].role == EdgeRole::Other);
        let mut bundles = Bundles::default();
        for index in order {
            let edge = &self.leak.graph.edges[index];
            let ends = (self.box_of.get(&edge.from), self.box_of.get(&edge.to));
            let (Some(&from), Some(&to)) = ends else {
                continue;
            };
            let within_gap = from == to && self.scene.boxes[from].kind == ShapeKind::Gap;
            if self.drawn.contains(&index) || within_gap {
                continue;
            }
            let is_cluster = |it: usize| self.scene.boxes[it].kind == ShapeKind::Cluster;
            if is_cluster(from) || is_cluster(to) {
                bundles.add((from, to), index, edge.role, without_numbers(&edge.name));
                continue;
            }
            for (from, to, mut leaving) in self.parts(index, edge, from, to) {
                let stands_for_several = |it: usize| !self.scene.boxes[it].hidden.is_empty();
                if stands_for_several(from) || stands_for_several(to) {
                    leaving.label = without_numbers(&leaving.label);
                }
                let place = self.scene.links.len();
                match met.entry((from, to, leaving.label.clone())) {
                    Entry::Occupied(mut drawn) => drawn.get_mut().1 += 1,
                    Entry::Vacant(free) if place < LINKS => {
                        free.insert((Some(place), 1));
                        self.scene.links.push(leaving.link(from, to));
                    }
                    Entry::Vacant(_) => {}
                }
            }
        }
        for ((_, _, label), (place, count)) in met {
            if let (Some(place), 2..) = (place, count)
                && !label.is_empty()
                && !label.contains("[x]")
            {
                let times = format!(" × {}", grouped(count));
                let link = &mut self.scene.links[place];
                link.label = name(&label, LABEL - times.len()) + &times;
            }
        }
        self.bundled(bundles);
    }

    /// The references of clusters.
    fn bundled(&mut self, bundles: Bundles) {
        for (at, shape) in self.scene.boxes.iter_mut().enumerate() {
            if let Some((names, title)) = bundles.within(at) {
                let names = name(&names, LABEL);
                let note = shape.note.iter().cloned().chain([names]);
                shape.note = Some(note.collect::<Vec<_>>().join(" · "));
                shape.title += &format!("\n{title} among them");
            }
        }
        let links = &self.scene.links;
        let drawn: Vec<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
        let (lines, left_out) = bundles.chosen(&drawn, self.scene.boxes.len());
        self.scene.untold += left_out;
        self.scene.links.extend(lines.into_iter().map(|line| Link {
            from: line.from,
            to: line.to,
            edge: Some(line.edge),
            label: line.label,
            title: line.title,
            role: line.role,
        }));
    }

    /// The reference as one link, or as one to each of the objects that it passes, but for those that another one has
    /// had already.
    fn parts(
        &mut self,
        index: usize,
        edge: &Edge,
        from: usize,
        to: usize,
    ) -> Vec<(usize, usize, Leaving)> {
        let owner = self.leak.graph.nodes.get(edge.from as usize);
        let owner = owner.map_or("", |node| &node.label);
        let last = Leaving {
            edge: Some(index),
            label: edge.name.clone(),
            title: reference_title(self.leak, owner, &edge.name, edge.role),
            role: edge.role,
        };
        if !self.passes(edge) {
            return vec![(from, to, last)];
        }
        let mut here = (from, End::Node(edge.from));
        let mut parts = vec![];
        for hop in &edge.through {
            let next_box = self.scene.boxes.len();
            let there = *self.hop_of.entry(hop.object).or_insert(next_box);
            if there == next_box {
                self.scene.boxes.push(Shape::of_hop(hop));
            }
            let leaving = Leaving {
                label: hop.into.clone(),
                role: match edge.role {
                    EdgeRole::Cut => EdgeRole::Path,
                    role => role,
                },
                ..last.clone()
            };
            let there = (there, End::Hop(hop.object));
            parts.push((here, there, leaving));
            here = there;
        }
        let label = edge.through.last().map(|hop| hop.onwards.clone());
        let label = label.unwrap_or_default();
        parts.push((here, (to, End::Node(edge.to)), Leaving { label, ..last }));
        parts.retain(|(from, to, it)| self.passed.insert((from.1, to.1, it.label.clone())));
        let parts = parts.into_iter();
        parts.map(|(from, to, it)| (from.0, to.0, it)).collect()
    }

    /// One box for what is not drawn around each box, and one for what the report leaves out.
    fn folds(&mut self, folds: Vec<Fold>) {
        for fold in folds {
            match self.box_of.get(&fold.at).copied() {
                Some(at) => self.fold(at, Shape::fold(self.leak, &fold)),
                None => self.scene.omitted += fold.nodes.len() as u64,
            }
        }
        let graph = &self.leak.graph;
        if graph.omitted == 0 {
            return;
        }
        if self.scene.boxes.is_empty() {
            self.scene.omitted = self.scene.omitted.saturating_add(graph.omitted);
        } else {
            let shape = Shape::left_out(graph.omitted, &graph.omitted_types);
            self.fold(self.scene.focus, shape);
        }
    }

    fn fold(&mut self, at: usize, shape: Shape) {
        let title = shape.title.clone();
        self.scene.links.push(Link {
            from: at,
            to: self.scene.boxes.len(),
            edge: None,
            label: String::new(),
            title,
            role: EdgeRole::Other,
        });
        self.scene.boxes.push(shape);
    }
}

/// A link before its ends are known.
#[derive(Clone)]
struct Leaving {
    edge: Option<usize>,
    label: String,
    title: String,
    role: EdgeRole,
}

impl Leaving {
    fn unknown() -> Self {
        Self {
            edge: None,
            label: String::new(),
            title: String::new(),
            role: EdgeRole::Cycle,
        }
    }

    fn link(self, from: usize, to: usize) -> Link {
        Link {
            from,
            to,
            edge: self.edge,
            label: name(&self.label, LABEL),
            title: self.title,
            role: self.role,
        }
    }
}

fn reference_title(leak: &Leak, owner: &str, edge: &str, role: EdgeRole) -> String {
    let remark = if role == EdgeRole::Cut {
        format!("\n{}", cut_meaning(leak, 1))
    } else {
        String::new()
    };
    format!("{} of {}{remark}", name(edge, TITLE), name(owner, TITLE))
}

/// Tooltip of the cut marker. It claims no more than is proven.
pub fn cut_meaning(leak: &Leak, count: usize) -> &'static str {
    match (leak.cuts.iter().all(|cut| cut.proven), count) {
        (true, 0..=1) => "the reference to remove",
        (true, _) => "the references to remove",
        (false, 0..=1) => "the reference to look at first",
        (false, _) => "the references to look at first",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Hop;
    use crate::render::sample_parts::edge;
    use crate::render::samples;

    #[test]
    fn the_ring_is_the_cycle_and_each_reference_is_drawn_once() {
        let report = samples::callback();
        let scene = scene(&report.leaks[0], Detail::All);
        // Two of the ring, three that hang on it, and one for what is left out.
        assert_eq!((scene.ring, scene.boxes.len()), (2, 6));
        let ends: Vec<_> = scene
            .links
            .iter()
            .map(|link| (link.from, link.to))
            .collect();
        assert_eq!(ends[..2], [(0, 1), (1, 0)]);
        assert_eq!(ends.len(), 6);
        assert!(scene.links[0].role == EdgeRole::Cut && scene.links[1].role == EdgeRole::Cycle);
        assert_eq!(scene.boxes[5].name, ["+ 3 more objects"]);
    }

    #[test]
    fn a_class_beside_the_leak_is_drawn_on_request_only() {
        let report = samples::callback();
        let leak = &report.leaks[0];
        let has_class = |detail| {
            let scene = scene(leak, detail);
            scene.boxes.iter().any(|shape| shape.node == Some(4))
        };
        assert!(!has_class(Detail::Leak) && has_class(Detail::All));
    }

    #[test]
    fn what_references_pass_is_drawn_on_request_and_once() {
        let report = samples::through_dictionary();
        let leak = &report.leaks[0];
        let folded = scene(leak, Detail::Leak);
        assert_eq!((folded.ring, folded.boxes.len()), (2, 3));
        let whole = scene(leak, Detail::Plumbing);
        // The owner's dictionary, which both its references pass, and the closure's tuple and cell.
        assert_eq!((whole.ring, whole.boxes.len()), (5, 6));
        let labels: Vec<&str> = whole.links.iter().map(|link| link.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                ".__dict__",
                "['callback']",
                ".__closure__",
                "[0]",
                ".cell_contents",
                "['tensor']"
            ]
        );
        assert_eq!(whole.links[1].role, EdgeRole::Cut);
        assert_eq!((whole.links[5].from, whole.links[5].to), (1, 5));
    }

    #[test]
    fn a_reference_that_several_pass_is_counted_once() {
        let mut report = samples::through_dictionary();
        let leak = &mut report.leaks[0];
        // Beside the cycle, another object whose dictionary has two of the objects.
        let from = leak.graph.nodes.len() as u32;
        leak.graph.nodes.push(leak.graph.nodes[0].clone());
        for (to, key) in [(0, "one"), (1, "two")] {
            let mut edge = edge(from, to, &format!(".{key}"), EdgeRole::Other);
            edge.through = vec![Hop {
                object: 77,
                label: "dict".to_owned(),
                into: ".__dict__".to_owned(),
                onwards: format!("['{key}']"),
            }];
            leak.graph.edges.push(edge);
        }
        let links = scene(leak, Detail::Plumbing).links;
        let labels = links.iter().map(|link| &*link.label);
        let labels: Vec<&str> = labels.filter(|it| it.starts_with(".__dict__")).collect();
        assert_eq!(labels, [".__dict__"; 2]);
    }

    #[test]
    fn the_way_out_of_what_a_long_cycle_leaves_out_is_drawn_once() {
        let mut report = samples::million_ring();
        let leak = &mut report.leaks[0];
        leak.cycle_omitted = 0;
        leak.cycle = vec![leak.cycle[0].clone(); 30];
        leak.graph.nodes = vec![leak.graph.nodes[0].clone(); 30];
        let next = |from| edge(from, (from + 1) % 30, ".next", EdgeRole::Cycle);
        leak.graph.edges = (0..30).map(next).collect();
        for (node, step) in (0..).zip(&mut leak.cycle) {
            (step.node, step.edge) = (Some(node), ".next".to_owned());
        }
        let scene = scene(leak, Detail::Leak);
        let gap = scene.boxes.iter().position(|it| it.kind == ShapeKind::Gap);
        let out = scene.links.iter().filter(|link| Some(link.from) == gap);
        let labels: Vec<&str> = out.map(|link| &*link.label).collect();
        assert_eq!(labels, [".next"]);
    }

    #[test]
    fn what_is_left_out_of_a_long_cycle_is_one_box() {
        let report = samples::million_ring();
        let scene = scene(&report.leaks[0], Detail::Leak);
        assert_eq!(scene.ring, 9);
        assert_eq!(scene.boxes[4].name, ["⋮ 999,992 more objects"]);
        let gaps = |shape: &&Shape| shape.kind == ShapeKind::Gap;
        assert_eq!(scene.boxes.iter().filter(gaps).count(), 1);
    }

    #[test]
    fn a_long_listed_cycle_is_drawn_without_its_middle() {
        let mut report = samples::million_ring();
        let leak = &mut report.leaks[0];
        leak.cycle_omitted = 0;
        leak.cycle = vec![leak.cycle[0].clone(); 300];
        for (detail, shown) in [(Detail::Leak, SHORT_RING), (Detail::All, RING)] {
            let scene = scene(leak, detail);
            assert_eq!(scene.ring, shown + 1);
            assert_eq!(
                scene.boxes[shown / 2].name,
                [format!("⋮ {} more objects", 300 - shown)]
            );
        }
        // The first view leaves out neither the cut nor where a way to the memory begins.
        leak.cycle.truncate(RING);
        leak.buffers[0].from_step = RING as u32 / 2;
        assert_eq!(scene(leak, Detail::Leak).ring, RING);
    }
}
