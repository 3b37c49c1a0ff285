//! Functions of a framework that are implemented in C++, bound with nanobind.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFunction, PyType};

use super::framework::Unread;
use crate::cpython::Descriptor;

/// `Py_TPFLAGS_METHOD_DESCRIPTOR` in Include/object.h: functions of Python's and of C code have it, and no instance
/// of a class that a program defines.
const METHOD_DESCRIPTOR: std::ffi::c_ulong = 1 << 17;

/// A method, or what reads a property, taken from the class that defines it and called past the object's own class.
pub struct NativeFunction(Py<PyAny>);

impl NativeFunction {
    /// The method `name` of a class itself, not of a base.
    ///
    /// # Errors
    /// If there is none, or the program has put a function of its own there.
    pub fn method(class: &Bound<'_, PyType>, name: &str) -> Result<Self, Unread> {
        let method = class.getattr("__dict__")?.get_item(name)?;
        Self::checked(method)
    }

    /// What reads the property `name` of a class itself.
    pub fn getter(class: &Bound<'_, PyType>, name: &str) -> Result<Self, Unread> {
        Self::of_property(&class.getattr("__dict__")?.get_item(name)?)
    }

    /// What reads a property.
    pub fn of_property(property: &Bound<'_, PyAny>) -> Result<Self, Unread> {
        // SAFETY: attached; a type is never freed while an object has it.
        let is_property = unsafe {
            ffi::Py_TYPE(property.as_ptr()) == std::ptr::addr_of_mut!(ffi::PyProperty_Type)
        };
        if !is_property {
            return Err(Unread::Never);
        }
        let getter = Descriptor::of(&property.get_type(), "fget")?;
        Self::checked(getter.get(property).ok_or(Unread::Never)?)
    }

    fn checked(function: Bound<'_, PyAny>) -> Result<Self, Unread> {
        // SAFETY: attached, and the function and its type are alive.
        let flags = unsafe { ffi::PyType_GetFlags(ffi::Py_TYPE(function.as_ptr())) };
        if flags & METHOD_DESCRIPTOR == 0 || function.is_exact_instance_of::<PyFunction>() {
            return Err(Unread::Never);
        }
        Ok(Self(function.unbind()))
    }

    /// What the function says of an object; `None` for an error and for Python's None.
    pub fn of<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let end = std::ptr::null_mut::<ffi::PyObject>();
        // SAFETY: attached. Returns a new reference, or null with an exception set.
        unsafe {
            let said = ffi::PyObject_CallFunctionObjArgs(self.0.as_ptr(), object.as_ptr(), end);
            Self::said(object, said)
        }
    }

    /// As [`NativeFunction::of`], with an argument.
    pub fn of_with<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        argument: &Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyAny>> {
        let end = std::ptr::null_mut::<ffi::PyObject>();
        // SAFETY: as in `of`.
        unsafe {
            let said = ffi::PyObject_CallFunctionObjArgs(
                self.0.as_ptr(),
                object.as_ptr(),
                argument.as_ptr(),
                end,
            );
            Self::said(object, said)
        }
    }

    /// # Safety
    /// `said` is what a call returned.
    unsafe fn said<'py>(
        object: &Bound<'py, PyAny>,
        said: *mut ffi::PyObject,
    ) -> Option<Bound<'py, PyAny>> {
        // SAFETY: by this function's contract.
        let said = unsafe { Bound::from_owned_ptr_or_opt(object.py(), said) };
        if said.is_none() {
            // SAFETY: attached.
            unsafe { ffi::PyErr_Clear() };
        }
        said.filter(|said| !said.is_none())
    }
}
