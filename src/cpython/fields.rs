//! What built-in objects of a few types refer to, as it lies in their memory.

use std::ffi::c_void;
use std::{mem, slice};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use super::traverse::for_each_referent;

/// The memory of an object as far as every object of its type has it.
///
/// # Errors
/// If its type's `__basicsize__` is no number.
pub fn words<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a [usize]> {
    let size: usize = object.get_type().getattr("__basicsize__")?.extract()?;
    // SAFETY: the object is alive and at least as large as its type says.
    Ok(unsafe { slice::from_raw_parts(object.as_ptr().cast(), size / size_of::<usize>()) })
}

/// The place of the only word that is `value`.
pub fn only_word(words: &[usize], value: usize) -> Option<usize> {
    let mut places = (0..words.len()).filter(|&place| words[place] == value);
    places.next().filter(|_| places.next().is_none())
}

/// Keeps a class that was made to see how its objects lie in memory, one for each inspector. Each class is in a cycle:
/// otherwise it would be garbage of ours, which the program's next collection counts.
pub fn keep(class: &Bound<'_, PyAny>) {
    std::mem::forget(class.clone());
}

/// Where a descriptor that stands for a reference says at which offset an object has it: `PyMemberDescrObject`
/// in Include/cpython/descrobject.h.
///
/// Reading it in place makes no `AttributeError` where the member is unset, and tells no audit hook.
#[derive(Clone, Copy)]
pub struct MemberLayout {
    descriptor_type: usize,
    /// Which word of a descriptor is the type whose objects have the member.
    owner: usize,
    /// Which word of a descriptor is the address of its [`ffi::PyMemberDef`].
    definition: usize,
}

impl MemberLayout {
    const OBJECT: i32 = 6;
    const OBJECT_EX: i32 = 16;
    const RELATIVE_OFFSET: i32 = 8;

    /// `None` if a descriptor made for a slot is not laid out so.
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        let class = py.eval(
            c"type('Probe', (), {'__slots__': ('first', 'second')})",
            None,
            None,
        )?;
        keep(&class);
        let descriptor = class.getattr("second")?;
        let value = PyList::empty(py);
        let probe = class.call0()?;
        probe.setattr("second", &value)?;
        let lies = words(&descriptor)?;
        // The definitions of a class's slots follow the class (`PyHeapType_GET_MEMBERS` in
        // Objects/typeobject.c).
        let first = class.as_ptr() as usize + size_of_val(words(&class)?);
        let second = first + size_of::<ffi::PyMemberDef>();
        let owner = only_word(lies, class.as_ptr() as usize);
        let (Some(owner), Some(definition)) = (owner, only_word(lies, second)) else {
            return Ok(None);
        };
        let layout = Self {
            descriptor_type: descriptor.get_type().as_ptr() as usize,
            owner,
            definition,
        };
        let place = only_word(words(&probe)?, value.as_ptr() as usize);
        let found = layout
            .offset(&descriptor)
            .map(|(_, offset)| offset / size_of::<usize>());
        Ok((place.is_some() && found == place).then_some(layout))
    }

    /// The address of the type whose objects have the member, and where in bytes they have it; `None` unless
    /// `descriptor` stands for a reference.
    pub fn offset(&self, descriptor: &Bound<'_, PyAny>) -> Option<(usize, usize)> {
        if descriptor.get_type().as_ptr() as usize != self.descriptor_type {
            return None;
        }
        let lies = descriptor.as_ptr().cast::<usize>();
        // SAFETY: attached; the type is that of the descriptor that `known` has read, and a definition is
        // alive as long as the type whose descriptor refers to it (`PyDescr_NewMember` in
        // Objects/descrobject.c).
        unsafe {
            let definition = *lies.add(self.definition) as *const ffi::PyMemberDef;
            let (code, flags) = ((*definition).type_code, (*definition).flags);
            let is_reference = matches!(code, Self::OBJECT | Self::OBJECT_EX);
            let offset = usize::try_from((*definition).offset).ok()?;
            (is_reference && flags & Self::RELATIVE_OFFSET == 0)
                .then(|| (*lies.add(self.owner), offset))
        }
    }
}

