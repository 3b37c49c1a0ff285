//! A mark for each of many objects, found by address.

use rustc_hash::FxHashMap;

use super::array::{Array, prefetch};

/// No two objects begin in the same granule: none is smaller (`sizeof(PyObject)`).
const GRANULE_BITS: u32 = 4;
/// Granules that have a table of marks together, as a power of two.
const TABLE_BITS: u32 = 10;
/// Tables that are found through one directory, and those through one directory of them.
const DIRECTORY_BITS: u32 = 12;
/// What is left of the bits of an address that systems use today.
const TOP_BITS: u32 = 48 - 2 * DIRECTORY_BITS - TABLE_BITS - GRANULE_BITS;
/// Tables that get their memory at once, as a power of two.
const CHUNK_BITS: u32 = 10;

/// Marks of objects, by address.
///
/// Found as a processor finds memory: each part of the address says where in a directory to go on. That
/// which is not there leads to directories and to a table that are empty, so no step has to look.
///
/// Objects that lie together have marks that lie together, other than in a hash table of all
/// addresses. A walk over the heap mostly steps from an object to one near by, and so stays within
/// the processor's caches; that decides how long such a walk takes.
pub struct Marks {
    top: Box<[u32; 1 << TOP_BITS]>,
    /// The directories of directories, and those of tables, one behind the other. The first of each is
    /// empty.
    upper: Vec<u32>,
    lower: Vec<u32>,
    /// The tables, of which the first is empty. Marks lie there with all bits turned, so that memory
    /// as the system gives it, all zeros, has none.
    chunks: Vec<Array<u32>>,
    tables: u32,
    /// By address: what lies beyond the addresses that systems use today.
    beyond: FxHashMap<usize, u32>,
    /// Most objects of the heap are to have marks.
    of_all: bool,
}

/// The part of an address that counts in a directory or table of `1 << bits` entries.
#[inline(always)]
fn part(address: usize, below: u32, bits: u32) -> usize {
    (address >> below) & ((1 << bits) - 1)
}

const TABLE: u32 = GRANULE_BITS + TABLE_BITS;
const LOWER: u32 = TABLE + DIRECTORY_BITS;
const UPPER: u32 = LOWER + DIRECTORY_BITS;

impl Default for Marks {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Marks {
    /// What stands for no mark, and is none.
    pub const NONE: u32 = u32::MAX;

    /// Marks for most of the objects of the heap, however many those are.
    pub fn of_all() -> Self {
        Self::new(true)
    }

    fn new(of_all: bool) -> Self {
        let mut marks = Self {
            top: Box::new([0; 1 << TOP_BITS]),
            upper: vec![0; 1 << DIRECTORY_BITS],
            lower: vec![0; 1 << DIRECTORY_BITS],
            chunks: Vec::new(),
            tables: 0,
            beyond: FxHashMap::default(),
            of_all,
        };
        marks.add_table();
        marks
    }

    pub fn set(&mut self, address: usize, mark: u32) {
        if is_beyond(address) {
            self.beyond.insert(address, mark);
            return;
        }
        let mut table = self.table(address);
        if table == 0 {
            table = self.make_table(address);
        }
        let (chunk, place) = position(table, address);
        self.chunks[chunk][place] = !mark;
    }

    /// Takes an object's mark away. The memory stays, for others.
    pub fn forget(&mut self, address: usize) {
        if is_beyond(address) {
            self.beyond.remove(&address);
        } else if self.table(address) != 0 {
            self.set(address, Self::NONE);
        }
    }

    /// The mark of an object, or [`Marks::NONE`].
    #[inline(always)]
    pub fn raw(&self, address: usize) -> u32 {
        if is_beyond(address) {
            return self.beyond.get(&address).copied().unwrap_or(Self::NONE);
        }
        let (chunk, place) = position(self.table(address), address);
        !self.chunks[chunk][place]
    }

    /// Says that the mark of an object is asked for soon.
    #[inline(always)]
    pub fn prefetch(&self, address: usize) {
        if !is_beyond(address) {
            let (chunk, place) = position(self.table(address), address);
            prefetch(&self.chunks[chunk], place);
        }
    }

    /// The mark of an object that was given one.
    #[inline]
    pub fn get(&self, address: usize) -> Option<u32> {
        Some(self.raw(address)).filter(|mark| *mark != Self::NONE)
    }

    /// Lets `change` alter the mark of an object that was given one, and returns what that returns.
    #[inline]
    pub fn change<R>(&mut self, address: usize, change: impl FnOnce(&mut u32) -> R) -> Option<R> {
        if is_beyond(address) {
            return self.beyond.get_mut(&address).map(change);
        }
        let (chunk, place) = position(self.table(address), address);
        let turned = &mut self.chunks[chunk][place];
        let mut mark = !*turned;
        if mark == Self::NONE {
            return None;
        }
        let result = change(&mut mark);
        *turned = !mark;
        Some(result)
    }

