//! A leak's graph without the program's values: what [`crate::model::redact`] is to a report.

use super::LeakGraph;
use crate::capture::ReferenceName;

/// Placeholder for redacted text.
const HIDDEN: &str = "…";

/// Takes the values of the program out of the names in a graph, before anything is derived from them:
/// dictionary keys, and names that are no names of code, which only a value can have made.
///
/// What stays are names that stand in source code: of classes, functions, attributes, variables.
pub fn hide_values(graph: &mut LeakGraph) {
    for node in graph.node_weights_mut() {
        let description = &mut node.description;
        // A stretch of objects left out has a label of our own.
        if node.stands_for == 0 {
            hide_unless_code(&mut description.type_name);
            hide_unless_code(&mut description.label);
        }
        if let Some(class) = &mut description.unplaced_class {
            hide_unless_code(class);
        }
    }
    for edge in graph.edge_weights_mut() {
        hide_name(&mut edge.name);
        for hop in &mut edge.through {
            hide_unless_code(&mut hop.label);
            hide_name(&mut hop.into);
            hide_name(&mut hop.onwards);
        }
    }
}

fn hide_name(name: &mut ReferenceName) {
    match name {
        ReferenceName::Key(key) => HIDDEN.clone_into(key),
        ReferenceName::Attribute(name)
        | ReferenceName::Closure(name)
        | ReferenceName::Default(name)
        | ReferenceName::Local(name)
        | ReferenceName::ContextVariable(name)
            if !is_identifier(name) =>
        {
            HIDDEN.clone_into(name);
        }
        _ => {}
    }
}

fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// How labels say what an object is, before its name.
const KINDS: [&str; 10] = [
    "function ",
    "bound method ",
    "built-in function ",
    "built-in method ",
    "frame of ",
    "async generator ",
    "generator ",
    "coroutine ",
    "class ",
    "module ",
];

/// Hides the name in a label unless it is a dotted one of code, such as
/// `function Model.fit.<locals>.<lambda>`.
pub fn hide_unless_code(label: &mut String) {
    let kind = KINDS.iter().find(|kind| label.starts_with(**kind));
    let start = kind.map_or(0, |kind| kind.len());
    let is_code = |part: &str| {
        let inner = part.strip_prefix('<').and_then(|p| p.strip_suffix('>'));
        is_identifier(inner.unwrap_or(part))
    };
    if !label[start..].split('.').all(is_code) && !PLAIN.contains(&label.as_str()) {
        label.truncate(start);
        label.push_str(HIDDEN);
    }
}

/// Labels without a name.
const PLAIN: [&str; 2] = ["bound method", "built-in method"];

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str) -> String {
        let mut label = text.to_owned();
        hide_unless_code(&mut label);
        label
    }

    #[test]
    fn names_of_code_stay() {
        for name in [
            "function Model.fit.<locals>.<lambda>",
            "built-in method append",
            "async generator Größe.lesen",
            "bound method",
            "",
        ] {
            assert_eq!(label(name), name);
        }
    }

    #[test]
    fn what_no_code_is_called_goes() {
        assert_eq!(label("class sk-live/123"), "class …");
        assert_eq!(label("my password"), "…");
        assert_eq!(label("a@b.example"), "…");
        for (name, hidden) in [
            (ReferenceName::Key("'token'".to_owned()), "[…]"),
            (ReferenceName::Attribute("api key".to_owned()), ".…"),
            (ReferenceName::Attribute("keywords['x']".to_owned()), ".…"),
            (ReferenceName::Local("batch".to_owned()), "local 'batch'"),
            (ReferenceName::Index(3), "[3]"),
        ] {
            let mut name = name;
            hide_name(&mut name);
            assert_eq!(name.to_string(), hidden);
        }
    }
}
