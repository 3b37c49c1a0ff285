//! What the witness in a collection sees, and whether that is relied on.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;

use super::super::clear::Garbage;
use super::super::fork::fork_count;
use super::super::gc_module::DEBUG_SAVEALL;
use super::{Phase, Shared};

/// Whether the witness is relied on.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Trust {
    /// What it saw was what the collector saved, so many times.
    Growing(u32),
    /// It is enough to ask the witness.
    Full,
    /// It once saw something else, or was not called.
    Lost,
}

/// So many times what the witness saw is compared with what the collector saved.
const PROOFS: u32 = 3;

/// What the witness calls.
///
/// # Safety
/// The interpreter is attached, and `state` is that of a hook, alive, as its capsule has it.
pub(super) unsafe fn witnessed(state: *const c_void) {
    // SAFETY: by this function's contract. The state must outlive the call.
    unsafe {
        let py = Python::assume_attached();
        let state = state.cast::<Shared>();
        Rc::increment_strong_count(state);
        let shared = Rc::from_raw(state);
        if catch_unwind(AssertUnwindSafe(|| shared.witness_garbage(py))).is_err() {
            shared.disable(py, "an internal error (a panic) in cyclescope");
        }
        if !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
    }
}

impl Shared {
    /// The witness is among the garbage, and no finalizer is still to run: has the garbage saved if the
    /// handler wants it, or to prove the witness.
    fn witness_garbage(&self, py: Python<'_>) {
        let Phase::Witnessing { info } = self.phase.get() else {
            return;
        };
        let (Ok(_busy), Ok(mut seen), Some(witness)) = (
            self.busy.try_borrow_mut(),
            self.seen.try_borrow_mut(),
            &self.witness,
        ) else {
            return;
        };
        if self.disabled.get() || self.forks != fork_count() {
            return;
        }
        // SAFETY: attached, and called by the witness; a handler's glance runs no code of the program, and what
        // is done here makes no object.
        let mut garbage = unsafe { witness.garbage() };
        let mut wanted = if self.trust.get() == Trust::Full {
            self.handler.glance(py, &mut garbage, info)
        } else {
            // If there is no memory to remember all, what is saved proves nothing.
            seen.clear();
            for object in &mut garbage {
                if seen.len() == seen.capacity() && seen.try_reserve(1).is_err() {
                    break;
                }
                seen.push(object);
            }
            !seen.is_empty()
        };
        if !garbage.is_whole() {
            self.trust.set(Trust::Lost);
            wanted = true;
        }
        if wanted && self.gc.debug_flags(py) == 0 {
            let older = self.older(py);
            self.set_phase(Phase::Taking { flags: 0, older });
            self.gc.set_debug_flags(py, DEBUG_SAVEALL);
        }
    }

    /// Compares what the witness saw with what was saved of it: all but what finalizers brought back.
    pub(super) fn prove(&self, garbage: &Garbage<'_>) {
        let (Trust::Growing(proofs), Ok(mut seen)) = (self.trust.get(), self.seen.try_borrow_mut())
        else {
            return;
        };
        seen.sort_unstable();
        let known = |object| seen.binary_search(object).is_ok();
        self.trust.set(if !garbage.pointers().iter().all(known) {
            Trust::Lost
        } else if proofs + 1 == PROOFS {
            Trust::Full
        } else {
            Trust::Growing(proofs + 1)
        });
        *seen = Vec::new();
    }
}
