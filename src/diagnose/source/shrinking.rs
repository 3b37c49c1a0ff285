//! Expressions by which a container becomes smaller, or is emptied, and whether that may happen again.

use std::collections::BTreeSet;

use tree_sitter::Node;

use super::container::key_of;
use super::held::last_part;
use super::stores::{bound_by, is_constant};
use super::syntax::{Syntax, all, around, children, function_around, is_field, lines};

/// Methods that take one item or some, for whatever reason.
pub const TAKERS: [&str; 6] = [
    "discard",
    "pop",
    "popitem",
    "popleft",
    "remove",
    "difference_update",
];
/// The function of `heapq` that takes one.
const TAKING: &str = "heappop";
/// Functions of `heapq` that put one in the place of another.
const REPLACING: [&str; 2] = ["heappushpop", "heapreplace"];
/// Names of what is true at an end.
const ENDS: [&str; 8] = [
    "done",
    "end",
    "finished",
    "is_last",
    "last",
    "over",
    "terminated",
    "truncated",
];
/// Methods in which an object gets its attributes: what they assign is not assigned again.
pub const INITIAL: [&str; 5] = [
    "__init__",
    "__post_init__",
    "__new__",
    "__setstate__",
    "__init_subclass__",
];
pub const LOOPS: [&str; 2] = ["for_statement", "while_statement"];

/// `len(x)`, of an expression.
pub fn length<'s>(syntax: &Syntax, whole: Node<'s>) -> Option<Node<'s>> {
    let call = whole.parent()?.parent().filter(|it| it.kind() == "call")?;
    (given_to(syntax, whole)? == "len").then_some(call)
}

/// The name of the function whose first argument an expression is.
pub fn given_to<'a>(syntax: &'a Syntax, whole: Node<'_>) -> Option<&'a str> {
    let list = whole.parent().filter(|it| it.kind() == "argument_list")?;
    let is_first = children(list).first() == Some(&whole);
    let call = list.parent().filter(|it| it.kind() == "call" && is_first)?;
    Some(last_part(syntax.of(call.child_by_field_name("function")?)))
}

/// The name of the method of an expression that is read.
pub fn method<'a>(syntax: &'a Syntax, whole: Node<'_>) -> Option<&'a str> {
    let attribute = whole.parent().filter(|it| it.kind() == "attribute")?;
    let name = attribute.child_by_field_name("attribute")?;
    is_field(attribute, "object", whole).then(|| syntax.of(name))
}

/// What takes from a container, where that is a limit or empties it; `turning` are the keys that go around.
pub fn taken<'s>(
    syntax: &'s Syntax,
    whole: Node<'s>,
    turning: &BTreeSet<&str>,
) -> Option<Node<'s>> {
    let parent = whole.parent()?;
    if given_to(syntax, whole).is_some_and(|it| REPLACING.contains(&it)) {
        return Some(whole);
    }
    if let Some(taking) = taking(syntax, whole) {
        let is_limit = is_sliced(parent, whole)
            || is_behind(syntax, whole)
            || is_for_limit(syntax, taking, syntax.of(whole))
            || is_at_its_end(syntax, whole, taking)
            || is_called_back(syntax, taking);
        return is_limit.then_some(taking);
    }
    // `items[number % limit] = item`
    let is_assigned = bound_by(whole).is_some() && whole.kind() == "subscript";
    let key = key_of(whole).filter(|_| is_assigned)?;
    (is_remainder(syntax, key) || turning.contains(syntax.of(key))).then_some(whole)
}

/// The method or the statement that takes from a container, for whatever reason.
pub fn taking<'s>(syntax: &Syntax, whole: Node<'s>) -> Option<Node<'s>> {
    let parent = whole.parent()?;
    if method(syntax, whole).is_some_and(|it| TAKERS.contains(&it)) {
        return Some(parent);
    }
    if given_to(syntax, whole) == Some(TAKING) {
        return parent.parent();
    }
    // `del items[:-limit]`
    let deleted = if is_sliced(parent, whole) {
        parent
    } else {
        whole
    };
    let delete = deleted.parent()?;
    let delete = match delete.kind() {
        "expression_list" => delete.parent()?,
        _ => delete,
    };
    (delete.kind() == "delete_statement").then_some(delete)
}

/// True for a slice of a container.
pub fn is_sliced(subscript: Node<'_>, whole: Node<'_>) -> bool {
    subscript.kind() == "subscript"
        && is_field(subscript, "value", whole)
        && children(subscript).iter().any(|it| it.kind() == "slice")
}

