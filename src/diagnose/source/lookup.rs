//! Whether to look a method up when it is called finds the one that was stored.

use tree_sitter::Node;

use super::family::{bases, defined, name_of};
use super::first_code;
use super::held::last_part;
use super::sources::Sources;
use super::stores::{Store, stores};
use super::syntax::{Syntax, all, functions_around, scope, statement};
use super::taken::method;
use crate::capture::ClassSource;
use crate::diagnose::case::short;
use crate::model::report::Leak;

/// Advice after which the object calls what then has the name.
const BY_NAME: [&str; 2] = [
    "Look the method up when it is called, by its name.",
    "Leave out this assignment: the object finds the method of its class by the same name.",
];

/// Advises to give the reference up instead where the program may set another function under the name of the method or of
/// the attribute, on an object or on a class.
pub fn keep_to_the_method(leak: &mut Leak, sources: &mut Sources) {
    let Some(sentence) = BY_NAME.into_iter().find(|it| leak.advice.text.contains(it)) else {
        return;
    };
    let Some((name, _)) = method(leak) else {
        return;
    };
    let is_kept = leak.patch.is_some();
    let name = name.to_owned();
    let stored = first_code(leak).to_owned();
    let attribute = stored.rsplit_once('.').map_or("", |(_, it)| it);
    let is_hidden = attribute == name;
    if is_kept {
        return;
    }
    let others = [name.as_str(), attribute].into_iter().any(|set| {
        let files = sources.load_having(set, &leak.origin.files);
        files.is_none_or(|files| {
            let mut files = sources.of(&files).into_iter();
            files.any(|source| is_set_otherwise(source.syntax, set, &name, &leak.origin.owner))
        })
    });
    if !others && (is_hidden || is_always_set(leak, attribute, sources)) {
        return;
    }
    let text = match is_hidden {
        _ if leak.origin.refuses_assignment => format!("Do not keep it as `{stored}`."),
        true => format!("Delete `{stored}` when it is no longer needed."),
        false => format!("Set `{stored}` to None when it is no longer needed."),
    };
    leak.advice.text = leak.advice.text.replace(sentence, &text);
    leak.advice.before = None;
    leak.advice.after = None;
}

/// True if one statement of a constructor gives each object of the class the attribute, and nothing asks whether it has
/// one, or takes it away.
fn is_always_set(leak: &Leak, attribute: &str, sources: &mut Sources) -> bool {
    let Some(files) = sources.load_having(attribute, &leak.origin.files) else {
        return false;
    };
    let files = sources.of(&files);
    let is_named = |syntax: &Syntax, node: Node<'_>| match node.kind() {
        "string" => syntax.of(node).trim_matches(['"', '\'']) == attribute,
        "delete_statement" => syntax.of(node).contains(&format!(".{attribute}")),
        _ => false,
    };
    let mut nodes = files.iter().flat_map(|it| {
        let nodes = all(it.syntax.root()).into_iter();
        nodes.map(|node| (it.syntax, node))
    });
    if nodes.any(|(syntax, node)| is_named(syntax, node)) {
        return false;
    }
    let set = files.iter().flat_map(|it| {
        let set = stores(it.syntax, attribute).into_iter();
        let own = set.filter(|set| !is_of_another_class(it.syntax, set, &leak.origin.owner));
        own.map(|set| (it.syntax, set.node))
    });
    let set: Vec<(&Syntax, Node<'_>)> = set.collect();
    matches!(set[..], [(syntax, node)] if is_first_of_constructor(syntax, node))
}

/// True for a statement of a constructor that is always run, if the constructor is.
fn is_first_of_constructor(syntax: &Syntax, node: Node<'_>) -> bool {
    let function = statement(node).parent().and_then(|block| block.parent());
    let name = function.and_then(|function| function.child_by_field_name("name"));
    let Some((function, name)) = function.zip(name) else {
        return false;
    };
    let mut nodes = all(function).into_iter();
    let returns =
        nodes.any(|it| it.kind() == "return_statement" && it.start_byte() < node.start_byte());
    function.kind() == "function_definition" && syntax.of(name) == "__init__" && !returns
}

/// True if a file stores something else than the method of that name in an attribute: not `self.run = self.run`, which is
/// to be left out, nor `self.step = self.run`, which is to go; and not on `self` in a class that is none of the owner's.
fn is_set_otherwise(syntax: &Syntax, attribute: &str, method: &str, owner: &[ClassSource]) -> bool {
    let is_method = |value: Node<'_>| {
        let last = value.child_by_field_name("attribute");
        value.kind() == "attribute" && last.is_some_and(|it| syntax.of(it) == method)
    };
    let mut set = stores(syntax, attribute).into_iter();
    set.any(|it| !it.value.is_some_and(is_method) && !is_of_another_class(syntax, &it, owner))
}

/// True if something is stored on the `self` of a class that is not the owner's, and does not derive from it.
fn is_of_another_class(syntax: &Syntax, store: &Store<'_>, owner: &[ClassSource]) -> bool {
    let class = || {
        let receiver = store.receiver.filter(|it| syntax.of(*it) == "self")?;
        let mut scopes = functions_around(receiver).into_iter().filter_map(scope);
        scopes.find(|it| it.kind() == "class_definition")
    };
    class().is_some_and(|class| {
        let name = name_of(syntax, class);
        let is_owners = owner.iter().any(|it| short(&it.name) == name);
        let own = owner.first().map_or("", |it| short(&it.name));
        !is_owners && !may_derive(syntax, class, own)
    })
}

/// True if a class derives from one of that name, or from one that the file does not have.
fn may_derive(syntax: &Syntax, class: Node<'_>, name: &str) -> bool {
    let mut seen = Vec::new();
    let mut pending = vec![class];
    while let Some(class) = pending.pop() {
        if seen.contains(&class) {
            continue;
        }
        seen.push(class);
        for base in bases(class) {
            let base = last_part(syntax.of(base));
            let found = defined(syntax, base);
            if base == name || found.is_empty() && base != "object" {
                return true;
            }
            pending.extend(found);
        }
    }
    false
}
