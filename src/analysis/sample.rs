//! What is alive at a step of the program: a pass over the collector's objects, by type.

use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::busy::busy;
use super::gradient_watch::GradientWatch;
use super::grown::{GroupKind, Name, example_of, mark_of};
use super::purpose::Classes;
use crate::cpython::instances::attributes;
use crate::cpython::read::referents;
use crate::cpython::{ObjectKind, StoppedWorld, Verdict, dict_items, text_of, without_collections};
use crate::device::{Autograd, DeviceBuffer, DeviceSelection, Frameworks, autograd_sequence_now};
use crate::diagnose::census::is_chosen;

/// How many autograd functions are walked in a sample, and for how long.
const MAX_FUNCTIONS: usize = 50_000;
const MAX_TIME: Duration = Duration::from_millis(250);
/// Of more tensors with graphs than these, the graphs are not walked: they are no states.
const MAX_ROOTS: usize = 5_000;
/// After how many functions it is asked what time it is.
const STRETCH: usize = 1_024;
/// Containers with fewer items than these are not followed.
const MANY: u64 = 16;
/// How many types are found without a look-up; all addresses are multiples of this.
const RECENT: usize = 256;
const ALIGNED: usize = 16;

/// A piece of memory, with the kind of the first tensor on it that has a graph, if any has.
pub struct Piece {
    pub device: String,
    pub dtype: String,
    pub kind: GroupKind,
    pub name: Name,
    pub bytes: u64,
    pub shape: Vec<u64>,
}

/// An attribute of a module that holds a tensor with a graph.
pub struct KeptOnModule {
    /// The addresses of the module and the tensor.
    pub module: usize,
    pub tensor: usize,
    pub class: String,
    pub attribute: String,
    pub bytes: u64,
    pub example: String,
}

/// What is alive at a step.
#[derive(Default)]
pub struct Sample<'py> {
    pub pieces: Vec<Piece>,
    /// How many objects other than tensors and autograd functions there are, by the address of their type.
    pub types: Vec<(usize, u64)>,
    /// The addresses of the chosen objects of those types that are followed.
    pub chosen: FxHashMap<usize, Vec<usize>>,
    /// The lists, dictionaries, sets and deques with many items, each with their number.
    pub containers: Vec<(Bound<'py, PyAny>, u64)>,
    /// The addresses of the autograd functions that Python sees, but not of those that the program wrote:
    /// these are Python objects wherever they are.
    pub functions: Vec<usize>,
    pub kept_on_modules: Vec<KeptOnModule>,
    /// The tensors with graphs, each with its function's number and its shape.
    pub roots: Vec<(Name, u64, Vec<u64>)>,
    /// How many functions behind them were made before the last sample; `None` if that was not counted.
    pub older: Option<u64>,
    /// False if there may be more of them, as the look at the graph was cut short.
    pub older_is_all: bool,
    /// The numbers of those of them that younger functions lead to directly.
    pub crossed: Vec<u64>,
    /// The number of the first function that will be made after this sample.
    pub mark: u64,
}

/// The tensors, modules, autograd functions and large containers among the collector's objects, and how many
/// others there are.
#[derive(Default)]
pub(super) struct TorchObjects<'py> {
    tensors: Vec<(Verdict, Bound<'py, PyAny>)>,
    pub(super) modules: Vec<Bound<'py, PyAny>>,
    functions: Vec<Bound<'py, PyAny>>,
    containers: Vec<(Bound<'py, PyAny>, u64)>,
    types: Vec<(usize, u64)>,
    chosen: FxHashMap<usize, Vec<usize>>,
}

/// A type in the midst of a pass.
struct Met {
    ty: usize,
    /// `None` for a type that has to be asked, which may make objects: not while the list of them is walked.
    kind: Option<Kind>,
    count: u64,
    /// Of a type that is followed: how often its objects are halved.
    followed: Option<u32>,
}

/// A walk along the collector's objects, which makes none: each object is touched once.
struct Pass<'a> {
    inspector: &'a Inspector,
    followed: &'a FxHashMap<usize, u32>,
    /// The types met, each with its place in `met`; and again, those met last, each where its address puts it.
    places: FxHashMap<usize, u32>,
    recent: [(usize, u32); RECENT],
    met: Vec<Met>,
    chosen: FxHashMap<usize, Vec<usize>>,
}

