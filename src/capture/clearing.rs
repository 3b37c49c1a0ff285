//! Whether code clears gradients.

use pyo3::ffi;
use pyo3::prelude::*;

use super::places::{code_place, function_code};
use crate::cpython::instructions::{Instruction, decode};
use crate::cpython::read::texts_of;
use crate::cpython::{Builtins, ObjectKind, items};

/// What clears gradients, or whatever it is called for.
const CLEARING: [&str; 3] = ["zero_grad", "zero_", "_foreach_zero_"];
/// PyTorch offers it, and calls it for nobody.
const TORCH: &str = "/torch/";

/// True if a function may clear gradients; false for what PyTorch itself brings, and for anything else.
pub fn function_clears_gradients(builtins: &Builtins, function: &Bound<'_, PyAny>) -> bool {
    let Some(code) = function_code(builtins, function) else {
        return false;
    };
    let place = code_place(builtins, &code);
    let is_of_torch = place.is_some_and(|place| place.file.contains(TORCH));
    !is_of_torch && clears_gradients(builtins, &code)
}

/// True if code, or that of a function within it, may clear gradients.
pub(super) fn clears_gradients(builtins: &Builtins, code: &Bound<'_, PyAny>) -> bool {
    let mut pending = vec![code.clone()];
    while let Some(code) = pending.pop() {
        let names = builtins.code_names.get(&code);
        let names = names.map_or_else(Vec::new, |names| texts_of(&names));
        if names.iter().any(|name| CLEARING.contains(&name.as_str())) {
            return true;
        }
        if let Some(grad) = names.iter().position(|name| name == "grad") {
            let sets = Instruction::SetAttribute(grad);
            if decode(builtins, &code).is_none_or(|read| read.all.contains(&sets)) {
                return true;
            }
        }
        let constants = builtins.code_consts.get(&code);
        pending.extend(constants.iter().flat_map(items).filter(|constant| {
            // SAFETY: attached, the object and its type are alive.
            let kind = unsafe { builtins.kind(ffi::Py_TYPE(constant.as_ptr())) };
            kind == ObjectKind::Code
        }));
    }
    false
}
