//! PyTorch: tensors, parameters and untyped storages.

use std::rc::Rc;

use pyo3::exceptions::PyLookupError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyString, PyTuple, PyType};

use super::autograd::{Autograd, FunctionParts};
use super::framework::{Framework, Imported, Unread};
use super::modules::{class, imported, part};
use super::proposal::{Proposal, extents};
use super::sparse::{PartsReadAhead, Sparse};
use super::storage_watch::{StorageWatch, WeakStorage};
use crate::cpython::instances::attributes;
use crate::cpython::{
    Builtins, Descriptor, Instances, attribute_named, call, call_with, int_value, new_text, str_of,
};

/// The first version of PyTorch that was seen to count the reference of C++ to a Python object
/// (`c10/core/impl/PyObjectSlot.h`).
const COUNTED: (u64, u64) = (2, 11);

/// Wrappers may be nested; so many are unwrapped at most.
const NESTED: usize = 16;

/// The parts of PyTorch that are needed, looked up once in a module that the program has imported.
///
/// Everything is read through methods and descriptors of the C++ base classes. With
/// `DisableTorchFunction` in force, these call no `__torch_function__`, of a subclass or of a mode.
pub struct Torch {
    tensor: Py<PyType>,
    storage: Py<PyType>,
    plain: [Py<PyAny>; 2],
    is_cpu: Descriptor,
    is_leaf: Descriptor,
    requires_grad: Descriptor,
    use_count: Option<Py<PyAny>>,
    dtype: Descriptor,
    shape: Descriptor,
    untyped_storage: Py<PyAny>,
    data_ptr: Py<PyAny>,
    nbytes: Py<PyAny>,
    resizable: Py<PyAny>,
    storage_device: Descriptor,
    /// Whether processes share a storage in host memory.
    is_shared: Option<Py<PyAny>>,
    storage_identity: Option<Descriptor>,
    weak_ref: Py<PyAny>,
    expired: Py<PyAny>,
    free_weak_ref: Py<PyAny>,
    mode_enabled: Py<PyAny>,
    disable_torch_function: Py<PyAny>,
    /// What `__exit__` is called with where nothing was raised.
    no_exception: Py<PyTuple>,
    /// The state of `torch.jit.trace` and of what exports by it.
    tracing: Option<Py<PyAny>>,
    dispatch_keys: Py<PyAny>,
    python_key: Py<PyAny>,
    /// Names and descriptors of what a tensor's C++ part refers to.
    hooks: [(&'static str, Option<Descriptor>); 2],
    /// Whether a tensor is a lazy clone; versions before 2.1 have none.
    is_lazy_clone: Option<Py<PyAny>>,
    /// Whether CUDA was initialised before the process forked; not in builds without CUDA.
    is_in_bad_fork: Option<Py<PyAny>>,
    autograd: Autograd,
    sparse: Sparse,
    /// Whether a tensor is wrapped, by a transform of `torch.func` or to be traced by functionalisation, and what is inside.
    wrappers: Vec<[Py<PyAny>; 2]>,
    instances: Rc<Instances>,
    /// What C++ refers to keeps its Python object by a reference that is counted.
    counts_references: bool,
    /// The build runs on AMD devices, whose pointers the CUDA driver does not know.
    pub hip: bool,
}

impl Torch {
    /// Reads the modules of PyTorch, given `torch._C`.
    fn read(native: &Bound<'_, PyDict>, instances: &Rc<Instances>) -> PyResult<Self> {
        let py = native.py();
        let module = |name: &str| {
            new_text(py, name)
                .and_then(|name| imported(&name))
                .ok_or_else(|| PyLookupError::new_err("PyTorch is still being imported"))
        };
        let torch = module("torch")?;
        let parameter = module("torch.nn.parameter")?;
        let version = module("torch.version")?;
        let tensor = class(native, "TensorBase")?;
        let storage = class(native, "StorageBase")?;
        let method = |class: &Bound<'_, PyType>, name: &str| -> PyResult<Py<PyAny>> {
            Ok(class.getattr(name)?.unbind())
        };
        let function = |name: &str| part(native, name).map(Bound::unbind);
        Ok(Self {
            plain: [
                class(&torch, "Tensor")?.into_any().unbind(),
                class(&parameter, "Parameter")?.into_any().unbind(),
            ],
            is_cpu: Descriptor::of(&tensor, "is_cpu")?,
            is_leaf: Descriptor::of(&tensor, "is_leaf")?,
            requires_grad: Descriptor::of(&tensor, "requires_grad")?,
            use_count: method(&tensor, "_use_count").ok(),
            dtype: Descriptor::of(&tensor, "dtype")?,
            shape: Descriptor::of(&tensor, "shape")?,
            untyped_storage: method(&tensor, "untyped_storage")?,
            data_ptr: method(&storage, "data_ptr")?,
            nbytes: method(&storage, "nbytes")?,
            resizable: method(&storage, "resizable")?,
            storage_device: Descriptor::of(&storage, "device")?,
            is_shared: method(&storage, "is_shared").ok(),
            storage_identity: Descriptor::of(&storage, "_cdata").ok(),
            weak_ref: method(&storage, "_weak_ref")?,
            expired: method(&storage, "_expired")?,
            free_weak_ref: method(&storage, "_free_weak_ref")?,
            mode_enabled: function("_is_torch_function_mode_enabled")?,
            disable_torch_function: function("DisableTorchFunction")?,
            no_exception: PyTuple::new(py, [py.None(), py.None(), py.None()])?.unbind(),
            tracing: function("_get_tracing_state").ok(),
            dispatch_keys: function("_dispatch_keys")?,
            python_key: class(native, "DispatchKey")?.getattr("Python")?.unbind(),
            hooks: ["_backward_hooks", "_post_accumulate_grad_hooks"]
                .map(|name| (name, Descriptor::of(&tensor, name).ok())),
            is_lazy_clone: function("_is_cow_tensor").ok(),
            is_in_bad_fork: function("_cuda_isInBadFork").ok(),
            autograd: Autograd::new(native, &tensor)?,
            instances: Rc::clone(instances),
            counts_references: numbers_of(&version) >= Some(COUNTED),
            sparse: Sparse::new(native, &tensor),
            wrappers: wrappers(native),
            hip: part(&version, "hip").is_ok_and(|hip| !hip.is_none()),
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
    fn is_on_cpu(&self, tensor: &Bound<'_, PyAny>) -> bool {
        if !self.is_plain(tensor) {
            return false;
        }
        let _guard = self.without_torch_function(tensor);
        self.is_cpu
            .get(tensor)
            .is_some_and(|answer| int_value(&answer) == Some(1))
    }

    /// What memory a tensor has, by PyTorch's word.
    ///
    /// None for a lazy clone: others share its memory until somebody writes, and to ask for its
    /// address makes the copy.
    fn tensor(&self, tensor: &Bound<'_, PyAny>) -> Option<Proposal> {
        let py = tensor.py();
        let _guard = self.without_torch_function(tensor);
        let storage = call_with(self.untyped_storage.bind(py), tensor)?;
        if says_yes(self.is_lazy_clone.as_ref(), tensor) {
            return None;
        }
        let mut proposal = self.storage(&storage)?;
        // A tensor that implements `__torch_dispatch__` may compute even its shape in Python.
        let is_own = self.is_plain(tensor) || !self.dispatches_in_python(tensor);
        // To read a shape is an operation of the program's graph while `torch.jit` traces it (`THPSize_New` in
        // torch/csrc/Size.cpp).
        if is_own && !self.is_tracing(py) {
            proposal.buffer.shape = self.shape.get(tensor).and_then(|shape| extents(&shape));
        }
        proposal.buffer.dtype = self
            .dtype
            .get(tensor)
            .and_then(|dtype| str_of(&dtype))
            .map(|name| name.trim_start_matches("torch.").to_owned());
        Some(proposal)
    }

    /// The tensors in the attributes of a wrapper that C++ refers to as well: such as the values that a jagged tensor is
    /// a view of.
    fn wrapped<'py>(&self, tensor: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        if self.is_plain(tensor) {
            return Vec::new();
        }
        let values = attributes(&self.instances, tensor).into_iter();
        let tensors = values.filter(|(_, value)| self.is_tensor(value));
        let shared = tensors.filter(|(_, part)| self.uses(part) > Some(1));
        shared.map(|(_, part)| part).collect()
    }

    /// The storage with an address, of a tensor or what it wraps; or an object that is one.
    fn storage_at<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        pointer: u64,
    ) -> Option<Bound<'py, PyAny>> {
        if !self.is_tensor(object) {
            return Some(object.clone());
        }
        let py = object.py();
        let storage = |tensor: &Bound<'py, PyAny>| {
            let _guard = self.without_torch_function(tensor);
            let storage = call_with(self.untyped_storage.bind(py), tensor)?;
            let address = call_with(self.data_ptr.bind(py), &storage)?;
            (address.extract::<u64>().ok()? == pointer).then_some(storage)
        };
        storage(object)
            .or_else(|| self.wrapped(object).iter().find_map(storage))
            .or_else(|| self.dense_parts(object).iter().find_map(storage))
    }

    /// The address of the storage of a tensor in C++.
    pub fn storage_identity(&self, tensor: &Bound<'_, PyAny>) -> Option<u64> {
        let _guard = self.without_torch_function(tensor);
        let storage = call_with(self.untyped_storage.bind(tensor.py()), tensor)?;
        self.storage_identity
            .as_ref()?
            .get(&storage)?
            .extract()
            .ok()
    }

    /// What memory an untyped storage has, by PyTorch's word. None for one without memory: of
    /// a meta tensor, of a fake one, of a wrapper around other tensors.
    fn storage(&self, storage: &Bound<'_, PyAny>) -> Option<Proposal> {
        let py = storage.py();
        let device = str_of(&self.storage_device.get(storage)?)?;
        if device == "meta" {
            return None;
        }
        let is_shared = device == "cpu" && says_yes(self.is_shared.as_ref(), storage);
        let device = if is_shared {
            "shared".to_owned()
        } else {
            device
        };
        let number = |method: &Py<PyAny>| -> Option<u64> {
            call_with(method.bind(py), storage)?.extract().ok()
        };
        let (pointer, bytes) = (number(&self.data_ptr)?, number(&self.nbytes)?);
        if pointer == 0 || bytes == 0 {
            return None;
        }
        let mut proposal = Proposal::new(pointer, bytes, device);
        // Of what PyTorch's allocators gave, the size can be changed; not of what `at::from_blob` was given.
        let resizable = call_with(self.resizable.bind(py), storage);
        let is_fixed = resizable.is_some_and(|it| it.extract().is_ok_and(|it: bool| !it));
        proposal.buffer.is_lent = is_fixed && !is_shared;
        Some(proposal)
    }

    /// True for a tensor, false for a storage.
    fn is_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: attached, and the object and its type are alive.
        unsafe { self.is_tensor_type(ffi::Py_TYPE(object.as_ptr())) }
    }

    /// True in a child forked after CUDA was initialised: nothing there may use it.
    pub fn is_in_bad_fork(&self, py: Python<'_>) -> bool {
        let answer = self
            .is_in_bad_fork
            .as_ref()
            .and_then(|ask| call(ask.bind(py)));
        answer.is_some_and(|answer| answer.extract().unwrap_or(false))
    }

    /// The attributes of a tensor that its `tp_traverse` follows and no Python descriptor names.
    pub fn attributes<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
    ) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        let _guard = self.without_torch_function(tensor);
        self.hooks
            .iter()
            .filter_map(|(name, hooks)| Some((*name, hooks.as_ref()?.get(tensor)?)))
            .collect()
    }

    /// True if a tensor has a `grad_fn`. Asks whether it is no leaf, which is the same and makes no
    /// Python object of the graph's node.
    pub fn has_grad_fn(&self, tensor: &Bound<'_, PyAny>) -> bool {
        let _guard = self.without_torch_function(tensor);
        self.is_leaf
            .get(tensor)
            .is_some_and(|answer| int_value(&answer) == Some(0))
    }

    /// True for a tensor that asks for a gradient.
    pub fn requires_grad(&self, tensor: &Bound<'_, PyAny>) -> bool {
        let _guard = self.without_torch_function(tensor);
        self.requires_grad
            .get(tensor)
            .is_some_and(|answer| int_value(&answer) == Some(1))
    }

    /// What a tensor owns in C++, as [`Autograd::of_tensor`], and the parts of a sparse one.
    pub fn owned<'py>(&self, tensor: &Bound<'py, PyAny>) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        let _guard = self.without_torch_function(tensor);
        let mut owned = self.autograd.of_tensor(tensor);
        owned.extend(self.sparse.parts(tensor, self.is_plain(tensor)));
        owned
    }

    /// As [`Sparse::read_ahead`].
    pub fn read_parts_ahead(&self, py: Python<'_>, tensors: Vec<Py<PyAny>>) -> PartsReadAhead {
        let _guard = tensors
            .first()
            .map(|tensor| self.without_torch_function(tensor.bind(py)));
        self.sparse
            .read_ahead(py, tensors, |tensor| self.is_plain(tensor))
    }

    /// How many references C++ has to a tensor, one of which is that of its Python object.
    fn uses(&self, tensor: &Bound<'_, PyAny>) -> Option<i64> {
        let _guard = self.without_torch_function(tensor);
        let count = call_with(self.use_count.as_ref()?.bind(tensor.py()), tensor);
        int_value(&count?)
    }

    /// False for a tensor to which only Python refers. Versions before [`COUNTED`] do not tell.
    pub fn may_be_held_by_cpp(&self, tensor: &Bound<'_, PyAny>) -> bool {
        !self.counts_references || self.uses(tensor) != Some(1)
    }

    /// How many references C++ has to a tensor beside that of its Python object. Versions before [`COUNTED`] do not tell.
    pub fn references_in_cpp(&self, tensor: &Bound<'_, PyAny>) -> Option<i64> {
        let counts = self.counts_references.then_some(tensor)?;
        Some(self.uses(counts)? - 1)
    }

    /// True if a tensor is a view of another, and C++ counts as one reference to the Python object of that.
    ///
    /// Versions before [`COUNTED`] have no such reference: there one that C++ holds cannot be told from one that
    /// Python does.
    pub fn is_view_of(&self, view: &Bound<'_, PyAny>, base: &Bound<'_, PyAny>) -> bool {
        if !self.counts_references || self.uses(base) == Some(1) {
            return false;
        }
        let _guard = self.without_torch_function(view);
        self.autograd.base_of(view).is_some_and(|it| it.is(base))
    }

    /// What an autograd function owns in C++.
    pub fn function_parts<'py>(
        &self,
        builtins: &Builtins,
        function: &Bound<'py, PyAny>,
    ) -> FunctionParts<'py> {
        self.autograd.of_function(builtins, function)
    }

    /// The part of PyTorch that knows autograd functions.
    pub fn autograd(&self) -> &Autograd {
        &self.autograd
    }

    /// The gradient of a tensor that has one; unless `shared`, of one to which nothing in C++ refers. Otherwise another
    /// thread, in a backward pass, may be replacing the gradient right now.
    ///
    /// A gradient that had no Python object gets one, which PyTorch keeps as long as the gradient.
    pub fn gradient_of<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        shared: bool,
    ) -> Option<Bound<'py, PyAny>> {
        if !shared && self.uses(tensor) != Some(1) {
            return None;
        }
        let _guard = self.without_torch_function(tensor);
        self.autograd.gradient_of(tensor)
    }

    /// The tensors with the memory of one: its parts if it is sparse, what is inside if it is wrapped, or
    /// else itself. To read them may run operators, which let other threads run.
    pub fn dense_parts<'py>(&self, tensor: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let _guard = self.without_torch_function(tensor);
        let mut inside = tensor.clone();
        for _ in 0..NESTED {
            let Some(unwrapped) = self.unwrapped(&inside) else {
                break;
            };
            inside = unwrapped;
        }
        let parts = self.sparse.parts(&inside, self.is_plain(&inside));
        match parts.is_empty() {
            true => vec![inside],
            false => parts.into_iter().map(|(_, part)| part).collect(),
        }
    }

    /// What is inside a tensor that a transform of `torch.func` or functionalisation has wrapped.
    fn unwrapped<'py>(&self, tensor: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let py = tensor.py();
        if !self.is_plain(tensor) {
            return None;
        }
        let mut wrappers = self.wrappers.iter();
        let [_, unwrap] = wrappers.find(|[is_wrapped, _]| says_yes(Some(is_wrapped), tensor))?;
        call_with(unwrap.bind(py), tensor)
    }

    /// As [`Autograd::gradient`].
    pub fn gradient<'py>(&self, leaf: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, i64)> {
        let _guard = self.without_torch_function(leaf);
        self.autograd.gradient(leaf)
    }

    /// True for objects of exactly the classes that PyTorch makes itself.
    fn is_plain(&self, tensor: &Bound<'_, PyAny>) -> bool {
        self.plain
            .iter()
            .any(|class| tensor.get_type().is(class.bind(tensor.py())))
    }

    /// True while `torch.jit` traces on this thread, or where there is no telling.
    fn is_tracing(&self, py: Python<'_>) -> bool {
        let state = self.tracing.as_ref();
        state.is_some_and(|state| call(state.bind(py)).is_none_or(|state| !state.is_none()))
    }

    /// True if the tensor implements `__torch_dispatch__`, or may.
    fn dispatches_in_python(&self, tensor: &Bound<'_, PyAny>) -> bool {
        let py = tensor.py();
        call_with(self.dispatch_keys.bind(py), tensor)
            .and_then(|keys| attribute_named(&keys, c"has"))
            .and_then(|has| call_with(&has, self.python_key.bind(py))?.extract().ok())
            .unwrap_or(true)
    }

    /// Keeps PyTorch from calling any `__torch_function__` when `tensor` is read: one of its class,
    /// or of a mode that the program is in (`torch.set_default_device` is such).
    fn without_torch_function<'py>(&self, tensor: &Bound<'py, PyAny>) -> Option<Quiet<'py>> {
        let py = tensor.py();
        let is_mode_enabled = || call(self.mode_enabled.bind(py))?.extract().ok();
        let needed = !self.is_plain(tensor) || is_mode_enabled().unwrap_or(false);
        needed.then(|| {
            Quiet::new(
                self.disable_torch_function.bind(py),
                self.no_exception.bind(py),
            )
        })
    }
}

