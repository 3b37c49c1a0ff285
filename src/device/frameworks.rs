//! The frameworks in the process, and the memory that their objects hold.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::autograd::{Autograd, FunctionParts};
use super::cupy::Cupy;
use super::driver::{PointerKind, pointer_kind};
use super::modules::{imported, module_count};
use super::numpy::{ArrayReference, Numpy};
use super::proposal::Proposal;
use super::storage_watch::{Lent, StorageWatch};
use super::torch::Torch;
use super::{DeviceBuffer, DeviceSelection};
use crate::cpython::{Builtins, Exporters, Verdict};

const TENSOR: Verdict = 1;
const STORAGE: Verdict = 2;
const NUMPY_ARRAY: Verdict = 3;
const CUPY_ARRAY: Verdict = 4;
const EXPORTER: Verdict = 5;

/// The frameworks that the program has imported so far.
pub struct Frameworks {
    torch: Option<Torch>,
    numpy: Option<Numpy>,
    cupy: Option<Cupy>,
    /// A class of ours that derives from `weakref.ref`.
    reference: Py<PyType>,
    /// Number of modules at the last search for frameworks; 0 if one was still being imported.
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

    /// As [`Frameworks::classify`], with the types that lend their memory by the buffer protocol, on which arrays and
    /// tensors may be.
    ///
    /// # Safety
    /// As for [`Frameworks::classify`].
    pub unsafe fn classify_with_exporters(&self, ty: *mut ffi::PyTypeObject) -> Verdict {
        // SAFETY: by this function's contract.
        unsafe {
            let numpy = self.numpy.as_ref();
            match self.classify(ty) {
                0 if Exporters::is_exporter(ty)
                    && !numpy.is_some_and(|numpy| numpy.is_scalar_type(ty)) =>
                {
                    EXPORTER
                }
                verdict => verdict,
            }
        }
    }

    /// The memory that an object uses or lends, and whether it is all of an allocation, for
    /// [`Frameworks::classify_with_exporters`].
    pub fn extent(
        &self,
        exporters: &Exporters,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
    ) -> Option<(DeviceBuffer, bool)> {
        match verdict {
            NUMPY_ARRAY => {
                let (proposal, is_own) = self.numpy.as_ref()?.extent(object)?;
                Some((proposal.buffer, is_own))
            }
            EXPORTER => {
                let (pointer, bytes, is_whole) = exporters.memory(object)?;
                let proposal = Proposal::new(pointer, bytes, "cpu".to_owned());
                Some((proposal.buffer, is_whole))
            }
            _ => Some((self.buffer(verdict, object, &DeviceSelection::Any)?, true)),
        }
    }

    /// What tells the storage of a tensor from all others.
    pub fn storage_identity(&self, tensor: &Bound<'_, PyAny>) -> Option<u64> {
        self.torch.as_ref()?.storage_identity(tensor)
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

    /// As [`Numpy::for_each_referent`], of an object with this verdict.
    pub fn for_each_untraversed(
        &self,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
        f: impl FnMut(ArrayReference, *mut ffi::PyObject),
    ) {
        if let (NUMPY_ARRAY, Some(numpy)) = (verdict, &self.numpy) {
            numpy.for_each_referent(object, f);
        }
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

    /// True for what lends memory and is no array or tensor, by its verdict.
    pub fn is_exporter(verdict: Verdict) -> bool {
        verdict == EXPORTER
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
