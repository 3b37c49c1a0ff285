//! Where code is, and what functions and frames are called.

use pyo3::ffi;
use pyo3::prelude::*;

use super::Place;
use crate::cpython::attributes::first_of_kind;
use crate::cpython::frames::code_of_frame;
use crate::cpython::read::{int_value, printable, text_of};
use crate::cpython::{Builtins, Descriptor, ObjectKind};

pub(super) fn qualname(descriptor: &Descriptor, object: &Bound<'_, PyAny>) -> String {
    descriptor
        .get(object)
        .and_then(|name| text_of(&name))
        .map(|name| printable(&name))
        .unwrap_or_default()
}

pub(super) fn function_place(builtins: &Builtins, function: &Bound<'_, PyAny>) -> Option<Place> {
    function_code(builtins, function).and_then(|code| code_place(builtins, &code))
}

/// The code of a function; `None` for anything else.
pub fn function_code<'py>(
    builtins: &Builtins,
    function: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: attached, the object and its type are alive.
    let kind = unsafe { builtins.kind(ffi::Py_TYPE(function.as_ptr())) };
    (kind == ObjectKind::Function)
        .then(|| first_of_kind(builtins, function, ObjectKind::Code))
        .flatten()
}

/// The place of a function, or of the function of a bound method.
pub(super) fn callable_place(builtins: &Builtins, callable: &Bound<'_, PyAny>) -> Option<Place> {
    function_place(builtins, callable).or_else(|| {
        builtins
            .method_function
            .get(callable)
            .and_then(|f| function_place(builtins, &f))
    })
}

pub(super) fn code_place(builtins: &Builtins, code: &Bound<'_, PyAny>) -> Option<Place> {
    let file = builtins
        .code_filename
        .get(code)
        .and_then(|file| text_of(&file))?;
    let line = builtins
        .code_first_line
        .get(code)
        .and_then(|line| int_value(&line));
    Some(Place {
        file: printable(&file),
        line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
    })
}

/// The function name and current place of a frame.
pub(super) fn frame_facts(
    builtins: &Builtins,
    frame: &Bound<'_, PyAny>,
) -> (String, Option<Place>) {
    let Some(code) = code_of_frame(builtins, frame) else {
        return (String::new(), None);
    };
    let name = qualname(&builtins.code_name, &code);
    let place = code_place(builtins, &code).map(|mut place| {
        let line = builtins
            .frame_line
            .get(frame)
            .and_then(|line| int_value(&line));
        place.line = line
            .and_then(|line| u32::try_from(line).ok())
            .unwrap_or(place.line);
        place
    });
    (name, place)
}
