//! Where the program makes a reference: the expression, found by the names and lines of both its ends.

use tree_sitter::Node;

use super::stores::{bound_by, is_constant};
use super::syntax::{Syntax, all, around, is_named, lines, scope, statement};
use crate::diagnose::case::short;
use crate::model::report::{Location, Node as Object};
use crate::model::source::SourceLines;

/// Maximum number of lines to show.
const LINES: usize = 6;
/// Maximum number of lines around them.
const AROUND: usize = 2;
/// Longer lines are not shown.
const LENGTH: usize = 400;

/// A reference of the graph, and the object that has it.
pub struct Reference<'a> {
    pub edge: &'a str,
    pub from: &'a Object,
}

impl Reference<'_> {
    /// The attribute or variable that has the reference.
    pub fn name(&self) -> Option<&str> {
        let quoted = |kind| quoted(self.edge, kind);
        self.edge.strip_prefix('.').or_else(|| quoted("local "))
    }

    /// The expression in a file that makes it, if it is a variable; `None` if none does, or several may.
    pub fn find<'s>(&self, syntax: &'s Syntax, file: &str) -> Option<Node<'s>> {
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
        let function = owner_of(syntax, functions.next_back()?, variable);
        let found: Vec<Node<'s>> = syntax
            .bindings(function, variable)
            .into_iter()
            .filter(|node| !is_declaration(*node) && is_of(syntax, *node, function, variable))
            .filter_map(|node| match bound_by(node) {
                Some((shown, value)) => (!is_constant(value)).then_some(shown),
                None => (!is_declared(node)).then_some(node),
            })
            .collect();
        match found[..] {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// True for `nonlocal x` and `global x`, which give it no value.
fn is_declaration(variable: Node<'_>) -> bool {
    let around = variable.parent().map_or("", |around| around.kind());
    matches!(around, "nonlocal_statement" | "global_statement")
}

/// The function whose variable a name is in another, which may declare it `nonlocal`.
fn owner_of<'s>(syntax: &Syntax, function: Node<'s>, variable: &str) -> Node<'s> {
    let mut owner = function;
    while declares(syntax, owner, variable)
        && let Some(outer) = around(owner, &["function_definition"])
    {
        owner = outer;
    }
    owner
}

/// True for a function with `nonlocal` or `global` and the name.
fn declares(syntax: &Syntax, function: Node<'_>, variable: &str) -> bool {
    let mut names = syntax.variables(function, variable).into_iter();
    names.any(|it| is_declaration(it) && scope(it) == Some(function))
}

/// True if a name stands for the variable of a function: there, or in one within that declares it `nonlocal`.
pub fn is_of(syntax: &Syntax, name: Node<'_>, function: Node<'_>, variable: &str) -> bool {
    let mut at = scope(name);
    let mut is_declared = false;
    while let Some(inner) = at.filter(|it| *it != function) {
        is_declared |= declares(syntax, inner, variable);
        let mut own = syntax.bindings(inner, variable).into_iter();
        let is_bound = own.any(|it| !is_declaration(it) && scope(it) == Some(inner));
        if !is_declared || is_bound && !declares(syntax, inner, variable) {
            return false;
        }
        at = scope(inner);
    }
    at.is_some()
}

/// True if a name stands for the variable of a function, or of the module (`None`): there, or in what is within and gives
/// the name no other meaning.
pub fn stands_for(
    syntax: &Syntax,
    name: Node<'_>,
    variable: &str,
    owner: Option<Node<'_>>,
) -> bool {
    let mut at = scope(name);
    while at != owner {
        let Some(inner) = at else {
            return false;
        };
        let names = syntax.bindings(inner, variable);
        let mut own = names.into_iter().filter(|it| scope(*it) == Some(inner));
        let declared = own.find_map(|it| it.parent().filter(|_| is_declaration(it)));
        match declared.map(|it| it.kind()) {
            Some("global_statement") => return owner.is_none(),
            Some(_) => {}
            None => {
                let parameters = inner.child_by_field_name("parameters");
                let is_parameter =
                    parameters.is_some_and(|all| !syntax.bindings(all, variable).is_empty());
                // What a class binds, its methods do not see.
                let is_seen = inner.kind() != "class_definition" || scope(name) == Some(inner);
                let mut own = syntax.bindings(inner, variable).into_iter();
                if is_parameter || is_seen && own.any(|it| scope(it) == Some(inner)) {
                    return false;
                }
            }
        }
        at = scope(inner);
    }
    true
}

/// The lines of an expression's statement, around its beginning.
pub fn shown(syntax: &Syntax, node: Node<'_>, file: &str) -> Option<SourceLines> {
    let all = text_lines(syntax);
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

/// Adds the lines around those of an expression, of the same function or class.
pub fn show_around(shown: &mut SourceLines, syntax: &Syntax, node: Node<'_>) {
    let all = text_lines(syntax);
    let mut within = scope(node);
    while let Some(lambda) = within.filter(|within| within.kind() == "lambda") {
        within = scope(lambda);
    }
    let (top, bottom) = lines(within.unwrap_or(syntax.root()));
    let first = shown.line as usize - 1;
    let last = first + shown.lines.len();
    let from = first.saturating_sub(AROUND).max(top - 1);
    let to = (last + AROUND).min(bottom).min(all.len());
    let before = nearest(all.get(from..first).unwrap_or_default().iter().rev());
    let after = nearest(all.get(last..to).unwrap_or_default().iter());
    shown.line -= before.len() as u32;
    shown.lines.splice(..0, before.into_iter().rev());
    shown.lines.extend(after);
}

/// The first lines, up to a long one; blank ones do not end them.
fn nearest<'a>(lines: impl Iterator<Item = &'a &'a str>) -> Vec<String> {
    let short = lines.take_while(|line| line.len() <= LENGTH);
    let mut nearest: Vec<String> = short.map(|&line| line.to_owned()).collect();
    while nearest.last().is_some_and(|line| line.trim().is_empty()) {
        nearest.pop();
    }
    nearest
}

/// The lines of a file, as editors number them.
fn text_lines(syntax: &Syntax) -> Vec<&str> {
    let text = syntax.text();
    text.strip_prefix('\u{feff}')
        .unwrap_or(text)
        .lines()
        .collect()
}

/// `x` of `local 'x'`.
fn quoted<'a>(edge: &'a str, kind: &str) -> Option<&'a str> {
    let name = edge.strip_prefix(kind)?;
    name.strip_prefix('\'')?.strip_suffix('\'')
}

/// True for a variable that is only given a type: `x: int`.
fn is_declared(variable: Node<'_>) -> bool {
    let around = variable.parent();
    around.is_some_and(|around| {
        around.kind() == "assignment" && around.child_by_field_name("right").is_none()
    })
}

/// The function or lambda of an object, which is where its code says that it is.
pub fn named_function<'a>(syntax: &'a Syntax, object: &Object, file: &str) -> Option<Node<'a>> {
    let at = object.location.as_ref().filter(|at| at.file == file)?;
    let name = short(object.label.strip_prefix("function ")?);
    let found: Vec<Node<'a>> = all(syntax.root())
        .into_iter()
        .filter(|node| match node.kind() {
            "lambda" => name == "<lambda>" && node.is_named() && begins_at(*node, at),
            "function_definition" => name != "<lambda>" && begins_at(*node, at),
            _ => false,
        })
        .collect();
    // One that wraps another has the other's name.
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
