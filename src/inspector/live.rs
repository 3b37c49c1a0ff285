//! The live heap as one graph: the objects that Python sees, what C++ owns behind them, the frames that
//! threads are in, and the roots of it all.

use petgraph::visit::NodeIndexable;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Inspector, busy};
use crate::device::{DeviceBuffer, DeviceSelection, Frameworks, attributes_of, class, imported};
use crate::graph::{Csr, Ways};
use crate::heap::{
    LiveObjects, NotTaken, ReferenceName, RunningFrame, TypeTable, Verdict, dict_items, find_item,
    int_value, is_in_package, is_library_file, running_frames, text_of, thread_names,
};

/// So many autograd functions are walked through; in longer graphs the rest is left out.
const AUTOGRAD_LIMIT: usize = 200_000;

/// A node of the graph that is no object of the heap.
pub enum Extra<'py> {
    /// A call that a thread is in the midst of, by index in [`Live::frames`].
    Frame(usize),
    /// An autograd function in C++.
    Function(Bound<'py, PyAny>),
    /// A tensor that only C++ holds; the object was made for this look.
    Tensor(Bound<'py, PyAny>),
    /// A piece of memory, by index in [`Live::buffers`].
    Memory(usize),
}

/// A piece of memory and who shares it.
pub struct LiveBuffer {
    pub buffer: DeviceBuffer,
    /// Its own node, to which all that hold it refer.
    pub node: u32,
    pub holders: u32,
    /// One of those.
    pub holder: u32,
    /// Some holder of it is the gradient of a leaf.
    pub is_gradient: bool,
    /// Autograd keeps it for a backward pass.
    pub is_saved: bool,
    /// Some tensor on it is a leaf that needs no gradient: nothing computed it.
    pub is_plain_leaf: bool,
}

/// Where a way begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// An imported module, under the name that it has in `sys.modules`.
    Module(String),
    /// A call that a thread is in the midst of, by index in [`Live::frames`].
    Frame(usize),
    /// Something outside of Python's objects.
    Outside,
    /// Nothing: the object is garbage, or kept by itself.
    Nothing,
}

/// The heap, held as long as this lives; automatic collection pauses meanwhile.
pub struct Live<'py> {
    pub objects: LiveObjects<'py>,
    /// Nodes from `objects.len()` on.
    pub extra: Vec<Extra<'py>>,
    pub frames: Vec<RunningFrame>,
    pub threads: Vec<(u64, String)>,
    pub buffers: Vec<LiveBuffer>,
    /// References that `tp_traverse` does not show, with their names.
    pub hidden: FxHashMap<(u32, u32), ReferenceName>,
    modules: Vec<(u32, String)>,
    /// Nodes of frames of the program's, with their index in `frames`.
    frame_nodes: Vec<(u32, usize)>,
    /// The autograd functions met.
    pub functions: Vec<u32>,
    /// Dictionaries of hooks that C++ alone holds: most likely of some autograd function.
    pub hook_dictionaries: Vec<u32>,
    /// The tuples of arguments of the call that asks; nobody's roots.
    own: Vec<u32>,
    pub notes: Vec<String>,
    _pause: CollectionPause,
}

/// Automatic collection is off while this lives: a collection runs finalizers, which are the program's
/// own code and could change the heap while it is being read.
struct CollectionPause {
    was_on: bool,
}

impl CollectionPause {
    fn new(_py: Python<'_>) -> Self {
        // SAFETY: attached.
        let was_on = unsafe { ffi::PyGC_Disable() } != 0;
        Self { was_on }
    }
}

