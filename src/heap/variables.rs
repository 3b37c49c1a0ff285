//! What the references of frames are called, and those of generators and coroutines: by the variables
//! of the function.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use rustc_hash::FxHashMap;

use super::builtins::{Builtins, Suspended};
use super::names::Names;
use super::read::{dict_items, int_value, items, referents, text_of, texts_of};
use super::{Descriptor, ObjectKind, ReferenceName};

pub(super) fn name_frame(builtins: &Builtins, frame: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    name_locals(builtins, frame, frame, names);
    if builtins.frames_await && !names.done() {
        name_awaited_by_frame(builtins, frame, names);
    }
    // Asking for `f_back` may create the frame object, so only if there is one to be named.
    let frame_type = frame.get_type().as_type_ptr();
    if names.nameless_of_type(|ty| ty == frame_type).is_some() {
        names.attribute(&builtins.frame_back, frame, "f_back");
    }
}

/// Names what a suspended frame of 3.10 waits for: the top of its stack, if the next instruction is
/// `YIELD_FROM` (`_PyGen_yf` in Objects/genobject.c), which `tp_traverse` visits last.
fn name_awaited_by_frame(builtins: &Builtins, frame: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    const YIELD_FROM: u8 = 72;
    let Some(code) = builtins.frame_code.get(frame) else {
        return;
    };
    let next = builtins
        .frame_last_instruction
        .get(frame)
        .and_then(|last| usize::try_from(int_value(&last)? + 2).ok());
    let instructions = builtins.code_bytes.get(&code);
    let instruction = instructions
        .as_ref()
        .and_then(|code| code.cast_exact::<PyBytes>().ok()?.as_bytes().get(next?));
    if instruction == Some(&YIELD_FROM)
        && let Some(&awaited) = referents(frame).last()
    {
        let name = match code_flags(builtins, &code) {
            flags if flags & CO_ASYNC_GENERATOR != 0 => "ag_await",
            flags if flags & CO_COROUTINE != 0 => "cr_await",
            _ => "gi_yieldfrom",
        };
        names.claim(awaited, || ReferenceName::Attribute(name.to_owned()));
    }
}

pub(super) fn name_suspended(
    builtins: &Builtins,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
    names: &mut Names<'_>,
) {
    let parts = suspended(builtins, kind);
    let (awaited, name) = &parts.awaited;
    if let Some(frame) = parts.frame.get(object) {
        names.claim_value(&frame, || ReferenceName::Attribute("frame".to_owned()));
        // From 3.11 on the generator itself refers to the locals; before, its frame does.
        if !names.done() {
            name_locals(builtins, &frame, object, names);
        }
    } else if let Some(code) = parts.code.get(object) {
        name_arguments(builtins, &code, object, names);
    }
    names.attribute(awaited, object, name);
}

/// Names what a suspended object holds that was closed before it began.
///
/// From 3.12 on, closing it (as its finalizer does) drops nothing, but it has no frame to ask any
/// more (`gen_close` in Objects/genobject.c). It refers to its function or code and then to its
/// arguments and cells, all of which are set, in the order of the code's names.
fn name_arguments(
    builtins: &Builtins,
    code: &Bound<'_, PyAny>,
    object: &Bound<'_, PyAny>,
    names: &mut Names<'_>,
) {
    let referents = referents(object);
    let Some(last_of_head) = referents
        .iter()
        .rposition(|&target| target == code.as_ptr() as usize)
    else {
        return;
    };
    let count = |part: &Descriptor| part.get(code).and_then(|v| int_value(&v)).unwrap_or(0);
    let flags = code_flags(builtins, code);
    let arguments = count(&builtins.code_argcount)
        + count(&builtins.code_keyword_only_argcount)
        + i64::from(flags & CO_VARARGS != 0)
        + i64::from(flags & CO_VARKEYWORDS != 0);
    let variables = names_of_slots(builtins, code, usize::try_from(arguments).unwrap_or(0));
    let values = &referents[last_of_head + 1..];
    if values.len() == variables.len() {
        for (&value, name) in values.iter().zip(variables) {
            names.claim(value, || ReferenceName::Local(name));
        }
    }
}

/// The variables of a function in the order of its frame's slots (`co_localsplusnames` of code
/// objects, since 3.11).
pub(super) fn variable_names(builtins: &Builtins, code: &Bound<'_, PyAny>) -> Vec<String> {
    names_of_slots(builtins, code, usize::MAX)
}

