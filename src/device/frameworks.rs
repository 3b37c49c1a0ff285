//! The frameworks in the process, and what memory their objects hold.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyTuple, PyType};

use super::autograd::{Autograd, FunctionParts};
use super::cupy::Cupy;
use super::driver::{PointerKind, pointer_kind};
use super::modules::{imported, module_count};
use super::numpy::Numpy;
use super::torch::{Torch, WeakStorage};
use super::{DeviceBuffer, DeviceSelection};
use crate::heap::{Builtins, Verdict, reference_count};

const TENSOR: Verdict = 1;
const STORAGE: Verdict = 2;
const NUMPY_ARRAY: Verdict = 3;
const CUPY_ARRAY: Verdict = 4;

/// A framework's word on what memory an object holds, not yet confirmed.
pub struct Proposal {
    pub buffer: DeviceBuffer,
}

impl Proposal {
    pub fn new(pointer: u64, bytes: u64, device: String) -> Self {
        let buffer = DeviceBuffer {
            pointer,
            bytes,
            device,
            dtype: None,
            shape: None,
            confirmed: false,
        };
        Self { buffer }
    }
}

/// The frameworks that the program has imported so far.
pub struct Frameworks {
    torch: Option<Torch>,
    numpy: Option<Numpy>,
    cupy: Option<Cupy>,
    /// A class of ours that derives from `weakref.ref`.
    reference: Py<PyType>,
    /// How many modules there were at the last look for frameworks; 0 if one of them was not all there.
    modules: usize,
}

