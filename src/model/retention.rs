//! The paths that keep objects alive: the model, its text and its JSON.

use petgraph::visit::EdgeRef;
use serde::{Deserialize, Serialize};

use super::lines::{Ink, Lines};
use super::report::Location;
use super::words::{counted, grouped, human_bytes, name, place_within, short_location};
use crate::capture::{Place, ReferenceName};
use crate::cpython::ObjectKind;
use crate::graph::{LeakGraph, LeakNode};
use crate::model::report::Step;
use crate::model::words::{padded, without_counts};

/// The version of the JSON.
const SCHEMA: u32 = 1;
/// Names longer than this are shortened in their middle.
const NAME: usize = 200;
/// Maximum number of steps in the one-line form; the middle of a longer path is left out.
const WORDS_STEPS: usize = 12;
/// Maximum width of an object's name in the text, so that locations form a column.
const LABEL: usize = 56;

/// The paths that keep objects alive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Retention {
    /// Version of this format: 1.
    pub schema: u32,
    /// The objects asked about.
    pub objects: Vec<Kept>,
    /// Distinct paths from a GC root to one of them, shortest and most telling first.
    pub paths: Vec<Path>,
    /// Number of further paths to the same objects.
    pub paths_omitted: u64,
    /// Paths from one of them through C++ back to itself, which no collection can free.
    pub loops: Vec<Path>,
    /// Remarks about the result.
    pub notes: Vec<String>,
    /// How long the search paused the program, in milliseconds.
    pub pause_ms: f64,
}

/// An object asked about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Type of the object, with its module unless that is `builtins` or `__main__`.
    pub type_name: String,
    /// The object in a few words.
    pub label: String,
    /// Bytes of the memory that it holds, if it is a tensor or an array.
    pub bytes: Option<u64>,
    /// The device of that memory.
    pub device: Option<String>,
}

/// Kind of the GC root of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootKind {
    /// An imported module.
    Module,
    /// A function call that a thread is running.
    Local,
    /// A reference from C or C++ that no Python object accounts for.
    Outside,
    /// Nothing: a collection would free it.
    Garbage,
    /// The object itself, through C++: nothing will free it.
    Itself,
    #[default]
    Unknown,
}

impl RootKind {
    /// The kind in a word, as the JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Local => "local",
            Self::Outside => "outside",
            Self::Garbage => "garbage",
            Self::Itself => "itself",
            Self::Unknown => "unknown",
        }
    }
}

/// A path from a GC root to an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Path {
    pub root: RootKind,
    /// Readable name of the root: ``module `train` ``.
    pub root_words: String,
    /// The whole path in one line.
    pub words: String,
    /// The objects on the path; the object asked about comes last.
    pub steps: Vec<Step>,
    /// Number of paths that differ only in an index.
    pub alike: u64,
    /// The objects that it leads to, as indices in [`Retention::objects`].
    pub leads_to: Vec<u32>,
    /// Of each step, what is known while the look lasts; empty afterwards.
    #[serde(skip)]
    pub(crate) on_way: Vec<OnWay>,
}

/// What only the look that found a way knows of an object on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OnWay {
    /// The object in a word or two: `list, 20 items`.
    pub noun: String,
    /// Its number in that look.
    pub object: Option<u32>,
}

/// A root, as far as words need it.
#[derive(Clone, Debug)]
pub enum Beginning {
    Module(String),
    Local {
        function: String,
        place: Option<Place>,
        thread: String,
    },
    Outside,
    Garbage,
    Itself,
}

