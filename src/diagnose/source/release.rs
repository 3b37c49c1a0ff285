//! A local variable that keeps an exception, a traceback or a frame, and with it the function's own frame: it is
//! released before the function returns.

use tree_sitter::Node;

use super::change::{Candidate, Change};
use super::edit::Edit;
use super::syntax::{
    Syntax, all, around, children, functions_around, is_field, line_indentation, lines, scope,
    statement,
};
use super::uses::handed_on;

/// Calls whose result keeps the frame of the function that calls.
const KEEPING: [&str; 3] = ["sys.exc_info", "sys._getframe", "inspect.currentframe"];
/// The context managers whose target keeps an exception.
const RAISES: [&str; 2] = ["pytest.raises", "raises"];
/// Statements that leave a block.
const EXITS: [&str; 4] = [
    "return_statement",
    "break_statement",
    "continue_statement",
    "raise_statement",
];

/// The variables of this file's functions that keep an exception or a frame.
pub fn candidates(syntax: &Syntax) -> Vec<Candidate> {
    all(syntax.root())
        .into_iter()
        .filter_map(|node| match node.kind() {
            "assignment" => assigned(syntax, node),
            "as_pattern" => raised(syntax, node),
            _ => None,
        })
        .collect()
}

/// `variable = error` within `except … as error`, or `variable = sys.exc_info()`.
fn assigned(syntax: &Syntax, assignment: Node<'_>) -> Option<Candidate> {
    let variable = assignment.child_by_field_name("left")?;
    let value = assignment.child_by_field_name("right")?;
    let function = scope(assignment).filter(|node| node.kind() == "function_definition")?;
    let (caught, what) = match value.kind() {
        "identifier" => (Some(caught_as(syntax, value)?), "exception"),
        "call" => {
            let callee = syntax.of(value.child_by_field_name("function")?);
            let what = if callee == KEEPING[0] {
                "traceback"
            } else {
                "frame"
            };
            if !KEEPING.contains(&callee) {
                return None;
            }
            (None, what)
        }
        _ => return None,
    };
    if variable.kind() != "identifier" {
        return None;
    }
    let name = syntax.of(variable);
    let change = released(syntax, function, name, caught, value).map(|edits| Change {
        summary: format!("Clear `{name}` when the function ends: it keeps the {what}."),
        edits,
        subject: None,
    });
    Some(candidate(name, assignment, function, change))
}

/// `with pytest.raises(…) as variable`.
fn raised(syntax: &Syntax, pattern: Node<'_>) -> Option<Candidate> {
    let item = pattern.parent().filter(|node| node.kind() == "with_item")?;
    let block = around(item, &["with_statement"])?;
    let call = pattern
        .named_child(0)
        .filter(|node| node.kind() == "call")?;
    let target = pattern.child_by_field_name("alias")?.named_child(0)?;
    let function = scope(block).filter(|node| node.kind() == "function_definition")?;
    let callee = syntax.of(call.child_by_field_name("function")?);
    if !RAISES.contains(&callee) || target.kind() != "identifier" {
        return None;
    }
    let name = syntax.of(target);
    let change = deleted(syntax, function, block, name).map(|edits| Change {
        summary: format!(
            "Delete `{name}` after its last use: it keeps the exception and its traceback."
        ),
        edits,
        subject: None,
    });
    Some(candidate(name, block, function, change))
}

fn candidate(
    name: &str,
    at: Node<'_>,
    function: Node<'_>,
    change: Result<Change, String>,
) -> Candidate {
    Candidate {
        name: name.to_owned(),
        line: lines(at).0,
        places: vec![vec![lines(at)], vec![lines(function)]],
        change,
    }
}

/// The `except` clause whose exception a name is.
fn caught_as<'a>(syntax: &'a Syntax, name: Node<'a>) -> Option<Node<'a>> {
    let mut clause = around(name, &["except_clause"])?;
    loop {
        let pattern = clause.child_by_field_name("value");
        let alias = pattern.and_then(|pattern| pattern.child_by_field_name("alias"));
        if alias.is_some_and(|alias| syntax.of(alias) == syntax.of(name)) {
            return Some(clause);
        }
        clause = around(clause, &["except_clause"])?;
    }
}

