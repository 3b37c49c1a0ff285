//! Where the program puts an object into a container that an attribute has: `self.hooks.append(hook)`.

use tree_sitter::Node;

use super::held::last_part;
use super::reference::named_function;
use super::stores::{PUTTING, Store, is_called, is_constant, stores};
use super::syntax::{Syntax, all, children, functions_around, is_field, is_named, lines, scope};
use crate::diagnose::case::short;
use crate::model::report::{Leak, Node as Object, NodeKind};

/// Methods that put an argument into a container.
const METHODS: [&str; 8] = [
    "append",
    "appendleft",
    "add",
    "insert",
    "extend",
    "update",
    "setdefault",
    "push",
];

/// The one expression in a file that puts what the cycle passes through into a container, which the object with this
/// number in the graph is; `None` if that is not certain.
pub fn put_into<'s>(
    leak: &Leak,
    container: u32,
    attribute: &str,
    syntax: &'s Syntax,
    file: &str,
) -> Option<Node<'s>> {
    if leak.graph.nodes.get(container as usize)?.kind != NodeKind::Container {
        return None;
    }
    let objects = behind_containers(leak, container);
    let (item, behind) = objects.split_first()?;
    let mut found = all(syntax.root()).into_iter().filter(|&node| {
        put(syntax, node, attribute).is_some() && is_of(syntax, node, item, behind, file)
    });
    let only = found.next()?;
    found.next().is_none().then_some(only)
}

/// The objects of the cycle from the one with this number on, without the containers at the beginning.
fn behind_containers(leak: &Leak, first: u32) -> Vec<&Object> {
    let start = leak.cycle.iter().position(|step| step.node == Some(first));
    let following = leak.cycle.iter().cycle().skip(start.unwrap_or_default());
    let all = following.take(start.map_or(0, |_| leak.cycle.len()));
    all.filter_map(|step| leak.graph.nodes.get(step.node? as usize))
        .skip_while(|object| object.kind == NodeKind::Container)
        .collect()
}

/// The container to which a call of a method, the assignment of an item or an operator adds, and what that adds, if it is
/// one object that is written there.
pub fn added<'s>(syntax: &Syntax, node: Node<'s>) -> Option<(Node<'s>, Option<Node<'s>>)> {
    match node.kind() {
        "call" => {
            let method = node.child_by_field_name("function")?;
            if PUTTING.contains(&last_part(syntax.of(method))) {
                let arguments = children(node.child_by_field_name("arguments")?);
                return Some((*arguments.first()?, arguments.get(1).copied()));
            }
            let name = syntax.of(method.child_by_field_name("attribute")?);
            let container = method.child_by_field_name("object")?;
            let last = children(node.child_by_field_name("arguments")?).pop();
            let value = last.filter(|_| !matches!(name, "extend" | "update" | "push"));
            METHODS.contains(&name).then_some((container, value))
        }
        "augmented_assignment" => Some((node.child_by_field_name("left")?, None)),
        "assignment" => {
            let target = node.child_by_field_name("left")?;
            let container = target.child_by_field_name("value")?;
            let value = node.child_by_field_name("right");
            let is_slice = children(target).iter().any(|it| it.kind() == "slice");
            (target.kind() == "subscript").then(|| (container, value.filter(|_| !is_slice)))
        }
        _ => None,
    }
}

/// As [`added`], of a container that an attribute has.
pub fn put<'s>(syntax: &Syntax, node: Node<'s>, attribute: &str) -> Option<Store<'s>> {
    let (container, value) = added(syntax, node)?;
    let container = Some(container).filter(|it| is_called(syntax, *it, attribute))?;
    Some(Store {
        node,
        receiver: Some(container.child_by_field_name("object")?),
        value,
        is_named: true,
    })
}

/// Whether a key is that of a reference such as `['loss']`; `None` where one of them is not written in full.
pub fn same_key(syntax: &Syntax, key: Node<'_>, edge: &str) -> Option<bool> {
    let text = syntax.of(key);
    let wanted = edge.strip_prefix('[')?.strip_suffix(']')?;
    if wanted.bytes().all(|byte| byte.is_ascii_digit()) {
        return (key.kind() == "integer").then(|| text == wanted);
    }
    let wanted = wanted.strip_prefix('\'')?.strip_suffix('\'')?;
    let is_plain = |text: &str| !text.contains(['\\', '…']);
    let is_whole = key.kind() == "string"
        && text.starts_with(['"', '\''])
        && is_plain(text)
        && is_plain(wanted);
    is_whole.then(|| text.trim_matches(['"', '\'']) == wanted)
}

/// What puts something into a container that an attribute has, or stores one with something in it.
pub fn puts<'s>(syntax: &'s Syntax, attribute: &str) -> Vec<Store<'s>> {
    let filled = stores(syntax, attribute).into_iter();
    let filled = filled.filter(|store| !holds_nothing(syntax, store.value));
    let mut found = later_puts(syntax, attribute);
    for store in filled {
        let items = store.value.map_or(vec![None], items);
        found.extend(items.into_iter().map(|value| Store { value, ..store }));
    }
    found
}

