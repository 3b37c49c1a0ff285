//! Whether other code than what names it may have the container of an attribute or a variable: under another name, or from
//! a call.

use tree_sitter::Node;

use super::container::{added, holds_nothing, key_of, same_key};
use super::held::last_part;
use super::mention::{FUNCTIONS, MODULES};
use super::reference::stands_for;
use super::stores::{PUTTING, is_called, is_constant};
use super::syntax::{Syntax, all, children, is_field, scope};

/// Functions that read an attribute by a name that is a string.
const BY_NAME: [&str; 4] = ["getattr", "attrgetter", "methodcaller", "__getattribute__"];
/// Methods that add to a container and that nobody looks for, beside those with underscores.
const ADDING: [&str; 2] = ["extendleft", "symmetric_difference_update"];
/// Functions beside [`FUNCTIONS`] that keep no container.
const READING: [&str; 10] = [
    "copy",
    "deepcopy",
    "dict",
    "filter",
    "frozenset",
    "iter",
    "map",
    "next",
    "type",
    "zip",
];
/// Methods that keep no container: those of containers copy what is in it, those of loggers write it.
const READERS: [&str; 12] = [
    "critical",
    "debug",
    "difference",
    "error",
    "exception",
    "extend",
    "info",
    "intersection",
    "join",
    "union",
    "update",
    "warning",
];

/// True if a file gives away the container that an attribute has: what has it may put something into it.
pub fn escapes(syntax: &Syntax, attribute: &str) -> bool {
    let mut nodes = all(syntax.root()).into_iter();
    nodes.any(|node| match node.kind() {
        "attribute" => is_called(syntax, node, attribute) && !stays(syntax, node),
        "string_content" => syntax.of(node) == attribute && is_read_by_name(syntax, node),
        _ => false,
    })
}

/// The only expression of a function that puts something into the container that an assignment makes with nothing in it,
/// if nothing else has the container; by the key of `item`, the container's reference to it.
pub fn put_into_variable<'s>(
    syntax: &'s Syntax,
    assignment: Node<'s>,
    item: &str,
) -> Option<Node<'s>> {
    let (variable, value) = (
        assignment.child_by_field_name("left")?,
        assignment.child_by_field_name("right"),
    );
    let function = scope(assignment).filter(|_| holds_nothing(syntax, value))?;
    let name = syntax.of(variable);
    if variable_escapes(syntax, function, name) {
        return None;
    }
    let mut found = all(function).into_iter().filter(|&node| {
        added(syntax, node).is_some_and(|(container, value)| {
            syntax.of(container) == name
                && !is_constant(value)
                && stands_for(syntax, container, name, Some(function))
        })
    });
    let only = found.next()?;
    let key = only.child_by_field_name("left").and_then(key_of);
    let is_other = key.is_some_and(|key| same_key(syntax, key, item) == Some(false));
    (found.next().is_none() && !is_other).then_some(only)
}

/// True if a function gives away the container that one of its variables has, otherwise than by returning it.
fn variable_escapes(syntax: &Syntax, function: Node<'_>, variable: &str) -> bool {
    let uses = syntax.variables(function, variable).into_iter();
    let is_returned = |it: &Node<'_>| {
        it.parent()
            .is_some_and(|it| it.kind() == "return_statement")
    };
    uses.filter(|it| !is_returned(it))
        .any(|it| !stays(syntax, it))
}

/// True for the text in `getattr(object, 'name')`.
fn is_read_by_name(syntax: &Syntax, text: Node<'_>) -> bool {
    let list = text.parent().and_then(|it| it.parent());
    let call = list
        .filter(|it| it.kind() == "argument_list")
        .and_then(|it| it.parent());
    let function = call.and_then(|it| it.child_by_field_name("function"));
    function.is_some_and(|it| BY_NAME.contains(&last_part(syntax.of(it))))
}

/// True if nothing gets the container that an expression is but what is done with it at once.
fn stays(syntax: &Syntax, expression: Node<'_>) -> bool {
    let Some(around) = expression.parent() else {
        return true;
    };
    match around.kind() {
        "attribute" => is_method_called(syntax, around),
        "argument_list" => is_given_to_reader(syntax, around),
        "boolean_operator" | "parenthesized_expression" => stays(syntax, around),
        "conditional_expression" => {
            children(around).get(1) == Some(&expression) || stays(syntax, around)
        }
        "assignment" | "augmented_assignment" => !is_field(around, "right", expression),
        "named_expression"
        | "return_statement"
        | "yield"
        | "lambda"
        | "await"
        | "pair"
        | "list"
        | "tuple"
        | "set"
        | "dictionary"
        | "expression_list"
        | "keyword_argument"
        | "default_parameter"
        | "typed_default_parameter"
        | "as_pattern"
        | "with_item" => is_target(around, expression),
        _ => true,
    }
}

/// True for what an assignment, a loop or `del` has for its target, also one of several.
fn is_target(around: Node<'_>, target: Node<'_>) -> bool {
    match around.kind() {
        "assignment" | "augmented_assignment" | "for_statement" | "for_in_clause" => {
            is_field(around, "left", target)
        }
        "delete_statement" | "pattern_list" | "tuple_pattern" | "list_pattern" => true,
        "expression_list" => around
            .parent()
            .is_some_and(|it| it.kind() == "delete_statement"),
        _ => false,
    }
}

/// True for a method that is called, of which what it adds is known.
fn is_method_called(syntax: &Syntax, method: Node<'_>) -> bool {
    let name = method.child_by_field_name("attribute");
    let name = name.map_or("", |it| syntax.of(it));
    let is_called = method
        .parent()
        .is_some_and(|it| it.kind() == "call" && is_field(it, "function", method));
    match is_called {
        true => !name.starts_with("__") && !ADDING.contains(&name),
        false => name == "maxlen",
    }
}

fn is_given_to_reader(syntax: &Syntax, arguments: Node<'_>) -> bool {
    let function = arguments
        .parent()
        .and_then(|call| call.child_by_field_name("function"));
    let text = function.map_or("", |it| syntax.of(it));
    match text.split_once('.') {
        None => FUNCTIONS.contains(&text) || READING.contains(&text) || PUTTING.contains(&text),
        Some((module, name)) => {
            let name = last_part(name);
            MODULES.contains(&module)
                || READERS.contains(&name)
                || PUTTING.contains(&name)
                || module == "copy"
        }
    }
}
