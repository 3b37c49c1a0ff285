//! The parts of CPython's `gc` module that the hook uses, called without detours.

use std::ffi::c_int;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// `gc.DEBUG_SAVEALL` (Include/internal/pycore_gc.h, `_PyGC_DEBUG_SAVEALL`).
pub const DEBUG_SAVEALL: i64 = 1 << 5;

/// The `gc` module: its lists, and its functions as C pointers.
pub struct GcModule {
    /// `gc.garbage`, the list that the collector appends to.
    pub garbage: Py<PyList>,
    /// `gc.callbacks`.
    pub callbacks: Py<PyList>,
    collect: Py<PyAny>,
    get_objects: Py<PyAny>,
    get_debug: BuiltinFunction,
    set_debug: BuiltinFunction,
}

/// A built-in function of at most one argument, and the C function behind it.
struct BuiltinFunction {
    object: Py<PyAny>,
    function: ffi::PyCFunction,
}

impl BuiltinFunction {
    fn of(module: &Bound<'_, PyModule>, name: &str, flags: c_int) -> PyResult<Self> {
        let object = module.getattr(name)?;
        let unsuitable = || {
            PyRuntimeError::new_err(format!(
                "cyclescope: gc.{name} is not the built-in function of CPython, so collections \
                 cannot be watched"
            ))
        };
        // SAFETY: attached; the check makes sure that this is a C function before it is asked for.
        unsafe {
            if ffi::PyCFunction_CheckExact(object.as_ptr()) == 0
                || ffi::PyCFunction_GetFlags(object.as_ptr()) & (ffi::METH_O | ffi::METH_NOARGS)
                    != flags
            {
                return Err(unsuitable());
            }
            let function = ffi::PyCFunction_GetFunction(object.as_ptr()).ok_or_else(unsuitable)?;
            Ok(Self {
                object: object.unbind(),
                function,
            })
        }
    }

    /// Calls it, with a borrowed argument or null, and gives its result as a number; -1 and no
    /// exception if it fails.
    fn call(&self, _py: Python<'_>, argument: *mut ffi::PyObject) -> i64 {
        // SAFETY: attached; the flags checked in `of` are those of a function that takes its
        // module and this argument.
        unsafe {
            let result = (self.function)(ffi::PyCFunction_GetSelf(self.object.as_ptr()), argument);
            if result.is_null() {
                ffi::PyErr_Clear();
                return -1;
            }
            let number = if result == ffi::Py_None() {
                0
            } else {
                ffi::PyLong_AsLongLong(result)
            };
            ffi::Py_DecRef(result);
            number
        }
    }
}

impl GcModule {
    /// # Errors
    /// If the module's functions have been replaced.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("gc")?;
        Ok(Self {
            garbage: module.getattr("garbage")?.cast_into::<PyList>()?.unbind(),
            callbacks: module.getattr("callbacks")?.cast_into::<PyList>()?.unbind(),
            collect: module.getattr("collect")?.unbind(),
            get_objects: module.getattr("get_objects")?.unbind(),
            get_debug: BuiltinFunction::of(&module, "get_debug", ffi::METH_NOARGS)?,
            set_debug: BuiltinFunction::of(&module, "set_debug", ffi::METH_O)?,
        })
    }

    pub fn debug_flags(&self, py: Python<'_>) -> i64 {
        self.get_debug.call(py, std::ptr::null_mut())
    }

    pub fn set_debug_flags(&self, py: Python<'_>, flags: i64) {
        // SAFETY: attached; a new reference, given up after the call. Null (no memory) is not
        // passed on.
        unsafe {
            let number = ffi::PyLong_FromLongLong(flags);
            if number.is_null() {
                ffi::PyErr_Clear();
                return;
            }
            self.set_debug.call(py, number);
            ffi::Py_DecRef(number);
        }
    }

    /// Runs a full collection, also where automatic collection is off.
    ///
    /// # Errors
    /// If the interpreter is shutting down.
    pub fn collect(&self, py: Python<'_>) -> PyResult<()> {
        self.collect.bind(py).call0().map(drop)
    }

    /// The objects of one generation, or of all.
    ///
    /// # Errors
    /// If the interpreter has no such generation, or not enough memory for the list.
    pub fn objects<'py>(
        &self,
        py: Python<'py>,
        generation: Option<u32>,
    ) -> PyResult<Bound<'py, PyList>> {
        let generation = generation.into_pyobject(py)?;
        // Not `call1`: the tuple of arguments would be among the objects, and gone afterwards, so
        // that it would look like garbage.
        // SAFETY: attached; the arguments are borrowed, and their end is marked.
        let objects = unsafe {
            let end = std::ptr::null_mut::<ffi::PyObject>();
            let objects = ffi::PyObject_CallFunctionObjArgs(
                self.get_objects.as_ptr(),
                generation.as_ptr(),
                end,
            );
            Bound::from_owned_ptr_or_err(py, objects)?
        };
        Ok(objects.cast_into::<PyList>()?)
    }
}
