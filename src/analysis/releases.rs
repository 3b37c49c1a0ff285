//! What a program calls so that a library's cache, registry or result lets go of an object.

use petgraph::algo::toposort;
use petgraph::graphmap::DiGraphMap;
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::keepers::{Keeper, Keepers, Search};
use super::live::Live;
use super::naming::{Naming, reference_names};
use super::registries::{AT_EXIT, FINALIZER, HANDLED, MODES, SAVED_TENSOR_HOOKS, SIGNALS};
use crate::analysis::live::Root;
use crate::analysis::roots::TIMER;
use crate::capture::{ReferenceName, class_name};
use crate::cpython::{ObjectKind, items};
use crate::graph::ShortestPaths;

/// So many of them are tried one by one.
const TRIED: usize = 16;
/// So many objects that hold one asked about are followed.
const FOLLOWED: usize = 4096;

const HANDLE: &str = "call `remove()` on the handle that registering the hook returned";
const CANCEL: &str = "call `cancel()` on what `call_later()` or `call_at()` returned";
const RESET: &str = "call `torch._dynamo.reset()`";

/// Classes whose objects keep what they were made of for as long as they live.
const RESULTS: [&str; 6] = [
    "torch._dynamo.eval_frame.OptimizedModule",
    "torch.export.exported_program.ExportedProgram",
    "torch.fx.graph_module.GraphModule",
    "torch.jit._script.ScriptModule",
    "torch.optim.optimizer.Optimizer",
    "torch.utils.data.dataloader._BaseDataLoaderIter",
];

/// Classes that have hooks in dictionaries, each registered with a handle.
const HOOKED: [&str; 3] = [
    "torch.Tensor",
    "torch.nn.modules.module.Module",
    "torch.optim.optimizer.Optimizer",
];

/// Context managers that a `with` statement keeps as long as its block runs.
const MANAGERS: [&str; 3] = [
    "torch.autograd.graph.saved_tensors_hooks",
    "torch.overrides.TorchFunctionMode",
    "torch.utils._python_dispatch.TorchDispatchMode",
];
const TASKS: [&str; 2] = ["_asyncio.Task", "asyncio.tasks.Task"];
const LEAVE: &str = "leave its `with` block";
const LEAVE_HANDLER: &str = "leave the block that handles it";

/// What makes a holder let go, and the references that are gone then.
struct Release {
    words: String,
    removes: Vec<(u32, u32)>,
    /// What C no longer holds then.
    frees: Vec<u32>,
}

impl Search<'_, '_> {
    /// For each of the first keepers what lets go instead of it being removed, empty where nothing is known; all of them only if
    /// the graph proves that together they free the targets.
    pub fn releases(
        self,
        keepers: &Keepers,
        first: usize,
        targets: &[u32],
        naming: &Naming<'_, '_>,
    ) -> Vec<String> {
        let by_collection = keepers.in_cycle;
        let keepers = &keepers.found;
        let listed = keepers[..first].iter();
        let found: Vec<Option<Release>> = listed.map(|it| self.release(it, naming)).collect();
        let mut roots = self.live.roots();
        for release in found.iter().flatten() {
            roots.retain(|root| !release.frees.contains(root));
        }
        let removed = |chosen: &dyn Fn(usize) -> bool| {
            let mut removed: FxHashSet<(u32, u32)> = FxHashSet::default();
            for (index, keeper) in keepers.iter().enumerate() {
                match found.get(index).and_then(Option::as_ref) {
                    Some(release) if chosen(index) => removed.extend(&release.removes),
                    _ => _ = removed.insert((keeper.holder(), keeper.held())),
                }
            }
            removed
        };
        let all = removed(&|_| true);
        if found.iter().all(Option::is_none) || self.live.reaches(roots, &all, targets) {
            return vec![String::new(); found.len()];
        }
        let at_once = by_collection || self.frees_at_once(&all, targets);
        let is_few = found.iter().flatten().count() <= TRIED;
        let frees_at_once = |index| {
            at_once || is_few && self.frees_at_once(&removed(&|other| other == index), targets)
        };
        let words = found.iter().enumerate().map(|(index, release)| {
            let words = release.as_ref().map_or("", |it| it.words.as_str());
            match targets.len() {
                _ if release.is_none() || frees_at_once(index) => words.to_owned(),
                1 => format!("{words}, and the garbage collector frees it"),
                _ => format!("{words}, and the garbage collector frees them"),
            }
        });
        words.collect()
    }

