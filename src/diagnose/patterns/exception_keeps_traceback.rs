//! # Exception keeps its traceback
//!
//! An exception that was caught is kept in a local variable of a function that it passed through.
//!
//! **Why it leaks.** An exception refers to its traceback, the traceback to the frame of every function
//! it passed through, and each frame to all its local variables, tensors included. If one of them
//! leads to the exception, all of that is a cycle.
//!
//! ```python
//! error = None
//! try:
//!     step(batch)
//! except RuntimeError as e:
//!     error = e          # frame → error → traceback → frame
//! ```
//!
//! Instead, use `del error` (or `error = None`) when the exception is no longer needed, keep `str(e)`, or
//! store `e.with_traceback(None)`. If it is raised at the end of the function, delete it after that:
//!
//! ```python
//! try:
//!     raise error
//! finally:
//!     del error
//! ```

use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, CycleStep, at, short};
use crate::diagnose::remedy::Finding;
use crate::graph::of_same_line;
use crate::model::words::{a, all_of};

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, exception) = case.find(|step| {
        step.object.description.kind == ObjectKind::Exception
            && *step.name == ReferenceName::Attribute("__traceback__".to_owned())
    })?;
    let (frame, variable, function) = case.variable_after(position)?;
    let class = short(&exception.object.description.type_name);
    let plainly = frame.leads_to(exception.object);
    let is_captured = case.is_captured(frame.object, variable) || case.is_in_cell(frame.edge);
    let kind = if is_captured { "captured" } else { "local" };
    let others = match plainly && !is_captured {
        true => others_with(case, &frame, exception.edge),
        false => Vec::new(),
    };
    let names: Vec<String> = std::iter::once(variable)
        .chain(others.iter().map(|(_, name)| *name))
        .map(|name| format!("`{name}`"))
        .collect();
    let names = all_of(&names);
    let place = at(frame.object);
    let mut finding = Finding::new(match others.is_empty() {
        true => format!(
            "The {kind} variable {names} of `{function}`{place} {} {}, whose traceback keeps that function's frame and \
             all its variables.",
            if plainly { "is" } else { "leads to" },
            a(class),
        ),
        false => format!(
            "The local variables {names} of `{function}`{place} {} exceptions ({}), whose tracebacks keep that \
             function's frame and all its variables.",
            match others
                .iter()
                .any(|&(edge, _)| leads_to_container(case, edge))
            {
                true => "are or contain",
                false => "are",
            },
            classes_alike(case, exception.edge),
        ),
    });
    let if_raised = match others.is_empty() {
        true => "if it is",
        false => "if they are",
    };
    if !is_captured {
        let edges = std::iter::once(frame.edge).chain(others.iter().map(|(edge, _)| *edge));
        finding = finding.remedy_of(
            edges.collect(),
            format!(
                "delete {names} before `{function}` ends (in a `finally`, {if_raised} raised again)"
            ),
        );
    }
    if plainly && !is_captured && others.is_empty() {
        finding = finding.code(
            format!("{variable} = error\n..."),
            format!("{variable} = error\ntry:\n    ...\nfinally:\n    del {variable}"),
        );
    }
    let without = match others.is_empty() {
        true => "the exception without its traceback",
        false => "the exceptions without their tracebacks",
    };
    let without =
        format!("keep {without} (`error.with_traceback(None)`), {if_raised} not raised again");
    Some(finding.remedy(exception.edge, without))
}

/// The classes of the exceptions whose tracebacks are cut with this one.
pub fn classes_alike(case: &Case<'_>, cut: EdgeIndex) -> String {
    let mut names: Vec<String> = Vec::new();
    for edge in std::iter::once(cut).chain(of_same_line(case.graph, cut)) {
        let exception = case.graph.edge_endpoints(edge);
        let class = exception.map(|(from, _)| short(&case.graph[from].description.type_name));
        names.extend(
            class
                .map(str::to_owned)
                .filter(|name| !names.contains(name)),
        );
    }
    all_of(&names)
}

fn leads_to_container(case: &Case<'_>, edge: EdgeIndex) -> bool {
    let ends = case.graph.edge_endpoints(edge);
    ends.is_some_and(|(_, to)| CONTAINERS.contains(&case.graph[to].description.kind))
}

/// The other variables of the function with an exception whose traceback has to be cut as well, by itself or in a
/// container.
fn others_with<'a>(
    case: &Case<'a>,
    frame: &CycleStep<'a>,
    cut: EdgeIndex,
) -> Vec<(EdgeIndex, &'a str)> {
    let of_exceptions: Vec<NodeIndex> = of_same_line(case.graph, cut)
        .into_iter()
        .filter_map(|edge| Some(case.graph.edge_endpoints(edge)?.0))
        .collect();
    let is_or_has = |node: NodeIndex, edge: EdgeIndex| {
        of_exceptions.contains(&node)
            || leads_to_container(case, edge)
                && case
                    .graph
                    .neighbors(node)
                    .any(|item| of_exceptions.contains(&item))
    };
    let mut found: Vec<(EdgeIndex, &str)> = Vec::new();
    for edge in case.graph.edge_references() {
        let owner = &case.graph[edge.source()].description;
        if let ReferenceName::Local(name) = &edge.weight().name
            && ReferenceName::Local(name.clone()) != *frame.name
            && owner.kind == ObjectKind::Frame
            && owner.label == frame.object.description.label
            && is_or_has(edge.target(), edge.id())
            && !found.iter().any(|(_, known)| known == name)
        {
            found.push((edge.id(), name));
        }
    }
    found
}
