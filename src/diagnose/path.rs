//! A path from a GC root to an object, in words.

use petgraph::visit::EdgeRef;

use crate::capture::{Place, ReferenceName};
use crate::cpython::ObjectKind;
use crate::graph::{LeakGraph, LeakNode};
use crate::model::heap::KEPT_BY_TRACEBACK;
use crate::model::report::{Location, Step};
use crate::model::retention::{Path, RootKind, UNREACHABLE};
use crate::model::words::{grouped, name, short_location, without_counts};

/// Names longer than this are shortened in their middle.
const NAME: usize = 200;
/// Maximum number of steps in the one-line form; the middle of a longer path is left out.
const STEPS: usize = 12;

/// A path, and what only the look that found it knows of the objects on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedPath {
    pub path: Path,
    /// The last object as the program writes it, if each reference can be written: `trainer.caches['loss']`.
    pub expression: Option<String>,
    pub(super) objects: Vec<OnPath>,
}

/// What the look knows of an object on a path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OnPath {
    /// The object in a word or two: `list, 20 items`.
    pub noun: String,
    /// Its number in that look.
    pub number: Option<u32>,
    /// How many objects it stands for that are left out; 0 for a single one.
    pub stands_for: u64,
}

/// A GC root, as far as words need it.
#[derive(Clone, Debug)]
pub enum NamedRoot {
    Module(String),
    Local {
        function: String,
        place: Option<Place>,
        thread: String,
    },
    /// What the standard library keeps by itself, in words.
    Library(String),
    Outside,
    /// On free-threaded builds: something outside, or nothing.
    Uncounted,
    Garbage,
    Itself,
}

/// How paths end at an object that C has inside another.
const INTERNAL: &str = " → an internal reference";
const OUTSIDE: &str = "referenced from C or C++";
const UNCOUNTED: &str = "garbage, or referenced from C or C++";

impl NamedPath {
    /// The path along a folded graph that is one chain, whose first node is the root's.
    pub fn new(root: &NamedRoot, graph: &LeakGraph) -> Self {
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
                node: node.object,
                type_name: node.description.type_name.clone(),
                label: node.description.label.clone(),
                location: node.description.place.as_ref().map(Location::from),
                edge: edges.get(i).map(ToString::to_string).unwrap_or_default(),
                ..Step::default()
            })
            .collect();
        let objects = nodes.iter().map(|node| OnPath {
            noun: noun(Some(node)),
            number: node.object,
            stands_for: node.stands_for,
        });
        let path = Path {
            root: root.kind(),
            root_words: root.words(),
            words: words(root, &nodes, &edges),
            steps,
            alike: 1,
            leads_to: Vec::new(),
        };
        Self {
            path,
            expression: expression(root, &edges),
            objects: objects.collect(),
        }
    }

    /// The words up to the last reference, without what that leads to.
    pub fn reference(&self) -> String {
        self.up_to_reference().to_owned()
    }

    fn up_to_reference(&self) -> &str {
        let all = self.path.words.as_str();
        let noun = self.objects.last().map_or("", |it| it.noun.as_str());
        let words = all.strip_suffix(noun).unwrap_or(all);
        words.strip_suffix(" → ").unwrap_or(all)
    }

    /// The step at which the path is once it has passed these objects, given by their numbers in the look.
    pub fn step_of(&self, passed: &[u32]) -> usize {
        let is_passed = |it: &OnPath| it.number.is_some_and(|number| passed.contains(&number));
        self.objects.iter().rposition(is_passed).unwrap_or(0)
    }

    /// Where the program has the last object: the words without what it is, and without the numbers of
    /// items on it, so that they stay the same while a container grows.
    pub fn owner(&self) -> String {
        let mut words = self.up_to_reference();
        // What C has inside an object, such as the items of a `SimpleQueue`, is that object's.
        while let Some(rest) = words.strip_suffix(INTERNAL) {
            words = rest.rfind(" (").map_or(rest, |at| &rest[..at]);
        }
        without_counts(words.strip_suffix(" → .__dict__").unwrap_or(words))
    }
}

impl NamedRoot {
    /// False for what only C or C++ knows, and for garbage.
    pub fn is_in_python(&self) -> bool {
        matches!(
            self,
            Self::Module(_) | Self::Local { .. } | Self::Library(_)
        )
    }

    fn kind(&self) -> RootKind {
        match self {
            Self::Module(_) => RootKind::Module,
            Self::Local { .. } => RootKind::Local,
            Self::Library(_) => RootKind::Library,
            Self::Outside | Self::Uncounted => RootKind::Outside,
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
            Self::Library(words) => words.clone(),
            Self::Outside => OUTSIDE.to_owned(),
            Self::Uncounted => UNCOUNTED.to_owned(),
            Self::Garbage => "unreachable objects".to_owned(),
            Self::Itself => "itself, through C or C++".to_owned(),
        }
    }
}

