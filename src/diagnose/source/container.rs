//! Where the program puts an object into a container that an attribute has: `self.hooks.append(hook)`.

use tree_sitter::Node;

use super::reference::named_function;
use super::stores::{Store, is_called};
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

/// The call of a method of a container that an attribute has, the assignment of one of its items, or what adds to it.
pub fn put<'s>(syntax: &Syntax, node: Node<'s>, attribute: &str) -> Option<Store<'s>> {
    let receiver = |container: Option<Node<'s>>| {
        let container = container.filter(|it| is_called(syntax, *it, attribute))?;
        container.child_by_field_name("object")
    };
    let store = |receiver, value| Store {
        node,
        receiver: Some(receiver),
        value,
        is_named: true,
    };
    match node.kind() {
        "call" => {
            let method = node.child_by_field_name("function")?;
            let name = syntax.of(method.child_by_field_name("attribute")?);
            let receiver = receiver(method.child_by_field_name("object"))?;
            let last = children(node.child_by_field_name("arguments")?).pop();
            let value = last.filter(|_| !matches!(name, "extend" | "update" | "push"));
            METHODS.contains(&name).then(|| store(receiver, value))
        }
        "augmented_assignment" => {
            let receiver = receiver(node.child_by_field_name("left"))?;
            Some(store(receiver, None))
        }
        "assignment" => {
            let target = node.child_by_field_name("left")?;
            let receiver = receiver(target.child_by_field_name("value"))?;
            (target.kind() == "subscript")
                .then(|| store(receiver, node.child_by_field_name("right")))
        }
        _ => None,
    }
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
