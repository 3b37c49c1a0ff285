//! The keys of a cache that the program fills: those that it has not had, and those that come again.

use tree_sitter::Node;

use super::container::key_of;
use super::held::last_part;
use super::shrinking::{INITIAL, given_to, is_in_loop, is_remainder, operands, operator};
use super::stores::{bound_by, is_constant};
use super::syntax::{Syntax, all, around, children, function_around, is_named};

/// So many variables and functions are followed from a key to what it is rounded by.
const STEPS: usize = 3;
/// Functions that give one result for many numbers.
const ROUNDING: [&str; 3] = ["ceil", "floor", "round"];
/// Iterables of numbers that go up.
const COUNTING: [&str; 3] = ["count", "enumerate", "range"];
/// Functions whose results go up, or are other ones each time.
const GOING_ON: [&str; 9] = [
    "id",
    "monotonic",
    "monotonic_ns",
    "next",
    "perf_counter",
    "perf_counter_ns",
    "random",
    "time",
    "time_ns",
];

/// How many keys an expression has: 2 of `tracks[key]["state"]`.
pub fn keys_of(expression: Node<'_>) -> usize {
    let mut at = Some(expression);
    let mut count = 0;
    while let Some(subscript) = at.filter(|it| it.kind() == "subscript") {
        count += 1;
        at = subscript.child_by_field_name("value");
    }
    count
}

/// True for a key that a container has not had: its length, or a counter that is set where it begins and only goes up.
pub fn is_never_again<'s>(
    syntax: &'s Syntax,
    key: Node<'s>,
    container: Node<'s>,
    is_repeated: impl Fn(Node<'s>) -> bool,
) -> bool {
    let parts = all(key);
    if parts.iter().any(|it| is_remainder(syntax, *it)) {
        return false;
    }
    let is_length =
        |it: Node<'_>| given_to(syntax, it) == Some("len") && syntax.of(it) == syntax.of(container);
    let mut names = parts.into_iter();
    names.any(|it| {
        matches!(it.kind(), "identifier" | "attribute")
            && (is_length(it) || is_counter(syntax, it, &is_repeated))
    })
}

/// True for a variable or an attribute that something is added to, and that is assigned only where it begins.
fn is_counter<'s>(
    syntax: &'s Syntax,
    counted: Node<'s>,
    is_repeated: impl Fn(Node<'s>) -> bool,
) -> bool {
    let nodes = all(syntax.root()).into_iter();
    let same = nodes.filter(|it| {
        matches!(it.kind(), "assignment" | "augmented_assignment")
            && it
                .child_by_field_name("left")
                .is_some_and(|it| syntax.of(it) == syntax.of(counted))
    });
    // `count += 1`, and `count = count + 1`.
    let adds = |it: &Node<'s>| {
        let value = it.child_by_field_name("right");
        let value = value.filter(|value| operator(syntax, *value) == "+");
        value.is_some_and(|value| {
            let mut parts = children(value).into_iter();
            parts.any(|it| syntax.of(it) == syntax.of(counted))
        })
    };
    let (added, assigned): (Vec<_>, Vec<_>) =
        same.partition(|it| it.kind() == "augmented_assignment" || adds(it));
    let goes_up = |it: &Node<'s>| {
        let operator = it.child_by_field_name("operator");
        adds(it) || operator.is_some_and(|it| syntax.of(it) == "+=")
    };
    let begins = |it: &Node<'s>| match (counted.kind(), function_around(*it)) {
        ("attribute", Some(function)) => {
            let mut initial = INITIAL.iter();
            initial.any(|name| is_named(syntax, function, name)) && !is_in_loop(*it, Some(function))
        }
        _ => !is_repeated(*it),
    };
    !added.is_empty() && added.iter().all(goes_up) && assigned.iter().all(begins)
}

