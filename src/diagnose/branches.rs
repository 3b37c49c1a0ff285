//! The paths to all buffers as one tree, from which the owner treemap is drawn.
//!
//! Each buffer has one best path from a root. Paths that start alike share their branches, so that what
//! lies behind a branch is the memory that one comes to through it, each buffer once.

use rustc_hash::FxHashMap;

use super::path::NamedPath;
use crate::model::heap::Branch;
use crate::model::report::Location;
use crate::model::words::{grouped, name};

/// Names longer than this are shortened in their middle.
const NAME: usize = 160;
/// Maximum number of steps of a path; the middle of a longer one becomes one branch.
const STEPS: usize = 20;

/// Gathers the branches, each parent before its children.
#[derive(Default)]
pub struct Branches {
    all: Vec<Branch>,
    known: FxHashMap<(Option<u32>, Option<u32>, String, String), u32>,
}

impl Branches {
    /// The branch at which a path ends. `keeps` says of an object on it, by its number in the look,
    /// whether all paths to the memory pass through it; `size` is what lies at the end, on devices and
    /// on the host.
    pub fn add(&mut self, named: &NamedPath, size: [u64; 2], keeps: impl Fn(u32) -> bool) -> u32 {
        let steps = simplified(named);
        let mut current = None;
        for step in steps {
            let next = self.branch(current, &step);
            if let Some(object) = step.object
                && let Some(retained) = &mut self.all[next as usize].retained
                && keeps(object)
            {
                for (sum, bytes) in retained.iter_mut().zip(size) {
                    *sum = sum.saturating_add(bytes);
                }
            }
            current = Some(next);
        }
        current.unwrap_or_else(|| self.branch(None, &Part::named("(not named)")))
    }

    fn branch(&mut self, parent: Option<u32>, part: &Part) -> u32 {
        // Two calls of one function have the same name.
        let root = part.object.filter(|_| parent.is_none());
        let key = (parent, root, part.edge.clone(), part.label.clone());
        *self.known.entry(key).or_insert_with(|| {
            self.all.push(Branch {
                parent,
                edge: part.edge.clone(),
                label: part.label.clone(),
                location: part.location.clone(),
                retained: part.object.map(|_| [0; 2]),
            });
            self.all.len() as u32 - 1
        })
    }

    pub fn into_vec(self) -> Vec<Branch> {
        self.all
    }
}

/// What becomes a branch.
struct Part {
    edge: String,
    label: String,
    location: Option<Location>,
    object: Option<u32>,
    /// How many objects it stands for.
    objects: u64,
}

impl Part {
    fn named(label: &str) -> Self {
        Self {
            edge: String::new(),
            label: label.to_owned(),
            location: None,
            object: None,
            objects: 1,
        }
    }
}

/// The steps of a path as a person would count them: the root by its name, a walk along an autograd
/// graph as one step, and no more than [`STEPS`].
fn simplified(NamedPath { path, objects, .. }: &NamedPath) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(path.steps.len() + 1);
    let named = path.root.is_named();
    if !named && !path.steps.is_empty() {
        parts.push(Part::named(&path.root_words));
    }
    let mut functions = 0u64;
    let mut edge = "";
    for (index, step) in path.steps.iter().enumerate() {
        functions = match edge {
            NEXT => functions + 1,
            _ => 0,
        };
        if functions > 1 {
            parts.pop();
        }
        let known = objects.get(index);
        let noun = known.map(|known| &known.noun);
        let label = match index {
            0 if named => &path.root_words,
            _ => noun.filter(|noun| !noun.is_empty()).unwrap_or(&step.label),
        };
        parts.push(Part {
            edge: match functions {
                0 | 1 => name(edge, NAME),
                more => format!("{NEXT} × {}", grouped(more)),
            },
            label: name(label, NAME),
            location: step.location.clone().filter(|_| index > 0 || !named),
            object: known.and_then(|known| known.number),
            objects: known.map_or(1, |known| known.stands_for.max(1)),
        });
        edge = &step.edge;
    }
    if parts.len() > STEPS {
        let tail = parts.split_off(parts.len() - STEPS / 2);
        let omitted: u64 = parts[STEPS / 2 - 1..].iter().map(|part| part.objects).sum();
        parts.truncate(STEPS / 2 - 1);
        parts.push(Part::named(&format!("… {} more …", grouped(omitted))));
        parts.extend(tail);
    }
    parts
}

