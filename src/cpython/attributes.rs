//! What classes have in their dictionaries, and functions and suspended objects as their code.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::builtins::Builtins;
use super::read::{dict_items, referents};

/// Calls `f` with each key and value of a class's own dictionary, until it returns false.
///
/// A class made at run time refers to the dict itself, first of all dicts (`type_traverse` in
/// Objects/typeobject.c). Of any other, `type.__dict__` is a read-only proxy, made for the occasion; the dict
/// behind it is the one object that the proxy refers to. Asking the proxy for items would hash the keys.
pub fn class_items<'py>(
    builtins: &Builtins,
    class: &Bound<'py, PyAny>,
    f: &mut dyn FnMut(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> bool,
) {
    // SAFETY: attached; the check is by type flag, and a class is a live type.
    let is_made_at_run_time = unsafe {
        if ffi::PyType_Check(class.as_ptr()) == 0 {
            return;
        }
        ffi::PyType_GetFlags(class.as_ptr().cast()) & ffi::Py_TPFLAGS_HEAPTYPE != 0
    };
    let holder = if is_made_at_run_time {
        class.clone()
    } else {
        match builtins.type_dict.get(class) {
            Some(proxy) => proxy,
            None => return,
        }
    };
    let dict = referents(&holder)
        .into_iter()
        // SAFETY: attached; the holder refers to the target and so keeps it alive.
        .map(|target| unsafe { Bound::from_borrowed_ptr(class.py(), target as *mut ffi::PyObject) })
        .find(|target| target.is_exact_instance_of::<PyDict>());
    if let Some(dict) = dict {
        dict_items(&dict, f);
    }
}

/// The first object of a kind among those that `object` refers to.
///
/// That is the code of a function and of a suspended object, for which `__code__` and `gi_code` would tell
/// the program's audit hooks (`func_traverse` in Objects/funcobject.c, `gen_traverse` in
/// Objects/genobject.c).
pub fn first_of_kind<'py>(
    builtins: &Builtins,
    object: &Bound<'py, PyAny>,
    kind: crate::cpython::ObjectKind,
) -> Option<Bound<'py, PyAny>> {
    let found = referents(object).into_iter().find(|&target| {
        // SAFETY: attached; the object refers to the target and so keeps it alive.
        unsafe { builtins.kind(ffi::Py_TYPE(target as *mut ffi::PyObject)) == kind }
    });
    // SAFETY: as above.
    found.map(|target| unsafe {
        Bound::from_borrowed_ptr(object.py(), target as *mut ffi::PyObject)
    })
}
