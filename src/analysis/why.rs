//! Why are these objects alive?

mod loops;
mod paths;

use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHashMap;

use super::Inspector;
use super::busy::busy;
use super::inspector::now;
use super::keepers::{Keeper, Keepers, Search};
use super::live::{Depth, Live};
use super::naming::Naming;
use super::uncollected::{Reversed, Uncollected};
use crate::capture::may_call_with_star;
use crate::cpython::{Builtins, ObjectKind, counted_by_caller};
use crate::device::{DeviceSelection, Frameworks, keeps_casts};
use crate::model::redact::NOTE;
use crate::model::retention::{Keeper as Described, Kept, Retention};
use loops::{named_loop, passes_supposed};
use paths::{PathTo, distinct_paths, find_paths, in_order, places};

/// So many distinct paths are shown.
const PATHS: usize = 8;
/// Maximum number of paths to name in the search for distinct ones.
const NAMED: usize = 256;

/// No more references that keep an object are listed.
const KEEPERS: usize = 1024;

/// What is said while [`keeps_casts`].
const CAST: &str = "`torch.autocast` is active, and may keep the object in what it has cast, until its outermost `with` block \
    ends or `torch.clear_autocast_cache()` is called.";

const IN_CPP: &str = "PyTorch refers to the tensor in C++: look for a traced or scripted module, a DLPack capsule, or \
    a function that `torch.func` has made.";

const LOOP: &str = "No collection frees a loop through C or C++. Remove one of its references.";

const FROZEN: &str = "A cycle that leads to the object was excluded from collections by gc.freeze(). Once nothing in \
    use leads there, gc.unfreeze() and gc.collect() free the object.";

const SUPPOSED: &str = "Python cannot see which autograd function has which hooks. The object leads to \
    all functions that there are, so these hooks are taken for one of theirs.";

impl Inspector {
    /// What keeps `objects` alive: the paths to them from modules, from local variables of running
    /// functions, and from outside of Python.
    ///
    /// Runs no code of the program and keeps no reference when it is done.
    ///
    /// # Errors
    /// If no object is given, one of them is nothing that the heap knows (a number, a string), or
    /// the inspector is at work already; what a handler of an interrupt raises.
    // Where it is inlined, the caller takes all the stack before it can ask how much there is.
    #[inline(never)]
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
        let is_supposed = loops.iter().any(|nodes| passes_supposed(&live, nodes));
        let may_be_cast = keeps_casts(py) && lead_through_graphs(&live, listed);
        retention.is_enough = keepers.is_complete
            && keepers.fixed.is_empty()
            && uncollected.is_none()
            && !is_supposed
            && !may_be_cast;
        let other_way = match retention.is_enough {
            true => live.other_way_to_memory(&targets, &keepers.references()),
            false => None,
        };
        let ways = paths.iter().map(|path| &path.nodes);
        let ways = ways.chain(listed.iter().map(|keeper| &keeper.nodes));
        let all: Vec<Vec<u32>> = ways.chain(&loops).chain(&other_way).cloned().collect();
        let naming = Naming::new(self, &frameworks, &live, &all);

        let mut distinct = distinct_paths(&paths, &targets, &naming);
        let omitted = distinct.len().saturating_sub(PATHS) + found.saturating_sub(NAMED);
        retention.paths_omitted = omitted as u64;
        distinct.truncate(PATHS);
        let loops = loops.iter().map(|it| named_loop(it, &targets, &naming));
        retention.loops = loops.collect();
        retention.notes = notes(&frameworks, &live, &targets);
        retention.notes.extend(may_be_cast.then(|| CAST.to_owned()));
        retention.notes.extend(self.guess(&live, &keepers));
        let leaks = search.tracer_leaks(listed, &naming).into_iter();
        let stays = other_way.map(|way| memory_stays(&way, &naming, listed.len()));
        let caches = search.jax_caches(listed);
        retention.notes.extend(leaks.chain(caches).chain(stays));
        retention.by_collection =
            retention.is_enough && (keepers.in_cycle || search.has_frame_in_cycle(listed));
        let mut releases = vec![String::new(); listed.len()];
        if retention.is_enough {
            releases = search.releases(&keepers, listed.len(), &targets, &naming);
        }
        let with_releases = listed.iter().map(|it| it.on_first(&distinct)).zip(releases);
        retention.keepers = described(with_releases, &targets, &live, &naming);
        retention.paths = distinct.into_iter().map(|(path, _)| path).collect();
        retention.keepers_omitted = (keepers.found.len() - listed.len()) as u64;
        retention.is_uncollectable = uncollected.is_some() && keepers.found.is_empty();
        let further = [
            (matches!(uncollected, Some(Uncollected::Frozen)), FROZEN),
            (is_supposed, SUPPOSED),
            (!is_supposed && !retention.loops.is_empty(), LOOP),
            (self.redacts(), NOTE),
        ];
        let said = further.into_iter().filter(|(is_so, _)| *is_so);
        let said = said.map(|(_, note)| note.to_owned());
        retention.notes.extend(said);
        drop(naming);
        drop(live);
        number_objects(&mut retention);
        (retention.process, retention.time) = (self.process_to_tell(py), now());
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

/// True if an autograd function is on the way from one of these to what it keeps.
fn lead_through_graphs(live: &Live<'_>, keepers: &[Keeper]) -> bool {
    let mut nodes = keepers.iter().flat_map(|it| &it.nodes);
    nodes.any(|it| live.functions.contains(it))
}

fn notes(frameworks: &Frameworks, live: &Live<'_>, targets: &[u32]) -> Vec<String> {
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
            if live.has_more_in_cpp(frameworks, target) {
                notes.push(IN_CPP.to_owned());
            }
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
    let with_star = may_call_with_star(arguments.py(), builtins);
    let sources = with_star.then(|| live.graph().sources(first));
    let starred = sources
        .into_iter()
        .flatten()
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

/// What is said where the memory has another owner than the references that are listed, of which there are so many.
fn memory_stays(way: &[u32], naming: &Naming<'_, '_>, listed: usize) -> String {
    let removed = if listed == 1 { "that is" } else { "these are" };
    let is_known = naming.root(way).is_in_python();
    match naming.owner(way).filter(|_| is_known) {
        Some(owner) => {
            format!("The memory stays when {removed} removed: {owner} holds it too.")
        }
        None => format!(
            "The memory may stay when {removed} removed: C or C++ refers to an object that has it too."
        ),
    }
}

/// The references that keep the targets, each with what it releases, in words and in the order to show them in.
fn described(
    with_releases: impl Iterator<Item = (Keeper, String)>,
    targets: &[u32],
    live: &Live<'_>,
    naming: &Naming<'_, '_>,
) -> Vec<Described> {
    let mut described: Vec<Described> = with_releases
        .map(|(keeper, release)| {
            let mut described = describe(&keeper, release, live, naming);
            described.path.leads_to = places(keeper.nodes.last(), targets);
            described
        })
        .collect();
    described.sort_by(|one, other| {
        in_order(&one.path, &other.path).then_with(|| one.words.cmp(&other.words))
    });
    described
}

/// A reference that keeps the targets, in words.
fn describe(
    keeper: &Keeper,
    release: String,
    live: &Live<'_>,
    naming: &Naming<'_, '_>,
) -> Described {
    let Keeper { nodes, at, name } = keeper;
    let by = Some((*at, name));
    let root = naming.root_by(nodes, by);
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
