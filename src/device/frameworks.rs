//! The frameworks in the process, and the memory that their objects hold.

use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyTuple, PyType};

use super::autograd::{Autograd, FunctionParts};
use super::cuda_core;
use super::cupy::Cupy;
use super::described::{Described, Known};
use super::framework::{ArrayReference, Framework, Imported, Unread};
use super::jax::Jax;
use super::modules::{class, imported, module_count};
use super::numba::Numba;
use super::numpy::Numpy;
use super::proposal::Proposal;
use super::registered;
use super::rmm;
use super::sparse::PartsReadAhead;
use super::storage_watch::{Lent, StorageWatch};
use super::tensorflow::Tensorflow;
use super::torch::Torch;
use super::{DeviceBuffer, DeviceSelection};
use crate::cpython::{Builtins, Descriptor, Exporters, Instances, Verdict, new_text};

/// PyTorch's tensors.
pub(super) const TENSOR: Verdict = 1;
/// PyTorch's storages.
const STORAGE: Verdict = 2;
/// The first of the other frameworks; the number of each follows from its place in [`OTHERS`].
const OTHER: Verdict = 3;
const EXPORTER: Verdict = Verdict::MAX;
const FUNCTION: Verdict = EXPORTER - 1;

/// The first of those that the program registered.
const REGISTERED: Verdict = OTHER + OTHERS.len() as Verdict;

/// The frameworks besides PyTorch, in the order in which they are asked.
const OTHERS: [fn(Python<'_>, &Rc<Instances>) -> Adapter; 7] = [
    look_for::<Cupy>,
    look_for::<Numpy>,
    look_for::<Jax>,
    look_for::<Tensorflow>,
    look_for::<Numba>,
    |py, instances| look_for_known(py, instances, &rmm::BUFFER),
    |py, instances| look_for_known(py, instances, &cuda_core::BUFFER),
];

/// The frameworks that the program has imported so far.
pub struct Frameworks {
    pub(super) torch: Option<Torch>,
    others: [Adapter; OTHERS.len()],
    /// Those that the program registered, in this order; `None` for one that cannot be read any more.
    registered: Vec<Option<Described>>,
    instances: Rc<Instances>,
    /// How to read what a memoryview shows.
    pub(super) shown: Descriptor,
    /// A class of ours that derives from `weakref.ref`.
    reference: Py<PyType>,
    /// Number of modules at the last search for frameworks; 0 if one was still being imported.
    modules: usize,
}

/// What is known of a framework.
enum Adapter {
    NotImported,
    BeingImported,
    Unreadable,
    Known(Box<dyn Framework>),
}

impl Adapter {
    fn known(&self) -> Option<&dyn Framework> {
        match self {
            Self::Known(framework) => Some(&**framework),
            _ => None,
        }
    }
}

fn look_for<F: Imported + 'static>(py: Python<'_>, instances: &Rc<Instances>) -> Adapter {
    match imported(F::module(py)).map(|module| F::new(&module, instances)) {
        None => Adapter::NotImported,
        Some(Ok(framework)) => Adapter::Known(Box::new(framework)),
        Some(Err(Unread::NotYet)) => Adapter::BeingImported,
        Some(Err(Unread::Never)) => Adapter::Unreadable,
    }
}

fn look_for_known(py: Python<'_>, instances: &Rc<Instances>, known: &Known) -> Adapter {
    let Some(module) = new_text(py, known.module).and_then(|name| imported(&name)) else {
        return Adapter::NotImported;
    };
    let Ok(class) = class(&module, known.class) else {
        return Adapter::BeingImported;
    };
    match Described::new(&class, &known.description, instances) {
        Ok(described) => Adapter::Known(Box::new(described)),
        Err(_) => Adapter::Unreadable,
    }
}

