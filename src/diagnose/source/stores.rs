//! The statements of a file that store something in an attribute.

use tree_sitter::Node;

use super::family::decorators;
use super::syntax::{Syntax, all, around, children, is_field, is_named, scope};

/// Patterns of several targets, to which something is unpacked.
const PATTERNS: [&str; 3] = ["pattern_list", "tuple_pattern", "list_pattern"];
/// Values that have one part for each of such targets.
const TUPLES: [&str; 3] = ["expression_list", "tuple", "list"];

/// Classes whose objects have the keywords of the call as attributes; the first is written in C.
pub const NAMESPACES: [&str; 2] = ["SimpleNamespace", "Namespace"];

/// Functions of `heapq` and `bisect` that put their second argument into the list that is their first.
pub const PUTTING: [&str; 6] = [
    "heappush",
    "heappushpop",
    "heapreplace",
    "insort",
    "insort_left",
    "insort_right",
];

/// Something that is stored in an attribute.
#[derive(Clone, Copy)]
pub struct Store<'s> {
    /// The expression to show: the assignment, or the call of `setattr`.
    pub node: Node<'s>,
    /// The object that has the attribute then; `None` if that is not written there.
    pub receiver: Option<Node<'s>>,
    /// What is stored; `None` if that is not written there.
    pub value: Option<Node<'s>>,
    /// False if the name of the attribute is not written there: it may be any.
    pub is_named: bool,
}

/// All statements of a file that may store something in an attribute, but for numbers, texts and None.
pub fn stores<'s>(syntax: &'s Syntax, attribute: &str) -> Vec<Store<'s>> {
    let store = |node: Node<'s>| match node.kind() {
        "attribute" if is_called(syntax, node, attribute) => {
            let (shown, value) = bound_by(node)?;
            Some(Store {
                node: shown,
                receiver: node.child_by_field_name("object"),
                value,
                is_named: true,
            })
        }
        "call" => set_by_name(syntax, node, attribute)
            .or_else(|| updated(syntax, node, attribute))
            .or_else(|| in_namespace(syntax, node, attribute)),
        "subscript" => item_of_dict(syntax, node, attribute),
        "attribute" if is_called(syntax, node, "__dict__") => {
            whole_dict(node).filter(|_| may_add(syntax, node, attribute))
        }
        "function_definition" if is_named(syntax, node, attribute) => cached(syntax, node),
        _ => None,
    };
    let found = all(syntax.root()).into_iter().filter_map(store);
    found.filter(|store| !is_constant(store.value)).collect()
}

/// The assignment that gives a target its value, and that value, if it is written there; `None` for what is no target.
pub fn bound_by<'s>(target: Node<'s>) -> Option<(Node<'s>, Option<Node<'s>>)> {
    // The position of the target among those that it is in, the outermost last.
    let mut positions = Vec::new();
    let (mut at, mut around) = (target, target.parent()?);
    let is_rest = around.kind() == "list_splat_pattern";
    if is_rest {
        (at, around) = (around, around.parent()?);
    }
    while PATTERNS.contains(&around.kind()) {
        positions.push((at, around));
        (at, around) = (around, around.parent()?);
    }
    match around.kind() {
        "assignment" if is_field(around, "left", at) => {
            let mut value = Some(assigned(around)?).filter(|_| !is_rest);
            for (part, pattern) in positions.into_iter().rev() {
                value = value.and_then(|value| part_of(value, part, pattern));
            }
            Some((around, value))
        }
        "for_statement" | "for_in_clause" if is_field(around, "left", at) => Some((target, None)),
        "as_pattern_target" => Some((around.parent()?, None)),
        _ => None,
    }
}

/// The value of an assignment, also of one with several targets (`a = b = value`).
fn assigned(assignment: Node<'_>) -> Option<Node<'_>> {
    let mut value = assignment.child_by_field_name("right")?;
    while value.kind() == "assignment" {
        value = value.child_by_field_name("right")?;
    }
    Some(value)
}

/// The part of a value that one of several targets gets.
fn part_of<'s>(value: Node<'s>, part: Node<'s>, pattern: Node<'s>) -> Option<Node<'s>> {
    let (targets, values) = (children(pattern), children(value));
    let is_starred = |node: &Node<'_>| node.kind().starts_with("list_splat");
    let is_whole = TUPLES.contains(&value.kind())
        && targets.len() == values.len()
        && !targets.iter().chain(&values).any(is_starred);
    let at = targets.iter().position(|target| *target == part)?;
    is_whole.then(|| values[at])
}

/// True for values that refer to nothing.
pub fn is_constant(value: Option<Node<'_>>) -> bool {
    value.is_some_and(|value| {
        matches!(
            value.kind(),
            "none" | "true" | "false" | "integer" | "float" | "string" | "ellipsis"
        )
    })
}

