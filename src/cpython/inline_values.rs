//! The attributes of an instance as they lie in memory, without making its `__dict__`.
//!
//! From 3.11 on, CPython keeps the attributes of most instances in an array of values and makes a
//! dictionary only when somebody asks for it. On 3.11 and 3.12, making one moves the references into it.

use std::ffi::{c_char, c_ulong, c_void};
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};

use super::fields::{keep, only_word, words};
use super::read::{printable, referents, text_of};

/// `Py_TPFLAGS_MANAGED_DICT` (Include/object.h): what lies before the objects of the type says where
/// their attributes are.
pub(super) const MANAGED_DICT: c_ulong = 1 << 4;
/// `Py_TPFLAGS_INLINE_VALUES` (same file): the values lie behind the object itself, from 3.13 on.
const INLINE_VALUES: c_ulong = 1 << 2;
/// The flags that say where instances have their attributes.
const PLACES: c_ulong = MANAGED_DICT | INLINE_VALUES;

/// Where instances have their attributes, learnt from an instance.
#[derive(Clone, Copy)]
pub struct AttributeLayout {
    /// How many words before an object the address of its dictionary lies.
    dict: usize,
    /// Which word of a class is the address of the keys that its instances share.
    keys: usize,
    values: Place,
    /// The `tp_traverse` of classes made in Python (`subtype_traverse` in Objects/typeobject.c).
    traverse: *mut c_void,
    /// Those of [`PLACES`] that a class without slots has, and the size of its instances.
    flags: c_ulong,
    size: usize,
    /// True if `tp_traverse` visits the values of an instance and not its dictionary, though the instance refers to that:
    /// `PyObject_VisitManagedDict` (Objects/dictobject.c) before gh-130327, which 3.13 has from March 2026 on.
    pub(super) hides_dict: bool,
}

/// A dictionary that `tp_traverse` does not visit, and what it visits in its place, null where there is none.
pub struct HiddenDict<'a> {
    pub dict: *mut ffi::PyObject,
    pub values: &'a [*mut ffi::PyObject],
}

/// How a type begins: `struct _typeobject` in Include/cpython/object.h.
#[repr(C)]
struct TypeHead {
    head: ffi::PyVarObject,
    name: *const c_char,
    basicsize: usize,
}

impl TypeHead {
    /// The size of an instance as the type has it, which is its `__basicsize__`.
    ///
    /// # Safety
    /// `ty` is a live type.
    unsafe fn size_of_instance(ty: *mut ffi::PyTypeObject) -> usize {
        // SAFETY: by this function's contract; a type begins so, as `AttributeLayout::known` has seen.
        unsafe { (*ty.cast::<Self>()).basicsize }
    }
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

impl Place {
    /// Where before an object its values' address lay, as the dictionary made for them has it; `before` are the
    /// words there, from the last on.
    fn before(before: [usize; 4], dict: &[usize]) -> Option<Self> {
        (1..).zip(before).find_map(|(word, value)| {
            let is_values =
                |tag: &usize| is_address(value + tag) && only_word(dict, value + tag).is_some();
            let tag = (0..=1).find(is_values)?;
            Some(Self::Elsewhere { word, tag })
        })
    }
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
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        let class = py.eval(c"type('Probe', (), {})", None, None)?;
        keep(&class);
        let flags = flags_of(class.cast::<PyType>()?);
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
        // Behind the head: without the GIL that has a word for the thread, which is the same.
        let head = size_of::<ffi::PyObject>() / size_of::<usize>();
        let shared: Vec<usize> = (head..class_words.len())
            .filter(|&at| is_address(class_words[at]) && dict_words.contains(&class_words[at]))
            .collect();
        let &[keys] = shared.as_slice() else {
            return Ok(None);
        };
        let behind = probe.as_ptr() as usize + size_of_val(words(&probe)?);
        let place = if dict_words.contains(&behind) && flags & INLINE_VALUES != 0 {
            Some(Place::Behind)
        } else {
            Place::before(was, dict_words)
        };
        let Some(values_place) = place else {
            return Ok(None);
        };
        let ty = probe.get_type_ptr();
        let layout = Self {
            dict: dict_word,
            keys,
            values: values_place,
            // SAFETY: attached, and the class is alive.
            traverse: unsafe { ffi::PyType_GetSlot(ty, ffi::Py_tp_traverse) },
            flags: flags & PLACES,
            size: size_of_val(words(&probe)?),
            hides_dict: !referents(&probe).contains(&address),
        };
        let size_of_class = size_of_val(class_words);
        // SAFETY: attached; both types are alive.
        let tells_all = unsafe {
            layout.tells_all_of(ty)
                && TypeHead::size_of_instance(class.get_type_ptr()) == size_of_class
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
            && tells_all
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
        // `known` has seen of others with these flags.
        unsafe {
            let class = ffi::Py_TYPE(object.as_ptr());
            let names = Keys::names(self.keys_of(class)).iter();
            names
                .zip(self.values(object.as_ptr(), size).unwrap_or_default())
                .filter(|(_, value)| !value.is_null())
                .map(|([name, _], value)| {
                    let name = Bound::from_borrowed_ptr(object.py(), *name);
                    let name = text_of(&name).unwrap_or_default();
                    (printable(&name), *value as usize)
                })
                .collect()
        }
    }

