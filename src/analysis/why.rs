//! Why are these objects alive?

use std::cmp::Ordering;
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::busy::busy;
use super::keepers::{Keeper, Keepers, Search};
use super::live::{Depth, Live, Root};
use super::naming::Naming;
use super::uncollected::{Reversed, Uncollected};
use crate::capture::ReferenceName;
use crate::cpython::{Builtins, ObjectKind, counted_by_caller};
use crate::device::{DeviceSelection, Frameworks};
use crate::diagnose::NamedRoot;
use crate::graph::ShortestPaths;
use crate::model::redact::NOTE;
use crate::model::retention::{Keeper as Described, Kept, Path, Retention};
use crate::model::words::without_indices;

/// So many distinct paths are shown.
const PATHS: usize = 8;
/// Maximum number of paths to name in the search for distinct ones.
const NAMED: usize = 256;
/// Where one object alone holds what was asked about, so many times it is asked who holds that.
const UPWARDS: usize = 6;

/// No more references that keep an object are listed.
const KEEPERS: usize = 1024;

const FROZEN: &str = "A cycle that leads to the object was excluded from collections by gc.freeze(). Once nothing in \
    use leads there, gc.unfreeze() and gc.collect() free the object.";

const MEMORY_MAY_STAY: &str =
    "The memory may stay when that is removed: C or C++ refers to an object that has it too.";

const SUPPOSED: &str = "Python cannot see which autograd function has which hooks. The object leads to \
    all functions that there are, so these hooks are taken for one of theirs.";

/// A path to an object that was asked about.
struct PathTo {
    nodes: Vec<u32>,
    target: u32,
    /// One of several references between two of the nodes: the position of the first, and its name.
    by: Option<(usize, ReferenceName)>,
}

impl PathTo {
    fn new(nodes: Vec<u32>, target: u32) -> Self {
        Self {
            nodes,
            target,
            by: None,
        }
    }
}

impl Inspector {
    /// What keeps `objects` alive: the paths to them from modules, from local variables of running
    /// functions, and from outside of Python.
    ///
    /// Runs no code of the program and keeps no reference when it is done.
    ///
    /// # Errors
    /// If no object is given, one of them is nothing that the heap knows (a number, a string), or
    /// the inspector is at work already; what a handler of an interrupt raises.
    pub fn why_alive(&self, py: Python<'_>, objects: &Bound<'_, PyTuple>) -> PyResult<Retention> {
        let started = Instant::now();
        if objects.is_empty() {
            return Err(PyTypeError::new_err(
                "why_alive() takes at least one object",
            ));
        }
        let mut live = Live::take(self, py, Some(objects), Depth::Graphs)?;
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let targets = self.nodes_of(&live, objects)?;
        account_for_call(&self.builtins, &mut live, &targets, objects);

        let asked = objects.iter();
        let mut retention = Retention::about(asked.map(|it| self.kept(&frameworks, &it)).collect());
        let search = Search {
            inspector: self,
            frameworks: &frameworks,
            live: &live,
        };
        let nearest = search.keepers(&targets, &[]);
        let paths = find_paths(search, &targets, &nearest);
        let found = paths.len();
        let paths: Vec<PathTo> = paths.into_iter().take(NAMED).collect();
        let keepers = search.few_keepers(&targets, nearest);
        let reversed = Reversed::of(live.graph());
        let uncollected = self.uncollected_without(&live, &targets, &keepers, &reversed);
        let loops = search.loops(&targets, &reversed, uncollected.as_ref());
        let listed = &keepers.found[..keepers.found.len().min(KEEPERS)];
        let keeping = listed.iter().map(|keeper| keeper.nodes.clone());
        let is_supposed = loops.iter().any(|nodes| passes_supposed(&live, nodes));
        retention.is_enough = keepers.is_complete
            && keepers.fixed.is_empty()
            && uncollected.is_none()
            && !is_supposed;
        let other_way = match retention.is_enough {
            true => live.other_way_to_memory(&targets, &keepers.references()),
            false => None,
        };
        let all: Vec<Vec<u32>> = paths
            .iter()
            .map(|path| path.nodes.clone())
            .chain(keeping)
            .chain(loops.iter().cloned())
            .chain(other_way.clone())
            .collect();
        let naming = Naming::new(self, &frameworks, &live, &all);

        let mut distinct = distinct_paths(&paths, &targets, &naming);
        let omitted = distinct.len().saturating_sub(PATHS) + found.saturating_sub(NAMED);
        retention.paths_omitted = omitted as u64;
        distinct.sort_by(in_order);
        distinct.truncate(PATHS);
        retention.paths = distinct;
        let named = loops
            .iter()
            .map(|nodes| named_loop(nodes, &targets, &naming));
        retention.loops = named.collect();
        retention.notes = notes(&live, &targets);
        retention.notes.extend(self.guess(&live, &keepers));
        let leaks = search.tracer_leaks(listed, &naming);
        retention.notes.extend(leaks);
        retention.by_collection = retention.is_enough && keepers.in_cycle;
        retention.notes.extend(other_way.map(|way| {
            let is_known = naming.root(&way).is_in_python();
            let owner = naming.owner(&way).filter(|_| is_known);
            owner.map_or(MEMORY_MAY_STAY.to_owned(), |owner| {
                format!("The memory stays when that is removed: {owner} holds it too.")
            })
        }));
        let releases = match retention.is_enough {
            true => search.releases(&keepers, listed.len(), &targets, &naming),
            false => vec![String::new(); listed.len()],
        };
        let named = listed.iter().zip(releases);
        retention.keepers = named
            .map(|(keeper, release)| describe(keeper, release, &live, &naming))
            .collect();
        let by_path = |one: &Described, other: &Described| {
            in_order(&one.path, &other.path).then_with(|| one.words.cmp(&other.words))
        };
        retention.keepers.sort_by(by_path);
        retention.keepers_omitted = (keepers.found.len() - listed.len()) as u64;
        retention.is_uncollectable = uncollected.is_some() && keepers.found.is_empty();
        if let Some(Uncollected::Frozen) = uncollected {
            retention.notes.push(FROZEN.to_owned());
        }
        if is_supposed {
            retention.notes.push(SUPPOSED.to_owned());
        }
        if self.redacts() {
            retention.notes.push(NOTE.to_owned());
        }
        drop(naming);
        drop(live);
        number_objects(&mut retention);
        retention.pause_ms = started.elapsed().as_secs_f64() * 1000.0;
        Ok(retention)
    }

