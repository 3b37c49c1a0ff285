//! The live heap as one graph: the objects that Python sees, what C++ owns behind them, the frames that
//! threads are in, and the roots of it all.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::OnceCell;

use super::Inspector;
use super::busy::busy;
use super::collection_pause::CollectionPause;
use super::edges::Edges;
use super::own::OwnObjects;
use super::process::is_library_module;
use super::room::{ROOM_FOR_LIVE, ask_for_room, ensure_stack};
use super::turn::Turn;
use crate::capture::{
    Ask, Csr, LiveObjects, NotTaken, ReferenceName, RunningFrame, is_library_file, running_frames,
    suspended_frames,
};
use crate::cpython::{StoppedWorld, TypeTable, dict_items, find_item, imported};
use crate::device::{DeviceBuffer, Frameworks, PartsReadAhead};
use crate::graph::ShortestPaths;

/// A node of the graph that is no object of the heap.
pub enum Extra<'py> {
    /// A call that a thread or a greenlet is in the midst of, by index in [`Live::frames`].
    Frame(usize),
    /// An autograd function in C++.
    Function(Bound<'py, PyAny>),
    /// A tensor that only C++ holds; the object was made for this look.
    Tensor(Bound<'py, PyAny>),
    /// A piece of memory, by index in [`Live::buffers`].
    Memory(usize),
    /// What C keeps for a library.
    Registry,
}

/// A piece of memory and who shares it.
pub struct LiveBuffer {
    pub buffer: DeviceBuffer,
    /// Its own node, to which all that hold it refer.
    pub node: u32,
    pub holders: u32,
    /// One of those.
    pub holder: u32,
    /// The program has a tensor or an array on it, and not only a look.
    pub is_shown: bool,
    /// Some holder of it is the gradient of a leaf.
    pub is_gradient: bool,
    /// Autograd keeps it for a backward pass.
    pub is_saved: bool,
    /// Some tensor on it is a leaf: nothing computed it.
    pub is_leaf: bool,
    /// An autograd function has saved it as its own result, which it detaches: so it looks like a leaf.
    pub is_result: bool,
}

/// What of autograd is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// All that C++ owns behind tensors.
    Graphs,
    /// Gradients of leaves only, as in the midst of a backward pass: its functions are being run, and
    /// what they saved is perhaps being released.
    Gradients,
}

/// Where a path begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// An imported module, under the name that it has in `sys.modules`.
    Module(String),
    /// A call that a thread or a greenlet is in the midst of, by index in [`Live::frames`].
    Frame(usize),
    /// What the standard library keeps by itself, in words: a thread, a timer, a context.
    Library(String),
    /// Something outside of Python's objects.
    Outside,
    /// On free-threaded builds, a class, a module or a function of one to which nothing else leads: something outside, or
    /// nothing.
    Uncounted,
    /// Nothing: the object is garbage, or kept by itself.
    Nothing,
}

/// A cycle that no collection frees, by one of its objects.
#[derive(Clone)]
pub(super) struct Loop {
    /// What that object is.
    pub words: String,
    /// The address of what tells the program's cycles apart: the code of the function, or the class.
    pub cause: usize,
}

