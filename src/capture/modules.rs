//! The modules that the program has imported.

use pyo3::prelude::*;

use super::is_library_file;
use crate::cpython::read::{each_module, printable};
use crate::cpython::{Builtins, dict_items, find_item, text_of};

/// The source files of all imported modules that are the program's own, each once.
pub fn program_files(builtins: &Builtins, py: Python<'_>) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    each_module(py, &mut |name, module| {
        let name = text_of(name).unwrap_or_default();
        let is_ours = name.split('.').next() == Some("cyclescope");
        let file = file_of_module(builtins, module).filter(|_| !is_ours);
        files.extend(file.filter(|file| file.ends_with(".py") && !is_library_file(file)));
    });
    files.sort_unstable();
    files.dedup();
    files
}

/// The `__file__` of a module.
pub(super) fn file_of_module(builtins: &Builtins, module: &Bound<'_, PyAny>) -> Option<String> {
    let names = builtins.module_dict.get(module)?;
    let file = text_of(&find_item("__file__", |f| dict_items(&names, f))?)?;
    Some(printable(&file))
}
