//! What the references of frames are called, and those of generators and coroutines: by the variables
//! of the function.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::ReferenceName;
use super::claims::Names;
use crate::cpython::builtins::Suspended;
use crate::cpython::frames::{InnerFrame, code_of_frame, inner_frame};
use crate::cpython::read::referents;
use crate::cpython::{Builtins, ObjectKind, int_value};

pub(super) fn name_frame(builtins: &Builtins, frame: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    let Some(inner) = inner_frame(builtins, frame) else {
        return;
    };
    names.claim(inner.back, || attribute("f_back"));
    name_variables(inner, names);
    if builtins.frames_await && !names.done() {
        name_awaited_by_frame(builtins, frame, names);
    }
}

/// Names what a suspended frame of 3.10 waits for: the top of its stack, if the next instruction is
/// `YIELD_FROM` (`_PyGen_yf` in Objects/genobject.c), which `tp_traverse` visits last.
fn name_awaited_by_frame(builtins: &Builtins, frame: &Bound<'_, PyAny>, names: &mut Names<'_>) {
    const YIELD_FROM: u8 = 72;
    let Some(code) = code_of_frame(builtins, frame) else {
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

/// Names what a suspended object refers to: from 3.11 on its function's variables, before, its frame.
pub(super) fn name_suspended(
    builtins: &Builtins,
    kind: ObjectKind,
    object: &Bound<'_, PyAny>,
    names: &mut Names<'_>,
) {
    let parts = suspended(builtins, kind);
    let (awaited, name) = &parts.awaited;
    let frame = match kind {
        ObjectKind::Coroutine => "cr_frame",
        ObjectKind::AsyncGenerator => "ag_frame",
        _ => "gi_frame",
    };
    if builtins.frames_await {
        names.attribute(&parts.frame, object, frame);
    } else if let Some(inner) = builtins
        .frames
        .and_then(|frames| frames.of_suspended(builtins, object))
    {
        names.claim(inner.frame_object, || attribute(frame));
        name_variables(inner, names);
    }
    names.attribute(awaited, object, name);
}

fn name_variables(inner: InnerFrame, names: &mut Names<'_>) {
    names.claim(inner.locals, || attribute("f_locals"));
    for (name, value) in inner.variables {
        names.claim(value, || ReferenceName::Local(name));
    }
}

fn attribute(name: &str) -> ReferenceName {
    ReferenceName::Attribute(name.to_owned())
}

/// How the parts of a suspended object are read.
pub(super) fn suspended(builtins: &Builtins, kind: ObjectKind) -> &Suspended {
    match kind {
        ObjectKind::Coroutine => &builtins.suspended[1],
        ObjectKind::AsyncGenerator => &builtins.suspended[2],
        _ => &builtins.suspended[0],
    }
}

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
