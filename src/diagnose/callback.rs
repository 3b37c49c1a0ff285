//! A callback on a cycle: what it is and how it keeps what it keeps.

use petgraph::graph::EdgeIndex;

use super::case::{CONTAINERS, Case, CycleStep, at, bare_name, or_weakly, short, spoken};
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::graph::LeakNode;

/// A function or bound method that was handed to a library and leads back to where it is kept.
pub struct Callback<'a> {
    /// In words: what it is, where it is, what it keeps.
    pub text: String,
    /// What to do about it wherever it is kept, as a clause.
    pub remedy: String,
    /// The references that are gone then.
    pub removes: Vec<EdgeIndex>,
    /// The reference of the container that keeps it: of the dict in which hooks are registered.
    pub kept_by: Vec<EdgeIndex>,
    /// What it keeps.
    pub keeps: &'a LeakNode,
    /// The variable by which a lambda captures that.
    pub variable: Option<&'a str>,
}

/// The cycle's steps, turned so that the first is one for which `is_first` holds.
pub fn steps_from<'a>(
    case: &Case<'a>,
    is_first: impl Fn(&CycleStep<'a>) -> bool,
) -> Option<Vec<CycleStep<'a>>> {
    let mut steps: Vec<CycleStep<'a>> = case.steps().collect();
    let first = steps.iter().position(is_first)?;
    steps.rotate_left(first);
    Some(steps)
}

/// The callback that the first step leads to, through containers, partials and PyTorch's wrapper.
///
/// `None` if something else comes first, or if the callback keeps what follows in a way that its
/// code does not show.
pub fn callback<'a>(case: &Case<'a>, steps: &[CycleStep<'a>]) -> Option<Callback<'a>> {
    let mut partial = "";
    let kept_by: Vec<EdgeIndex> = match steps {
        [_, item, ..] if CONTAINERS.contains(&item.object.description.kind) => vec![item.edge],
        [first, ..] => vec![first.edge],
        [] => Vec::new(),
    };
    for step in steps.iter().skip(1) {
        let node = step.object;
        let kind = node.description.kind;
        if node.stands_for > 0 {
            return None;
        }
        match (kind, step.name) {
            _ if CONTAINERS.contains(&kind) || is_wrapped_hook(node) => {}
            (ObjectKind::Partial, ReferenceName::Attribute(name)) if name == "func" => {
                partial = "a `functools.partial` of ";
            }
            (ObjectKind::Partial, ReferenceName::Attribute(name))
                if ["args[", "keywords["]
                    .iter()
                    .any(|part| name.starts_with(part)) =>
            {
                if step.next.description.kind == ObjectKind::Instance {
                    return Some(of_argument(case, step, kept_by));
                }
                partial = "a `functools.partial` with the argument ";
            }
            (
                ObjectKind::Function,
                ReferenceName::Closure(variable) | ReferenceName::Default(variable),
            ) => return Some(of_function(case, step, variable, partial, kept_by)),
            (ObjectKind::Method, ReferenceName::Attribute(name)) if name == "__self__" => {
                let class = short(&step.next.description.type_name);
                let weakly = case
                    .weakly(step.edge)
                    .map_or_else(String::new, |(slots, kept)| {
                        format!(", or that holds it through `weakref.ref`{slots}{kept}")
                    });
                return Some(Callback {
                    text: format!(
                        "{partial}`{}`{}, a method bound to the {class}",
                        bare_name(node),
                        at(node)
                    ),
                    remedy: format!("use a function that does not need the {class}{weakly}"),
                    removes: kept_by.clone(),
                    kept_by,
                    keeps: step.next,
                    variable: None,
                });
            }
            _ => return None,
        }
    }
    None
}

/// What else can be done about an argument of a partial of a function of the program: those in C may need the object
/// itself, as `set.discard` does.
pub fn or_proxy(case: &Case<'_>, step: &CycleStep<'_>) -> String {
    let is_programs = step.object.description.place.is_some() && !step.object.is_library();
    let weakly = case.weakly(step.edge).filter(|_| is_programs);
    weakly.map_or_else(String::new, |(slots, kept)| {
        let proxy = "; or pass a `weakref.proxy` of the object, unless the function hashes it or asks for its type";
        format!("{proxy}{slots}{kept}")
    })
}

/// A partial that has an object as an argument.
fn of_argument<'a>(case: &Case<'a>, step: &CycleStep<'a>, kept_by: Vec<EdgeIndex>) -> Callback<'a> {
    let class = short(&step.next.description.type_name);
    let weakly = or_proxy(case, step);
    Callback {
        text: format!("a `functools.partial` with the {class} as an argument"),
        remedy: format!(
            "pass the values that the function needs, not the {class}, if they never change{weakly}"
        ),
        removes: vec![step.edge],
        kept_by,
        keeps: step.next,
        variable: None,
    }
}

/// A function that captures a variable or has a default argument of its name.
fn of_function<'a>(
    case: &Case<'a>,
    step: &CycleStep<'a>,
    variable: &'a str,
    partial: &str,
    kept_by: Vec<EdgeIndex>,
) -> Callback<'a> {
    let node = step.object;
    let (keeps, verb) = match step.name {
        ReferenceName::Default(_) => ("has the default argument", "pass"),
        _ => ("captures", "capture"),
    };
    let is_captured = matches!(step.name, ReferenceName::Closure(_));
    let is_lambda = partial.is_empty() && bare_name(node) == "<lambda>";
    // A library's function captures what it needs.
    let (remedy, removes) = match node.is_library() {
        true => {
            let kept = match step.next.description.kind {
                ObjectKind::Instance => format!("the {}", short(&step.next.description.type_name)),
                _ => spoken(step.next),
            };
            let remedy = format!("use a function that does not need {kept}");
            (remedy, kept_by.clone())
        }
        // A function that fills a container needs it.
        false if key_of(case, step).is_some() => {
            let remedy =
                format!("let the keys of `{variable}` be names, not the objects themselves");
            (remedy, key_of(case, step).into_iter().collect())
        }
        false => {
            let weakly = or_weakly(case, step, variable);
            let remedy = format!(
                "{verb} the values that it needs, not `{variable}`, if they never change{weakly}"
            );
            (remedy, vec![step.edge])
        }
    };
    Callback {
        text: format!(
            "{partial}{}{} that {keeps} `{variable}`",
            spoken(node),
            at(node)
        ),
        remedy,
        removes,
        kept_by,
        keeps: step.next,
        variable: (is_captured && is_lambda && !node.is_library()).then_some(variable),
    }
}

/// The reference to a key by which the cycle passes through the dict that a step leads to.
fn key_of(case: &Case<'_>, step: &CycleStep<'_>) -> Option<EdgeIndex> {
    let key = case
        .steps()
        .find(|next| std::ptr::eq(next.object, step.next))?;
    (*key.name == ReferenceName::KeyItself).then_some(key.edge)
}

/// True for the object in which `nn.Module` keeps a load-state-dict hook.
fn is_wrapped_hook(node: &LeakNode) -> bool {
    node.description.type_name == "torch.nn.modules.module._WrappedHook"
}
