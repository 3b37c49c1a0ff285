//! Python source as a syntax tree. Nothing of it is run or imported.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use tree_sitter::{Node, ParseOptions, Parser, Tree};

/// Longer files are not parsed.
pub const SIZE_LIMIT: usize = 1 << 20;
/// A file that takes longer to parse is left alone: mostly, it is not Python.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// What the tree of a file takes at most; the parser would end the process if there was no memory.
const ROOM: usize = 256 << 20;

/// Nodes in which a name may stand for itself as a target.
const PATTERNS: [&str; 11] = [
    "pattern_list",
    "tuple_pattern",
    "list_pattern",
    "list_splat_pattern",
    "dictionary_splat_pattern",
    "tuple",
    "list",
    "expression_list",
    "parenthesized_expression",
    "as_pattern_target",
    "typed_parameter",
];

/// A file of Python source.
pub struct Syntax {
    text: String,
    tree: Tree,
}

impl Syntax {
    /// Parses a text; `None` if it is too large, or has line ends of another kind than Python and Git agree on.
    pub fn parse(text: String) -> Option<Self> {
        let lone_return = || text.replace("\r\n", "").contains('\r');
        if text.len() > SIZE_LIMIT || text.contains('\0') || lone_return() {
            return None;
        }
        MmapMut::map_anon(ROOM).ok()?;
        let mut parser = Parser::new();
        parser
            .set_language(&tree_sitter_python::LANGUAGE.into())
            .ok()?;
        let started = Instant::now();
        let mut in_time = |_: &tree_sitter::ParseState| {
            if started.elapsed() > TIME_LIMIT {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let options = ParseOptions::new().progress_callback(&mut in_time);
        let bytes = text.as_bytes();
        let mut read = |at: usize, _| bytes.get(at..).unwrap_or_default();
        let tree = parser.parse_with_options(&mut read, None, Some(options))?;
        Some(Self { text, tree })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    /// The text of a node.
    pub fn of(&self, node: Node<'_>) -> &str {
        &self.text[node.byte_range()]
    }

    /// The first byte of the line in which a byte stands.
    pub fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    /// The first byte of the line after the one in which a byte stands.
    pub fn line_after(&self, at: usize) -> usize {
        self.text[at..]
            .find('\n')
            .map_or(self.text.len(), |end| at + end + 1)
    }

    /// The line end that the file uses.
    pub fn newline(&self) -> &'static str {
        if self.text.contains("\r\n") {
            return "\r\n";
        }
        "\n"
    }

    /// The indentation of a statement; `None` if something else stands before it in its line.
    pub fn indentation(&self, statement: Node<'_>) -> Option<&str> {
        let start = self.line_start(statement.start_byte());
        let before = &self.text[start..statement.start_byte()];
        let before = before.strip_prefix('\u{feff}').unwrap_or(before);
        let above = self.text[..start].trim_end_matches(['\n', '\r']);
        let is_first = before.chars().all(|c| c == ' ' || c == '\t') && !above.ends_with('\\');
        is_first.then_some(before)
    }

    /// True if nothing but a comment follows a statement in its line.
    pub fn ends_line(&self, statement: Node<'_>) -> bool {
        let end = statement.end_byte();
        let rest = self.text[end..self.line_after(end)].trim();
        rest.is_empty() || rest.starts_with('#')
    }

    /// The identifiers of a name that stand for a variable, in a part of the file.
    pub fn variables<'a>(&'a self, within: Node<'a>, name: &str) -> Vec<Node<'a>> {
        all(within)
            .into_iter()
            // To ask for the parent takes long among many siblings.
            .filter(|&node| self.of(node) == name && self.is_variable(node))
            .collect()
    }

    /// True for an identifier that is no attribute, keyword or part of an import.
    pub fn is_variable(&self, node: Node<'_>) -> bool {
        if node.kind() != "identifier" {
            return false;
        }
        let Some(parent) = node.parent() else {
            return false;
        };
        match parent.kind() {
            "attribute" => !is_field(parent, "attribute", node),
            "keyword_argument" => !is_field(parent, "name", node),
            _ => true,
        }
    }

    /// The places that bind a name in a part of the file, those of inner functions included.
    pub fn bindings<'a>(&'a self, within: Node<'a>, name: &str) -> Vec<Node<'a>> {
        let mut found = self.variables(within, name);
        found.retain(|&node| is_binding(node));
        found
    }

    /// True if the name is used anywhere in the file, for whatever.
    pub fn has_word(&self, name: &str) -> bool {
        all(self.root())
            .into_iter()
            .any(|node| node.kind() == "identifier" && self.of(node) == name)
    }

    /// A name like the one given that the file does not use.
    pub fn new_name(&self, like: &str) -> String {
        let numbered = (2..).map(|number| format!("{like}_{number}"));
        std::iter::once(like.to_owned())
            .chain(numbered)
            .find(|name| !self.has_word(name))
            .unwrap_or_default()
    }
}

/// A node and all below it, in the order of the text. Iterative: nothing is too deep for it.
pub fn all(node: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut cursor = node.walk();
    loop {
        found.push(cursor.node());
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return found;
            }
        }
    }
}