/// True for what is taken from behind a window: `items.pop(step - 100)`, `del items[step - 100]`.
fn is_behind(syntax: &Syntax, whole: Node<'_>) -> bool {
    let call = whole.parent().and_then(|it| it.parent());
    let arguments = call.and_then(|it| it.child_by_field_name("arguments"));
    let key = match arguments {
        Some(arguments) => children(arguments).first().copied(),
        None => key_of(whole),
    };
    let difference = key.filter(|it| it.kind() == "binary_operator");
    let operator = difference.and_then(|it| it.child_by_field_name("operator"));
    operator.is_some_and(|it| syntax.of(it) == "-")
        && key.is_some_and(|it| !syntax.of(it).contains("len("))
}

/// The variables and attributes of a file that a remainder or, at some number, a constant is assigned to: as keys they go
/// around.
pub fn turning(syntax: &Syntax) -> BTreeSet<&str> {
    let nodes = all(syntax.root()).into_iter();
    let assignments = nodes.filter(|it| it.kind() == "assignment");
    let targets = assignments.filter_map(|it| {
        let target = it.child_by_field_name("left")?;
        let value = it.child_by_field_name("right")?;
        let goes_around = || all(value).into_iter().any(|it| is_remainder(syntax, it));
        let is_start = value.kind() == "integer" && may_vary(syntax, it) == Some(true);
        let is_name = matches!(target.kind(), "identifier" | "attribute");
        (is_name && (is_start || goes_around())).then(|| syntax.of(target))
    });
    targets.collect()
}

/// True for `a % b`, but not where a text is formatted.
pub fn is_remainder(syntax: &Syntax, operation: Node<'_>) -> bool {
    let left = operation.child_by_field_name("left");
    let is_text = |it: Node<'_>| matches!(it.kind(), "string" | "concatenated_string");
    // `NAME % number`, with `NAME = "step %d"`.
    let is_name_of_text = |it: Node<'_>| {
        let bindings = syntax.bindings(syntax.root(), syntax.of(it)).into_iter();
        let mut values = bindings.filter_map(|it| bound_by(it)?.1);
        it.kind() == "identifier" && values.any(is_text)
    };
    operator(syntax, operation) == "%" && !left.is_some_and(|it| is_text(it) || is_name_of_text(it))
}

/// The operator of a binary operation; nothing of what is none.
pub fn operator<'s>(syntax: &'s Syntax, operation: Node<'_>) -> &'s str {
    let is_binary = operation.kind() == "binary_operator";
    let operator = operation
        .child_by_field_name("operator")
        .filter(|_| is_binary);
    operator.map_or("", |it| syntax.of(it))
}

/// Functions that give a part of what they are given.
const PARTS: [&str; 4] = ["filter", "islice", "nlargest", "nsmallest"];

/// True for what takes the item of a variable key where that has ended: `if done: items.pop(key)`, or in a
/// loop over all keys.
fn is_at_its_end(syntax: &Syntax, whole: Node<'_>, taking: Node<'_>) -> bool {
    let call = taking.parent().filter(|it| it.kind() == "call");
    let arguments = call.and_then(|it| it.child_by_field_name("arguments"));
    let key = match arguments {
        Some(arguments) => children(arguments).first().copied(),
        None => key_of(whole),
    };
    let Some(key) = key.filter(|it| !is_constant(Some(*it)) && it.kind() != "unary_operator")
    else {
        return false;
    };
    let function = function_around(taking);
    let mut at = taking;
    while let Some(next) = around(at, &["if_statement", "elif_clause", "for_statement"])
        && function_around(next) == function
    {
        let names = |field| {
            let asked = next.child_by_field_name(field);
            asked.into_iter().flat_map(all)
        };
        let has_ended = names("condition").any(|it| ENDS.contains(&syntax.of(it)));
        let container = match whole.kind() {
            "subscript" => whole.child_by_field_name("value").unwrap_or(whole),
            _ => whole,
        };
        let left = next.child_by_field_name("left");
        let is_each = left.is_some_and(|it| syntax.of(it) == syntax.of(key))
            && names("right").any(|it| syntax.of(it) == syntax.of(container));
        if has_ended || is_each {
            return true;
        }
        at = next;
    }
    false
}

