//! Is there memory enough for a look, and stack?

use memmap2::MmapMut;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;

use crate::cpython::{STACK_NEEDED, has_stack};

/// What looking at one object takes at most, in bytes.
pub(super) const ROOM_FOR_OBJECT: usize = 512;
/// What looking at one object of the live heap takes at most, in bytes: measured, half to a third of it.
pub(super) const ROOM_FOR_LIVE: usize = 320;
/// What keeping a buffer, and the cycle that holds it if it is the only one, takes at most besides; twice,
/// where there was a look before the collection.
pub(super) const ROOM_FOR_BUFFER: usize = 4096;
/// Less garbage than this, and fewer buffers, are gone through and kept without asking whether there is memory.
pub(super) const MANY: usize = 10_000;
/// Garbage of no more objects than this is examined without asking: what that takes is put aside
/// (`crate::memory::reserve`).
#[cfg(feature = "extension")]
pub(super) const FEW: usize = 500;
/// A program that uses the crate chooses its own allocator, and nothing is put aside.
#[cfg(not(feature = "extension"))]
pub(super) const FEW: usize = 0;
/// What a report takes, and the drawing of it meanwhile on another thread.
const ROOM_FOR_REPORT: usize = 64 << 20;

/// Whether there is memory enough to look at so many objects: where Rust's collections find none, they
/// end the process, and a program that runs out of memory is to meet its own `MemoryError`, not
/// that.
///
/// The memory is asked for and given back untouched, of the system itself: an allocator would write its
/// own notes there, and a page written to takes several times as long to give back.
pub(super) fn ask_for_room(objects: usize, for_each: usize) -> PyResult<()> {
    if !has_reserve() {
        return Err(no_room());
    }
    let bytes = objects
        .saturating_mul(for_each)
        .saturating_add(ROOM_FOR_REPORT);
    MmapMut::map_anon(bytes).map(drop).map_err(|_| no_room())
}

/// False if there is no memory at all to look with; then there is none to say so with either.
pub(crate) fn has_reserve() -> bool {
    #[cfg(feature = "extension")]
    return crate::memory::reserve::put_aside();
    #[cfg(not(feature = "extension"))]
    true
}

pub(super) fn no_room() -> PyErr {
    PyMemoryError::new_err("not enough memory to inspect the heap")
}

/// # Errors
/// If the thread that calls has too little of its stack left for a look.
pub(crate) fn ensure_stack() -> PyResult<()> {
    match has_stack() {
        true => Ok(()),
        false => Err(PyRuntimeError::new_err(format!(
            "cyclescope needs {} KiB of stack, and this thread has less left; call it on another thread, or raise \
             threading.stack_size() before this one starts",
            STACK_NEEDED >> 10
        ))),
    }
}
