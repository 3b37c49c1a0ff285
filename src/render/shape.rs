//! What stands in a box of a drawing.

use std::collections::BTreeMap;

use super::stacks::{Held, Rest, Step as Drawn};
use super::subgraph::Fold;
use crate::model::device_memory::on_device;
use crate::model::report::{Buffer, Hop, Leak, Location, Node, NodeKind, Step};
use crate::model::words::{counted, element_type, human_bytes, name, short_location, shortened};

/// How many characters a line of a box takes.
pub const LINE: usize = 36;
/// How many characters of a reference's name are shown.
pub const LABEL: usize = 26;
/// How many characters the hover text of a box or a reference takes.
pub const TITLE: usize = 1000;
/// How many types a box that stands for several objects names.
const TYPES: usize = 2;

/// One box: an object, or one that stands for several.
#[derive(Default)]
pub struct Shape {
    /// Index of the object in [`crate::model::report::Graph::nodes`].
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
    /// The objects that it stands for, as indices in [`crate::model::report::Graph::nodes`].
    pub hidden: Vec<u32>,
    /// The name of the drawing that shows them by themselves.
    pub opens: Option<String>,
}

/// How a box is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShapeKind {
    Object(NodeKind),
    /// Stands for the middle of a long cycle.
    Gap,
    /// Stands for what is not drawn around a box.
    #[default]
    More,
    /// Stands for objects of one type.
    Cluster,
    /// Memory of which no other box shows what holds it.
    Stack,
}

impl Shape {
    pub fn of_step(leak: &Leak, step: &Step) -> Self {
        let drawn = step
            .node
            .and_then(|index| Some((index, leak.graph.nodes.get(index as usize)?)));
        let mut shape = match drawn {
            Some((index, node)) => Self::of_node(leak, node, index),
            None => Self {
                node: step.node,
                kind: ShapeKind::Object(NodeKind::Object),
                note: step
                    .location
                    .as_ref()
                    .map(|at| name(&short_location(at), LINE)),
                title: title(&step.label, &step.type_name, step.location.as_ref(), None),
                ..Self::default()
            },
        };
        shape.name = wrapped(&step.label);
        shape
    }

    pub fn of_node(leak: &Leak, node: &Node, index: u32) -> Self {
        let buffer = node
            .buffer
            .and_then(|index| leak.buffers.get(index as usize));
        let note = match buffer {
            Some(buffer) => {
                let device = on_device(&name(&buffer.device, 12));
                Some(format!("{} {device}", element_type(buffer)))
            }
            None => node.location.as_ref().map(short_location),
        };
        Self {
            node: Some(index),
            kind: ShapeKind::Object(node.kind),
            name: wrapped(&node.label),
            note: note.map(|note| name(&note, LINE)),
            size: buffer.map(|buffer| human_bytes(buffer.bytes)),
            title: title(&node.label, &node.type_name, node.location.as_ref(), buffer),
            ..Self::default()
        }
    }

    /// An object of which only this is known.
    pub fn of_object(label: &str, ty: &str, location: Option<&Location>, kind: NodeKind) -> Self {
        Self {
            kind: ShapeKind::Object(kind),
            name: wrapped(label),
            note: location.map(|at| name(&short_location(at), LINE)),
            title: title(label, ty, location, None),
            ..Self::default()
        }
    }

    /// So many objects left out of the middle of what they are a part of.
    pub fn gap(omitted: u64, of: &str) -> Self {
        let text = counted(omitted, "more object", "more objects");
        Self {
            kind: ShapeKind::Gap,
            name: vec![format!("⋮ {text}")],
            title: format!("{text} of {of}"),
            ..Self::default()
        }
    }

    /// The middle of a path to a buffer.
    pub fn middle(step: &Drawn) -> Self {
        let hidden: Vec<u32> = [step.index].into_iter().chain(step.alike.clone()).collect();
        Self {
            hidden: hidden.clone(),
            ..Self::gap(hidden.len() as u64, "the path")
        }
    }