/// The heap, held as long as this lives; automatic collection pauses meanwhile.
pub struct Live<'py> {
    /// Before all else: to let go of a tensor may let other threads run, which are not to see that collections are off.
    _pause: CollectionPause,
    /// Before what is held, so that it is released when the others run again.
    _stopped: StoppedWorld<'py>,
    pub objects: LiveObjects<'py>,
    /// Nodes from `objects.len()` on.
    pub extra: Vec<Extra<'py>>,
    pub frames: Vec<RunningFrame>,
    pub threads: Vec<(u64, String)>,
    pub buffers: Vec<LiveBuffer>,
    /// References that `tp_traverse` does not show, with their names.
    pub hidden: FxHashMap<(u32, u32), ReferenceName>,
    /// Those of the permanent generation (`gc.freeze`), as far as that is known.
    pub frozen: FxHashSet<u32>,
    pub(super) modules: Vec<(u32, String)>,
    /// By module: the node of the dictionary that has its variables.
    pub(super) module_dicts: FxHashMap<u32, u32>,
    /// What the standard library keeps, with what it is.
    pub(super) library: Vec<(u32, String)>,
    /// IPython runs the program and keeps the results of its cells.
    pub is_notebook: bool,
    /// Nodes of frames of the program's, with their index in `frames`.
    pub(super) frame_nodes: Vec<(u32, usize)>,
    /// Objects through which paths are looked for after those through others.
    pub late: FxHashSet<u32>,
    /// Objects to which paths through some of their holders are looked for before those through others.
    pub holders_first: FxHashMap<u32, Vec<u32>>,
    /// The autograd functions met.
    pub functions: Vec<u32>,
    /// Tensors to which C++ refers otherwise than is known, beside the references that are.
    pub(super) more_in_cpp: FxHashSet<u32>,
    /// The dictionaries of their attributes, such as those of a context that the program's own function has.
    pub dicts_of_functions: FxHashSet<u32>,
    /// What lies behind each of them was looked at.
    pub functions_are_complete: bool,
    /// Dictionaries of hooks that C++ alone holds: most likely of some autograd function.
    pub hook_dictionaries: Vec<u32>,
    /// The tuples of arguments of the call that asks; nobody's roots.
    own: Vec<u32>,
    /// Tensors of which an earlier look made the Python object: the program does not have it.
    pub made: FxHashSet<u32>,
    /// The arrays that hold objects, which their type does not tell of: what they refer to, Python sees.
    pub arrays: FxHashSet<u32>,
    /// What is no array and has the memory of one, once that was asked.
    pub(super) bases_of_arrays: OnceCell<FxHashSet<u32>>,
    /// Those that are roots as they are in a cycle that no collection frees.
    pub(super) loops: FxHashMap<u32, Loop>,
    /// Objects of which a reference from C++ was accounted for: the collector takes them for objects in use.
    pub(super) counted: FxHashSet<u32>,
    pub notes: Vec<String>,
    ahead: Option<PartsReadAhead>,
    turn: Option<Turn>,
}

/// What a look has read, while nothing of the program runs.
struct Read<'py> {
    objects: LiveObjects<'py>,
    frames: Vec<RunningFrame>,
    /// The addresses of the objects that `gc.freeze()` has excluded from collections.
    frozen: Vec<usize>,
    pause: CollectionPause,
    stopped: StoppedWorld<'py>,
}

impl<'py> Read<'py> {
    /// # Errors
    /// Whatever the handler of an interrupt raises; if there are too many objects.
    fn new(
        inspector: &Inspector,
        py: Python<'py>,
        frameworks: &Frameworks,
        ahead: Option<&PartsReadAhead>,
    ) -> PyResult<Self> {
        // SAFETY: attached; the types that are classified are alive.
        let classify = |ty| unsafe { frameworks.classify_all(ty) };
        let mut table = TypeTable::new();
        let builtins = &inspector.builtins;
        let own = OwnObjects::of(py, builtins);
        let ask = Ask {
            classify,
            is_own: |object, kind| {
                own.contains(object, kind)
                    || ahead.is_some_and(|ahead| ahead.made.contains(&(object as usize)))
            },
            untraversed: |object, verdict, f: &mut dyn FnMut(*mut ffi::PyObject)| {
                // SAFETY: attached; the object is alive.
                let object = unsafe { Bound::from_borrowed_ptr(py, object) };
                frameworks.for_each_untraversed(verdict, &object, |_, target| f(target));
            },
        };
        loop {
            let pause = CollectionPause::new(py);
            let tracked = inspector.gc.listed(py, None)?;
            ask_for_room(tracked.len(), ROOM_FOR_LIVE)?;
            // `gc.get_objects()` leaves them out.
            let frozen: Vec<usize> = inspector
                .gc
                .frozen(py)
                .into_iter()
                .map(|object| tracked.append(&object).map(|()| object.as_ptr() as usize))
                .collect::<PyResult<_>>()?;
            let kept = tracked.clone();
            let stopped = StoppedWorld::new(py);
            let mut frames = running_frames(py, builtins, &inspector.current_frames, true)?;
            frames.extend(suspended_frames(builtins, &tracked));
            let held = frames.iter().flat_map(RunningFrame::held);
            match LiveObjects::take(
                tracked,
                held,
                &mut table,
                builtins,
                &inspector.layouts,
                &ask,
            ) {
                Ok(objects) => {
                    return Ok(Self {
                        objects,
                        frames,
                        frozen,
                        pause,
                        stopped,
                    });
                }
                Err(NotTaken::TooMany) => {
                    return Err(PyMemoryError::new_err(
                        "cyclescope: there are more than 4,294,967,295 objects, too many to number",
                    ));
                }
                Err(NotTaken::Interrupted) => {
                    drop(pause);
                    stopped.end();
                    drop(kept);
                    // The handler raises KeyboardInterrupt, unless the program has another.
                    py.check_signals()?;
                }
            }
        }
    }
}

