//! The place of a reference that an attribute has: the line that stored it, or else the class that did.

use tree_sitter::Node;

use super::container::{holds_nothing, key_of, later_puts, puts, puts_as_key, same_key};
use super::escaping::escapes;
use super::family::class_source;
use super::field::declared;
use super::sources::{Source, Sources};
use super::stores::{Store, is_constant, stores};
use super::syntax::{Syntax, lines};
use super::written::{Fit, Match, Stored, is_decorated};
use crate::capture::{ClassSource, ReferenceName, is_library_file};
use crate::diagnose::case::short;
use crate::model::report::{Location, Node as Object, NodeKind};
use crate::model::source::Origin;

/// Where a reference was made.
pub enum Made<'s> {
    /// By this expression.
    Line(Source<'s>, Node<'s>),
    /// By one of these statements or fields, at most [`CANDIDATES`].
    OneOf(Vec<(Source<'s>, Node<'s>)>),
    /// By a class with this name, whose code or field is there.
    Class(String, Location),
    /// By one of many statements, or by none that is known.
    Unknown,
}

/// So many lines are named at most where several may have made a reference.
const CANDIDATES: usize = 3;

/// Where the program stored the object in an attribute: the only statement that may have, of the files that the leak's
/// objects are from and of those that belong together with them. Of a container the `item` is given by which the cycle goes
/// on.
pub fn made<'s>(
    origin: &Origin,
    attribute: &str,
    object: &Object,
    item: Option<(&str, &Object)>,
    sources: &'s mut Sources,
    files: &'s mut Vec<String>,
) -> Made<'s> {
    let stored = stored(origin, &origin.owner, attribute, object);
    add(files, wanted(origin, &origin.owner, sources));
    let found = stored.matches(&sources.of(files));
    let is_sure = only(&found).is_some_and(|it| it.fit == Fit::Surely);
    let others = match is_sure {
        true => Some(Vec::new()),
        false => sources.load_having(attribute, &origin.files),
    };
    // Who makes objects of its class may give a field its value, without naming that.
    let class = match is_sure {
        true => None,
        false => declared(&sources.of(files), attribute, &origin.owner)
            .map(|field| short(&field.class.name).to_owned()),
    };
    let callers = match class {
        Some(class) => sources.load_having(&class, &origin.files),
        None => Some(Vec::new()),
    };
    let is_all = others.is_some() && callers.is_some();
    add(files, others.unwrap_or_default());
    add(files, callers.unwrap_or_default());
    let all = sources.of(files);
    let found = stored.matches(&all);
    if let (false, Some(field)) = (is_sure, declared(&all, attribute, &origin.owner)) {
        let is_stored = found.iter().any(|it| !is_library_file(it.source.file));
        let at = location(field.source, lines(field.node).0 as u32);
        if !is_stored {
            return Made::Class(short(&field.class.name).to_owned(), at);
        }
        if field.may_store(&all) {
            return match is_all {
                true => one_of(&found, Some((field.source, field.node)), |one| {
                    is_said(one, object)
                }),
                false => Made::Unknown,
            };
        }
    }
    match only(&found) {
        _ if !is_all => Made::Unknown,
        _ if object.kind == NodeKind::Container && is_filled_later(&stored, item, &found, &all) => {
            filled(&stored, item, &all, &origin.owner)
        }
        None => match one_of(&found, None, |one| is_said(one, object)) {
            Made::Unknown => of_class(&found, &origin.owner),
            several => several,
        },
        Some(one) if one.is_near && is_said(one, object) => Made::Line(one.source, one.store.node),
        Some(_) => Made::Unknown,
    }
}

/// The statement that stores something in the attribute, if one of some files does.
pub fn only_store<'s>(attribute: &str, sources: &[Source<'s>]) -> Made<'s> {
    let mut found = sources.iter().flat_map(|&source| {
        let stores = stores(source.syntax, attribute).into_iter();
        stores.map(move |store| Made::Line(source, store.node))
    });
    found.next().unwrap_or(Made::Unknown)
}

/// Where the program put the object into a container that an attribute has.
pub fn put<'s>(
    origin: &Origin,
    attribute: &str,
    object: &Object,
    sources: &'s mut Sources,
    files: &'s mut Vec<String>,
) -> Made<'s> {
    add(files, wanted(origin, &origin.keeper, sources));
    let Some(others) = sources.load_having(attribute, &origin.files) else {
        return Made::Unknown;
    };
    add(files, others);
    let stored = stored(origin, &origin.keeper, attribute, object);
    only_put(&stored, &sources.of(files))
}

