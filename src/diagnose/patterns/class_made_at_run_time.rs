//! # Class made at run time
//!
//! A class is defined inside a function, or made with `type(…)`, and holds a tensor as a class
//! attribute or through a method's closure or default argument.
//!
//! **Why it leaks.** Every class is in its own `__mro__`, so every class is a cycle. A class at module
//! level lives as long as the program; one made in a function becomes garbage at each call.
//!
//! ```python
//! def make_lookup(weights):
//!     class Lookup:
//!         table = weights                # waits for the collector with Lookup
//!     return Lookup()
//! ```
//!
//! Instead, use a class at module level, made once, and instance attributes for the tensors.

use petgraph::graph::EdgeIndex;

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{CONTAINERS, Case, CycleStep, at, bare_name, is_cache, short};
use crate::diagnose::patterns::Pattern;
use crate::diagnose::remedy::Finding;

pub const PATTERN: Pattern = Pattern {
    name: "class-made-at-run-time",
    recognise,
};

/// The metaclass of enumerations, by its names in different Pythons.
const ENUMERATION: [&str; 2] = ["enum.EnumType", "enum.EnumMeta"];

fn recognise(case: &Case<'_>) -> Option<Finding> {
    let class = case.step_from(ObjectKind::Class)?;
    let label = &class.object.description.label;
    if label.starts_with("class unittest.mock.") {
        let what = "`unittest.mock` makes a class for each mock, and a class is always a cycle. What the mock has recorded \
                    or was given stays alive until the collector runs. Run `gc.collect()` after the test.";
        let mut references = case.graph.edge_weights();
        let wraps = references.any(
            |edge| matches!(&edge.name, ReferenceName::Attribute(name) if name == "_mock_wraps"),
        );
        let reset = " Or call `reset_mock(return_value=True, side_effect=True)` on it, which drops the calls that it has \
                     recorded and these two.";
        return Some(Finding::whole(match wraps {
            true => what.to_owned(),
            false => format!("{what}{reset}"),
        }));
    }
    if ENUMERATION.contains(&&*class.object.description.type_name)
        && let Some(cut) = case.cut.filter(|&cut| is_of_member(case, cut))
    {
        let finding = Finding::new(format!(
            "The enumeration {}{} was made at run time. It keeps its members, and each of them keeps it, so what they \
             hold stays alive until the collector runs.",
            short(label.strip_prefix("class ").unwrap_or(label)),
            at(class.object)
        ));
        return Some(finding.remedy(cut, "define it once, at module level"));
    }
    if let Some(back) = way_to_instance(case) {
        let finding = Finding::new(format!(
            "The {}{} was made at run time, and its attribute `{back}` leads back to an instance of it.",
            class.object.description.label,
            at(class.object)
        ));
        // To define it at module level would keep the instance for good.
        return Some(match case.cut {
            Some(cut) => finding.remedy(cut, removal_of_instance(case, cut, back)),
            None => finding,
        });
    }
    let finding = Finding::new(format!(
        "The {}{} was made at run time. A class is always a cycle (it is in its own __mro__), \
         so what it holds stays alive until the collector runs.",
        class.object.description.label,
        at(class.object)
    ));
    let Some(cut) = case.cut else {
        return Some(finding);
    };
    let removal = case.removal(cut);
    let remedy = match class.object.is_library() {
        true => removal,
        false => format!("define the class once, at module level, or {removal}"),
    };
    Some(finding.remedy(cut, remedy))
}

/// How an attribute of the class lets go of an instance. The class needs its methods.
fn removal_of_instance(case: &Case<'_>, cut: EdgeIndex, attribute: &str) -> String {
    let ends = case.graph.edge_endpoints(cut);
    let ends = ends.map(|(from, to)| (&case.graph[from], &case.graph[to]));
    let cached =
        "to cache its results, store them on the instance, or under a key without the instance";
    let (method, place) = match (ends, &case.graph[cut].name) {
        (Some((class, method)), ReferenceName::Attribute(name))
            if class.description.kind == ObjectKind::Class
                && (method.description.kind == ObjectKind::Function || is_cache(method)) =>
        {
            (name.as_str(), String::new())
        }
        (Some((method, kept)), ReferenceName::Closure(variable))
            if CONTAINERS.contains(&kept.description.kind) =>
        {
            (bare_name(method), format!(" in `{variable}`"))
        }
        // Of a descriptor.
        (Some((owner, kept)), ReferenceName::Attribute(name))
            if CONTAINERS.contains(&kept.description.kind) =>
        {
            let class = short(&owner.description.type_name);
            (attribute, format!(" in `{class}.{name}`"))
        }
        _ => return case.removal(cut),
    };
    format!("let the method `{method}` keep no instance of the class{place}: {cached}")
}

/// True for a reference that an enumeration has to its members, or that leads on from there.
fn is_of_member(case: &Case<'_>, edge: EdgeIndex) -> bool {
    let Some((from, to)) = case.graph.edge_endpoints(edge) else {
        return false;
    };
    let (owner, target) = (&case.graph[from], &case.graph[to]);
    let is_class = owner.description.kind == ObjectKind::Class;
    // Names such as `_member_map_` are reserved for what an enumeration keeps of its members (Lib/enum.py).
    let is_reserved = matches!(
        &case.graph[edge].name,
        ReferenceName::Attribute(name)
            if name.starts_with('_') && name.ends_with('_') && !name.starts_with("__")
    );
    !is_class || is_reserved || target.description.kind == ObjectKind::Instance && !target.is_tensor
}

/// The attribute of the class by which the cycle passes from it to one of its instances.
fn way_to_instance<'a>(case: &Case<'a>) -> Option<&'a str> {
    let is_instance = |step: &CycleStep<'_>| {
        *step.name == ReferenceName::Type && step.object.description.kind == ObjectKind::Instance
    };
    case.steps().find(is_instance)?;
    case.steps().find_map(|step| match step.name {
        ReferenceName::Attribute(name) if step.object.description.kind == ObjectKind::Class => {
            (!name.starts_with("__")).then_some(name.as_str())
        }
        _ => None,
    })
}
