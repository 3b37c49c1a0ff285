//! What the program has imported.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A module that is in `sys.modules`, without importing anything.
///
/// Not by `import sys`: a program may have put its own function in place of `__import__`.
pub fn imported_module<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    let py = name.py();
    // SAFETY: attached; the dict and the module are lent by the interpreter.
    unsafe {
        let modules = ffi::PyImport_GetModuleDict();
        let module = ffi::PyDict_GetItemWithError(modules, name.as_ptr());
        if module.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_borrowed_ptr_or_opt(py, module)
    }
}
