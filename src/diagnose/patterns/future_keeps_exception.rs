//! # Future or task keeps its exception
//!
//! A function fails, and one of its variables is the future or task that stores its exception.
//!
//! **Why it leaks.** The future keeps the exception, the exception its traceback, the traceback the
//! frame of every function that it passed through, and one of these frames has the future.
//!
//! ```python
//! async def serve():
//!     task = asyncio.current_task()
//!     ...                        # raises: task → exception → traceback → frame → task
//! ```
//!
//! Instead, use `try: … finally: del task`, as the standard library does in its own futures, or get
//! the task where it is needed and do not keep it.

use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, CycleStep, at, short};
use crate::diagnose::remedy::Finding;
use crate::model::words::{all_of, capital_a};

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, future) = case.find(|step| {
        let node = step.object;
        node.description.kind == ObjectKind::Instance
            && (node.is_library() || node.description.place.is_none())
            && keeps_exception(&node.description.type_name, step.name)
            && match step.next.description.kind {
                ObjectKind::Exception => true,
                // CPython 3.10 also keeps the traceback by itself (`fut_cancelled_exc_state`).
                ObjectKind::Traceback => matches!(step.name, ReferenceName::Unnamed),
                _ => false,
            }
    })?;
    let (frame, variable, function) = case.variable_after(position + 1)?;
    let what = short(&future.object.description.type_name);
    let exception = match future.next.description.kind {
        ObjectKind::Traceback => "exception",
        _ => short(&future.next.description.type_name),
    };
    let plainly = frame.leads_to(future.object);
    let finding = Finding::new(format!(
        "{} keeps the {exception} that it ended with, whose traceback keeps the frame of \
         `{function}`{}; there the local variable `{variable}` {} the {what}.",
        capital_a(what),
        at(frame.object),
        if plainly { "is" } else { "leads back to" },
    ));
    // The variable is then often the `self` of a method.
    let keeper = case
        .keeper(position)
        .filter(|keeper| !plainly && keeper.is_own());
    let finding = match keeper {
        Some(keeper) => finding.remedy(keeper.edge, case.removal(keeper.edge)),
        None => finding,
    };
    let finding = match (variable, keeper) {
        // Nobody deletes the `self` of a method.
        ("self", Some(_)) => finding,
        _ => finding.remedy(frame.edge, case.removal(frame.edge)),
    };
    // A loop over several leaves the last one in its variable as well.
    let others = others_with(case, &frame, &future);
    let edges = || std::iter::once(frame.edge).chain(others.iter().map(|(edge, _)| *edge));
    let finding = match others.is_empty() || edges().any(|edge| case.is_in_cell(edge)) {
        true => finding,
        false => {
            let names = std::iter::once(variable).chain(others.iter().map(|(_, name)| *name));
            let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            let names = all_of(&names);
            finding.remedy_of(
                edges().collect(),
                format!("delete the local variables {names} before `{function}` ends"),
            )
        }
    };
    Some(if plainly && !case.is_in_cell(frame.edge) {
        finding.code(
            format!("{variable} = ...\n..."),
            format!("{variable} = ...\ntry:\n    ...\nfinally:\n    del {variable}"),
        )
    } else {
        finding
    })
}

/// The other variables of the function that are the future, or a container with it.
fn others_with<'a>(
    case: &Case<'a>,
    frame: &CycleStep<'a>,
    future: &CycleStep<'a>,
) -> Vec<(EdgeIndex, &'a str)> {
    let ends = |edge: EdgeIndex| case.graph.edge_endpoints(edge);
    let (Some((frame_at, _)), Some((future_at, _))) = (ends(frame.edge), ends(future.edge)) else {
        return Vec::new();
    };
    let is_or_has = |node: NodeIndex| {
        let is_container = CONTAINERS.contains(&case.graph[node].description.kind);
        node == future_at || is_container && case.graph.neighbors(node).any(|it| it == future_at)
    };
    let edges = case.graph.edges(frame_at);
    let mut found: Vec<(EdgeIndex, &str)> = edges
        .filter(|edge| edge.id() != frame.edge && is_or_has(edge.target()))
        .filter_map(|edge| match &edge.weight().name {
            ReferenceName::Local(name) => Some((edge.id(), name.as_str())),
            _ => None,
        })
        .collect();
    found.sort_by_key(|(_, name)| *name);
    found
}

/// True for the result of a future that failed, and for what cancelled one, which has a name in Lib/asyncio/futures.py and
/// none in Modules/_asynciomodule.c (`fut_cancelled_exc`).
fn keeps_exception(class: &str, name: &ReferenceName) -> bool {
    match name {
        ReferenceName::Attribute(name) => matches!(name.as_str(), "_exception" | "_cancelled_exc"),
        ReferenceName::Unnamed => matches!(class, "_asyncio.Task" | "_asyncio.Future"),
        _ => false,
    }
}
