//! How a file uses a variable, and whether a change of it could be noticed.

use tree_sitter::Node;

use super::held::last_part;
use super::syntax::{Syntax, all, children, is_field, lines, scope};

/// Functions that keep no argument.
const PLAIN_FUNCTIONS: [&str; 10] = [
    "print",
    "str",
    "repr",
    "type",
    "isinstance",
    "issubclass",
    "len",
    "format",
    "bool",
    "id",
];

/// Methods of loggers, which keep no argument, and those of the module `traceback` that print or format.
const PLAIN_METHODS: [&str; 13] = [
    "debug",
    "info",
    "warning",
    "error",
    "exception",
    "critical",
    "print_exception",
    "print_tb",
    "print_exc",
    "format_exception",
    "format_exception_only",
    "format_tb",
    "match",
];

/// Attributes of exceptions that lead to others, or to frames.
const LEADING: [&str; 8] = [
    "__traceback__",
    "__context__",
    "__cause__",
    "exceptions",
    "with_traceback",
    "tb",
    "traceback",
    "add_note",
];

/// True for the condition of a statement and for comparisons: nothing is kept.
pub fn is_tested(node: Node<'_>) -> bool {
    let Some(parent) = node.parent() else {
        return false;
    };
    match parent.kind() {
        "comparison_operator" => children(parent).iter().any(|side| side.kind() == "none"),
        "not_operator" | "assert_statement" => true,
        "if_statement" | "elif_clause" | "while_statement" => is_field(parent, "condition", node),
        "conditional_expression" => parent.named_child(1) == Some(node),
        "parenthesized_expression" => is_tested(parent),
        _ => false,
    }
}