/// Why the variable cannot be followed: a function within the function uses it, or it is not the function's own.
fn not_local(syntax: &Syntax, function: Node<'_>, name: &str) -> Result<(), String> {
    let parameters = function.child_by_field_name("parameters");
    let is_parameter = |node: &Node<'_>| {
        parameters.is_some_and(|list| list.byte_range().contains(&node.start_byte()))
    };
    for node in syntax.variables(function, name) {
        let (line, _) = lines(node);
        if functions_around(node).first() != Some(&function) || is_parameter(&node) {
            return Err(format!(
                "`{name}` is not of this function alone (line {line})"
            ));
        }
        let later = around(node, &["generator_expression"]);
        if later.is_some_and(|it| functions_around(it).first() == Some(&function)) {
            return Err(format!("a generator uses `{name}` in line {line}"));
        }
        if node.parent().is_some_and(|parent| {
            matches!(parent.kind(), "global_statement" | "nonlocal_statement")
        }) {
            return Err(format!("`{name}` is not a local variable (line {line})"));
        }
    }
    for word in ["locals", "eval", "exec", "vars", "dir", "f_locals"] {
        let is_it = |node: &Node<'_>| node.kind() == "identifier" && syntax.of(*node) == word;
        if all(function).iter().any(is_it) {
            return Err(format!("the function uses `{word}`"));
        }
    }
    let suspends = |node: &Node<'_>| {
        node.kind() == "yield" && functions_around(*node).first() == Some(&function)
    };
    if all(function).iter().any(suspends) {
        return Err("the function is a generator".into());
    }
    Ok(())
}

/// The edits that clear a variable in a `finally` around the rest of its function.
fn released(
    syntax: &Syntax,
    function: Node<'_>,
    name: &str,
    caught: Option<Node<'_>>,
    value: Node<'_>,
) -> Result<Vec<Edit>, String> {
    not_local(syntax, function, name)?;
    let mut read = syntax.variables(function, name);
    let bindings = syntax.bindings(function, name);
    if bindings.iter().any(|node| is_read_too(*node)) {
        return Err(format!(
            "`{name}` is assigned in a way that is not followed"
        ));
    }
    read.retain(|node| !bindings.contains(node));
    if let Some(clause) = caught {
        let alias = syntax.of(value);
        let others = syntax.variables(clause, alias);
        read.extend(others.into_iter().filter(|node| {
            !is_handed_to(syntax, *node, name) && around(*node, &["as_pattern_target"]).is_none()
        }));
    }
    if let Some(line) = handed_on(syntax, &read) {
        return Err(format!("`{name}` is handed on in line {line}"));
    }
    let body = function
        .child_by_field_name("body")
        .ok_or("the function has no body")?;
    let statements = children(body);
    // Of several assignments, the first that keeps something.
    let keeping = bindings
        .iter()
        .filter_map(|node| node.parent())
        .find(|parent| {
            let value = parent.child_by_field_name("right");
            value.is_some_and(|value| value.kind() != "none")
        });
    let keeping = keeping.ok_or("nothing is assigned")?;
    if let Some(line) = cleared(syntax, keeping, name) {
        return Err(format!("line {line} clears `{name}` already"));
    }
    let is_first = |node: &&Node<'_>| node.byte_range().contains(&keeping.start_byte());
    let (Some(first), Some(last)) = (statements.iter().find(is_first), statements.last()) else {
        return Err("the function has no body".into());
    };
    let header = line_indentation(syntax, function);
    let indentation = syntax
        .indentation(*first)
        .ok_or("the statement shares its line with another")?;
    let unit = indentation
        .strip_prefix(header)
        .filter(|unit| !unit.is_empty())
        .ok_or("the indentation is mixed")?;
    if !syntax.ends_line(*last) {
        return Err("the last statement shares its line with another".into());
    }
    wrapped(
        syntax,
        *first,
        *last,
        indentation,
        unit,
        &format!("{name} = None"),
    )
}

/// The line in which a `finally` around a statement clears a variable whatever happens.
fn cleared(syntax: &Syntax, keeping: Node<'_>, name: &str) -> Option<usize> {
    let mut inner = keeping;
    while let Some(outer) = around(inner, &["try_statement"]) {
        let clauses = children(outer).into_iter();
        let mut finally = clauses.filter(|clause| clause.kind() == "finally_clause");
        let blocks = finally.next().map_or_else(Vec::new, children).into_iter();
        let mut statements = blocks.flat_map(children);
        let found = statements.find(|&statement| clears(syntax, statement, name));
        if let Some(statement) = found {
            return Some(lines(statement).0);
        }
        inner = outer;
    }
    None
}

/// True for `name = None` and `del name`.
fn clears(syntax: &Syntax, statement: Node<'_>, name: &str) -> bool {
    let is_name = |node: Node<'_>| node.kind() == "identifier" && syntax.of(node) == name;
    match statement.kind() {
        "delete_statement" => children(statement).into_iter().any(is_name),
        "expression_statement" => children(statement).into_iter().any(|assignment| {
            let part = |field| assignment.child_by_field_name(field);
            part("left").is_some_and(is_name)
                && part("right").is_some_and(|value| value.kind() == "none")
        }),
        _ => false,
    }
}

