//! Calls of functions of the interpreter and of frameworks. PyO3 makes a tuple of the arguments, or a string of the name of
//! a method, and panics where there is no memory for it; these calls fail.

use std::ffi::{CStr, c_int};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;

use super::read::text_of;

/// Calls a function without an argument. `None` if it raises; the exception is dropped.
pub fn call<'py>(function: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let end = ptr::null_mut::<ffi::PyObject>();
    // SAFETY: attached, and the function is alive; the list of arguments ends with a null pointer.
    unsafe {
        taken(
            function,
            ffi::PyObject_CallFunctionObjArgs(function.as_ptr(), end),
        )
    }
}

/// As [`call`], with one argument.
pub fn call_with<'py>(
    function: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    let end = ptr::null_mut::<ffi::PyObject>();
    let argument = argument.as_ptr();
    // SAFETY: attached, and both are alive; the list of arguments ends with a null pointer.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(function.as_ptr(), argument, end);
        taken(function, result)
    }
}

/// The attribute of an object of a type in C. `None` if there is none; the exception is dropped.
pub fn attribute_named<'py>(object: &Bound<'py, PyAny>, name: &CStr) -> Option<Bound<'py, PyAny>> {
    // SAFETY: attached, the object is alive, and the name ends with a null byte.
    unsafe {
        taken(
            object,
            ffi::PyObject_GetAttrString(object.as_ptr(), name.as_ptr()),
        )
    }
}

/// What `str()` says of an object of a type in C.
///
/// `PyObject_Str` runs the handlers of signals that have come (`PyErr_CheckSignals`), and so code of the program, whose
/// exception would be lost here. The type's own function does not.
pub fn str_of(object: &Bound<'_, PyAny>) -> Option<String> {
    said(object, ffi::Py_tp_str)
}

/// As [`str_of`], what `repr()` says.
pub fn repr_of(object: &Bound<'_, PyAny>) -> Option<String> {
    said(object, ffi::Py_tp_repr)
}

fn said(object: &Bound<'_, PyAny>, slot: c_int) -> Option<String> {
    // SAFETY: attached, and the object is alive. Both slots have a function of this type, or none.
    let text = unsafe {
        let say = ffi::PyType_GetSlot(ffi::Py_TYPE(object.as_ptr()), slot);
        let say = std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::reprfunc>>(say)?;
        taken(object, say(object.as_ptr()))?
    };
    text_of(&text)
}

/// A new reference that the interpreter has returned, or `None` without the exception that it has set.
///
/// # Safety
/// `result` is null, with an exception set, or a new reference.
unsafe fn taken<'py>(
    attached: &Bound<'py, PyAny>,
    result: *mut ffi::PyObject,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: attached, as there is a bound object; the rest by this function's contract.
    unsafe {
        if result.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(attached.py(), result)
    }
}