/// The named children of a node, without comments.
pub fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    let named = node.named_children(&mut cursor);
    named.filter(|child| child.kind() != "comment").collect()
}

pub fn is_field(parent: Node<'_>, field: &str, node: Node<'_>) -> bool {
    parent.child_by_field_name(field) == Some(node)
}

/// True for the definition of a function or class with a name.
pub fn is_named(syntax: &Syntax, definition: Node<'_>, name: &str) -> bool {
    let own = definition.child_by_field_name("name");
    own.is_some_and(|own| syntax.of(own) == name)
}

/// The nearest node around one that is of some kinds.
pub fn around<'a>(node: Node<'a>, kinds: &[&str]) -> Option<Node<'a>> {
    let mut parent = node.parent();
    while let Some(at) = parent {
        if kinds.contains(&at.kind()) {
            return Some(at);
        }
        parent = at.parent();
    }
    None
}

/// The function, lambda or class that a node is in; what stands in a header is in the one around.
pub fn scope(node: Node<'_>) -> Option<Node<'_>> {
    let mut at = node;
    while let Some(parent) = at.parent() {
        let is_scope = matches!(
            parent.kind(),
            "function_definition" | "lambda" | "class_definition"
        );
        if is_scope && is_field(parent, "body", at) {
            return Some(parent);
        }
        at = parent;
    }
    None
}

/// The innermost function or lambda around a node.
pub fn function_around(node: Node<'_>) -> Option<Node<'_>> {
    around(node, &["function_definition", "lambda"])
}

/// All functions around a node, the innermost first.
pub fn functions_around(node: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut at = node;
    while let Some(next) = function_around(at) {
        found.push(next);
        at = next;
    }
    found
}

/// The statement that a node is part of.
pub fn statement(node: Node<'_>) -> Node<'_> {
    let mut at = node;
    while let Some(parent) = at.parent() {
        if matches!(parent.kind(), "block" | "module") {
            break;
        }
        at = parent;
    }
    at
}

/// First and last line of a node, from 1.
pub fn lines(node: Node<'_>) -> (usize, usize) {
    (node.start_position().row + 1, node.end_position().row + 1)
}

/// True if an identifier gets a value where it stands.
fn is_binding(identifier: Node<'_>) -> bool {
    let mut at = identifier;
    while let Some(parent) = at.parent() {
        if !PATTERNS.contains(&parent.kind()) {
            break;
        }
        if parent.kind() == "as_pattern_target" {
            return true;
        }
        at = parent;
    }
    let Some(parent) = at.parent() else {
        return false;
    };
    match parent.kind() {
        "assignment" | "augmented_assignment" | "for_statement" | "for_in_clause" => {
            is_field(parent, "left", at)
        }
        "named_expression"
        | "function_definition"
        | "class_definition"
        | "default_parameter"
        | "typed_default_parameter" => is_field(parent, "name", at),
        "dotted_name" => parent.named_child(0) == Some(at) && is_bound_module(parent),
        "aliased_import" => is_field(parent, "alias", at),
        // In `with f(x) as y` the name before `as` is no target.
        "as_pattern" => parent.named_child(0) != Some(at),
        "parameters" | "lambda_parameters" | "global_statement" | "nonlocal_statement"
        | "delete_statement" | "splat_pattern" => true,
        _ => false,
    }
}

/// True for a dotted name whose first part an import or a pattern binds.
fn is_bound_module(dotted: Node<'_>) -> bool {
    dotted.parent().is_some_and(|parent| match parent.kind() {
        "import_statement" | "case_pattern" => true,
        "import_from_statement" => !is_field(parent, "module_name", dotted),
        _ => false,
    })
}

/// The white space at the beginning of the line in which a node begins.
pub fn line_indentation<'a>(syntax: &'a Syntax, node: Node<'_>) -> &'a str {
    let line = &syntax.text()[syntax.line_start(node.start_byte())..];
    let line = line.strip_prefix('\u{feff}').unwrap_or(line);
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}
