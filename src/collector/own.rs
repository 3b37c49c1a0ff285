//! Collections of our own, looked at from among their garbage.

use std::cell::{Cell, OnceCell};
use std::ffi::c_void;
use std::ptr;

use pyo3::prelude::*;

use super::callback::{guarded, shows_witness};
use super::witness::{Calls, Unreachable, Witness};
use crate::cpython::GcModule;

/// Runs collections, and sees their garbage when the callbacks of weak references have been called and no finalizer has:
/// as a [`Hook`](super::Hook) does, which must not look meanwhile ([`Handler::wants_look`](super::Handler::wants_look)).
#[derive(Default)]
pub struct OwnCollections {
    witness: OnceCell<Witness>,
}

/// What is to be called in a collection, once.
struct Seeing<'a, F> {
    witness: &'a Witness,
    look: Cell<Option<F>>,
}

/// Has the witness leave, also after a panic.
struct Leave<'a, 'py>(Python<'py>, &'a Witness);

impl Drop for Leave<'_, '_> {
    fn drop(&mut self) {
        self.1.leave(self.0);
    }
}

impl OwnCollections {
    /// As [`GcModule::collect`], and calls `look` as [`Handler::look`](super::Handler::look) would be, if the garbage can
    /// be seen.
    ///
    /// # Errors
    /// As [`GcModule::collect`].
    pub fn collect<F: FnOnce(Python<'_>, &Unreachable<'_>)>(
        &self,
        py: Python<'_>,
        gc: &GcModule,
        oldest: u32,
        look: F,
    ) -> PyResult<Option<u64>> {
        let Some(state) = gc.state.filter(|_| !shows_witness(py, gc)) else {
            return gc.collect(py, oldest);
        };
        let witness = match self.witness.get() {
            Some(witness) => witness,
            None => {
                let made = Witness::new(py, state)?;
                self.witness.get_or_init(|| made)
            }
        };
        let seeing = Seeing {
            witness,
            look: Cell::new(Some(look)),
        };
        let calls = Calls {
            first: witnessed::<F>,
            last: nothing,
            argument: ptr::from_ref(&seeing).cast(),
        };
        let _leave = Leave(py, witness);
        // SAFETY: the witness leaves before `seeing` goes, which was made before `_leave`.
        unsafe { witness.stand(py, calls) };
        gc.collect(py, oldest)
    }
}

/// # Safety
/// The interpreter is attached, the witness calls, and `seeing` is a `Seeing` with such a function, alive.
unsafe fn witnessed<F: FnOnce(Python<'_>, &Unreachable<'_>)>(seeing: *const c_void) {
    // SAFETY: by this function's contract. What is called runs no code of the program, and makes no object that the
    // collector tracks.
    unsafe {
        let seeing = &*seeing.cast::<Seeing<'_, F>>();
        if let Some(look) = seeing.look.take() {
            let garbage = seeing.witness.garbage();
            guarded(|py| look(py, &garbage), |_| ());
        }
    }
}

unsafe fn nothing(_seeing: *const c_void) {}
