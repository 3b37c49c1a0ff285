//! What of PyTorch's is alive at a step of the program: a pass over the collector's objects, by type.

use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::busy::busy;
use super::grown::{Diagnosis, GroupKind, Name, example_of, parameters_of};
use super::purpose::Classes;
use crate::capture::may_clear_gradients;
use crate::cpython::attributes::attributes;
use crate::cpython::read::referents;
use crate::cpython::{Builtins, ObjectKind, Verdict, dict_items, text_of};
use crate::device::{Autograd, DeviceBuffer, DeviceSelection, Frameworks, autograd_sequence_now};
use crate::diagnose::growth;

/// How many autograd functions are walked in a sample, and for how long.
const MAX_FUNCTIONS: usize = 50_000;
const MAX_TIME: Duration = Duration::from_millis(250);
/// Of more tensors with graphs than these, the graphs are not walked: they are no states.
const MAX_ROOTS: usize = 5_000;
/// After how many functions it is asked what time it is.
const STRETCH: usize = 1_024;
/// How many parameters are watched for gradients that are never cleared.
const WATCHED: usize = 4;
/// In how many steps in a row a gradient must have been added to once, and nothing else done to it: more
/// than are made where gradients are accumulated on purpose.
const STEPS: u32 = 100;
/// Containers with fewer items than these are not followed.
const MANY: u64 = 16;
/// How many classes of modules are named.
const NAMED: usize = 3;

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
    /// The lists, dictionaries and deques with many items, each with their number; none where no
    /// arrays can be that the collector does not know.
    pub containers: Vec<(Bound<'py, PyAny>, u64)>,
    /// The addresses of the autograd functions that Python sees, but not of those that the program wrote:
    /// these are Python objects wherever they are.
    pub functions: Vec<usize>,
    pub kept_on_modules: Vec<KeptOnModule>,
    /// The tensors with graphs, each with its function's number and its shape.
    pub roots: Vec<(Name, u64, Vec<u64>)>,
    /// How many functions behind them were made before the last sample; `None` if that was not counted.
    pub older: Option<u64>,
    /// The numbers of those of them that younger functions lead to directly.
    pub crossed: Vec<u64>,
    /// The number of the first function that will be made after this sample.
    pub mark: u64,
}

/// The tensors, modules and autograd functions among the collector's objects.
#[derive(Default)]
struct TorchObjects<'py> {
    tensors: Vec<(Verdict, Bound<'py, PyAny>)>,
    modules: Vec<Bound<'py, PyAny>>,
    functions: Vec<Bound<'py, PyAny>>,
    containers: Vec<(Bound<'py, PyAny>, u64)>,
}

impl TorchObjects<'_> {
    /// Leaves out autograd functions that only C++ holds.
    ///
    /// Up to PyTorch 2.11 the Python object of a function is made each time that it is asked for, and lives as long as
    /// Python holds it. In 2.15 the function keeps it, and a tensor shows it to the collector: then one reference is
    /// the function's.
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
            // Beside the function's reference there is the one in this list.
            self.functions.retain(|function| {
                // SAFETY: attached; the list holds the object.
                unsafe { ffi::Py_REFCNT(function.as_ptr()) > 2 }
            });
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Tensor(Verdict),
    Module,
    Function,
    Container(ObjectKind),
    Other,
}

