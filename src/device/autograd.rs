//! What PyTorch's tensors and autograd functions own in C++, where `tp_traverse` does not go.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple, PyType};
use rustc_hash::FxHashMap;

use super::modules::{class, part};
use crate::cpython::types::is_heap_type;
use crate::cpython::{
    Builtins, Descriptor, attribute_named, call_with, class_items, imported, int_value, items,
    text_of,
};

/// The descriptors of `torch._C.TensorBase` that lead on in C++, and those of the function types met.
pub struct Autograd {
    is_leaf: Descriptor,
    retains_grad: Option<Descriptor>,
    grad: Option<Descriptor>,
    grad_fn: Option<Descriptor>,
    base: Option<Descriptor>,
    version: Option<Descriptor>,
    /// The base of the functions that are written in Python.
    python_function: Option<Py<PyType>>,
    /// The `tp_traverse` of all functions in C++.
    traverse: *mut c_void,
    /// What a function saved: the program may have one without a function (`save_inputs` in torch/utils/checkpoint.py).
    saved: Option<Py<PyType>>,
    /// By address of the type, for those that are part of PyTorch: others may die.
    functions: RefCell<FxHashMap<usize, Rc<FunctionType>>>,
}

/// A reference in C++: what it is called, and the Python object for what it leads to.
pub type Owned<'py> = (String, Bound<'py, PyAny>);

/// How the parts of one type of autograd functions are read.
#[derive(Default)]
struct FunctionType {
    next: Option<Descriptor>,
    variable: Option<Descriptor>,
    /// A method in C++.
    sequence_number: Option<Py<PyAny>>,
    /// `_raw_saved_self` and the like, without the prefix.
    saved: Vec<(String, Descriptor)>,
}

/// What an autograd function owns.
#[derive(Default)]
pub struct FunctionParts<'py> {
    /// The functions that it passes gradients on to.
    pub next: Vec<Bound<'py, PyAny>>,
    /// The tensors that it saved for the backward pass, or what the program's own hook made of them.
    pub saved: Vec<Owned<'py>>,
    /// The leaf whose gradient it accumulates.
    pub variable: Option<Bound<'py, PyAny>>,
    /// Some saved tensor is not to be had without running the program's hooks.
    pub hidden: bool,
}

/// What the name of a hook begins with that unpacks what an autograd function saved.
pub const UNPACK_HOOK: &str = "unpack hook of saved ";

impl FunctionType {
    fn next_of<'py>(&self, function: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let next = self.next.as_ref().and_then(|next| next.get(function));
        next.iter()
            .flat_map(items)
            .filter_map(|pair| items(&pair).into_iter().next())
            .filter(|function| !function.is_none())
            .collect()
    }
}

impl Autograd {
    /// The sequence number of functions that accumulate gradients.
    pub const LEAF: u64 = u64::MAX;

    /// The descriptors of `torch._C.TensorBase`, given that and `torch._C`.
    ///
    /// # Errors
    /// If the version of PyTorch has no `is_leaf`.
    pub fn new(native: &Bound<'_, PyDict>, tensor: &Bound<'_, PyType>) -> PyResult<Self> {
        let descriptor = |name: &str| Descriptor::of(tensor, name).ok();
        let functions = part(native, "_functions").ok();
        let functions = functions.and_then(|it| it.cast_into::<PyModule>().ok());
        let accumulate = functions.and_then(|it| class(&it.dict(), "AccumulateGrad").ok());
        // SAFETY: attached, and the type is alive; the slot of a type without it is null.
        let traverse = accumulate.map_or(null_mut(), |ty| unsafe {
            ffi::PyType_GetSlot(ty.as_type_ptr(), ffi::Py_tp_traverse)
        });
        let autograd = part(native, "_autograd").ok();
        let autograd = autograd.and_then(|it| it.cast_into::<PyModule>().ok());
        let saved = autograd.and_then(|it| class(&it.dict(), "SavedTensor").ok());
        Ok(Self {
            python_function: class(native, "_FunctionBase").ok().map(Bound::unbind),
            traverse,
            saved: saved.map(Bound::unbind),
            is_leaf: Descriptor::of(tensor, "is_leaf")?,
            retains_grad: descriptor("retains_grad"),
            grad: descriptor("grad"),
            grad_fn: descriptor("grad_fn"),
            base: descriptor("_base"),
            version: descriptor("_version"),
            functions: RefCell::default(),
        })
    }

