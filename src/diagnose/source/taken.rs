//! Where the program takes a bound method off its object, to give it away: `bus.on("start", self.start)`.

use tree_sitter::Node;

use super::family::bases;
use super::files::words;
use super::held::last_part;
use super::sources::{Source, Sources};
use super::syntax::{Syntax, all, children, functions_around, is_field, lines, scope};
use crate::capture::{is_library_file, is_standard_extension};
use crate::diagnose::case::short;
use crate::model::report::{Leak, Location, Node as Object, NodeKind};

/// Containers that are written out.
const DISPLAYS: [&str; 5] = ["list", "tuple", "set", "dictionary", "pair"];

/// One expression that takes it.
struct Taken {
    file: String,
    /// The number of its first byte in the file.
    start: usize,
    /// False for a string that may name it.
    is_sure: bool,
    /// The class with a method of its own by this name, whose object `self` is there.
    class: Option<String>,
}

/// The file, and the number of the first byte in it, of the only expression of the program that takes a bound method of
/// which the advice speaks; `None` if there are several, or if a library may have taken it.
pub fn taken(leak: &Leak, sources: &mut Sources) -> Option<(String, usize)> {
    let (method, at) = method(leak)?;
    let known = &leak.origin.files;
    let files = sources.load_having(method, known)?;
    let mut found = Vec::new();
    for source in sources.of(&files) {
        found.extend(all_that_take(source.syntax, method).map(|node| Taken {
            file: source.file.to_owned(),
            start: node.start_byte(),
            is_sure: node.kind() == "attribute",
            class: class_of_self(source, node, method, at),
        }));
    }
    found.retain(|it| {
        let class = it.class.as_ref();
        !class.is_some_and(|name| has_no_subclass(name, known, sources))
    });
    let only = found.pop().filter(|it| it.is_sure && found.is_empty())?;
    let is_read = |file: &&String| is_library_file(file) && !is_standard_extension(file);
    let mut libraries = known.iter().filter(is_read).peekable();
    let is_the_programs = libraries.peek().is_none() && is_kept_by_program(leak);
    let may_take = |file: &String| {
        let syntax = sources.load(file);
        syntax.is_none_or(|syntax| all_that_take(syntax, method).next().is_some())
    };
    if libraries.any(may_take) {
        return None;
    }
    let syntax = sources.get(&only.file)?;
    let is_proven =
        is_the_programs || gives_to_keeper(leak, syntax, expression(syntax, only.start)?);
    is_proven.then_some((only.file, only.start))
}

/// True if what keeps the bound method, in whatever containers, is an object of a class of the program.
fn is_kept_by_program(leak: &Leak) -> bool {
    let nodes = cycle(leak);
    let is_method = |node: &&Object| node.label.starts_with("bound method ");
    let method = nodes.iter().position(is_method).unwrap_or_default();
    let (before, after) = nodes.split_at(method);
    let mut back = before.iter().rev().chain(after.iter().rev());
    let keeper = back.find(|it| it.kind != NodeKind::Container);
    let at = keeper.and_then(|it| it.location.as_ref());
    at.is_some_and(|at| !is_library_file(&at.file))
}

/// True for the call of a method of an attribute by which the cycle goes (`self.timer.add(self.tick)`), of a class that it
/// goes through, also by `super().__init__(self.tick)` within that, and of what registers a hook.
fn gives_to_keeper(leak: &Leak, syntax: &Syntax, call: Node<'_>) -> bool {
    let Some(function) = call.child_by_field_name("function") else {
        return false;
    };
    let text = syntax.of(function);
    let name = last_part(text);
    let receiver = text.strip_suffix(name).and_then(|it| it.strip_suffix('.'));
    let edge = receiver.map(|it| format!(".{}", last_part(it)));
    let mut steps = leak.cycle.iter();
    let is_hook = steps.clone().any(|step| step.edge.contains("_hooks"));
    let class = match name {
        "__init__" => class_around(syntax, call),
        _ => Some(name),
    };
    steps.any(|step| Some(&step.edge) == edge.as_ref())
        || cycle(leak)
            .iter()
            .any(|it| it.kind == NodeKind::Object && Some(short(&it.label)) == class)
        || is_hook && name.trim_start_matches('_').starts_with("register_")
}

/// The name of the class in a method of which a node is.
fn class_around<'s>(syntax: &'s Syntax, node: Node<'_>) -> Option<&'s str> {
    let method = *functions_around(node).last()?;
    let class = scope(method).filter(|it| it.kind() == "class_definition")?;
    let name = class.child_by_field_name("name")?;
    Some(syntax.of(name))
}

