//! The pattern of what grows: by who keeps it, and what it is.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashSet;

use super::{Diagnosis, GroupKind, Look, Module, bytes_shown, part_of_whole};
use crate::analysis::holding::Reaching;
use crate::analysis::live::Root;
use crate::analysis::naming::reference_names;
use crate::analysis::purpose::Classes;
use crate::analysis::registries::EVENT_LOOP;
use crate::analysis::roots::{THREAD, TIMER};
use crate::capture::{ReferenceName, who_passes_argument};
use crate::cpython::instances::{attribute, instance_dict};
use crate::cpython::{ObjectKind, dict_items, find_item, int_value, items};
use crate::device::Frameworks;
use crate::diagnose::growth::{self, GrowthPattern};
use crate::diagnose::in_function;
use crate::graph::hide_unless_code;
use crate::model::human_bytes;
use crate::model::redact::shorten;

/// So many tensors are looked at to see whether they are views.
const VIEWS: usize = 32;

/// An optimizer keeps so many tensors for a parameter at most, or a history of it that grows.
const STATES: usize = 8;

/// Of so many the largest is the example.
const SHOWN: usize = 32;

/// The class of tensors that are no parameters.
const TENSOR: &str = "torch.Tensor";

/// The device of tensors on the host.
const HOST: &str = "cpu";

/// The queues of the standard library, and how many objects up from what accumulates one is looked for.
pub const QUEUES: [&str; 7] = [
    "_queue.SimpleQueue",
    "asyncio.queues.LifoQueue",
    "asyncio.queues.PriorityQueue",
    "asyncio.queues.Queue",
    "queue.LifoQueue",
    "queue.PriorityQueue",
    "queue.Queue",
];
const NEAR: usize = 3;
const EXIT_STACKS: [&str; 2] = ["contextlib.AsyncExitStack", "contextlib.ExitStack"];
const TEES: [&str; 2] = ["itertools._tee", "itertools._tee_dataobject"];

/// The list of the calls of a `unittest.mock.Mock`.
const CALLS_OF_MOCK: &str = "unittest.mock._CallList";

/// In what PyTorch keeps hooks.
const REGISTRIES: [&str; 16] = [
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_load_state_dict_post_hooks",
    "_load_state_dict_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_step_pre_hooks",
    "_post_accumulate_grad_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
];

