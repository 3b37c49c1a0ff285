//! The answer where the inspector is at work already.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pyo3::create_exception!(
    cyclescope,
    Busy,
    PyRuntimeError,
    "The inspector is already in use, on another thread or further up the stack."
);

pub(super) fn busy() -> PyErr {
    Busy::new_err(
        "cyclescope is already inspecting the heap on another thread; try again when it is done",
    )
}
