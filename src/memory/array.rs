//! Large arrays of numbers that are walked in any order: memory that is cheap to get and to reach into.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;
use memmap2::MmapMut;

/// Minimum size of an array with huge pages: their size on most machines.
const HUGE_PAGE: usize = 2 << 20;
/// Minimum size of an array that is mapped directly from the system.
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

/// An array that grows at its end, as a `Vec`, in such memory.
pub(crate) struct Growing<T> {
    /// Zeros from `len` on, or what was there once.
    room: Array<T>,
    len: usize,
}

impl<T: Pod> Growing<T> {
    /// Empty, with capacity for this many items, which take no memory until they are added.
    pub fn with_capacity(room: usize) -> Self {
        Self {
            room: Array::zeroed(room),
            len: 0,
        }
    }

    pub fn capacity(&self) -> usize {
        self.room.len()
    }

    #[inline]
    pub fn push(&mut self, item: T) {
        if self.len == self.room.len() {
            self.grow(self.len + 1);
        }
        self.room[self.len] = item;
        self.len += 1;
    }

    pub fn push_all(&mut self, items: &[T]) {
        let len = self.len;
        self.resize(len + items.len());
        self[len..].copy_from_slice(items);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        Some(self.room[last])
    }

    /// Adds zeros at the end, or takes items away.
    pub fn resize(&mut self, len: usize) {
        if len > self.room.len() {
            self.grow(len);
        }
        if len > self.len {
            self.room[self.len..len].fill(T::zeroed());
        }
        self.len = len;
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    #[cfg(feature = "python")]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, least: usize) {
        let mut room = Array::zeroed(least.max(2 * self.len).max(16));
        room[..self.len].copy_from_slice(self);
        self.room = room;
    }
}

impl<T: Pod> Default for Growing<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T: Pod> Extend<T> for Growing<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.push(item);
        }
    }
}

impl<T> Deref for Growing<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.room[..self.len]
    }
}

impl<T> DerefMut for Growing<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.room[..self.len]
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

/// The addresses of a list, the memory at each of which is fetched ahead of its turn.
#[cfg(feature = "python")]
pub fn in_turn<T>(addresses: &[*mut T]) -> impl Iterator<Item = *mut T> + '_ {
    const AHEAD: usize = 4;
    addresses.iter().enumerate().map(|(index, address)| {
        if let Some(soon) = addresses.get(index + AHEAD) {
            prefetch_at(soon.cast());
        }
        *address
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_grows_is_as_a_vec(steps in vec((0..5u8, 0..40usize), 0..80)) {
            let (mut ours, mut expected) = (Growing::with_capacity(3), Vec::new());
            for (step, number) in steps {
                match step {
                    4 => {
                        let all: Vec<usize> = (0..number).collect();
                        ours.push_all(&all);
                        expected.extend_from_slice(&all);
                    }
                    0 => {
                        ours.extend(0..number);
                        expected.extend(0..number);
                    }
                    1 => prop_assert_eq!(ours.pop(), expected.pop()),
                    2 => {
                        ours.resize(number);
                        expected.resize(number, 0);
                    }
                    _ => {
                        ours.truncate(number);
                        expected.truncate(number);
                    }
                }
                prop_assert_eq!(&ours[..], &expected[..]);
            }
        }
    }

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
