//! Reading parts of objects through C code only.

use std::ffi::c_void;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use super::traverse::for_each_referent;

/// Text longer than this is cut when it is taken from the program.
pub const TEXT_LIMIT: usize = 200;

/// What an object refers to, by its type's `tp_traverse`, in order.
pub fn referents(object: &Bound<'_, PyAny>) -> Vec<usize> {
    let mut found = Vec::new();
    // SAFETY: attached, and the object and its type are alive; the slot has the type that CPython
    // documents, and the visitor only takes addresses.
    unsafe {
        let ty = ffi::Py_TYPE(object.as_ptr());
        let traverse = std::mem::transmute::<*mut c_void, Option<ffi::traverseproc>>(
            ffi::PyType_GetSlot(ty, ffi::Py_tp_traverse),
        );
        if let Some(traverse) = traverse {
            for_each_referent(object.as_ptr(), traverse, &mut |target| {
                found.push(target as usize);
            });
        }
    }
    found
}

/// Calls `f` with each key and value of a dict or an object of a subclass, until it returns false.
///
/// Walks the dict's own table (`PyDict_Next`): no hash, no comparison, no overridden method.
/// `f` must not change the dict.
pub fn dict_items<'py>(
    dict: &Bound<'py, PyAny>,
    f: &mut dyn FnMut(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> bool,
) {
    let py = dict.py();
    let mut position = 0;
    let mut key = std::ptr::null_mut();
    let mut value = std::ptr::null_mut();
    // SAFETY: attached; `PyDict_Next` returns 0 for anything that is not a dict, and lends the
    // key and the value, which are given references of their own for the time of the call.
    unsafe {
        while ffi::PyDict_Next(dict.as_ptr(), &mut position, &mut key, &mut value) != 0 {
            let key = Bound::from_borrowed_ptr(py, key);
            let value = Bound::from_borrowed_ptr(py, value);
            if !f(&key, &value) {
                break;
            }
        }
    }
}

/// The text of an exact or derived `str`, cut at [`TEXT_LIMIT`] characters; `None` for other types.
///
/// Lone surrogates, which have no UTF-8, become U+FFFD.
pub fn text_of(object: &Bound<'_, PyAny>) -> Option<String> {
    // SAFETY: attached; both functions check nothing but flags and read the string's own storage.
    unsafe {
        let text = object.as_ptr();
        if ffi::PyUnicode_Check(text) == 0 {
            return None;
        }
        let length = usize::try_from(ffi::PyUnicode_GetLength(text)).ok()?;
        let mut result: String = (0..length.min(TEXT_LIMIT))
            .map(|i| {
                char::from_u32(ffi::PyUnicode_ReadChar(text, i as ffi::Py_ssize_t))
                    .unwrap_or(char::REPLACEMENT_CHARACTER)
            })
            .collect();
        if length > TEXT_LIMIT {
            result.push('…');
        }
        Some(result)
    }
}

/// A program's text on one line: control characters, and those that turn the direction of writing,
/// become escapes.
pub fn printable(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
        match c {
            '\n' => result.push_str("\\n"),
            '\r' => result.push_str("\\r"),
            '\t' => result.push_str("\\t"),
            c if c.is_control() && u32::from(c) < 0x100 => {
                result.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c if turns => result.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => result.push(c),
        }
    }
    result
}

/// The value of an exact `int` or `bool` that fits; `None` for anything else.
pub fn int_value(object: &Bound<'_, PyAny>) -> Option<i64> {
    let exact = object.is_exact_instance_of::<pyo3::types::PyInt>()
        || object.is_exact_instance_of::<pyo3::types::PyBool>();
    if !exact {
        return None;
    }
    object.extract().ok()
}

/// True for False and None.
pub fn is_untrue(object: &Bound<'_, PyAny>) -> bool {
    let is_false = |it: &Bound<'_, PyBool>| !it.is_true();
    object.is_none() || object.cast_exact::<PyBool>().is_ok_and(is_false)
}

/// The values of a tuple of strings, such as `co_varnames`.
pub fn texts_of(tuple: &Bound<'_, PyAny>) -> Vec<String> {
    items(tuple)
        .iter()
        .map(|item| text_of(item).unwrap_or_default())
        .collect()
}

/// The items of a tuple or a list, also of a subclass; empty for anything else. One that is being filled has fewer items
/// than places: the collector tracks it before (`PyTuple_New` in Objects/tupleobject.c).
pub fn items<'py>(sequence: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let (py, object) = (sequence.py(), sequence.as_ptr());
    // SAFETY: attached; the checks are by type flag. The items are lent, and given references of their
    // own before any other code runs.
    unsafe {
        let lent = |item| Bound::from_borrowed_ptr_or_opt(py, item);
        if ffi::PyTuple_Check(object) != 0 {
            (0..ffi::PyTuple_Size(object))
                .filter_map(|i| lent(ffi::PyTuple_GetItem(object, i)))
                .collect()
        } else if ffi::PyList_Check(object) != 0 {
            (0..ffi::PyList_Size(object))
                .filter_map(|i| lent(ffi::PyList_GetItem(object, i)))
                .collect()
        } else {
            Vec::new()
        }
    }
}

