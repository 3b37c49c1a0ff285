//! What a file does with a container or tensor where it names it.

use tree_sitter::Node;

use super::container::{holds_nothing, key_of};
use super::held::last_part;
use super::stores::{bound_by, is_constant};
use super::syntax::{Syntax, all, around, children, is_field};
use super::uses::is_tested;
use crate::model::growth::Growth;

/// Methods of containers that add to them.
const ADDERS: [&str; 9] = [
    "add",
    "append",
    "appendleft",
    "extend",
    "extendleft",
    "insert",
    "setdefault",
    "symmetric_difference_update",
    "update",
];
/// Methods that only read, copy or take away.
const READERS: [&str; 16] = [
    "clear",
    "copy",
    "count",
    "difference_update",
    "discard",
    "index",
    "items",
    "keys",
    "pop",
    "popitem",
    "popleft",
    "remove",
    "reverse",
    "rotate",
    "sort",
    "values",
];
/// Methods of tensors that give another tensor or none.
const OF_TENSORS: [&str; 12] = [
    "cpu", "detach", "dim", "float", "item", "mean", "numel", "numpy", "size", "sum", "tolist",
    "norm",
];
/// Functions that keep no container that they are given.
pub const FUNCTIONS: [&str; 20] = [
    "all",
    "any",
    "bool",
    "enumerate",
    "float",
    "id",
    "int",
    "isinstance",
    "len",
    "list",
    "max",
    "min",
    "print",
    "repr",
    "reversed",
    "set",
    "sorted",
    "str",
    "sum",
    "tuple",
];
/// Modules whose functions keep none either.
pub const MODULES: [&str; 6] = ["math", "np", "numpy", "random", "statistics", "torch"];
/// Functions that make a longer tensor or array of several.
const JOINING: [&str; 8] = [
    "append",
    "cat",
    "concat",
    "concatenate",
    "hstack",
    "pad",
    "stack",
    "vstack",
];
/// Functions that make a tensor of nothing that was there before.
const NEW_TENSORS: [&str; 9] = [
    "arange",
    "empty",
    "full",
    "ones",
    "ones_like",
    "rand",
    "randn",
    "zeros",
    "zeros_like",
];
/// Patterns of growth whose owner is a container.
const OF_CONTAINERS: [&str; 7] = [
    "activations-kept-by-hook",
    "container-grows",
    "evaluation-with-graph",
    "exceptions-kept",
    "graph-retained",
    "kept-with-graph",
    "model-copies",
];
/// Methods that give what is behind a key.
const GETTERS: [&str; 2] = ["get", "setdefault"];

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// A container of tensors.
    Tensors,
    /// A container of other objects.
    Objects,
    /// A tensor that becomes longer.
    Length,
    /// The graph behind a tensor that is made of the one before. Who is given the tensor does not change what the owner is.
    Graph,
}

impl Grows {
    /// What grows by the pattern of a finding; `None` for what the program has no one place for.
    pub fn of(growth: &Growth) -> Option<Self> {
        match growth.pattern.as_str() {
            "tensor-grows" => Some(Self::Length),
            "objects-accumulate" => Some(Self::Objects),
            "state-not-detached" => Some(Self::Graph),
            pattern if OF_CONTAINERS.contains(&pattern) => Some(Self::Tensors),
            _ => None,
        }
    }
}

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Use<'s> {
    /// This expression adds to it.
    Adds(Node<'s>),
    /// Nothing that adds to it, or by which other code could.
    Reads,
    /// Other code may come to it.
    Unknown,
}

/// The whole expression that begins at a name, such as `self.meters['loss']`, with its keys.
pub fn whole<'s>(syntax: &Syntax, name: Node<'s>) -> (Node<'s>, Vec<Node<'s>>) {
    let (mut at, mut keys) = (name, Vec::new());
    while let Some(parent) = at.parent() {
        let up = match parent.kind() {
            "subscript" if is_field(parent, "value", at) => {
                let is_slice = children(parent).iter().any(|it| it.kind() == "slice");
                key_of(parent)
                    .filter(|_| !is_slice)
                    .map(|key| (parent, key))
            }
            "attribute" if is_field(parent, "object", at) => got(syntax, parent),
            _ => None,
        };
        let Some((whole, key)) = up else { break };
        keys.push(key);
        at = whole;
    }
    (at, keys)
}