impl Frameworks {
    /// None so far.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let names = PyDict::new(py);
        names.set_item("__slots__", PyTuple::empty(py))?;
        names.set_item("__module__", "cyclescope")?;
        let base = py.import("weakref")?.getattr("ref")?;
        let reference = py
            .get_type::<PyType>()
            .call1(("StorageWatch", (base,), names))?;
        Ok(Self {
            torch: None,
            numpy: None,
            cupy: None,
            reference: reference.cast_into::<PyType>()?.unbind(),
            modules: 0,
        })
    }

    /// Looks for frameworks that the program has imported since; true if there is a new one.
    ///
    /// Never imports anything itself. A module that is still being imported is tried again at the
    /// next call.
    pub fn refresh(&mut self, py: Python<'_>) -> bool {
        // While a module is being imported it is there, but not all of it: then this is asked again.
        let modules = module_count(py);
        if modules == self.modules {
            return false;
        }
        let (mut found, mut unfinished) = (false, false);
        if self.torch.is_none()
            && let Some(native) = imported(intern!(py, "torch._C"))
        {
            self.torch = Torch::new(&native).ok();
            found |= self.torch.is_some();
            unfinished |= self.torch.is_none();
        }
        if self.numpy.is_none()
            && let Some(numpy) = imported(intern!(py, "numpy"))
        {
            self.numpy = Numpy::new(&numpy).ok();
            found |= self.numpy.is_some();
            unfinished |= self.numpy.is_none();
        }
        if self.cupy.is_none()
            && let Some(cupy) = imported(intern!(py, "cupy"))
        {
            self.cupy = Cupy::new(&cupy).ok();
            found |= self.cupy.is_some();
            unfinished |= self.cupy.is_none();
        }
        self.modules = if unfinished { 0 } else { modules };
        found
    }

    /// True if there is any framework whose objects could be looked for.
    pub fn any(&self) -> bool {
        self.torch.is_some() || self.numpy.is_some() || self.cupy.is_some()
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
            if self
                .cupy
                .as_ref()
                .is_some_and(|cupy| cupy.is_array_type(ty))
            {
                return CUPY_ARRAY;
            }
            if self
                .numpy
                .as_ref()
                .is_some_and(|numpy| numpy.is_array_type(ty))
            {
                return NUMPY_ARRAY;
            }
        }
        0
    }

    /// The buffer that an object holds on one of `devices`, as far as framework and driver agree.
    pub fn buffer(
        &self,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
        devices: &DeviceSelection,
    ) -> Option<DeviceBuffer> {
        let host = devices.includes_kind("cpu");
        let proposal = match verdict {
            TENSOR => {
                let torch = self.torch.as_ref()?;
                if !host && torch.is_on_cpu(object) {
                    return None;
                }
                torch.tensor(object)
            }
            STORAGE => self.torch.as_ref()?.storage(object),
            NUMPY_ARRAY if !host => None,
            NUMPY_ARRAY | CUPY_ARRAY => self.array(verdict, object),
            _ => None,
        }?;
        self.confirm(object.py(), proposal.buffer)
            .filter(|buffer| devices.contains(&buffer.device))
    }

    /// What memory an array has, of its own or of the tensor that it looks into.
    fn array(&self, verdict: Verdict, array: &Bound<'_, PyAny>) -> Option<Proposal> {
        let lender = self.lender(verdict, array)?;
        let mut proposal = match verdict {
            NUMPY_ARRAY => self.numpy.as_ref()?.array(array),
            _ => self.cupy.as_ref()?.array(array, self.numpy.as_ref()),
        }?;
        match self.tensor_verdict(&lender) {
            0 => {}
            verdict => {
                let torch = self.torch.as_ref()?;
                let lent = if verdict == TENSOR {
                    torch.tensor(&lender)
                } else {
                    torch.storage(&lender)
                }?;
                proposal.buffer.pointer = lent.buffer.pointer;
                proposal.buffer.bytes = lent.buffer.bytes;
                proposal.buffer.device = lent.buffer.device;
            }
        }
        Some(proposal)
    }

    /// The object that an array's memory belongs to; `None` if that is not known.
    fn lender<'py>(
        &self,
        verdict: Verdict,
        array: &Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyAny>> {
        let lender = match verdict {
            NUMPY_ARRAY => self.numpy.as_ref()?.chain(array).pop()?,
            _ => return self.cupy.as_ref()?.chain(array)?.pop(),
        };
        let known = self.tensor_verdict(&lender) != 0 || self.numpy.as_ref()?.is_owner(&lender);
        known.then_some(lender)
    }

    /// [`TENSOR`] or [`STORAGE`] for such, else 0.
    fn tensor_verdict(&self, object: &Bound<'_, PyAny>) -> Verdict {
        // SAFETY: attached, and the object and its type are alive.
        let verdict = unsafe { self.classify(ffi::Py_TYPE(object.as_ptr())) };
        if matches!(verdict, TENSOR | STORAGE) {
            verdict
        } else {
            0
        }
    }

    /// Asks the driver about a proposed CUDA buffer. Other devices go by the framework's word.
    fn confirm(&self, py: Python<'_>, mut buffer: DeviceBuffer) -> Option<DeviceBuffer> {
        let driver_knows = buffer.device.starts_with("cuda")
            && self
                .torch
                .as_ref()
                .is_none_or(|torch| !torch.hip && !torch.is_in_bad_fork(py));
        if !driver_knows {
            return Some(buffer);
        }
        match pointer_kind(buffer.pointer) {
            PointerKind::Device { ordinal } => {
                buffer.confirmed = true;
                if let Some(ordinal) = ordinal {
                    buffer.device = format!("cuda:{ordinal}");
                }
                Some(buffer)
            }
            PointerKind::Unanswered => Some(buffer),
            PointerKind::Host | PointerKind::Unknown => None,
        }
    }

    /// What a framework calls references of its objects that have no name in Python.
    pub fn attributes<'py>(
        &self,
        verdict: Verdict,
        object: &Bound<'py, PyAny>,
    ) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        match (verdict, &self.torch) {
            (TENSOR, Some(torch)) => torch.attributes(object),
            _ => Vec::new(),
        }
    }

    /// What a tensor owns in C++: `grad`, `grad_fn`, `_base`.
    pub fn owned<'py>(
        &self,
        verdict: Verdict,
        object: &Bound<'py, PyAny>,
    ) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        match (verdict, &self.torch) {
            (TENSOR, Some(torch)) => torch.owned(object),
            _ => Vec::new(),
        }
    }

    /// What an autograd function of PyTorch's owns in C++.
    pub fn function_parts<'py>(
        &self,
        builtins: &Builtins,
        function: &Bound<'py, PyAny>,
    ) -> FunctionParts<'py> {
        self.torch
            .as_ref()
            .map(|torch| torch.function_parts(builtins, function))
            .unwrap_or_default()
    }

    /// What knows PyTorch's autograd functions, once PyTorch is imported.
    pub fn autograd(&self) -> Option<&Autograd> {
        self.torch.as_ref().map(Torch::autograd)
    }

    /// The gradient of a leaf, and how often it was written to.
    pub fn gradient<'py>(&self, leaf: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, i64)> {
        match (self.verdict_of(leaf), &self.torch) {
            (TENSOR, Some(torch)) if !torch.has_grad_fn(leaf) => torch.gradient(leaf),
            _ => None,
        }
    }

    /// True for a tensor that asks for a gradient.
    pub fn requires_grad(&self, verdict: Verdict, object: &Bound<'_, PyAny>) -> bool {
        match (verdict, &self.torch) {
            (TENSOR, Some(torch)) => torch.requires_grad(object),
            _ => false,
        }
    }

    /// The adapter's number for an object, 0 if no adapter knows its type.
    pub fn verdict_of(&self, object: &Bound<'_, PyAny>) -> Verdict {
        // SAFETY: attached, and the object and its type are alive.
        unsafe { self.classify(ffi::Py_TYPE(object.as_ptr())) }
    }

    /// True for what is a tensor by its verdict.
    pub fn is_tensor(verdict: Verdict) -> bool {
        verdict == TENSOR
    }

    /// True for what is a storage of PyTorch's by its verdict.
    pub fn is_storage(verdict: Verdict) -> bool {
        verdict == STORAGE
    }

    /// True for a tensor with an autograd graph behind it.
    pub fn has_grad_fn(&self, verdict: Verdict, object: &Bound<'_, PyAny>) -> bool {
        match (verdict, &self.torch) {
            (TENSOR, Some(torch)) => torch.has_grad_fn(object),
            _ => false,
        }
    }

    /// Starts to watch the memory of a buffer's holder, where the framework can. `own` says how many references the
    /// caller has to the object at an address.
    pub fn watch_storage(
        &self,
        verdict: Verdict,
        holder: &Bound<'_, PyAny>,
        own: &dyn Fn(usize) -> i64,
    ) -> StorageWatch {
        let chain = match verdict {
            NUMPY_ARRAY => self.numpy.as_ref().map(|numpy| numpy.chain(holder)),
            CUPY_ARRAY => self.cupy.as_ref().and_then(|cupy| cupy.chain(holder)),
            _ => Some(vec![holder.clone()]),
        };
        let Some(chain) = chain else {
            return StorageWatch::Blind;
        };
        match (chain.last(), &self.torch) {
            (Some(lender), Some(torch)) if self.tensor_verdict(lender) != 0 => torch
                .weak_storage(lender)
                .map_or(StorageWatch::Blind, StorageWatch::Torch),
            _ => Lent::watch(self.reference.bind(holder.py()), chain, own)
                .map_or(StorageWatch::Blind, StorageWatch::Lent),
        }
    }
}

