//! # Exit stack not closed
//!
//! An object keeps a `contextlib.ExitStack` whose callbacks lead back to the object, and nobody closes it.
//!
//! **Why it leaks.** The stack keeps each callback and each context manager that it has entered, until it is
//! closed. A bound method among them keeps its object, and that keeps the stack.
//!
//! ```python
//! class Session:
//!     def __init__(self):
//!         self.stack = ExitStack()
//!         self.stack.callback(self.release)
//! ```
//!
//! Instead, close the stack when the object is no longer needed. That calls the callbacks and drops
//! them:
//!
//! ```python
//!     def close(self):
//!         self.stack.close()
//! ```
//!
//! References: `contextlib.ExitStack.close`, `contextlib.AsyncExitStack.aclose`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::callback::steps_from;
use crate::diagnose::case::{Case, is_object, short, spoken};
use crate::diagnose::remedy::Finding;

/// Where `contextlib.ExitStack` and `AsyncExitStack` keep their callbacks (Lib/contextlib.py, `_BaseExitStack`).
const CALLBACKS: &str = "_exit_callbacks";

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, stack) = case.find(|step| {
        is_object(step.object)
            && step.next.description.kind == ObjectKind::Deque
            && *step.name == ReferenceName::Attribute(CALLBACKS.to_owned())
    })?;
    let class = stack.object.description.type_name.as_str();
    let wrapper = case.steps().map(|step| step.object).find(|object| {
        let label = object.description.label.as_str();
        object.is_library() && label.contains("ExitStack.") && label.ends_with("_exit_wrapper")
    });
    // What the stack was given, behind the container and the wrapper of `contextlib`.
    let steps = steps_from(case, |step| step.edge == stack.edge)?;
    let given = steps.iter().map(|step| step.next).find(|object| {
        let kind = object.description.kind;
        let is_wrapper = wrapper.is_some_and(|wrapper| std::ptr::eq(wrapper, *object));
        !is_wrapper && !matches!(kind, ObjectKind::Deque | ObjectKind::Tuple)
    })?;
    let keeper = case
        .keeper(position)
        .filter(|keeper| !keeper.is(stack.object));
    let (name, owner) = match keeper {
        Some(keeper) if keeper.plainly => {
            (format!("The exit stack `{}`", keeper.name()), keeper.object)
        }
        Some(keeper) => (
            format!("An exit stack in `{}`", keeper.name()),
            keeper.object,
        ),
        None => (
            format!("The {}, an exit stack,", short(class)),
            stack.object,
        ),
    };
    let owners = short(&owner.description.type_name);
    let keeps = match std::ptr::eq(given, owner) {
        true => format!("keeps the {owners} itself until the stack is closed"),
        false => format!(
            "keeps {}, which leads back to the {owners}, until the stack is closed",
            spoken(given)
        ),
    };
    let close = match class.ends_with("AsyncExitStack") {
        true => "`aclose()` or an `async with` statement",
        false => "`close()` or a `with` statement",
    };
    let finding = Finding::new(format!("{name} {keeps}."));
    // To drop the stack would drop its callbacks without a call.
    let drops = case.cut.filter(|&cut| {
        let target = case
            .graph
            .edge_endpoints(cut)
            .map(|(_, to)| &case.graph[to]);
        target.is_some_and(|target| std::ptr::eq(target, stack.object))
    });
    Some(finding.remedy_of(
        std::iter::once(stack.edge).chain(drops).collect(),
        format!(
            "close the stack when it is no longer needed, by {close}: that calls its callbacks and drops them"
        ),
    ))
}
