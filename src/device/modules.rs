//! The modules that the program has imported, read without running any code of theirs.

use pyo3::exceptions::PyLookupError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

/// The names in an imported module; `None` if it has not been imported.
///
/// Goes through the interpreter's own dict of modules and the module's own dict: an attribute asked
/// of a module may call its `__getattr__`, and one of a lazy module imports it.
pub fn imported<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyDict>> {
    let py = name.py();
    // SAFETY: attached; the dict is borrowed from the interpreter.
    let modules = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }?;
    let module = modules.cast::<PyDict>().ok()?.get_item(name).ok()??;
    Some(module.cast::<PyModule>().ok()?.dict())
}

/// Something that a module has, or will have once its import is done.
///
/// # Errors
/// If it is not there.
pub fn part<'py>(module: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    module
        .get_item(name)?
        .ok_or_else(|| PyLookupError::new_err(format!("cyclescope: there is no {name} yet")))
}

/// A class that a module has.
///
/// # Errors
/// If it is not there or not a class.
pub fn class<'py>(module: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(part(module, name)?.cast_into::<PyType>()?)
}