impl Inspector {
    /// What is alive on some devices now.
    ///
    /// `mark` is that of the last sample, if graphs are to be walked.
    ///
    /// # Errors
    /// If the inspector is at work already, or memory runs out.
    pub fn sample<'py>(
        &self,
        py: Python<'py>,
        devices: &DeviceSelection,
        mark: Option<u64>,
        gradients: &mut GradientWatch,
    ) -> PyResult<Sample<'py>> {
        self.refresh(py);
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let with_containers = frameworks.may_have_arrays(devices);
        let objects = self.torch_objects(py, &frameworks, with_containers)?;
        let mut sample = Sample {
            functions: objects
                .functions
                .iter()
                .map(|it| it.as_ptr() as usize)
                .collect(),
            containers: objects.containers,
            ..Sample::default()
        };
        let mut roots = Vec::new();
        let mut places: FxHashMap<(String, u64), usize> = FxHashMap::default();
        // The program sees no more than before a look.
        let made = self.made.take();
        let mut left = FxHashMap::default();
        for (verdict, tensor) in &objects.tensors {
            let Some(buffer) = frameworks.buffer(*verdict, tensor, devices) else {
                continue;
            };
            let kind = if frameworks.has_grad_fn(*verdict, tensor) {
                GroupKind::Graph
            } else if frameworks.requires_grad(*verdict, tensor) {
                GroupKind::Parameter
            } else {
                GroupKind::Plain
            };
            let name = (tensor.as_ptr() as usize, buffer.pointer);
            if made.get(&name.0) == Some(&name.1) && is_held_once(tensor) {
                left.insert(name.0, name.1);
                continue;
            }
            let DeviceBuffer {
                pointer,
                bytes,
                device,
                dtype,
                shape,
                ..
            } = buffer;
            let shape = shape.unwrap_or_default();
            if kind == GroupKind::Graph {
                roots.push((name, tensor, *verdict, shape.clone()));
            }
            let piece = Piece {
                device: device.clone(),
                dtype: dtype.unwrap_or_default(),
                kind,
                name,
                bytes,
                shape,
            };
            match places.get(&(device.clone(), pointer)) {
                None => {
                    places.insert((device, pointer), sample.pieces.len());
                    sample.pieces.push(piece);
                }
                Some(&place) if kind == GroupKind::Graph => {
                    let known = &mut sample.pieces[place];
                    if known.kind != GroupKind::Graph {
                        *known = piece;
                    }
                }
                Some(_) => {}
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

    fn torch_objects<'py>(
        &self,
        py: Python<'py>,
        frameworks: &Frameworks,
        with_containers: bool,
    ) -> PyResult<TorchObjects<'py>> {
        let mut found = TorchObjects::default();
        let classes = Classes::imported(py);
        if classes.is_none() && !with_containers {
            return Ok(found);
        }
        // No type dies before the pass is over, so an address stays one type's.
        let mut kinds: FxHashMap<usize, Kind> = FxHashMap::default();
        let mut look_at = |object: *mut ffi::PyObject| {
            // SAFETY: attached; the object and its type are alive.
            let ty = unsafe { ffi::Py_TYPE(object) };
            let known = kinds.get(&(ty as usize)).copied();
            match known {
                Some(Kind::Other) => return,
                // Most objects are containers, and most of these are small.
                // SAFETY: attached; the object is of this kind and alive.
                Some(Kind::Container(kind)) if unsafe { self.length_of(kind, object) } < MANY => {
                    return;
                }
                _ => {}
            }
            // SAFETY: attached; the object is alive.
            let object = unsafe { Bound::from_borrowed_ptr(py, object) };
            let kind = known.unwrap_or_else(|| {
                let kind = match self.kind_of_torch(frameworks, classes.as_ref(), &object) {
                    Kind::Container(_) if !with_containers => Kind::Other,
                    kind => kind,
                };
                kinds.insert(ty as usize, kind);
                kind
            });
            match kind {
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
        };
        match self.gc.state.and_then(|state| state.objects(py, u32::MAX)) {
            Some(objects) => objects.into_iter().for_each(&mut look_at),
            None => {
                let listed = self.gc.listed(py, None)?;
                listed.iter().for_each(|object| look_at(object.as_ptr()));
            }
        }
        found.keep_held_functions(frameworks);
        Ok(found)
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
        match self.kind(object) {
            kind @ (ObjectKind::List | ObjectKind::Dict | ObjectKind::Deque) => {
                Kind::Container(kind)
            }
            _ => Kind::Other,
        }
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
        for (name, value) in attributes(&self.builtins, module) {
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

    /// What is said of gradients that are never cleared.
    ///
    /// # Errors
    /// As [`Inspector::sample`].
    pub fn uncleared_gradients(
        &self,
        py: Python<'_>,
        uncleared: Uncleared,
    ) -> PyResult<Option<Diagnosis>> {
        let and_what = match uncleared {
            Uncleared::AddedToOnly => "and nothing else done to it",
            Uncleared::Perhaps if self.some_code_clears_gradients(py)? => return Ok(None),
            Uncleared::Perhaps => "and nothing that the running code calls clears gradients",
        };
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        let mut gradients: Vec<DeviceBuffer> = Vec::new();
        let mut owners: Vec<String> = Vec::new();
        for module in self.torch_objects(py, &frameworks, false)?.modules {
            for parameter in parameters_of(&self.builtins, &module) {
                let Some(buffer) = gradient_memory(&frameworks, &parameter) else {
                    continue;
                };
                owners.push(self.type_name(&module));
                if seen.insert(parameter.as_ptr() as usize) {
                    gradients.push(buffer);
                }
            }
        }
        owners.sort_unstable();
        owners.dedup();
        owners.truncate(NAMED);
        if owners.is_empty() {
            owners.push("parameters".to_owned());
        }
        let largest = gradients.iter().max_by_key(|buffer| buffer.bytes);
        Ok(Some(Diagnosis {
            pattern: growth::GRADIENTS_NEVER_CLEARED,
            owner: owners.join(" and "),
            tensors: gradients.len(),
            bytes: gradients.iter().map(|buffer| buffer.bytes).sum(),
            example: largest.map(example_of).unwrap_or_default(),
            evidence: format!("in {STEPS} steps in a row each was added to, {and_what}"),
            ..Diagnosis::default()
        }))
    }

    fn some_code_clears_gradients(&self, py: Python<'_>) -> PyResult<bool> {
        let listed = self.gc.listed(py, None)?;
        let frozen = self.gc.frozen(py).into_iter();
        // SAFETY: attached; what is frozen is alive.
        let frozen = frozen.map(|it| unsafe { Bound::from_borrowed_ptr(py, it) });
        let all = listed.iter().chain(frozen);
        Ok(may_clear_gradients(
            py,
            &self.builtins,
            &self.current_frames,
            all,
        ))
    }
}

/// True if there is one reference to an object of a sample beside the sample's own: that of C++, if C++ holds it.
fn is_held_once(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached; the object is alive.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) <= 2 }
}

