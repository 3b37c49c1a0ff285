//! Is there memory enough for a look?

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

/// What telling whether an object is garbage takes at most, in bytes.
pub(super) const ROOM_TO_MARK: usize = 512;
/// What examining an object of the garbage takes at most, in bytes: most if each is a cycle of its own
/// that holds a buffer, as its occurrence is then kept, twice where there was a look beforehand.
pub(super) const ROOM_TO_EXAMINE: usize = 4096;
/// What a look takes besides: its report, and the drawing of it meanwhile on another thread.
const ROOM_FOR_REPORT: usize = 64 << 20;

/// Whether there is memory enough to look at so many objects: where Rust's collections find none, they
/// end the process, and a program that runs out of memory is to meet its own `MemoryError`, not
/// that.
///
/// The memory is asked for and given back untouched, which takes some microseconds.
///
/// # Errors
/// `MemoryError` if there is not.
pub(super) fn ask_for_room(objects: usize, for_each: usize) -> PyResult<()> {
    let mut room: Vec<u8> = Vec::new();
    let bytes = objects
        .saturating_mul(for_each)
        .saturating_add(ROOM_FOR_REPORT);
    let there = room.try_reserve_exact(bytes);
    // Or the compiler would leave out an allocation that nobody uses.
    std::hint::black_box(room.as_ptr());
    there.map_err(|_| {
        PyMemoryError::new_err(format!(
            "there is not enough memory to look at {objects} objects; the collection goes on unseen"
        ))
    })
}
