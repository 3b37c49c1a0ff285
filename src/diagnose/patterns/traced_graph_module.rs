//! # Traced graph module
//!
//! A module made by `torch.fx` (`symbolic_trace`, an export, a compiler pass) and its graph keep each
//! other.
//!
//! **Why it leaks.** A `GraphModule` keeps its `Graph`, the graph its owning module, and the nodes of
//! the graph keep each other. Tracing leaves further cycles that hold the traced module. PyTorch makes
//! all of these cycles, and removing a single reference does not free the parameters.
//!
//! ```python
//! for batch in loader:
//!     traced = torch.fx.symbolic_trace(model)
//!     loss = traced(batch).mean()
//! ```
//!
//! Instead, trace once and reuse the result, or run `gc.collect()` after dropping traced modules.
//!
//! ```python
//! traced = torch.fx.symbolic_trace(model)
//! for batch in loader:
//!     loss = traced(batch).mean()
//! ```
//!
//! References: `torch.fx.GraphModule`, `torch.fx.Graph.owning_module`.

use crate::diagnose::case::Case;
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    case.steps().find(|step| {
        matches!(
            step.object.description.type_name.as_str(),
            "torch.fx.graph.Graph" | "torch.fx.node.Node"
        )
    })?;
    // A cycle with anything of the program's own in it is the program's.
    let torch_only = case
        .steps()
        .all(|step| step.object.description.type_name.starts_with("torch.fx."));
    torch_only.then(|| {
        Finding::whole(
            "A torch.fx graph, its nodes and the traced module refer to each other: PyTorch makes \
               these cycles. Trace once and reuse the result, or run `gc.collect()` after dropping \
               a traced module."
                .to_owned(),
        )
    })
}