/// The reference from one autograd function to the next.
const NEXT: &str = ".next_functions";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::path::OnPath;
    use crate::model::report::Step;
    use crate::model::retention::{Path, RootKind};

    fn path(root: RootKind, steps: &[(&str, &str)]) -> NamedPath {
        let objects = steps.iter().enumerate().map(|(index, (noun, _))| OnPath {
            noun: (*noun).to_owned(),
            number: Some(index as u32),
            stands_for: 0,
        });
        let steps = steps.iter().map(|(_, edge)| Step {
            edge: (*edge).to_owned(),
            ..Step::default()
        });
        let path = Path {
            root,
            root_words: "module `train`".to_owned(),
            steps: steps.collect(),
            ..Path::default()
        };
        NamedPath {
            path,
            objects: objects.collect(),
            ..NamedPath::default()
        }
    }

    fn told(branches: &[Branch]) -> Vec<String> {
        let line = |branch: &Branch| {
            let parent = branch.parent.map_or("-".to_owned(), |it| it.to_string());
            format!("{parent} {} {}", branch.edge, branch.label)
        };
        branches.iter().map(line).collect()
    }

    #[test]
    fn paths_that_start_alike_share_their_branches() {
        let mut branches = Branches::default();
        let first = [("module", ".model"), ("Net", ".weight"), ("Parameter", "")];
        let second = [("module", ".model"), ("Net", ".bias"), ("Parameter", "")];
        let end = branches.add(&path(RootKind::Module, &first), [8, 0], |object| object > 0);
        branches.add(&path(RootKind::Module, &second), [0, 4], |object| {
            object == 1
        });
        assert_eq!(end, 2);
        let all = branches.into_vec();
        assert_eq!(
            told(&all),
            [
                "-  module `train`",
                "0 .model Net",
                "1 .weight Parameter",
                "1 .bias Parameter"
            ]
        );
        let retained: Vec<[u64; 2]> = all.iter().filter_map(|branch| branch.retained).collect();
        assert_eq!(retained, [[0, 0], [8, 4], [8, 0], [0, 0]]);
    }

    #[test]
    fn a_walk_along_an_autograd_graph_is_one_step() {
        let mut branches = Branches::default();
        let steps = [
            ("module", ".loss"),
            ("Tensor", ".grad_fn"),
            ("SumBackward0", NEXT),
            ("ExpBackward0", NEXT),
            ("MulBackward0", NEXT),
            ("AddBackward0", "._saved_self"),
            ("Tensor", ""),
        ];
        branches.add(&path(RootKind::Module, &steps), [8, 0], |_| false);
        assert_eq!(
            told(&branches.into_vec()),
            [
                "-  module `train`",
                "0 .loss Tensor",
                "1 .grad_fn SumBackward0",
                "2 .next_functions × 3 AddBackward0",
                "3 ._saved_self Tensor"
            ]
        );
    }

    #[test]
    fn long_paths_lose_their_middle_and_no_path_is_one_branch() {
        let mut branches = Branches::default();
        let steps: Vec<(&str, &str)> = (0..1000).map(|_| ("Node", ".after")).collect();
        branches.add(&path(RootKind::Outside, &steps), [8, 0], |_| false);
        let end = branches.add(&NamedPath::default(), [8, 0], |_| false);
        let all = told(&branches.into_vec());
        assert_eq!(all.len(), STEPS + 1);
        assert!(all[9].contains("… 982 more …"), "{all:?}");
        assert_eq!(all[end as usize], "-  (not named)");
    }
}