    /// The box of an object, for those too that look the same and stand in the same place; with
    /// the size of what they hold.
    pub fn stacked(mut self, step: &Drawn, held: Option<&Held>) -> Self {
        let mut count = step.alike.len() as u64 + 1;
        if let Some(held) = held {
            self.size = Some(held.size.clone());
            count = held.unlike.unwrap_or(1);
            if held.unlike.is_some() {
                let what = self.note.take();
                self.note = what.map(|what| name(&format!("such as {what}"), LINE));
            }
        }
        if let (2.., Some(first)) = (count, self.name.first_mut()) {
            *first = format!("{} × {first}", grouped_of(count));
        }
        self.hidden.clone_from(&step.alike);
        self
    }

    /// Buffers without a box of their own, alone in the drawing or beside others that have one; drawn as memory or as what
    /// is left out.
    pub fn rest(rest: &Rest, is_alone: bool, is_memory: bool) -> Self {
        let what = match (&rest.type_name, rest.count) {
            (Some(type_name), _) => name(type_name, LINE - 8),
            (None, 1) => "buffer".to_owned(),
            (None, _) => "buffers".to_owned(),
        };
        let kind = match is_memory {
            true => ShapeKind::Stack,
            false => ShapeKind::More,
        };
        let more = if is_alone { "" } else { "+ " };
        let count = match rest.count {
            1 => String::new(),
            count => format!("{} ", grouped_of(count)),
        };
        Self {
            kind,
            name: vec![format!("{more}{count}{what}")],
            note: rest.what.as_ref().map(|what| name(what, LINE)),
            size: Some(rest.size.clone()),
            title: format!(
                "{}: the report does not say which of the drawn objects hold them",
                counted(rest.count, "buffer", "buffers")
            ),
            hidden: rest.nodes.clone(),
            ..Self::default()
        }
    }

    /// An object of the interpreter's own that a reference passes.
    pub fn of_hop(hop: &Hop) -> Self {
        Self {
            kind: ShapeKind::Object(NodeKind::Plumbing),
            name: wrapped(&hop.label),
            title: name(&hop.label, TITLE),
            ..Self::default()
        }
    }

    /// Objects that are described but not drawn.
    pub fn fold(leak: &Leak, fold: &Fold) -> Self {
        let Sorts { types, bytes, .. } = Sorts::of(leak, &fold.nodes);
        let mut shape = Self::left_out(fold.nodes.len() as u64, &types);
        shape.size = (bytes > 0).then(|| human_bytes(bytes));
        shape.hidden.clone_from(&fold.nodes);
        shape.opens = fold.number.map(|number| format!("fold-{number}"));
        shape
    }

    /// Objects of one type, or of several, drawn as one box that unfolds.
    pub fn cluster(leak: &Leak, objects: &Drawn, number: usize) -> Self {
        let hidden: Vec<u32> = [objects.index]
            .into_iter()
            .chain(objects.alike.clone())
            .collect();
        let Sorts {
            types,
            bytes,
            location,
        } = Sorts::of(leak, &hidden);
        let count = hidden.len() as u64;
        let (name_line, note) = match &types[..] {
            [(ty, _)] => (
                format!("{} × {}", grouped_of(count), last_part(ty)),
                location.as_ref().map(short_location),
            ),
            _ => (counted(count, "object", "objects"), some_types(&types)),
        };
        Self {
            kind: ShapeKind::Cluster,
            name: vec![name(&name_line, LINE)],
            note: note.map(|note| name(&note, LINE)),
            size: (bytes > 0).then(|| human_bytes(bytes)),
            title: format!("{}{}", counted(count, "object", "objects"), listed(&types)),
            hidden,
            opens: Some(format!("all-{number}")),
            ..Self::default()
        }
    }