impl Frameworks {
    /// None so far.
    pub fn new(py: Python<'_>, instances: &Rc<Instances>) -> PyResult<Self> {
        let names = PyDict::new(py);
        names.set_item("__slots__", PyTuple::empty(py))?;
        names.set_item("__module__", "cyclescope")?;
        let base = py.import("weakref")?.getattr("ref")?;
        let reference = py
            .get_type::<PyType>()
            .call1(("StorageWatch", (base,), names))?;
        Ok(Self {
            torch: None,
            others: [const { Adapter::NotImported }; OTHERS.len()],
            registered: Vec::new(),
            instances: Rc::clone(instances),
            shown: Descriptor::of(&py.get_type::<PyMemoryView>(), "obj")?,
            reference: reference.cast_into::<PyType>()?.unbind(),
            modules: 0,
        })
    }

    /// Looks for frameworks that the program has imported since, as a look begins; true if there is a new one.
    ///
    /// Never imports anything itself. A module that is still being imported is tried again at the
    /// next call.
    pub fn refresh(&mut self, py: Python<'_>) -> bool {
        let found = self.look_for_new(py);
        for framework in self.others() {
            framework.begin_look(py);
        }
        found
    }

    fn look_for_new(&mut self, py: Python<'_>) -> bool {
        // While a module is being imported it is there, but not all of it: then this is asked again.
        let modules = module_count(py);
        let registered = self.take_registered(py);
        if modules == self.modules {
            return registered;
        }
        let (mut found, mut unfinished) = (registered, false);
        if self.torch.is_none()
            && let Some(native) = imported(Torch::module(py))
        {
            self.torch = Torch::new(&native, &self.instances).ok();
            found |= self.torch.is_some();
            unfinished |= self.torch.is_none();
        }
        for (adapter, look_for) in self.others.iter_mut().zip(OTHERS) {
            if matches!(adapter, Adapter::NotImported | Adapter::BeingImported) {
                *adapter = look_for(py, &self.instances);
                found |= adapter.known().is_some();
                unfinished |= matches!(adapter, Adapter::BeingImported);
            }
        }
        self.modules = if unfinished { 0 } else { modules };
        found
    }

    /// Takes over what the program has registered since; true if that is anything.
    fn take_registered(&mut self, py: Python<'_>) -> bool {
        let new = registered::from(py, self.registered.len());
        let found = !new.is_empty();
        for (class, description) in new {
            let described =
                description.with(|it| Described::new(class.bind(py), it, &self.instances));
            self.registered.push(described.ok());
        }
        found
    }

    /// True if there is any framework whose objects could be looked for.
    pub fn any(&self) -> bool {
        self.torch.is_some() || self.others().next().is_some()
    }

    fn others(&self) -> impl Iterator<Item = &dyn Framework> {
        let registered = self.registered.iter().flatten();
        let registered = registered.map(|it| it as &dyn Framework);
        self.others
            .iter()
            .filter_map(Adapter::known)
            .chain(registered)
    }

    /// True if there may be arrays of others than PyTorch on some of `devices`.
    pub fn may_have_arrays(&self, devices: &DeviceSelection) -> bool {
        let host = devices.includes_host();
        self.others().any(|it| host || it.uses_devices())
    }

    /// Which adapter, if any, knows objects of a type.
    ///
    /// # Safety
    /// `ty` is a live type and the caller is attached to the interpreter.
    pub unsafe fn classify(&self, ty: *mut ffi::PyTypeObject) -> Verdict {
        // SAFETY: by this function's contract.
        unsafe {
            if let Some(torch) = &self.torch {
                if torch.is_tensor_type(ty) {
                    return TENSOR;
                }
                if torch.is_storage_type(ty) {
                    return STORAGE;
                }
            }
            for (verdict, adapter) in (OTHER..).zip(&self.others) {
                if adapter.known().is_some_and(|it| it.knows(ty)) {
                    return verdict;
                }
            }
            for (verdict, adapter) in (REGISTERED..FUNCTION).zip(&self.registered) {
                if adapter.as_ref().is_some_and(|it| it.knows(ty)) {
                    return verdict;
                }
            }
        }
        0
    }