/// True for `X.attribute`, also for a private one as the class has it: `X.__name` is `_Class__name`.
pub fn is_called(syntax: &Syntax, node: Node<'_>, attribute: &str) -> bool {
    let Some(name) = node.child_by_field_name("attribute") else {
        return false;
    };
    let name = syntax.of(name);
    name == attribute
        || is_private(name) && private(syntax, node, name).as_deref() == Some(attribute)
}

fn is_private(name: &str) -> bool {
    name.starts_with("__") && !name.ends_with("__")
}

/// What a private name is to Python where it stands (Python/compile.c, `_Py_Mangle`).
fn private(syntax: &Syntax, node: Node<'_>, name: &str) -> Option<String> {
    let class = around(node, &["class_definition"])?.child_by_field_name("name")?;
    let class = syntax.of(class).trim_start_matches('_');
    (!class.is_empty()).then(|| format!("_{class}{name}"))
}

/// The call `setattr(object, name, value)`, if the name is that of the attribute or not written there.
///
/// So may any other call that is given both, as `module.add_module(name, child)`.
fn set_by_name<'s>(syntax: &Syntax, call: Node<'s>, attribute: &str) -> Option<Store<'s>> {
    let function = call.child_by_field_name("function")?;
    let arguments = children(call.child_by_field_name("arguments")?);
    let is_method = is_called(syntax, function, "__setattr__");
    let (receiver, name, value) = match arguments[..] {
        [receiver, name, value] if is_method || syntax.of(function) == "setattr" => {
            (Some(receiver), name, value)
        }
        [name, value] if is_method => (None, name, value),
        [.., name, value] if is_text(syntax, name, attribute) => {
            let reads = matches!(syntax.of(function), "getattr" | "print" | "isinstance");
            return (!reads).then_some(Store {
                node: call,
                receiver: Some(function),
                value: Some(value),
                is_named: true,
            });
        }
        _ => return None,
    };
    // What passes every attribute on is no statement about one that it does not name.
    let within = scope(call).and_then(|scope| scope.child_by_field_name("name"));
    let passes_on = within.is_some_and(|within| syntax.of(within) == "__setattr__");
    let store = Store {
        node: call,
        receiver,
        value: Some(value),
        is_named: is_one_of_texts(syntax, name, attribute) == Some(true),
    };
    ((store.is_named || !passes_on) && may_be_text(syntax, name, attribute)).then_some(store)
}

/// The assignment of `vars(object)[name]` or `object.__dict__[name]`.
///
/// What else has such a name for an item may be the dict of an object by another name, or its modules.
fn item_of_dict<'s>(syntax: &Syntax, node: Node<'s>, attribute: &str) -> Option<Store<'s>> {
    let dict = node.child_by_field_name("value")?;
    let receiver = with_dict(syntax, dict);
    let name = node.child_by_field_name("subscript")?;
    let (shown, value) = bound_by(node)?;
    let is_it = match receiver {
        Some(_) => may_be_text(syntax, name, attribute),
        None => is_text(syntax, name, attribute),
    };
    is_it.then_some(Store {
        node: shown,
        receiver: receiver.or(Some(dict)),
        value,
        is_named: is_one_of_texts(syntax, name, attribute) == Some(true),
    })
}

/// The assignment of `object.__dict__`, which may have any name.
fn whole_dict(node: Node<'_>) -> Option<Store<'_>> {
    let around = node.parent()?;
    let is_target = matches!(around.kind(), "assignment" | "augmented_assignment")
        && is_field(around, "left", node);
    is_target.then_some(Store {
        node: around,
        receiver: node.child_by_field_name("object"),
        value: None,
        is_named: false,
    })
}

/// False for `object.__dict__ |= {…}` with other names.
fn may_add(syntax: &Syntax, dict: Node<'_>, attribute: &str) -> bool {
    let around = dict.parent();
    let added = around.filter(|it| it.kind() == "augmented_assignment");
    let added = added.and_then(|it| it.child_by_field_name("right"));
    added.is_none_or(|added| given(syntax, added, attribute).is_some())
}

/// A method whose result the object keeps by its name, as `functools.cached_property` has it.
fn cached<'s>(syntax: &Syntax, method: Node<'s>) -> Option<Store<'s>> {
    let is_cached = decorators(syntax, method).any(|it| it.contains("cached"));
    is_cached.then_some(Store {
        node: method,
        receiver: None,
        value: None,
        is_named: true,
    })
}

