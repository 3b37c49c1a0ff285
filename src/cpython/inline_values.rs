//! The attributes of an instance as they lie in memory, without making its `__dict__`.
//!
//! From 3.11 on, CPython keeps the attributes of most instances in an array of values and makes a
//! dictionary only when somebody asks for it. On 3.11 and 3.12, making one moves the references into it.

use std::ffi::c_ulong;
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};

use super::fields::{only_word, words};
use super::read::{printable, referents, text_of};

/// `Py_TPFLAGS_MANAGED_DICT` (Include/object.h): what lies before the objects of the type says where
/// their attributes are.
pub(super) const MANAGED_DICT: c_ulong = 1 << 4;
/// `Py_TPFLAGS_INLINE_VALUES` (same file): the values lie behind the object itself, from 3.13 on.
const INLINE_VALUES: c_ulong = 1 << 2;

/// Where instances have their attributes, learnt from an instance.
#[derive(Clone, Copy)]
pub struct AttributeLayout {
    /// How many words before an object the address of its dictionary lies.
    dict: usize,
    /// Which word of a class is the address of the keys that its instances share.
    keys: usize,
    values: Place,
}

/// Where the values are.
#[derive(Clone, Copy)]
enum Place {
    /// Elsewhere: an address lies so many words before the object, less than the true one by `tag`
    /// (`_PyObject_ValuesPointer` of 3.11 and `_PyDictOrValues_GetValues` of 3.12 in
    /// Include/internal/pycore_object.h).
    Elsewhere { word: usize, tag: usize },
    /// Behind the object (`_PyObject_InlineValues`, same file, from 3.13 on).
    Behind,
}

/// What precedes the values behind an object, in one word: `struct _dictvalues` in
/// Include/internal/pycore_dict.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct ValuesHead {
    capacity: u8,
    size: u8,
    embedded: u8,
    /// Zero once the values have moved to a dictionary; what remains here refers to nothing then.
    valid: u8,
    padding: u32,
}

/// The keys that the instances of a class share: `struct _dictkeysobject` in
/// Include/internal/pycore_dict.h, the same from 3.11 on. An index and the entries follow.
#[repr(C)]
struct Keys {
    references: isize,
    log2_size: u8,
    log2_index_bytes: u8,
    kind: u8,
    lock: u8,
    version: u32,
    usable: isize,
    count: isize,
}

impl Keys {
    /// `DICT_KEYS_SPLIT`: every key is a string, and the values are elsewhere.
    const SPLIT: u8 = 2;

    /// The keys in the order of the values; none unless this is such a table.
    ///
    /// # Safety
    /// `keys` is null or the address of a table that stays unchanged while the result is in use.
    unsafe fn names<'a>(keys: *const Self) -> &'a [[*mut ffi::PyObject; 2]] {
        // SAFETY: by this function's contract. `DK_UNICODE_ENTRIES` in
        // Include/internal/pycore_dict.h: the entries, each a key and a value, follow the index.
        unsafe {
            let Some(head) = keys.as_ref() else {
                return &[];
            };
            let count = usize::try_from(head.count).unwrap_or(0);
            let is_small = head.log2_size < 16 && head.log2_index_bytes < 16;
            if head.kind != Self::SPLIT || !is_small || count > 1 << head.log2_size {
                return &[];
            }
            let entries = keys.add(1).cast::<u8>().add(1 << head.log2_index_bytes);
            slice::from_raw_parts(entries.cast(), count)
        }
    }
}

