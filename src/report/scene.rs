//! What a drawing of a leak shows: the cycle as a ring of boxes, and what hangs off it.

use std::collections::HashMap;

use super::model::{Buffer, Edge, EdgeRole, Leak, Location, Node, NodeKind, Step};
use super::words::{
    counted, cut_of, element_type, human_bytes, name, short_location, shortened, steps_before_gap,
};

/// More boxes than this are not drawn.
pub const BOXES: usize = 500;
/// A longer cycle is drawn without its middle.
const RING: usize = 24;
/// How many references are drawn.
const LINKS: usize = 2000;
/// How many characters a line of a box takes.
pub const LINE: usize = 36;
/// How many characters of a reference's name are shown.
pub const LABEL: usize = 26;
/// How many characters the hover text of a box or a reference takes.
const TITLE: usize = 1000;

/// The boxes and links of a drawing. The first [`Scene::ring`] boxes are the cycle, in order.
pub struct Scene {
    pub ring: usize,
    /// The box of the ring from which the largest buffer hangs.
    pub focus: usize,
    pub boxes: Vec<Shape>,
    /// The first [`Scene::ring`] links are the cycle's own, each from its box to the next.
    pub links: Vec<Link>,
    /// How many objects of the leak are not drawn.
    pub omitted: u64,
}

/// One box: an object, or the steps left out of a long cycle.
pub struct Shape {
    /// Index of the object in [`super::model::Graph::nodes`].
    pub node: Option<u32>,
    pub kind: ShapeKind,
    /// The object's name, on one line or a few.
    pub name: Vec<String>,
    /// Where it is, or what a buffer is made of.
    pub note: Option<String>,
    /// The size of what it holds, if that is a buffer.
    pub size: Option<String>,
    /// All of it in full, for who hovers.
    pub title: String,
}

/// How a box is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ShapeKind {
    Object(NodeKind),
    /// Stands for the middle of a long cycle.
    Gap,
}

/// One reference, between two boxes.
pub struct Link {
    pub from: usize,
    pub to: usize,
    /// Index of the reference in [`super::model::Graph::edges`].
    pub edge: Option<usize>,
    pub label: String,
    pub title: String,
    pub role: EdgeRole,
}

/// Chooses what of the leak is drawn.
pub fn scene(leak: &Leak) -> Scene {
    let mut scene = Scene {
        ring: 0,
        focus: 0,
        boxes: vec![],
        links: vec![],
        omitted: 0,
    };
    let mut box_of = HashMap::new();
    draw_ring(&mut scene, leak, &mut box_of);
    draw_rest(&mut scene, leak, &mut box_of);
    let left_out = leak.graph.nodes.len().saturating_sub(box_of.len()) as u64;
    scene.omitted = leak.graph.omitted.saturating_add(left_out);
    let owner = leak
        .buffers
        .first()
        .and_then(|b| leak.cycle.get(b.from_step as usize));
    scene.focus = owner
        .and_then(|step| box_of.get(&step.node))
        .copied()
        .unwrap_or(0);
    scene.focus = scene.focus.min(scene.ring.saturating_sub(1));
    scene
}

/// The cycle's steps as boxes, and the links between them.
fn draw_ring(scene: &mut Scene, leak: &Leak, box_of: &mut HashMap<u32, usize>) {
    let steps = &leak.cycle;
    let before = steps_before_gap(leak).min(RING / 2);
    let after = if steps.len() > RING {
        RING / 2
    } else {
        steps.len() - before
    };
    let hidden = &steps[before..steps.len() - after];
    let omitted = leak.cycle_omitted.saturating_add(hidden.len() as u64);
    let mut leaving: Vec<Option<&Step>> = vec![];
    let draw = |scene: &mut Scene, step: &Step, box_of: &mut HashMap<u32, usize>| {
        box_of.entry(step.node).or_insert(scene.boxes.len());
        scene.boxes.push(of_step(leak, step));
    };
    for step in &steps[..before] {
        draw(scene, step, box_of);
        leaving.push(Some(step));
    }
    if omitted > 0 && !steps.is_empty() {
        for step in hidden {
            box_of.entry(step.node).or_insert(scene.boxes.len());
        }
        scene.boxes.push(gap(omitted));
        leaving.push(None);
    }
    for step in &steps[steps.len() - after..] {
        draw(scene, step, box_of);
        leaving.push(Some(step));
    }
    scene.ring = scene.boxes.len();
    for (from, step) in leaving.into_iter().enumerate() {
        let to = (from + 1) % scene.ring;
        let to_node = scene.boxes[to].node;
        scene.links.push(match step {
            Some(step) => of_step_edge(leak, step, (from, to), to_node),
            None => Link {
                from,
                to,
                edge: None,
                label: String::new(),
                title: String::new(),
                role: EdgeRole::Cycle,
            },
        });
    }
}

