//! From graph facts to a leak that a person can fix: its cycle, its cut, its signature, the
//! pattern it follows and what to change. From a path in the live heap to the owner of what it leads to. And
//! from numbers to what grows, and why memory ran out.

#![forbid(unsafe_code)]

mod branches;
mod callback;
mod case;
pub mod census;
pub mod cohorts;
pub mod division;
pub mod growth;
pub mod known;
pub mod lengths;
pub mod library;
mod maker;
pub mod pages;
mod path;
pub mod patterns;
mod remedy;
mod repeat;
mod rising;
pub mod segments;
mod signature;
pub mod source;
pub mod verdict;
pub mod verdicts;

use std::cell::OnceCell;
use std::collections::BTreeSet;

use case::is_enumeration;

pub use branches::Branches;
pub use case::Case;
pub use maker::{Maker, maker};
pub use path::{NamedPath, NamedRoot, in_function};
pub use patterns::Pattern;
use petgraph::graph::{EdgeIndex, NodeIndex};
pub use remedy::Advice;
pub use repeat::Diagnoses;
pub use signature::{outline, signature};

use crate::capture::{ReferenceName, package_of};
use crate::cpython::{Binding, ObjectKind};
use crate::graph::{
    Cause, Code, Cycle, LeakGraph, LibrarysPart, PathToBuffer, find_causes, frees, paths_to_buffers,
};

/// What is known of one leak.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// Stable name of the bug; see [`signature`].
    pub signature: String,
    /// See [`outline`].
    pub outline: Option<String>,
    /// The recognised pattern's name.
    pub pattern: Option<&'static str>,
    pub advice: Advice,
    pub cycle: Cycle,
    pub paths: Vec<PathToBuffer>,
    /// The references to remove, best first.
    pub cuts: Vec<EdgeIndex>,
    /// The code that made the cycle; `None` if that is not known, or was not asked yet.
    pub maker: Option<Maker>,
    /// True if the graph shows that the cuts, with those of the other leaks of the graph, free every buffer.
    pub cuts_free: bool,
}

/// Diagnoses the leaks of a folded graph; none if no cycle of it reaches a buffer.
///
/// Each cause is a leak of its own. But causes with the same signature are one, and so are those of the same libraries, and
/// of one class that was made at run time; and what a library or the interpreter adds to a cycle of the program's belongs to the first cause in the same strongly
/// connected component.
pub fn diagnose(graph: &LeakGraph, code: &dyn Code) -> Vec<Diagnosis> {
    let found = find_causes(graph, code);
    let mut leaks: Vec<(String, &Cause, Vec<EdgeIndex>)> = Vec::new();
    for cause in &found.causes {
        let signature = signature(graph, &cause.cycle, cut_for_others(cause));
        let same = leaks.iter_mut().find(|(known, first, _)| {
            *known == signature
                || are_of_one_class(graph, first, cause)
                || match cause.is_of_library {
                    true => first.is_of_library && packages(graph, first) == packages(graph, cause),
                    false => first.component == cause.component && !cause.is_own,
                }
        });
        match same {
            // A library's part is not what the leak is named by.
            Some(same) if same.1.is_of_library && !cause.is_of_library => {
                let cuts = [&cause.cuts[..], &same.2].concat();
                *same = (signature, cause, cuts);
            }
            Some((_, _, cuts)) => cuts.extend(&cause.cuts),
            None => leaks.push((signature, cause, cause.cuts.clone())),
        }
    }
    let all: Vec<EdgeIndex> = found
        .causes
        .iter()
        .flat_map(|cause| &cause.cuts)
        .copied()
        .collect();
    let diagnosed = leaks.into_iter().map(|(signature, cause, cuts)| {
        let others: Vec<EdgeIndex> = all
            .iter()
            .copied()
            .filter(|cut| !cause.cuts.contains(cut))
            .collect();
        let made = OnceCell::new();
        let bindings = OnceCell::new();
        let case = Case {
            graph,
            cycle: &cause.cycle,
            cut: cause.cuts.first().copied(),
            has_more: cuts.len() > 1,
            others: &others,
            cuts_free: found.frees,
            made_by_library: &|step| {
                let made = made.get_or_init(|| code.librarys_parts(&cause.cycle));
                made.get(step)
                    .is_some_and(|part| *part != LibrarysPart::None)
            },
            binding: &|step| {
                let bindings = bindings.get_or_init(|| code.bindings(&cause.cycle));
                bindings.get(step).copied().unwrap_or(Binding::Value)
            },
        };
        let (pattern, mut advice) = match patterns::recognise(&case) {
            Some((pattern, advice)) => (Some(pattern), advice),
            None => (None, patterns::fallback(&case)),
        };
        remedy::also(&case, &cuts, &mut advice);
        // What a hook captures is better changed than the registry of the hooks.
        let advised = pattern.filter(|it| *it == "bound-method-on-owner");
        let advised = advised.and_then(|_| advised_item(&case, &advice));
        let cuts = advised.map_or(cuts, |edge| vec![edge]);
        Diagnosis {
            signature,
            outline: outline(graph, &cause.cycle, cut_for_others(cause)),
            pattern,
            advice,
            paths: paths_to_buffers(graph, &cause.cycle),
            cuts,
            maker: None,
            cuts_free: found.frees,
            cycle: cause.cycle.clone(),
        }
    });
    diagnosed.collect()
}