/// The first `locals` local variables, then the further ones that inner functions use, then those that
/// the function has from functions around it.
fn names_of_slots(builtins: &Builtins, code: &Bound<'_, PyAny>, locals: usize) -> Vec<String> {
    let texts = |part: &Descriptor| part.get(code).map(|v| texts_of(&v)).unwrap_or_default();
    let mut variables = texts(&builtins.code_varnames);
    variables.truncate(locals);
    for cell in texts(&builtins.code_cellvars) {
        if !variables.contains(&cell) {
            variables.push(cell);
        }
    }
    variables.extend(texts(&builtins.code_freevars));
    variables
}

/// How the parts of a suspended object are read.
pub(super) fn suspended(builtins: &Builtins, kind: ObjectKind) -> &Suspended {
    match kind {
        ObjectKind::Coroutine => &builtins.suspended[1],
        ObjectKind::AsyncGenerator => &builtins.suspended[2],
        _ => &builtins.suspended[0],
    }
}

/// Names what a frame's local variables refer to, be it directly or through a cell.
///
/// `holder` is what refers to the variables: the frame, or the generator that it belongs to.
///
/// Up to 3.12 `f_locals` of a function's frame is a dict that the frame keeps, filled on each
/// request (`PyFrame_FastToLocalsWithError`). If the request made it, it is emptied again, so that
/// the frame holds nothing it did not hold before; if the program had asked before, the dict is the
/// program's too, and gets back what was in it.
fn name_locals(
    builtins: &Builtins,
    frame: &Bound<'_, PyAny>,
    holder: &Bound<'_, PyAny>,
    names: &mut Names<'_>,
) {
    let before = referents(holder);
    let kept = kept_locals(builtins, &before, frame.py());
    if let Some(kept) = &kept
        && !optimised(builtins, frame)
    {
        // The frame of a module or a class body: its variables are in the mapping alone, which
        // may be of the program's own making, so it is not asked for.
        names.claim_value(kept, || ReferenceName::Attribute("f_locals".to_owned()));
        return;
    }
    if !optimised(builtins, frame) {
        return;
    }
    let kept = kept.filter(|kept| kept.is_exact_instance_of::<PyDict>());
    let Some(content) = kept.as_ref().map_or(Some(Vec::new()), content_of) else {
        return;
    };
    let Some(locals) = builtins.frame_locals.get(frame) else {
        return;
    };
    claim_locals(builtins, &pairs_of(builtins, &locals), names);
    let Ok(dict) = locals.cast_exact::<PyDict>() else {
        return;
    };
    if kept.is_some_and(|kept| kept.is(&locals)) {
        names.claim_value(&locals, || ReferenceName::Attribute("f_locals".to_owned()));
        restore(dict, &content);
    } else if !before.contains(&(locals.as_ptr() as usize)) {
        // Its values are all held by the frame too, so emptying it destroys nothing.
        dict.clear();
    }
}

/// What a frame keeps as its `f_locals`, going by its place among what the frame refers to; up
/// to 3.10 that may also be the function's first local variable.
fn kept_locals<'py>(
    builtins: &Builtins,
    referents: &[usize],
    py: Python<'py>,
) -> Option<Bound<'py, PyAny>> {
    let kind = |target: usize| {
        // SAFETY: attached; the target is alive, as the frame refers to it.
        unsafe { builtins.kind(ffi::Py_TYPE(target as *mut ffi::PyObject)) }
    };
    let place = if builtins.frames_await {
        // frame_traverse in Objects/frameobject.c: code, builtins, globals, locals.
        3 + referents
            .iter()
            .position(|&target| kind(target) == ObjectKind::Code)?
    } else {
        // _PyFrame_Traverse in Python/frame.c: locals, function, code.
        let function = referents.windows(2).position(|pair| {
            kind(pair[0]) == ObjectKind::Function && kind(pair[1]) == ObjectKind::Code
        });
        function?.checked_sub(1)?
    };
    let target = *referents.get(place)?;
    // SAFETY: as above.
    Some(unsafe { Bound::from_borrowed_ptr(py, target as *mut ffi::PyObject) })
}

/// The items of a dict all of whose keys are exact strings, so that they can be put back without
/// calling a key's `__eq__`; `None` for any other dict.
fn content_of<'py>(
    dict: &Bound<'py, PyAny>,
) -> Option<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let mut content = Some(Vec::new());
    dict_items(dict, &mut |key, value| {
        if !key.is_exact_instance_of::<PyString>() {
            content = None;
        } else if let Some(content) = &mut content {
            content.push((key.clone(), value.clone()));
        }
        content.is_some()
    });
    content
}