    /// What a tensor owns: its gradient, its function, the tensor that it is a view of. The caller
    /// sees to it that PyTorch calls no `__torch_function__`.
    ///
    /// The gradient of a leaf, and of another that retains it: to ask any other for it warns.
    pub fn of_tensor<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
    ) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        let part = |part: &Option<Descriptor>| part.as_ref()?.get(tensor);
        let owned = [
            ("grad", self.gradient_of(tensor)),
            ("grad_fn", part(&self.grad_fn)),
            ("_base", part(&self.base)),
        ];
        owned
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// What a tensor is a view of. As for [`Autograd::of_tensor`].
    pub fn base_of<'py>(&self, tensor: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        self.base.as_ref()?.get(tensor)
    }

    /// What an autograd function owns, as `grad_fn` and `next_functions` give it.
    pub fn of_function<'py>(
        &self,
        builtins: &Builtins,
        function: &Bound<'py, PyAny>,
    ) -> FunctionParts<'py> {
        if self.is_saved_type(function.get_type().as_type_ptr()) {
            let mut parts = FunctionParts::default();
            parts.add_saved("tensor", function);
            return parts;
        }
        let known = self.type_of(builtins, function);
        let mut parts = FunctionParts {
            next: known.next_of(function),
            ..FunctionParts::default()
        };
        parts.variable = known.variable.as_ref().and_then(|part| part.get(function));
        for (name, descriptor) in &known.saved {
            // Null, with an exception, once the backward pass has freed them.
            let Some(raw) = descriptor.get(function) else {
                continue;
            };
            let several = match raw.is_exact_instance_of::<PyTuple>() {
                true => items(&raw),
                false => vec![raw],
            };
            for saved in several {
                parts.add_saved(name, &saved);
            }
        }
        parts
    }

    /// The functions that a function passes gradients on to.
    pub fn next_functions<'py>(
        &self,
        builtins: &Builtins,
        function: &Bound<'py, PyAny>,
    ) -> Vec<Bound<'py, PyAny>> {
        self.type_of(builtins, function).next_of(function)
    }

    /// The number that a function got when it was made: those of one thread are in order.
    /// [`Autograd::LEAF`] for one that accumulates a gradient.
    pub fn sequence_number(&self, builtins: &Builtins, function: &Bound<'_, PyAny>) -> Option<u64> {
        let known = self.type_of(builtins, function);
        let method = known.sequence_number.as_ref()?.bind(function.py());
        call_with(method, function)?.extract().ok()
    }

    /// The gradient of a tensor. As for [`Autograd::of_tensor`]; also of one that is no leaf and retains it.
    pub fn gradient_of<'py>(&self, tensor: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let has = |part: &Descriptor| int_value(&part.get(tensor)?);
        let retains = || self.retains_grad.as_ref().and_then(has);
        if has(&self.is_leaf) != Some(1) && retains() != Some(1) {
            return None;
        }
        self.grad.as_ref()?.get(tensor)
    }

    /// The gradient of a leaf, and how often it was written to. As for [`Autograd::of_tensor`].
    pub fn gradient<'py>(&self, leaf: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, i64)> {
        let gradient = self.grad.as_ref()?.get(leaf)?;
        let version = self.version.as_ref()?.get(&gradient)?;
        Some((gradient, int_value(&version)?))
    }

    fn is_saved_type(&self, ty: *mut ffi::PyTypeObject) -> bool {
        let saved = self.saved.as_ref();
        saved.is_some_and(|saved| saved.as_ptr() == ty.cast())
    }

    /// True for the types of autograd functions, and of what one saved. Those in C++ have one `tp_traverse`
    /// (`_initFunctionPyTypeObject` in torch/csrc/autograd/python_cpp_function.cpp) and are part of a library, those in
    /// Python have one base.
    ///
    /// # Safety
    /// `ty` is a live type and the caller is attached to the interpreter.
    pub unsafe fn is_function_type(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract.
        unsafe {
            if self.is_saved_type(ty) {
                return true;
            }
            if !self.traverse.is_null() && !is_heap_type(ty) {
                return ffi::PyType_GetSlot(ty, ffi::Py_tp_traverse) == self.traverse;
            }
            let base = self.python_function.as_ref();
            base.is_some_and(|base| ffi::PyType_IsSubtype(ty, base.as_ptr().cast()) != 0)
        }
    }

    /// True for an autograd function in C++ that PyTorch brings.
    pub fn is_builtin_function(&self, builtins: &Builtins, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: attached, and the type is alive.
        let is_heap_type = unsafe { is_heap_type(object.get_type().as_type_ptr()) };
        !is_heap_type && self.type_of(builtins, object).next.is_some()
    }

    fn type_of(&self, builtins: &Builtins, function: &Bound<'_, PyAny>) -> Rc<FunctionType> {
        let class = function.get_type();
        let address = class.as_ptr() as usize;
        if let Some(known) = self.functions.borrow().get(&address) {
            return Rc::clone(known);
        }
        let mut found = FunctionType::default();
        let mro = builtins.type_mro.get(class.as_any());
        for class in mro.iter().flat_map(items) {
            class_items(builtins, &class, &mut |name, value| {
                if value.get_type().as_type_ptr() == &raw mut ffi::PyMethodDescr_Type
                    && found.sequence_number.is_none()
                    && text_of(name).as_deref() == Some("_sequence_nr")
                {
                    found.sequence_number = Some(value.clone().unbind());
                }
                if value.get_type().as_type_ptr() != &raw mut ffi::PyGetSetDescr_Type {
                    return true;
                }
                let name = text_of(name).unwrap_or_default();
                let descriptor = || Descriptor::new(value);
                match name.as_str() {
                    "next_functions" if found.next.is_none() => found.next = descriptor(),
                    "variable" if found.variable.is_none() => found.variable = descriptor(),
                    _ => {
                        if let Some(saved) = name.strip_prefix("_raw_saved_") {
                            found
                                .saved
                                .extend(descriptor().map(|it| (saved.to_owned(), it)));
                        }
                    }
                }
                true
            });
        }
        let found = Rc::new(found);
        // SAFETY: attached, and the type is alive.
        let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
        if flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 {
            let mut functions = self.functions.borrow_mut();
            functions.insert(address, Rc::clone(&found));
        }
        found
    }
}

