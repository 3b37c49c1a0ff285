//! # Suspended generator or coroutine holds itself
//!
//! A generator, coroutine or asynchronous generator that has not finished has a variable that
//! leads back to it.
//!
//! **Why it leaks.** A suspended function keeps its local variables. If one of them refers to the
//! suspended function, or to an object that keeps it, that is a cycle.
//!
//! ```python
//! class Loader:
//!     def __init__(self):
//!         self.batches = self.read()     # suspended in read(), which keeps self
//! ```
//!
//! Instead, call `close()` (for a coroutine: await or cancel it) when it is no longer needed, or do not
//! pass the generator to its own body. Python 3.12.2 and 3.12.3 keep the variables of a generator that was closed: run
//! it to its end there.

use petgraph::visit::EdgeRef;

use crate::capture::ReferenceName;
use crate::cpython::{ObjectKind, close_drops_variables};
use crate::diagnose::case::{Case, at, short};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, step) = case.find(|step| {
        matches!(
            step.object.description.kind,
            ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator
        ) && matches!(step.name, ReferenceName::Local(_))
    })?;
    let ReferenceName::Local(variable) = step.name else {
        return None;
    };
    let label = &step.object.description.label;
    let (end, call) = match step.object.description.kind {
        ObjectKind::Coroutine => ("await it to its end, or close it", ".close()"),
        ObjectKind::AsyncGenerator => ("finish it or `await` its `aclose()`", ".aclose()"),
        _ if close_drops_variables() => ("run it to its end, or `close()` it", ".close()"),
        _ => ("run it to its end", ""),
    };
    let (generator, _) = case.graph.edge_endpoints(step.edge)?;
    let variables = case.graph.edges(generator).map(|edge| edge.id()).collect();
    let finding = Finding::new(format!(
        "The {label}{} has not ended, and its local variable `{variable}` leads back to it.",
        at(step.object)
    ))
    .remedy_of(variables, end);
    let wait = if call == ".aclose()" { "await " } else { "" };
    let Some(keeper) = case.keeper(position) else {
        return Some(finding);
    };
    let method = short(label);
    let of_owner = label.ends_with(&format!(
        "{}.{method}",
        short(&keeper.object.description.type_name)
    ));
    if keeper.object.is_library() {
        return Some(finding);
    }
    let own = keeper.is(step.next) && variable == "self" && of_owner && keeper.is_own();
    Some(
        if keeper.plainly && own && !call.is_empty() {
            let made = format!("self.{} = self.{method}(...)", keeper.attribute);
            let closed = format!("{made}\n...\n{wait}self.{}{call}", keeper.attribute);
            finding.code(made, closed)
        } else {
            finding
        }
        .remedy(keeper.edge, case.removal(keeper.edge)),
    )
}
