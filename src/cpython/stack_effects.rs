//! How deep the stack of a function surely is, from its instructions.
//!
//! Computed from those before the one that runs (as `calculate_stackdepth` in Python/compile.c does), by the effect that
//! CPython itself gives for each.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};

/// What the instructions of the running interpreter do to the stack.
pub struct StackEffects {
    /// `opcode.stack_effect`.
    effect: Py<PyAny>,
    by_code: Vec<Flow>,
    taking_argument: Vec<bool>,
}

/// How an instruction goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Cache,
    Extended,
    /// Forward, or to the next instruction.
    Branch,
    /// Forward only.
    Jump,
    /// Backward, or to the caller.
    End,
    Call,
    Loop,
    /// `yield from` and `await`.
    Delegation,
}

/// Where the handler for exceptions in some instructions is, and the depth of the stack there.
pub(super) struct Handler {
    target: usize,
    depth: usize,
}

/// The instruction that a function runs, and the depth of its stack before it.
pub(super) struct Now {
    code: u8,
    argument: usize,
    depth: usize,
}

impl StackEffects {
    /// `None` on 3.10, whose blocks have a stack of their own.
    ///
    /// # Errors
    /// If the interpreter does not tell of its instructions.
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        if py.version_info() < (3, 11) {
            return Ok(None);
        }
        let module = py.import("opcode")?;
        let forward: Vec<usize> = module.getattr("hasjrel")?.extract()?;
        let least: usize = module.getattr("HAVE_ARGUMENT")?.extract()?;
        let taking: Option<Vec<usize>> = match module.getattr("hasarg") {
            Ok(codes) => Some(codes.extract()?),
            Err(_) => None,
        };
        let takes = |code| match &taking {
            Some(codes) => codes.contains(&code),
            None => code >= least,
        };
        let mut by_code = vec![Flow::Next; 256];
        for item in module.getattr("opmap")?.call_method0("items")?.try_iter()? {
            let (name, code): (String, usize) = item?.extract()?;
            if let Some(flow) = by_code.get_mut(code) {
                *flow = flow_of(&name, forward.contains(&code));
            }
        }
        // In C, unless the program has put another in its place.
        let effect = module.getattr("stack_effect")?;
        Ok(Some(Self {
            effect: effect.cast_into_exact::<PyCFunction>()?.into_any().unbind(),
            by_code,
            taking_argument: (0..256).map(takes).collect(),
        }))
    }

    fn effect(&self, py: Python<'_>, code: u8, argument: usize, jumps: bool) -> Option<isize> {
        let named = PyDict::new(py);
        named.set_item("jump", jumps).ok()?;
        let effect = self.effect.bind(py);
        let effect = match self.taking_argument[usize::from(code)] {
            true => effect.call((code, argument), Some(&named)),
            false => effect.call((code,), Some(&named)),
        };
        effect.ok()?.extract().ok()
    }

    /// The depth of the stack before the instruction at a place; `None` if that cannot be told.
    pub(super) fn at(
        &self,
        py: Python<'_>,
        code: &[u8],
        handlers: &[Handler],
        place: usize,
    ) -> Option<Now> {
        let count = code.len() / 2;
        let mut depths: Vec<Option<usize>> = vec![None; count + 1];
        for handler in handlers {
            *depths.get_mut(handler.target)? = Some(handler.depth);
        }
        let mut depth = Some(0);
        let (mut next, mut argument) = (0, 0);
        while next < count {
            depth = merged(depths[next], depth)?;
            let code_here = code[2 * next];
            let flow = self.by_code[usize::from(code_here)];
            argument = argument << 8 | usize::from(code[2 * next + 1]);
            next += 1;
            if flow == Flow::Extended {
                continue;
            }
            let is_cache = |&at: &usize| self.by_code[usize::from(code[2 * at])] == Flow::Cache;
            next += (next..count).take_while(is_cache).count();
            if place < next {
                return Some(Now {
                    code: code_here,
                    argument,
                    depth: depth?,
                });
            }
            if let Some(before) = depth {
                let after = |jumps| -> Option<usize> {
                    let effect = self.effect(py, code_here, argument, jumps)?;
                    Some(before.saturating_add_signed(effect))
                };
                if matches!(
                    flow,
                    Flow::Branch | Flow::Jump | Flow::Loop | Flow::Delegation
                ) {
                    let target = depths.get_mut(next + argument)?;
                    *target = merged(*target, Some(after(true)?))?;
                }
                depth = match flow {
                    Flow::Jump | Flow::End => None,
                    _ => Some(after(false)?),
                };
            }
            argument = 0;
        }
        None
    }

    /// How many entries the instruction that runs leaves untouched.
    pub(super) fn untouched(&self, py: Python<'_>, now: &Now) -> Option<usize> {
        let after = || {
            let effect = self.effect(py, now.code, now.argument, false)?;
            Some(now.depth.saturating_add_signed(effect))
        };
        Some(match self.by_code[usize::from(now.code)] {
            Flow::Loop => now.depth,
            // What is sent is taken.
            Flow::Delegation => now.depth.saturating_sub(1),
            // A call takes its parts and leaves a result.
            Flow::Call => after()?.saturating_sub(1),
            // No other takes more than two entries beyond those that it leaves.
            _ => after()?.min(now.depth).saturating_sub(2),
        })
    }
}

/// One depth of two, of which both may be unknown; `None` if they differ.
fn merged(one: Option<usize>, other: Option<usize>) -> Option<Option<usize>> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => None,
        _ => Some(one.or(other)),
    }
}

fn flow_of(name: &str, is_jump: bool) -> Flow {
    match name {
        "CACHE" => Flow::Cache,
        "EXTENDED_ARG" => Flow::Extended,
        "FOR_ITER" => Flow::Loop,
        "SEND" => Flow::Delegation,
        "JUMP_FORWARD" => Flow::Jump,
        "RETURN_VALUE" | "RETURN_CONST" | "RAISE_VARARGS" | "RERAISE" | "INTERPRETER_EXIT" => {
            Flow::End
        }
        _ if name.starts_with("JUMP_BACKWARD") => Flow::End,
        _ if name.contains("BACKWARD") => Flow::Next,
        _ if name.starts_with("CALL") && !name.starts_with("CALL_INTRINSIC") => Flow::Call,
        _ if is_jump => Flow::Branch,
        _ => Flow::Next,
    }
}

/// Reads `co_exceptiontable` (Objects/exception_handling_notes.txt, from 3.14 on InternalDocs/exception_handling.md).
pub(super) fn handlers(table: &[u8]) -> Option<Vec<Handler>> {
    let mut bytes = table.iter().copied();
    let mut found = Vec::new();
    while bytes.len() > 0 {
        let mut number = || {
            let mut value = 0;
            loop {
                let byte = bytes.next()?;
                value = value << 6 | usize::from(byte & 0x3f);
                if byte & 0x40 == 0 {
                    return Some(value);
                }
            }
        };
        let (_start, _length, target, depth) = (number()?, number()?, number()?, number()?);
        // The exception is pushed, and before it, if the lowest bit is set, where it was raised.
        found.push(Handler {
            target,
            depth: (depth >> 1) + (depth & 1) + 1,
        });
    }
    Some(found)
}
