//! The addresses that frameworks have as numbers, or as objects around one.

use std::ffi::c_void;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::modules::{class, imported};
use crate::cpython::{Descriptor, int_value};

/// How objects that stand for an address are read.
pub struct Addresses {
    /// `CUdeviceptr` of the package `cuda.bindings`, and its conversion to a number, which is in C.
    pointer: Option<(Py<PyType>, ffi::unaryfunc)>,
    /// The base of numbers and pointers of `ctypes`.
    simple: Option<(Py<PyType>, Descriptor)>,
}

impl Addresses {
    /// Reads the modules that have been imported.
    pub fn new(py: Python<'_>) -> Self {
        let pointer = imported(intern!(py, "cuda.bindings.driver")).and_then(|driver| {
            let pointer = class(&driver, "CUdeviceptr").ok()?;
            // SAFETY: attached; the slot has the type that CPython documents.
            let to_number = unsafe {
                std::mem::transmute::<*mut c_void, Option<ffi::unaryfunc>>(ffi::PyType_GetSlot(
                    pointer.as_type_ptr(),
                    ffi::Py_nb_int,
                ))
            };
            Some((pointer.unbind(), to_number?))
        });
        let simple = imported(intern!(py, "_ctypes")).and_then(|ctypes| {
            let simple = class(&ctypes, "_SimpleCData").ok()?;
            let value = Descriptor::of(&simple, "value").ok()?;
            Some((simple.unbind(), value))
        });
        Self { pointer, simple }
    }

    /// The address that an object is or stands for; `None` for zero.
    pub fn read(&self, object: &Bound<'_, PyAny>) -> Option<u64> {
        let number = self.number(object)?;
        u64::try_from(int_value(&number)?)
            .ok()
            .filter(|it| *it != 0)
    }

    fn number<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let py = object.py();
        if let Some((pointer, to_number)) = &self.pointer
            && object.get_type().is(pointer.bind(py))
        {
            // SAFETY: attached, and the object is of the type that has this slot; the function returns a new
            // reference, or null with an exception set.
            unsafe {
                let number = Bound::from_owned_ptr_or_opt(py, to_number(object.as_ptr()));
                if number.is_none() {
                    ffi::PyErr_Clear();
                }
                return number;
            }
        }
        if let Some((simple, value)) = &self.simple {
            // SAFETY: attached; walks the type's own `tp_mro`.
            let is_simple = unsafe {
                let base = simple.as_ptr().cast();
                ffi::PyType_IsSubtype(ffi::Py_TYPE(object.as_ptr()), base) != 0
            };
            if is_simple {
                return value.get(object);
            }
        }
        Some(object.clone())
    }
}