/// The call of a method that gives what is behind a key, and the key; only with a default that nothing else has.
fn got<'s>(syntax: &Syntax, method: Node<'s>) -> Option<(Node<'s>, Node<'s>)> {
    let name = syntax.of(method.child_by_field_name("attribute")?);
    let call = method.parent().filter(|it| it.kind() == "call")?;
    if !GETTERS.contains(&name) || !is_field(call, "function", method) {
        return None;
    }
    let arguments = children(call.child_by_field_name("arguments")?);
    match arguments[..] {
        [key] => Some((call, key)),
        [key, default] if is_fresh(syntax, default) => Some((call, key)),
        _ => None,
    }
}

/// What is done with an expression that is behind so many `more` keys than what grows, fewer if that is negative.
pub fn used<'s>(syntax: &'s Syntax, whole: Node<'s>, more: isize, grows: Grows) -> Use<'s> {
    let Some(parent) = whole.parent() else {
        return Use::Unknown;
    };
    if grows == Grows::Graph {
        return replaced(syntax, whole, more);
    }
    match parent.kind() {
        "attribute" if is_field(parent, "object", whole) => called(syntax, parent, more, grows),
        "augmented_assignment" if is_field(parent, "left", whole) => {
            let value = parent.child_by_field_name("right");
            match more {
                // `items *= 0`
                0.. if value.is_some_and(|it| syntax.of(it) == "0") => Use::Reads,
                0.. if !adds(syntax, value, grows) => Use::Reads,
                0.. if grows != Grows::Length => Use::Adds(parent),
                _ => Use::Unknown,
            }
        }
        "assignment" if is_field(parent, "left", whole) => {
            assigned(syntax, parent, whole, more, grows)
        }
        // `kept, seen = [], set()`
        "pattern_list" | "tuple_pattern" => match bound_by(whole) {
            Some((_, Some(value))) if more <= 0 && is_fresh(syntax, value) => Use::Reads,
            _ => Use::Unknown,
        },
        "expression_statement"
        | "delete_statement"
        | "global_statement"
        | "nonlocal_statement"
        | "interpolation"
        | "comparison_operator"
        | "not_operator" => Use::Reads,
        "subscript" if is_field(parent, "value", whole) => sliced(parent, more),
        "argument_list" => given(syntax, parent, more),
        // `torch.cat([past, new])`
        "list" | "tuple" if grows == Grows::Length => match parent.parent() {
            Some(list) if list.kind() == "argument_list" => given(syntax, list, more),
            _ => Use::Unknown,
        },
        "for_statement" | "for_in_clause" if is_field(parent, "right", whole) => {
            iterated(syntax, parent, more)
        }
        "binary_operator" | "list_splat" | "dictionary_splat" if more >= 0 => Use::Reads,
        "import_from_statement" => Use::Reads,
        "dotted_name"
            if parent
                .parent()
                .is_some_and(|it| it.kind() == "import_from_statement") =>
        {
            Use::Reads
        }
        "boolean_operator" if is_tested(parent) => Use::Reads,
        _ if is_tested(whole) => Use::Reads,
        _ => Use::Unknown,
    }
}

/// True if a value adds something of what grows: a number is no tensor, and an empty list has none.
fn adds(syntax: &Syntax, value: Option<Node<'_>>, grows: Grows) -> bool {
    grows == Grows::Objects || !is_constant(value) && !holds_nothing(syntax, value)
}

/// The call of a method, or the reading of an attribute.
fn called<'s>(syntax: &'s Syntax, attribute: Node<'s>, more: isize, grows: Grows) -> Use<'s> {
    let name = attribute.child_by_field_name("attribute");
    let name = name.map_or("", |it| syntax.of(it));
    let call = attribute.parent().filter(|it| it.kind() == "call");
    let Some(call) = call.filter(|it| is_field(*it, "function", attribute)) else {
        let is_fact = matches!(name, "shape" | "maxlen" | "device" | "dtype" | "ndim");
        return if is_fact { Use::Reads } else { Use::Unknown };
    };
    if grows == Grows::Length {
        return match more == 0 && OF_TENSORS.contains(&name) {
            true => Use::Reads,
            false => Use::Unknown,
        };
    }
    let arguments = call.child_by_field_name("arguments").map(children);
    let last = arguments.as_ref().and_then(|all| all.last().copied());
    if ADDERS.contains(&name) {
        let is_one = !matches!(
            name,
            "extend" | "extendleft" | "symmetric_difference_update" | "update"
        );
        return match more {
            0.. if is_one && !adds(syntax, last, grows) => Use::Reads,
            0.. => Use::Adds(call),
            _ => Use::Unknown,
        };
    }
    match name {
        // What they give leads to the items, or is one.
        "items" | "values" | "pop" | "popitem" | "popleft" if more < 0 => Use::Unknown,
        "items" | "values" => iterated_call(syntax, call, more),
        _ if more >= 0 && READERS.contains(&name) => Use::Reads,
        _ if more > 0 && OF_TENSORS.contains(&name) => Use::Reads,
        _ => Use::Unknown,
    }
}