impl<'a> Pass<'a> {
    fn new(inspector: &'a Inspector, followed: &'a FxHashMap<usize, u32>) -> Self {
        Self {
            inspector,
            followed,
            places: FxHashMap::default(),
            recent: [(0, 0); RECENT],
            met: Vec::new(),
            chosen: FxHashMap::default(),
        }
    }

    /// What is known of a type.
    #[inline]
    fn of(&mut self, ty: usize) -> &mut Met {
        let recent = &mut self.recent[ty / ALIGNED % RECENT];
        if recent.0 != ty {
            let (inspector, followed, met) = (self.inspector, self.followed, &mut self.met);
            let place = *self.places.entry(ty).or_insert_with(|| {
                met.push(Met {
                    ty,
                    kind: built_in(inspector, ty),
                    count: 0,
                    followed: followed.get(&ty).copied(),
                });
                (met.len() - 1) as u32
            });
            *recent = (ty, place);
        }
        &mut self.met[recent.1 as usize]
    }

    /// Counts an object; true if more than its number matters, or may.
    fn count(&mut self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: attached, as all callers are; the object and its type are alive.
        let ty = unsafe { ffi::Py_TYPE(object) } as usize;
        let met = self.of(ty);
        met.count += 1;
        let (kind, followed) = (met.kind, met.followed);
        if followed.is_some_and(|it| is_chosen(object as usize, it)) {
            self.chosen.entry(ty).or_default().push(object as usize);
        }
        match kind {
            Some(Kind::Other) => false,
            // Most objects are containers, and most of these are small.
            // SAFETY: as above; the object is of this kind.
            Some(Kind::Container(kind)) => unsafe {
                self.inspector.length_of(kind, object) >= MANY
            },
            _ => true,
        }
    }
}

/// What the objects of a built-in type are.
fn built_in(inspector: &Inspector, ty: usize) -> Option<Kind> {
    let is = |built_in: *mut ffi::PyTypeObject| ty == built_in as usize;
    let kind = match () {
        () if is(&raw mut ffi::PyDict_Type) => ObjectKind::Dict,
        () if is(&raw mut ffi::PyList_Type) => ObjectKind::List,
        () if is(&raw mut ffi::PyTuple_Type) => ObjectKind::Tuple,
        () => inspector.builtins.built_in_kind(ty)?,
    };
    Some(container_or_other(kind))
}

fn container_or_other(kind: ObjectKind) -> Kind {
    match kind {
        ObjectKind::List | ObjectKind::Dict | ObjectKind::Set | ObjectKind::Deque => {
            Kind::Container(kind)
        }
        _ => Kind::Other,
    }
}

impl TorchObjects<'_> {
    /// Leaves out autograd functions that only C++ holds.
    ///
    /// Up to PyTorch 2.11 the Python object of a function is made each time that it is asked for, and lives as long as
    /// Python holds it. In 2.15 the function keeps it as long as C++ holds the function, and a tensor shows it to the
    /// collector: then one reference is the function's. One that only a container holds has no other reference either.
    fn keep_held_functions(&mut self, frameworks: &Frameworks) {
        let all: FxHashSet<usize> = self
            .functions
            .iter()
            .map(|it| it.as_ptr() as usize)
            .collect();
        let shows_function = |(verdict, tensor): &(Verdict, Bound<'_, PyAny>)| {
            frameworks.has_grad_fn(*verdict, tensor)
                && referents(tensor).iter().any(|target| all.contains(target))
        };
        if !all.is_empty() && self.tensors.iter().any(shows_function) {
            let containers = self.containers.iter().map(|(container, _)| container);
            let items = containers
                .filter(|it| may_hold(it, &all))
                .flat_map(referents);
            let contained: FxHashSet<usize> = items.filter(|it| all.contains(it)).collect();
            // Beside the function's reference there is the one in this list.
            self.functions.retain(|function| {
                // SAFETY: attached; the list holds the object.
                let references = unsafe { ffi::Py_REFCNT(function.as_ptr()) };
                references > 2 || contained.contains(&(function.as_ptr() as usize))
            });
        }
    }
}