/// `` `train_step`, train.py:88, thread MainThread``.
pub fn in_function(function: &str, place: Option<&Place>, thread: &str) -> String {
    let mut words = format!("`{function}`");
    if let Some(place) = place {
        words += &format!(", {}", short_location(&place.into()));
    }
    if !thread.is_empty() {
        words += &format!(", thread {thread}");
    }
    words
}

/// What lies at the end of some references, in Python.
fn expression(root: &NamedRoot, edges: &[&ReferenceName]) -> Option<String> {
    let (first, rest) = edges.split_first()?;
    let mut written = match (root, first) {
        (NamedRoot::Module(module), ReferenceName::Attribute(name)) if module == "__main__" => {
            name.clone()
        }
        (NamedRoot::Module(module), ReferenceName::Attribute(name)) => format!("{module}.{name}"),
        (NamedRoot::Local { .. }, ReferenceName::Local(name)) => name.clone(),
        _ => return None,
    };
    for edge in rest {
        match edge {
            // A key that is no literal.
            ReferenceName::Key(key) if key.starts_with('<') => return None,
            ReferenceName::Attribute(_) | ReferenceName::Key(_) | ReferenceName::Index(_) => {
                written += &edge.to_string();
            }
            _ => return None,
        }
    }
    (!written.contains('…')).then_some(written)
}

/// The whole path in one line.
fn words(root: &NamedRoot, nodes: &[&LeakNode], edges: &[&ReferenceName]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut from = 0;
    match root {
        NamedRoot::Module(module) => parts.push(format!("module `{module}`")),
        NamedRoot::Local {
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
        NamedRoot::Library(words) => parts.push(words.clone()),
        NamedRoot::Outside => parts.push(OUTSIDE.to_owned()),
        NamedRoot::Uncounted => parts.push(UNCOUNTED.to_owned()),
        NamedRoot::Garbage => parts.push(UNREACHABLE.to_owned()),
        NamedRoot::Itself => parts.push("itself".to_owned()),
    }
    // The first node is the root itself where that has a name, else an object.
    let is_named = matches!(
        root,
        NamedRoot::Module(_) | NamedRoot::Local { .. } | NamedRoot::Library(_)
    );
    if !is_named {
        parts.push(noun(nodes.first().copied()));
    } else if from == 1 && nodes.len() > 2 {
        annotate(&mut parts, nodes.get(1).copied());
    }
    let mut left_out = 0;
    let mut is_unnamed = !is_named;
    while from < edges.len() {
        let is_first = from == 0;
        let node = nodes.get(from + 1).copied();
        if let Some(gap) = node.filter(|node| node.stands_for > 0) {
            // References are counted: one more than the objects between them.
            left_out = gap.stands_for + 1;
            parts.push(format!("… {} more …", grouped(left_out)));
            from += 2;
            continue;
        }
        // A traceback keeps the frames of the calls that the exception passed.
        if let Some((local, next)) = local_of_traceback(nodes, edges, from) {
            let holder = holder_of_traceback(root, &parts, (edges[from], node), is_unnamed);
            let mut local = vec![local];
            if next < edges.len() {
                annotate(&mut local, nodes.get(next).copied());
            }
            parts = vec![format!("{}{KEPT_BY_TRACEBACK}{holder}", local.concat())];
            is_unnamed = false;
            from = next;
            continue;
        }
        let in_module = is_first && matches!(root, NamedRoot::Module(_));
        parts.push(edge_words(edges[from], in_module));
        if from + 1 < edges.len() {
            annotate(&mut parts, node);
        }
        from += 1;
    }
    if is_named || nodes.len() > 1 {
        parts.push(noun(nodes.last().copied()));
    }
    if parts.len() > STEPS {
        let tail = parts.split_off(parts.len() - STEPS / 2);
        // The part for what is left out already is one of these.
        let omitted = (parts.len() - STEPS / 2) as u64 + left_out.saturating_sub(1);
        parts.truncate(STEPS / 2);
        parts.push(format!("… {} more …", grouped(omitted)));
        parts.extend(tail);
    }
    parts.join(" → ")
}

/// What refers to an exception or a traceback, in words; `parts` are those of the path to it.
fn holder_of_traceback(
    root: &NamedRoot,
    parts: &[String],
    (edge, held): (&ReferenceName, Option<&LeakNode>),
    is_unnamed: bool,
) -> String {
    let traceback = ReferenceName::Attribute("__traceback__".to_owned());
    let mut last = vec![edge_words(edge, false)];
    match (root, parts) {
        (NamedRoot::Library(exception), [_]) if *edge == traceback => return exception.clone(),
        // A variable is told in the words of its own row.
        (NamedRoot::Module(_), [_]) => {
            last = vec![edge_words(edge, true)];
            annotate(&mut last, held);
        }
        _ => {}
    }
    // What has no name is said of the object, behind it.
    let named_from = usize::from(is_unnamed);
    let way = [&parts[named_from..], &last].concat().join(" → ");
    match is_unnamed {
        true => format!("{way} ({})", parts[0]),
        false => way,
    }
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