/// `for value in container.values()`, or `sum(container.values())`.
fn iterated_call<'s>(syntax: &'s Syntax, call: Node<'s>, more: isize) -> Use<'s> {
    match call.parent() {
        Some(parent) if parent.kind() == "argument_list" => given(syntax, parent, more),
        Some(parent)
            if matches!(parent.kind(), "for_statement" | "for_in_clause")
                && is_field(parent, "right", call) =>
        {
            iterated(syntax, parent, more)
        }
        _ => Use::Unknown,
    }
}

/// A loop over items, which adds to none of them.
fn iterated<'s>(syntax: &'s Syntax, clause: Node<'s>, more: isize) -> Use<'s> {
    let Some(targets) = clause.child_by_field_name("left").filter(|_| more >= 0) else {
        return Use::Unknown;
    };
    let scope = around(clause, &["function_definition", "lambda"]).unwrap_or_else(|| syntax.root());
    let is_called = |name: &str| {
        let mut uses = syntax.variables(scope, name).into_iter();
        uses.any(|it| {
            let parent = it.parent();
            let method = parent.filter(|it| it.kind() == "attribute");
            let method = method.and_then(|it| it.child_by_field_name("attribute"));
            method.is_some_and(|it| ADDERS.contains(&syntax.of(it)))
                || parent.is_some_and(|it| it.kind() == "subscript" && is_target(it))
        })
    };
    let mut names = all(targets)
        .into_iter()
        .filter(|it| it.kind() == "identifier");
    match names.any(|it| is_called(syntax.of(it))) {
        true => Use::Unknown,
        false => Use::Reads,
    }
}

fn is_target(node: Node<'_>) -> bool {
    let parent = node.parent();
    parent.is_some_and(|parent| {
        matches!(parent.kind(), "assignment" | "augmented_assignment")
            && is_field(parent, "left", node)
    })
}

/// A copy of a part, or the assignment of one.
fn sliced<'s>(subscript: Node<'s>, more: isize) -> Use<'s> {
    let is_removed = subscript
        .parent()
        .is_some_and(|it| it.kind() == "delete_statement");
    match more >= 0 && (is_removed || !is_target(subscript)) {
        true => Use::Reads,
        false => Use::Unknown,
    }
}

/// An argument of a function.
fn given<'s>(syntax: &'s Syntax, list: Node<'s>, more: isize) -> Use<'s> {
    let call = list.parent().filter(|it| it.kind() == "call");
    let function = call.and_then(|it| it.child_by_field_name("function"));
    let function = function.map_or("", |it| syntax.of(it));
    let is_builtin =
        FUNCTIONS.contains(&function) && syntax.bindings(syntax.root(), function).is_empty();
    let is_harmless = is_builtin
        || function
            .split_once('.')
            .is_some_and(|(module, _)| MODULES.contains(&module));
    match (is_harmless && more >= 0, call) {
        // What goes over the items gives them on.
        (true, Some(call)) if matches!(function, "enumerate" | "reversed") => match call.parent() {
            Some(parent) if is_field(parent, "right", call) => iterated(syntax, parent, more),
            _ => Use::Unknown,
        },
        (true, Some(_)) => Use::Reads,
        _ => Use::Unknown,
    }
}