impl<'py> Live<'py> {
    /// Reads the heap. `arguments` are what the program called with, if that is a look at objects.
    ///
    /// # Errors
    /// Whatever the handler of an interrupt raises; if the inspector is at work already.
    pub fn take(
        inspector: &Inspector,
        py: Python<'py>,
        arguments: Option<&Bound<'py, PyTuple>>,
        depth: Depth,
    ) -> PyResult<Self> {
        ensure_stack()?;
        let turn = Turn::take(py);
        inspector.refresh(py);
        let frameworks = inspector.frameworks.try_borrow().map_err(|_| busy())?;
        let mut live = Self::read(inspector, py, &frameworks, arguments, depth, Vec::new())?;
        let ahead = live.ahead.as_ref();
        let unread = ahead.map_or_else(Vec::new, PartsReadAhead::take_unread);
        if !unread.is_empty() {
            drop(live);
            live = Self::read(inspector, py, &frameworks, arguments, depth, unread)?;
        }
        live.turn = Some(turn);
        Ok(live)
    }

    /// Reads the heap, with the parts of these sparse tensors.
    fn read(
        inspector: &Inspector,
        py: Python<'py>,
        frameworks: &Frameworks,
        arguments: Option<&Bound<'py, PyTuple>>,
        depth: Depth,
        sparse: Vec<Py<PyAny>>,
    ) -> PyResult<Self> {
        let ahead = frameworks.read_parts_ahead(py, sparse);
        let Read {
            objects,
            frames,
            frozen,
            pause,
            stopped,
        } = Read::new(inspector, py, frameworks, ahead.as_ref())?;
        let number_at = |&it: &usize| objects.number_at(it);
        let mut live = Self {
            _pause: pause,
            _stopped: stopped,
            frozen: frozen.iter().filter_map(number_at).collect(),
            objects,
            extra: Vec::new(),
            frames,
            threads: Vec::new(),
            buffers: Vec::new(),
            hidden: FxHashMap::default(),
            modules: Vec::new(),
            module_dicts: FxHashMap::default(),
            library: Vec::new(),
            is_notebook: is_notebook(py),
            frame_nodes: Vec::new(),
            late: FxHashSet::default(),
            bases_of_arrays: OnceCell::new(),
            holders_first: FxHashMap::default(),
            functions: Vec::new(),
            more_in_cpp: FxHashSet::default(),
            dicts_of_functions: FxHashSet::default(),
            functions_are_complete: true,
            hook_dictionaries: Vec::new(),
            own: Vec::new(),
            made: FxHashSet::default(),
            arrays: FxHashSet::default(),
            loops: FxHashMap::default(),
            counted: FxHashSet::default(),
            notes: Vec::new(),
            ahead,
            turn: None,
        };
        let own = arguments.and_then(|arguments| live.objects.number_of(arguments.as_any()));
        live.own.extend(own);
        let made = inspector.made.borrow();
        let known = made.keys().filter_map(|&it| live.objects.number_at(it));
        live.made = known.collect();
        drop(made);
        live.find_modules(py);
        live.find_threads(py, &inspector.builtins);
        let mut edges = Edges::default();
        live.find_frames(py, &inspector.builtins, &mut edges);
        live.find_buffers(frameworks, &mut edges);
        live.find_owned(inspector, frameworks, depth, &mut edges);
        live.give_lenders_to_tensors(frameworks, &mut edges);
        live.give_storages_to_tensors(&mut edges);
        live.name_references_of_arrays(frameworks, &mut edges);
        live.find_contexts(py);
        live.find_weak_caches();
        live.find_registries(inspector, &mut edges);
        live.objects.graph.insert(live.extra.len(), &edges.list);
        live.hidden = edges.names;
        live.note_made(inspector, frameworks);
        Ok(live)
    }

