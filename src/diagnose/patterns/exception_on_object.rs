//! # Exception stored on an object
//!
//! A caught exception is stored on an object that a function it passed through uses.
//!
//! **Why it leaks.** The exception keeps its traceback, the traceback the frame of the function, and
//! the frame the object (often as `self`), with all other variables of the function.
//!
//! ```python
//! except RuntimeError as error:
//!     self.error = error
//! ```
//!
//! Instead, store the exception without its traceback, or its text:
//!
//! ```python
//! except RuntimeError as error:
//!     self.error = error.with_traceback(None)
//! ```
//!
//! One that is raised again later needs its traceback until then:
//!
//! ```python
//! try:
//!     raise self.error
//! finally:
//!     self.error = None
//! ```

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};

use super::exception_keeps_traceback::classes_alike;
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, Keeper, at, short};
use crate::diagnose::remedy::Finding;
use crate::graph::{LeakNode, of_same_line};
use crate::model::words::{a, all_of};

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, step) = case.find(|step| {
        step.object.description.kind == ObjectKind::Exception
            && *step.name == ReferenceName::Attribute("__traceback__".to_owned())
    })?;
    let keeper = case.keeper(position)?;
    let (frame, variable, function) = case.variable_after(position)?;
    let kept = kept_alike(case, &keeper, step.edge);
    let names: Vec<String> = kept.iter().map(|(name, _)| format!("`{name}`")).collect();
    let (names, is_one) = (all_of(&names), kept.len() == 1);
    let leads = match frame.leads_to(keeper.object) {
        true => "is the object",
        false => "leads back to the object",
    };
    let place = at(frame.object);
    let mut finding = Finding::new(match is_one {
        true => format!(
            "{names} keeps {}, whose traceback keeps the frame of `{function}`{place} and all its variables; one of them, \
             `{variable}`, {leads}.",
            a(short(&step.object.description.type_name)),
        ),
        false => format!(
            "{names} keep exceptions ({}), whose tracebacks keep the frames of functions with all their variables; one \
             of them, `{variable}` of `{function}`{place}, {leads}.",
            classes_alike(case, step.edge),
        ),
    });
    if !keeper.is_own_data() {
        return Some(finding.remedy(keeper.edge, case.removal(keeper.edge)));
    }
    let (without, text, if_raised) = match is_one {
        true => (
            "store the exception without its traceback",
            "store the text of the exception",
            "if it is",
        ),
        false => (
            "store the exceptions in all of these without their tracebacks",
            "store the texts of the exceptions",
            "if they are",
        ),
    };
    let future = future_with(case, step.edge);
    let cleared = match future {
        // It would have its traceback again.
        Some(future) => format!(
            "set the exception's `__traceback__` to None once the {future}, which keeps it too, has raised it for the \
             last time"
        ),
        None => format!("{without}, {if_raised} not raised again"),
    };
    finding = finding.remedy(step.edge, cleared);
    if keeper.plainly && future.is_none() {
        let attribute = keeper.attribute;
        finding = finding.code(
            format!("self.{attribute} = error"),
            format!("self.{attribute} = error.with_traceback(None)"),
        );
    }
    let edges: Vec<EdgeIndex> = kept.iter().map(|&(_, edge)| edge).collect();
    finding = finding.remedy_of(
        edges.clone(),
        format!("{text} in {names}, if nothing else is needed"),
    );
    let removal = match is_one {
        true => case.removal(keeper.edge),
        false => format!("set {names} to None when they are no longer needed"),
    };
    let again = match keeper.object.description.frozen {
        true => String::new(),
        false => format!(" (in a `finally`, {if_raised} raised again)"),
    };
    Some(finding.remedy_of(edges, format!("{removal}{again}")))
}

/// The class of a task or future that keeps an exception too: it raises that where it is awaited.
fn future_with<'a>(case: &Case<'a>, of_exception: EdgeIndex) -> Option<&'a str> {
    let (exception, _) = case.graph.edge_endpoints(of_exception)?;
    let holders = case.graph.edges_directed(exception, Direction::Incoming);
    let mut classes = holders.map(|edge| case.graph[edge.source()].description.type_name.as_str());
    // A class of the program's by such a name need not raise it.
    let is_future = |class: &&str| {
        let is_standard = ["_asyncio.", "asyncio.", "concurrent.futures."];
        is_standard.iter().any(|module| class.starts_with(module))
            && ["Task", "Future"].contains(&short(class))
    };
    classes.find(is_future).map(short)
}

/// The attributes of objects of the same class that keep exceptions whose tracebacks are cut with this one, its keeper
/// first: each by its name, with its reference.
fn kept_alike(case: &Case<'_>, keeper: &Keeper<'_>, cut: EdgeIndex) -> Vec<(String, EdgeIndex)> {
    let mut kept = vec![(keeper.name(), keeper.edge)];
    let alike = of_same_line(case.graph, cut);
    if !case.cut.is_some_and(|cut| alike.contains(&cut)) {
        return kept;
    }
    let source = |edge| Some(case.graph.edge_endpoints(edge)?.0);
    let exceptions: Vec<NodeIndex> = alike.into_iter().filter_map(source).collect();
    let is_kept = |node: NodeIndex| {
        let is_container = CONTAINERS.contains(&case.graph[node].description.kind);
        exceptions.contains(&node)
            || is_container
                && case
                    .graph
                    .neighbors(node)
                    .any(|item| exceptions.contains(&item))
    };
    let class = |node: &LeakNode| {
        (
            node.description.label.clone(),
            node.description.place.clone(),
        )
    };
    for edge in case.graph.edge_references() {
        let owner = &case.graph[edge.source()];
        if let ReferenceName::Attribute(attribute) = &edge.weight().name
            && class(owner) == class(keeper.object)
            && is_kept(edge.target())
        {
            let name = format!("{}.{attribute}", short(&owner.description.type_name));
            if kept.iter().all(|(known, _)| *known != name) {
                kept.push((name, edge.id()));
            }
        }
    }
    kept
}