    /// As [`Frameworks::classify`], with the types that lend their memory by the buffer protocol, on which arrays and
    /// tensors may be, and PyTorch's autograd functions, which save tensors.
    ///
    /// # Safety
    /// As for [`Frameworks::classify`].
    pub unsafe fn classify_all(&self, ty: *mut ffi::PyTypeObject) -> Verdict {
        let torch = self.torch.as_ref();
        // SAFETY: by this function's contract.
        unsafe {
            match self.classify(ty) {
                0 if Exporters::is_exporter(ty) && !self.others().any(|it| it.is_small(ty)) => {
                    EXPORTER
                }
                0 if torch.is_some_and(|torch| torch.autograd().is_function_type(ty)) => FUNCTION,
                verdict => verdict,
            }
        }
    }

    /// The adapter behind a verdict.
    pub(super) fn framework(&self, verdict: Verdict) -> Option<&dyn Framework> {
        match verdict {
            TENSOR | STORAGE => self.torch.as_ref().map(|torch| torch as &dyn Framework),
            _ => {
                let place = usize::from(verdict.checked_sub(OTHER)?);
                match place.checked_sub(OTHERS.len()) {
                    None => self.others.get(place)?.known(),
                    Some(place) => {
                        let described = self.registered.get(place)?.as_ref()?;
                        Some(described as &dyn Framework)
                    }
                }
            }
        }
    }

    /// The memory that an object uses or lends, and whether it is all of an allocation, for
    /// [`Frameworks::classify_all`].
    pub fn extents(
        &self,
        exporters: &Exporters,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
    ) -> Vec<(DeviceBuffer, bool)> {
        if verdict == EXPORTER {
            let memory = exporters.memory(object).map(|(pointer, bytes, is_whole)| {
                let proposal = Proposal::new(pointer, bytes, "cpu".to_owned());
                (proposal.buffer, is_whole)
            });
            return memory.into_iter().collect();
        }
        let Some(framework) = self.framework(verdict) else {
            return Vec::new();
        };
        if let Some((proposal, is_own)) = framework.extent(object)
            && !self.is_on_unplaced(framework, object)
        {
            return vec![(proposal.buffer, is_own)];
        }
        let buffers = self.buffers(verdict, object, &DeviceSelection::Any);
        buffers.into_iter().map(|buffer| (buffer, true)).collect()
    }

    /// True if an object looks into memory of which only its holder is known.
    fn is_on_unplaced(&self, framework: &dyn Framework, object: &Bound<'_, PyAny>) -> bool {
        let lender = framework
            .way_to_lender(object)
            .and_then(|mut way| way.pop());
        lender.is_some_and(|lender| {
            let lender = self.shown_by(&lender).unwrap_or(lender);
            let lending = self.framework(self.verdict_of(&lender));
            let lent = lending.map(|lending| lending.memory(&lender));
            lent.into_iter().flatten().any(|it| !it.buffer.is_placed)
        })
    }

    /// What knows the tensors of PyTorch, of an object with this verdict.
    fn torch_of(&self, verdict: Verdict) -> Option<&Torch> {
        self.torch.as_ref().filter(|_| verdict == TENSOR)
    }

    /// What tells the storage of a tensor from all others.
    pub fn storage_identity(&self, tensor: &Bound<'_, PyAny>) -> Option<u64> {
        self.torch.as_ref()?.storage_identity(tensor)
    }

    /// As [`Framework::base`], of an object with this verdict.
    pub fn base(&self, verdict: Verdict, object: &Bound<'_, PyAny>) -> Option<usize> {
        let base = self.framework(verdict)?.base(object)?;
        Some(base as usize)
    }

