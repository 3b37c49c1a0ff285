//! What the code of a function names: variables of its module, and arguments that it passes.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::places::function_code;
use crate::cpython::instructions::{Instruction, Instructions, decode};
use crate::cpython::read::{is_untrue, texts_of};
use crate::cpython::{Builtins, ObjectKind, class_items, dict_items, items, text_of};

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

/// Methods that add to a container.
const ADDING: [&str; 9] = [
    "add",
    "append",
    "appendleft",
    "extend",
    "insert",
    "put",
    "put_nowait",
    "setdefault",
    "update",
];

/// True if the code of a function or callable object adds to a variable or attribute with one of some names, or to an
/// item of it. False where that is not to be seen, as where it calls what does so.
pub fn may_fill(builtins: &Builtins, callable: &Bound<'_, PyAny>, names: &[String]) -> bool {
    let mut function = callable.clone();
    for part in [&builtins.partial_function, &builtins.method_function] {
        function = part.get(&function).unwrap_or(function);
    }
    let code = function_code(builtins, &function).or_else(|| {
        let mro = builtins.type_mro.get(function.get_type().as_any());
        let classes = mro.iter().flat_map(items);
        let mut call = classes.filter_map(|class| class_item(builtins, &class, "__call__"));
        function_code(builtins, &call.next()?)
    });
    let Some(code) = code else { return false };
    with_inner(builtins, code).iter().any(|code| {
        let attributes = builtins.code_names.get(code);
        let attributes = attributes.map_or_else(Vec::new, |names| texts_of(&names));
        decode(builtins, code).is_some_and(|code| adds_to(&code, &attributes, names))
    })
}

/// True if code calls a method that adds to what has one of some names, or to an item of that, or sets an item.
fn adds_to(code: &Instructions, attributes: &[String], names: &[String]) -> bool {
    let is_named = |instruction: &Instruction| {
        let name = match *instruction {
            Instruction::Load(index) => code.variables.get(index),
            Instruction::Global(index) => attributes.get(index),
            Instruction::Attribute { name, .. } => attributes.get(name),
            _ => None,
        };
        name.is_some_and(|name| names.contains(name))
    };
    code.all.iter().enumerate().any(|(at, instruction)| {
        let before = &code.all[at.saturating_sub(3)..at];
        let is_item = || before.iter().any(is_named);
        match *instruction {
            Instruction::SetItem => is_item(),
            Instruction::Attribute { name, called: true } => {
                let adds = attributes.get(name);
                adds.is_some_and(|name| ADDING.contains(&&**name))
                    && match before.last() {
                        Some(Instruction::Other) => is_item(),
                        Some(last) => is_named(last),
                        None => false,
                    }
            }
            _ => false,
        }
    })
}

/// What a class itself has under a name.
fn class_item<'py>(
    builtins: &Builtins,
    class: &Bound<'py, PyAny>,
    wanted: &str,
) -> Option<Bound<'py, PyAny>> {
    let mut found = None;
    class_items(builtins, class, &mut |name, value| {
        if text_of(name).as_deref() == Some(wanted) {
            found = Some(value.clone());
        }
        found.is_none()
    });
    found
}

/// Code, and that of all functions within it.
fn with_inner<'py>(builtins: &Builtins, code: Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let mut all = vec![code];
    let mut next = 0;
    while let Some(code) = all.get(next) {
        next += 1;
        let constants = builtins.code_consts.get(code);
        // SAFETY: attached, the object and its type are alive.
        let is_code = |it: &Bound<'_, PyAny>| unsafe {
            builtins.kind(ffi::Py_TYPE(it.as_ptr())) == ObjectKind::Code
        };
        all.extend(constants.iter().flat_map(items).filter(is_code));
    }
    all
}

/// True if code, or that of a function within it, passes an argument of some name, and not just as False or None.
pub(super) fn passes_argument(builtins: &Builtins, code: &Bound<'_, PyAny>, word: &str) -> bool {
    with_inner(builtins, code.clone())
        .iter()
        .any(|code| passes_true(builtins, code, word).unwrap_or(false))
}

fn passes_true(builtins: &Builtins, code: &Bound<'_, PyAny>, word: &str) -> Option<bool> {
    let constants = items(&builtins.code_consts.get(code)?);
    // The place of the word from the end of the names that a call passes.
    let from_end = |names: &Bound<'_, PyAny>| {
        let is_tuple = names.is_exact_instance_of::<PyTuple>();
        let mut names = texts_of(is_tuple.then_some(names)?).into_iter().rev();
        names.position(|name| name == word)
    };
    if !constants.iter().any(|it| from_end(it).is_some()) {
        return Some(false);
    }
    let read = decode(builtins, code)?;
    let is_false = |value: &Instruction| match *value {
        Instruction::Untrue => true,
        Instruction::Constant(index) => constants.get(index).is_some_and(is_untrue),
        _ => false,
    };
    let is_one_value = |it: &Instruction| {
        use Instruction::{Constant, Global, Load, Untrue};
        matches!(it, Constant(_) | Global(_) | Load(_) | Untrue)
    };
    let passes = read.keywords.iter().any(|&(before, names)| {
        let Some(after) = constants.get(names).and_then(from_end) else {
            return false;
        };
        let mut values = read.all[..before].iter().rev();
        let known = values.by_ref().take(after).all(is_one_value);
        !known || !values.next().is_some_and(is_false)
    });
    Some(passes)
}