impl<'py> Look<'_, 'py> {
    /// As what an object keeps tensors, the youngest of which are the first.
    pub(super) fn diagnose_accumulator(
        &self,
        kind: GroupKind,
        accumulator: u32,
        members: &[u32],
    ) -> Diagnosis {
        let owner = self.owner(accumulator);
        let shown = self.largest(members);
        let about = |pattern| self.about(pattern, owner.clone(), shown);
        if kind == GroupKind::Function {
            return about(growth::GRAD_FN_KEPT);
        }
        if let Some(pattern) = self.purpose_of(accumulator, &owner) {
            return about(pattern);
        }
        if let Some(hook) = self.module_whose_hook_fills(accumulator, &owner) {
            let found = about(growth::ACTIVATIONS_KEPT_BY_HOOK);
            return Diagnosis { hook, ..found };
        }
        if self.is_kept_by_traceback(accumulator, members[0]) {
            return about(growth::EXCEPTIONS_KEPT);
        }
        if kind == GroupKind::Graph {
            let (pattern, evidence) = self.graph_pattern(members[0]);
            let found = about(pattern);
            return Diagnosis { evidence, ..found };
        }
        if self.is_cache(accumulator) {
            return about(growth::CACHE_WITHOUT_LIMIT);
        }
        if self.has_weak_keys(accumulator) {
            return about(growth::variants::WEAK_KEYS_STAY);
        }
        let found = about(growth::CONTAINER_GROWS);
        let is_on_host = found.device == HOST;
        let are_copies = self.are_copies(members);
        if kind == GroupKind::Parameter && !are_copies && self.are_plain(members) {
            let pattern = growth::variants::LEAVES_ACCUMULATE;
            return Diagnosis { pattern, ..found };
        }
        if kind == GroupKind::Parameter || are_copies {
            let pattern = match is_on_host {
                true => growth::variants::MODEL_COPIES_ON_HOST,
                false => growth::MODEL_COPIES,
            };
            return Diagnosis { pattern, ..found };
        }
        if !self.is_tensor(members[0]) {
            let pattern = growth::variants::ARRAYS_ACCUMULATE;
            return Diagnosis { pattern, ..found };
        }
        if let Some((pattern, evidence)) = self.views(members) {
            return Diagnosis {
                pattern,
                evidence,
                ..found
            };
        }
        if owner.trim_end_matches('`').ends_with("._buffers") {
            let pattern = growth::variants::BUFFERS_ACCUMULATE;
            return Diagnosis { pattern, ..found };
        }
        if self.are_attributes(accumulator, members) {
            let pattern = growth::variants::ATTRIBUTES_ACCUMULATE;
            return Diagnosis { pattern, ..found };
        }
        match is_on_host {
            true => Diagnosis {
                pattern: growth::variants::CONTAINER_GROWS_ON_HOST,
                ..found
            },
            false => found,
        }
    }

    /// True if an object, or its dictionary, has some of the members as attributes.
    fn are_attributes(&self, accumulator: u32, members: &[u32]) -> bool {
        let holder = self.ways.before(accumulator);
        let holder = holder.and_then(|it| self.live.object(it));
        let own = holder.and_then(|it| instance_dict(&self.inspector.builtins.instances, &it));
        if own.is_some() && own == self.live.objects.address(accumulator) {
            return true;
        }
        let some = &members[..members.len().min(2)];
        let names = reference_names(
            self.inspector,
            self.frameworks,
            self.live,
            accumulator,
            some,
        );
        names
            .iter()
            .all(|name| matches!(name, ReferenceName::Attribute(_)))
    }

    /// True for what a `WeakKeyDictionary` keeps its entries in (Lib/weakref.py).
    fn has_weak_keys(&self, accumulator: u32) -> bool {
        let holder = |node: u32| {
            let before = self.ways.before(node)?;
            Some((before, self.live.object(before)?))
        };
        let is_it = |object: &Bound<'_, PyAny>| {
            self.inspector.type_name(object) == "weakref.WeakKeyDictionary"
        };
        let Some((above, object)) = holder(accumulator) else {
            return false;
        };
        // Up to CPython 3.10, and later once it is asked for, the dictionary of its attributes lies between.
        let own = |it: &Bound<'_, PyAny>| instance_dict(&self.inspector.builtins.instances, it);
        is_it(&object)
            || holder(above)
                .is_some_and(|(_, it)| is_it(&it) && own(&it) == Some(object.as_ptr() as usize))
    }

    /// The first of those that have most bytes: beside the state of an optimizer are counts of its steps.
    fn largest(&self, members: &[u32]) -> u32 {
        let bytes = |node: u32| self.buffer(node).map_or(0, |buffer| buffer.bytes);
        let first = members.iter().copied().take(SHOWN);
        let largest = first.rev().max_by_key(|&node| bytes(node));
        largest.unwrap_or(members[0])
    }

    /// What grows by its place: the hooks that PyTorch calls, the parameters of an optimizer, or its state.
    pub(in crate::analysis) fn purpose_of(
        &self,
        accumulator: u32,
        owner: &str,
    ) -> Option<GrowthPattern> {
        let last = owner.rsplit([' ', '.']).next().unwrap_or_default();
        let last = last.trim_matches('`');
        if REGISTRIES.contains(&last) {
            return Some(growth::variants::HOOKS_ACCUMULATE);
        }
        let way = self.ways.path_to(accumulator);
        if let Some(pattern) = self.purpose_in_library(&way, owner, last) {
            return Some(pattern);
        }
        if self.part_of_optimizer(&way, "param_groups").is_some() {
            return Some(growth::variants::PARAMETERS_ACCUMULATE);
        }
        let is_state = self.part_of_optimizer(&way, "state").is_some();
        is_state.then_some(growth::variants::OPTIMIZER_STATE_GROWS)
    }

    /// The optimizer on a way that passes an attribute of it, and the node of that.
    fn part_of_optimizer(&self, way: &[u32], name: &str) -> Option<(Bound<'py, PyAny>, u32)> {
        let classes = Classes::imported(self.live.py())?;
        (0..way.len()).find_map(|at| {
            // SAFETY: attached; the object and the classes are alive.
            let optimizer = self
                .live
                .object(way[at])
                .filter(|it| unsafe { classes.of(it) }.1)?;
            let part = attribute(&self.inspector.builtins.instances, &optimizer, name)?;
            let part = self.live.objects.number_of(&part)?;
            way[at..].contains(&part).then_some((optimizer, part))
        })
    }

    /// True for the state of an optimizer that has none yet for some of its parameters, and none for others: it fills as
    /// these are trained for the first time.
    pub(in crate::analysis) fn is_filling_state(&self, holder: u32, members: usize) -> bool {
        let way = self.ways.path_to(holder);
        let part = self.part_of_optimizer(&way, "state");
        let Some((optimizer, _)) = part.filter(|(_, part)| *part == holder) else {
            return false;
        };
        let groups = attribute(
            &self.inspector.builtins.instances,
            &optimizer,
            "param_groups",
        );
        let groups = groups.iter().flat_map(items);
        let parameters = groups.filter_map(|it| find_item("params", |f| dict_items(&it, f)));
        let parameters: FxHashSet<usize> = parameters
            .flat_map(|it| items(&it))
            .map(|it| it.as_ptr() as usize)
            .collect();
        let (mut entries, mut are_known) = (0, true);
        if let Some(state) = self.live.object(holder) {
            dict_items(&state, &mut |key, _| {
                entries += 1;
                are_known &= parameters.contains(&(key.as_ptr() as usize));
                are_known
            });
        }
        are_known && entries < parameters.len() && members <= STATES * entries
    }

    /// What the standard library keeps at the end of a way, by whose part it is: `last` is the last name of the owner.
    fn purpose_in_library(&self, way: &[u32], owner: &str, last: &str) -> Option<GrowthPattern> {
        if self.has_threads(*way.last()?) {
            return Some(growth::variants::KEPT_BY_THREADS);
        }
        if last == "_registry" && owner.contains("weakref.finalize") {
            return Some(growth::variants::FINALIZERS_ACCUMULATE);
        }
        let holds = |class: &str| {
            let mut near = way.iter().rev().take(NEAR);
            near.any(|&node| {
                let object = self.live.object(node);
                object.is_some_and(|it| self.inspector.type_name(&it) == class)
            })
        };
        if last == "_exit_callbacks" && EXIT_STACKS.iter().any(|class| holds(class)) {
            return Some(growth::variants::EXIT_CALLBACKS_ACCUMULATE);
        }
        if TEES.iter().any(|class| holds(class)) {
            return Some(growth::variants::TEE_GROWS);
        }
        let accumulator = way.last().and_then(|&node| self.live.object(node));
        if accumulator.is_some_and(|it| self.inspector.type_name(&it) == CALLS_OF_MOCK) {
            return Some(growth::variants::CALLS_OF_MOCK_ACCUMULATE);
        }
        let is_loop = owner.contains(EVENT_LOOP) || owner.contains("EventLoop");
        if is_loop && matches!(last, "_scheduled" | "_ready") {
            return Some(growth::variants::CALLBACKS_WAIT);
        }
        let is_queue = QUEUES.iter().any(|class| holds(class));
        is_queue.then_some(growth::variants::QUEUE_GROWS)
    }

    /// True if what accumulates has threads, hardly anything else: `threading` has them too until they end.
    fn has_threads(&self, accumulator: u32) -> bool {
        let is_thread = |node: u32| match self.live.root(node) {
            Root::Library(words) => words.starts_with(THREAD) || words.starts_with(TIMER),
            _ => false,
        };
        let held = self.live.graph().targets(accumulator);
        let threads = held.iter().filter(|&&it| is_thread(it)).count();
        threads > 0 && 10 * threads >= 9 * held.len()
    }

    /// What is said of some tensors most of which are views that show less than they keep, or are kept by arrays that are
    /// such views, if nothing shows the rest; and how much less.
    fn views(&self, members: &[u32]) -> Option<(GrowthPattern, String)> {
        let mut example = None;
        let some = &members[..members.len().min(VIEWS)];
        let views = some.iter().filter(|&&member| {
            let Some(index) = self.live.memory_of(member) else {
                return false;
            };
            let memory = &self.live.buffers[index];
            let graph = self.live.graph();
            // A storage itself has no type of items, and what only a view leads to, its base, the program does not have.
            let shown = |node: u32| {
                if (self.ways.before(node)).is_none_or(|it| self.buffer(it).is_some()) {
                    return 0;
                }
                let buffer = self.buffer(node).filter(|it| it.dtype.is_some());
                buffer.map_or(0, |it| bytes_shown(&it))
            };
            let holders = graph.sources(memory.node);
            let all: u64 = holders.iter().map(|&it| shown(it)).sum();
            let is_view = 0 < all && 2 * all <= memory.buffer.bytes;
            if is_view && example.is_none() {
                let view = holders.into_iter().find(|&it| shown(it) > 0);
                example = view.map(|view| (view, shown(view), memory.buffer.bytes));
            }
            is_view
        });
        if 10 * views.count() < 9 * some.len() {
            return None;
        }
        let (view, part, whole) = example?;
        let pattern = match self.is_tensor(view) {
            true => growth::variants::VIEWS_ACCUMULATE,
            false => growth::variants::VIEWS_OF_ARRAYS_ACCUMULATE,
        };
        Some((pattern, part_of_whole(part, whole)))
    }

    /// True if some of the tensors are of the class `torch.Tensor` itself, as parameters are not.
    fn are_plain(&self, members: &[u32]) -> bool {
        let mut some = members.iter().take(SHOWN);
        some.all(|&member| {
            let object = self.live.object(member);
            object.is_some_and(|it| self.inspector.type_name(&it) == TENSOR)
        })
    }

    /// True for a tensor of PyTorch's, false for an array of another framework.
    pub(in crate::analysis) fn is_tensor(&self, node: u32) -> bool {
        let object = self.live.object(node);
        object.is_some_and(|it| Frameworks::is_tensor(self.frameworks.verdict_of(&it)))
    }

    /// True if the way from what accumulates to one of its members leads through a traceback.
    fn is_kept_by_traceback(&self, accumulator: u32, member: u32) -> bool {
        let way = self.ways.path_to(member);
        let behind = way.iter().skip_while(|&&node| node != accumulator);
        let is_traceback = |node| {
            self.live
                .is_kind(self.inspector, node, ObjectKind::Traceback)
        };
        behind.copied().any(is_traceback)
    }

    /// As what tensors with graphs are kept, and the evidence.
    fn graph_pattern(&self, newest: u32) -> (GrowthPattern, String) {
        let behind = self.behind(newest);
        let leaves: Vec<u32> = behind
            .iter()
            .filter_map(|&it| self.graphs.leaf(it))
            .collect();
        let of_leaves: FxHashSet<usize> = leaves
            .iter()
            .filter_map(|&leaf| self.live.memory_of(leaf))
            .collect();
        let saved: FxHashSet<usize> = behind
            .iter()
            .flat_map(|&function| self.graphs.saved(function))
            .filter(|index| !of_leaves.contains(index))
            .collect();
        // A parameter has others that keep it; an input may have none.
        let only = self.live.memory_only_of(&self.ways, [newest]);
        let inputs = only.into_iter().filter(|index| of_leaves.contains(index));
        let kept = self.bytes_of(&inputs.chain(saved.iter().copied()).collect());
        let mut evidence = format!("{} autograd nodes each", behind.len());
        if kept > 0 {
            evidence += &format!(", which keep {}", human_bytes(kept));
        }
        // A backward pass frees these, and not its inputs.
        let are_saved = self.bytes_of(&saved) > 0;
        if self.are_in_evaluation(&leaves) {
            return (growth::EVALUATION_WITH_GRAPH, evidence);
        }
        let passes = are_saved.then(|| {
            let frames = &self.inspector.current_frames;
            who_passes_argument(
                self.live.py(),
                &self.inspector.builtins,
                frames,
                "retain_graph",
            )
        });
        if let Some((mut function, mut place)) = passes.flatten() {
            if self.inspector.redacts() {
                hide_unless_code(&mut function);
                shorten(&mut place.file);
            }
            // The code of a module begins at its first line, wherever the call is.
            let place = match function.as_str() {
                "<module>" => place
                    .file
                    .rsplit(['/', '\\'])
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                _ => in_function(&function, Some(&place), ""),
            };
            return (
                growth::GRAPH_RETAINED,
                format!("{evidence}; `retain_graph` in {place}"),
            );
        }
        (growth::KEPT_WITH_GRAPH, evidence)
    }

    /// True if all modules whose parameters these are were put in evaluation mode.
    fn are_in_evaluation(&self, leaves: &[u32]) -> bool {
        let leaves: FxHashSet<usize> = leaves
            .iter()
            .filter_map(|&leaf| self.live.object(leaf))
            .map(|leaf| leaf.as_ptr() as usize)
            .collect();
        let mut owners = self.modules().iter().filter(|module| {
            let mut parameters = module.parameters.iter();
            parameters.any(|it| leaves.contains(&(it.as_ptr() as usize)))
        });
        let evaluates = |module: &Module<'_>| {
            let training = attribute(
                &self.inspector.builtins.instances,
                &module.object,
                "training",
            );
            training.is_some_and(|training| int_value(&training) == Some(0))
        };
        owners.next().is_some_and(evaluates) && owners.all(evaluates)
    }

    /// True if all are values of what `state_dict` of a module returned, or of a copy of that. By their shapes
    /// they could be anything, such as copies of gradients.
    fn are_copies(&self, members: &[u32]) -> bool {
        let members: Reaching = members
            .iter()
            .copied()
            .zip((0..).map(|at| vec![at]))
            .collect();
        let holders = self.live.referrers(&self.ways, &members);
        let of_states = holders
            .into_iter()
            .filter(|(node, _)| self.is_state_of_module(*node));
        let found: FxHashSet<u32> = of_states.flat_map(|(_, of)| of).collect();
        found.len() == members.len()
    }

    fn is_state_of_module(&self, node: u32) -> bool {
        let is_dictionary = |node| {
            let object = self.live.object(node);
            object.is_some_and(|object| object.is_instance_of::<PyDict>())
        };
        let mut attributes = self.live.graph().targets(node).iter();
        is_dictionary(node)
            && attributes.any(|&it| {
                let names = self.live.object(it).filter(|_| is_dictionary(it));
                names.is_some_and(|names| {
                    find_item("_metadata", |f| dict_items(&names, f)).is_some()
                })
            })
    }
}