/// True if a container may hold one of some objects: of most, one item tells.
fn may_hold(container: &Bound<'_, PyAny>, objects: &FxHashSet<usize>) -> bool {
    let is_one = |item: &Bound<'_, PyAny>| objects.contains(&(item.as_ptr() as usize));
    if let Ok(list) = container.cast::<PyList>() {
        let last = list.len().checked_sub(1);
        return last.is_some_and(|last| list.get_item(last).is_ok_and(|item| is_one(&item)));
    }
    if !container.is_instance_of::<PyDict>() {
        return true;
    }
    let mut found = false;
    dict_items(container, &mut |key, value| {
        found = is_one(key) || is_one(value);
        false
    });
    found
}

#[derive(Clone, Copy)]
enum Kind {
    Tensor(Verdict),
    Module,
    Function,
    Container(ObjectKind),
    Other,
}

fn kind_of(frameworks: &Frameworks, verdict: Verdict, tensor: &Bound<'_, PyAny>) -> GroupKind {
    if frameworks.has_grad_fn(verdict, tensor) {
        GroupKind::Graph
    } else if frameworks.requires_grad(verdict, tensor) {
        GroupKind::Parameter
    } else {
        GroupKind::Plain
    }
}

impl Piece {
    fn new(buffer: DeviceBuffer, kind: GroupKind, name: Name) -> Self {
        Self {
            device: buffer.device,
            dtype: buffer.dtype.unwrap_or_default(),
            kind,
            name,
            bytes: buffer.bytes,
            shape: buffer.shape.unwrap_or_default(),
        }
    }
}