/// True for what is done only if a container has no such key: `if key not in items`, or behind the `else` of its
/// opposite, `if items.get(key) is None`, `except KeyError`.
pub fn is_only_if_missing(syntax: &Syntax, node: Node<'_>, key: &str, container: &str) -> bool {
    let function = function_around(node);
    let pressed = |text: &str| text.replace([' ', '(', ')', '\n'], "");
    let (key, container) = (pressed(key), pressed(container));
    let is_in = |text: &str, before: &str| {
        let asked = text.strip_prefix(before);
        asked.is_some_and(|it| it.strip_suffix(".keys").unwrap_or(it) == container)
    };
    let says_missing = |it: Node<'_>| {
        let text = pressed(syntax.of(it));
        is_in(&text, &[&*key, "not", "in"].concat())
            || is_in(&text, &format!("not{key}in"))
            || text == format!("{container}.get{key}isNone")
    };
    let says_there = |it: Node<'_>| is_in(&pressed(syntax.of(it)), &format!("{key}in"));
    let mut at = node;
    let kinds = [
        "if_statement",
        "elif_clause",
        "else_clause",
        "except_clause",
    ];
    while let Some(next) = around(at, &kinds)
        && function_around(next) == function
    {
        let is_missing = match next.kind() {
            "except_clause" => {
                let caught = children(next).first().copied();
                caught.is_some_and(|it| syntax.of(it).contains("KeyError"))
            }
            _ => {
                let opposite = behind_else(next).map_or_else(Vec::new, conditions);
                opposite.into_iter().any(says_there)
                    || conditions(next).into_iter().any(says_missing)
            }
        };
        if is_missing {
            return true;
        }
        at = behind_else(next).unwrap_or(next);
    }
    false
}

/// The statement whose condition is false where a clause is done, if it is an `else` or an `elif`.
fn behind_else(clause: Node<'_>) -> Option<Node<'_>> {
    let is_behind = matches!(clause.kind(), "else_clause" | "elif_clause");
    clause.parent().filter(|_| is_behind)
}

/// The parts of the condition of a statement, if it has one, that must all be true.
fn conditions(statement: Node<'_>) -> Vec<Node<'_>> {
    let condition = statement.child_by_field_name("condition");
    condition.map_or_else(Vec::new, operands)
}

/// The assignment of an item in `__getitem__` of a class that has a length, by the index that it is asked for: a cache of a
/// data set is as long as that at most.
pub fn cached_by_index<'s>(syntax: &'s Syntax, whole: Node<'s>) -> Option<Node<'s>> {
    let function = function_around(whole).filter(|it| is_named(syntax, *it, "__getitem__"))?;
    let (assignment, _) = bound_by(whole)?;
    let key = syntax.of(key_of(whole)?);
    let parameters = children(function.child_by_field_name("parameters")?);
    let is_index = parameters.get(1).is_some_and(|it| syntax.of(*it) == key);
    let class = around(function, &["class_definition"])?;
    let has_length = all(class)
        .into_iter()
        .any(|it| it.kind() == "function_definition" && is_named(syntax, it, "__len__"));
    (is_index && has_length).then_some(assignment)
}

/// The functions of a program, by name.
pub type Functions<'a, 's> = &'a dyn Fn(&str) -> Vec<(&'s Syntax, Node<'s>)>;

/// True for a key that is a rounded number, such as `(n + 7) // 8 * 8`, in each of its parts; or a variable, or the result of
/// a function of the program's, that is always that. Not for one of a counter or a clock: it comes to new ones again and
/// again.
pub fn is_rounded<'s>(syntax: &'s Syntax, key: Node<'s>, functions: Functions<'_, 's>) -> bool {
    rounds(syntax, key, functions, STEPS)
}

fn rounds<'s>(
    syntax: &'s Syntax,
    value: Node<'s>,
    functions: Functions<'_, 's>,
    steps: usize,
) -> bool {
    let follows = |it: Node<'s>| rounds(syntax, it, functions, steps);
    let deeper =
        |syntax: &'s Syntax, it: Node<'s>| steps > 0 && rounds(syntax, it, functions, steps - 1);
    match value.kind() {
        // In these each part varies by itself.
        "binary_operator" if matches!(operator(syntax, value), "+" | "-" | "/") => {
            all_vary_so(children(value), follows)
        }
        // By the step that it was divided by, which may have a name.
        "binary_operator" if operator(syntax, value) == "*" => {
            children(value).into_iter().any(follows)
        }
        "expression_list"
        | "interpolation"
        | "parenthesized_expression"
        | "return_statement"
        | "string"
        | "tuple" => {
            let is_text = |it: &Node<'_>| it.kind().starts_with("string_");
            let parts = children(value).into_iter().filter(|it| !is_text(it));
            all_vary_so(parts.collect(), follows)
        }
        "binary_operator" => {
            let right = value.child_by_field_name("right");
            let is_number = right.is_some_and(|it| it.kind() == "integer" && syntax.of(it) != "1");
            match operator(syntax, value) {
                // `template % n` is a text.
                "%" => is_number && is_remainder(syntax, value),
                "//" => right.is_none_or(|it| syntax.of(it) != "1") && !goes_on(syntax, value),
                _ => false,
            }
        }
        "call" => {
            let function = value.child_by_field_name("function");
            let name = function.map_or("", |it| syntax.of(it));
            let arguments = value
                .child_by_field_name("arguments")
                .map_or_else(Vec::new, children);
            if goes_on(syntax, value) {
                return false;
            }
            let is_rounding = ROUNDING.contains(&last_part(name)) && arguments.len() == 1;
            let own = name.strip_prefix("self.").unwrap_or(name);
            let found = match own.contains('.') {
                true => Vec::new(),
                false => functions(own),
            };
            let returns = |(syntax, function): (&'s Syntax, Node<'s>)| {
                let parts = all(function).into_iter();
                let mut parts = parts
                    .filter(|it| it.kind() == "return_statement")
                    .peekable();
                parts.peek().is_some() && parts.all(|it| deeper(syntax, it))
            };
            is_rounding || !found.is_empty() && found.into_iter().all(returns)
        }
        "identifier" if syntax.is_variable(value) => {
            let bindings = function_around(value)
                .map_or_else(Vec::new, |it| syntax.bindings(it, syntax.of(value)));
            let values = bindings.into_iter().map(|it| bound_by(it)?.1);
            let mut values = values.peekable();
            values.peek().is_some() && values.all(|it| it.is_some_and(|it| deeper(syntax, it)))
        }
        _ => false,
    }
}

