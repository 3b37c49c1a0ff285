//! No automatic collection during a look.

use pyo3::ffi;
use pyo3::prelude::*;

/// Automatic collection is off while this lives: a collection runs finalizers, which are the program's
/// own code and could change the heap while it is being read.
pub(super) struct CollectionPause {
    was_on: bool,
}

impl CollectionPause {
    pub fn new(_py: Python<'_>) -> Self {
        // SAFETY: attached.
        let was_on = unsafe { ffi::PyGC_Disable() } != 0;
        Self { was_on }
    }
}

impl Drop for CollectionPause {
    fn drop(&mut self) {
        if self.was_on {
            // SAFETY: `Live` has a lifetime of the interpreter's, so the thread is attached.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
