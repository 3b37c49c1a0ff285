//! Built-in functions called without a frame and without detours.

use std::ffi::c_int;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A built-in function of at most one argument: the C function behind it, and its module, which is never let go.
#[derive(Clone, Copy)]
pub struct BuiltinFunction {
    function: ffi::PyCFunction,
    module: *mut ffi::PyObject,
}

impl BuiltinFunction {
    pub(super) fn of(module: &Bound<'_, PyModule>, name: &str, flags: c_int) -> PyResult<Self> {
        let object = module.getattr(name)?;
        let unsuitable = || {
            let module = module
                .name()
                .map_or_else(|_| String::new(), |it| it.to_string());
            PyRuntimeError::new_err(format!(
                "cyclescope: {module}.{name} is not the built-in function of CPython, so collections \
                 cannot be watched"
            ))
        };
        // SAFETY: attached; the check makes sure that this is a C function before it is asked for. The function and
        // its module have one reference more from now on.
        unsafe {
            if ffi::PyCFunction_CheckExact(object.as_ptr()) == 0
                || ffi::PyCFunction_GetFlags(object.as_ptr()) & (ffi::METH_O | ffi::METH_NOARGS)
                    != flags
            {
                return Err(unsuitable());
            }
            let function = ffi::PyCFunction_GetFunction(object.as_ptr()).ok_or_else(unsuitable)?;
            let module = ffi::PyCFunction_GetSelf(object.into_ptr());
            Ok(Self { function, module })
        }
    }

    /// Calls it, with a borrowed argument or null, and gives its result as a number; -1 and no
    /// exception if it fails.
    ///
    /// # Safety
    /// The caller is attached to the interpreter.
    pub unsafe fn call_unchecked(&self, argument: *mut ffi::PyObject) -> i64 {
        // SAFETY: attached; the flags checked in `of` are those of a function that takes its
        // module and this argument.
        unsafe {
            let result = (self.function)(self.module, argument);
            if result.is_null() {
                ffi::PyErr_Clear();
                return -1;
            }
            let number = ffi::PyLong_AsLongLong(result);
            ffi::Py_DecRef(result);
            number
        }
    }

    /// Calls it, with a borrowed argument or null; `None` and no exception if it fails.
    ///
    /// # Safety
    /// As for [`BuiltinFunction::call_unchecked`].
    pub unsafe fn call<'py>(
        &self,
        py: Python<'py>,
        argument: *mut ffi::PyObject,
    ) -> Option<Bound<'py, PyAny>> {
        // SAFETY: as there; the result is a new reference, or null with an exception.
        unsafe {
            let result = (self.function)(self.module, argument);
            let result = Bound::from_owned_ptr_or_opt(py, result);
            if result.is_none() {
                ffi::PyErr_Clear();
            }
            result
        }
    }
}
