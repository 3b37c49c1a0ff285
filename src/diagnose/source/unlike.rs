//! Objects that are certainly not those of a class: `self` in the methods of another class that has nothing to do with it.

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::family::{bases, decorators};
use super::held::{in_import, last_part};
use super::syntax::{Syntax, all, children, is_field, scope};

/// A method whose `self` a file does something with that would matter of an object of the class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlike {
    pub class: String,
    pub method: String,
    /// Why there is no patch if the class has to do with the other after all.
    pub why: String,
}

/// What a decorated method may be, and still be called with an object of its class only.
const PROPERTIES: [&str; 4] = ["property", "cached_property", ".setter", ".deleter"];

/// The method whose `self` a sign is about: the `vars(self)`, `self.__dict__`, `setattr(self, …)` or `def __getattr__` at
/// a node. `None` if it may be about any object.
pub fn about_self(syntax: &Syntax, node: Node<'_>, why: &str) -> Option<Unlike> {
    let parent = node.parent()?;
    let word = syntax.of(node);
    let (class, method) = match node.kind() {
        "call" => self_of(syntax, first_argument(node)?)?,
        "identifier" if matches!(word, "vars" | "dir") => self_of(syntax, first_argument(parent)?)?,
        "identifier" if word == "__dict__" => {
            self_of(syntax, parent.child_by_field_name("object")?)?
        }
        "identifier" if matches!(word, "__getattr__" | "__getattribute__" | "__setattr__") => {
            let is_name = parent.kind() == "function_definition" && is_field(parent, "name", node);
            (scope(parent).filter(|_| is_name)?, word)
        }
        _ => return None,
    };
    let name = class.child_by_field_name("name")?;
    (class.kind() == "class_definition").then(|| Unlike {
        class: syntax.of(name).to_owned(),
        method: method.to_owned(),
        why: why.to_owned(),
    })
}

fn first_argument(call: Node<'_>) -> Option<Node<'_>> {
    children(call.child_by_field_name("arguments")?)
        .first()
        .copied()
}

/// The class and method of whose call an expression is the object.
fn self_of<'a>(syntax: &'a Syntax, value: Node<'a>) -> Option<(Node<'a>, &'a str)> {
    let method = scope(value).filter(|scope| scope.kind() == "function_definition")?;
    let class = scope(method).filter(|scope| scope.kind() == "class_definition")?;
    let parameters = method.child_by_field_name("parameters")?;
    let first = *children(parameters).first()?;
    let variable = syntax.of(value);
    let is_plain = decorators(syntax, method)
        .all(|text| PROPERTIES.iter().any(|property| text.ends_with(property)));
    let is_self = first.kind() == "identifier"
        && value.kind() == "identifier"
        && syntax.of(first) == variable
        && syntax.bindings(method, variable) == [first];
    let name = method.child_by_field_name("name")?;
    let is_method = syntax.of(name) != "__new__" && !syntax.of(name).starts_with("__init_sub");
    (is_self && is_plain && is_method).then(|| (class, syntax.of(name)))
}

/// The classes of a project, each with those that it is derived from.
#[derive(Default)]
pub struct Hierarchy {
    bases: HashMap<String, HashSet<String>>,
}

/// The base of which nobody knows what it is.
const UNKNOWN: &str = "?";

impl Hierarchy {
    /// Adds the classes of a file.
    ///
    /// # Errors
    /// Why an object may be of another class than its own, or a method be called with another's object.
    pub fn add(&mut self, syntax: &Syntax, unlike: &[Unlike]) -> Result<(), &'static str> {
        for node in all(syntax.root()) {
            match node.kind() {
                "class_definition" => self.add_class(syntax, node),
                "attribute" if changes_class(syntax, node) => {
                    return Err("an object may get another class");
                }
                "attribute" if unlike.iter().any(|one| is_taken(syntax, node, one)) => {
                    return Err("a method may be called with any object");
                }
                "identifier" if makes_class(syntax, node) => {
                    return Err("classes are made at run time");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_class(&mut self, syntax: &Syntax, class: Node<'_>) {
        let Some(name) = class.child_by_field_name("name") else {
            return;
        };
        let found = bases(class).into_iter().map(|base| {
            let base = base.child_by_field_name("value").unwrap_or(base);
            let text = syntax.of(base);
            let is_itself = |node: &Node<'_>| {
                let kind = node.parent().map(|parent| parent.kind());
                kind == Some("class_definition")
                    || in_import(*node) && kind != Some("aliased_import")
            };
            let has_its_name = syntax.bindings(syntax.root(), text).iter().all(is_itself);
            match base.kind() {
                "identifier" | "attribute" if has_its_name => last_part(text).to_owned(),
                _ => UNKNOWN.to_owned(),
            }
        });
        let known = self.bases.entry(syntax.of(name).to_owned()).or_default();
        known.extend(found);
    }

    /// True if an object may be of both a class and one of some others.
    pub fn may_be_both(&self, unlike: &Unlike, others: &[String]) -> bool {
        self.bases.keys().any(|class| {
            let above = self.above(class);
            let is_other = others.iter().any(|other| above.contains(other.as_str()));
            let is_unlike = above.contains(unlike.class.as_str());
            (is_other || is_unlike) && above.contains(UNKNOWN) || is_other && is_unlike
        })
    }

    /// A class and all that it is derived from.
    fn above<'a>(&'a self, class: &'a str) -> HashSet<&'a str> {
        let mut found = HashSet::new();
        let mut pending = vec![class];
        while let Some(class) = pending.pop() {
            if found.insert(class) {
                pending.extend(
                    self.bases
                        .get(class)
                        .into_iter()
                        .flatten()
                        .map(String::as_str),
                );
            }
        }
        found
    }
}

/// `x.__class__ = …` or anything with `__bases__`.
fn changes_class(syntax: &Syntax, attribute: Node<'_>) -> bool {
    let name = attribute.child_by_field_name("attribute");
    let is_target = attribute
        .parent()
        .is_some_and(|parent| is_field(parent, "left", attribute));
    match name.map(|name| syntax.of(name)) {
        Some("__class__") => is_target,
        Some("__bases__") => true,
        _ => false,
    }
}

/// `Class.method`.
fn is_taken(syntax: &Syntax, attribute: Node<'_>, unlike: &Unlike) -> bool {
    let part = |field| attribute.child_by_field_name(field).map(|it| syntax.of(it));
    part("attribute") == Some(&*unlike.method)
        && part("object").map(last_part) == Some(&*unlike.class)
}

/// `type(name, bases, members)` and its like.
fn makes_class(syntax: &Syntax, name: Node<'_>) -> bool {
    let arguments = name
        .parent()
        .filter(|call| call.kind() == "call" && is_field(*call, "function", name))
        .and_then(|call| call.child_by_field_name("arguments"));
    match syntax.of(name) {
        "type" => arguments.is_some_and(|list| children(list).len() > 1),
        "new_class" | "make_dataclass" => true,
        _ => false,
    }
}