    /// What is said of an object that was asked about.
    fn kept(&self, frameworks: &Frameworks, object: &Bound<'_, PyAny>) -> Kept {
        let verdict = frameworks.verdict_of(object);
        let buffers = frameworks.buffers(verdict, object, &DeviceSelection::Any);
        let bytes = buffers.iter().map(|buffer| buffer.bytes).sum();
        let label = match self.kind(object) {
            ObjectKind::Class => format!("class {}", self.class_name(object)),
            _ => self.type_name(object),
        };
        Kept {
            type_name: self.type_name(object),
            label,
            bytes: (!buffers.is_empty()).then_some(bytes),
            device: buffers.into_iter().next().map(|buffer| buffer.device),
        }
    }

    /// Why no collection frees the targets once their keepers are gone; `None` where one does, or where
    /// something else holds them.
    fn uncollected_without(
        &self,
        live: &Live<'_>,
        targets: &[u32],
        keepers: &Keepers,
        reversed: &Reversed<'_>,
    ) -> Option<Uncollected> {
        if !keepers.fixed.is_empty() || !keepers.is_complete {
            return None;
        }
        live.uncollected(targets, &keepers.references(), reversed)
    }

    /// The nodes of some objects, each once.
    ///
    /// # Errors
    /// If one of them is not in the heap.
    fn nodes_of(&self, live: &Live<'_>, objects: &Bound<'_, PyTuple>) -> PyResult<Vec<u32>> {
        let mut nodes: Vec<u32> = Vec::new();
        for object in objects.iter() {
            let node = live.objects.number_of(&object).ok_or_else(|| {
                PyTypeError::new_err(format!(
                    "why_alive() cannot find the referrers of this {}, which the garbage collector does not \
                     track; pass a tensor, an array or a container",
                    self.type_name(&object)
                ))
            })?;
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        Ok(nodes)
    }
}

/// Numbers the objects on the paths from 0, in their order, as their places in the heap differ from run to run.
fn number_objects(retention: &mut Retention) {
    let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
    let keepers = retention.keepers.iter_mut().map(|keeper| &mut keeper.path);
    let paths = retention.paths.iter_mut().chain(&mut retention.loops);
    for node in keepers
        .chain(paths)
        .flat_map(|path| &mut path.steps)
        .filter_map(|step| step.node.as_mut())
    {
        let next = numbers.len() as u32;
        *node = *numbers.entry(*node).or_insert(next);
    }
}

/// The paths in words, each once, with how many are alike but for indices and which targets they lead to.
fn distinct_paths(paths: &[PathTo], targets: &[u32], naming: &Naming<'_, '_>) -> Vec<Path> {
    let mut distinct: Vec<Path> = Vec::new();
    let mut by_words: FxHashMap<String, usize> = FxHashMap::default();
    for PathTo { nodes, target, by } in paths {
        let by = by.as_ref().map(|(at, name)| (*at, name));
        let mut path = naming.path_by(nodes, &naming.root(nodes), by).path;
        path.leads_to = targets
            .iter()
            .position(|it| it == target)
            .map(|index| index as u32)
            .into_iter()
            .collect();
        match by_words.get(&without_indices(&path.words)) {
            Some(&index) => {
                let known = &mut distinct[index];
                known.alike += 1;
                for target in path.leads_to {
                    if !known.leads_to.contains(&target) {
                        known.leads_to.push(target);
                    }
                }
            }
            None => {
                by_words.insert(without_indices(&path.words), distinct.len());
                distinct.push(path);
            }
        }
    }
    distinct
}

fn notes(live: &Live<'_>, targets: &[u32]) -> Vec<String> {
    let mut notes = live.notes.clone();
    for &target in targets {
        let outside = live.unaccounted(target);
        if outside > 0 {
            let (come, them) = if outside == 1 {
                ("reference to the object comes", "it")
            } else {
                ("references to the object come", "them")
            };
            notes.push(format!(
                "{outside} {come} from C or C++, or from an expression that is being evaluated: \
                 no Python object accounts for {them}."
            ));
        }
    }
    notes
}

/// Takes off what the call itself holds. The tuple of arguments refers to each of them. Beside that the
/// caller's frame has them on its stack, counted or, from 3.14 on, not; or, if it called with `*objects`,
/// another tuple with just these.
fn account_for_call(
    builtins: &Builtins,
    live: &mut Live<'_>,
    targets: &[u32],
    arguments: &Bound<'_, PyTuple>,
) {
    let Some(&first) = targets.first() else {
        return;
    };
    let same = |live: &Live<'_>, node: u32| {
        live.objects.object(node).is_some_and(|object| {
            object.cast_exact::<PyTuple>().is_ok_and(|other| {
                other.len() == arguments.len()
                    && other.iter().zip(arguments.iter()).all(|(a, b)| a.is(&b))
            })
        })
    };
    let is_known = live.objects.number_of(arguments.as_any()).is_some();
    let starred = live
        .graph()
        .sources(first)
        .into_iter()
        .find(|&node| !live.is_own(node) && live.unaccounted(node) > 0 && same(live, node));
    // What the program has besides holds its items, and the call no more than that.
    let is_temporary = |&node: &u32| live.graph().sources(node).is_empty();
    let on_stack = counted_by_caller(builtins, arguments.py());
    match starred {
        Some(temporary) if is_temporary(&temporary) => live.set_own(temporary),
        Some(of_program) => live.account_for(of_program, 1),
        None => {}
    }
    for &target in targets {
        let Some(object) = live.objects.object(target).map(|it| it.as_ptr()) else {
            continue;
        };
        let times = arguments.iter().filter(|it| it.as_ptr() == object).count();
        let by_caller = match &on_stack {
            _ if starred.is_some() => 0,
            Some(stack) => stack.iter().filter(|&&it| it == object as usize).count(),
            None => times,
        };
        let by_arguments = if is_known { 0 } else { times };
        live.account_for(target, (by_arguments + by_caller.min(times)) as u32);
    }
}