impl Drop for CollectionPause {
    fn drop(&mut self) {
        if self.was_on {
            // SAFETY: `Live` has a lifetime of the interpreter's, so the thread is attached.
            unsafe { ffi::PyGC_Enable() };
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
    ) -> PyResult<Self> {
        inspector.refresh(py);
        let frameworks = inspector.frameworks.try_borrow().map_err(|_| busy())?;
        // SAFETY: attached; the types that are classified are alive.
        let classify = |ty| unsafe { frameworks.classify(ty) };
        let mut table = TypeTable::new();
        let (objects, pause) = loop {
            let pause = CollectionPause::new(py);
            let tracked = inspector.gc.objects(py, None)?;
            match LiveObjects::take(tracked, &mut table, &inspector.builtins, &classify) {
                Ok(objects) => break (objects, pause),
                Err(NotTaken::TooMany) => {
                    return Err(PyMemoryError::new_err(
                        "cyclescope: there are more than 4,294,967,295 objects, too many to number",
                    ));
                }
                Err(NotTaken::Interrupted) => {
                    drop(pause);
                    // The handler raises KeyboardInterrupt, unless the program has another.
                    py.check_signals()?;
                }
            }
        };
        let mut live = Self {
            objects,
            extra: Vec::new(),
            frames: Vec::new(),
            threads: Vec::new(),
            buffers: Vec::new(),
            hidden: FxHashMap::default(),
            modules: Vec::new(),
            frame_nodes: Vec::new(),
            functions: Vec::new(),
            hook_dictionaries: Vec::new(),
            own: Vec::new(),
            notes: Vec::new(),
            _pause: pause,
        };
        let own = arguments.and_then(|arguments| live.objects.number_of(arguments.as_any()));
        live.own.extend(own);
        live.find_modules(py);
        let mut edges = Edges::default();
        live.find_frames(inspector, py, &mut edges)?;
        live.find_buffers(&frameworks, &mut edges);
        live.find_owned(inspector, &frameworks, &mut edges);
        live.objects.graph.insert(live.extra.len(), &edges.list);
        live.hidden = edges.names;
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
    fn named_roots(&self) -> impl Iterator<Item = u32> {
        let modules = self.modules.iter().map(|(node, _)| *node);
        modules.chain(self.frame_nodes.iter().map(|(node, _)| *node))
    }

    /// The objects to which references come from outside.
    fn outside_roots(&self) -> impl Iterator<Item = u32> {
        (0..self.objects.len() as u32).filter(|&node| {
            self.objects.unaccounted[node as usize] > 0 && !self.own.contains(&node)
        })
    }

    /// All roots.
    pub fn roots(&self) -> Vec<u32> {
        let mut roots: Vec<u32> = self.named_roots().chain(self.outside_roots()).collect();
        let mut seen = FxHashSet::default();
        roots.retain(|&root| seen.insert(root));
        roots
    }

    /// A shortest way to each node that does not pass through one of `ends`: from what has a name
    /// first, classes through their instances later, from outside last.
    pub fn ways(&self, ends: &[u32]) -> Ways {
        let graph = self.graph();
        let mut ways = Ways::new(graph.node_bound());
        let passes = |from: u32| !ends.contains(&from);
        let is_type = |from, to| self.objects.is_type_reference(from, to);
        ways.extend(graph, self.named_roots(), |from, to| {
            passes(from) && !is_type(from, to)
        });
        ways.resume(graph, |from, _| passes(from));
        ways.extend(graph, self.outside_roots(), |from, to| {
            passes(from) && !is_type(from, to)
        });
        ways.resume(graph, |from, _| passes(from));
        ways
    }

    /// What the first node of a way is.
    pub fn root(&self, first: u32) -> Root {
        if let Some((_, name)) = self.modules.iter().find(|(node, _)| *node == first) {
            return Root::Module(name.clone());
        }
        if let Some((_, frame)) = self.frame_nodes.iter().find(|(node, _)| *node == first) {
            return Root::Frame(*frame);
        }
        match self.objects.unaccounted.get(first as usize) {
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

    fn find_modules(&mut self, py: Python<'py>) {
        // SAFETY: attached; the dict is borrowed from the interpreter.
        let modules = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) };
        let Some(modules) = modules else { return };
        let mut own = Vec::new();
        dict_items(&modules, &mut |name, module| {
            if let (Some(name), Some(node)) = (text_of(name), self.objects.number_of(module)) {
                let rank = (name != "__main__", is_library_module(module));
                own.push((rank, (node, name)));
            }
            true
        });
        // Stable: of two names for one module the first stays.
        own.sort_by_key(|(rank, _)| *rank);
        self.modules = own.into_iter().map(|(_, module)| module).collect();
    }

    fn find_frames(
        &mut self,
        inspector: &Inspector,
        py: Python<'py>,
        edges: &mut Edges,
    ) -> PyResult<()> {
        self.threads = thread_names(py);
        self.frames = running_frames(py, &inspector.builtins, &inspector.current_frames)?;
        for index in 0..self.frames.len() {
            let frame = &self.frames[index];
            let is_own = frame
                .place
                .as_ref()
                .is_some_and(|place| is_in_package(py, &place.file));
            let known = self.objects.number_at(frame.address);
            let node = known.unwrap_or(self.next());
            let variables = frame
                .variables
                .iter()
                .map(|(name, address)| (ReferenceName::Local(name.clone()), *address));
            let parts = frame
                .parts
                .iter()
                .map(|(name, address)| (ReferenceName::Attribute((*name).to_owned()), *address));
            let held: Vec<(ReferenceName, u32)> = variables
                .chain(parts)
                .filter_map(|(name, address)| Some((name, self.objects.number_at(address)?)))
                .collect();
            for (name, target) in held {
                self.account_for(target, 1);
                if !is_own {
                    edges.add(node, target, name);
                }
            }
            if !is_own {
                if known.is_none() {
                    self.extra.push(Extra::Frame(index));
                }
                self.frame_nodes.push((node, index));
            }
        }
        Ok(())
    }

    /// The number of the node that is added next.
    fn next(&self) -> u32 {
        (self.objects.len() + self.extra.len()) as u32
    }

    fn find_buffers(&mut self, frameworks: &Frameworks, edges: &mut Edges) {
        let holders = self.objects.holders.clone();
        for (node, verdict) in holders {
            if let Some(object) = self.objects.object(node) {
                self.add_buffer(frameworks, node, verdict, &object, edges);
            }
        }
        self.give_storages_to_tensors(edges);
    }

    /// The Python object of a storage, once made, is kept by the storage in C++, which the tensors
    /// on it keep.
    fn give_storages_to_tensors(&mut self, edges: &mut Edges) {
        let mut tensors: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
        let mut storages: Vec<(u32, usize)> = Vec::new();
        for &(node, verdict) in &self.objects.holders {
            let Some(&index) = edges.memory_of.get(&node) else {
                continue;
            };
            if Frameworks::is_tensor(verdict) {
                tensors.entry(index).or_default().push(node);
            } else if Frameworks::is_storage(verdict) {
                storages.push((node, index));
            }
        }
        for (storage, index) in storages {
            for &tensor in tensors.get(&index).into_iter().flatten() {
                let name = ReferenceName::Attribute("untyped_storage()".to_owned());
                self.add_hidden(tensor, storage, name, edges);
            }
        }
    }

    /// Adds the memory that a node holds; its index in `buffers`.
    fn add_buffer(
        &mut self,
        frameworks: &Frameworks,
        node: u32,
        verdict: Verdict,
        object: &Bound<'py, PyAny>,
        edges: &mut Edges,
    ) -> Option<usize> {
        let buffer = frameworks.buffer(verdict, object, &DeviceSelection::Any)?;
        let key = (buffer.device.clone(), buffer.pointer);
        let index = match edges.memory.get(&key) {
            Some(&index) => index,
            None => {
                let index = self.buffers.len();
                edges.memory.insert(key, index);
                let own = self.next();
                self.extra.push(Extra::Memory(index));
                self.buffers.push(LiveBuffer {
                    buffer,
                    node: own,
                    holders: 0,
                    holder: node,
                    is_gradient: false,
                    is_saved: false,
                    is_plain_leaf: false,
                });
                index
            }
        };
        let known = &mut self.buffers[index];
        known.holders += 1;
        edges.list.push((node, known.node));
        edges.memory_of.insert(node, index);
        Some(index)
    }

    /// Follows what C++ owns: gradients, the autograd graph with what it saved and its hooks, the
    /// tensors that others are views of, and the attributes of tensors that hide them.
    fn find_owned(&mut self, inspector: &Inspector, frameworks: &Frameworks, edges: &mut Edges) {
        let mut functions: Vec<u32> = Vec::new();
        let holders = self.objects.holders.clone();
        for (node, verdict) in holders {
            if !Frameworks::is_tensor(verdict) {
                continue;
            }
            let Some(tensor) = self.objects.object(node) else {
                continue;
            };
            let mut function = None;
            let owned = frameworks.owned(verdict, &tensor);
            let is_leaf = !frameworks.has_grad_fn(verdict, &tensor);
            if is_leaf
                && !frameworks.requires_grad(verdict, &tensor)
                && let Some(&index) = edges.memory_of.get(&node)
            {
                self.buffers[index].is_plain_leaf = true;
            }
            for (name, target) in owned {
                let target = if name == "grad_fn" {
                    let found = self.function_node(&target, edges, &mut functions);
                    function = Some(found);
                    Some(found)
                } else {
                    self.tensor_node(frameworks, &target, edges)
                };
                let Some(target) = target else { continue };
                if name == "grad"
                    && let Some(&index) = edges.memory_of.get(&target)
                {
                    self.buffers[index].is_gradient = true;
                }
                self.add_hidden(
                    node,
                    target,
                    ReferenceName::Attribute(name.to_owned()),
                    edges,
                );
            }
            for (name, hooks) in frameworks.attributes(verdict, &tensor) {
                if let Some(hooks) = self.objects.number_of(&hooks) {
                    let name = ReferenceName::Attribute(name.to_owned());
                    // The function of a tensor that is no leaf has its hooks too.
                    let holder = function.unwrap_or(node);
                    self.add_hidden(node, hooks, name.clone(), edges);
                    if self.unaccounted(hooks) > 0 {
                        self.account_for(hooks, 1);
                        edges.add(holder, hooks, name);
                    }
                }
            }
            if self.unaccounted_before(node, edges) {
                self.add_attributes(node, &tensor, edges);
            }
        }
        self.follow_functions(inspector, frameworks, functions, edges);
        if !self.functions.is_empty() {
            self.find_hook_dictionaries(self.objects.py());
        }
    }

    /// Finds the dictionaries of hooks that nothing accounts for. A function in C++ does not tell
    /// which hooks it has; PyTorch keeps them in an `OrderedDict` by number
    /// (`_HookMixin._register_hook` in torch/autograd/function.py).
    fn find_hook_dictionaries(&mut self, py: Python<'py>) {
        let Some(ordered) = imported(intern!(py, "collections"))
            .and_then(|collections| class(&collections, "OrderedDict").ok())
        else {
            return;
        };
        for node in 0..self.objects.len() as u32 {
            if self.unaccounted(node) != 1 {
                continue;
            }
            let Some(object) = self.objects.object(node) else {
                continue;
            };
            if !object.get_type().is(&ordered) {
                continue;
            }
            let mut by_number = false;
            dict_items(&object, &mut |key, _| {
                by_number = int_value(key).is_some();
                by_number
            });
            if by_number {
                self.hook_dictionaries.push(node);
            }
        }
    }

    /// True for an object that C++ holds too: then a tensor does not show what it holds.
    fn unaccounted_before(&self, node: u32, edges: &Edges) -> bool {
        self.unaccounted(node) > 0 || edges.taken.contains(&node)
    }

    /// Adds the attributes of a tensor that does not show them.
    fn add_attributes(&mut self, node: u32, tensor: &Bound<'py, PyAny>, edges: &mut Edges) {
        let Some(attributes) = attributes_of(tensor) else {
            return;
        };
        if let Some(dict) = self.objects.number_of(attributes.as_any()) {
            let name = ReferenceName::Attribute("__dict__".to_owned());
            self.add_hidden(node, dict, name, edges);
            return;
        }
        let mut found = Vec::new();
        dict_items(attributes.as_any(), &mut |name, value| {
            if let (Some(name), Some(value)) = (text_of(name), self.objects.number_of(value)) {
                found.push((name, value));
            }
            true
        });
        for (name, value) in found {
            self.add_hidden(node, value, ReferenceName::Attribute(name), edges);
        }
    }

    fn follow_functions(
        &mut self,
        inspector: &Inspector,
        frameworks: &Frameworks,
        mut functions: Vec<u32>,
        edges: &mut Edges,
    ) {
        let mut next = 0;
        while let Some(&node) = functions.get(next) {
            next += 1;
            if next > AUTOGRAD_LIMIT {
                self.notes.push(format!(
                    "The autograd graph has more than {AUTOGRAD_LIMIT} functions; what lies behind \
                     those is not looked at."
                ));
                break;
            }
            let Some(function) = self.object(node) else {
                continue;
            };
            let parts = frameworks.function_parts(&inspector.builtins, &function);
            edges.some_hidden |= parts.hidden;
            for follower in &parts.next {
                let target = self.function_node(follower, edges, &mut functions);
                let name = ReferenceName::Attribute("next_functions".to_owned());
                self.add_hidden(node, target, name, edges);
            }
            if let Some(variable) = &parts.variable
                && let Some(target) = self.tensor_node(frameworks, variable, edges)
            {
                let name = ReferenceName::Attribute("variable".to_owned());
                self.add_hidden(node, target, name, edges);
            }
            for (name, saved) in &parts.saved {
                let target = match frameworks.verdict_of(saved) {
                    0 => self.objects.number_of(saved),
                    _ => self.tensor_node(frameworks, saved, edges),
                };
                let Some(target) = target else { continue };
                if let Some(&index) = edges.memory_of.get(&target) {
                    self.buffers[index].is_saved = true;
                }
                self.add_hidden(node, target, ReferenceName::Attribute(name.clone()), edges);
            }
        }
        self.functions = functions;
        if edges.some_hidden {
            self.notes.push(
                "This version of PyTorch does not show what its autograd graph saved, which is \
                 missing here."
                    .to_owned(),
            );
        }
    }

    /// The node of an autograd function, which is then to be followed if it is new.
    fn function_node(
        &mut self,
        function: &Bound<'py, PyAny>,
        edges: &mut Edges,
        functions: &mut Vec<u32>,
    ) -> u32 {
        let address = function.as_ptr() as usize;
        if let Some(&node) = edges.made.get(&address) {
            return node;
        }
        let node = self.objects.number_of(function).unwrap_or_else(|| {
            let node = self.next();
            self.extra.push(Extra::Function(function.clone()));
            node
        });
        edges.made.insert(address, node);
        functions.push(node);
        node
    }

    /// The node of a tensor or array that C++ holds.
    fn tensor_node(
        &mut self,
        frameworks: &Frameworks,
        tensor: &Bound<'py, PyAny>,
        edges: &mut Edges,
    ) -> Option<u32> {
        if let Some(node) = self.objects.number_of(tensor) {
            return Some(node);
        }
        let address = tensor.as_ptr() as usize;
        if let Some(&node) = edges.made.get(&address) {
            return Some(node);
        }
        let verdict = frameworks.verdict_of(tensor);
        if verdict == 0 {
            return None;
        }
        let node = self.next();
        self.extra.push(Extra::Tensor(tensor.clone()));
        edges.made.insert(address, node);
        self.add_buffer(frameworks, node, verdict, tensor, edges);
        Some(node)
    }

    /// Adds a reference in C++, unless it is one that the object shows.
    fn add_hidden(&mut self, from: u32, to: u32, name: ReferenceName, edges: &mut Edges) {
        if self.objects.graph.targets(from).contains(&to) {
            return;
        }
        if self.unaccounted(to) > 0 {
            self.account_for(to, 1);
            edges.taken.insert(to);
        }
        edges.add(from, to, name);
    }
}

/// The references to add, and what is known while they are gathered.
#[derive(Default)]
struct Edges {
    list: Vec<(u32, u32)>,
    names: FxHashMap<(u32, u32), ReferenceName>,
    /// Index in [`Live::buffers`], by device and pointer, and by holder.
    memory: FxHashMap<(String, u64), usize>,
    memory_of: FxHashMap<u32, usize>,
    /// Nodes of objects that are not of the heap, by address: they are held in [`Live::extra`].
    made: FxHashMap<usize, u32>,
    /// Objects of which a reference from C++ was accounted for.
    taken: FxHashSet<u32>,
    some_hidden: bool,
}

impl Edges {
    fn add(&mut self, from: u32, to: u32, name: ReferenceName) {
        if self.names.insert((from, to), name).is_none() {
            self.list.push((from, to));
        }
    }
}

/// True for a module whose file is a library's, or that has none.
fn is_library_module(module: &Bound<'_, PyAny>) -> bool {
    let Ok(module) = module.cast::<PyModule>() else {
        return true;
    };
    let names = module.dict();
    let file = find_item("__file__", |f| dict_items(names.as_any(), f));
    file.and_then(|file| text_of(&file))
        .is_none_or(|file| is_library_file(&file))
}
