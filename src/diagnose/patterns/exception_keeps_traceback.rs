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
//! store `e.with_traceback(None)`.

use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, CycleStep, at, short};
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;
use crate::graph::of_same_line;
use crate::model::words::a;

pub const PATTERN: Pattern = Pattern {
    name: "exception-keeps-traceback",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, exception) = case.find(|step| {
        step.object.description.kind == ObjectKind::Exception
            && *step.name == ReferenceName::Attribute("__traceback__".to_owned())
    })?;
    let (frame, variable, function) = case.variable_after(position)?;
    let class = short(&exception.object.description.type_name);
    let plainly = frame.leads_to(exception.object);
    let is_captured = case.is_captured(frame.object, variable);
    let kind = if is_captured { "captured" } else { "local" };
    let others = match plainly && !is_captured {
        true => others_with(case, &frame, exception.edge),
        false => Vec::new(),
    };
    let names: Vec<String> = std::iter::once(variable)
        .chain(others.iter().map(|(_, name)| *name))
        .map(|name| format!("`{name}`"))
        .collect();
    let names = names.join(" and ");
    let place = at(frame.object);
    let mut finding = Finding::new(match others.is_empty() {
        true => format!(
            "The {kind} variable {names} of `{function}`{place} {} {}, whose traceback keeps that function's frame and \
             all its variables.",
            if plainly { "is" } else { "leads to" },
            a(class),
        ),
        false => format!(
            "The local variables {names} of `{function}`{place} are exceptions ({class}), whose tracebacks keep that \
             function's frame and all its variables.",
        ),
    });
    if !is_captured {
        let edges = std::iter::once(frame.edge).chain(others.iter().map(|(edge, _)| *edge));
        finding = finding.remedy_of(
            edges.collect(),
            format!("delete {names} before `{function}` ends"),
        );
    }
    if plainly && !is_captured && others.is_empty() {
        finding = finding.code(
            format!("{variable} = error\n..."),
            format!("{variable} = error\ntry:\n    ...\nfinally:\n    del {variable}"),
        );
    }
    let without = match others.is_empty() {
        true => {
            "keep the exception without its traceback (`error.with_traceback(None)`), if it is not raised again"
        }
        false => {
            "keep the exceptions without their tracebacks (`error.with_traceback(None)`), if they are not raised again"
        }
    };
    Some(finding.remedy(exception.edge, without))
}

/// The other variables of the function with an exception whose traceback has to be cut as well.
fn others_with<'a>(
    case: &Case<'a>,
    frame: &CycleStep<'a>,
    cut: EdgeIndex,
) -> Vec<(EdgeIndex, &'a str)> {
    let of_exceptions: Vec<NodeIndex> = of_same_line(case.graph, cut)
        .into_iter()
        .filter_map(|edge| Some(case.graph.edge_endpoints(edge)?.0))
        .collect();
    let mut found: Vec<(EdgeIndex, &str)> = Vec::new();
    for edge in case.graph.edge_references() {
        let owner = &case.graph[edge.source()].description;
        if let ReferenceName::Local(name) = &edge.weight().name
            && ReferenceName::Local(name.clone()) != *frame.name
            && owner.kind == ObjectKind::Frame
            && owner.label == frame.object.description.label
            && of_exceptions.contains(&edge.target())
            && !found.iter().any(|(_, known)| known == name)
        {
            found.push((edge.id(), name));
        }
    }
    found
}
