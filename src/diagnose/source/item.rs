//! The line that puts an item into a dict that functions capture: `state["step"] = step`.

use tree_sitter::Node;

use super::reference::{is_of, named_function};
use super::sources::Sources;
use super::stores::is_constant;
use super::syntax::{Syntax, all, around, is_field, scope};
use crate::capture::is_library_file;
use crate::model::report::{Cut, Leak};

/// Methods of a dict that put items into it.
const PUTTING: [&str; 3] = ["update", "setdefault", "__setitem__"];

/// The file, and the number of the first byte in it, of the statement that put the item to be cut into a dict: the only one
/// of the program that stores anything by this key, in a variable that a function of the leak captures. None where the
/// variable may get items otherwise.
pub fn item(leak: &Leak, cut: &Cut, sources: &mut Sources) -> Option<(String, usize)> {
    let key = cut.edge.strip_prefix("['")?.strip_suffix("']")?;
    let is_word = key.chars().all(|it| it.is_alphanumeric() || it == '_');
    let edges = leak.graph.edges.iter();
    let mut captured = edges.filter_map(|edge| {
        let variable = edge.name.strip_prefix("closure variable '")?;
        let function = leak.graph.nodes.get(edge.from as usize)?;
        let at = function.location.as_ref()?;
        let is_it = edge.to == cut.source && !is_library_file(&at.file);
        is_it.then_some((variable.strip_suffix('\'')?, function, at.file.clone()))
    });
    let (variable, function, file) = captured.next().filter(|_| is_word && !key.is_empty())?;
    let files = sources.load_having(key, &leak.origin.files)?;
    let mut others = sources.of(&files).into_iter();
    if others.any(|it| it.file != file && !stores_by(it.syntax, key).is_empty()) {
        return None;
    }
    sources.load(&file);
    let syntax = sources.get(&file)?;
    let [only] = stores_by(syntax, key)[..] else {
        return None;
    };
    let receiver = only
        .child_by_field_name("left")?
        .child_by_field_name("value")?;
    let owner = owner_of(syntax, named_function(syntax, function, &file)?, variable)?;
    if is_constant(only.child_by_field_name("right"))
        || may_get_others(syntax, owner, variable, key)
    {
        return None;
    }
    let is_it = syntax.of(receiver) == variable
        && all(owner).contains(&receiver)
        && (scope(receiver) == Some(owner) || is_of(syntax, receiver, owner, variable));
    is_it.then_some((file, only.start_byte()))
}

/// The statement that begins there.
pub fn statement(syntax: &Syntax, start: usize) -> Option<Node<'_>> {
    let mut nodes = all(syntax.root()).into_iter();
    nodes.find(|node| node.kind() == "assignment" && node.start_byte() == start)
}

/// All assignments to an item by this key.
fn stores_by<'s>(syntax: &'s Syntax, key: &str) -> Vec<Node<'s>> {
    let stores = |node: &Node<'s>| {
        let target = node.child_by_field_name("left");
        let target = target.filter(|it| node.kind() == "assignment" && it.kind() == "subscript");
        let written = target.and_then(|it| it.child_by_field_name("subscript"));
        written.is_some_and(|written| written_key(syntax, written) == Some(key))
    };
    all(syntax.root()).into_iter().filter(stores).collect()
}

/// The text of a key that is written in full.
fn written_key<'s>(syntax: &'s Syntax, key: Node<'_>) -> Option<&'s str> {
    let text = syntax.of(key);
    let is_plain = key.kind() == "string" && text.starts_with(['"', '\'']) && !text.contains('\\');
    is_plain.then(|| text.trim_matches(['"', '\'']))
}

/// True if a dict in a variable of a function may get an item by a key in another way: by one that is not written in full, with a method
/// or an operator, or where it is made.
fn may_get_others(syntax: &Syntax, owner: Node<'_>, variable: &str, key: &str) -> bool {
    all(owner).into_iter().any(|node| match node.kind() {
        "pair" => {
            let written = node.child_by_field_name("key");
            written.is_some_and(|it| written_key(syntax, it) == Some(key))
        }
        "keyword_argument" => node
            .child_by_field_name("name")
            .is_some_and(|it| syntax.of(it) == key),
        _ if !syntax.is_variable(node) || syntax.of(node) != variable => false,
        _ => node.parent().is_some_and(|around| match around.kind() {
            "subscript" => {
                let written = around.child_by_field_name("subscript");
                let is_target = around
                    .parent()
                    .is_some_and(|it| is_field(it, "left", around));
                is_target && written.is_none_or(|it| written_key(syntax, it).is_none())
            }
            "attribute" => {
                let method = around.child_by_field_name("attribute");
                method.is_some_and(|it| PUTTING.contains(&syntax.of(it)))
            }
            "augmented_assignment" => is_field(around, "left", node),
            _ => false,
        }),
    })
}

/// The function around another that has its variable.
fn owner_of<'s>(syntax: &'s Syntax, function: Node<'s>, variable: &str) -> Option<Node<'s>> {
    let mut owner = around(function, &["function_definition"])?;
    loop {
        let mut bindings = syntax.bindings(owner, variable).into_iter();
        let is_parameter = |node: Node<'_>| {
            node.parent()
                .is_some_and(|list| list.kind() == "parameters" || is_field(list, "name", node))
        };
        if bindings.any(|it| scope(it) == Some(owner) || is_parameter(it)) {
            return Some(owner);
        }
        owner = around(owner, &["function_definition"])?;
    }
}
