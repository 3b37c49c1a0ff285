//! The answer where the inspector is at work already.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::cpython::{STACK_NEEDED, has_stack};

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

/// # Errors
/// If the thread that calls has too little of its stack left for a look.
pub(crate) fn ensure_stack() -> PyResult<()> {
    match has_stack() {
        true => Ok(()),
        false => Err(PyRuntimeError::new_err(format!(
            "cyclescope needs {} KiB of stack, and this thread has less left; call it on another thread, or raise \
             threading.stack_size() before this one starts",
            STACK_NEEDED >> 10
        ))),
    }
}