/// A reference that keeps the targets, in words.
fn describe(
    keeper: &Keeper,
    release: String,
    live: &Live<'_>,
    naming: &Naming<'_, '_>,
) -> Described {
    let Keeper { nodes, at, name } = keeper;
    let root = naming.root(nodes);
    let by = Some((*at, name));
    let named = naming.path_by(nodes, &root, by);
    let step = named.step_of(&nodes[..=*at]);
    let behind = &nodes[at + 1..];
    let hidden = behind.iter().take_while(|&&it| naming.is_left_out(it));
    let shown = &nodes[..at + 2 + hidden.count()];
    let to_reference = naming.path_by(shown, &root, by);
    Described {
        words: to_reference.reference(),
        path: named.path,
        step: step as u64,
        goes_by_itself: live.is_frame(keeper.holder()),
        release,
    }
}

/// The order to show paths in: those through what a running expression holds come last.
fn in_order(one: &Path, other: &Path) -> Ordering {
    let stack = ReferenceName::Stack.to_string();
    let by_stack = |path: &Path| path.steps.first().is_some_and(|step| step.edge == stack);
    (by_stack(one), one.order()).cmp(&(by_stack(other), other.order()))
}

/// The paths to the targets, those from what has a name first, then the shortest.
fn find_paths(search: Search<'_, '_>, targets: &[u32], nearest: &Keepers) -> Vec<PathTo> {
    let live = search.live;
    let mut found: Vec<PathTo> = Vec::new();
    match targets {
        &[target] => found.extend(paths_to(search, target, nearest)),
        several => {
            for &target in several {
                let nearest = search.keepers(&[target], &[]);
                found.extend(paths_to(search, target, &nearest));
            }
        }
    }
    found.sort_by_key(|path| {
        let root = path
            .nodes
            .first()
            .map_or(Root::Nothing, |&first| live.root(first));
        let rank = match root {
            Root::Module(_) | Root::Library(_) | Root::Frame(_) => 0,
            Root::Outside | Root::Uncounted => 1,
            Root::Nothing => 2,
        };
        (rank, path.nodes.len())
    });
    found
}