/// The item of a list or dict, a bound method, that the advice begins with, if it is enough to remove it, and not what was
/// found to be the reference to remove: the drawing is to mark what the advice speaks of.
fn advised_item(case: &Case<'_>, advice: &Advice) -> Option<EdgeIndex> {
    let [edge] = advice.removes[..] else {
        return None;
    };
    use ObjectKind::{Deque, Dict, List, Method};
    let (owner, target) = case.graph.edge_endpoints(edge)?;
    let kind = |node: NodeIndex| case.graph[node].description.kind;
    let is_item = !matches!(case.graph[edge].name, ReferenceName::Attribute(_));
    let is_stored = kind(target) == Method && matches!(kind(owner), Deque | Dict | List);
    let is_other = case.cut != Some(edge) && !case.has_more && case.cycle.edges.contains(&edge);
    let removed = [case.others, &[edge]].concat();
    let is_advised = is_item && is_stored && is_other && case.cuts_free;
    (is_advised && frees(case.graph, &removed)).then_some(edge)
}

/// The reference to remove, where that depends on what else keeps the buffer: then the same cycle by itself is another leak.
fn cut_for_others(cause: &Cause) -> Option<EdgeIndex> {
    let cut = cause.cuts.first().copied();
    cut.filter(|_| cause.is_for_others)
}

/// True for two causes that there are because a class was made at run time.
fn are_of_one_class(graph: &LeakGraph, one: &Cause, other: &Cause) -> bool {
    let class = |cause| class_made_anew(graph, cause).map(|class| &graph[class].description);
    class(one).is_some_and(|one| {
        // A dataclass with slots is made twice.
        class(other).is_some_and(|other| one.label == other.label && one.place == other.place)
    })
}

/// The class, if a cycle is there because it was made: it is all of the cycle, or its own reference to its instances as
/// an enumeration or to one of its special methods is to be removed.
fn class_made_anew(graph: &LeakGraph, cause: &Cause) -> Option<NodeIndex> {
    let is_class = |node: NodeIndex| graph[node].description.kind == ObjectKind::Class;
    if let [class] = cause.cycle.nodes[..]
        && is_class(class)
    {
        return Some(class);
    }
    let cut = cause.cuts.first().copied()?;
    let (owner, _) = graph.edge_endpoints(cut).filter(|it| is_class(it.0))?;
    let is_special = matches!(
        &graph[cut].name,
        ReferenceName::Attribute(name) if name.starts_with("__") && name.ends_with("__")
    );
    (is_special || is_enumeration(&graph[owner])).then_some(owner)
}

/// The installed packages whose code the objects of a cycle have.
fn packages<'a>(graph: &'a LeakGraph, cause: &Cause) -> BTreeSet<&'a str> {
    let nodes = cause.cycle.nodes.iter();
    let places = nodes.filter_map(|&node| graph[node].description.place.as_ref());
    places.filter_map(|place| package_of(&place.file)).collect()
}