fn stored<'a>(
    origin: &'a Origin,
    owner: &'a [ClassSource],
    attribute: &'a str,
    object: &'a Object,
) -> Stored<'a> {
    Stored {
        attribute,
        object,
        classes: Some(&origin.target),
        owner,
        files: &origin.files,
    }
}

/// True if one of the statements that store a container makes it with nothing in it, or others may have put the item there
/// by which the cycle goes on.
fn is_filled_later(
    stored: &Stored<'_>,
    item: Option<(&str, &Object)>,
    found: &[Match<'_>],
    sources: &[Source<'_>],
) -> bool {
    // Such as the function of a `defaultdict`.
    if item.is_some_and(|(edge, _)| edge.starts_with('.')) {
        return false;
    }
    let is_new = |one: &Match<'_>| holds_nothing(one.source.syntax, one.store.value);
    found.iter().any(is_new)
        || item.is_some_and(|item| {
            is_key(item) || !puts_of(stored, item, sources, later_puts).is_empty()
        })
}

/// True for the key of a dictionary, by which the cycle goes on.
fn is_key((edge, _): (&str, &Object)) -> bool {
    edge == ReferenceName::KeyItself.to_string()
}

/// Where the item by which the cycle goes on was put into the container that an attribute has.
fn filled<'s>(
    stored: &Stored<'_>,
    item: Option<(&str, &Object)>,
    sources: &[Source<'s>],
    owner: &[ClassSource],
) -> Made<'s> {
    // Of a container that the cycle does not go through, the item is not known.
    let Some(item) = item else {
        return Made::Unknown;
    };
    let found = match is_key(item) {
        true => puts_of(stored, item, sources, puts_as_key),
        false => puts_of(stored, item, sources, puts),
    };
    if gives_away(stored, sources) {
        return Made::Unknown;
    }
    match one_put(&found) {
        Made::Unknown => of_class(&found, owner),
        put => put,
    }
}

/// The statements that may have put an item into the container that an attribute has.
fn puts_of<'s>(
    stored: &Stored<'_>,
    (edge, object): (&str, &Object),
    sources: &[Source<'s>],
    statements: fn(&'s Syntax, &str) -> Vec<Store<'s>>,
) -> Vec<Match<'s>> {
    let of_item = Stored {
        object,
        classes: None,
        ..*stored
    };
    let mut found = of_item.among(sources, statements);
    found.retain(|one| !is_constant(one.store.value) && !is_of_other_key(one, edge));
    found
}

/// True for what puts an item by another key than that of a reference, such as `['loss']`, if both are written in full.
fn is_of_other_key<'s>(one: &Match<'s>, edge: &str) -> bool {
    let field = |node: Node<'s>, name| node.child_by_field_name(name);
    let in_dictionary = one.store.value.and_then(|value| value.parent());
    let pair = in_dictionary.filter(|parent| parent.kind() == "pair");
    let target = field(one.store.node, "left");
    let key = match pair {
        Some(pair) => field(pair, "key"),
        None => target.and_then(key_of),
    };
    key.is_some_and(|key| same_key(one.source.syntax, key, edge) == Some(false))
}

/// The only statement that puts an object into the container that an attribute has.
fn only_put<'s>(stored: &Stored<'_>, sources: &[Source<'s>]) -> Made<'s> {
    match gives_away(stored, sources) {
        true => Made::Unknown,
        false => one_put(&stored.among(sources, puts)),
    }
}

/// True if some other code than what names the attribute may put something into its container.
fn gives_away(stored: &Stored<'_>, sources: &[Source<'_>]) -> bool {
    let mut programs = sources.iter().filter(|it| !is_library_file(it.file));
    programs.any(|it| escapes(it.syntax, stored.attribute))
}

fn one_put<'s>(found: &[Match<'s>]) -> Made<'s> {
    let is_programs = |one: &Match<'_>| !is_library_file(one.source.file);
    match only(found) {
        Some(one) if one.is_near && is_programs(one) => Made::Line(one.source, one.store.node),
        Some(_) => Made::Unknown,
        None => one_of(found, None, is_programs),
    }
}