/// As [`puts`], of the keys of a dictionary.
pub fn puts_as_key<'s>(syntax: &'s Syntax, attribute: &str) -> Vec<Store<'s>> {
    let key_of = |store: &Store<'s>| {
        let key = store.node.child_by_field_name("left").and_then(key_of);
        let arguments = store.node.child_by_field_name("arguments");
        let is_default = syntax.of(store.node).contains(".setdefault(");
        let first = arguments.and_then(|all| children(all).into_iter().next());
        key.or(first.filter(|_| is_default))
    };
    let later = later_puts(syntax, attribute).into_iter();
    let mut found: Vec<Store<'s>> = later
        .map(|store| Store {
            value: key_of(&store),
            ..store
        })
        .collect();
    let filled = stores(syntax, attribute).into_iter();
    for store in filled.filter(|store| !holds_nothing(syntax, store.value)) {
        let literal = store.value.filter(|value| value.kind() == "dictionary");
        let keys = literal.map_or(vec![None], |all| {
            let key = |pair: Node<'s>| pair.child_by_field_name("key");
            children(all).into_iter().map(key).collect()
        });
        found.extend(keys.into_iter().map(|value| Store { value, ..store }));
    }
    found.retain(|store| !is_constant(store.value));
    found
}

/// The key of `container[key]`; `None` for a slice or a tuple, of which any part may be the object.
pub fn key_of(subscript: Node<'_>) -> Option<Node<'_>> {
    let mut cursor = subscript.walk();
    let mut keys = subscript.children_by_field_name("subscript", &mut cursor);
    let only = keys.next()?;
    keys.next().is_none().then_some(only)
}

/// What is in a new container that is written out; `None` for what may be anything.
fn items(container: Node<'_>) -> Vec<Option<Node<'_>>> {
    let parts = || children(container).into_iter();
    match container.kind() {
        "list" | "tuple" | "set" => parts()
            .map(|item| (item.kind() != "list_splat").then_some(item))
            .collect(),
        "dictionary" => parts()
            .map(|pair| pair.child_by_field_name("value"))
            .collect(),
        _ => vec![None],
    }
}

/// What puts something into a container that an attribute has already.
pub fn later_puts<'s>(syntax: &'s Syntax, attribute: &str) -> Vec<Store<'s>> {
    let nodes = all(syntax.root()).into_iter();
    nodes
        .filter_map(|node| put(syntax, node, attribute))
        .collect()
}

/// True for a new container that has nothing in it, or only what refers to nothing.
pub fn holds_nothing(syntax: &Syntax, value: Option<Node<'_>>) -> bool {
    let is_item = |item: Node<'_>| is_constant(Some(item));
    value.is_some_and(|value| match value.kind() {
        "list" | "tuple" | "set" => children(value).into_iter().all(is_item),
        "list_comprehension" | "set_comprehension" => {
            value.child_by_field_name("body").is_some_and(is_item)
        }
        "dictionary" => children(value).into_iter().all(|pair| {
            let parts = ["key", "value"].map(|name| pair.child_by_field_name(name));
            parts.into_iter().all(is_constant)
        }),
        // `[None] * 4`
        "binary_operator" => {
            let repeated = value.child_by_field_name("left");
            let operator = value.child_by_field_name("operator");
            operator.is_some_and(|it| it.kind() == "*") && holds_nothing(syntax, repeated)
        }
        "call" => {
            let function = value.child_by_field_name("function");
            let name = function.map_or("", |function| last_part(syntax.of(function)));
            let arguments = value.child_by_field_name("arguments").map(children);
            let is_empty = |it: &Node<'_>| holds_nothing(syntax, Some(*it));
            let is_option = |it: &Node<'_>| syntax.of(*it).starts_with("maxlen");
            let is_length = |it: &Node<'_>| is_option(it) || is_item(*it);
            arguments.is_some_and(|all| match (name, &all[..]) {
                ("deque", [first, rest @ ..]) => {
                    (is_empty(first) || is_option(first)) && rest.iter().all(is_length)
                }
                // The function that makes what is missing.
                ("defaultdict", [_, rest @ ..]) => rest.iter().all(is_empty),
                (
                    "list" | "dict" | "set" | "OrderedDict" | "Counter" | "deque" | "defaultdict",
                    all,
                ) => all.iter().all(is_empty),
                _ => false,
            })
        }
        _ => false,
    })
}

/// True if what an expression puts into a container is an object, from what is known of that and of the objects
/// `behind` it.
fn is_of(syntax: &Syntax, node: Node<'_>, item: &Object, behind: &[&Object], file: &str) -> bool {
    if let Some(name) = item.label.strip_prefix("function ") {
        return named_function(syntax, item, file).is_some_and(|function| match short(name) {
            "<lambda>" => node.byte_range().contains(&function.start_byte()),
            name => scope(node) == scope(function) && !syntax.variables(node, name).is_empty(),
        });
    }
    if let Some(name) = item.label.strip_prefix("bound method ") {
        let is_method = |part: Node<'_>| {
            let parent = part.parent().filter(|parent| parent.kind() == "attribute");
            let named = parent.is_some_and(|parent| is_field(parent, "attribute", part));
            named && syntax.of(part) == short(name)
        };
        return all(node).into_iter().any(is_method);
    }
    if item.kind != NodeKind::Frame {
        return false;
    }
    // An exception, with the frame that it keeps.
    behind.iter().any(|object| {
        let function = object.label.strip_prefix("frame of ").map(short);
        let at = object.location.as_ref().filter(|at| at.file == file);
        let (Some(name), Some(at)) = (function, at) else {
            return false;
        };
        functions_around(node).first().is_some_and(|function| {
            let (first, last) = lines(*function);
            is_named(syntax, *function, name) && (first..=last).contains(&(at.line as usize))
        })
    })
}