/// What is known of gradients that seem never to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncleared {
    /// In each step they were added to once, and nothing else was done to them.
    AddedToOnly,
    /// In each step they were written to, perhaps cleared.
    Perhaps,
}

/// The memory of a parameter's gradient.
fn gradient_memory(frameworks: &Frameworks, parameter: &Bound<'_, PyAny>) -> Option<DeviceBuffer> {
    let (gradient, _) = frameworks.gradient(parameter)?;
    let verdict = frameworks.verdict_of(&gradient);
    frameworks.buffer(verdict, &gradient, &DeviceSelection::Any)
}

/// Watches some parameters for gradients that are added to and never cleared.
///
/// To add to a gradient, or to fill it with zeros, raises the version of its tensor by one, and a new
/// gradient begins at zero. So a version that is one more after each step than after the one before says
/// that the gradient was added to once and not cleared. With `clip_grad_norm_`, which multiplies it, the
/// version cannot tell; then the program's code is asked whether anything in it clears gradients.
#[derive(Default)]
pub struct GradientWatch {
    watched: Vec<Watched>,
    said: bool,
}

struct Watched {
    parameter: Py<PyWeakrefReference>,
    /// The gradient's address and version at the last step.
    last: Option<(usize, i64)>,
    /// In how many steps in a row it was written to, and in how many of these once.
    in_row: u32,
    once: u32,
}

impl GradientWatch {
    /// Chooses the parameters to watch, unless those that were are alive.
    fn choose(
        &mut self,
        builtins: &Builtins,
        frameworks: &Frameworks,
        modules: &[Bound<'_, PyAny>],
    ) {
        let is_alive = |watched: &Watched, py| watched.parameter.bind(py).upgrade().is_some();
        let Some(py) = modules.first().map(Bound::py) else {
            return;
        };
        if self.said || self.watched.iter().any(|watched| is_alive(watched, py)) {
            return;
        }
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        self.watched = modules
            .iter()
            .flat_map(|module| parameters_of(builtins, module))
            .filter(|parameter| seen.insert(parameter.as_ptr() as usize))
            .filter(|parameter| gradient_memory(frameworks, parameter).is_some())
            .filter_map(|parameter| PyWeakrefReference::new(&parameter).ok())
            .take(WATCHED)
            .map(|parameter| Watched {
                parameter: parameter.unbind(),
                last: None,
                in_row: 0,
                once: 0,
            })
            .collect();
    }

    /// Looks at the versions, at the end of a step; says, once, what they tell.
    pub fn step(&mut self, inspector: &Inspector, py: Python<'_>) -> Option<Uncleared> {
        if self.said || self.watched.is_empty() {
            return None;
        }
        let frameworks = inspector.frameworks.try_borrow().ok()?;
        for watched in &mut self.watched {
            let parameter = watched.parameter.bind(py).upgrade();
            let gradient = parameter.and_then(|it| frameworks.gradient(&it));
            let now = gradient.map(|(gradient, version)| (gradient.as_ptr() as usize, version));
            let writes = match (watched.last, now) {
                (Some((before, last)), Some((gradient, version))) if before == gradient => {
                    version - last
                }
                _ => 0,
            };
            watched.in_row = if writes > 0 { watched.in_row + 1 } else { 0 };
            watched.once = if writes == 1 { watched.once + 1 } else { 0 };
            watched.last = now;
        }
        self.said = self.watched.iter().all(|watched| watched.in_row >= STEPS);
        let once = self.watched.iter().all(|watched| watched.once >= STEPS);
        self.said.then_some(match once {
            true => Uncleared::AddedToOnly,
            false => Uncleared::Perhaps,
        })
    }
}
