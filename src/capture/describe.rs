//! What to call an object, and where its code is.

use pyo3::ffi;
use pyo3::prelude::*;

use super::classes::Classes;
use super::methods::standing;
use super::places::{
    callable_place, code_place, frame_facts, function_code, function_place, qualname,
};
use super::variables::suspended;
use super::{Description, Place};
use crate::cpython::attributes::first_of_kind;
use crate::cpython::frames::variable_names;
use crate::cpython::instances::attribute;
use crate::cpython::read::printable;
use crate::cpython::{Builtins, ObjectKind, dict_items, find_item, int_value, items, text_of};

/// Describes one object without running its code.
pub fn describe(
    builtins: &Builtins,
    classes: &mut Classes,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
) -> Description {
    let class = classes.facts(builtins, object.get_type().as_any());
    let type_name = class.name.clone();
    let (label, place) = label_and_place(builtins, classes, kind, object);
    let (free_variables, default_arguments) = match kind {
        ObjectKind::Function => function_names(builtins, object),
        _ => Default::default(),
    };
    let mut details = Vec::new();
    if let Some(size) = container_size(builtins, kind, object) {
        details.push(("length".to_owned(), size.to_string()));
    }
    let unplaced_class = match kind {
        _ if place.is_some() => None,
        ObjectKind::Class => classes.facts(builtins, object).in_file.clone(),
        _ => class.in_file.clone(),
    };
    let of_program = kind == ObjectKind::Instance
        && classes.are_of_program(builtins, object.get_type().as_any());
    details.push((
        "address".to_owned(),
        format!("{:#x}", object.as_ptr() as usize),
    ));
    Description {
        kind,
        type_name,
        label,
        of_library: kind == ObjectKind::Instance && place.is_none() && class.of_library,
        place,
        unplaced_class,
        of_program,
        weak_references: class.weak_references,
        frozen: kind == ObjectKind::Instance && class.frozen,
        own_setattr: kind == ObjectKind::Instance && class.own_setattr,
        has_forward: kind == ObjectKind::Instance && class.has_forward,
        standing: standing(builtins, kind, object),
        wraps: kind == ObjectKind::Function && wraps(builtins, object),
        free_variables,
        default_arguments,
        details,
    }
}

/// The object in a few words, and where its code is.
fn label_and_place(
    builtins: &Builtins,
    classes: &mut Classes,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
) -> (String, Option<Place>) {
    match kind {
        ObjectKind::Function => (
            format!("function {}", qualname(&builtins.function_qualname, object)),
            function_place(builtins, object),
        ),
        ObjectKind::Method => {
            let function = builtins.method_function.get(object);
            let function = function.as_ref();
            let name = function.map(|f| qualname(&builtins.function_qualname, f));
            let label = match name {
                Some(name) if !name.is_empty() => format!("bound method {name}"),
                _ => "bound method".to_owned(),
            };
            let written = function.map(|f| written(builtins, f));
            (label, written.and_then(|f| function_place(builtins, &f)))
        }
        ObjectKind::Frame => {
            let (name, place) = frame_facts(builtins, object);
            (format!("frame of {name}"), place)
        }
        ObjectKind::Traceback => ("traceback".to_owned(), traceback_place(builtins, object)),
        ObjectKind::Generator | ObjectKind::Coroutine | ObjectKind::AsyncGenerator => {
            let parts = suspended(builtins, kind);
            let code = first_of_kind(builtins, object, ObjectKind::Code);
            let what = match kind {
                ObjectKind::Coroutine => "coroutine",
                ObjectKind::AsyncGenerator => "async generator",
                _ => "generator",
            };
            (
                format!("{what} {}", qualname(&parts.qualname, object)),
                code.and_then(|code| code_place(builtins, &code)),
            )
        }
        ObjectKind::BuiltinFunction => {
            let is_function = is_of_module(builtins, object);
            let what = if is_function { "function" } else { "method" };
            let name = qualname(&builtins.builtin_name, object);
            (format!("built-in {what} {name}"), None)
        }
        ObjectKind::Class => {
            let facts = classes.facts(builtins, object);
            (format!("class {}", facts.name), facts.place.clone())
        }
        ObjectKind::Module => {
            let name = module_name(builtins, object).unwrap_or_default();
            let label = format!("module {}", printable(&name));
            (label.trim_end().to_owned(), None)
        }
        _ => {
            let class = classes.facts(builtins, object.get_type().as_any());
            let place = match kind {
                ObjectKind::Partial => {
                    let function = builtins.partial_function.get(object);
                    function.and_then(|f| callable_place(builtins, &f))
                }
                _ => class.place.clone(),
            };
            (class.name.clone(), place)
        }
    }
}