/// An assignment to it, or to what it is in.
fn assigned<'s>(
    syntax: &'s Syntax,
    assignment: Node<'s>,
    target: Node<'s>,
    more: isize,
    grows: Grows,
) -> Use<'s> {
    let is_chained = |node: Option<Node<'_>>| node.is_some_and(|it| it.kind() == "assignment");
    let Some(value) = assignment.child_by_field_name("right") else {
        // `self.items: list[Tensor]`
        return Use::Reads;
    };
    if is_chained(assignment.parent()) || is_chained(Some(value)) {
        return Use::Unknown;
    }
    let text = syntax.of(target);
    let has_itself = all(value).into_iter().any(|it| syntax.of(it) == text);
    let is_part = value.kind() == "subscript"
        && (value.child_by_field_name("value")).is_some_and(|it| syntax.of(it) == text);
    match (more, grows) {
        _ if is_constant(Some(value)) && grows != Grows::Objects => Use::Reads,
        (_, Grows::Length) if more != 0 => Use::Unknown,
        (0, _) if is_part => Use::Reads,
        (0, Grows::Length) if is_joined(syntax, value, text) => Use::Adds(assignment),
        (0, Grows::Length) if is_new_tensor(syntax, value) => Use::Reads,
        (0, Grows::Tensors | Grows::Objects)
            if matches!(value.kind(), "binary_operator" | "list" | "dictionary") && has_itself =>
        {
            Use::Adds(assignment)
        }
        (..=0, _) if is_fresh(syntax, value) => Use::Reads,
        (1.., _) if holds_nothing(syntax, Some(value)) && grows == Grows::Tensors => Use::Reads,
        (1.., _) => Use::Adds(assignment),
        _ => Use::Unknown,
    }
}

/// What is done with a variable or attribute that has a tensor: it is made of the tensor before, or replaced by another.
fn replaced<'s>(syntax: &'s Syntax, whole: Node<'s>, more: isize) -> Use<'s> {
    let Some((statement, value)) = bound_by(whole) else {
        return match whole.parent() {
            Some(parent) if parent.kind() == "augmented_assignment" && is_target(whole) => {
                if more == 0 {
                    Use::Adds(parent)
                } else {
                    Use::Unknown
                }
            }
            Some(parent) if is_field(parent, "name", whole) => Use::Unknown,
            _ => Use::Reads,
        };
    };
    let text = syntax.of(whole);
    let source = match statement.kind() {
        // Of a tuple, each part may be made of it.
        "assignment" => value.or_else(|| statement.child_by_field_name("right")),
        _ => None,
    };
    match source {
        None => Use::Unknown,
        _ if more != 0 => Use::Unknown,
        Some(value) if all(value).into_iter().any(|it| syntax.of(it) == text) => {
            Use::Adds(statement)
        }
        Some(value) if is_new_tensor(syntax, value) => Use::Reads,
        // A function may make it of the one before.
        Some(_) => Use::Unknown,
    }
}

pub fn is_new_tensor(syntax: &Syntax, value: Node<'_>) -> bool {
    let function = value.child_by_field_name("function");
    let function = function.map_or("", |it| last_part(syntax.of(it)));
    is_constant(Some(value)) || NEW_TENSORS.contains(&function)
}

/// True for the call of a function that joins a tensor with others.
fn is_joined(syntax: &Syntax, value: Node<'_>, text: &str) -> bool {
    let function = value.child_by_field_name("function");
    let function = function.map_or("", |it| last_part(syntax.of(it)));
    let arguments = value.child_by_field_name("arguments");
    JOINING.contains(&function)
        && arguments.is_some_and(|it| all(it).into_iter().any(|it| syntax.of(it) == text))
}

/// True for a new container that nothing else has, with nothing in it or only such containers.
pub fn is_fresh(syntax: &Syntax, value: Node<'_>) -> bool {
    if is_constant(Some(value)) || holds_nothing(syntax, Some(value)) {
        return true;
    }
    let fresh = |part: Option<Node<'_>>| part.is_some_and(|it| is_fresh(syntax, it));
    match value.kind() {
        "list" | "tuple" => children(value).into_iter().all(|it| is_fresh(syntax, it)),
        "dictionary" => children(value)
            .into_iter()
            .all(|pair| fresh(pair.child_by_field_name("value"))),
        "list_comprehension" => fresh(value.child_by_field_name("body")),
        "dictionary_comprehension" => {
            let pair = value.child_by_field_name("body");
            fresh(pair.and_then(|pair| pair.child_by_field_name("value")))
        }
        // `field(default_factory=list)`
        "call" => {
            let function = value.child_by_field_name("function");
            let function = function.map_or("", |it| last_part(syntax.of(it)));
            let arguments = value.child_by_field_name("arguments").map(children);
            let is_factory = |it: &Node<'_>| {
                let made = it.child_by_field_name("value");
                let made = made.map_or("", |it| last_part(syntax.of(it)));
                matches!(made, "list" | "dict" | "set" | "deque" | "OrderedDict")
            };
            function == "field" && arguments.is_some_and(|all| all.iter().all(is_factory))
        }
        _ => false,
    }
}
