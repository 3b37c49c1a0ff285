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
mod exit_stack_not_closed;
mod forward_replaced;
mod frame_in_local;
mod future_keeps_exception;
mod iterator_on_owner;
mod linked_both_ways;
mod loader_callback_captures_owner;
mod mock_keeps_arguments;
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

use petgraph::graph::EdgeIndex;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, at, is_object, noun, or_weakly, short, spoken, the};
use crate::diagnose::remedy::{Advice, Finding, capitalized};
use crate::model::words::a;

/// A leak pattern.
pub struct Pattern {
    /// Its name, as in reports and `cyclescope explain`.
    pub name: &'static str,
    /// What is said of a leak of this shape; `None` for any other leak.
    pub recognise: fn(&Case<'_>) -> Option<Finding>,
    /// Its file, whose first comment is its page.
    source: &'static str,
}

impl Pattern {
    /// The page that explains it, in Markdown: the doc comment of the pattern's own file.
    pub fn page(&self) -> String {
        module_comment(self.source)
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

/// Declares [`PATTERNS`].
macro_rules! registry {
    ($($name:literal => $file:ident,)*) => {
        /// Every pattern, the more particular before the more general.
        pub const PATTERNS: &[Pattern] = &[$(
            Pattern {
                name: $name,
                recognise: $file::recognise,
                source: include_str!(concat!(stringify!($file), ".rs")),
            }
        ),*];
    };
}

registry! {
    "frame-in-local" => frame_in_local,
    "mock-keeps-arguments" => mock_keeps_arguments,
    "exc-info-kept" => exc_info_kept,
    "future-keeps-exception" => future_keeps_exception,
    "exception-chain" => exception_chain,
    "exception-on-object" => exception_on_object,
    "exception-keeps-traceback" => exception_keeps_traceback,
    "exit-stack-not-closed" => exit_stack_not_closed,
    "iterator-on-owner" => iterator_on_owner,
    "suspended-holds-itself" => suspended_holds_itself,
    "weakref-callback" => weakref_callback,
    "thread-target" => thread_target,
    "cache-on-instance" => cache_on_instance,
    "module-hook-captures-module" => module_hook_captures_module,
    "tensor-hook-captures-tensor" => tensor_hook_captures_tensor,
    "optimizer-hook-captures-owner" => optimizer_hook_captures_owner,
    "scheduler-lambda-captures-owner" => scheduler_lambda_captures_owner,
    "loader-callback-captures-owner" => loader_callback_captures_owner,
    "forward-replaced" => forward_replaced,
    "autograd-context-kept-both-ways" => autograd_context,
    "tensor-attribute-leads-back" => tensor_attribute,
    "parametrized-module" => parametrized_module,
    "traced-graph-module" => traced_graph_module,
    "closure-captures-owner" => closure_captures_owner,
    "partial-keeps-owner" => partial_keeps_owner,
    "wrapped-method-on-owner" => wrapped_method_on_owner,
    "bound-method-on-owner" => bound_method_on_owner,
    "mutually-recursive-functions" => mutually_recursive_functions,
    "recursive-inner-function" => recursive_inner_function,
    "container-contains-itself" => container_contains_itself,
    "refers-to-itself" => refers_to_itself,
    "linked-both-ways" => linked_both_ways,
    "namespace-made-at-run-time" => namespace_made_at_run_time,
    "property-captures-owner" => property_captures_owner,
    "class-made-at-run-time" => class_made_at_run_time,
}

/// The first pattern that fits, and its advice.
pub fn recognise(case: &Case<'_>) -> Option<(&'static str, Advice)> {
    PATTERNS
        .iter()
        .find_map(|pattern| Some((pattern.name, case.advise((pattern.recognise)(case)?))))
}

/// What is known when no pattern fits: the reference to remove, and where it lies.
pub fn fallback(case: &Case<'_>) -> Advice {
    let Some((cut, (from, to))) = case
        .cut
        .and_then(|cut| Some((cut, case.graph.edge_endpoints(cut)?)))
    else {
        return Advice::default();
    };
    let (owner, target) = (&case.graph[from], &case.graph[to]);
    let finding = Finding::new(what_is_cut(case, cut));
    if let Some((exception, what)) = kept_exception(case, cut) {
        let remedy = "keep the exception without its traceback (`error.with_traceback(None)`), if it is not raised again";
        return case.advise(Finding::new(what).remedy(exception, remedy));
    }
    let is_item = CONTAINERS.contains(&owner.description.kind)
        && matches!(
            case.graph[cut].name,
            ReferenceName::Key(_) | ReferenceName::Index(_)
        );
    let weakly = match (case.cut_step(), &case.graph[cut].name) {
        (Some(step), ReferenceName::Closure(variable)) if !owner.is_library() => {
            let weakly = or_weakly(case, &step, variable);
            let remedy = match CONTAINERS.contains(&target.description.kind) {
                true => format!(
                    "pass `{variable}` to the function as an argument, or remove from it what leads back"
                ),
                false => format!(
                    "capture the values that the function needs, not `{variable}`, if they never change{weakly}"
                ),
            };
            return case.advise(finding.remedy(cut, remedy));
        }
        (_, ReferenceName::Attribute(_)) if is_object(owner) => case.weakly(cut),
        _ if is_item => case.weakly(cut),
        _ => None,
    };
    let is_own = target.description.place.is_some() && !target.is_library();
    case.advise(match weakly.filter(|_| is_own) {
        Some((slots, kept)) => {
            let removal = case.removal(cut);
            let weak = match is_item {
                true => "keep a weak reference there",
                false => "make this reference weak",
            };
            finding.remedy(cut, format!("{removal}; or {weak}{slots}{kept}"))
        }
        None => finding,
    })
}

/// The reference to a traceback by which a function that captures an exception keeps its own frame, and what to say of it.
fn kept_exception(case: &Case<'_>, cut: EdgeIndex) -> Option<(EdgeIndex, String)> {
    let ReferenceName::Closure(variable) = &case.graph[cut].name else {
        return None;
    };
    let traceback = ReferenceName::Attribute("__traceback__".to_owned());
    let (_, step) = case.find(|step| {
        step.object.description.kind == ObjectKind::Exception && *step.name == traceback
    })?;
    let (from, _) = case.graph.edge_endpoints(cut)?;
    let function = &case.graph[from];
    let what = format!(
        "{}{} captures `{variable}`, which leads to {}, whose traceback keeps frames with all their variables.",
        capitalized(&the(function)),
        at(function),
        a(&noun(step.object)),
    );
    Some((step.edge, what))
}

/// What a reference is, and where it leads, as a sentence.
fn what_is_cut(case: &Case<'_>, cut: EdgeIndex) -> String {
    let Some((from, to)) = case.graph.edge_endpoints(cut) else {
        return String::new();
    };
    let (owner, target) = (&case.graph[from], &case.graph[to]);
    let label = &owner.description.label;
    let name = &case.graph[cut].name;
    let is_itself = from == to;
    let leads = |to: &str| match is_itself {
        true => "which is the object itself".to_owned(),
        false => format!("which leads back to {to}"),
    };
    if !case.cycle.edges.contains(&cut) {
        return format!("The cycle leads to the memory through {name} of {label}.");
    }
    let kept = match target.description.kind {
        ObjectKind::Method => spoken(target),
        _ => a(&noun(target)),
    };
    match (owner.description.kind, name) {
        (_, ReferenceName::Attribute(attribute)) if is_object(owner) => {
            let class = short(&owner.description.type_name);
            format!(
                "`{class}.{attribute}` is {kept}, {}.",
                leads(&format!("the {class}"))
            )
        }
        (ObjectKind::Exception, ReferenceName::Attribute(attribute))
            if !attribute.starts_with("__") && !attribute.contains('[') =>
        {
            let class = short(&owner.description.type_name);
            format!(
                "`{class}.{attribute}` is {kept}, {}.",
                leads(&format!("the {class}"))
            )
        }
        (ObjectKind::Function, ReferenceName::Closure(variable)) => {
            let function = format!("{}{}", the(owner), at(owner));
            format!(
                "{} captures `{variable}`, which leads back to it.",
                capitalized(&function)
            )
        }
        (ObjectKind::Frame, ReferenceName::Local(variable)) => {
            let function = label.strip_prefix("frame of ").unwrap_or(label);
            format!(
                "The local variable `{variable}` of `{function}`{} is {kept}, {}.",
                at(owner),
                leads("its frame")
            )
        }
        (kind, ReferenceName::Key(_) | ReferenceName::Index(_)) if CONTAINERS.contains(&kind) => {
            let container = capitalized(&case.container(from));
            format!("{container} has, at `{name}`, {kept}, which leads back to it.")
        }
        _ => format!("The cycle closes through {name} of {label}."),
    }
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