/// A weak hold on a buffer's memory, which keeps nothing from being freed: tells afterwards whether
/// the memory really went.
pub enum StorageWatch {
    /// PyTorch's own weak handle of a storage.
    Torch(WeakStorage),
    Lent(Lent),
    /// The framework offers nothing.
    Blind,
}

/// Memory of a Python object, the lender, which goes with it.
pub struct Lent {
    /// The lender, and what leads to it, as far as no weak reference can refer to them; none if one can refer to the
    /// lender.
    links: Vec<Link>,
    /// The objects that alone keep the links, or the lender itself; weakly.
    holders: Vec<Holder>,
}

/// An object that goes when all that refers to it goes.
struct Link {
    address: usize,
    /// How many references there are to it.
    references: i64,
    /// The addresses of the objects that are known to have one.
    referrers: Vec<usize>,
}

struct Holder {
    address: usize,
    weak: Py<PyAny>,
    /// The collector clears weak references to objects that it means to free before it runs finalizers, and one of
    /// those may save the object.
    collectable: bool,
}

impl StorageWatch {
    /// Takes account of another holder of the same memory.
    pub fn join(&mut self, other: impl FnOnce() -> Self) {
        if let Self::Lent(lent) = self
            && !lent.is_known_whole()
            && let Self::Lent(other) = other()
        {
            lent.add(other);
        }
    }