fn gap(omitted: u64) -> Shape {
    let text = counted(omitted, "more object", "more objects");
    Shape {
        node: None,
        kind: ShapeKind::Gap,
        name: vec![format!("⋮ {text}")],
        note: None,
        size: None,
        title: format!("{text} of the cycle"),
    }
}

/// The reference of a step to the next, with the graph's own index if it is there.
fn of_step_edge(leak: &Leak, step: &Step, ends: (usize, usize), to: Option<u32>) -> Link {
    let edges = &leak.graph.edges;
    let index = edges
        .iter()
        .position(|e| e.from == step.node && Some(e.to) == to && e.name == step.edge);
    let cut = cut_of(leak, step).is_some();
    let role = if cut { EdgeRole::Cut } else { EdgeRole::Cycle };
    Link {
        from: ends.0,
        to: ends.1,
        edge: index,
        label: name(&step.edge, LABEL),
        title: reference_title(leak, &step.label, &step.edge, role),
        role,
    }
}

/// The other objects, buffers and the ways to them first, and all references among them.
fn draw_rest(scene: &mut Scene, leak: &Leak, box_of: &mut HashMap<u32, usize>) {
    let nodes = &leak.graph.nodes;
    let ways = leak
        .buffers
        .iter()
        .flat_map(|b| b.path_nodes.iter().copied().chain(b.node));
    for index in ways.chain(0..nodes.len() as u32) {
        let Some(node) = nodes.get(index as usize) else {
            continue;
        };
        if scene.boxes.len() < BOXES && !box_of.contains_key(&index) {
            box_of.insert(index, scene.boxes.len());
            scene.boxes.push(of_node(leak, node, index));
        }
    }
    let drawn: Vec<Option<usize>> = scene.links.iter().map(|link| link.edge).collect();
    for (index, edge) in leak.graph.edges.iter().enumerate() {
        let ends = (box_of.get(&edge.from), box_of.get(&edge.to));
        let (Some(&from), Some(&to)) = ends else {
            continue;
        };
        let within_gap = from == to && scene.boxes[from].kind == ShapeKind::Gap;
        if !drawn.contains(&Some(index)) && !within_gap && scene.links.len() < LINKS {
            let label = name(&edge.name, LABEL);
            let title = of_edge_title(leak, edge);
            scene.links.push(Link {
                from,
                to,
                edge: Some(index),
                label,
                title,
                role: edge.role,
            });
        }
    }
}

fn of_edge_title(leak: &Leak, edge: &Edge) -> String {
    let owner = leak
        .graph
        .nodes
        .get(edge.from as usize)
        .map_or("", |node| &node.label);
    reference_title(leak, owner, &edge.name, edge.role)
}

fn reference_title(leak: &Leak, owner: &str, edge: &str, role: EdgeRole) -> String {
    let remark = if role == EdgeRole::Cut {
        format!("\n{}", cut_meaning(leak))
    } else {
        String::new()
    };
    format!("{} of {}{remark}", name(edge, TITLE), name(owner, TITLE))
}

/// What the scissors say: no more than is proven.
pub fn cut_meaning(leak: &Leak) -> &'static str {
    match leak.cuts.iter().all(|cut| cut.proven) {
        true => "the reference to remove",
        false => "the reference to look at first",
    }
}

fn of_step(leak: &Leak, step: &Step) -> Shape {
    let mut shape = match leak.graph.nodes.get(step.node as usize) {
        Some(node) => of_node(leak, node, step.node),
        None => Shape {
            node: Some(step.node),
            kind: ShapeKind::Object(NodeKind::Object),
            name: vec![],
            note: step
                .location
                .as_ref()
                .map(|at| name(&short_location(at), LINE)),
            size: None,
            title: title(&step.label, &step.type_name, step.location.as_ref(), None),
        },
    };
    shape.name = wrapped(&step.label);
    shape
}

