//! Where the program makes a reference: the expression, found by the names and lines of both its ends.

use tree_sitter::Node;

use super::family::{bases, defined};
use super::held::last_part;
use super::syntax::{
    Syntax, all, around, children, functions_around, is_field, is_named, lines, scope, statement,
};
use crate::diagnose::case::short;
use crate::model::report::{Location, Node as Object};
use crate::model::source::SourceLines;

/// Maximum number of lines to show.
const LINES: usize = 6;
/// Longer lines are not shown.
const LENGTH: usize = 400;

/// A reference of the graph, and the objects at its ends.
pub struct Reference<'a> {
    pub edge: &'a str,
    pub from: &'a Object,
    pub to: &'a Object,
}

impl Reference<'_> {
    /// The attribute or variable that has the reference.
    pub fn name(&self) -> Option<&str> {
        let quoted = |kind| quoted(self.edge, kind);
        self.edge.strip_prefix('.').or_else(|| quoted("local "))
    }

    /// The expression in a file that makes it; `None` if none does, or several may.
    pub fn find<'s>(&self, syntax: &'s Syntax, file: &str) -> Option<Node<'s>> {
        if let Some(attribute) = self.edge.strip_prefix('.') {
            return self.stored(syntax, file, attribute);
        }
        if let Some(variable) = quoted(self.edge, "closure variable ") {
            let function = named_function(syntax, self.from, file)?;
            let body = function.child_by_field_name("body")?;
            return syntax.variables(body, variable).into_iter().next();
        }
        if let Some(parameter) = quoted(self.edge, "default argument ") {
            let function = named_function(syntax, self.from, file)?;
            let list = function.child_by_field_name("parameters")?;
            let bound = syntax.bindings(list, parameter).into_iter().next()?;
            return bound.parent()?.child_by_field_name("value");
        }
        let variable = quoted(self.edge, "local ")?;
        self.local(syntax, file, variable)
    }

    /// The assignment of an attribute.
    fn stored<'s>(&self, syntax: &'s Syntax, file: &str, attribute: &str) -> Option<Node<'s>> {
        let stores: Vec<Node<'s>> = all(syntax.root())
            .into_iter()
            .filter(|node| node.kind() == "assignment" && target_is(syntax, *node, attribute))
            .filter(|node| !is_constant(assigned(*node)))
            .filter(|node| self.may_be_of_owner(syntax, *node, file))
            .collect();
        let value = |node: &Node<'s>| assigned(*node);
        let only = |fits: &dyn Fn(&Node<'s>) -> bool| {
            let found: Vec<Node<'s>> = stores.iter().copied().filter(|node| fits(node)).collect();
            match found[..] {
                [only] => Some(only),
                _ => None,
            }
        };
        let label = self.to.label.as_str();
        if let Some(name) = label.strip_prefix("function ") {
            let function = named_function(syntax, self.to, file)?;
            return match short(name) {
                "<lambda>" => only(&|node| node.byte_range().contains(&function.start_byte())),
                name => only(&|node| {
                    value(node).is_some_and(|value| {
                        value.kind() == "identifier"
                            && syntax.of(value) == name
                            && scope(*node) == scope(function)
                    })
                }),
            };
        }
        if let Some(name) = label.strip_prefix("bound method ") {
            let is_it = |value: Node<'_>| {
                let bound = value.child_by_field_name("attribute");
                value.kind() == "attribute"
                    && bound.is_some_and(|bound| syntax.of(bound) == short(name))
            };
            // Or one of several values, on a condition.
            return only(&|node| value(node).is_some_and(is_it)).or_else(|| {
                only(&|node| value(node).is_some_and(|value| all(value).into_iter().any(is_it)))
            });
        }
        if is_unpacked_to(syntax, attribute) {
            return None;
        }
        let class = class_of(syntax, self.from, file)?;
        only(&|_| true).filter(|node| {
            // A lambda or a number is no such object.
            let kind = value(node).map_or("", |value| value.kind());
            kind != "lambda"
                && (around(*node, &["class_definition"]) == Some(class) || stores.len() == 1)
        })
    }

    /// False for an assignment to `self` in a class that the owner's is not, nor derives from as far as the file shows.
    fn may_be_of_owner(&self, syntax: &Syntax, assignment: Node<'_>, file: &str) -> bool {
        let Some(class) = class_of_self(syntax, assignment) else {
            return true;
        };
        let mut pending: Vec<Node<'_>> = class_of(syntax, self.from, file).into_iter().collect();
        let mut seen = Vec::new();
        while let Some(own) = pending.pop() {
            if own == class {
                return true;
            }
            if !seen.contains(&own) {
                seen.push(own);
                let named = bases(own).into_iter();
                pending.extend(named.flat_map(|base| defined(syntax, last_part(syntax.of(base)))));
            }
        }
        false
    }

    /// The assignment of a local variable, or the `as` that binds it.
    fn local<'s>(&self, syntax: &'s Syntax, file: &str, variable: &str) -> Option<Node<'s>> {
        let at = self.from.location.as_ref().filter(|at| at.file == file)?;
        let name = short(self.from.label.strip_prefix("frame of ")?);
        let mut functions = all(syntax.root()).into_iter().filter(|node| {
            let (first, last) = lines(*node);
            node.kind() == "function_definition"
                && (first..=last).contains(&(at.line as usize))
                && is_named(syntax, *node, name)
        });
        let function = functions.next_back()?;
        let found: Vec<Node<'s>> = syntax
            .bindings(function, variable)
            .into_iter()
            .filter(|node| scope(*node) == Some(function))
            .filter_map(|node| {
                let parent = node.parent()?;
                match parent.kind() {
                    "assignment" => {
                        (!is_constant(parent.child_by_field_name("right"))).then_some(parent)
                    }
                    "as_pattern_target" => parent.parent(),
                    _ => Some(node),
                }
            })
            .collect();
        match found[..] {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// The lines of an expression's statement, around its beginning.
pub fn shown(syntax: &Syntax, node: Node<'_>, file: &str) -> Option<SourceLines> {
    let text = syntax
        .text()
        .strip_prefix('\u{feff}')
        .unwrap_or(syntax.text());
    let all: Vec<&str> = text.lines().collect();
    let marked = node.start_position().row;
    let (first, last) = lines(statement(node));
    let first = (first - 1).max((marked + 1).saturating_sub(LINES));
    let last = last.min(first + LINES).max(marked + 1);
    let lines = all.get(first..last)?;
    if lines.iter().any(|line| line.len() > LENGTH) {
        return None;
    }
    let line = all.get(marked)?;
    let start = node.start_byte() - syntax.line_start(node.start_byte());
    let end = match node.end_position().row == marked {
        true => start + node.byte_range().len(),
        false => line.trim_end().len(),
    };
    let characters = |bytes: usize| line.get(..bytes).map(|part| part.chars().count() as u32);
    Some(SourceLines {
        file: file.to_owned(),
        line: first as u32 + 1,
        lines: lines.iter().map(|&line| line.to_owned()).collect(),
        marked: marked as u32 + 1,
        start: characters(start)?,
        end: characters(end)?,
    })
}

/// `x` of `local 'x'`.
fn quoted<'a>(edge: &'a str, kind: &str) -> Option<&'a str> {
    let name = edge.strip_prefix(kind)?;
    name.strip_prefix('\'')?.strip_suffix('\'')
}

