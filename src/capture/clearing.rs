//! Whether the running code clears gradients, or a function that it may call.
//!
//! Which functions these are goes by names: the program's code may call each lambda of its file and every function
//! that it names, and a library's code those of the same library. That is more than is called, so what is not found here is not
//! done, unless by a function that is looked up by a string or was given to a library.

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::is_library_file;
use super::places::{code_place, function_code, qualname};
use super::running::{package_folder, running_codes};
use crate::cpython::instructions::{Instruction, decode};
use crate::cpython::read::texts_of;
use crate::cpython::{Builtins, CurrentFrames, ObjectKind, items};

/// What clears gradients, or whatever it is called for.
const CLEARING: [&str; 3] = ["zero_grad", "zero_", "_foreach_zero_"];
/// What may clear a gradient in a function that names it.
const WRITING: [&str; 5] = ["data", "fill_", "copy_", "mul_", "set_"];
/// By these a gradient is written to and its version does not show it.
const ASIDE: [&str; 2] = ["data", "detach_"];
/// They offer it, and call it for nobody.
const OFFERING: [&str; 2] = ["torch", "triton"];

/// Code, with the library that it is from; the program's own has none.
type Code<'py> = (Option<String>, Bound<'py, PyAny>);

/// True if the running code may clear gradients, or any of `functions` that it may call; with `aside`, only in ways that do
/// not show in a gradient's version.
pub fn may_clear_gradients<'py>(
    py: Python<'py>,
    builtins: &Builtins,
    current_frames: &CurrentFrames,
    functions: impl Iterator<Item = Bound<'py, PyAny>>,
    aside: bool,
) -> bool {
    let own = package_folder(py);
    let known = |code: Bound<'py, PyAny>| -> Option<Code<'py>> {
        let file = code_place(builtins, &code)?.file;
        let is_ours = own.as_ref().is_some_and(|own| file.starts_with(own));
        match library_of(&file) {
            _ if is_ours => None,
            From::Program => Some((None, code)),
            From::Library(name) if OFFERING.contains(&name) => None,
            From::Library(name) => Some((Some(name.to_owned()), code)),
            From::Interpreter => None,
        }
    };
    let mut by_name: FxHashMap<String, Vec<Code<'py>>> = FxHashMap::default();
    for function in functions {
        if let Some(code) = function_code(builtins, &function).and_then(known) {
            let full = qualname(&builtins.function_qualname, &function);
            by_name
                .entry(called_by(&full).to_owned())
                .or_default()
                .push(code);
        }
    }
    let running = running_codes(py, builtins, current_frames).into_iter();
    let mut pending: Vec<Code<'py>> = running.filter_map(known).collect();
    // Those that have no name may be called by any function of their file.
    let file = |code: &Bound<'py, PyAny>| code_place(builtins, code).map(|place| place.file);
    let files: FxHashSet<String> = pending.iter().filter_map(|(_, code)| file(code)).collect();
    let nameless = by_name.get("<lambda>").into_iter().flatten();
    let nameless = nameless.filter(|(library, _)| library.is_none());
    let near = nameless.filter(|(_, code)| file(code).is_some_and(|it| files.contains(&it)));
    pending.extend(near.cloned());
    let mut seen: FxHashSet<usize> = FxHashSet::default();
    while let Some((library, code)) = pending.pop() {
        if !seen.insert(code.as_ptr() as usize) {
            continue;
        }
        let names = builtins.code_names.get(&code);
        let names = names.map_or_else(Vec::new, |names| texts_of(&names));
        let clears = match aside {
            true => clears_aside(&names),
            false => clears_gradients(builtins, &code, &names),
        };
        if clears {
            return true;
        }
        let named = names.iter().filter_map(|name| by_name.get(name)).flatten();
        let named = named.filter(|(of, _)| library.is_none() || *of == library);
        pending.extend(named.cloned());
        let constants = builtins.code_consts.get(&code);
        let within = constants.iter().flat_map(items).filter(|constant| {
            // SAFETY: attached, the object and its type are alive.
            let kind = unsafe { builtins.kind(ffi::Py_TYPE(constant.as_ptr())) };
            kind == ObjectKind::Code
        });
        pending.extend(within.map(|code| (library.clone(), code)));
    }
    false
}

/// Whose a file is.
#[derive(Debug, PartialEq, Eq)]
enum From<'a> {
    Program,
    Library(&'a str),
    Interpreter,
}

fn library_of(file: &str) -> From<'_> {
    let folders = ["/site-packages/", "/dist-packages/"];
    let rest = folders.iter().find_map(|folder| file.split_once(folder));
    match rest.and_then(|(_, rest)| rest.split(['/', '.']).next()) {
        Some(name) => From::Library(name),
        None if is_library_file(file) => From::Interpreter,
        None => From::Program,
    }
}

/// The name by which code calls a function: its own, or that of its class if Python calls it for that.
fn called_by(full: &str) -> &str {
    let mut parts = full.rsplit('.');
    let own = parts.next().unwrap_or_default();
    let class = parts.next();
    let is_implicit = own.starts_with("__") || own == "forward";
    class.filter(|_| is_implicit).unwrap_or(own)
}

fn clears_gradients(builtins: &Builtins, code: &Bound<'_, PyAny>, names: &[String]) -> bool {
    if names.iter().any(|name| CLEARING.contains(&name.as_str())) {
        return true;
    }
    let Some(grad) = names.iter().position(|name| name == "grad") else {
        return false;
    };
    if names.iter().any(|name| WRITING.contains(&name.as_str())) {
        return true;
    }
    let sets = [Instruction::SetAttribute(grad), Instruction::SetItem];
    decode(builtins, code).is_none_or(|read| read.all.iter().any(|it| sets.contains(it)))
}

fn clears_aside(names: &[String]) -> bool {
    let has = |names: &[String], name: &str| names.iter().any(|it| it == name);
    has(names, "grad") && ASIDE.iter().any(|name| has(names, name))
}

#[cfg(test)]
mod tests {
    use super::{From, called_by, library_of};

    #[test]
    fn what_python_calls_goes_by_its_class() {
        assert_eq!(called_by("train"), "train");
        assert_eq!(called_by("Trainer.step"), "step");
        assert_eq!(called_by("Trainer.__init__"), "Trainer");
        assert_eq!(called_by("make.<locals>.Net.forward"), "Net");
        assert_eq!(called_by("forward"), "forward");
    }

    #[test]
    fn a_file_is_the_programs_a_librarys_or_the_interpreters() {
        for (file, whose) in [
            ("/home/me/train.py", From::Program),
            ("<ipython-input-1>", From::Program),
            (
                "/v/lib/python3.12/site-packages/torch/optim/sgd.py",
                From::Library("torch"),
            ),
            (
                "/v/lib/python3.12/site-packages/single.py",
                From::Library("single"),
            ),
            ("/usr/lib/python3.12/threading.py", From::Interpreter),
        ] {
            assert_eq!(library_of(file), whose, "{file}");
        }
    }
}