/// A path through each of the references that keep one target. Where there is only one, the paths to what
/// has it are told apart, and so on upwards.
fn paths_to(search: Search<'_, '_>, target: u32, nearest: &Keepers) -> Vec<PathTo> {
    let live = search.live;
    let mut suffix = vec![target];
    let mut found: Vec<PathTo> = Vec::new();
    for level in 0..UPWARDS {
        let above = (level > 0).then(|| search.keepers(&suffix[..1], &suffix[1..]));
        let keepers = above.as_ref().unwrap_or(nearest);
        if !keepers.found.is_empty() || found.is_empty() {
            let behind = &suffix[1..];
            found = keepers
                .found
                .iter()
                .map(|keeper| PathTo {
                    nodes: [&keeper.nodes, behind].concat(),
                    target,
                    by: Some((keeper.at, keeper.name.clone())),
                })
                .collect();
        }
        let is_named = |path: &PathTo| {
            let first = path.nodes.first().map(|&first| live.root(first));
            matches!(
                first,
                Some(Root::Module(_) | Root::Library(_) | Root::Frame(_))
            )
        };
        // A reference from outside to the object itself, which may be that of an expression, counts only where
        // nothing else is known of it.
        let is_known = found.iter().any(is_named);
        let outside = keepers.fixed.iter();
        let outside = outside.filter(|nodes| !is_known || nodes.len() > 1);
        let outside = outside.map(|nodes| [nodes, &suffix[1..]].concat());
        let outside = outside.filter(|nodes| found.iter().all(|known| known.nodes != *nodes));
        let outside: Vec<Vec<u32>> = outside.collect();
        found.extend(outside.into_iter().map(|nodes| PathTo::new(nodes, target)));
        match keepers.found.as_slice() {
            [only] if keepers.fixed.is_empty() && only.at > search.above_owner(only) => {
                suffix = [&only.nodes[only.at..], &suffix[1..]].concat();
            }
            _ => break,
        }
    }
    if !found.is_empty() {
        return found;
    }
    // Some references are no way upwards, such as those to the classes of objects. Only what none reaches is garbage.
    let paths = live.shortest_paths();
    match paths.reaches(target) {
        true => vec![PathTo::new(paths.path_to(target), target)],
        false => garbage_paths(live, &suffix, target),
    }
}

/// For what no root reaches: a path that begins with an object that holds it, which may be itself.
fn garbage_paths(live: &Live<'_>, suffix: &[u32], target: u32) -> Vec<PathTo> {
    let Some(&head) = suffix.first() else {
        return Vec::new();
    };
    live.graph()
        .sources(head)
        .into_iter()
        .filter(|&referrer| referrer == head || !suffix.contains(&referrer))
        .filter(|&referrer| !live.is_own(referrer))
        .map(|referrer| {
            let mut nodes = vec![referrer];
            nodes.extend(suffix);
            PathTo::new(nodes, target)
        })
        .collect()
}

impl Search<'_, '_> {
    /// Loops through the targets that no collection frees.
    fn loops(
        self,
        targets: &[u32],
        reversed: &Reversed<'_>,
        uncollected: Option<&Uncollected>,
    ) -> Vec<Vec<u32>> {
        let variables = self.variables();
        let through = |&target| self.loop_through_outside(target, &variables, reversed);
        let found: Vec<Vec<u32>> = targets.iter().filter_map(through).collect();
        match uncollected {
            Some(Uncollected::Loop(nodes)) if found.is_empty() => vec![nodes.clone()],
            _ => found,
        }
    }

