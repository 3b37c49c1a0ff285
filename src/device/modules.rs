//! The modules that the program has imported, read without running any code of theirs.

use pyo3::exceptions::PyLookupError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::cpython::new_text;
pub(super) use crate::cpython::{imported, module_count};

/// Something that a module has, or will have once its import is done.
///
/// # Errors
/// If it is not there.
pub fn part<'py>(module: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let found = match new_text(module.py(), name) {
        Some(name) => module.get_item(name)?,
        None => None,
    };
    found.ok_or_else(|| PyLookupError::new_err(format!("cyclescope: there is no {name} yet")))
}

/// A class that a module has.
///
/// # Errors
/// If it is not there or not a class.
pub fn class<'py>(module: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(part(module, name)?.cast_into::<PyType>()?)
}