    /// As [`Framework::for_each_untraversed`], of an object with this verdict.
    pub fn for_each_untraversed(
        &self,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
        mut f: impl FnMut(ArrayReference, *mut ffi::PyObject),
    ) {
        if let Some(framework) = self.framework(verdict) {
            framework.for_each_untraversed(object, &mut f);
        }
    }

    /// What a framework calls references of its objects that have no name in Python.
    pub fn attributes<'py>(
        &self,
        verdict: Verdict,
        object: &Bound<'py, PyAny>,
    ) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        let torch = self.torch_of(verdict);
        torch.map_or_else(Vec::new, |torch| torch.attributes(object))
    }

    /// What a tensor owns in C++: `grad`, `grad_fn`, `_base`.
    pub fn owned<'py>(
        &self,
        verdict: Verdict,
        object: &Bound<'py, PyAny>,
    ) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        let torch = self.torch_of(verdict);
        torch.map_or_else(Vec::new, |torch| torch.owned(object))
    }

    /// True for a storage of PyTorch's, and for a tensor as [`Torch::may_be_held_by_cpp`] has it.
    pub fn may_be_held_by_cpp(&self, verdict: Verdict, object: &Bound<'_, PyAny>) -> bool {
        match (verdict, &self.torch) {
            (TENSOR, Some(torch)) => torch.may_be_held_by_cpp(object),
            _ => verdict == STORAGE,
        }
    }

    /// As [`Torch::references_in_cpp`].
    pub fn references_in_cpp(&self, verdict: Verdict, object: &Bound<'_, PyAny>) -> Option<i64> {
        self.torch_of(verdict)?.references_in_cpp(object)
    }

    /// As [`Torch::is_view_of`].
    pub fn is_view_of(
        &self,
        verdict: Verdict,
        view: &Bound<'_, PyAny>,
        base: &Bound<'_, PyAny>,
    ) -> bool {
        let torch = self.torch_of(verdict);
        torch.is_some_and(|torch| torch.is_view_of(view, base))
    }

    /// What an autograd function of PyTorch's owns in C++.
    pub fn function_parts<'py>(
        &self,
        builtins: &Builtins,
        function: &Bound<'py, PyAny>,
    ) -> FunctionParts<'py> {
        let torch = self.torch.as_ref();
        torch.map_or_else(FunctionParts::default, |torch| {
            torch.function_parts(builtins, function)
        })
    }

    /// What knows PyTorch's autograd functions, once PyTorch is imported.
    pub fn autograd(&self) -> Option<&Autograd> {
        self.torch.as_ref().map(Torch::autograd)
    }

    /// The gradient of a leaf, and how often it was written to.
    pub fn gradient<'py>(&self, leaf: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, i64)> {
        let torch = self.torch_of(self.verdict_of(leaf))?;
        (!torch.has_grad_fn(leaf)).then(|| torch.gradient(leaf))?
    }

    /// The gradient of a tensor, as [`Torch::gradient_of`].
    pub fn gradient_of<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        shared: bool,
    ) -> Option<Bound<'py, PyAny>> {
        let torch = self.torch_of(self.verdict_of(tensor))?;
        torch.gradient_of(tensor, shared)
    }

    /// Reads the parts of these sparse tensors, and no others until the result is dropped, so that no other thread runs.
    pub fn read_parts_ahead(
        &self,
        py: Python<'_>,
        tensors: Vec<Py<PyAny>>,
    ) -> Option<PartsReadAhead> {
        let torch = self.torch.as_ref()?;
        Some(torch.read_parts_ahead(py, tensors))
    }

    /// The tensors with the memory of a tensor, as [`Torch::dense_parts`].
    pub fn dense_parts<'py>(&self, tensor: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let torch = self.torch.as_ref();
        torch.map_or_else(Vec::new, |torch| torch.dense_parts(tensor))
    }

    /// True for a tensor that asks for a gradient.
    pub fn requires_grad(&self, verdict: Verdict, object: &Bound<'_, PyAny>) -> bool {
        let torch = self.torch_of(verdict);
        torch.is_some_and(|torch| torch.requires_grad(object))
    }

    /// The adapter's number for an object, 0 if no adapter knows its type.
    pub fn verdict_of(&self, object: &Bound<'_, PyAny>) -> Verdict {
        // SAFETY: attached, and the object and its type are alive.
        unsafe { self.classify(ffi::Py_TYPE(object.as_ptr())) }
    }

    /// True for the tensors and arrays that the collector tracks, all of them.
    pub fn is_tracked(&self, verdict: Verdict) -> bool {
        let framework = self.framework(verdict);
        verdict == TENSOR || verdict != STORAGE && framework.is_some_and(|it| it.is_tracked())
    }

    /// True for what is a tensor of PyTorch's by its verdict.
    pub fn is_tensor(verdict: Verdict) -> bool {
        verdict == TENSOR
    }

    /// True for what lends memory and is no array or tensor, by its verdict.
    pub fn is_exporter(verdict: Verdict) -> bool {
        verdict == EXPORTER
    }

    /// True for what is an autograd function of PyTorch's, by its verdict.
    pub fn is_function(verdict: Verdict) -> bool {
        verdict == FUNCTION
    }

    /// True for what is a storage of PyTorch's by its verdict.
    pub fn is_storage(verdict: Verdict) -> bool {
        verdict == STORAGE
    }

    /// True for a tensor with an autograd graph behind it.
    pub fn has_grad_fn(&self, verdict: Verdict, object: &Bound<'_, PyAny>) -> bool {
        let torch = self.torch_of(verdict);
        torch.is_some_and(|torch| torch.has_grad_fn(object))
    }

    /// Starts to watch the memory at `pointer` that an object holds, where the framework can. `own` says how many
    /// references the caller has to the object at an address.
    pub fn watch_storage(
        &self,
        verdict: Verdict,
        holder: &Bound<'_, PyAny>,
        pointer: u64,
        own: &dyn Fn(usize) -> i64,
    ) -> StorageWatch {
        let way = self
            .framework(verdict)
            .and_then(|framework| framework.way_to_lender(holder));
        let Some(mut way) = way else {
            return StorageWatch::Blind;
        };
        way.insert(0, holder.clone());
        let shown = way.last().and_then(|lender| self.shown_by(lender));
        way.extend(shown);
        if let Some(lender) = way.last()
            && let Some(framework) = self.framework(self.verdict_of(lender))
            && let Some(watch) = framework.watch(lender, pointer)
        {
            return watch;
        }
        Lent::watch(self.reference.bind(holder.py()), way, own)
            .map_or(StorageWatch::Blind, StorageWatch::Lent)
    }

    /// In a collection between finalizers and destruction: true if the memory at `pointer` is gone. What a finalizer may
    /// have saved is looked at anew.
    pub fn is_gone_after_finalizers(
        &self,
        py: Python<'_>,
        pointer: u64,
        watch: &mut StorageWatch,
    ) -> bool {
        let lent = match watch {
            StorageWatch::Lent(lent) if lent.counts() => lent,
            StorageWatch::Lent(lent) => {
                // What has no weak references is taken to be there still.
                return lent.is_gone(py, &|_| Some(false), &|_| Some(true)) == Some(true);
            }
            StorageWatch::Torch(storage) => return storage.is_gone(py) == Some(true),
            StorageWatch::Blind => return false,
        };
        let mut again = StorageWatch::Blind;
        // Where one has gone, nobody knows whether a finalizer saved what it looked into.
        for user in lent.users(py).into_iter().flatten() {
            let anew = || self.watch_storage(self.verdict_of(&user), &user, pointer, &|_| 0);
            match again {
                StorageWatch::Blind => again = anew(),
                _ => again.join(anew),
            }
        }
        *watch = again;
        false
    }
}
