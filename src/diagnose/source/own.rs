//! Where the program gives a library's object an attribute that leads back to it: `layer.run = layer.forward`,
//! `layer.extra = [layer]`, `optimizer.schedule = StepLR(optimizer)`.

use std::path::Path;

use tree_sitter::Node;

use super::container::{later_puts, same_key};
use super::files::read;
use super::held::last_part;
use super::sources::Sources;
use super::stores::{Store, stores};
use super::syntax::{Syntax, all, children, is_field};
use crate::diagnose::case::short;
use crate::model::report::{Cut, Leak, NodeKind};

/// What a bound method is called in a report, before its name.
const BOUND_METHOD: &str = "bound method ";
/// In more files of the program than these, the attribute has a common name.
const FILES: usize = 16;

/// What an object has in an attribute, by which it leads back to itself.
#[derive(Clone, Copy)]
enum Own<'a> {
    Itself,
    /// A method of its own.
    Method(&'a str),
    /// A container that has the object itself, by this reference.
    Item(&'a str),
    /// An object of a class that was given it.
    Made(&'a str),
}

impl<'a> Own<'a> {
    /// What is behind the reference that is cut; `None` if that is a container with others in it.
    fn of(leak: &'a Leak, cut: &'a Cut) -> Option<Self> {
        let steps = &leak.cycle;
        let nodes = || steps.iter().map(|step| step.node);
        let after = |object: u32| {
            let at = nodes().position(|it| it == Some(object))?;
            let next = steps[(at + 1) % steps.len()].node?;
            Some((steps[at].edge.as_str(), next))
        };
        if !cut.edge.starts_with('.') {
            // An item of a container that the object has.
            let (_, container) = after(cut.target)?;
            return (container == cut.source).then_some(Self::Item(&cut.edge));
        }
        let object = leak.graph.nodes.get(cut.target as usize)?;
        if cut.source == cut.target {
            return Some(Self::Itself);
        }
        if let Some(method) = object.label.strip_prefix(BOUND_METHOD) {
            return Some(Self::Method(method.rsplit_once('.')?.1));
        }
        let (edge, next) = after(cut.target)?;
        match object.kind {
            NodeKind::Container => (next == cut.source).then_some(Self::Item(edge)),
            _ => Some(Self::Made(short(&object.type_name))),
        }
    }

    /// True if an expression shows that it is this, of the object that is written as `on`.
    fn is_shown(self, syntax: &Syntax, value: Node<'_>, on: &str) -> bool {
        let is_object = |node: Node<'_>| syntax.of(node) == on;
        let part = |name: &str| value.child_by_field_name(name);
        match self {
            Self::Itself => is_object(value),
            Self::Method(method) => {
                part("attribute").is_some_and(|it| syntax.of(it) == method)
                    && part("object").is_some_and(is_object)
            }
            Self::Item(edge) => match value.kind() {
                "list" | "tuple" => {
                    let items = children(value);
                    let at = edge.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
                    let at: Option<usize> = at.and_then(|it| it.parse().ok());
                    let is_whole = !items.iter().any(|it| it.kind() == "list_splat");
                    is_whole
                        && at
                            .and_then(|at| items.get(at))
                            .copied()
                            .is_some_and(is_object)
                }
                "dictionary" => children(value).into_iter().any(|pair| {
                    let key = pair.child_by_field_name("key");
                    key.is_some_and(|key| same_key(syntax, key, edge) == Some(true))
                        && pair.child_by_field_name("value").is_some_and(is_object)
                }),
                _ => false,
            },
            Self::Made(class) => {
                let arguments = part("arguments").map(children).unwrap_or_default();
                let mut given = arguments
                    .into_iter()
                    .map(|it| it.child_by_field_name("value").unwrap_or(it));
                value.kind() == "call"
                    && part("function").is_some_and(|it| last_part(syntax.of(it)) == class)
                    && given.any(is_object)
            }
        }
    }
}

/// The file of the only statement of the program that stores anything in an attribute of this name, if the leak is made of
/// a library's objects, and the statement shows that what it stores leads back to the object. The files of these objects
/// say nothing of who stored it, but the statement does.
pub fn file_of_own(
    leak: &Leak,
    cut: &Cut,
    attribute: &str,
    sources: &mut Sources,
) -> Option<String> {
    let own = match sources.has_one_of(&leak.origin.files) {
        true => return None,
        false => Own::of(leak, cut)?,
    };
    let files = sources.load_few_having(attribute, FILES)?;
    let mut found = Vec::new();
    for source in sources.of(&files) {
        let all = stores(source.syntax, attribute).into_iter();
        found.extend(all.map(|store| (source, store)));
    }
    let [(source, store)] = found[..] else {
        return None;
    };
    let file = is_of_its_object(source.syntax, &store, own).then(|| source.file.to_owned())?;
    // Which method it is tells more than a container does, of which many may have been made.
    if matches!(own, Own::Method(_)) {
        return Some(file);
    }
    let sources = sources.of(&files);
    let mut libraries = leak.origin.files.iter();
    let is_only = sources.iter().all(|it| is_only_read(it.syntax, attribute))
        && !libraries.any(|file| may_set(Path::new(file), attribute));
    is_only.then_some(file)
}

/// True if a file has the name of an attribute only where one of an object is read or stored, and puts nothing into what
/// it has.
fn is_only_read(syntax: &Syntax, attribute: &str) -> bool {
    let is_other = |node: &Node<'_>| match node.kind() {
        "identifier" | "string_content" => {
            let is_attribute = node
                .parent()
                .is_some_and(|it| it.kind() == "attribute" && is_field(it, "attribute", *node));
            syntax.of(*node) == attribute && !is_attribute
        }
        _ => false,
    };
    !all(syntax.root()).iter().any(is_other) && later_puts(syntax, attribute).is_empty()
}

/// True if the code of a library may set an attribute of this name: it has it as one, or in quotes.
fn may_set(file: &Path, attribute: &str) -> bool {
    let Some(text) = read(file) else {
        return true;
    };
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(attribute).any(|(at, name)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        matches!(before, Some('.' | '"' | '\'')) && !after.is_some_and(is_part)
    })
}

/// True for `layer.run = layer.forward` if the method is `forward`.
fn is_of_its_object(syntax: &Syntax, store: &Store<'_>, own: Own<'_>) -> bool {
    let Some((receiver, value)) = store.receiver.zip(store.value) else {
        return false;
    };
    let on = syntax.of(receiver);
    store.is_named && on != "self" && own.is_shown(syntax, value, on)
}