impl Path {
    /// The path along a folded graph that is one chain, whose first node is the root's.
    pub fn new(beginning: &Beginning, graph: &LeakGraph) -> Self {
        let mut nodes: Vec<&LeakNode> = Vec::new();
        let mut edges: Vec<&ReferenceName> = Vec::new();
        let mut current = graph.node_indices().next();
        while let Some(index) = current {
            nodes.push(&graph[index]);
            let next = graph.edges(index).next();
            current = next.map(|edge| {
                edges.push(&edge.weight().name);
                edge.target()
            });
            if nodes.len() > graph.node_count() {
                break;
            }
        }
        let steps = nodes
            .iter()
            .enumerate()
            .map(|(i, node)| Step {
                type_name: node.description.type_name.clone(),
                label: node.description.label.clone(),
                location: node.description.place.as_ref().map(location),
                edge: edges.get(i).map(ToString::to_string).unwrap_or_default(),
                ..Step::default()
            })
            .collect();
        let on_way = nodes.iter().map(|node| OnWay {
            noun: noun(Some(node)),
            object: node.object,
        });
        Self {
            root: beginning.kind(),
            root_words: beginning.words(),
            words: words(beginning, &nodes, &edges),
            steps,
            alike: 1,
            leads_to: Vec::new(),
            on_way: on_way.collect(),
        }
    }

    /// Where the program has the last object: the words without what it is, and without the numbers of
    /// items on the way, so that they stay the same while a container grows.
    pub fn owner(&self) -> String {
        let noun = self.on_way.last().map_or("", |step| step.noun.as_str());
        let words = self.words.strip_suffix(noun).unwrap_or(&self.words);
        let words = words.strip_suffix(" → ").unwrap_or(&self.words);
        without_counts(words.strip_suffix(" → .__dict__").unwrap_or(words))
    }
}

impl Beginning {
    fn kind(&self) -> RootKind {
        match self {
            Self::Module(_) => RootKind::Module,
            Self::Local { .. } => RootKind::Local,
            Self::Outside => RootKind::Outside,
            Self::Garbage => RootKind::Garbage,
            Self::Itself => RootKind::Itself,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Module(module) => format!("module `{module}`"),
            Self::Local {
                function,
                place,
                thread,
            } => format!("frame of {}", in_function(function, place.as_ref(), thread)),
            Self::Outside => "referenced from C or C++".to_owned(),
            Self::Garbage => "garbage, which a collection would free".to_owned(),
            Self::Itself => "itself, through C++".to_owned(),
        }
    }
}

/// `` `train_step`, train.py:88, thread MainThread``.
pub fn in_function(function: &str, place: Option<&Place>, thread: &str) -> String {
    let mut words = format!("`{function}`");
    if let Some(place) = place {
        words += &format!(", {}", short_location(&location(place)));
    }
    if !thread.is_empty() {
        words += &format!(", thread {thread}");
    }
    words
}

/// The whole path in one line.
fn words(beginning: &Beginning, nodes: &[&LeakNode], edges: &[&ReferenceName]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut from = 0;
    match beginning {
        Beginning::Module(module) => parts.push(format!("module `{module}`")),
        Beginning::Local {
            function,
            place,
            thread,
        } => {
            let place = in_function(function, place.as_ref(), thread);
            match edges.first() {
                Some(ReferenceName::Local(variable)) => {
                    parts.push(format!("local `{variable}` in {place}"));
                    from = 1;
                }
                _ => parts.push(format!("frame of {place}")),
            }
        }
        Beginning::Outside => parts.push("referenced from C or C++".to_owned()),
        Beginning::Garbage => parts.push("referenced by garbage only".to_owned()),
        Beginning::Itself => parts.push("itself".to_owned()),
    }
    // The first node is the root itself where that has a name, else an object.
    if matches!(
        beginning,
        Beginning::Outside | Beginning::Garbage | Beginning::Itself
    ) {
        parts.push(noun(nodes.first().copied()));
    } else if from == 1 && nodes.len() > 2 {
        annotate(&mut parts, nodes.get(1).copied());
    }
    while from < edges.len() {
        let is_first = from == 0;
        let node = nodes.get(from + 1).copied();
        // A traceback keeps the frames of the calls that the exception passed.
        if let Some((local, next)) = local_of_traceback(nodes, edges, from) {
            let holder = match (beginning, parts.len()) {
                (Beginning::Module(module), 1) => match edges[from] {
                    ReferenceName::Attribute(name) => format!("`{module}.{name}`"),
                    _ => parts.join(" → "),
                },
                _ => format!("{} → {}", parts.join(" → "), edge_words(edges[from], false)),
            };
            parts = vec![format!("{local}, kept by the traceback in {holder}")];
            from = next;
            if from < edges.len() {
                annotate(&mut parts, nodes.get(from).copied());
            }
            continue;
        }
        let in_module = is_first && matches!(beginning, Beginning::Module(_));
        parts.push(edge_words(edges[from], in_module));
        if from + 1 < edges.len() {
            annotate(&mut parts, node);
        }
        from += 1;
    }
    if !matches!(
        beginning,
        Beginning::Outside | Beginning::Garbage | Beginning::Itself
    ) || nodes.len() > 1
    {
        parts.push(noun(nodes.last().copied()));
    }
    if parts.len() > WORDS_STEPS {
        let tail = parts.split_off(parts.len() - WORDS_STEPS / 2);
        let omitted = parts.len() - WORDS_STEPS / 2;
        parts.truncate(WORDS_STEPS / 2);
        parts.push(format!("… {omitted} more …"));
        parts.extend(tail);
    }
    parts.join(" → ")
}

