//! A mark for each of many objects, found by address.

use rustc_hash::FxHashMap;

/// Stretches of memory, each of which has a table of its own.
const STRETCH: usize = 1 << 14;
/// No two objects begin in the same granule: none is smaller (`sizeof(PyObject)`).
const GRANULE: usize = 16;

type Table = [u32; STRETCH / GRANULE];

/// Marks of objects, by address.
///
/// Objects that lie together have marks that lie together, other than in a hash table of all
/// addresses. A walk over the heap mostly steps from an object to one near by, and so stays within
/// the processor's caches; that decides how long such a walk takes.
#[derive(Default)]
pub struct Marks {
    tables: FxHashMap<usize, Box<Table>>,
}

impl Marks {
    /// What stands for no mark, and is none.
    pub const NONE: u32 = u32::MAX;

    pub fn set(&mut self, address: usize, mark: u32) {
        let table = self
            .tables
            .entry(address / STRETCH)
            .or_insert_with(|| Box::new([Self::NONE; STRETCH / GRANULE]));
        table[address % STRETCH / GRANULE] = mark;
    }

    /// The mark of an object, or [`Marks::NONE`].
    #[inline]
    pub fn raw(&self, address: usize) -> u32 {
        match self.tables.get(&(address / STRETCH)) {
            Some(table) => table[address % STRETCH / GRANULE],
            None => Self::NONE,
        }
    }

    /// The mark of an object that was given one.
    #[inline]
    pub fn get(&self, address: usize) -> Option<u32> {
        Some(self.raw(address)).filter(|mark| *mark != Self::NONE)
    }

    /// The bytes of memory that the marks take.
    pub fn bytes(&self) -> usize {
        self.tables.len() * size_of::<Table>()
            + self.tables.capacity() * size_of::<(usize, usize)>()
    }

    /// As [`Marks::get`], to change it.
    #[inline]
    pub fn get_mut(&mut self, address: usize) -> Option<&mut u32> {
        let table = self.tables.get_mut(&(address / STRETCH))?;
        Some(&mut table[address % STRETCH / GRANULE]).filter(|mark| **mark != Self::NONE)
    }
}
