//! Memory put aside for when there is none: where Rust's collections find no memory they end the process, which a
//! program that is merely watched must not meet.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use memmap2::MmapMut;

/// What is put aside, in bytes: several times what a look and the drawing of what it finds take that have asked whether
/// there is memory. It is mapped and not touched, so that until it is needed no page of it is in memory.
const SIZE: usize = 8 << 20;
/// Of this much that is left, a look that has not asked takes less.
const ENOUGH: usize = SIZE / 2;

/// So many times something is put aside: a piece that stays, as that of a table that has grown, keeps the pieces given out
/// after it from being given out anew.
const TIMES: usize = 8;

/// The system's allocator, with something put aside that nothing but this module can take. For the extension module alone:
/// a program that uses the crate chooses its own.
struct Reserve {
    /// Put aside in this order.
    spares: [Spare; TIMES],
}

#[global_allocator]
static RESERVE: Reserve = Reserve::new();

/// Puts memory aside, unless that has been done; false if there is none, or much of it is in use. To be called before memory
/// is taken in the middle of a collection.
pub fn put_aside() -> bool {
    RESERVE.put_aside()
}

impl Reserve {
    const fn new() -> Self {
        Self {
            spares: [const { Spare::new() }; TIMES],
        }
    }

    fn put_aside(&self) -> bool {
        self.spares.iter().any(Spare::is_there) || self.spares.iter().any(Spare::put_aside)
    }

    fn in_use(&self) -> impl Iterator<Item = &Spare> {
        self.spares.iter().take_while(|it| !it.base().is_null())
    }

    /// A piece of what is put aside; null if there is not as much left.
    fn take(&self, layout: Layout) -> *mut u8 {
        let mut pieces = self.in_use().map(|it| it.take(layout));
        pieces.find(|it| !it.is_null()).unwrap_or(ptr::null_mut())
    }

    /// Where a piece was taken of.
    fn origin(&self, memory: *mut u8) -> Option<&Spare> {
        self.in_use().find(|it| it.has(memory))
    }
}

/// A piece of memory that is given out from its beginning on, and anew once all of it has come back.
struct Spare {
    base: AtomicPtr<u8>,
    /// How many pieces are out, and how many bytes from the beginning on they may be in: both in one number, so that they
    /// change together.
    state: AtomicU64,
}

impl Spare {
    const fn new() -> Self {
        Self {
            base: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU64::new(0),
        }
    }

    /// Null until it is put aside.
    fn base(&self) -> *mut u8 {
        self.base.load(Ordering::Acquire)
    }

    fn is_there(&self) -> bool {
        let (_, used) = parts(self.state.load(Ordering::Relaxed));
        !self.base().is_null() && used <= ENOUGH
    }

