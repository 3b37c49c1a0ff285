//! The import of `weakref` that a change needs.

use tree_sitter::Node;

use super::edit::Edit;
use super::syntax::{Syntax, children};

/// What to call for a weak reference, and the import of it if the file has none.
pub fn weakref_ref(syntax: &Syntax, class: Node<'_>) -> Result<(String, Option<Edit>), String> {
    let statements = children(syntax.root());
    let before = class.start_byte();
    for &statement in statements
        .iter()
        .take_while(|node| node.start_byte() < before)
    {
        let from = statement.child_by_field_name("module_name");
        for name in children(statement) {
            let (module, bound) = match name.kind() {
                "aliased_import" => (
                    name.child_by_field_name("name"),
                    name.child_by_field_name("alias"),
                ),
                _ => (Some(name), Some(name)),
            };
            let (Some(module), Some(bound)) = (module, bound) else {
                continue;
            };
            let (module, bound_name) = (syntax.of(module), syntax.of(bound));
            let callable = match (statement.kind(), from.map(|node| syntax.of(node))) {
                ("import_statement", _) if module == "weakref" => format!("{bound_name}.ref"),
                ("import_from_statement", Some("weakref")) if module == "ref" => {
                    bound_name.to_owned()
                }
                _ => continue,
            };
            if syntax.bindings(syntax.root(), bound_name).len() == 1 {
                return Ok((callable, None));
            }
        }
    }
    if !syntax.bindings(syntax.root(), "weakref").is_empty() {
        return Err(
            "`weakref` is bound otherwise than by an import at the top of this file".into(),
        );
    }
    let is_header = |node: &&Node<'_>| {
        let is_text = node.kind() == "expression_statement"
            && node
                .named_child(0)
                .is_some_and(|text| text.kind() == "string");
        is_text || node.kind() == "future_import_statement"
    };
    let header: Vec<&Node<'_>> = statements.iter().take_while(is_header).collect();
    let next = statements.get(header.len()).ok_or("the file is empty")?;
    let newline = syntax.newline();
    if syntax.indentation(*next).is_none() {
        return Err("the first statement shares its line with another".into());
    }
    let is_import = next.kind().starts_with("import");
    let text = match is_import {
        true => format!("import weakref{newline}"),
        false => format!("import weakref{newline}{newline}"),
    };
    let mut at = syntax.line_start(next.start_byte());
    if syntax.text()[at..].starts_with('\u{feff}') {
        at += '\u{feff}'.len_utf8();
    }
    Ok(("weakref.ref".into(), Some(Edit::insert(at, text))))
}