/// The functions that tell whether a tensor is wrapped, and what is inside; those that this version has.
fn wrappers(native: &Bound<'_, PyDict>) -> Vec<[Py<PyAny>; 2]> {
    let transforms = part(native, "_functorch").ok().and_then(|functorch| {
        let question = functorch.getattr("is_functorch_wrapped_tensor").ok()?;
        let unwrap = functorch.getattr("get_unwrapped").ok()?;
        Some([question.unbind(), unwrap.unbind()])
    });
    // PyTorch puts these into the package itself (torch/csrc/autograd/python_torch_functions_manual.cpp).
    let functionalisation = imported(intern!(native.py(), "torch")).and_then(|torch| {
        let names = ["_is_functional_tensor", "_from_functional_tensor"];
        let [question, unwrap] = names.map(|name| part(&torch, name).ok());
        // Not what the program may have put there.
        let of_c = |function: &Bound<'_, PyAny>| function.is_exact_instance_of::<PyCFunction>();
        Some([
            question.filter(of_c)?.unbind(),
            unwrap.filter(of_c)?.unbind(),
        ])
    });
    transforms.into_iter().chain(functionalisation).collect()
}

/// Major and minor version, as `torch.version` has them.
fn numbers_of(version: &Bound<'_, PyDict>) -> Option<(u64, u64)> {
    let text: String = part(version, "__version__").ok()?.extract().ok()?;
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

impl Imported for Torch {
    fn module(py: Python<'_>) -> &Bound<'_, PyString> {
        intern!(py, "torch._C")
    }

    fn new(native: &Bound<'_, PyDict>, instances: &Rc<Instances>) -> Result<Self, Unread> {
        Ok(Self::read(native, instances)?)
    }
}

impl Framework for Torch {
    unsafe fn knows(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract.
        unsafe { self.is_tensor_type(ty) || self.is_storage_type(ty) }
    }

    fn is_on_host(&self, object: &Bound<'_, PyAny>) -> bool {
        self.is_tensor(object) && self.is_on_cpu(object)
    }

    /// Of a wrapper around other tensors, the memory of those that C++ has as well. Others are found by themselves.
    fn memory(&self, object: &Bound<'_, PyAny>) -> Vec<Proposal> {
        if !self.is_tensor(object) {
            return self.storage(object).into_iter().collect();
        }
        if let Some(own) = self.tensor(object) {
            return vec![own];
        }
        let wrapped = self.wrapped(object);
        let wrapped = wrapped.iter().filter_map(|part| self.tensor(part));
        wrapped.collect()
    }

    fn watch(&self, object: &Bound<'_, PyAny>, pointer: u64) -> Option<StorageWatch> {
        let py = object.py();
        let storage = self.storage_at(object, pointer)?;
        Some(StorageWatch::Torch(WeakStorage {
            handle: call_with(self.weak_ref.bind(py), &storage)?.unbind(),
            expired: self.expired.clone_ref(py),
            free: self.free_weak_ref.clone_ref(py),
        }))
    }
}

/// True if PyTorch answers a question with yes.
fn says_yes(question: Option<&Py<PyAny>>, object: &Bound<'_, PyAny>) -> bool {
    let answer = question.and_then(|question| call_with(question.bind(object.py()), object));
    answer.is_some_and(|answer| answer.extract().unwrap_or(false))
}

/// While alive, PyTorch calls no `__torch_function__` on this thread.
struct Quiet<'py> {
    /// How to leave, once it was entered; with the arguments, which there may be no memory for then.
    exit: Option<Bound<'py, PyAny>>,
    no_exception: Bound<'py, PyTuple>,
}

impl<'py> Quiet<'py> {
    fn new(disable: &Bound<'py, PyAny>, no_exception: &Bound<'py, PyTuple>) -> Self {
        let context = call(disable);
        let exit = context.and_then(|context| {
            let exit = attribute_named(&context, c"__exit__")?;
            call(&attribute_named(&context, c"__enter__")?)?;
            Some(exit)
        });
        Self {
            exit,
            no_exception: no_exception.clone(),
        }
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Some(exit) = &self.exit {
            drop(exit.call1(&self.no_exception));
        }
    }
}