/// True for what is done when something has ended, as a callback is called then: `task.add_done_callback(tasks.discard)`.
fn is_called_back(syntax: &Syntax, taking: Node<'_>) -> bool {
    let gives = |call: Node<'_>| {
        let function = call.child_by_field_name("function");
        let name = function.map_or("", |it| last_part(syntax.of(it)));
        name.contains("callback") || name == "finalize"
    };
    let is_given = |node: Node<'_>| {
        let list = node.parent().filter(|it| it.kind() == "argument_list");
        list.and_then(|it| it.parent()).is_some_and(gives)
    };
    let lambda = around(taking, &["lambda"]);
    if is_given(taking) || lambda.is_some_and(is_given) {
        return true;
    }
    let function = function_around(taking).and_then(|it| it.child_by_field_name("name"));
    function.is_some_and(|name| {
        let mut nodes = all(syntax.root()).into_iter();
        nodes.any(|it| {
            matches!(it.kind(), "identifier" | "attribute")
                && last_part(syntax.of(it)) == syntax.of(name)
                && is_given(it)
        })
    })
}

/// The expressions of which an expression has the value of one: both of a conditional expression, and what a method only
/// copies.
pub fn alternatives<'s>(syntax: &Syntax, value: Node<'s>) -> Vec<Node<'s>> {
    let parts = children(value);
    match (value.kind(), &parts[..]) {
        ("conditional_expression", [one, _, other]) => {
            let mut found = alternatives(syntax, *one);
            found.extend(alternatives(syntax, *other));
            found
        }
        ("parenthesized_expression", [inner]) => alternatives(syntax, *inner),
        ("call", [method, ..]) if is_copy(syntax, *method) => {
            let object = method.child_by_field_name("object");
            object.map_or_else(|| vec![value], |it| alternatives(syntax, it))
        }
        _ => vec![value],
    }
}

fn is_copy(syntax: &Syntax, method: Node<'_>) -> bool {
    let name = method.child_by_field_name("attribute");
    name.is_some_and(|it| matches!(syntax.of(it), "clone" | "contiguous" | "copy" | "detach"))
}

/// True for an expression that has a text in it, or a local variable that was made of it.
pub fn is_made_of(syntax: &Syntax, value: Node<'_>, text: &str) -> bool {
    let has = |node: Node<'_>| all(node).into_iter().any(|it| syntax.of(it) == text);
    let function = function_around(value);
    has(value)
        || function.is_some_and(|function| {
            let mut names = all(value)
                .into_iter()
                .filter(|it| it.kind() == "identifier");
            names.any(|it| {
                let bindings = syntax.bindings(function, syntax.of(it)).into_iter();
                let mut values = bindings.filter_map(|it| bound_by(it)?.1);
                values.any(has)
            })
        })
}

/// True for a part of a tensor: `x[:, -limit:]`, `x.narrow(1, first, limit)`.
pub fn is_narrowed(syntax: &Syntax, value: Node<'_>) -> bool {
    let function = value.child_by_field_name("function");
    value.kind() == "subscript" || function.is_some_and(|it| last_part(syntax.of(it)) == "narrow")
}

/// True for an expression that is made of a container and has less of it.
pub fn is_shortened(syntax: &Syntax, value: Node<'_>, container: &str) -> bool {
    let has_part = || {
        all(value).into_iter().any(|it| match it.kind() {
            "slice" => true,
            "call" => {
                let function = it.child_by_field_name("function");
                function.is_some_and(|it| PARTS.contains(&last_part(syntax.of(it))))
            }
            _ => false,
        })
    };
    let is_sliced_part = |it: Node<'_>| {
        let whole = it.child_by_field_name("value");
        whole.is_some_and(|whole| is_sliced(it, whole))
    };
    match value.kind() {
        "list_comprehension" | "dictionary_comprehension" | "set_comprehension" => true,
        // What one of its items leads to is something else: `root = root.children[0]`.
        "subscript" => {
            let whole = value.child_by_field_name("value");
            let is_its_own = whole.is_some_and(|it| syntax.of(it) == container);
            is_sliced_part(value) || is_its_own && !is_constant(key_of(value))
        }
        // `[*items[-limit:], item]`
        "list" | "tuple" => all(value).into_iter().any(is_sliced_part),
        "call" => has_part(),
        _ => false,
    }
}