    /// True if nothing in use leads to the targets without some references, and no cycle among the garbage does either.
    fn frees_at_once(self, removed: &FxHashSet<(u32, u32)>, targets: &[u32]) -> bool {
        let mut edges = DiGraphMap::<u32, ()>::new();
        let mut seen: FxHashSet<u32> = targets.iter().copied().collect();
        let mut level = targets.to_vec();
        while !level.is_empty() {
            if seen.len() > FOLLOWED {
                return false;
            }
            let holders = self.referrers(&level, false, &mut true);
            level.clear();
            for (from, tos) in holders {
                if self.live.is_own(from) {
                    continue;
                }
                let left = tos.into_iter().filter(|&to| !removed.contains(&(from, to)));
                for to in left {
                    edges.add_edge(from, to, ());
                    if seen.insert(from) {
                        level.push(from);
                    }
                }
            }
        }
        toposort(&edges, None).is_ok()
    }

    /// Of all that lie on the path of a keeper the release that is nearest to the object.
    fn release(self, keeper: &Keeper, naming: &Naming<'_, '_>) -> Option<Release> {
        let positions = (0..keeper.nodes.len() - 1).rev();
        let mut found = positions.filter_map(|at| {
            self.of_cache(keeper, at, naming)
                .or_else(|| self.of_registry(keeper, at, naming))
                .or_else(|| self.of_result(keeper, at, naming))
        });
        found.next()
    }

    fn name(self, keeper: &Keeper, at: usize, naming: &Naming<'_, '_>) -> Option<ReferenceName> {
        let (from, to) = (*keeper.nodes.get(at)?, *keeper.nodes.get(at + 1)?);
        naming.name(from, to).cloned()
    }

    /// `functools.lru_cache` and `functools.cache`.
    fn of_cache(self, keeper: &Keeper, at: usize, naming: &Naming<'_, '_>) -> Option<Release> {
        let node = keeper.nodes[at];
        let object = self.live.object(node)?;
        if self.name(keeper, at, naming)? != ReferenceName::Cached
            || self.inspector.type_name(&object) != "functools._lru_cache_wrapper"
        {
            return None;
        }
        let targets = self.live.graph().targets(node);
        let names = reference_names(self.inspector, self.frameworks, self.live, node, targets);
        let cached = targets.iter().zip(names);
        let cached = cached.filter(|(_, name)| *name == ReferenceName::Cached);
        let words = match naming.expression(&keeper.nodes[..=at]) {
            Some(function) => format!("call `{function}.cache_clear()`"),
            None => "call `cache_clear()` on the cached function".to_owned(),
        };
        Some(Release {
            words,
            removes: cached.map(|(&to, _)| (node, to)).collect(),
            frees: Vec::new(),
        })
    }

