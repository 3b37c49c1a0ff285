//! The weak references to an object, as `_weakref` lists them.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefReference};

use super::builtin_function::BuiltinFunction;
use super::descriptor::Descriptor;
use super::gc_module::without_collections;

/// Reads which weak references there are.
pub struct WeakReferences {
    count: BuiltinFunction,
    list: BuiltinFunction,
    callback: Descriptor,
}

impl WeakReferences {
    /// `None` if the functions of `_weakref` have been replaced.
    pub fn new(py: Python<'_>) -> Option<Self> {
        let module = py.import("_weakref").ok()?;
        let reference = py.get_type::<PyWeakrefReference>();
        Some(Self {
            count: BuiltinFunction::of(&module, "getweakrefcount", ffi::METH_O).ok()?,
            list: BuiltinFunction::of(&module, "getweakrefs", ffi::METH_O).ok()?,
            callback: Descriptor::of(reference.cast::<PyType>().ok()?, "__callback__").ok()?,
        })
    }

    /// The weak references to an object that have a callback, each with it.
    pub fn with_callback<'py>(
        &self,
        object: &Bound<'py, PyAny>,
    ) -> Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let py = object.py();
        // SAFETY: attached, and the object is alive.
        if unsafe { self.count.call_unchecked(object.as_ptr()) } <= 0 {
            return Vec::new();
        }
        without_collections(py, || {
            // SAFETY: as above. The list is dropped in here, and destroys nothing: its items are others' too.
            let Some(list) = (unsafe { self.list.call(py, object.as_ptr()) }) else {
                return Vec::new();
            };
            let items = super::items(&list).into_iter();
            items
                .filter_map(|reference| {
                    let callback = self.callback.get(&reference)?;
                    Some((reference, callback))
                })
                .collect()
        })
    }
}