    /// Whether the memory is gone; `None` if there is no telling.
    ///
    /// Of an object to which weak references were cleared, `is_alive` says by its address whether the collector
    /// still knows it.
    pub fn into_gone(
        self,
        py: Python<'_>,
        is_alive: &dyn Fn(usize) -> Option<bool>,
    ) -> Option<bool> {
        match self {
            Self::Torch(storage) => storage.is_gone(py),
            Self::Lent(lent) => lent.is_gone(py, is_alive),
            Self::Blind => None,
        }
    }
}

impl Lent {
    /// A watch on what the last of a chain of objects lends, each of which refers to the next.
    fn watch(
        class: &Bound<'_, PyType>,
        mut chain: Vec<Bound<'_, PyAny>>,
        own: &dyn Fn(usize) -> i64,
    ) -> Option<Self> {
        let mut links = Vec::new();
        while let Some(object) = chain.pop() {
            if let Some(holder) = Holder::new(class, &object) {
                let holders = vec![holder];
                return Some(Self { links, holders });
            }
            let address = object.as_ptr() as usize;
            // SAFETY: attached, and the object is alive. One reference is that of the chain.
            let references = unsafe { reference_count(object.as_ptr()) } - 1 - own(address);
            links.push(Link {
                address,
                references,
                referrers: vec![chain.last()?.as_ptr() as usize],
            });
        }
        None
    }

    fn add(&mut self, other: Self) {
        for link in other.links {
            match self
                .links
                .iter_mut()
                .find(|known| known.address == link.address)
            {
                Some(known) => {
                    for referrer in link.referrers {
                        if !known.referrers.contains(&referrer) {
                            known.referrers.push(referrer);
                        }
                    }
                }
                None => self.links.push(link),
            }
        }
        for holder in other.holders {
            if !self
                .holders
                .iter()
                .any(|known| known.address == holder.address)
            {
                self.holders.push(holder);
            }
        }
    }

    /// True if all that keeps the lender is known.
    fn is_known_whole(&self) -> bool {
        self.links
            .iter()
            .all(|link| link.referrers.len() as i64 >= link.references)
    }

    fn is_gone(&self, py: Python<'_>, is_alive: &dyn Fn(usize) -> Option<bool>) -> Option<bool> {
        if !self.is_known_whole() {
            return None;
        }
        for holder in &self.holders {
            if holder.is_there(py) {
                return Some(false);
            }
            if holder.collectable && is_alive(holder.address)? {
                return Some(false);
            }
        }
        Some(true)
    }
}

impl Holder {
    /// `None` for an object that no weak reference can refer to.
    ///
    /// `class` derives from `weakref.ref`: a plain reference without a callback may be one that the program has
    /// already (`get_basic_refs` in Objects/weakrefobject.c). It may be garbage, which holding it would keep alive.
    fn new(class: &Bound<'_, PyType>, object: &Bound<'_, PyAny>) -> Option<Self> {
        if object.is_exact_instance_of::<PyBytes>() || object.is_exact_instance_of::<PyByteArray>()
        {
            return None;
        }
        // SAFETY: attached; without a callback, a weak reference runs no code. Nobody else has it, and it refers to
        // nothing, so the collector need not know it.
        unsafe {
            let end = std::ptr::null_mut::<ffi::PyObject>();
            let weak = ffi::PyObject_CallFunctionObjArgs(class.as_ptr(), object.as_ptr(), end);
            let Some(weak) = Bound::from_owned_ptr_or_opt(object.py(), weak) else {
                ffi::PyErr_Clear();
                return None;
            };
            ffi::PyObject_GC_UnTrack(weak.as_ptr().cast());
            let flags = ffi::PyType_GetFlags(ffi::Py_TYPE(object.as_ptr()));
            Some(Self {
                address: object.as_ptr() as usize,
                weak: weak.unbind(),
                collectable: flags & ffi::Py_TPFLAGS_HAVE_GC != 0,
            })
        }
    }

    /// True if the object is there; a weak reference to it may have been cleared all the same.
    fn is_there(&self, _py: Python<'_>) -> bool {
        let mut object = std::ptr::null_mut();
        // SAFETY: attached; on success this is a new reference, given up here.
        unsafe {
            if ffi::compat::PyWeakref_GetRef(self.weak.as_ptr(), &mut object) == 1 {
                ffi::Py_DecRef(object);
                return true;
            }
            ffi::PyErr_Clear();
        }
        false
    }
}