    /// What is registered with a library: hooks, handlers, finalizers, backends.
    fn of_registry(self, keeper: &Keeper, at: usize, naming: &Naming<'_, '_>) -> Option<Release> {
        let nodes = &keeper.nodes;
        let entry = (nodes[at], nodes[at + 1]);
        let release = |words: &str| {
            Some(Release {
                words: words.to_owned(),
                removes: match words {
                    LEAVE => [vec![entry], self.kept_on_stacks(nodes)].concat(),
                    LEAVE_HANDLER => Vec::new(),
                    _ => vec![entry],
                },
                // The cache of a compiled function has its backend.
                frees: match words {
                    RESET => self.backends(nodes),
                    LEAVE => self.kept_by_block(nodes),
                    LEAVE_HANDLER => vec![nodes[0]],
                    _ => Vec::new(),
                },
            })
        };
        if at == 0
            && let Root::Library(words) = self.live.root(nodes[0])
        {
            return match (words.as_str(), self.name(keeper, at, naming)?) {
                (SIGNALS, ReferenceName::Key(signal)) => {
                    release(&format!("call `signal.signal({signal}, signal.SIG_DFL)`"))
                }
                (MODES | SAVED_TENSOR_HOOKS, _) => release(LEAVE),
                (AT_EXIT, _) => release("call `atexit.unregister()` with the function"),
                (handled, _) if handled.ends_with(HANDLED) => release(LEAVE_HANDLER),
                (timer, _) if timer.starts_with(TIMER) => release("call `cancel()` on the timer"),
                (finalizer, _) if finalizer.starts_with(FINALIZER) => {
                    release("call `detach()` on what `weakref.finalize()` returned")
                }
                _ => None,
            };
        }
        if at == 0 && self.is_block(keeper, naming) {
            return release(LEAVE);
        }
        // The program does not have that of `asyncio.sleep()`.
        let is_of_task = || nodes[at..].iter().any(|&node| self.is_of(node, &TASKS));
        if self.is_of(nodes[at], &["asyncio.events.TimerHandle"]) && !is_of_task() {
            return release(CANCEL);
        }
        if self.is_of(
            nodes[at],
            &["torch._dynamo.callback.CompilationCallbackHandler"],
        ) {
            return release(RESET);
        }
        let root = self.live.root(nodes[0]);
        if at == 0 && root == Root::Outside && self.live.hook_dictionaries.contains(&nodes[0]) {
            return release(HANDLE);
        }
        if at == 1
            && let Some(ReferenceName::Key(variable)) = self.name(keeper, at, naming)
            && variable.trim_matches('\'').starts_with("__compiled_fn_")
        {
            return release(RESET);
        }
        let registry = self.name(keeper, at.checked_sub(1)?, naming)?;
        if at == 2
            && root == Root::Module("torch._dynamo.eval_frame".to_owned())
            && registry_name(&registry) == Some("cached_backends")
        {
            return release(RESET);
        }
        let has_handles = self.has_handles(nodes, at, &registry);
        has_handles.then(|| release(HANDLE)).flatten()
    }

    /// True if what has the node at a position by this name keeps hooks there, each with a handle.
    fn has_handles(self, nodes: &[u32], at: usize, name: &ReferenceName) -> bool {
        let Some(registry) = registry_name(name) else {
            return false;
        };
        if at == 2
            && let Root::Module(module) = self.live.root(nodes[0])
            && matches!(
                module.as_str(),
                "torch.nn.modules.module" | "torch.optim.optimizer"
            )
        {
            return registry.starts_with("_global_");
        }
        let owner = |distance: usize| at.checked_sub(distance).map(|at| nodes[at]);
        let is_hooked = |distance| owner(distance).is_some_and(|owner| self.is_of(owner, &HOOKED));
        registry.ends_with("_hooks") && (is_hooked(1) || is_hooked(2))
    }

    /// True for an entry of a dictionary of hooks.
    pub(super) fn is_hook(self, keeper: &Keeper) -> bool {
        let Some(before) = keeper.at.checked_sub(1) else {
            return self.live.hook_dictionaries.contains(&keeper.holder());
        };
        let from = keeper.nodes[before];
        let to = [keeper.holder()];
        let names = reference_names(self.inspector, self.frameworks, self.live, from, &to);
        names
            .iter()
            .any(|name| self.has_handles(&keeper.nodes, keeper.at, name))
    }

