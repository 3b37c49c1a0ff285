//! What the other files of a project do with an attribute: they too could notice that it holds its object weakly.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tree_sitter::Node;

use super::attribute::only_called;
use super::change::{Place, Subject};
use super::family::{NOT_REFERABLE, bases, defined};
use super::files::{module_name, project, read, read_bytes, words};
use super::held::{Facts, Link, READERS, last_part, reads_its_own_way};
use super::program::connected;
use super::signs;
use super::syntax::{Syntax, all};
use super::unlike::{Hierarchy, Unlike};

/// Checks the other files of the project that are connected with it by imports, and what only all files together tell.
///
/// # Errors
/// Why they may do more with an attribute of a class than call it on an object that they hold.
pub fn others_allow(own: &Syntax, file: &Path, subject: &Subject) -> Result<(), String> {
    let others = connected(file, project(file)?);
    let mut links = subject.links.clone();
    let mut unlike = subject.unlike.clone();
    let mut sought: HashSet<&str> = signs::words().collect();
    sought.insert(&subject.attribute);
    sought.extend(subject.method.as_deref());
    sought.extend(subject.classes.iter().map(String::as_str));
    let module = module_name(file);
    let mut close: HashSet<&str> = HashSet::from([&*module, &subject.attribute]);
    close.extend(subject.classes.iter().map(String::as_str));
    let (mut key, mut getter) = (None, None);
    for other in &others {
        let Some(syntax) = having(other, &sought)? else {
            continue;
        };
        let named = |why: String| format!("in {}, {why}", other.display());
        let is_related = has_any(syntax.text(), &close);
        let uses = only_called(&syntax, subject, Place::Other { is_related }).map_err(named)?;
        links.extend(uses.links);
        unlike.extend(uses.unlike.into_iter().map(|one| Unlike {
            why: named(one.why),
            ..one
        }));
        key = key.or(uses.key.map(named));
        getter = getter.or(uses.getter.map(named));
        refuse_derived(&syntax, subject).map_err(named)?;
    }
    // The key of an item may come to where an attribute is got by any name.
    if let (Some(why), Some(_)) = (key, getter) {
        return Err(why);
    }
    refuse_alike(own, &others, subject, &unlike)?;
    if subject.method.is_some() {
        refuse_foreign(&others, subject)?;
    }
    refuse_made(own, &others, &links)
}

/// A file, if it has one of some words.
fn having(file: &Path, sought: &HashSet<&str>) -> Result<Option<Syntax>, String> {
    let unread = || format!("{} could not be parsed", file.display());
    let Some(text) = read(file) else {
        let has_word = read_bytes(file).is_some_and(|text| has_any(&text, sought));
        return if has_word { Err(unread()) } else { Ok(None) };
    };
    if !has_any(&text, sought) {
        return Ok(None);
    }
    Syntax::parse(text).map(Some).ok_or_else(unread)
}

fn has_any(text: &str, sought: &HashSet<&str>) -> bool {
    words(text).any(|word| sought.contains(word))
}

/// Refuses classes that are derived from the class and from one whose instances are not weakly referable, or of which
/// others know how to copy or pickle them.
fn refuse_derived(syntax: &Syntax, subject: &Subject) -> Result<(), String> {
    let is_ours = |name: &str| subject.classes.iter().any(|class| class == name);
    for class in all(syntax.root()) {
        if class.kind() != "class_definition" {
            continue;
        }
        let names: Vec<&str> = bases(class)
            .into_iter()
            .map(|base| last_part(syntax.of(base)))
            .collect();
        if !names.iter().any(|name| is_ours(name)) {
            continue;
        }
        if let Some(base) = names.iter().find(|name| NOT_REFERABLE.contains(name)) {
            return Err(format!("instances of `{base}` take no weak references"));
        }
        let has_slots = !syntax.bindings(class, "__slots__").is_empty();
        let name = &subject.attribute;
        let is_definition = |node: &Node<'_>| {
            let parent = node.parent();
            parent.is_some_and(|parent| parent.kind() == "function_definition")
        };
        if syntax.bindings(class, name).iter().any(is_definition) {
            return Err(format!(
                "a derived class has a function or property `{name}`"
            ));
        }
        let other = names
            .iter()
            .find(|name| !is_ours(name) && !matches!(**name, "object" | "ABC" | "Protocol"));
        if let (Some(other), Some(_)) = (other, &subject.method) {
            return Err(may_be_copied(other));
        }
        if has_slots && names.len() > 1 {
            return Err("a class with `__slots__` may have no room for weak references".into());
        }
    }
    Ok(())
}