    /// How many nodes a path begins with whose other holders are of no interest, less one: the root, and the dictionary of
    /// its variables.
    fn above_owner(self, keeper: &Keeper) -> usize {
        let is_dict = |&node: &u32| self.live.is_kind(self.inspector, node, ObjectKind::Dict);
        match self.live.root(keeper.nodes[0]) {
            Root::Module(_) => 1,
            Root::Library(_) if keeper.nodes.get(1).is_some_and(is_dict) => 1,
            _ => 0,
        }
    }

    /// What has the variables of modules and of running functions.
    fn variables(self) -> FxHashSet<u32> {
        let live = self.live;
        let roots = live.roots().into_iter();
        let namespaces = roots.filter(|&root| {
            live.is_frame(root) || matches!(live.root(root), Root::Module(_) | Root::Frame(_))
        });
        let is_dict = |node: &u32| live.is_kind(self.inspector, *node, ObjectKind::Dict);
        let mut found: FxHashSet<u32> = FxHashSet::default();
        for namespace in namespaces {
            found.insert(namespace);
            if matches!(live.root(namespace), Root::Module(_)) {
                let targets = live.graph().targets(namespace).iter().copied();
                found.extend(targets.filter(is_dict));
            }
        }
        found
    }

    /// A shortest path from an object back to itself that uses a reference which only C++ knows, and no variable of a
    /// module or a running function: what holds only by that goes with the variable. The collector takes an object
    /// with such a reference for one in use, so it never frees the loop.
    fn loop_through_outside(
        self,
        target: u32,
        variables: &FxHashSet<u32>,
        reversed: &Reversed<'_>,
    ) -> Option<Vec<u32>> {
        let live = self.live;
        let hidden: Vec<(u32, u32)> = live.unknown_to_collector().collect();
        if hidden.is_empty() {
            return None;
        }
        let graph = live.graph();
        let passes = |from: u32, to: u32| {
            !live.objects.is_type_reference(from, to) && !variables.contains(&from)
        };
        let mut forth = ShortestPaths::new(graph.node_count());
        forth.extend(graph, [target], passes);
        let mut back = ShortestPaths::new(graph.node_count());
        back.extend(reversed.get(), [target], |to, from| passes(from, to));
        shortest_loop(&forth, &back, hidden.into_iter())
            .or_else(|| supposed_loop(live, &forth, &back))
    }
}

fn named_loop(nodes: &[u32], targets: &[u32], naming: &Naming<'_, '_>) -> Path {
    let passed = (0..).zip(targets).filter(|(_, it)| nodes.contains(it));
    Path {
        leads_to: passed.map(|(index, _)| index).collect(),
        ..naming.path(nodes, &NamedRoot::Itself).path
    }
}

/// The shortest path out and back that uses one of some references and passes no node twice.
fn shortest_loop(
    forth: &ShortestPaths,
    back: &ShortestPaths,
    references: impl Iterator<Item = (u32, u32)>,
) -> Option<Vec<u32>> {
    references
        .filter(|&(from, to)| forth.reaches(from) && back.reaches(to))
        .map(|(from, to)| {
            let mut nodes = forth.path_to(from);
            nodes.extend(back.path_to(to).into_iter().rev());
            nodes
        })
        .filter(|nodes| {
            let inner: FxHashSet<u32> = nodes[1..].iter().copied().collect();
            inner.len() == nodes.len() - 1
        })
        .min_by(|a, b| (a.len(), a).cmp(&(b.len(), b)))
}

/// True if a path uses a reference that [`supposed_loop`] takes for granted.
fn passes_supposed(live: &Live<'_>, nodes: &[u32]) -> bool {
    nodes.windows(2).any(|pair| {
        live.functions.contains(&pair[0])
            && live.hook_dictionaries.contains(&pair[1])
            && !live.graph().targets(pair[0]).contains(&pair[1])
    })
}

/// A loop through the hooks of an autograd function. Which function has which hooks is not to be seen
/// from Python; but where the object leads to every function that there is, it leads to that one.
fn supposed_loop(live: &Live<'_>, forth: &ShortestPaths, back: &ShortestPaths) -> Option<Vec<u32>> {
    if !live
        .functions
        .iter()
        .all(|&function| forth.reaches(function))
    {
        return None;
    }
    let references = live.functions.iter().flat_map(|&function| {
        live.hook_dictionaries
            .iter()
            .map(move |&hooks| (function, hooks))
    });
    shortest_loop(forth, back, references)
}
