//! PyTorch: tensors, parameters and untyped storages.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::frameworks::Proposal;
use crate::heap::{Descriptor, int_value};

/// The parts of PyTorch that are needed, looked up once in a module that the program has imported.
///
/// Everything is read through methods and descriptors of the C++ base classes. With
/// `DisableTorchFunctionSubclass` in force, these do not call a subclass's `__torch_function__`.
pub struct Torch {
    tensor: Py<PyType>,
    storage: Py<PyType>,
    plain: [Py<PyAny>; 2],
    is_cpu: Descriptor,
    dtype: Descriptor,
    shape: Descriptor,
    hooks: [(&'static str, Descriptor); 2],
    untyped_storage: Py<PyAny>,
    data_ptr: Py<PyAny>,
    nbytes: Py<PyAny>,
    storage_device: Descriptor,
    weak_ref: Py<PyAny>,
    expired: Py<PyAny>,
    free_weak_ref: Py<PyAny>,
    disable_torch_function: Py<PyAny>,
    dispatch_keys: Py<PyAny>,
    python_key: Py<PyAny>,
    /// The build runs on AMD devices, whose pointers the CUDA driver does not know.
    pub hip: bool,
}

impl Torch {
    /// Reads `torch._C` and `torch`, which the caller found in `sys.modules`.
    ///
    /// # Errors
    /// If the import of PyTorch is still under way, or the version has other names for things.
    pub fn new(native: &Bound<'_, PyAny>, torch: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = |name: &str| -> PyResult<Bound<'_, PyType>> {
            Ok(native.getattr(name)?.cast_into::<PyType>()?)
        };
        let tensor = class("TensorBase")?;
        let storage = class("StorageBase")?;
        let method = |class: &Bound<'_, PyType>, name: &str| -> PyResult<Py<PyAny>> {
            Ok(class.getattr(name)?.unbind())
        };
        let hip = torch
            .getattr("version")?
            .getattr("hip")
            .is_ok_and(|hip| !hip.is_none());
        Ok(Self {
            plain: [
                torch.getattr("Tensor")?.unbind(),
                torch.getattr("nn")?.getattr("Parameter")?.unbind(),
            ],
            is_cpu: Descriptor::of(&tensor, "is_cpu")?,
            dtype: Descriptor::of(&tensor, "dtype")?,
            shape: Descriptor::of(&tensor, "shape")?,
            hooks: [
                hooks(&tensor, "_backward_hooks")?,
                hooks(&tensor, "_post_accumulate_grad_hooks")?,
            ],
            untyped_storage: method(&tensor, "untyped_storage")?,
            data_ptr: method(&storage, "data_ptr")?,
            nbytes: method(&storage, "nbytes")?,
            storage_device: Descriptor::of(&storage, "device")?,
            weak_ref: method(&storage, "_weak_ref")?,
            expired: method(&storage, "_expired")?,
            free_weak_ref: method(&storage, "_free_weak_ref")?,
            disable_torch_function: native.getattr("DisableTorchFunctionSubclass")?.unbind(),
            dispatch_keys: native.getattr("_dispatch_keys")?.unbind(),
            python_key: native.getattr("DispatchKey")?.getattr("Python")?.unbind(),
            hip,
            tensor: tensor.unbind(),
            storage: storage.unbind(),
        })
    }

    /// True for the types of tensors.
    ///
    /// # Safety
    /// `ty` is a live type and the caller is attached to the interpreter.
    pub unsafe fn is_tensor_type(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; walks the type's own `tp_mro`.
        unsafe { ffi::PyType_IsSubtype(ty, self.tensor.as_ptr().cast()) != 0 }
    }

    /// True for the types of untyped storages.
    ///
    /// # Safety
    /// As for [`Torch::is_tensor_type`].
    pub unsafe fn is_storage_type(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: as above.
        unsafe { ffi::PyType_IsSubtype(ty, self.storage.as_ptr().cast()) != 0 }
    }

    /// True if the tensor is in host memory; a quick way to pass over what nobody asked for.
    pub fn is_on_cpu(&self, tensor: &Bound<'_, PyAny>) -> bool {
        self.is_plain(tensor)
            && self
                .is_cpu
                .get(tensor)
                .is_some_and(|answer| int_value(&answer) == Some(1))
    }

    /// What memory a tensor has, by PyTorch's word.
    pub fn tensor(&self, tensor: &Bound<'_, PyAny>) -> Option<Proposal> {
        let py = tensor.py();
        let plain = self.is_plain(tensor);
        let _guard = (!plain).then(|| TorchFunctionDisabled::new(self, py));
        // A tensor that implements `__torch_dispatch__` may compute even its shape in Python.
        let dispatches = !plain && self.dispatches_in_python(tensor);
        let storage = taken(self.untyped_storage.bind(py).call1((tensor,)), py)?;
        let mut proposal = self.storage(&storage)?;
        if !dispatches {
            proposal.buffer.shape = self.shape.get(tensor).map(|shape| {
                crate::heap::items(&shape)
                    .iter()
                    .filter_map(|extent| u64::try_from(int_value(extent)?).ok())
                    .collect()
            });
        }
        proposal.buffer.dtype = self
            .dtype
            .get(tensor)
            .and_then(|dtype| dtype.str().ok()?.extract::<String>().ok())
            .map(|name| name.trim_start_matches("torch.").to_owned());
        Some(proposal)
    }

    /// What memory an untyped storage has, by PyTorch's word. None for one without memory: of
    /// a meta tensor, of a fake one, of a wrapper around other tensors.
    pub fn storage(&self, storage: &Bound<'_, PyAny>) -> Option<Proposal> {
        let py = storage.py();
        let device = self
            .storage_device
            .get(storage)?
            .str()
            .ok()?
            .extract::<String>()
            .ok()?;
        if device == "meta" {
            return None;
        }
        let pointer: u64 = taken(self.data_ptr.bind(py).call1((storage,)), py)?
            .extract()
            .ok()?;
        let bytes: u64 = taken(self.nbytes.bind(py).call1((storage,)), py)?
            .extract()
            .ok()?;
        if pointer == 0 || bytes == 0 {
            return None;
        }
        Some(Proposal::new(pointer, bytes, device))
    }

    /// A weak reference to the storage of a tensor or to a storage, as PyTorch's own handle.
    pub fn weak_storage(&self, holder: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
        let py = holder.py();
        // SAFETY: attached, and the holder and its type are alive.
        let is_tensor = unsafe { self.is_tensor_type(ffi::Py_TYPE(holder.as_ptr())) };
        let storage = if is_tensor {
            let _guard = (!self.is_plain(holder)).then(|| TorchFunctionDisabled::new(self, py));
            taken(self.untyped_storage.bind(py).call1((holder,)), py)?
        } else {
            holder.clone()
        };
        taken(self.weak_ref.bind(py).call1((storage,)), py).map(Bound::unbind)
    }

    /// True if the storage behind a handle of [`Torch::weak_storage`] is gone. Ends the handle.
    pub fn storage_is_gone(&self, py: Python<'_>, handle: Py<PyAny>) -> Option<bool> {
        let gone = taken(self.expired.bind(py).call1((&handle,)), py)?
            .extract()
            .ok();
        taken(self.free_weak_ref.bind(py).call1((&handle,)), py);
        gone
    }

    /// The attributes of a tensor that its `tp_traverse` follows and no Python descriptor names.
    pub fn attributes<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
    ) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        let _guard =
            (!self.is_plain(tensor)).then(|| TorchFunctionDisabled::new(self, tensor.py()));
        self.hooks
            .iter()
            .filter_map(|(name, hooks)| Some((*name, hooks.get(tensor)?)))
            .collect()
    }

    /// True for objects of exactly the classes that PyTorch makes itself.
    fn is_plain(&self, tensor: &Bound<'_, PyAny>) -> bool {
        self.plain
            .iter()
            .any(|class| tensor.get_type().is(class.bind(tensor.py())))
    }

    fn dispatches_in_python(&self, tensor: &Bound<'_, PyAny>) -> bool {
        let py = tensor.py();
        taken(self.dispatch_keys.bind(py).call1((tensor,)), py)
            .and_then(|keys| taken(keys.call_method1("has", (self.python_key.bind(py),)), py))
            .and_then(|has| has.extract().ok())
            .unwrap_or(true)
    }
}

fn hooks(tensor: &Bound<'_, PyType>, name: &'static str) -> PyResult<(&'static str, Descriptor)> {
    Ok((name, Descriptor::of(tensor, name)?))
}

/// The result, or `None` for an exception, which is dropped: what PyTorch cannot say is not known.
fn taken<'py>(result: PyResult<Bound<'py, PyAny>>, _py: Python<'py>) -> Option<Bound<'py, PyAny>> {
    result.ok()
}

/// While alive, PyTorch calls no `__torch_function__` of a tensor subclass on this thread.
struct TorchFunctionDisabled<'py>(Option<Bound<'py, PyAny>>);

impl<'py> TorchFunctionDisabled<'py> {
    fn new(torch: &Torch, py: Python<'py>) -> Self {
        let context = torch.disable_torch_function.bind(py).call0().ok();
        Self(context.filter(|context| context.call_method0("__enter__").is_ok()))
    }
}

impl Drop for TorchFunctionDisabled<'_> {
    fn drop(&mut self) {
        if let Some(context) = &self.0 {
            let none = context.py().None();
            let left = context.call_method1("__exit__", (&none, &none, &none));
            drop(left);
        }
    }
}