impl Inspector {
    /// What is alive on some devices now.
    ///
    /// `mark` is that of the last sample, if graphs are to be walked. `followed` are the types some of whose
    /// objects are asked for, as [`is_chosen`] has them.
    ///
    /// # Errors
    /// If the inspector is at work already, or memory runs out.
    pub fn sample<'py>(
        &self,
        py: Python<'py>,
        devices: &DeviceSelection,
        mark: Option<u64>,
        followed: &FxHashMap<usize, u32>,
        gradients: &mut GradientWatch,
    ) -> PyResult<Sample<'py>> {
        self.refresh(py);
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let objects = self.torch_objects(py, &frameworks, followed)?;
        let _stopped = StoppedWorld::new(py);
        let mut sample = Sample {
            functions: objects
                .functions
                .iter()
                .map(|it| it.as_ptr() as usize)
                .collect(),
            containers: objects.containers,
            types: objects.types,
            chosen: objects.chosen,
            ..Sample::default()
        };
        let mut roots = Vec::new();
        let mut places: FxHashMap<(String, u64), usize> = FxHashMap::default();
        // The tensor that each piece is named by.
        let mut named: Vec<&Bound<'py, PyAny>> = Vec::new();
        // The program sees no more than before a look.
        let made = self.made.take();
        let mut left = FxHashMap::default();
        for (verdict, tensor) in &objects.tensors {
            let Some(buffer) = frameworks.whole_buffer(*verdict, tensor, devices) else {
                continue;
            };
            let kind = kind_of(&frameworks, *verdict, tensor);
            let name = (tensor.as_ptr() as usize, mark_of(&buffer));
            if made.get(&name.0) == Some(&buffer.pointer) && is_held_once(tensor) {
                left.insert(name.0, buffer.pointer);
                if kind == GroupKind::Graph && gradients.has(name.0) {
                    let shape = Piece::new(buffer, kind, name).shape;
                    roots.push((name, tensor, *verdict, shape));
                }
                continue;
            }
            let place = (buffer.device.clone(), buffer.pointer);
            let piece = Piece::new(buffer, kind, name);
            if kind == GroupKind::Graph {
                roots.push((name, tensor, *verdict, piece.shape.clone()));
            }
            match places.get(&place) {
                None => {
                    places.insert(place, sample.pieces.len());
                    sample.pieces.push(piece);
                    named.push(tensor);
                }
                Some(&at) => {
                    let known = &mut sample.pieces[at];
                    let is_first_graph = kind == GroupKind::Graph && known.kind != GroupKind::Graph;
                    // The program holds the view, not what it is a view of.
                    let holds_view = is_held_once(named[at])
                        && frameworks.is_view_of(*verdict, tensor, named[at]);
                    if is_first_graph || holds_view {
                        let kind = known.kind.min(piece.kind);
                        *known = Piece { kind, ..piece };
                        named[at] = tensor;
                    }
                }
            }
        }
        self.made.replace(left);
        if let (Some(mark), true) = (mark, roots.len() <= MAX_ROOTS) {
            let functions = roots.iter().map(|(name, tensor, verdict, shape)| {
                let owned = frameworks.owned(*verdict, tensor);
                let function = owned.into_iter().find(|(part, _)| *part == "grad_fn");
                (*name, function.map(|(_, function)| function), shape.clone())
            });
            let functions: Vec<_> = functions.collect();
            self.walk(&frameworks, functions, mark, &mut sample);
        }
        for module in &objects.modules {
            self.find_kept_on(&frameworks, module, &mut sample.kept_on_modules);
        }
        gradients.choose(&self.builtins, &frameworks, &objects.modules);
        sample.mark = autograd_sequence_now(py).unwrap_or_default();
        Ok(sample)
    }

    pub(super) fn torch_objects<'py>(
        &self,
        py: Python<'py>,
        frameworks: &Frameworks,
        followed: &FxHashMap<usize, u32>,
    ) -> PyResult<TorchObjects<'py>> {
        let mut found = TorchObjects::default();
        let classes = Classes::imported(py);
        // No type dies before the pass is over, so an address stays one type's.
        let mut pass = Pass::new(self, followed);
        let state = self.gc.state;
        // The objects are borrowed until they are sorted, and some types have to be asked, which may make objects.
        let sorted = without_collections(py, || {
            let objects = state?.objects_where(py, |object| pass.count(object))?;
            for object in objects {
                // SAFETY: attached; neither code nor a collection has run since the objects were listed.
                let object = unsafe { Bound::from_borrowed_ptr(py, object) };
                self.sort(&mut found, frameworks, &classes, &mut pass, object);
            }
            Some(())
        });
        if sorted.is_none() {
            pass = Pass::new(self, followed);
            let listed = self.gc.listed(py, None)?;
            let _stopped = StoppedWorld::new(py);
            for object in &listed {
                if pass.count(object.as_ptr()) {
                    self.sort(&mut found, frameworks, &classes, &mut pass, object);
                }
            }
        }
        let Pass { met, chosen, .. } = pass;
        found.chosen = chosen;
        let counted = met
            .into_iter()
            .filter(|it| !matches!(it.kind, Some(Kind::Tensor(_) | Kind::Function)));
        found.types = counted.map(|it| (it.ty, it.count)).collect();
        found.keep_held_functions(frameworks);
        Ok(found)
    }

    /// Puts an object that a pass has kept where it belongs.
    fn sort<'py>(
        &self,
        found: &mut TorchObjects<'py>,
        frameworks: &Frameworks,
        classes: &Option<Classes<'_>>,
        pass: &mut Pass<'_>,
        object: Bound<'py, PyAny>,
    ) {
        // SAFETY: attached; the object and its type are alive.
        let ty = unsafe { ffi::Py_TYPE(object.as_ptr()) } as usize;
        let kind = pass
            .of(ty)
            .kind
            .get_or_insert_with(|| self.kind_of_torch(frameworks, classes.as_ref(), &object));
        match *kind {
            Kind::Tensor(verdict) => found.tensors.push((verdict, object)),
            Kind::Module => found.modules.push(object),
            Kind::Function => found.functions.push(object),
            Kind::Container(kind) => {
                // SAFETY: attached; the object is of this kind and alive.
                let length = unsafe { self.length_of(kind, object.as_ptr()) };
                if length >= MANY {
                    found.containers.push((object, length));
                }
            }
            Kind::Other => {}
        }
    }

    fn kind_of_torch(
        &self,
        frameworks: &Frameworks,
        classes: Option<&Classes<'_>>,
        object: &Bound<'_, PyAny>,
    ) -> Kind {
        let verdict = frameworks.verdict_of(object);
        if frameworks.is_tracked(verdict) {
            return Kind::Tensor(verdict);
        }
        // SAFETY: attached, the object and the classes are alive.
        if classes.is_some_and(|classes| unsafe { classes.of(object) }.0) {
            return Kind::Module;
        }
        let autograd = frameworks.autograd();
        if autograd.is_some_and(|it| it.is_builtin_function(&self.builtins, object)) {
            return Kind::Function;
        }
        container_or_other(self.kind(object))
    }

    /// How many items a container has, as its built-in class counts them.
    ///
    /// # Safety
    /// Attached, and the container is an object of this kind and alive.
    unsafe fn length_of(&self, kind: ObjectKind, container: *mut ffi::PyObject) -> u64 {
        // SAFETY: by this function's contract; none of these runs code of the program.
        let length = unsafe {
            match kind {
                ObjectKind::List => ffi::PyList_Size(container),
                ObjectKind::Set => ffi::PySet_Size(container),
                ObjectKind::Deque => (self.builtins.deque_length)(container),
                _ => ffi::PyDict_Size(container),
            }
        };
        u64::try_from(length).unwrap_or_default()
    }

    /// Walks the graphs behind tensors as far as there is time.
    fn walk(
        &self,
        frameworks: &Frameworks,
        roots: Vec<(Name, Option<Bound<'_, PyAny>>, Vec<u64>)>,
        mark: u64,
        sample: &mut Sample,
    ) {
        let Some(autograd) = frameworks.autograd() else {
            return;
        };
        let deadline = Instant::now() + MAX_TIME;
        let number = |function: &Bound<'_, PyAny>| {
            autograd
                .sequence_number(&self.builtins, function)
                .unwrap_or(Autograd::LEAF)
        };
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        // Held to the end, so that no address becomes another's.
        let mut pending = Vec::new();
        for (name, function, shape) in roots {
            let Some(function) = function else { continue };
            sample.roots.push((name, number(&function), shape));
            if seen.insert(function.as_ptr() as usize) {
                pending.push(function);
            }
        }
        let mut crossed: FxHashSet<u64> = FxHashSet::default();
        let (mut next, mut older) = (0, 0);
        while let Some(function) = pending.get(next) {
            let out_of_time = next % STRETCH == STRETCH - 1 && Instant::now() > deadline;
            if next >= MAX_FUNCTIONS || out_of_time {
                break;
            }
            next += 1;
            let own = number(function);
            older += u64::from(own < mark);
            for following in autograd.next_functions(&self.builtins, function) {
                let its = number(&following);
                if its < mark && (mark..Autograd::LEAF).contains(&own) {
                    crossed.insert(its);
                }
                if seen.insert(following.as_ptr() as usize) {
                    pending.push(following);
                }
            }
        }
        sample.older = Some(older);
        sample.older_is_all = next == pending.len();
        sample.crossed = crossed.into_iter().collect();
    }

    /// The attributes of a module that hold a tensor with a graph. Not those that a re-parametrization
    /// computes, such as `weight` of `weight_norm`, which has `weight_g` among the parameters.
    fn find_kept_on(
        &self,
        frameworks: &Frameworks,
        module: &Bound<'_, PyAny>,
        found: &mut Vec<KeptOnModule>,
    ) {
        let mut parameters = Vec::new();
        let mut tensors = Vec::new();
        for (name, value) in attributes(&self.builtins.instances, module) {
            let verdict = frameworks.verdict_of(&value);
            if Frameworks::is_tensor(verdict) && frameworks.has_grad_fn(verdict, &value) {
                tensors.push((name, verdict, value));
            } else if name == "_parameters" {
                dict_items(&value, &mut |name, _| {
                    parameters.extend(text_of(name));
                    true
                });
            }
        }
        for (attribute, verdict, tensor) in tensors {
            let derived = format!("{attribute}_");
            if parameters.iter().any(|name| name.starts_with(&derived)) {
                continue;
            }
            if let Some(buffer) = frameworks.buffer(verdict, &tensor, &DeviceSelection::Any) {
                found.push(KeptOnModule {
                    module: module.as_ptr() as usize,
                    tensor: tensor.as_ptr() as usize,
                    class: self.type_name(module),
                    attribute: self.shown(attribute),
                    bytes: buffer.bytes,
                    example: example_of(&buffer),
                });
            }
        }
    }
}

/// True if there is one reference to an object of a sample beside the sample's own: that of C++, if C++ holds it.
fn is_held_once(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached; the object is alive.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) <= 2 }
}