    /// So many objects, of which some types are known.
    pub fn left_out(count: u64, types: &[(String, u64)]) -> Self {
        let (text, note) = match types {
            [(ty, number)] if *number == count => {
                let text = format!("+ {} more {}", grouped_of(count), last_part(ty));
                (text, None)
            }
            _ => {
                let text = counted(count, "more object", "more objects");
                (format!("+ {text}"), some_types(types))
            }
        };
        let objects = counted(count, "object", "objects");
        Self {
            kind: ShapeKind::More,
            name: vec![text],
            note: note.map(|note| name(&note, LINE)),
            title: format!("{objects} not drawn here{}", listed(types)),
            ..Self::default()
        }
    }
}

/// What several objects are.
struct Sorts {
    /// The types with the number of their objects, the most frequent first.
    types: Vec<(String, u64)>,
    /// What they hold.
    bytes: u64,
    /// Where they are, if that is one place.
    location: Option<Location>,
}

impl Sorts {
    fn of(leak: &Leak, objects: &[u32]) -> Self {
        let nodes: Vec<&Node> = objects
            .iter()
            .filter_map(|&index| leak.graph.nodes.get(index as usize))
            .collect();
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut bytes = 0u64;
        for node in &nodes {
            *counts.entry(&node.type_name).or_default() += 1;
            let buffer = node.buffer.and_then(|i| leak.buffers.get(i as usize));
            bytes = bytes.saturating_add(buffer.map_or(0, |buffer| buffer.bytes));
        }
        let mut types: Vec<(String, u64)> =
            counts.into_iter().map(|(t, n)| (t.to_owned(), n)).collect();
        types.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let first = nodes.first().and_then(|node| node.location.clone());
        let location = first.filter(|at| nodes.iter().all(|it| it.location.as_ref() == Some(at)));
        Self {
            types,
            bytes,
            location,
        }
    }
}

/// A type without its module.
fn last_part(ty: &str) -> String {
    name(ty.rsplit('.').next().unwrap_or(ty), LINE / 2)
}

/// The most frequent types with their numbers.
fn some_types(types: &[(String, u64)]) -> Option<String> {
    let named: Vec<String> = types
        .iter()
        .take(TYPES)
        .map(|(ty, number)| format!("{} {}", grouped_of(*number), last_part(ty)))
        .collect();
    let rest = if types.len() > TYPES { ", …" } else { "" };
    (!named.is_empty()).then(|| format!("{}{rest}", named.join(", ")))
}

/// A line for each type, up to a limit.
fn listed(types: &[(String, u64)]) -> String {
    let line = |(ty, number): &(String, u64)| {
        format!("\n{} {}", grouped_of(*number), name(ty, TITLE / 10))
    };
    types.iter().take(20).map(line).collect()
}

fn grouped_of(number: u64) -> String {
    crate::model::words::grouped(number)
}

fn title(label: &str, ty: &str, location: Option<&Location>, buffer: Option<&Buffer>) -> String {
    let mut lines = vec![
        name(&label.replace('`', ""), TITLE),
        format!("type {}", name(ty, TITLE)),
    ];
    lines.extend(location.map(|at| format!("at {}", name(&at.to_string(), TITLE))));
    lines.extend(buffer.map(|b| format!("holds {} at {:#x}", human_bytes(b.bytes), b.pointer)));
    lines.join("\n")
}

/// A name on up to three lines that part before a dot or after a space; what is longer is
/// shortened in the last.
fn wrapped(label: &str) -> Vec<String> {
    // A box has no code in it.
    let label = name(&label.replace('`', ""), TITLE);
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
    use super::*;

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

    #[test]
    fn what_is_left_out_says_of_what_types() {
        let one = [("model.Node".to_owned(), 9_940)];
        assert_eq!(Shape::left_out(9_940, &one).name, ["+ 9,940 more Node"]);
        let more = Shape::left_out(9_941, &one);
        assert_eq!(more.name, ["+ 9,941 more objects"]);
        assert_eq!(more.note.as_deref(), Some("9,940 Node"));
    }
}
