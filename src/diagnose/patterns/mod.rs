//! Leak patterns: one file each. Its doc comment is the page that `cyclescope explain` prints.

mod autograd_context;
mod bound_method_on_owner;
mod cache_on_instance;
mod class_made_at_run_time;
mod closure_captures_owner;
mod container_contains_itself;
mod exc_info_kept;
mod exception_chain;
mod exception_keeps_traceback;
mod exception_on_object;
mod forward_replaced;
mod frame_in_local;
mod future_keeps_exception;
mod iterator_on_owner;
mod linked_both_ways;
mod loader_callback_captures_owner;
mod module_hook_captures_module;
mod mutually_recursive_functions;
mod namespace_made_at_run_time;
mod optimizer_hook_captures_owner;
mod parametrized_module;
mod partial_keeps_owner;
mod property_captures_owner;
mod recursive_inner_function;
mod refers_to_itself;
mod scheduler_lambda_captures_owner;
mod suspended_holds_itself;
mod tensor_attribute;
mod tensor_hook_captures_tensor;
mod thread_target;
mod traced_graph_module;
mod weakref_callback;
mod wrapped_method_on_owner;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::Case;
use crate::diagnose::remedy::{Advice, Finding};

/// A leak pattern.
pub struct Pattern {
    /// Its name, as in reports and `cyclescope explain`.
    pub name: &'static str,
    /// What is said of a leak of this shape; `None` for any other leak.
    pub recognise: fn(&Case<'_>) -> Option<Finding>,
}

impl Pattern {
    /// The page that explains it, in Markdown: the doc comment of the pattern's own file.
    pub fn page(&self) -> String {
        PATTERNS
            .iter()
            .zip(SOURCES)
            .find(|(pattern, _)| pattern.name == self.name)
            .map_or_else(String::new, |(_, source)| module_comment(source))
    }
}

/// The lines at the top of a source file that begin with `//!`.
fn module_comment(source: &str) -> String {
    source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect()
}

/// Declares [`PATTERNS`] and takes in the source of each, for its page.
macro_rules! registry {
    ($($file:ident::PATTERN,)*) => {
        /// Every pattern, the more particular before the more general.
        pub const PATTERNS: &[Pattern] = &[$($file::PATTERN),*];
        /// The file of each pattern, in the same order.
        const SOURCES: &[&str] = &[$(include_str!(concat!(stringify!($file), ".rs"))),*];
    };
}

registry![
    frame_in_local::PATTERN,
    exc_info_kept::PATTERN,
    future_keeps_exception::PATTERN,
    exception_chain::PATTERN,
    exception_on_object::PATTERN,
    exception_keeps_traceback::PATTERN,
    iterator_on_owner::PATTERN,
    suspended_holds_itself::PATTERN,
    weakref_callback::PATTERN,
    thread_target::PATTERN,
    cache_on_instance::PATTERN,
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
    partial_keeps_owner::PATTERN,
    wrapped_method_on_owner::PATTERN,
    bound_method_on_owner::PATTERN,
    mutually_recursive_functions::PATTERN,
    recursive_inner_function::PATTERN,
    container_contains_itself::PATTERN,
    refers_to_itself::PATTERN,
    linked_both_ways::PATTERN,
    namespace_made_at_run_time::PATTERN,
    property_captures_owner::PATTERN,
    class_made_at_run_time::PATTERN,
];

/// The first pattern that fits, and its advice.
pub fn recognise(case: &Case<'_>) -> Option<(&'static str, Advice)> {
    PATTERNS
        .iter()
        .find_map(|pattern| Some((pattern.name, case.advise((pattern.recognise)(case)?))))
}

/// What is known when no pattern fits: the reference to remove, and where it lies.
pub fn fallback(case: &Case<'_>) -> Advice {
    let Some((cut, (from, _))) = case
        .cut
        .and_then(|cut| Some((cut, case.graph.edge_endpoints(cut)?)))
    else {
        return Advice::default();
    };
    let owner = &case.graph[from].description.label;
    let name = &case.graph[cut].name;
    let what = match case.cycle.edges.contains(&cut) {
        true => format!("The cycle closes through {name} of {owner}."),
        false => format!("The cycle leads to the memory through {name} of {owner}."),
    };
    let is_attribute = matches!(case.graph[cut].name, ReferenceName::Attribute(_))
        && case.graph[from].description.kind == ObjectKind::Instance;
    let mut finding = Finding::new(what);
    if let Some((slots, kept)) = case.weakly(cut).filter(|_| is_attribute) {
        let removal = case.removal(cut);
        let remedy = format!("{removal}; or make this reference weak{slots}{kept}");
        finding = finding.remedy(cut, remedy);
    }
    case.advise(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pattern_has_the_page_of_its_own_file() {
        for pattern in PATTERNS {
            let page = pattern.page();
            assert!(page.starts_with("# "), "{}: {page}", pattern.name);
            assert!(!page.contains("//!") && !page.contains("recognise"));
        }
        assert!(
            PATTERNS[0]
                .page()
                .starts_with("# Frame stored in a local\n\nA function keeps")
        );
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = PATTERNS.iter().map(|pattern| pattern.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