/// Gives a dict of variables the content it had before they were read into it.
fn restore(dict: &Bound<'_, PyDict>, content: &[(Bound<'_, PyAny>, Bound<'_, PyAny>)]) {
    let known: FxHashMap<String, usize> = content
        .iter()
        .enumerate()
        .map(|(i, (key, _))| (text_of(key).unwrap_or_default(), i))
        .collect();
    for (key, value) in content_of(dict.as_any()).unwrap_or_default() {
        let before = known.get(&text_of(&key).unwrap_or_default());
        // What a failure would leave behind is a variable's present value: no harm.
        let done = match before.and_then(|&i| content.get(i)) {
            Some((_, before)) if before.is(&value) => Ok(()),
            Some((_, before)) => dict.set_item(&key, before),
            None => dict.del_item(&key),
        };
        drop(done);
    }
    for (key, value) in content {
        if !matches!(dict.contains(key), Ok(true)) {
            drop(dict.set_item(key, value));
        }
    }
}

const CO_OPTIMIZED: i64 = 0x1;
const CO_VARARGS: i64 = 0x4;
const CO_VARKEYWORDS: i64 = 0x8;
const CO_COROUTINE: i64 = 0x80;
const CO_ASYNC_GENERATOR: i64 = 0x200;

/// The `CO_` flags of a code object (Include/cpython/code.h).
fn code_flags(builtins: &Builtins, code: &Bound<'_, PyAny>) -> i64 {
    builtins
        .code_flags
        .get(code)
        .and_then(|flags| int_value(&flags))
        .unwrap_or(0)
}

/// True if the frame's code keeps its variables in fast slots, as every function's does; a
/// module's or class body's frame has them in a mapping.
fn optimised(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> bool {
    builtins
        .frame_code
        .get(frame)
        .is_some_and(|code| code_flags(builtins, &code) & CO_OPTIMIZED != 0)
}

/// Names and values of a locals mapping: a dict, or from 3.13 on a `FrameLocalsProxy`.
pub(super) fn pairs_of<'py>(
    builtins: &Builtins,
    locals: &Bound<'py, PyAny>,
) -> Vec<(String, Bound<'py, PyAny>)> {
    let mut pairs = Vec::new();
    if locals.is_instance_of::<PyDict>() {
        dict_items(locals, &mut |key, value| {
            pairs.push((text_of(key).unwrap_or_default(), value.clone()));
            true
        });
    } else if locals
        .get_type()
        .is(builtins.locals_proxy.bind(locals.py()))
    {
        // SAFETY: attached; the proxy's own `items` is C code and makes a new list.
        let list = unsafe {
            let list = ffi::PyMapping_Items(locals.as_ptr());
            Bound::from_owned_ptr_or_opt(locals.py(), list)
        };
        let Some(list) = list else {
            // SAFETY: attached.
            unsafe { ffi::PyErr_Clear() };
            return pairs;
        };
        for pair in list
            .cast::<PyList>()
            .into_iter()
            .flat_map(|list| list.iter())
        {
            if let [key, value] = items(&pair).as_slice() {
                pairs.push((text_of(key).unwrap_or_default(), value.clone()));
            }
        }
    }
    pairs
}

fn claim_locals(builtins: &Builtins, pairs: &[(String, Bound<'_, PyAny>)], names: &mut Names<'_>) {
    for (name, value) in pairs {
        if names.wants(value.as_ptr() as usize) {
            names.claim_value(value, || ReferenceName::Local(name.clone()));
        }
    }
    let Some((_, any)) = pairs.first() else {
        return;
    };
    let py = any.py();
    // A variable that an inner function uses too lives in a cell, and the frame refers to that.
    for i in 0..names.targets.len() {
        if !names.wants(names.targets[i]) {
            continue;
        }
        // SAFETY: the targets are alive: the object that is being named refers to them.
        let cell = unsafe { Bound::from_borrowed_ptr(py, names.targets[i] as *mut ffi::PyObject) };
        // SAFETY: as above.
        if unsafe { builtins.kind(ffi::Py_TYPE(cell.as_ptr())) } != ObjectKind::Cell {
            continue;
        }
        if let Some(value) = builtins.cell_contents.get(&cell)
            && let Some((name, _)) = pairs.iter().find(|(_, v)| v.is(&value))
        {
            names.claim(names.targets[i], || ReferenceName::Local(name.clone()));
        }
    }
}