impl AttributeLayout {
    /// `None` if no instance has values of its own (3.10), or they are not where they are looked for.
    ///
    /// # Errors
    /// If the class to learn from cannot be made.
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        let class = py.eval(c"type('Probe', (), {})", None, None)?;
        let flags = flags_of(&class);
        let values = [(); 3].map(|()| PyList::empty(py).into_any());
        let make = || -> PyResult<Bound<'_, PyAny>> {
            let probe = class.call0()?;
            for (name, value) in ["first", "second", "third"].iter().zip(&values) {
                probe.setattr(*name, value)?;
            }
            Ok(probe)
        };
        if flags & MANAGED_DICT == 0 {
            return Ok(None);
        }
        let (probe, kept, detached) = (make()?, make()?, make()?);
        // The dictionary takes the values over, or says where they are, and has the keys of the class.
        // SAFETY: the flag says that two words lie before the head of the collector's, which has two
        // (`_PyType_PreHeaderSize` in Include/internal/pycore_object.h).
        let before =
            |probe: &Bound<'_, PyAny>, word| unsafe { *probe.as_ptr().cast::<usize>().sub(word) };
        let was = [1, 2, 3, 4].map(|word| before(&probe, word));
        let dict = probe.getattr("__dict__")?;
        let address = dict.as_ptr() as usize;
        let dict_words = words(&dict)?;
        let Some(dict_word) = (1..=4).find(|&word| before(&probe, word) == address) else {
            return Ok(None);
        };
        let class_words = words(&class)?;
        let shared: Vec<usize> = (0..class_words.len())
            .filter(|&at| is_address(class_words[at]) && dict_words.contains(&class_words[at]))
            .collect();
        let &[keys] = shared.as_slice() else {
            return Ok(None);
        };
        let behind = probe.as_ptr() as usize + size_of_val(words(&probe)?);
        let values_place = if dict_words.contains(&behind) && flags & INLINE_VALUES != 0 {
            Place::Behind
        } else {
            let found = (1..=4).zip(was).find_map(|(word, value)| {
                let tag = (0..=1).find(|tag| {
                    is_address(value + tag) && only_word(dict_words, value + tag).is_some()
                })?;
                Some(Place::Elsewhere { word, tag })
            });
            let Some(place) = found else {
                return Ok(None);
            };
            place
        };
        let layout = Self {
            dict: dict_word,
            keys,
            values: values_place,
        };
        detached.setattr("__dict__", PyDict::new(py))?;
        let read = layout.read_values(&kept, flags, size_of_val(words(&kept)?));
        let expected = values.iter().map(|value| value.as_ptr() as usize);
        let known = read.iter().map(|(_, value)| *value).eq(expected)
            && read
                .iter()
                .map(|(name, _)| name.as_str())
                .eq(["first", "second", "third"])
            && values
                .iter()
                .all(|value| referents(&kept).contains(&(value.as_ptr() as usize)))
            && layout.managed_dict(&kept) == 0
            && layout
                .read_values(&detached, flags, size_of_val(words(&detached)?))
                .is_empty();
        Ok(known.then_some(layout))
    }

    /// The address of the dictionary of an object whose type has [`MANAGED_DICT`]; zero if there is none.
    pub(super) fn managed_dict(&self, object: &Bound<'_, PyAny>) -> usize {
        // SAFETY: the object is alive, and so many words lie before each of its kind, as `known` has seen.
        let word = unsafe { *object.as_ptr().cast::<usize>().sub(self.dict) };
        if is_address(word) { word } else { 0 }
    }

    /// The names and values of an object whose type has these flags and `__basicsize__`, as far as it has
    /// values of its own.
    pub(super) fn read_values(
        &self,
        object: &Bound<'_, PyAny>,
        flags: c_ulong,
        size: usize,
    ) -> Vec<(String, usize)> {
        let has_keys = flags & ffi::Py_TPFLAGS_HEAPTYPE != 0 && flags & MANAGED_DICT != 0;
        if !has_keys || (matches!(self.values, Place::Behind) && flags & INLINE_VALUES == 0) {
            return Vec::new();
        }
        // SAFETY: attached, so nothing changes meanwhile. The object is alive and laid out so, as
        // `known` has seen of others with these flags. There are values for as many keys as the table
        // has room for: `init_inline_values` (Objects/dictobject.c) makes room for those of the time,
        // and the table never grows. `capacity` is that room.
        unsafe {
            let words = object.as_ptr().cast::<usize>();
            let (values, room) = match self.values {
                Place::Elsewhere { word, tag } => {
                    let address = *words.sub(word);
                    if address == 0 || !is_address(address + tag) {
                        return Vec::new();
                    }
                    ((address + tag) as *const usize, usize::MAX)
                }
                Place::Behind => {
                    let head = words.byte_add(size).cast::<ValuesHead>();
                    if (*head).valid != 1 {
                        return Vec::new();
                    }
                    (
                        head.add(1).cast::<usize>().cast_const(),
                        (*head).capacity.into(),
                    )
                }
            };
            let class = ffi::Py_TYPE(object.as_ptr()).cast::<*const Keys>();
            let names = Keys::names(*class.add(self.keys)).iter().take(room);
            names
                .enumerate()
                .filter(|(i, _)| *values.add(*i) != 0)
                .map(|(i, [name, _])| {
                    let name = Bound::from_borrowed_ptr(object.py(), *name);
                    let name = text_of(&name).unwrap_or_default();
                    (printable(&name), *values.add(i))
                })
                .collect()
        }
    }
}

pub(super) fn flags_of(class: &Bound<'_, PyAny>) -> c_ulong {
    debug_assert!(class.is_instance_of::<PyType>());
    // SAFETY: attached, and a class is a live type.
    unsafe { ffi::PyType_GetFlags(class.as_ptr().cast()) }
}

/// True if a word can be the address of an object or a table.
fn is_address(word: usize) -> bool {
    word > 0xFFFF && word.is_multiple_of(align_of::<usize>())
}
