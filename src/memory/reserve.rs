//! Memory put aside for when there is none: where Rust's collections find no memory they end the process, which a
//! program that is merely watched must not meet.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What is put aside, in bytes: several times what a look takes that has not asked whether there is memory.
const SPARE_LAYOUT: Layout = match Layout::from_size_align(1 << 20, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two is an alignment"),
};

static SPARE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// The system's allocator, with something put aside. For the extension module alone: a program that uses the crate
/// chooses its own.
struct Reserve;

#[global_allocator]
static RESERVE: Reserve = Reserve;

/// Puts memory aside, unless that has been done and none was needed since; false if there is none. To be
/// called before memory is taken in the middle of a collection.
pub fn put_aside() -> bool {
    if !SPARE.load(Ordering::Relaxed).is_null() {
        return true;
    }
    // SAFETY: the layout has a size.
    let spare = unsafe { System.alloc(SPARE_LAYOUT) };
    if spare.is_null() {
        return false;
    }
    let other = SPARE.swap(spare, Ordering::AcqRel);
    give_back(other);
    true
}

fn give_back(spare: *mut u8) -> bool {
    if spare.is_null() {
        return false;
    }
    // SAFETY: `put_aside` got it from there, with this layout; whoever swaps it out has it alone.
    unsafe { System.dealloc(spare, SPARE_LAYOUT) };
    true
}

/// What `allocate` gives; if that is nothing, what it gives once the spare memory was given back.
fn or_from_spare(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let memory = allocate();
    if memory.is_null() && give_back(SPARE.swap(ptr::null_mut(), Ordering::AcqRel)) {
        return allocate();
    }
    memory
}

// SAFETY: all of it is the system's allocator, whose contract is this trait's; asked again for what it did not give.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by this function's contract.
        or_from_spare(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by this function's contract.
        or_from_spare(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by this function's contract; memory that was not moved is as it was.
        or_from_spare(|| unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by this function's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}