impl<'py> FunctionParts<'py> {
    /// Adds what a `SavedTensor` holds, as it is: its own `unpack` would run the program's hooks.
    fn add_saved(&mut self, name: &str, saved: &Bound<'py, PyAny>) {
        // The type is PyTorch's own and has properties in C++ only.
        match attribute_named(saved, c"data") {
            Some(data) if data.is_none() => {}
            Some(data) => {
                self.saved.push((format!("saved {name}"), data));
                if let Some(hook) = attribute_named(saved, c"unpack_hook")
                    && !hook.is_none()
                {
                    self.saved.push((format!("{UNPACK_HOOK}{name}"), hook));
                }
            }
            // Older versions have no such property; that of newer ones fails once it is freed.
            None => self.hidden |= saved.hasattr("unpack_hook").is_ok_and(|newer| !newer),
        }
    }
}

/// The number that the next autograd function made on this thread gets.
pub fn autograd_sequence_now(py: Python<'_>) -> Option<u64> {
    let native = imported(intern!(py, "torch._C._autograd"))?;
    let ask = native.get_item(intern!(py, "_get_sequence_nr")).ok()??;
    ask.cast_into_exact::<PyCFunction>()
        .ok()?
        .call0()
        .ok()?
        .extract()
        .ok()
}

/// True while `torch.autocast` is active on this thread: what it has cast it keeps, with the graph of that, until its
/// outermost block ends (`cached_cast` in aten/src/ATen/autocast_mode.cpp).
pub fn keeps_casts(py: Python<'_>) -> bool {
    let ask = |name| {
        let native = imported(intern!(py, "torch._C"))?;
        let ask = native.get_item(name).ok()??;
        let ask = ask.cast_into_exact::<PyCFunction>().ok()?;
        Some(ask.call0().ok()?.is_truthy().unwrap_or(false))
    };
    ask(intern!(py, "_is_any_autocast_enabled")) == Some(true)
        && ask(intern!(py, "is_autocast_cache_enabled")) == Some(true)
}
