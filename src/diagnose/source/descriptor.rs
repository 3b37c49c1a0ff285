//! Of which classes a descriptor stores the attributes: `obj.__dict__[self.name] = value` in its `__set__`.

use tree_sitter::Node;

use super::family::{bases, class_source, name_of};
use super::held::last_part;
use super::sources::Source;
use super::syntax::{Syntax, all, around, children, is_named, scope};
use crate::capture::{ClassSource, is_library_file};

/// True for a statement of a descriptor's class if the program makes descriptors of it in other classes only than those of
/// an object.
pub fn is_of_other_classes(
    sources: &[Source<'_>],
    owner: &[ClassSource],
    source: Source<'_>,
    statement: Node<'_>,
) -> bool {
    let own = around(statement, &["class_definition"]);
    let Some(class) = own.filter(|class| is_descriptor(source.syntax, *class)) else {
        return false;
    };
    let is_read = |class: &ClassSource| {
        let file = class.file.as_deref();
        file.is_some_and(|file| is_library_file(file) || sources.iter().any(|it| it.file == file))
    };
    let names = derived(sources, name_of(source.syntax, class));
    let is_elsewhere = |source: &Source<'_>, name: &str| {
        let uses = all(source.syntax.root()).into_iter();
        uses.filter(|node| node.kind() == "identifier" && source.syntax.of(*node) == name)
            .filter(|node| !is_definition(*node))
            .all(|node| {
                scope(node).is_some_and(|within| {
                    within.kind() == "class_definition"
                        && class_source(owner, *source, within).is_none()
                })
            })
    };
    !owner.is_empty()
        && owner.iter().all(is_read)
        && sources
            .iter()
            .all(|source| names.iter().all(|name| is_elsewhere(source, name)))
}

/// The names of a class and of those that name one of them among their bases.
pub fn derived<'s>(sources: &[Source<'s>], class: &'s str) -> Vec<&'s str> {
    let mut names = vec![class];
    loop {
        let known = names.len();
        for source in sources {
            for node in all(source.syntax.root()) {
                let is_derived = node.kind() == "class_definition"
                    && bases(node)
                        .iter()
                        .any(|base| names.contains(&last_part(source.syntax.of(*base))));
                let name = name_of(source.syntax, node);
                if is_derived && !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        if names.len() == known {
            return names;
        }
    }
}

fn is_descriptor(syntax: &Syntax, class: Node<'_>) -> bool {
    let body = class.child_by_field_name("body").map(children);
    let mut statements = body.unwrap_or_default().into_iter();
    statements.any(|it| {
        let function = it.child_by_field_name("definition").unwrap_or(it);
        ["__get__", "__set__"]
            .iter()
            .any(|name| is_named(syntax, function, name))
    })
}

/// True for the name where a class is defined, where another is derived from it, and in an import by that name.
fn is_definition(name: Node<'_>) -> bool {
    let in_header = around(name, &["class_definition", "block"]);
    let is_header = in_header.is_some_and(|it| it.kind() == "class_definition");
    let is_decorator =
        around(name, &["decorator", "class_definition"]).is_some_and(|it| it.kind() == "decorator");
    let import = around(name, &["aliased_import", "import_from_statement"]);
    let is_import = import.is_some_and(|it| it.kind() == "import_from_statement");
    is_header && !is_decorator || is_import
}