/// Where an exception is handed on, or part of it kept, in a place that may keep it longer than the function runs; the
/// line of it. `None` if it is only read.
pub fn handed_on(syntax: &Syntax, uses: &[Node<'_>]) -> Option<usize> {
    let kept = uses.iter().find(|&&node| !is_only_read(syntax, node))?;
    Some(lines(*kept).0)
}

fn is_only_read(syntax: &Syntax, node: Node<'_>) -> bool {
    let Some(parent) = node.parent() else {
        return false;
    };
    match parent.kind() {
        "attribute" => {
            let name = parent.child_by_field_name("attribute");
            let name = name.map_or("", |name| syntax.of(name));
            let is_call = parent
                .parent()
                .is_some_and(|call| call.kind() == "call" && is_field(call, "function", parent));
            match (LEADING.contains(&name), is_call) {
                (true, false) if name == "__traceback__" => is_formatted(syntax, parent),
                (true, _) => false,
                (false, true) => PLAIN_METHODS.contains(&name),
                (false, false) => is_only_read(syntax, parent),
            }
        }
        "subscript" => is_field(parent, "value", node) && is_only_read(syntax, parent),
        "argument_list" | "keyword_argument" => {
            let call = if parent.kind() == "argument_list" {
                parent.parent()
            } else {
                parent.parent().and_then(|list| list.parent())
            };
            call.is_some_and(|call| is_plain_call(syntax, call))
        }
        "list_splat" => is_only_read(syntax, parent),
        "comparison_operator" | "interpolation" | "raise_statement" | "expression_statement" => {
            true
        }
        "binary_operator" => {
            let left = parent.child_by_field_name("left");
            left.is_some_and(|left| left.kind() == "string")
        }
        "tuple" => parent
            .parent()
            .is_some_and(|parent| parent.kind() == "binary_operator"),
        _ => is_tested(node),
    }
}

/// True for the argument of a function of the module `traceback`, which keeps none.
fn is_formatted(syntax: &Syntax, value: Node<'_>) -> bool {
    let call = value
        .parent()
        .filter(|list| list.kind() == "argument_list")
        .and_then(|list| list.parent());
    let function = call.and_then(|call| call.child_by_field_name("function"));
    let name = function.map_or("", |function| last_part(syntax.of(function)));
    name.starts_with("format_") || name.starts_with("print_")
}

fn is_plain_call(syntax: &Syntax, call: Node<'_>) -> bool {
    let Some(function) = call.child_by_field_name("function") else {
        return false;
    };
    match function.kind() {
        "identifier" => {
            let name = syntax.of(function);
            PLAIN_FUNCTIONS.contains(&name) && syntax.bindings(syntax.root(), name).is_empty()
        }
        "attribute" => {
            let name = function.child_by_field_name("attribute");
            let object = function.child_by_field_name("object");
            let is_text = object.is_some_and(|object| object.kind() == "string");
            name.is_some_and(|name| {
                let name = syntax.of(name);
                PLAIN_METHODS.contains(&name) || is_text && name == "format"
            })
        }
        _ => false,
    }
}

/// Names of the functions around that a function uses and that may lead to the object, besides `owner`.
pub fn also_captured<'a>(syntax: &'a Syntax, function: Node<'a>, owner: &str) -> Option<&'a str> {
    let around = super::syntax::functions_around(function);
    let outermost = around.last()?;
    let parts = ["parameters", "body"].map(|part| function.child_by_field_name(part));
    parts
        .into_iter()
        .flatten()
        .flat_map(all)
        .filter(|&node| syntax.is_variable(node))
        .map(|node| syntax.of(node))
        .find(|&name| {
            let own = syntax.bindings(function, name);
            let own = own.iter().any(|&node| !is_name_of(function, node));
            let outer: Vec<Node<'a>> = syntax
                .bindings(*outermost, name)
                .into_iter()
                .filter(|node| !is_within(*node, function) || is_name_of(function, *node))
                .filter(|node| scope_of_binding(*node).is_some_and(is_function))
                .collect();
            name != owner
                && !own
                && !outer.is_empty()
                && !outer.iter().all(|&at| is_number(syntax, at, &outer))
        })
}

fn is_function(scope: Node<'_>) -> bool {
    scope.kind() != "class_definition"
}

/// The scope that a binding is of: that of a parameter is its function.
fn scope_of_binding(node: Node<'_>) -> Option<Node<'_>> {
    let mut at = node;
    while let Some(parent) = at.parent() {
        if matches!(parent.kind(), "parameters" | "lambda_parameters") {
            return parent.parent();
        }
        if parent.kind() == "block" {
            break;
        }
        at = parent;
    }
    scope(node)
}

fn is_name_of(function: Node<'_>, node: Node<'_>) -> bool {
    is_field(function, "name", node)
}

fn is_within(node: Node<'_>, outer: Node<'_>) -> bool {
    outer.start_byte() <= node.start_byte() && node.end_byte() <= outer.end_byte()
}

/// True if a variable gets its only value there, and that is a number, a string or a truth value.
fn is_number(syntax: &Syntax, binding: Node<'_>, all_bindings: &[Node<'_>]) -> bool {
    let Some(parent) = binding.parent().filter(|_| all_bindings.len() == 1) else {
        return false;
    };
    let is_constant = |value: Option<Node<'_>>| {
        value.is_some_and(|value| {
            let is_converted = value.kind() == "call"
                && value.child_by_field_name("function").is_some_and(|name| {
                    matches!(syntax.of(name), "int" | "float" | "len" | "str" | "bool")
                });
            is_converted
                || matches!(
                    value.kind(),
                    "integer" | "float" | "string" | "true" | "false"
                )
        })
    };
    let is_number_type = |annotation: Option<Node<'_>>| {
        annotation.is_some_and(|annotation| {
            matches!(syntax.of(annotation), "int" | "float" | "str" | "bool")
        })
    };
    match parent.kind() {
        "assignment" => is_constant(parent.child_by_field_name("right")),
        "default_parameter" => is_constant(parent.child_by_field_name("value")),
        "typed_parameter" | "typed_default_parameter" => {
            is_number_type(parent.child_by_field_name("type"))
        }
        _ => false,
    }
}