/// True if those of some parts of a key that are not fixed are rounded, and there are some.
fn all_vary_so<'s>(mut parts: Vec<Node<'s>>, rounds: impl Fn(Node<'s>) -> bool) -> bool {
    let is_formatted = |it: Node<'_>| all(it).iter().any(|it| it.kind() == "interpolation");
    parts.retain(|it| !is_constant(Some(*it)) || is_formatted(*it));
    !parts.is_empty() && parts.into_iter().all(rounds)
}

/// True if a part of a value goes up for ever: a counter, the variable of a loop over numbers that go up, the next of an
/// iterator, or the time.
fn goes_on<'s>(syntax: &'s Syntax, value: Node<'s>) -> bool {
    let is_called = |it: Node<'s>| {
        let function = it.child_by_field_name("function");
        it.kind() == "call"
            && function.is_some_and(|it| GOING_ON.contains(&last_part(syntax.of(it))))
    };
    all(value)
        .into_iter()
        .any(|it| goes_up(syntax, it) || is_called(it))
}

/// True for a counter, and for the variable of a loop over numbers that go up.
fn goes_up<'s>(syntax: &'s Syntax, node: Node<'s>) -> bool {
    let is_in_loop = |it| around(it, &["for_statement", "while_statement"]).is_some();
    matches!(node.kind(), "identifier" | "attribute")
        && (is_counter(syntax, node, is_in_loop) || is_index(syntax, node))
}

/// True for the variable of a loop over numbers that go up.
fn is_index<'s>(syntax: &'s Syntax, node: Node<'s>) -> bool {
    let Some(function) = function_around(node) else {
        return false;
    };
    let bindings = syntax.bindings(function, syntax.of(node)).into_iter();
    let mut loops =
        bindings.filter_map(|it| around(it, &["for_statement", "for_in_clause"]).zip(Some(it)));
    loops.any(|(over, name)| {
        let right = over.child_by_field_name("right");
        let is_target = over
            .child_by_field_name("left")
            .is_some_and(|left| all(left).contains(&name));
        let called = right.and_then(|it| it.child_by_field_name("function"));
        is_target && called.is_some_and(|it| COUNTING.contains(&last_part(syntax.of(it))))
    })
}