    pub fn py(&self) -> Python<'py> {
        self.objects.py()
    }

    pub fn graph(&self) -> &Csr {
        &self.objects.graph
    }

    /// What a node is, if it is no object of the heap.
    pub fn extra(&self, node: u32) -> Option<&Extra<'py>> {
        self.extra
            .get((node as usize).checked_sub(self.objects.len())?)
    }

    /// The Python object of a node, if it has one.
    pub fn object(&self, node: u32) -> Option<Bound<'py, PyAny>> {
        match self.extra(node) {
            Some(Extra::Function(object) | Extra::Tensor(object)) => Some(object.clone()),
            Some(_) => None,
            None => self.objects.object(node),
        }
    }

    /// The index of the memory that a node stands for.
    pub fn memory_index(&self, node: u32) -> Option<usize> {
        match self.extra(node) {
            Some(Extra::Memory(index)) => Some(*index),
            _ => None,
        }
    }

    /// The bytes of memory that the look takes now, all of it given back afterwards.
    pub fn bytes(&self) -> usize {
        self.objects.bytes() + self.graph().bytes()
    }

    /// The modules, the program's own before libraries', and the frames: what has a name.
    pub(super) fn named_roots(&self) -> impl Iterator<Item = u32> {
        let modules = self.modules.iter().map(|(node, _)| *node);
        let library = self.library.iter().map(|(node, _)| *node);
        let modules = modules.chain(library);
        modules.chain(self.frame_nodes.iter().map(|(node, _)| *node))
    }

    /// The objects to which references come from outside.
    fn outside_roots(&self) -> impl Iterator<Item = u32> {
        (0..self.objects.len() as u32).filter(|&node| {
            self.objects.unaccounted[node as usize] > 0 && !self.own.contains(&node)
        })
    }

    /// All roots.
    ///
    /// On free-threaded builds nobody knows of classes, modules and their functions whether something outside refers to
    /// them. They are roots if nothing else leads to them.
    pub fn roots(&self) -> Vec<u32> {
        let (uncounted, outside): (Vec<u32>, Vec<u32>) = self.outside_roots().partition(|&node| {
            cfg!(Py_GIL_DISABLED)
                && self.objects.unaccounted[node as usize] == LiveObjects::UNCOUNTED
        });
        let mut roots: Vec<u32> = self.named_roots().chain(outside).collect();
        let mut seen = FxHashSet::default();
        roots.retain(|&root| seen.insert(root));
        if !uncounted.is_empty() {
            let mut paths = ShortestPaths::new(self.graph().node_count());
            paths.extend(self.graph(), roots.iter().copied(), |_, _| true);
            for root in uncounted {
                if !paths.reaches(root) {
                    roots.push(root);
                    paths.extend(self.graph(), [root], |_, _| true);
                }
            }
        }
        roots
    }

    /// A shortest path to each node: from what has a name first, classes through their instances and what
    /// a running expression holds later, from outside last.
    pub fn shortest_paths(&self) -> ShortestPaths {
        let paths = ShortestPaths::new(self.graph().node_count());
        self.find(paths, |_| true)
    }

    /// As [`Live::shortest_paths`], to `wanted` and at least as far as those are; not through one of `ends`.
    pub fn shortest_paths_to(
        &self,
        wanted: &[u32],
        ends: impl IntoIterator<Item = u32>,
    ) -> ShortestPaths {
        let nodes = self.graph().node_count();
        let mut is_end = vec![false; nodes];
        for node in ends {
            is_end[node as usize] = true;
        }
        let paths = ShortestPaths::until(nodes, wanted.to_vec());
        self.find(paths, |from| !is_end[from as usize])
    }

    fn find(&self, mut paths: ShortestPaths, passes: impl Fn(u32) -> bool) -> ShortestPaths {
        let graph = self.graph();
        let is_type = |from, to| self.objects.is_type_reference(from, to);
        let mut has_late = vec![false; graph.node_count()];
        let mut has_first = vec![false; graph.node_count()];
        for node in self.holders_first.keys() {
            has_first[*node as usize] = true;
        }
        let stacks = self.hidden.iter();
        let stacks = stacks.filter(|(_, name)| **name == ReferenceName::Stack);
        let modules = self.module_dicts.keys();
        for node in stacks
            .map(|((frame, _), _)| frame)
            .chain(modules)
            .chain(&self.late)
        {
            has_late[*node as usize] = true;
        }
        paths.extend(graph, self.named_roots(), |from, to| {
            let waits = has_late[from as usize]
                && (self.late.contains(&from)
                    || self.is_on_stack(from, to)
                    || self.is_of_c(from, to))
                || has_first[to as usize] && !self.holders_first[&to].contains(&from);
            passes(from) && !is_type(from, to) && !waits
        });
        paths.resume(graph, |from, _| passes(from));
        paths.extend(graph, self.outside_roots(), |from, to| {
            passes(from) && !is_type(from, to)
        });
        paths.resume(graph, |from, _| passes(from));
        paths
    }

    /// A path to each node from a name that lasts: from the variables of the program's modules, or else of its calls, the
    /// outermost first. No path leads through another module.
    pub fn lasting_paths(&self) -> ShortestPaths {
        let graph = self.graph();
        let modules: FxHashSet<u32> = self.modules.iter().map(|it| it.0).collect();
        let is_dictionary = |node: &u32| {
            let object = self.object(*node);
            object.is_some_and(|it| it.is_exact_instance_of::<PyDict>())
        };
        let parts = modules.iter().flat_map(|&it| graph.targets(it)).copied();
        let variables: FxHashSet<u32> = parts.filter(is_dictionary).collect();
        let late: FxHashSet<u32> = self.late.iter().copied().collect();
        let follow = |from: u32, to: u32| {
            let leaves_module = variables.contains(&to) && !modules.contains(&from);
            let is_late = late.contains(&from) || self.is_on_stack(from, to);
            !leaves_module
                && !is_late
                && !modules.contains(&to)
                && !self.objects.is_type_reference(from, to)
        };
        let of_program = |node: &u32| {
            let module = self.object(*node);
            module.is_some_and(|it| !is_library_module(&it))
        };
        let own = self.modules.iter().map(|it| it.0).filter(of_program);
        let mut paths = ShortestPaths::new(graph.node_count());
        paths.extend(graph, own, follow);
        // The innermost call of each thread is the first.
        for (node, frame) in self.program_frames().collect::<Vec<_>>().into_iter().rev() {
            let file = frame.place.as_ref().map(|place| &place.file);
            let is_call = self.objects.number_at(frame.suspended).is_none();
            if is_call && file.is_some_and(|file| !is_library_file(file)) {
                paths.extend(graph, [node], follow);
            }
        }
        paths
    }

    /// True if a running frame has an object on its stack, and not in a variable as well.
    pub fn is_on_stack(&self, from: u32, to: u32) -> bool {
        self.hidden.get(&(from, to)) == Some(&ReferenceName::Stack)
    }

    /// What the first node of a path is.
    pub fn root(&self, first: u32) -> Root {
        if let Some((_, name)) = self.modules.iter().find(|(node, _)| *node == first) {
            return Root::Module(name.clone());
        }
        if let Some((_, frame)) = self.frame_nodes.iter().find(|(node, _)| *node == first) {
            return Root::Frame(*frame);
        }
        if let Some((_, words)) = self.library.iter().find(|(node, _)| *node == first) {
            return Root::Library(words.clone());
        }
        match self.objects.unaccounted.get(first as usize) {
            Some(&LiveObjects::UNCOUNTED) if cfg!(Py_GIL_DISABLED) => Root::Uncounted,
            Some(1..) => Root::Outside,
            _ => Root::Nothing,
        }
    }

    /// True for a tuple of arguments of the call that asks.
    pub fn is_own(&self, node: u32) -> bool {
        self.own.contains(&node)
    }

    /// Notes that a node is a tuple of arguments of the call that asks.
    pub fn set_own(&mut self, node: u32) {
        self.own.push(node);
    }

    /// The nodes of the calls of the program that threads are in the midst of.
    pub fn program_frames(&self) -> impl Iterator<Item = (u32, &RunningFrame)> {
        let nodes = self.frame_nodes.iter();
        nodes.map(|(node, index)| (*node, &self.frames[*index]))
    }

    /// True for the node of a running frame.
    pub fn is_frame(&self, node: u32) -> bool {
        self.frame_nodes.iter().any(|(frame, _)| *frame == node)
    }

    /// References to an object that no other object accounts for; 0 for an immortal one.
    pub fn unaccounted(&self, node: u32) -> u32 {
        match self.objects.unaccounted.get(node as usize) {
            None | Some(&LiveObjects::UNCOUNTED) => 0,
            Some(&count) => count,
        }
    }

    /// Takes references off that are known to be the caller's own.
    pub fn account_for(&mut self, node: u32, references: u32) {
        if let Some(left) = self.objects.unaccounted.get_mut(node as usize)
            && *left != LiveObjects::UNCOUNTED
        {
            *left = left.saturating_sub(references);
        }
    }

    /// As [`Live::account_for`], of one reference that only C++ knows.
    pub(super) fn account_for_cpp(&mut self, node: u32) {
        if self.unaccounted(node) > 0 {
            self.account_for(node, 1);
            self.counted.insert(node);
        }
    }

    /// Takes a node for a root of the standard library's or PyTorch's.
    pub(super) fn add_library_root(&mut self, node: u32, words: String) {
        self.library.push((node, words));
    }

    /// The number of the node that is added next.
    pub(super) fn next(&self) -> u32 {
        (self.objects.len() + self.extra.len()) as u32
    }
}

/// True if IPython runs the program: it gives the main module this function.
fn is_notebook(py: Python<'_>) -> bool {
    imported(intern!(py, "IPython")).is_some()
        && imported(intern!(py, "__main__")).is_some_and(|main| {
            find_item("get_ipython", |f| dict_items(main.as_any(), f)).is_some()
        })
}