    /// What a library made of an object, and which keeps that: it goes with its result only.
    fn of_result(self, keeper: &Keeper, at: usize, naming: &Naming<'_, '_>) -> Option<Release> {
        let (node, holder) = (keeper.nodes[at], at.checked_sub(1)?);
        if at > keeper.at || !self.is_of(node, &RESULTS) {
            return None;
        }
        Some(Release {
            words: format!("delete `{}`", naming.expression(&keeper.nodes[..=at])?),
            removes: vec![(keeper.nodes[holder], node)],
            frees: Vec::new(),
        })
    }

    /// True if a `with` statement of a manager begins a path: on the stack of a frame, or where C alone knows.
    fn is_block(self, keeper: &Keeper, naming: &Naming<'_, '_>) -> bool {
        let nodes = &keeper.nodes;
        match self.live.root(nodes[0]) {
            Root::Frame(_) => {
                self.name(keeper, 0, naming) == Some(ReferenceName::Stack)
                    && nodes[1..]
                        .iter()
                        .take(2)
                        .any(|&node| self.is_of(node, &MANAGERS))
            }
            Root::Outside => !self.kept_by_block(nodes).is_empty(),
            _ => false,
        }
    }

    /// What C alone knows of the managers on a path and their methods: a `with` statement keeps both.
    fn kept_by_block(self, nodes: &[u32]) -> Vec<u32> {
        let mut found = self.managers(nodes);
        found.retain(|&node| self.live.unaccounted(node) > 0);
        found
    }

    /// The references of running functions by which `with` statements keep the managers on a path.
    fn kept_on_stacks(self, nodes: &[u32]) -> Vec<(u32, u32)> {
        let managers = self.managers(nodes).into_iter();
        let references = managers.flat_map(|node| {
            let sources = self.live.graph().sources(node).into_iter();
            sources.map(move |from| (from, node))
        });
        references
            .filter(|&(from, to)| self.live.is_on_stack(from, to))
            .collect()
    }

    /// The managers on a path and their methods.
    fn managers(self, nodes: &[u32]) -> Vec<u32> {
        let managers = nodes.iter().copied();
        let managers = managers.filter(|&node| self.is_of(node, &MANAGERS));
        let mut found: Vec<u32> = managers.collect();
        for at in 0..found.len() {
            let sources = self.live.graph().sources(found[at]).into_iter();
            found.extend(sources.filter(|&node| {
                let object = self.live.object(node);
                object.is_some_and(|it| self.inspector.kind(&it) == ObjectKind::Method)
            }));
        }
        found
    }

    fn backends(self, nodes: &[u32]) -> Vec<u32> {
        let nodes = nodes.iter().copied();
        let backends = nodes.filter(|&node| self.is_of(node, &["torch._TorchCompileWrapper"]));
        backends.collect()
    }

    /// True if the class of a node's object is one of these, or derives from one.
    pub(super) fn is_of(self, node: u32, classes: &[&str]) -> bool {
        let builtins = &self.inspector.builtins;
        let Some(object) = self.live.object(node) else {
            return false;
        };
        let mro = builtins.type_mro.get(object.get_type().as_any());
        let mut names = mro.iter().flat_map(items);
        names.any(|class| classes.contains(&class_name(builtins, &class).as_str()))
    }
}

/// The variable or attribute of this name.
fn registry_name(name: &ReferenceName) -> Option<&str> {
    match name {
        ReferenceName::Attribute(name) => Some(name),
        ReferenceName::Key(name) => Some(name.trim_matches('\'')),
        _ => None,
    }
}

impl Live<'_> {
    /// True if some roots reach one of the targets without some references.
    fn reaches(&self, roots: Vec<u32>, removed: &FxHashSet<(u32, u32)>, targets: &[u32]) -> bool {
        let mut left = ShortestPaths::new(self.graph().node_count());
        left.extend(self.graph(), roots, |from, to| {
            !removed.contains(&(from, to))
        });
        targets.iter().any(|&target| left.reaches(target))
    }
}
