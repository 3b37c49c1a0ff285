//! Calls on the main thread, at the interpreter's own convenience.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Has the main thread call `function` between two instructions of its Python code, as the
/// interpreter calls signal handlers. What it raises goes on in the program, as what a handler raises.
///
/// # Errors
/// If too many calls are pending.
#[pyfunction]
pub fn call_in_main_thread(function: Py<PyAny>) -> PyResult<()> {
    let argument = function.into_ptr();
    // SAFETY: `call` gets the reference that `into_ptr` left to it.
    if unsafe { ffi::Py_AddPendingCall(Some(call), argument.cast()) } == 0 {
        return Ok(());
    }
    // SAFETY: attached, as this is called from Python; `call` will not have the reference.
    unsafe { ffi::Py_DECREF(argument) };
    Err(PyRuntimeError::new_err(
        "too many calls are pending on the main thread; try again later",
    ))
}

extern "C" fn call(argument: *mut c_void) -> c_int {
    Python::attach(|py| {
        // SAFETY: the reference is this call's own; see above.
        let function = unsafe { Bound::from_owned_ptr(py, argument.cast()) };
        match function.call0() {
            Ok(_) => 0,
            Err(error) => {
                error.restore(py);
                -1
            }
        }
    })
}