    /// The bytes of memory that the marks take.
    pub fn bytes(&self) -> usize {
        let directories = self.top.len() + self.upper.capacity() + self.lower.capacity();
        let tables = (self.tables as usize) << TABLE_BITS;
        size_of::<u32>() * (directories + tables)
            + size_of::<(usize, u32)>() * self.beyond.capacity()
    }

    /// The table in which the mark of an object is, or would be; 0 if there is none.
    #[inline(always)]
    fn table(&self, address: usize) -> u32 {
        let upper = self.top[part(address, UPPER, TOP_BITS)] as usize;
        let at = upper << DIRECTORY_BITS | part(address, LOWER, DIRECTORY_BITS);
        let lower = self.upper[at] as usize;
        self.lower[lower << DIRECTORY_BITS | part(address, TABLE, DIRECTORY_BITS)]
    }

    #[cold]
    fn make_table(&mut self, address: usize) -> u32 {
        let upper = &mut self.top[part(address, UPPER, TOP_BITS)];
        if *upper == 0 {
            *upper = add_directory(&mut self.upper);
        }
        let at = (*upper as usize) << DIRECTORY_BITS | part(address, LOWER, DIRECTORY_BITS);
        let lower = &mut self.upper[at];
        if *lower == 0 {
            *lower = add_directory(&mut self.lower);
        }
        let at = (*lower as usize) << DIRECTORY_BITS | part(address, TABLE, DIRECTORY_BITS);
        let table = self.add_table();
        self.lower[at] = table;
        table
    }

    /// Adds an empty table; its number.
    fn add_table(&mut self) -> u32 {
        let own = self.tables;
        let (chunk, _) = position(own, 0);
        if chunk == self.chunks.len() {
            let entries = 1 << (CHUNK_BITS + TABLE_BITS);
            // Marks of few objects take no more than they need of the first.
            self.chunks.push(if chunk == 0 && !self.of_all {
                Array::sparse(entries)
            } else {
                Array::zeroed(entries)
            });
        }
        self.tables += 1;
        own
    }
}

/// Adds an empty directory behind others; its number.
fn add_directory(directories: &mut Vec<u32>) -> u32 {
    let own = directories.len() >> DIRECTORY_BITS;
    directories.resize(directories.len() + (1 << DIRECTORY_BITS), 0);
    own as u32
}

#[inline(always)]
fn is_beyond(address: usize) -> bool {
    address as u64 >> (UPPER + TOP_BITS) != 0
}

/// The chunk in which a table lies, and where in it the mark of an address is.
#[inline(always)]
fn position(table: u32, address: usize) -> (usize, usize) {
    let table = table as usize;
    (
        table >> CHUNK_BITS,
        part(table, 0, CHUNK_BITS) << TABLE_BITS | part(address, GRANULE_BITS, TABLE_BITS),
    )
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Near by, far apart and beyond the addresses in use.
        #[test]
        fn marks_are_found_as_in_a_map(
            all in vec((0usize..1 << 52, 0u32..40, 0u32..Marks::NONE), 0..60),
        ) {
            let mut marks = Marks::default();
            let mut expected = FxHashMap::default();
            let granule = |bits: usize, shift: u32| (bits >> shift) & !((1 << GRANULE_BITS) - 1);
            for &(bits, shift, mark) in &all {
                marks.set(granule(bits, shift), mark);
                expected.insert(granule(bits, shift), mark);
            }
            for &(bits, shift, mark) in &all {
                let address = granule(bits, shift);
                marks.change(address, |known| *known ^= mark & 1);
                expected.entry(address).and_modify(|known| *known ^= mark & 1);
            }
            for &(bits, shift, _) in &all {
                let address = granule(bits, shift);
                for address in [address, address ^ 1 << GRANULE_BITS, address ^ 1 << 30] {
                    let known = expected.get(&address).copied();
                    prop_assert_eq!(marks.get(address), known);
                    prop_assert_eq!(marks.change(address, |mark| *mark), known);
                }
            }
            for &(bits, shift, _) in &all {
                marks.forget(granule(bits, shift));
                marks.forget(granule(bits, shift) ^ 1 << 40);
            }
            for &(bits, shift, _) in &all {
                prop_assert_eq!(marks.get(granule(bits, shift)), None);
            }
        }
    }

    #[test]
    fn there_may_be_many_tables() {
        let mut marks = Marks::default();
        for table in 0..3usize << CHUNK_BITS {
            marks.set(table << TABLE, table as u32);
        }
        for table in 0..3usize << CHUNK_BITS {
            assert_eq!(marks.raw(table << TABLE), table as u32);
            assert_eq!(marks.raw((table << TABLE) + 16), Marks::NONE);
        }
        assert!(marks.bytes() > 3 << (CHUNK_BITS + TABLE_BITS));
    }
}