/// The call `vars(object).update(name=value)`, also of a dict that may have the name.
fn updated<'s>(syntax: &Syntax, call: Node<'s>, attribute: &str) -> Option<Store<'s>> {
    let function = call.child_by_field_name("function")?;
    let receiver = with_dict(syntax, function.child_by_field_name("object")?)?;
    let method = syntax.of(function.child_by_field_name("attribute")?);
    let arguments = children(call.child_by_field_name("arguments")?);
    let value = match method {
        "update" => arguments
            .iter()
            .find_map(|it| given(syntax, *it, attribute))?,
        "setdefault" | "__setitem__" => {
            let (&name, &value) = (arguments.first()?, arguments.get(1)?);
            may_be_text(syntax, name, attribute).then_some(Some(value))?
        }
        _ => return None,
    };
    Some(Store {
        node: call,
        receiver: Some(receiver),
        value,
        is_named: arguments.iter().any(|it| has_name(syntax, *it, attribute)),
    })
}

/// The call `SimpleNamespace(name=value)`.
fn in_namespace<'s>(syntax: &Syntax, call: Node<'s>, attribute: &str) -> Option<Store<'s>> {
    namespace(syntax, call)?;
    let arguments = children(call.child_by_field_name("arguments")?);
    let mut keywords = arguments
        .into_iter()
        .filter(|it| it.kind() == "keyword_argument");
    let value = keywords.find_map(|it| given(syntax, it, attribute))??;
    Some(Store {
        node: call,
        receiver: call.child_by_field_name("function"),
        value: Some(value),
        is_named: true,
    })
}

/// The standard library's class that a call makes an object of whose attributes are the call's keywords.
pub fn namespace<'s>(syntax: &'s Syntax, call: Node<'_>) -> Option<&'s str> {
    let class = call.child_by_field_name("function")?;
    let class = syntax.of(class).rsplit('.').next()?;
    NAMESPACES.contains(&class).then_some(class)
}

/// True for an argument in which the name is written: as a keyword, a key or by itself.
fn has_name(syntax: &Syntax, argument: Node<'_>, name: &str) -> bool {
    let keyword = || argument.child_by_field_name("name");
    match argument.kind() {
        "keyword_argument" => keyword().is_some_and(|keyword| syntax.of(keyword) == name),
        "dictionary" => children(argument).into_iter().any(|pair| {
            let key = pair.child_by_field_name("key");
            key.is_some_and(|key| is_text(syntax, key, name))
        }),
        _ => is_text(syntax, argument, name),
    }
}

/// What an argument of `update` gives a name, if it is written there; `None` if it gives that nothing.
fn given<'s>(syntax: &Syntax, argument: Node<'s>, name: &str) -> Option<Option<Node<'s>>> {
    match argument.kind() {
        "keyword_argument" => {
            let is_it = syntax.of(argument.child_by_field_name("name")?) == name;
            is_it.then(|| argument.child_by_field_name("value"))
        }
        "dictionary" => children(argument)
            .into_iter()
            .find_map(|pair| match pair.kind() {
                "pair" => may_be_text(syntax, pair.child_by_field_name("key")?, name)
                    .then(|| pair.child_by_field_name("value")),
                _ => Some(None),
            }),
        _ => Some(None),
    }
}

/// The object whose dict an expression has: `vars(object)` or `object.__dict__`.
fn with_dict<'s>(syntax: &Syntax, expression: Node<'s>) -> Option<Node<'s>> {
    if is_called(syntax, expression, "__dict__") {
        return expression.child_by_field_name("object");
    }
    let function = expression.child_by_field_name("function")?;
    let arguments = children(expression.child_by_field_name("arguments")?);
    match arguments[..] {
        [object] if syntax.of(function) == "vars" => Some(object),
        _ => None,
    }
}

/// True for a text in quotes.
fn is_text(syntax: &Syntax, expression: Node<'_>, text: &str) -> bool {
    expression.kind() == "string" && syntax.of(expression).trim_matches(['"', '\'']) == text
}

/// False for a text that is another one, and for the variable of a loop over other texts.
fn may_be_text(syntax: &Syntax, expression: Node<'_>, text: &str) -> bool {
    is_one_of_texts(syntax, expression, text) != Some(false)
}

/// Whether an expression is a text, or the variable of a loop over several, of which this is one; `None` for others.
fn is_one_of_texts(syntax: &Syntax, expression: Node<'_>, text: &str) -> Option<bool> {
    if expression.kind() == "string" {
        let written = syntax.of(expression);
        let is_it = written.trim_matches(['"', '\'']) == text;
        return (is_it || !written.contains('{')).then_some(is_it);
    }
    let mut at = expression;
    while let Some(parent) = at.parent() {
        let left = parent.child_by_field_name("left");
        let is_its_loop = parent.kind() == "for_statement"
            && left.is_some_and(|left| syntax.of(left) == syntax.of(expression));
        if let (true, Some(all)) = (is_its_loop, parent.child_by_field_name("right")) {
            let texts = children(all);
            let are_texts =
                TUPLES.contains(&all.kind()) && texts.iter().all(|text| text.kind() == "string");
            let is_one = |it: &Node<'_>| may_be_text(syntax, *it, text);
            return are_texts.then(|| texts.iter().any(is_one));
        }
        at = parent;
    }
    None
}