/// True for a line of the program's, but not for one that stores a function that it is given: what to change is the
/// function.
fn is_said(one: &Match<'_>, object: &Object) -> bool {
    let value = one.store.value.map_or("", |value| value.kind());
    // What a decorator made of a function that is defined there is no argument.
    let name = one.store.value.filter(|_| value == "identifier");
    let is_own = name.is_some_and(|name| is_decorated(one.source.syntax, name));
    let is_given = name.is_some() && !is_own && one.fit == Fit::Maybe;
    let is_programs = |at: &Location| !is_library_file(&at.file);
    let is_function =
        object.label.starts_with("function ") && object.location.as_ref().is_some_and(is_programs);
    let is_taker = is_given && is_function;
    !is_library_file(one.source.file) && !is_taker
}

fn add(files: &mut Vec<String>, others: Vec<String>) {
    files.extend(others);
    files.sort_unstable();
    files.dedup();
}

/// Reads the program's files that the leak's objects are from, and of libraries those of the owner's class; and names them.
fn wanted(origin: &Origin, owner: &[ClassSource], sources: &mut Sources) -> Vec<String> {
    let is_owners = |file: &str| owner.iter().any(|it| it.file.as_deref() == Some(file));
    let files = origin.files.iter().cloned();
    let wanted: Vec<String> = files
        .filter(|file| !is_library_file(file) || is_owners(file))
        .collect();
    for file in &wanted {
        sources.load(file);
    }
    wanted
}

/// The one statement that surely stored it, or else the only one that may have.
fn only<'m, 's>(found: &'m [Match<'s>]) -> Option<&'m Match<'s>> {
    let may = candidates(found);
    let (&first, others) = may.split_first()?;
    // `one.pair = other.pair = self` is an assignment within another.
    let is_first = |it: &&Match<'s>| {
        let assignments = |node: Node<'s>| Some(node).filter(|it| it.kind() == "assignment");
        let outer = |it: &Node<'s>| it.parent().and_then(assignments);
        let mut chain = std::iter::successors(Some(it.store.node), outer);
        it.source.file == first.source.file && chain.any(|it| it == first.store.node)
    };
    others.iter().all(is_first).then_some(first)
}

/// Those that surely stored it, or else all that may have, unless they all copy it from another object.
fn candidates<'m, 's>(found: &'m [Match<'s>]) -> Vec<&'m Match<'s>> {
    let sure: Vec<_> = found.iter().filter(|it| it.fit == Fit::Surely).collect();
    match sure.is_empty() {
        true if found.iter().all(|it| it.copies) => Vec::new(),
        true => found.iter().collect(),
        false => sure,
    }
}

/// Those of several statements that may have stored it, and a field that its class may have stored, if they are few and may
/// all be said.
fn one_of<'s>(
    found: &[Match<'s>],
    field: Option<(Source<'s>, Node<'s>)>,
    is_said: impl Fn(&Match<'_>) -> bool,
) -> Made<'s> {
    let may = candidates(found);
    let statements = may.iter().map(|it| (it.source, it.store.node));
    let mut places: Vec<(Source<'s>, Node<'s>)> = statements.chain(field).collect();
    let line = |&(source, node): &(Source<'s>, Node<'s>)| (source.file, lines(node).0);
    places.sort_by_key(line);
    places.dedup_by_key(|place| line(place));
    let are_said = may.iter().all(|it| is_said(it)) && may.iter().any(|it| it.is_near);
    match are_said && (2..=CANDIDATES).contains(&places.len()) {
        true => Made::OneOf(places),
        false => Made::Unknown,
    }
}

/// The class that all of several statements are of, each for its own object.
fn of_class<'s>(found: &[Match<'s>], owner: &[ClassSource]) -> Made<'s> {
    let Some(&Match {
        source,
        class: Some(class),
        ..
    }) = found.first()
    else {
        return Made::Unknown;
    };
    let are_alike = found
        .iter()
        .all(|it| it.class == Some(class) && it.source.file == source.file)
        && found.iter().any(|it| !it.copies);
    match class_source(owner, source, class) {
        Some(known) if are_alike && !is_library_file(source.file) => {
            let line = known.line.unwrap_or(lines(class).0 as u32);
            Made::Class(short(&known.name).to_owned(), location(source, line))
        }
        _ => Made::Unknown,
    }
}

fn location(source: Source<'_>, line: u32) -> Location {
    Location::from(&crate::capture::Place {
        file: source.file.to_owned(),
        line,
    })
}
