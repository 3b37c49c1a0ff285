//! Where the program makes a `functools.partial` of a function of its own: `register(partial(count, self))`.

use tree_sitter::Node;

use super::sources::Sources;
use super::syntax::{Syntax, all, children, is_field, is_named, lines};
use super::taken::{cycle, is_partial};
use crate::capture::is_library_file;
use crate::model::report::{Leak, Location};

/// The file, and the number of the first byte in it, of the function's name in the only call of the program that makes a
/// partial of it; `None` if anything else may have made the partial.
pub fn made_partial(leak: &Leak, sources: &mut Sources) -> Option<(String, usize)> {
    let at = only_partial(leak)?;
    let name = function_at(sources.load(&at.file)?, at)?;
    let files = sources.load_having(&name, &leak.origin.files)?;
    let mut made = None;
    for source in sources.of(&files) {
        let nodes = all(source.syntax.root()).into_iter();
        for node in nodes.filter(|node| may_be(source.syntax, *node, &name)) {
            match use_of(source.syntax, node) {
                Use::None => {}
                Use::Partial if made.is_none() && source.file == at.file => {
                    made = Some((source.file.to_owned(), node.start_byte()));
                }
                Use::Partial | Use::Other => return None,
            }
        }
    }
    made
}

/// Where the function is defined that the only partial of the cycle has, if the program's code has it.
fn only_partial(leak: &Leak) -> Option<&Location> {
    let nodes = cycle(leak).into_iter();
    let mut partials = nodes.filter(|node| node.label == "functools.partial");
    let only = partials.next().filter(|_| partials.next().is_none())?;
    let at = only.location.as_ref()?;
    (!is_library_file(&at.file)).then_some(at)
}

/// The name of the function that is defined at a line, if the file gives it to nothing else.
fn function_at(syntax: &Syntax, at: &Location) -> Option<String> {
    let nodes = all(syntax.root()).into_iter();
    let functions = nodes.filter(|node| node.kind() == "function_definition");
    let mut there = functions.filter(|node| lines(*node).0 == at.line as usize);
    let function = there.next().filter(|_| there.next().is_none())?;
    let name = syntax.of(function.child_by_field_name("name")?);
    let is_only = syntax.bindings(syntax.root(), name).len() == 1;
    is_only.then(|| name.to_owned())
}

/// What a mention does with a function.
enum Use {
    /// Calls, defines or imports it.
    None,
    /// Makes a partial of it.
    Partial,
    /// Anything else: it may be made into a partial elsewhere.
    Other,
}

/// True for a name or string by which a file may mean a function.
fn may_be(syntax: &Syntax, node: Node<'_>, name: &str) -> bool {
    matches!(node.kind(), "identifier" | "string_content") && syntax.of(node) == name
}

fn use_of(syntax: &Syntax, name: Node<'_>) -> Use {
    let Some(around) = name.parent() else {
        return Use::Other;
    };
    let is_import = around.kind() == "dotted_name"
        && around
            .parent()
            .is_some_and(|import| import.kind() == "import_from_statement");
    let is_defined =
        around.kind() == "function_definition" && is_named(syntax, around, syntax.of(name));
    let is_called = around.kind() == "call" && is_field(around, "function", name);
    if is_import || is_defined || is_called {
        return Use::None;
    }
    match around.parent() {
        Some(call) if is_partial(syntax, call) && children(around).first() == Some(&name) => {
            Use::Partial
        }
        _ => Use::Other,
    }
}