/// If the reference at `from` leads to an exception or a traceback that leads to a frame and on to
/// a variable: that variable in words, and the position behind it.
fn local_of_traceback(
    nodes: &[&LeakNode],
    edges: &[&ReferenceName],
    from: usize,
) -> Option<(String, usize)> {
    let kind = |at: usize| nodes.get(at).map(|node| node.description.kind);
    let mut at = from + 1;
    let mut through_traceback = false;
    while matches!(
        kind(at),
        Some(ObjectKind::Exception | ObjectKind::Traceback)
    ) {
        through_traceback |= kind(at) == Some(ObjectKind::Traceback);
        at += 1;
    }
    // The last frame before the variable: each refers to the one that called it.
    let mut frame = None;
    while through_traceback && kind(at) == Some(ObjectKind::Frame) {
        frame = nodes.get(at);
        at += 1;
    }
    let frame = frame?;
    let Some(ReferenceName::Local(variable)) = edges.get(at - 1) else {
        return None;
    };
    let function = frame.description.label.trim_start_matches("frame of ");
    let place = in_function(function, frame.description.place.as_ref(), "");
    Some((format!("local `{variable}` in {place}"), at))
}

/// A reference in words.
fn edge_words(edge: &ReferenceName, in_module: bool) -> String {
    match edge {
        ReferenceName::Attribute(attribute) if in_module => format!("`{attribute}`"),
        other => name(&other.to_string(), NAME),
    }
}

/// Adds to the last part what its object is, where that tells something.
fn annotate(parts: &mut [String], node: Option<&LeakNode>) {
    let (Some(last), Some(node)) = (parts.last_mut(), node) else {
        return;
    };
    let words = noun(Some(node));
    if !words.is_empty() {
        *last += &format!(" ({words})");
    }
}

/// An object in a word or two: `list, 4,812 items`, `Trainer`, `function f`.
fn noun(node: Option<&LeakNode>) -> String {
    let Some(node) = node else {
        return String::new();
    };
    let description = &node.description;
    let short = |full: &str| full.rsplit('.').next().unwrap_or(full).to_owned();
    match description.kind {
        ObjectKind::Instance | ObjectKind::Cell | ObjectKind::Traceback => {
            short(&description.type_name)
        }
        ObjectKind::Dict
        | ObjectKind::List
        | ObjectKind::Tuple
        | ObjectKind::Set
        | ObjectKind::Deque => {
            let length = description
                .details
                .iter()
                .find(|(name, _)| name == "length")
                .and_then(|(_, length)| length.parse::<u64>().ok());
            let kind = short(&description.type_name);
            match length {
                Some(1) => format!("{kind}, 1 item"),
                Some(length) => format!("{kind}, {} items", grouped(length)),
                None => kind,
            }
        }
        _ => name(&description.label, NAME),
    }
}

fn location(place: &Place) -> Location {
    Location {
        file: place.file.clone(),
        line: place.line,
    }
}