    fn put_aside(&self) -> bool {
        if !self.base().is_null() {
            return false;
        }
        let Ok(mut map) = MmapMut::map_anon(SIZE) else {
            return false;
        };
        let (none, base) = (ptr::null_mut(), map.as_mut_ptr());
        let is_first = self
            .base
            .compare_exchange(none, base, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if is_first {
            // It stays for as long as the process.
            std::mem::forget(map);
        }
        true
    }

    /// A piece of it; null if there is not as much left.
    fn take(&self, layout: Layout) -> *mut u8 {
        let base = self.base();
        if base.is_null() {
            return base;
        }
        let mut start = 0;
        let taken = self.change(|pieces, used| {
            let past = (base as usize).checked_add(used)?;
            start = used + (past.next_multiple_of(layout.align()) - past);
            let end = start.checked_add(layout.size())?;
            (end <= SIZE).then_some((pieces + 1, end))
        });
        match taken {
            true => base.wrapping_add(start),
            false => ptr::null_mut(),
        }
    }

    /// True for what was taken of it.
    fn has(&self, memory: *mut u8) -> bool {
        let base = self.base.load(Ordering::Relaxed) as usize;
        base != 0 && (memory as usize).wrapping_sub(base) < SIZE
    }

    /// Takes a piece back.
    fn give_back(&self) {
        self.change(|pieces, used| match pieces {
            0 | 1 => Some((0, 0)),
            _ => Some((pieces - 1, used)),
        });
    }

    fn change(&self, mut change: impl FnMut(usize, usize) -> Option<(usize, usize)>) -> bool {
        let update = |state| {
            let (pieces, used) = parts(state);
            let (pieces, used) = change(pieces, used)?;
            Some((pieces as u64) << 32 | used as u64)
        };
        let all = Ordering::AcqRel;
        self.state
            .fetch_update(all, Ordering::Acquire, update)
            .is_ok()
    }
}

const fn parts(state: u64) -> (usize, usize) {
    ((state >> 32) as usize, (state & 0xffff_ffff) as usize)
}

/// Some memory elsewhere, with what a piece had in it; the piece is left as it is.
///
/// # Safety
/// The piece has so many bytes.
unsafe fn copied(memory: *mut u8, from: usize, layout: Layout, to: *mut u8) -> *mut u8 {
    if !to.is_null() {
        // SAFETY: both have as many bytes, and two pieces of memory do not overlap.
        unsafe { ptr::copy_nonoverlapping(memory, to, from.min(layout.size())) };
    }
    to
}

// SAFETY: all of it is the system's allocator, whose contract is this trait's, or else pieces of memory of this module's
// own, which do not overlap, fit the layout, and stay until they are given back.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by this function's contract.
        let memory = unsafe { System.alloc(layout) };
        match memory.is_null() {
            true => self.take(layout),
            false => memory,
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by this function's contract.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = self.take(layout);
        if !memory.is_null() {
            // SAFETY: it has so many bytes.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller has seen to it that the size is one for this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if let Some(spare) = self.origin(memory) {
            // SAFETY: the size is not 0 by this function's contract; the piece has the bytes of its layout.
            let other = unsafe { copied(memory, layout.size(), wanted, self.alloc(wanted)) };
            if !other.is_null() {
                spare.give_back();
            }
            return other;
        }
        // SAFETY: by this function's contract; memory that was not moved is as it was.
        let other = unsafe { System.realloc(memory, layout, size) };
        if !other.is_null() {
            return other;
        }
        // SAFETY: as above; what the system gave it takes back.
        unsafe {
            let other = copied(memory, layout.size(), wanted, self.take(wanted));
            if !other.is_null() {
                System.dealloc(memory, layout);
            }
            other
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match self.origin(memory) {
            Some(spare) => spare.give_back(),
            // SAFETY: by this function's contract.
            None => unsafe { System.dealloc(memory, layout) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a layout")
    }

    #[test]
    fn pieces_do_not_overlap_and_are_aligned() {
        let spare = Spare::new();
        assert!(spare.take(layout(8, 8)).is_null());
        assert!(!spare.is_there() && spare.put_aside() && spare.is_there());
        let mut end = 0;
        for (size, align) in [(3, 1), (8, 8), (1, 64), (100, 16), (4096, 4096)] {
            let piece = spare.take(layout(size, align)) as usize;
            assert!(piece >= end && piece.is_multiple_of(align) && spare.has(piece as *mut u8));
            end = piece + size;
        }
        assert!(!spare.has(ptr::null_mut()) && !spare.has(ptr::from_mut(&mut end).cast()));
    }

    #[test]
    fn what_has_all_come_back_is_given_out_again() {
        let spare = Spare::new();
        assert!(spare.put_aside());
        let first = spare.take(layout(ENOUGH + 1, 1));
        assert!(!first.is_null() && !spare.is_there());
        let second = spare.take(layout(16, 16));
        assert!(spare.take(layout(SIZE, 1)).is_null());
        spare.give_back();
        assert_ne!(spare.take(layout(16, 16)), first);
        spare.give_back();
        spare.give_back();
        assert_eq!(spare.take(layout(16, 16)), first);
        assert_ne!(first, second);
    }

    #[test]
    fn a_piece_that_stays_leaves_enough_for_the_next_shortages() {
        let reserve = Reserve::new();
        for _ in 1..TIMES {
            assert!(reserve.put_aside());
            let stays = reserve.take(layout(16, 16));
            let many: Vec<_> = (0..9)
                .map(|_| reserve.take(layout(ENOUGH / 8, 8)))
                .collect();
            for piece in many {
                reserve.origin(piece).expect("a piece of it").give_back();
            }
            assert!(reserve.origin(stays).is_some());
        }
        assert!(reserve.put_aside());
    }

    #[test]
    fn threads_take_different_pieces() {
        let spare = Spare::new();
        assert!(spare.put_aside());
        let take = || -> Vec<usize> {
            (0..1000)
                .map(|_| spare.take(layout(16, 16)) as usize)
                .collect()
        };
        let mut all: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            let taken = threads.into_iter().map(|it| it.join().expect("no panic"));
            taken.flatten().collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4000);
    }
}