/// True for what is done only if something is larger than something else, or to a part of the items.
pub fn is_for_limit(syntax: &Syntax, node: Node<'_>, container: &str) -> bool {
    let function = function_around(node);
    let mut at = node;
    while let Some(next) = around(
        at,
        &[
            "if_statement",
            "elif_clause",
            "while_statement",
            "for_statement",
        ],
    ) {
        if function_around(next) != function {
            return false;
        }
        let condition = match next.kind() {
            "for_statement" => next.child_by_field_name("right"),
            _ => next.child_by_field_name("condition"),
        };
        // `while items: items.pop()`
        let is_drained = next.kind() == "while_statement"
            && condition.is_some_and(|it| {
                let mut parts = all(it).into_iter();
                parts.any(|part| syntax.of(part) == container)
            });
        if is_drained {
            return true;
        }
        let is_loop = next.kind() == "for_statement";
        // `for key in old`, of `old = [key for key in items if key < first]`
        let value = condition.filter(|it| is_loop && it.kind() == "identifier");
        let value = value.and_then(|it| {
            let bindings = syntax.bindings(function?, syntax.of(it));
            bound_by(*bindings.first()?)?.1
        });
        let compares = value.or(condition).is_some_and(|it| {
            all(it).into_iter().any(|it| match it.kind() {
                "<" | ">" | "<=" | ">=" => {
                    // Whether there is any says nothing of how many there may be.
                    let zero = it.next_sibling().is_some_and(|it| syntax.of(it) == "0");
                    !zero || next.kind() == "while_statement"
                }
                // `for key in list(items)[:-100]`, `for _ in range(len(items) - 100)`
                "slice" | "-" => is_loop,
                _ => false,
            })
        });
        if compares {
            return true;
        }
        at = next;
    }
    false
}

pub fn is_detached(syntax: &Syntax, value: Node<'_>) -> bool {
    all(value).into_iter().any(|it| {
        let name = it.child_by_field_name("attribute");
        name.is_some_and(|it| matches!(syntax.of(it), "data" | "detach" | "detach_"))
    })
}

/// True for what a loop of the same function does.
pub fn is_in_loop(node: Node<'_>, function: Option<Node<'_>>) -> bool {
    let found = around(node, &LOOPS);
    found.is_some_and(|it| function.is_none_or(|function| lines(it).0 >= lines(function).0))
}

/// False for a comparison with a text or a constant, which is that of an option, and with a number that is met once.
fn may_differ(syntax: &Syntax, operator: Node<'_>) -> bool {
    let sides = [operator.prev_sibling(), operator.next_sibling()];
    let is_option = |it: &Node<'_>| matches!(it.kind(), "string" | "none" | "true" | "false");
    let is_once = |it: &Node<'_>| it.kind() == "integer" && syntax.of(*it) != "0";
    let has_name = sides.iter().flatten().any(|it| it.kind() == "identifier");
    let mut sides = sides.iter().flatten();
    !sides.any(|it| is_option(it) || has_name && is_once(it))
}

/// True for `x is None` and its opposite.
fn asks_for_none(syntax: &Syntax, condition: Node<'_>) -> bool {
    let sides = children(condition);
    condition.kind() == "comparison_operator"
        && matches!(sides[..], [_, none] if syntax.of(none) == "None")
}

/// Whether the conditions of its function under which something is done may be true and false by turns, if there are any;
/// `None` if one is the same all the time, such as a parameter, as far as one can see.
pub fn may_vary(syntax: &Syntax, node: Node<'_>) -> Option<bool> {
    let function = function_around(node);
    let (mut at, mut is_conditional) = (node, false);
    while let Some(next) = around(at, &["if_statement", "elif_clause"])
        && function_around(next) == function
    {
        let condition = next.child_by_field_name("condition")?;
        // Whether there is one yet.
        if asks_for_none(syntax, condition) {
            at = next;
            continue;
        }
        let varies = all(condition).into_iter().any(|it| match it.kind() {
            "<" | ">" | "<=" | ">=" | "in" | "not in" | "call" => true,
            "==" | "!=" => may_differ(syntax, it),
            "identifier" if ENDS.contains(&syntax.of(it)) => true,
            "identifier" => function.is_some_and(|function| {
                let name = syntax.of(it);
                let mut bindings = syntax.bindings(function, name).into_iter();
                let is_bound = |it: Node<'_>| around(it, &["parameters"]).is_none();
                let is_compared = |it: Node<'_>| it.kind() == "comparison_operator";
                syntax.is_variable(it)
                    && !it.parent().is_some_and(is_compared)
                    && bindings.any(is_bound)
            }),
            _ => false,
        });
        if !varies {
            return None;
        }
        is_conditional = true;
        at = next;
    }
    Some(is_conditional)
}

/// The parts of a condition that must all be true.
pub fn operands(condition: Node<'_>) -> Vec<Node<'_>> {
    let is_and = condition
        .child_by_field_name("operator")
        .is_some_and(|it| it.kind() == "and");
    match is_and {
        true => children(condition).into_iter().flat_map(operands).collect(),
        false => vec![condition],
    }
}
