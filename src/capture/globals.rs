//! What the code of a function names: variables of its module, and arguments that it passes.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::places::function_code;
use crate::cpython::read::texts_of;
use crate::cpython::{Builtins, ObjectKind, dict_items, items, text_of};

/// The variables of its module that a function's code names; none for anything else.
pub fn globals_used<'py>(
    builtins: &Builtins,
    function: &Bound<'py, PyAny>,
) -> Vec<Bound<'py, PyAny>> {
    let code = function_code(builtins, function);
    let globals = builtins.function_globals.get(function);
    let both = code.zip(globals);
    both.map_or_else(Vec::new, |(code, globals)| {
        globals_named(builtins, &code, &globals)
    })
}

/// Those of the variables of a module that code names.
pub(super) fn globals_named<'py>(
    builtins: &Builtins,
    code: &Bound<'py, PyAny>,
    globals: &Bound<'py, PyAny>,
) -> Vec<Bound<'py, PyAny>> {
    let names = builtins.code_names.get(code);
    let names = names.map_or_else(Vec::new, |names| texts_of(&names));
    let mut found = Vec::new();
    dict_items(globals, &mut |name, value| {
        if text_of(name).is_some_and(|name| names.contains(&name)) {
            found.push(value.clone());
        }
        true
    });
    found
}

/// True if code, or that of a function within it, passes an argument of some name.
pub(super) fn passes_argument(builtins: &Builtins, code: &Bound<'_, PyAny>, word: &str) -> bool {
    let mut pending = vec![code.clone()];
    while let Some(code) = pending.pop() {
        let constants = builtins.code_consts.get(&code);
        for constant in constants.iter().flat_map(items) {
            if constant.is_exact_instance_of::<PyTuple>() {
                if texts_of(&constant).iter().any(|text| text == word) {
                    return true;
                }
                continue;
            }
            // SAFETY: attached, the object and its type are alive.
            let kind = unsafe { builtins.kind(ffi::Py_TYPE(constant.as_ptr())) };
            if kind == ObjectKind::Code {
                pending.push(constant);
            }
        }
    }
    false
}
