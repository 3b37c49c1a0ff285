//! Large arrays of numbers that are walked in any order: memory that is cheap to get and to reach into.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;
use memmap2::MmapMut;

/// From so many bytes on an array has huge pages: that is how large those are on most machines.
const HUGE_PAGE: usize = 2 << 20;
/// From so many bytes on an array has memory of its own from the system.
const OWN: usize = 1 << 20;

/// An array of fixed length that begins as zeros.
///
/// A large one takes memory only where it is written to, and asks the system for huge pages: of those a
/// million numbers need two and not a thousand, each of which would interrupt the work and then
/// compete for the processor's table of pages. The program's own allocator does not see it.
pub(crate) struct Array<T> {
    /// Where in `_memory` the items are: found once, as items are asked for by the million.
    items: NonNull<T>,
    len: usize,
    _memory: Memory<T>,
    _items: PhantomData<T>,
}

enum Memory<T> {
    Small { _items: Vec<T> },
    Own { _map: MmapMut },
}

impl<T: Pod> Array<T> {
    pub fn zeroed(len: usize) -> Self {
        Self::new(len, size_of::<T>() * len >= HUGE_PAGE)
    }

    /// An array of which perhaps only a small part is used: without huge pages.
    #[cfg(feature = "python")]
    pub fn sparse(len: usize) -> Self {
        Self::new(len, false)
    }

    fn new(len: usize, huge: bool) -> Self {
        let bytes = size_of::<T>() * len;
        // Linux puts whole huge pages, and nothing else, where such pages begin.
        let room = if huge {
            bytes.next_multiple_of(HUGE_PAGE)
        } else {
            bytes
        };
        // Miri has no memory but the allocator's.
        let own = (bytes >= OWN && !cfg!(miri))
            .then(|| MmapMut::map_anon(room).ok())
            .flatten();
        match own {
            Some(mut map) => {
                // Without huge pages all is the same, but slower.
                #[cfg(target_os = "linux")]
                if huge {
                    let _ = map.advise(memmap2::Advice::HugePage);
                }
                let items: &mut [T] = bytemuck::cast_slice_mut(&mut map[..bytes]);
                let items = NonNull::from(items).cast();
                Self::of(items, len, Memory::Own { _map: map })
            }
            None => {
                let mut all = vec![T::zeroed(); len];
                let items = NonNull::from(all.as_mut_slice()).cast();
                Self::of(items, len, Memory::Small { _items: all })
            }
        }
    }

    fn of(items: NonNull<T>, len: usize, memory: Memory<T>) -> Self {
        Self {
            items,
            len,
            _memory: memory,
            _items: PhantomData,
        }
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: so many items lie there, for as long as the memory does, which nobody else uses.
        unsafe { NonNull::slice_from_raw_parts(self.items, self.len).as_ref() }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`.
        unsafe { NonNull::slice_from_raw_parts(self.items, self.len).as_mut() }
    }
}

/// Tells the processor that an item is needed soon, so that it comes from memory while other work is
/// done. Nothing happens if there is no such item.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: usize) {
    if let Some(item) = items.get(index) {
        prefetch_at(std::ptr::from_ref(item).cast());
    }
}

/// As [`prefetch`], by address.
#[inline(always)]
pub(crate) fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction, which reads nothing and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_or_large_it_begins_as_zeros_and_keeps_what_is_written() {
        for len in [0, 1, 1000, HUGE_PAGE / size_of::<u32>(), HUGE_PAGE + 7] {
            for huge in [false, true] {
                let mut array: Array<u32> = Array::new(len, huge);
                assert_eq!(array.len(), len);
                assert!(array.iter().all(|&number| number == 0));
                prefetch(&array, len);
                if let Some(last) = array.last_mut() {
                    *last = 7;
                    assert_eq!(array[len - 1], 7);
                }
            }
        }
    }
}