/// The value of an assignment, also of one with several targets (`a = b = value`).
fn assigned(assignment: Node<'_>) -> Option<Node<'_>> {
    let mut value = assignment.child_by_field_name("right")?;
    while value.kind() == "assignment" {
        value = value.child_by_field_name("right")?;
    }
    Some(value)
}

/// True if the attribute is one of several targets that something is unpacked to, in any place.
fn is_unpacked_to(syntax: &Syntax, attribute: &str) -> bool {
    all(syntax.root()).into_iter().any(|node| {
        let name = node.child_by_field_name("attribute");
        let parent = node.parent().map_or("", |parent| parent.kind());
        node.kind() == "attribute"
            && ["pattern_list", "tuple_pattern", "list_pattern"].contains(&parent)
            && name.is_some_and(|name| syntax.of(name) == attribute)
    })
}

fn target_is(syntax: &Syntax, assignment: Node<'_>, attribute: &str) -> bool {
    let target = assignment.child_by_field_name("left");
    let name = target
        .filter(|target| target.kind() == "attribute")
        .and_then(|target| target.child_by_field_name("attribute"));
    name.is_some_and(|name| syntax.of(name) == attribute)
}

/// The class whose method assigns to an attribute of its first parameter.
fn class_of_self<'a>(syntax: &'a Syntax, assignment: Node<'a>) -> Option<Node<'a>> {
    let target = assignment.child_by_field_name("left")?;
    let object = target.child_by_field_name("object")?;
    let method = functions_around(assignment).into_iter().find(|function| {
        let parameters = function.child_by_field_name("parameters").map(children);
        let first = parameters.and_then(|all| all.into_iter().find(Node::is_named));
        // It may have a type.
        let name = first.map(|first| syntax.of(first).split(':').next().unwrap_or_default());
        name.is_some_and(|name| name.trim_end() == syntax.of(object))
    })?;
    let class = around(method, &["class_definition", "function_definition"])?;
    (class.kind() == "class_definition").then_some(class)
}

/// True for values that refer to nothing.
fn is_constant(value: Option<Node<'_>>) -> bool {
    value.is_none_or(|value| {
        matches!(
            value.kind(),
            "none" | "true" | "false" | "integer" | "float" | "string" | "ellipsis"
        )
    })
}

/// The function or lambda of an object, which is where its code says that it is.
pub fn named_function<'a>(syntax: &'a Syntax, object: &Object, file: &str) -> Option<Node<'a>> {
    let at = object.location.as_ref().filter(|at| at.file == file)?;
    let name = short(object.label.strip_prefix("function ")?);
    let found: Vec<Node<'a>> = all(syntax.root())
        .into_iter()
        .filter(|node| match node.kind() {
            "lambda" => name == "<lambda>" && begins_at(*node, at),
            "function_definition" => is_named(syntax, *node, name) && begins_at(*node, at),
            _ => false,
        })
        .filter(|node| node.is_named())
        .collect();
    match found[..] {
        [only] => Some(only),
        _ => None,
    }
}

/// True if a definition begins in a line, by itself or by its first decorator.
fn begins_at(node: Node<'_>, at: &Location) -> bool {
    let decorated = node
        .parent()
        .filter(|parent| parent.kind() == "decorated_definition");
    let line = at.line as usize;
    lines(node).0 == line || decorated.is_some_and(|decorated| lines(decorated).0 == line)
}

/// The class of an instance, if it is written in the file under its name.
fn class_of<'a>(syntax: &'a Syntax, object: &Object, file: &str) -> Option<Node<'a>> {
    let at = object.location.as_ref().filter(|at| at.file == file)?;
    let name = short(&object.type_name);
    all(syntax.root()).into_iter().find(|node| {
        let (first, last) = lines(*node);
        // A decorator may be the first line.
        node.kind() == "class_definition"
            && node
                .child_by_field_name("name")
                .is_some_and(|own| is_field(*node, "name", own) && syntax.of(own) == name)
            && (first.saturating_sub(20)..=last).contains(&(at.line as usize))
    })
}