/// The objects of the cycle, in order.
pub fn cycle(leak: &Leak) -> Vec<&Object> {
    let nodes = leak.cycle.iter().filter_map(|step| step.node);
    nodes
        .filter_map(|number| leak.graph.nodes.get(number as usize))
        .collect()
}

/// The name of the class whose method an expression `self.…` is in, if it has a method of its own by the same name, which
/// is not the one that is defined at a place.
fn class_of_self(
    source: Source<'_>,
    node: Node<'_>,
    method: &str,
    at: &Location,
) -> Option<String> {
    let syntax = source.syntax;
    let receiver = node.child_by_field_name("object")?;
    let function = *functions_around(node).last()?;
    let class = scope(function).filter(|it| it.kind() == "class_definition")?;
    let parameters = children(function.child_by_field_name("parameters")?);
    let is_self = parameters
        .first()
        .is_some_and(|first| syntax.of(*first) == syntax.of(receiver));
    let is_only = syntax.bindings(function, syntax.of(receiver)).len() == 1;
    let (first, last) = lines(class);
    let is_its = source.file == at.file && (first..=last).contains(&(at.line as usize));
    let has_own = !syntax.bindings(class, method).is_empty();
    let name = class.child_by_field_name("name")?;
    (is_self && is_only && has_own && !is_its).then(|| syntax.of(name).to_owned())
}

/// True if no class of the program names a class among its bases.
fn has_no_subclass(name: &str, known: &[String], sources: &mut Sources) -> bool {
    let Some(files) = sources.load_having(name, known) else {
        return false;
    };
    sources.of(&files).into_iter().all(|source| {
        let nodes = all(source.syntax.root()).into_iter();
        let mut classes = nodes.filter(|node| node.kind() == "class_definition");
        classes.all(|class| {
            let bases = bases(class);
            bases
                .iter()
                .all(|base| !words(source.syntax.of(*base)).any(|word| word == name))
        })
    })
}

/// The expression that is shown for what begins there: the call that is given the method, or the partial of the function.
pub fn expression(syntax: &Syntax, start: usize) -> Option<Node<'_>> {
    let nodes = all(syntax.root());
    let of_kind = |kind: &str| {
        let mut nodes = nodes.iter().rev();
        nodes.find(|node| node.kind() == kind && node.start_byte() == start)
    };
    let taken = *of_kind("attribute").or_else(|| of_kind("identifier"))?;
    let mut given = given_to(taken).unwrap_or(taken);
    if is_partial(syntax, given) {
        given = given_to(given).unwrap_or(given);
    }
    Some(given)
}

/// The name of the only bound method of the cycle, and where it is defined, if the program's code has it and the advice
/// speaks of it.
pub fn method(leak: &Leak) -> Option<(&str, &Location)> {
    let nodes = cycle(leak).into_iter();
    let mut methods = nodes.filter(|node| node.label.starts_with("bound method "));
    let only = methods.next().filter(|_| methods.next().is_none())?;
    let name = short(only.label.strip_prefix("bound method ")?);
    let at = only.location.as_ref()?;
    let is_named = leak.advice.text.contains(&format!("`{name}`"));
    (is_named && !is_library_file(&at.file)).then_some((name, at))
}

/// All that may take a method off an object in a file.
fn all_that_take<'s>(syntax: &'s Syntax, method: &str) -> impl Iterator<Item = Node<'s>> {
    let nodes = all(syntax.root()).into_iter();
    nodes.filter(move |node| takes(syntax, *node, method))
}

/// True for what takes a method off an object without calling it, and for a string that may name it.
fn takes(syntax: &Syntax, node: Node<'_>, method: &str) -> bool {
    match node.kind() {
        "attribute" => {
            let name = node.child_by_field_name("attribute");
            let around = node.parent();
            let is_called = around
                .is_some_and(|call| call.kind() == "call" && is_field(call, "function", node));
            name.is_some_and(|name| syntax.of(name) == method) && !is_called
        }
        "string_content" => syntax.of(node) == method,
        _ => false,
    }
}

/// The call that an expression is an argument of, or that is given a container which is written there with it.
fn given_to(node: Node<'_>) -> Option<Node<'_>> {
    let mut around = node.parent()?;
    while DISPLAYS.contains(&around.kind()) {
        around = around.parent()?;
    }
    if around.kind() == "keyword_argument" {
        around = around.parent()?;
    }
    let is_given = around.kind() == "argument_list";
    around
        .parent()
        .filter(|call| is_given && call.kind() == "call")
}

/// True for the call `functools.partial(…)`, as far as its name says.
pub fn is_partial(syntax: &Syntax, call: Node<'_>) -> bool {
    let function = call.child_by_field_name("function");
    call.kind() == "call" && function.is_some_and(|it| last_part(syntax.of(it)) == "partial")
}
