//! The patterns of leaks: one file each, whose doc comment is the page that explains it.

mod autograd_context;
mod bound_method_on_owner;
mod class_made_at_run_time;
mod closure_captures_owner;
mod container_contains_itself;
mod exception_keeps_traceback;
mod forward_replaced;
mod frame_in_local;
mod linked_both_ways;
mod loader_callback_captures_owner;
mod module_hook_captures_module;
mod optimizer_hook_captures_owner;
mod parametrized_module;
mod recursive_inner_function;
mod refers_to_itself;
mod scheduler_lambda_captures_owner;
mod suspended_holds_itself;
mod tensor_attribute;
mod tensor_hook_captures_tensor;
mod traced_graph_module;

use super::case::Case;

/// What to change, in words and where possible in code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    pub text: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

impl Advice {
    fn new(text: String, before: String, after: String) -> Self {
        Self {
            text,
            before: Some(before),
            after: Some(after),
        }
    }
}

/// A shape of leak that occurs in practice.
pub struct Pattern {
    /// Its name, as in reports and `cyclescope explain`.
    pub name: &'static str,
    /// The advice for a leak of this shape; `None` for any other leak.
    pub recognise: fn(&Case<'_>) -> Option<Advice>,
}

/// Every pattern, the more particular before the more general.
pub const PATTERNS: [Pattern; 20] = [
    frame_in_local::PATTERN,
    exception_keeps_traceback::PATTERN,
    suspended_holds_itself::PATTERN,
    module_hook_captures_module::PATTERN,
    tensor_hook_captures_tensor::PATTERN,
    optimizer_hook_captures_owner::PATTERN,
    scheduler_lambda_captures_owner::PATTERN,
    loader_callback_captures_owner::PATTERN,
    forward_replaced::PATTERN,
    autograd_context::PATTERN,
    tensor_attribute::PATTERN,
    parametrized_module::PATTERN,
    traced_graph_module::PATTERN,
    closure_captures_owner::PATTERN,
    bound_method_on_owner::PATTERN,
    recursive_inner_function::PATTERN,
    container_contains_itself::PATTERN,
    refers_to_itself::PATTERN,
    linked_both_ways::PATTERN,
    class_made_at_run_time::PATTERN,
];

/// The first pattern that fits, and its advice.
pub fn recognise(case: &Case<'_>) -> Option<(&'static str, Advice)> {
    PATTERNS
        .iter()
        .find_map(|pattern| Some((pattern.name, (pattern.recognise)(case)?)))
}

/// What is known when no pattern fits: the reference that closes the cycle.
pub fn fallback(case: &Case<'_>) -> Advice {
    let Some((from, cut)) = case
        .cut
        .and_then(|cut| Some((case.graph.edge_endpoints(cut)?.0, cut)))
    else {
        return Advice::default();
    };
    let owner = &case.graph[from].description.label;
    let name = &case.graph[cut].name;
    Advice {
        text: format!(
            "The cycle closes through {name} of {owner}. Drop that reference when it is no longer \
             needed, or make it weak (weakref)."
        ),
        before: None,
        after: None,
    }
}