/// Refuses what is done with objects of another class, if an object may be of both.
fn refuse_alike(
    own: &Syntax,
    others: &[PathBuf],
    subject: &Subject,
    unlike: &[Unlike],
) -> Result<(), String> {
    let Some(first) = unlike.first() else {
        return Ok(());
    };
    let sought: HashSet<&str> = HIERARCHY.into_iter().collect();
    let mut classes = Hierarchy::default();
    let refused = |why: &str| format!("{}, and {why}", first.why);
    classes.add(own, unlike).map_err(refused)?;
    for other in others {
        if let Some(syntax) = having(other, &sought)? {
            classes.add(&syntax, unlike).map_err(refused)?;
        }
    }
    let mut related: Vec<String> = subject.classes.clone();
    related.extend(subject.bases.iter().map(|base| last_part(base).to_owned()));
    match unlike.iter().find(|one| classes.may_be_both(one, &related)) {
        Some(one) => Err(one.why.clone()),
        None => Ok(()),
    }
}

/// Words of a file that says something about the classes of objects.
const HIERARCHY: [&str; 6] = [
    "class",
    "__class__",
    "__bases__",
    "type",
    "new_class",
    "make_dataclass",
];

/// Refuses a bound method of a class that is derived from one outside the project.
fn refuse_foreign(others: &[PathBuf], subject: &Subject) -> Result<(), String> {
    let mut pending = subject.bases.clone();
    let mut seen: HashSet<String> = HashSet::new();
    while let Some(base) = pending.pop() {
        let name = last_part(&base).to_owned();
        if matches!(&*name, "object" | "ABC" | "Generic" | "Protocol") || !seen.insert(name.clone())
        {
            continue;
        }
        let found = bases_of(others, &name)?;
        if found.is_empty() {
            return Err(may_be_copied(&base));
        }
        pending.extend(found.into_iter().flatten());
    }
    Ok(())
}

fn may_be_copied(base: &str) -> String {
    format!(
        "the class is derived from `{base}`, whose library may copy or pickle its objects, and the bound method with them"
    )
}

/// The bases of each class with a name.
fn bases_of(others: &[PathBuf], name: &str) -> Result<Vec<Vec<String>>, String> {
    let mut found = Vec::new();
    for other in others {
        let Some(syntax) = having(other, &HashSet::from([name]))? else {
            continue;
        };
        for class in defined(&syntax, name) {
            let texts = bases(class).into_iter().map(|base| syntax.of(base));
            found.push(
                texts
                    .map(|text| text.split('[').next().unwrap_or_default().to_owned())
                    .collect(),
            );
        }
    }
    Ok(found)
}

/// Refuses attributes on the way to an object that may make the object, so that nothing holds it during the call.
fn refuse_made(own: &Syntax, others: &[PathBuf], links: &[Link]) -> Result<(), String> {
    if let Some(link) = links.first() {
        let mut reader = reads_its_own_way(own).map(|line| format!("line {line}"));
        for other in others {
            if reader.is_some() {
                break;
            }
            if let Some(syntax) = having(other, &HashSet::from(READERS))? {
                let line = reads_its_own_way(&syntax);
                reader = line.map(|line| format!("line {line} of {}", other.display()));
            }
        }
        if let Some(place) = reader {
            return Err(format!(
                "the object in line {} is `….{}`, which {place} may make when it is read, and may be gone during the call",
                link.line, link.name
            ));
        }
    }
    let mut checked: HashSet<(&str, bool)> = HashSet::new();
    for link in links {
        if !checked.insert((&link.name, link.stays)) {
            continue;
        }
        let mut facts = Facts::of(own, &link.name);
        let mut defined = facts.defined.map(|line| format!("line {line}"));
        for other in others {
            if defined.is_some() {
                break;
            }
            if let Some(syntax) = having(other, &HashSet::from([link.name.as_str()]))? {
                let found = Facts::of(&syntax, &link.name);
                defined = found
                    .defined
                    .map(|line| format!("line {line} of {}", other.display()));
                facts.join(&found);
            }
        }
        let (name, line) = (&link.name, link.line);
        if let Some(place) = defined {
            return Err(format!(
                "the object in line {line} is `….{name}`, which is a function or property in {place}, and may be gone during the call"
            ));
        }
        if !facts.is_assigned && !link.of_module {
            return Err(format!(
                "the object in line {line} is `….{name}`, which the project never assigns, and may be gone during the call"
            ));
        }
        if link.stays && facts.changes {
            return Err(format!(
                "what is called within line {line} may assign `….{name}`, and the object be gone before the call"
            ));
        }
    }
    Ok(())
}