/// The items of a set or deque, also of a subclass: the last that it refers to, in their order
/// (`set_traverse` in Objects/setobject.c, `deque_traverse` in Modules/_collectionsmodule.c; the traversal
/// of a subclass ends with that of its base, `subtype_traverse` in Objects/typeobject.c).
pub fn last_referents(object: &Bound<'_, PyAny>, count: usize) -> Vec<usize> {
    let mut referents = referents(object);
    referents.split_off(referents.len().saturating_sub(count))
}

/// The value of a key that is an exact `str`, found without hashing or comparing other keys.
pub fn find_item<'py>(
    name: &str,
    walk: impl FnOnce(&mut dyn FnMut(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> bool),
) -> Option<Bound<'py, PyAny>> {
    let mut found = None;
    walk(&mut |key, value| {
        let hit = key.is_exact_instance_of::<PyString>() && text_of(key).as_deref() == Some(name);
        if hit {
            found = Some(value.clone());
        }
        !hit
    });
    found
}

/// An imported module of this name, found among all of them without hashing or comparing keys; for
/// names that come from the program. Slower than [`imported`], which is for names of our own.
pub fn module_named<'py>(py: Python<'py>, name: &str) -> Option<Bound<'py, PyAny>> {
    find_item(name, |f| {
        if let Some(modules) = modules(py) {
            dict_items(&modules, f);
        }
    })
}

/// Calls `f` with the name and each imported module.
pub fn each_module<'py>(
    py: Python<'py>,
    f: &mut dyn FnMut(&Bound<'py, PyAny>, &Bound<'py, PyAny>),
) {
    if let Some(modules) = modules(py) {
        dict_items(&modules, &mut |name, module| {
            f(name, module);
            true
        });
    }
}

/// The interpreter's own dict of modules.
fn modules(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: attached; the dict is borrowed from the interpreter.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }
}

/// How many modules the program has imported, or begun to.
pub fn module_count(_py: Python<'_>) -> usize {
    // SAFETY: attached; the dict is borrowed from the interpreter.
    let count = unsafe { ffi::PyDict_Size(ffi::PyImport_GetModuleDict()) };
    usize::try_from(count).unwrap_or(0)
}

/// A new string; `None` where there is no memory for it (`PyString::new` would panic).
pub fn new_text<'py>(py: Python<'py>, text: &str) -> Option<Bound<'py, PyString>> {
    // SAFETY: attached; CPython copies the text, and what it makes of it is a string or null.
    unsafe {
        let length = isize::try_from(text.len()).ok()?;
        let string = ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), length);
        if string.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(Bound::from_owned_ptr(py, string).cast_into_unchecked())
    }
}

/// The string that a cell is for, made at the first call; see the macro `intern`.
pub fn interned<'py>(
    py: Python<'py>,
    cell: &'static OnceLock<Py<PyString>>,
    text: &str,
) -> &'py Bound<'py, PyString> {
    // There is one empty string, for which no memory is asked (`PyUnicode_New` in Objects/unicodeobject.c).
    static EMPTY: OnceLock<Py<PyString>> = OnceLock::new();
    if let Some(known) = cell.get() {
        return known.bind(py);
    }
    match new_text(py, text) {
        Some(made) => cell.get_or_init(|| made.unbind()).bind(py),
        None => EMPTY
            .get_or_init(|| PyString::new(py, "").unbind())
            .bind(py),
    }
}

/// The address of the dictionary that has a module's variables; 0 for what is no module. Further ones that a module
/// refers to are C's own (`md_state`).
pub fn module_dict(module: &Bound<'_, PyAny>) -> usize {
    match module.cast::<PyModule>() {
        // SAFETY: attached; this is a module, and the dict is borrowed from it (`PyModule_GetDict` in
        // Objects/moduleobject.c).
        Ok(module) => unsafe { ffi::PyModule_GetDict(module.as_ptr()) as usize },
        Err(_) => 0,
    }
}

/// The names in an imported module; `None` if it has not been imported.
///
/// Goes through the interpreter's own dict of modules and the module's own dict: an attribute asked
/// of a module may call its `__getattr__`, and one of a lazy module imports it.
pub fn imported<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyDict>> {
    let modules = modules(name.py())?;
    let module = modules.cast::<PyDict>().ok()?.get_item(name).ok()??;
    Some(module.cast::<PyModule>().ok()?.dict())
}
