//! The frameworks in the process, and what memory their objects hold.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

use super::cupy::Cupy;
use super::driver::{PointerKind, pointer_kind};
use super::modules::imported_module;
use super::numpy::Numpy;
use super::torch::Torch;
use super::{DeviceBuffer, DeviceSelection};
use crate::heap::Verdict;

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
}

impl Frameworks {
    /// None yet; see [`Frameworks::refresh`].
    pub fn new() -> Self {
        Self {
            torch: None,
            numpy: None,
            cupy: None,
        }
    }

    /// Looks for frameworks that the program has imported since; true if there is a new one.
    ///
    /// Never imports anything itself. A module that is still being imported is tried again at the
    /// next call.
    pub fn refresh(&mut self, py: Python<'_>) -> bool {
        let mut found = false;
        if self.torch.is_none()
            && let Some(native) = imported_module(intern!(py, "torch._C"))
            && let Some(torch) = imported_module(intern!(py, "torch"))
        {
            self.torch = Torch::new(&native, &torch).ok();
            found |= self.torch.is_some();
        }
        if self.numpy.is_none()
            && let Some(numpy) = imported_module(intern!(py, "numpy"))
        {
            self.numpy = Numpy::new(&numpy).ok();
            found |= self.numpy.is_some();
        }
        if self.cupy.is_none()
            && let Some(cupy) = imported_module(intern!(py, "cupy"))
        {
            self.cupy = Cupy::new(&cupy).ok();
            found |= self.cupy.is_some();
        }
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
            NUMPY_ARRAY if host => self.numpy.as_ref()?.array(object),
            CUPY_ARRAY => self.cupy.as_ref()?.array(object),
            _ => None,
        }?;
        if !devices.contains(&proposal.buffer.device) {
            return None;
        }
        self.confirm(proposal)
    }

    /// Asks the driver about a proposed CUDA buffer. Other devices go by the framework's word.
    fn confirm(&self, proposal: Proposal) -> Option<DeviceBuffer> {
        let mut buffer = proposal.buffer;
        let hip = self.torch.as_ref().is_some_and(|torch| torch.hip);
        if !buffer.device.starts_with("cuda") || hip {
            return Some(buffer);
        }
        match pointer_kind(buffer.pointer) {
            PointerKind::Device { .. } => {
                buffer.confirmed = true;
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

    /// Starts to watch the storage of a buffer's holder, where the framework can.
    pub fn watch_storage(&self, verdict: Verdict, holder: &Bound<'_, PyAny>) -> StorageWatch {
        match (verdict, &self.torch, &self.numpy) {
            (TENSOR | STORAGE, Some(torch), _) => torch
                .weak_storage(holder)
                .map_or(StorageWatch::Blind, StorageWatch::Torch),
            (NUMPY_ARRAY, _, Some(numpy)) => weak_reference(&numpy.owner(holder)),
            _ => StorageWatch::Blind,
        }
    }

    /// Whether a watched storage is gone, ending the watch; `None` if there is no telling.
    pub fn is_gone(&self, py: Python<'_>, watch: StorageWatch) -> Option<bool> {
        match watch {
            StorageWatch::Torch(handle) => self.torch.as_ref()?.storage_is_gone(py, handle),
            StorageWatch::Weak(reference) => Some(
                reference
                    .bind(py)
                    .cast::<PyWeakrefReference>()
                    .ok()?
                    .upgrade()
                    .is_none(),
            ),
            StorageWatch::Blind => None,
        }
    }
}

/// A weak hold on a storage: tells afterwards whether the memory really went.
pub enum StorageWatch {
    /// PyTorch's own weak handle of a storage.
    Torch(Py<PyAny>),
    /// A weak reference to an array that owns its memory. The collector does not clear it early,
    /// as it does those to objects that it collects: arrays are not such.
    Weak(Py<PyAny>),
    /// The framework offers nothing.
    Blind,
}

fn weak_reference(array: &Bound<'_, PyAny>) -> StorageWatch {
    // SAFETY: attached; without a callback, a weak reference runs no code.
    unsafe {
        let weak = ffi::PyWeakref_NewRef(array.as_ptr(), std::ptr::null_mut());
        match Bound::from_owned_ptr_or_opt(array.py(), weak) {
            Some(weak) => StorageWatch::Weak(weak.unbind()),
            None => {
                ffi::PyErr_Clear();
                StorageWatch::Blind
            }
        }
    }
}