/// `variable = alias`, which is what makes the reference.
fn is_handed_to(syntax: &Syntax, alias: Node<'_>, variable: &str) -> bool {
    alias.parent().is_some_and(|parent| {
        let target = parent.child_by_field_name("left");
        parent.kind() == "assignment"
            && is_field(parent, "right", alias)
            && target.is_some_and(|target| syntax.of(target) == variable)
            && parent
                .parent()
                .is_some_and(|node| node.kind() == "expression_statement")
    })
}

/// True for a binding that is more than `name = …` and `del name`.
fn is_read_too(binding: Node<'_>) -> bool {
    binding.parent().is_none_or(|parent| {
        let plain = matches!(parent.kind(), "assignment" | "delete_statement");
        let chained = parent
            .parent()
            .is_some_and(|outer| outer.kind() == "assignment");
        !plain || chained
    })
}

/// `try:` around some statements, with a last line in its `finally`. Lines within strings stay as they are.
fn wrapped(
    syntax: &Syntax,
    first: Node<'_>,
    last: Node<'_>,
    indentation: &str,
    unit: &str,
    finally: &str,
) -> Result<Vec<Edit>, String> {
    let newline = syntax.newline();
    let start = syntax.line_start(first.start_byte());
    let end = syntax.line_after(last.end_byte());
    let within_string: Vec<(usize, usize)> = all(syntax.root())
        .into_iter()
        .filter(|node| node.kind() == "string")
        .map(|node| (node.start_position().row, node.end_position().row))
        .filter(|(from, to)| from < to)
        .collect();
    if syntax.text()[start..end].contains('\u{c}') {
        return Err("the function contains a form feed".into());
    }
    let mut text = format!("{indentation}try:{newline}");
    let first_row = first.start_position().row;
    for (row, line) in (first_row..).zip(syntax.text()[start..end].split_inclusive('\n')) {
        let is_text = within_string
            .iter()
            .any(|&(from, to)| from < row && row <= to);
        if is_text || line.trim().is_empty() {
            text += line;
        } else if let Some(rest) = line.strip_prefix(indentation) {
            text += &format!("{indentation}{unit}{rest}");
        } else {
            text += &format!("{unit}{line}");
        }
    }
    if !text.ends_with('\n') {
        text += newline;
    }
    text += &format!("{indentation}finally:{newline}{indentation}{unit}{finally}{newline}");
    Ok(vec![Edit {
        range: start..end,
        text,
    }])
}

/// The edit that deletes a variable after its last use, if all of them follow each other in one block.
fn deleted(
    syntax: &Syntax,
    function: Node<'_>,
    with: Node<'_>,
    name: &str,
) -> Result<Vec<Edit>, String> {
    not_local(syntax, function, name)?;
    let with = statement(with);
    let block = with.parent().ok_or("the statement is not in a function")?;
    let uses = syntax.variables(function, name);
    let reads: Vec<Node<'_>> = uses
        .iter()
        .copied()
        .filter(|node| around(*node, &["as_pattern_target"]).is_none())
        .collect();
    if let Some(line) = handed_on(syntax, &reads) {
        return Err(format!("`{name}` is handed on in line {line}"));
    }
    let (Some(first_use), Some(last_use)) = (uses.first(), uses.last()) else {
        return Err("it is never used".into());
    };
    if clears(syntax, statement(*last_use), name) {
        let line = lines(*last_use).0;
        return Err(format!("line {line} deletes `{name}` already"));
    }
    let first = statement(*first_use);
    if first.kind() != "with_statement"
        || first.parent() != Some(block)
        || reads.contains(first_use)
    {
        let line = lines(*first_use).0;
        return Err(format!("`{name}` is also used in line {line}"));
    }
    let statements = children(block);
    let holds = |node: &&Node<'_>| node.byte_range().contains(&last_use.start_byte());
    let is_outside = |node: &&Node<'_>| !block.byte_range().contains(&node.start_byte());
    if let Some(outside) = uses.iter().find(is_outside) {
        let line = lines(*outside).0;
        return Err(format!("`{name}` is also used in line {line}"));
    }
    let last = *statements.iter().find(holds).ok_or("it is never used")?;
    let between = statements
        .iter()
        .filter(|node| node.start_byte() > with.start_byte() && node.end_byte() <= last.end_byte());
    for &between in between {
        let leaves = |node: &&Node<'_>| EXITS.contains(&node.kind());
        if let Some(exit) = all(between).iter().find(leaves) {
            let line = lines(*exit).0;
            return Err(format!("line {line} may leave before `{name}` is deleted"));
        }
    }
    let indentation = syntax
        .indentation(last)
        .filter(|_| syntax.ends_line(last))
        .ok_or("the statement shares its line with another")?;
    let newline = syntax.newline();
    let at = syntax.line_after(last.end_byte());
    let start = if syntax.text()[..at].ends_with('\n') {
        ""
    } else {
        newline
    };
    Ok(vec![Edit::insert(
        at,
        format!("{start}{indentation}del {name}{newline}"),
    )])
}