/// Where in an object's memory the references lie that its `tp_traverse` visits.
///
/// Learnt from an object that has all of them, each to something else: so nothing is taken from a header,
/// and an interpreter that lays its objects out otherwise is found out.
#[derive(Clone, Copy)]
pub struct Fields {
    /// In words from the object's beginning, in the order of the visits.
    words: [u8; Self::MOST],
    count: u8,
}

impl Fields {
    /// No object here has more.
    const MOST: usize = 16;

    /// `None` unless the object refers to so many things, each from one word of its memory.
    ///
    /// # Errors
    /// If its type's `__basicsize__` or `__itemsize__` is no number.
    fn learn(object: &Bound<'_, PyAny>, count: usize) -> PyResult<Option<Self>> {
        let ty = object.get_type();
        let size = |name| ty.getattr(name)?.extract::<usize>();
        let variable = match object.cast_exact::<PyTuple>() {
            Ok(tuple) => tuple.len() * size("__itemsize__")?,
            Err(_) => 0,
        };
        let words = (size("__basicsize__")? + variable) / size_of::<usize>();
        let mut fields = Self {
            words: [0; Self::MOST],
            count: 0,
        };
        let visited = visited(object);
        // SAFETY: the object, which is alive, is at least as large as its type says.
        let memory: &[*mut ffi::PyObject] =
            unsafe { slice::from_raw_parts(object.as_ptr().cast(), words) };
        if visited.len() != count || count > Self::MOST {
            return Ok(None);
        }
        for target in visited {
            let mut places = (0u8..).zip(memory).filter(|(_, word)| **word == target);
            let (Some((place, _)), None) = (places.next(), places.next()) else {
                return Ok(None);
            };
            fields.words[usize::from(fields.count)] = place;
            fields.count += 1;
        }
        Ok(Some(fields))
    }

    /// What an object refers to, null for what it has not got, each alive as long as it stays there.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, the object is alive and of the very type that the
    /// fields are of, and nothing changes it meanwhile.
    #[inline(always)]
    pub unsafe fn of(
        &self,
        object: *mut ffi::PyObject,
    ) -> impl Iterator<Item = *mut ffi::PyObject> {
        let words = self.words.iter().take(self.count.into());
        // SAFETY: by this function's contract; each is a word of the object, as `learn` has seen.
        words.map(move |&word| unsafe { *object.cast::<*mut ffi::PyObject>().add(word.into()) })
    }
}

/// Where in its memory a cell has what it holds.
#[derive(Clone, Copy)]
pub struct CellLayout {
    /// In words from its beginning.
    word: u8,
}

impl CellLayout {
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        let cell = py.import("types")?.getattr("CellType")?;
        let cell = cell.call1((PyList::empty(py),))?;
        let fields = Fields::learn(&cell, 1)?;
        Ok(fields.map(|fields| Self {
            word: fields.words[0],
        }))
    }

    /// What a cell holds, as the only item; null if that is nothing. It is alive as long as it stays there.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, and `cell` is a cell, alive and unchanged while the slice is
    /// in use.
    #[inline]
    pub unsafe fn items<'a>(&self, cell: *mut ffi::PyObject) -> &'a [*mut ffi::PyObject] {
        // SAFETY: by this function's contract; this is a word of the cell, as `learn` has seen.
        unsafe { slice::from_ref(&*cell.cast::<*mut ffi::PyObject>().add(self.word.into())) }
    }
}

/// The references of functions, which lie in the first words of each.
#[derive(Clone, Copy)]
pub struct FunctionLayout {
    fields: Fields,
    /// A bit for each word that is a reference.
    visited: u32,
}

impl FunctionLayout {
    /// A function has at least so many words.
    pub const WORDS: usize = 16;

