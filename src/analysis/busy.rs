//! The answer where the inspector is at work already.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pyo3::create_exception!(
    cyclescope,
    Busy,
    PyRuntimeError,
    "The inspector is at work already: on another thread, or further up the stack."
);

pub(super) fn busy() -> PyErr {
    Busy::new_err(
        "cyclescope is looking at the heap on another thread already; try again when it is done",
    )
}