    /// True if all that instances of a class refer to is their class and what [`AttributeLayout::attributes`]
    /// tells: no class between it and `object` has slots or is other than Python makes it.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, and `class` is a live type.
    pub unsafe fn tells_all_of(&self, class: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; a type keeps its bases alive. `subtype_traverse` visits the slots
        // of each base that has the same `tp_traverse`, as many as its size says.
        unsafe {
            let mut base = class;
            while ffi::PyType_GetSlot(base, ffi::Py_tp_traverse) == self.traverse
                && ffi::Py_SIZE(base.cast()) == 0
            {
                base = ffi::PyType_GetSlot(base, ffi::Py_tp_base).cast();
            }
            base == &raw mut ffi::PyBaseObject_Type
                && ffi::PyType_GetFlags(class) & PLACES == self.flags
                && TypeHead::size_of_instance(class) == self.size
        }
    }

    /// The attributes of an instance, null where there is none, each alive as long as it stays there; `None` if
    /// a dictionary has them. These are what `_PyObject_VisitInstanceAttributes` of 3.11 and 3.12, and
    /// `PyObject_VisitManagedDict` from 3.13 on, visit (Objects/dictobject.c).
    ///
    /// # Safety
    /// The caller is attached to the interpreter, the object is alive and
    /// [its class is such a one](Self::tells_all_of), and nothing changes it while the slice is in use.
    #[inline(always)]
    pub unsafe fn attributes<'a>(
        &self,
        object: *mut ffi::PyObject,
    ) -> Option<&'a [*mut ffi::PyObject]> {
        // SAFETY: by this function's contract.
        unsafe {
            // Values behind an object may have a dictionary as well, whose `tp_traverse` visits them.
            let is_shared =
                matches!(self.values, Place::Behind) && *object.cast::<usize>().sub(self.dict) != 0;
            if is_shared {
                return None;
            }
            self.values(object, self.size)
        }
    }

    /// As [`AttributeLayout::attributes`], of an instance that has [a dictionary](Self::hidden_dict) besides.
    ///
    /// # Safety
    /// As for [`AttributeLayout::attributes`].
    pub unsafe fn attributes_beside_dict<'a>(
        &self,
        object: *mut ffi::PyObject,
    ) -> Option<&'a [*mut ffi::PyObject]> {
        // SAFETY: by this function's contract.
        unsafe {
            self.hidden_dict(object)
                .and_then(|_| self.values(object, self.size))
        }
    }

    /// The dictionary of an object that `tp_traverse` does not visit, but its values in place of it.
    ///
    /// # Safety
    /// As for [`AttributeLayout::attributes`], but for the class.
    #[inline(always)]
    pub unsafe fn hidden_dict<'a>(&self, object: *mut ffi::PyObject) -> Option<HiddenDict<'a>> {
        if !self.hides_dict {
            return None;
        }
        // SAFETY: by this function's contract; the flag of its class says that it has a place for values, and so many
        // words lie before each of its kind, as `known` has seen.
        unsafe {
            let class = ffi::Py_TYPE(object);
            if ffi::PyType_GetFlags(class) & INLINE_VALUES == 0 {
                return None;
            }
            let dict = *object.cast::<*mut ffi::PyObject>().sub(self.dict);
            let values = self.values(object, TypeHead::size_of_instance(class))?;
            // One that the collector does not track yet is not looked at, whatever was added to the values since.
            let is_seen = !dict.is_null() && ffi::PyObject_GC_IsTracked(dict) != 0;
            is_seen.then_some(HiddenDict { dict, values })
        }
    }

    /// The values that an object of this size has itself, null for those that it has not got.
    ///
    /// # Safety
    /// As for [`AttributeLayout::attributes`], or the flags of the object's class say that it has values.
    #[inline(always)]
    unsafe fn values<'a>(
        &self,
        object: *mut ffi::PyObject,
        size: usize,
    ) -> Option<&'a [*mut ffi::PyObject]> {
        // SAFETY: by this function's contract. There are values for as many keys as the table has room for:
        // `init_inline_values` (Objects/dictobject.c) makes room for those of the time, and the table never
        // grows. `capacity` is that room. A class whose instances have values elsewhere has keys.
        unsafe {
            let (values, count) = match self.values {
                Place::Elsewhere { word, tag } => {
                    let address = *object.cast::<usize>().sub(word) + tag;
                    if !is_address(address) {
                        return None;
                    }
                    let keys = self.keys_of(ffi::Py_TYPE(object));
                    (address as *const _, (*keys).count.max(0) as usize)
                }
                Place::Behind => {
                    let head = object.byte_add(size).cast::<ValuesHead>();
                    if (*head).valid != 1 {
                        return None;
                    }
                    (head.add(1).cast_const().cast(), (*head).capacity.into())
                }
            };
            Some(slice::from_raw_parts(values, count))
        }
    }

    /// The keys that the instances of a class share; may be null.
    ///
    /// # Safety
    /// `class` is a live type whose flags say that its instances have values.
    #[inline(always)]
    unsafe fn keys_of(&self, class: *mut ffi::PyTypeObject) -> *const Keys {
        // SAFETY: by this function's contract this word of it is the keys, as `known` has seen.
        unsafe { *class.cast::<*const Keys>().add(self.keys) }
    }
}

pub(super) fn flags_of(class: &Bound<'_, PyType>) -> c_ulong {
    // SAFETY: attached, and this is a live type.
    unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) }
}

/// True if a word can be the address of an object or a table.
fn is_address(word: usize) -> bool {
    word > 0xFFFF && word.is_multiple_of(align_of::<usize>())
}