fn of_node(leak: &Leak, node: &Node, index: u32) -> Shape {
    let buffer = node
        .buffer
        .and_then(|index| leak.buffers.get(index as usize));
    let note = match buffer {
        Some(buffer) => Some(format!(
            "{} on {}",
            element_type(buffer),
            name(&buffer.device, 12)
        )),
        None => node.location.as_ref().map(short_location),
    };
    Shape {
        node: Some(index),
        kind: ShapeKind::Object(node.kind),
        name: wrapped(&node.label),
        note: note.map(|note| name(&note, LINE)),
        size: buffer.map(|buffer| human_bytes(buffer.bytes)),
        title: title(&node.label, &node.type_name, node.location.as_ref(), buffer),
    }
}

fn title(label: &str, ty: &str, location: Option<&Location>, buffer: Option<&Buffer>) -> String {
    let mut lines = vec![name(label, TITLE), format!("type {}", name(ty, TITLE))];
    lines.extend(location.map(|at| format!("at {}", name(&at.to_string(), TITLE))));
    lines.extend(buffer.map(|b| format!("holds {} at {:#x}", human_bytes(b.bytes), b.pointer)));
    lines.join("\n")
}

/// A name on up to three lines that part before a dot or after a space; what is longer is
/// shortened in the last.
fn wrapped(label: &str) -> Vec<String> {
    let label = name(label, TITLE);
    let mut rest: Vec<char> = label.chars().collect();
    let mut lines = vec![];
    while rest.len() > LINE && lines.len() < 2 {
        let parts = |at: &usize| rest[*at] == '.' || rest[*at - 1] == ' ';
        let at = (4..=LINE).rev().find(parts).unwrap_or(LINE);
        let tail = rest.split_off(at);
        lines.push(String::from_iter(rest).trim_end().to_owned());
        rest = tail;
    }
    lines.push(shortened(&String::from_iter(rest), LINE).into_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_ring_is_the_cycle_and_each_reference_is_drawn_once() {
        let report = samples::callback();
        let scene = scene(&report.leaks[0]);
        assert_eq!(
            (scene.ring, scene.boxes.len(), scene.links.len()),
            (2, 5, 5)
        );
        let ends: Vec<_> = scene
            .links
            .iter()
            .map(|link| (link.from, link.to))
            .collect();
        assert_eq!(ends[..2], [(0, 1), (1, 0)]);
        assert!(scene.links[0].role == EdgeRole::Cut && scene.links[1].role == EdgeRole::Cycle);
        assert_eq!(scene.omitted, 3);
    }

    #[test]
    fn what_is_left_out_of_a_long_cycle_is_one_box() {
        let report = samples::million_ring();
        let scene = scene(&report.leaks[0]);
        assert_eq!(scene.ring, 9);
        assert_eq!(scene.boxes[4].name, ["⋮ 999,992 more objects"]);
        assert!(
            scene
                .boxes
                .iter()
                .filter(|b| b.kind == ShapeKind::Gap)
                .count()
                == 1
        );
    }

    #[test]
    fn a_long_listed_cycle_is_drawn_without_its_middle() {
        let mut report = samples::million_ring();
        let leak = &mut report.leaks[0];
        leak.cycle_omitted = 0;
        leak.cycle = vec![leak.cycle[0].clone(); 300];
        let scene = scene(leak);
        assert_eq!(scene.ring, RING + 1);
        assert_eq!(
            scene.boxes[RING / 2].name,
            [format!("⋮ {} more objects", 300 - RING)]
        );
    }

    #[test]
    fn limits_hold_and_buffers_are_drawn_first() {
        let mut report = samples::dense(3 * BOXES as u32);
        let leak = &mut report.leaks[0];
        leak.graph.nodes.swap(3, 3 * BOXES - 1);
        leak.buffers[0].node = Some(3 * BOXES as u32 - 1);
        let scene = scene(leak);
        assert_eq!(scene.boxes.len(), BOXES);
        assert!(scene.links.len() <= LINKS);
        assert_eq!(
            scene
                .boxes
                .iter()
                .filter(|shape| shape.size.is_some())
                .count(),
            1
        );
        assert_eq!(scene.omitted, 3 + 2 * BOXES as u64);
    }

    #[test]
    fn names_part_where_a_reader_would_part_them() {
        assert_eq!(wrapped("short"), ["short"]);
        assert_eq!(
            wrapped("function Model.__init__.<locals>.<lambda>"),
            ["function Model.__init__.<locals>", ".<lambda>"]
        );
        assert_eq!(
            wrapped("function AwaitableTensorWithViewCallBack.__init__.<locals>.<lambda>"),
            [
                "function",
                "AwaitableTensorWithViewCallBack",
                ".__init__.<locals>.<lambda>"
            ]
        );
        for line in wrapped(&"x".repeat(10_000)) {
            assert!(line.chars().count() <= LINE);
        }
    }
}
