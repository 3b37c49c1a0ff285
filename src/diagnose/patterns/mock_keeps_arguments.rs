//! # Mock keeps its arguments
//!
//! A mock of `unittest.mock` has recorded a call with the object, returns it, or has it as an attribute.
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
//! What a mock returns, raises or wraps, and what a test stores on it (`model.weight = weight`), is not dropped by that.
//!
//! References: `unittest.mock.Mock.call_args_list`, `unittest.mock.Mock.reset_mock`.

use petgraph::Direction;
use petgraph::graph::{EdgeIndex, NodeIndex};

use crate::diagnose::case::Case;
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;
use crate::graph::{held_by_mocks, is_of_mocks};

pub const PATTERN: Pattern = Pattern {
    name: "mock-keeps-arguments",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Finding> {
    if !is_of_mocks(case.graph, case.cycle) {
        return None;
    }
    let what = "A mock of `unittest.mock` keeps the arguments of each call and what it was given. It is in cycles with its \
                class, its parent or its children, so all of that stays alive until the collector runs. Run \
                `gc.collect()` after the test.";
    let reset = " Or call `reset_mock()` on the outermost mock, which drops the calls that it and its children have recorded.";
    let is_dropped = |edge| is_dropped_by_reset(case, edge);
    Some(Finding::whole(
        match held_by_mocks(case.graph).into_iter().all(is_dropped) {
            true => format!("{what}{reset}"),
            false => what.to_owned(),
        },
    ))
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