    /// From 3.14 on no function has all of its fields at once: either its annotations or what makes them.
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        // The fields that `func_traverse` (Objects/funcobject.c) visits.
        let count = match py.version_info() {
            version if version < (3, 12) => 12,
            version if version < (3, 14) => 13,
            _ => return Ok(None),
        };
        let make = c"(lambda value: lambda first=(), *, second=(): value)(())";
        let function = py.eval(make, None, None)?;
        function.setattr("__qualname__", "a name of its own")?;
        function.setattr("__doc__", "a text of its own")?;
        function.setattr("__annotations__", PyDict::new(py))?;
        function.setattr("attribute", 0)?;
        if py.version_info() >= (3, 12) {
            function.setattr("__type_params__", PyTuple::new(py, [0])?)?;
        }
        let size: usize = function.get_type().getattr("__basicsize__")?.extract()?;
        let Some(fields) = Fields::learn(&function, count)? else {
            return Ok(None);
        };
        let words = &fields.words[..count];
        let near = |&word: &u8| usize::from(word) < Self::WORDS;
        let known = size >= Self::WORDS * size_of::<usize>() && words.iter().all(near);
        let visited = words.iter().fold(0, |visited, word| visited | 1 << word);
        Ok(known.then_some(Self { fields, visited }))
    }

    /// What a function refers to: see [`Fields::of`].
    ///
    /// # Safety
    /// The caller is attached to the interpreter, the object is a function, alive, and nothing changes it
    /// meanwhile.
    pub unsafe fn referents(
        &self,
        function: *mut ffi::PyObject,
    ) -> impl Iterator<Item = *mut ffi::PyObject> {
        // SAFETY: by this function's contract.
        unsafe { self.fields.of(function) }
    }

    /// The first words of a function, and by a bit for each which of its references are others than those of
    /// `one`, the words of another function. Whether it has a reference at all is not said.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, the object is a function, alive while the words are in use,
    /// and nothing changes it meanwhile.
    #[inline(always)]
    pub unsafe fn beside<'a>(
        &self,
        function: *mut ffi::PyObject,
        one: &[*mut ffi::PyObject; Self::WORDS],
    ) -> (&'a [*mut ffi::PyObject; Self::WORDS], u32) {
        // SAFETY: by this function's contract; a function has so many words, as `known` has seen.
        let words = unsafe { &*function.cast::<[*mut ffi::PyObject; Self::WORDS]>() };
        // All of them, as there is nothing to foresee wrongly then.
        let differ = (0..Self::WORDS).fold(0, |differ, word| {
            differ | u32::from(words[word] != one[word]) << word
        });
        (words, differ & self.visited)
    }
}

/// What the `tp_traverse` of an object's type visits, in its order.
pub fn visited(object: &Bound<'_, PyAny>) -> Vec<*mut ffi::PyObject> {
    let mut visited = Vec::new();
    // SAFETY: attached; the slot is cast to the type that CPython documents, and the object is alive.
    unsafe {
        let slot = ffi::PyType_GetSlot(ffi::Py_TYPE(object.as_ptr()), ffi::Py_tp_traverse);
        if let Some(traverse) = mem::transmute::<*mut c_void, Option<ffi::traverseproc>>(slot) {
            for_each_referent(object.as_ptr(), traverse, &mut |target| {
                visited.push(target)
            });
        }
    }
    visited
}

/// Where the items of a tuple begin in its memory.
#[derive(Clone, Copy)]
pub struct TupleLayout {
    /// In words from its beginning.
    first: u8,
}

impl TupleLayout {
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        let items = (py.None(), py.get_type::<PyType>(), py.get_type::<PyList>());
        let probe = items.into_pyobject(py)?;
        let Some(fields) = Fields::learn(probe.as_any(), 3)? else {
            return Ok(None);
        };
        let mut words = [fields.words[0], fields.words[1], fields.words[2]];
        words.sort_unstable();
        let [first, second, third] = words;
        // SAFETY: attached; these are words of the tuple.
        let holds = |at: u8, item: *mut ffi::PyObject| unsafe {
            *probe.as_ptr().cast::<*mut ffi::PyObject>().add(at.into()) == item
        };
        let known = second == first + 1
            && third == first + 2
            && holds(first, py.None().as_ptr())
            && holds(third, py.get_type::<PyList>().as_ptr());
        Ok(known.then_some(Self { first }))
    }

    /// The items of a tuple, each alive as long as the tuple is; null for one not put in yet.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, and `tuple` is a tuple, alive while the slice is in
    /// use.
    #[inline]
    pub unsafe fn items<'a>(&self, tuple: *mut ffi::PyObject) -> &'a [*mut ffi::PyObject] {
        // SAFETY: by this function's contract; the items begin there, as `known` has seen.
        unsafe {
            let size = usize::try_from(ffi::Py_SIZE(tuple)).unwrap_or(0);
            let first = tuple.cast::<*mut ffi::PyObject>().add(self.first.into());
            slice::from_raw_parts(first, size)
        }
    }
}