impl Retention {
    /// An empty result for some objects.
    pub fn about(objects: Vec<Kept>) -> Self {
        Self {
            schema: SCHEMA,
            objects,
            ..Self::default()
        }
    }

    /// An empty result, with the reason.
    pub fn nothing(note: &str) -> Self {
        Self {
            notes: vec![note.to_owned()],
            ..Self::about(Vec::new())
        }
    }

    /// The result as text, with lines of at most 100 characters.
    pub fn to_text(&self) -> String {
        let mut out = Lines::new(false);
        let what: Vec<String> = self.objects.iter().map(Kept::words).collect();
        if !what.is_empty() {
            out.wrapped(
                Ink::Strong,
                "",
                &format!("{}: {}.", what.join(", "), self.verdict()),
            );
        }
        for (index, path) in self.loops.iter().enumerate() {
            out.line("");
            let title = format!(
                "LOOP {} of {} · no collection can free this",
                index + 1,
                self.loops.len()
            );
            path.draw(&mut out, &title);
        }
        for (index, path) in self.paths.iter().enumerate() {
            out.line("");
            path.draw(
                &mut out,
                &format!("PATH {} of {}", index + 1, self.paths.len()),
            );
        }
        if self.paths_omitted > 0 {
            out.line("");
            out.line(format!(
                "{} not shown.",
                counted(self.paths_omitted, "further path", "further paths")
            ));
        }
        for note in &self.notes {
            out.line("");
            out.wrapped(Ink::Strong, "Note: ", note);
        }
        out.into_text()
    }

    pub(crate) fn verdict(&self) -> String {
        if self.objects.is_empty() {
            return "no object was inspected".to_owned();
        }
        let named = self
            .paths
            .iter()
            .filter(|path| matches!(path.root, RootKind::Module | RootKind::Local))
            .count();
        let paths = counted(self.paths.len() as u64, "path", "paths");
        match (named, self.loops.is_empty()) {
            (0, false) => "no collection can free it: it keeps itself alive through C++".to_owned(),
            (0, true) if self.paths.is_empty() => "only this call keeps it alive".to_owned(),
            (0, true) => match self.paths[0].root {
                RootKind::Garbage => "garbage; the next full collection frees it".to_owned(),
                _ => "referenced from C or C++ only".to_owned(),
            },
            (_, true) => format!("kept alive by {paths}"),
            (_, false) => format!(
                "kept alive by {paths}, and also by itself through C++, which no collection can free"
            ),
        }
    }

    /// The result as JSON (`schema` 1).
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Kept {
    pub(crate) fn words(&self) -> String {
        match (&self.bytes, &self.device) {
            (Some(bytes), Some(device)) => {
                format!("{} of {} on {device}", self.label, human_bytes(*bytes))
            }
            _ => self.label.clone(),
        }
    }
}

impl Path {
    fn draw(&self, out: &mut Lines, title: &str) {
        let alike = match self.alike {
            0 | 1 => String::new(),
            more => format!(" · {} alike", grouped(more)),
        };
        out.inked(&[(Ink::Strong, title), (Ink::Plain, &alike)]);
        out.wrapped(Ink::Plain, "  ", &self.words);
        out.line("");
        let is_root_object = matches!(self.root, RootKind::Module | RootKind::Local);
        for (index, step) in self.steps.iter().enumerate() {
            let label = match index {
                0 if is_root_object => self.root_words.clone(),
                _ => step.label.clone(),
            };
            let label = name(&label, LABEL);
            match step
                .location
                .as_ref()
                .filter(|_| index > 0 || !is_root_object)
            {
                Some(location) => out.line(format!(
                    "  {}  {}",
                    padded(&label, LABEL),
                    place_within(location, 40)
                )),
                None => out.line(format!("  {label}")),
            }
            if !step.edge.is_empty() {
                out.line(format!("    ↓ {}", name(&step.edge, NAME)));
            }
        }
        if self.root == RootKind::Itself {
            out.line("  ╰─ the same object again");
        }
    }
}
