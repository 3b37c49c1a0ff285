//! What a running function keeps on its stack: the iterators of its `for` loops, what leaves its `with` blocks, and
//! the parts of the expression that it computes.
//!
//! Up to 3.13 nothing says how far the stack of a running function reaches; how far it surely does,
//! [`super::stack_effects`] computes.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustc_hash::FxHashMap;

use super::builtins::Builtins;
use super::frames::{code_of_frame, variable_names};
use super::read::int_value;
use super::stack_effects::handlers;

/// How many entries functions keep, by the addresses of their code and the instructions that run: of a recursive function
/// there are many calls.
#[derive(Default)]
pub struct KnownStacks(FxHashMap<(usize, usize), Option<usize>>);

/// How many entries are on the stack of a running function for as long as its current instruction runs.
pub(super) fn entries_kept(
    builtins: &Builtins,
    frame: &Bound<'_, PyAny>,
    known: &mut KnownStacks,
) -> Option<usize> {
    let code = code_of_frame(builtins, frame)?;
    let last = int_value(&builtins.frame_last_instruction.get(frame)?)?;
    let place = usize::try_from(last).ok()? / 2;
    let at = (code.as_ptr() as usize, place);
    let read = || entries_kept_at(builtins, &code, place);
    *known.0.entry(at).or_insert_with(read)
}

fn entries_kept_at(builtins: &Builtins, code: &Bound<'_, PyAny>, place: usize) -> Option<usize> {
    let py = code.py();
    let effects = builtins.stack_effects.as_ref()?;
    let instructions = builtins.code_bytes.get(code)?;
    let instructions = instructions.cast_exact::<PyBytes>().ok()?.as_bytes();
    let table = builtins.code_exception_table.as_ref()?.get(code)?;
    let handlers = handlers(table.cast_exact::<PyBytes>().ok()?.as_bytes())?;
    let now = effects.at(py, instructions, &handlers, place)?;
    let limit = usize::try_from(int_value(&builtins.code_stacksize.get(code)?)?).ok()?;
    let kept = effects.untouched(py, &now)?;
    (kept <= limit).then_some(kept)
}

/// The addresses of what a running function keeps on its stack and counts.
pub fn kept_on_stack(
    builtins: &Builtins,
    frame: &Bound<'_, PyAny>,
    known: &mut KnownStacks,
) -> Vec<usize> {
    let mut read = || {
        let kept = entries_kept(builtins, frame, known).filter(|&kept| kept > 0)?;
        let variables = variable_names(builtins, &code_of_frame(builtins, frame)?).len();
        builtins.frames?.stack(builtins, frame, variables, kept)
    };
    read().unwrap_or_default()
}
