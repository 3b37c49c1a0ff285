//! # Mock keeps its arguments
//!
//! A mock of `unittest.mock` has recorded a call that received the object, returns the object, or has it as an
//! attribute.
//!
//! **Why it leaks.** A mock keeps the arguments of every call. It refers to its children and to a class of its
//! own, and they refer to it, so all that it keeps stays alive until the collector runs.
//!
//! ```python
//! model = mock.Mock()
//! model.forward(batch)
//! ```
//!
//! Instead, run `gc.collect()` after the test, or have the mock drop the calls that it has recorded:
//!
//! ```python
//! model.reset_mock()
//! ```
//!
//! `reset_mock()` does not drop what the mock returns, raises or wraps, or what a test stores on it
//! (`model.weight = weight`).
//!
//! References: `unittest.mock.Mock.call_args_list`, `unittest.mock.Mock.reset_mock`.

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, short};
use crate::diagnose::remedy::Finding;
use crate::graph::{held_by_mocks, is_of_mocks};

/// In what a mock keeps the calls of itself and of its children.
const RECORDS: [&str; 4] = [
    "_mock_call_args",
    "_mock_call_args_list",
    "_mock_mock_calls",
    "method_calls",
];

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    if !is_of_mocks(case.graph, case.cycle) {
        return keeps_program(case);
    }
    let what = "A mock of `unittest.mock` keeps the arguments of each call and what it was given. It is in cycles of \
                its own making, so all of that stays alive until the collector runs. Run \
                `gc.collect()` after the test. A check for cycles reports this all the same, unless its `ignore` has \
                `mock-keeps-arguments`.";
    let reset = " Or call `reset_mock()` on the outermost mock, which drops the calls that it and its children have recorded.";
    let is_dropped = |edge| is_dropped_by_reset(case, edge);
    let can_be_reset =
        !has_function_for_child(case) && held_by_mocks(case.graph).into_iter().all(is_dropped);
    Some(Finding::whole(match can_be_reset {
        true => format!("{what}{reset}"),
        false => what.to_owned(),
    }))
}

/// What is said where an argument of a recorded call leads back to the mock: its lists must stay lists.
fn keeps_program(case: &Case<'_>) -> Option<Finding> {
    let cut = case.cut?;
    let (owner, _) = case.graph.edge_endpoints(cut)?;
    let class = &case.graph[owner].description.type_name;
    let ReferenceName::Attribute(attribute) = &case.graph[cut].name else {
        return None;
    };
    let is_record = class.starts_with("unittest.mock.") && RECORDS.contains(&attribute.as_str());
    is_record.then(|| {
        let class = short(class);
        let what = format!(
            "`{class}.{attribute}` has the arguments of calls of the {class}, which lead back to it."
        );
        let remedy = format!("call `reset_mock()` on the {class} when its calls are no longer needed");
        Finding::new(what).remedy(cut, remedy)
    })
}

/// True if a function that stands for a mock is the child of another mock: `reset_mock()` of that raises a TypeError
/// (Lib/unittest/mock.py, `_setup_func`).
fn has_function_for_child(case: &Case<'_>) -> bool {
    let is_children = |node: NodeIndex| {
        let mut keepers = case.graph.edges_directed(node, Direction::Incoming);
        keepers.any(|edge| *edge.weight().name.to_string() == *"._mock_children")
    };
    case.graph.edge_references().any(|edge| {
        case.graph[edge.target()].description.kind == ObjectKind::Function
            && is_children(edge.source())
    })
}

/// True for an argument of a recorded call (Lib/unittest/mock.py, `NonCallableMock.reset_mock`).
fn is_dropped_by_reset(case: &Case<'_>, edge: EdgeIndex) -> bool {
    let is_call = |node: NodeIndex| {
        let class = &case.graph[node].description.type_name;
        class.starts_with("unittest.mock._Call")
    };
    let Some((owner, _)) = case.graph.edge_endpoints(edge) else {
        return false;
    };
    // The arguments of a call are in a tuple and a dict.
    let mut keepers = case
        .graph
        .neighbors_directed(owner, Direction::Incoming)
        .peekable();
    is_call(owner) || keepers.peek().is_some() && keepers.all(is_call)
}