/// The function that the program has written, which a decorator's wraps.
fn written<'py>(builtins: &Builtins, function: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    const DECORATORS: usize = 8;
    let wrapped = |function: &Bound<'py, PyAny>| {
        let wrapped = wraps(builtins, function)
            .then(|| attribute(&builtins.instances, function, "__wrapped__"))??;
        function_code(builtins, &wrapped).map(|_| wrapped)
    };
    let all = std::iter::successors(Some(function.clone()), wrapped);
    all.take(DECORATORS)
        .last()
        .unwrap_or_else(|| function.clone())
}

/// True for a function that has the name of what it wraps, as `functools.wraps` gives it.
fn wraps(builtins: &Builtins, function: &Bound<'_, PyAny>) -> bool {
    let written =
        function_code(builtins, function).map(|code| qualname(&builtins.code_name, &code));
    let called = qualname(&builtins.function_qualname, function);
    let is_renamed = written.is_some_and(|written| called.rsplit('.').next() != Some(&*written));
    is_renamed && attribute(&builtins.instances, function, "__wrapped__").is_some()
}

/// The names of the closure variables of a function, and of its parameters that have a default.
fn function_names(builtins: &Builtins, function: &Bound<'_, PyAny>) -> (Vec<String>, Vec<String>) {
    let Some(code) = function_code(builtins, function) else {
        return Default::default();
    };
    let mut names = variable_names(builtins, &code);
    let defaults = defaulted_parameters(builtins, function, &code, &names);
    // The last variables of a function are those from around it, one for each cell.
    let cells = builtins.function_closure.get(function);
    let cells = cells.map_or(0, |cells| items(&cells).len());
    (names.split_off(names.len().saturating_sub(cells)), defaults)
}

/// The place of a traceback's frame, at the line of the traceback.
fn traceback_place(builtins: &Builtins, traceback: &Bound<'_, PyAny>) -> Option<Place> {
    let frame = builtins.traceback_frame.get(traceback)?;
    let mut place = frame_facts(builtins, &frame).1?;
    let line = builtins.traceback_line.get(traceback);
    let line = line.and_then(|line| u32::try_from(int_value(&line)?).ok());
    place.line = line.unwrap_or(place.line);
    Some(place)
}

/// True for a built-in function of a module, false for a method of an object.
fn is_of_module(builtins: &Builtins, builtin: &Bound<'_, PyAny>) -> bool {
    let owner = builtins.builtin_self.get(builtin);
    // SAFETY: attached, the owner and its type are alive.
    owner.is_none_or(|owner| unsafe {
        builtins.kind(ffi::Py_TYPE(owner.as_ptr())) == ObjectKind::Module
    })
}

fn module_name(builtins: &Builtins, module: &Bound<'_, PyAny>) -> Option<String> {
    let dict = builtins.module_dict.get(module)?;
    text_of(&find_item("__name__", |f| dict_items(&dict, f))?)
}

/// The names of the positional parameters that have a default: the last ones.
fn defaulted_parameters(
    builtins: &Builtins,
    function: &Bound<'_, PyAny>,
    code: &Bound<'_, PyAny>,
    variables: &[String],
) -> Vec<String> {
    let Some(defaults) = builtins.function_defaults.get(function) else {
        return Vec::new();
    };
    let count = items(&defaults).len();
    let parameters = builtins
        .code_argcount
        .get(code)
        .and_then(|count| int_value(&count));
    let parameters = parameters
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0);
    let parameters = &variables[..parameters.min(variables.len())];
    parameters[parameters.len().saturating_sub(count)..].to_vec()
}

/// How many items a built-in container has, whatever a subclass says.
fn container_size(
    builtins: &Builtins,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
) -> Option<usize> {
    // SAFETY: attached; each function reads the size of the kind of container that this is.
    let size = unsafe {
        match kind {
            ObjectKind::Dict => ffi::PyDict_Size(object.as_ptr()),
            ObjectKind::List => ffi::PyList_Size(object.as_ptr()),
            ObjectKind::Tuple => ffi::PyTuple_Size(object.as_ptr()),
            ObjectKind::Set => ffi::PySet_Size(object.as_ptr()),
            ObjectKind::Deque => return Some(deque_length(builtins, object)),
            _ => return None,
        }
    };
    usize::try_from(size).ok()
}

/// How many items a deque has, or an object of a subclass.
pub(super) fn deque_length(builtins: &Builtins, deque: &Bound<'_, PyAny>) -> usize {
    // SAFETY: attached; the function is that of the deque's own type, whatever a subclass says.
    let length = unsafe { (builtins.deque_length)(deque.as_ptr()) };
    usize::try_from(length).unwrap_or(0)
}
