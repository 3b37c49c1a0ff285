//! Reading parts of objects through C code only.

use std::ffi::c_void;
use std::sync::OnceLock;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use super::fields::{MemberLayout, only_word, words};
use super::traverse::for_each_referent;

/// Text longer than this is cut when it is taken from the program.
pub const TEXT_LIMIT: usize = 200;

/// A descriptor implemented in C, taken from the dictionary of the type that defines it.
///
/// Where it is known at which place of the object it stands for, that is read. Else its `tp_descr_get`
/// is called. Either way the object's own class, its metaclass and `__getattribute__` have no say.
pub struct Descriptor {
    descriptor: Py<PyAny>,
    get: ffi::descrgetfunc,
    place: Option<MemberPlace>,
}

/// A reference that every object of a type has at the same place.
#[derive(Clone, Copy)]
pub struct MemberPlace {
    /// The type's address. The type is alive as long as its descriptor is.
    owner: usize,
    /// In bytes from the object's beginning.
    offset: usize,
}

impl MemberPlace {
    /// The address of what the object refers to there; `None` if that is nothing, or the object is not of
    /// the type.
    pub fn read(self, object: &Bound<'_, PyAny>) -> Option<usize> {
        // SAFETY: attached, and the object and the type are alive. Each object of the type has the
        // reference there, as the type's own descriptor says.
        let word = unsafe {
            let ty = ffi::Py_TYPE(object.as_ptr());
            if ffi::PyType_IsSubtype(ty, self.owner as *mut ffi::PyTypeObject) == 0 {
                return None;
            }
            *object.as_ptr().cast::<usize>().byte_add(self.offset)
        };
        (word != 0).then_some(word)
    }
}

impl Descriptor {
    /// The descriptor `name` of `ty` itself (not of a base).
    ///
    /// # Errors
    /// If there is none, or it has no getter.
    pub fn of(ty: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        let descriptor = ty.getattr("__dict__")?.get_item(name)?;
        Self::new(&descriptor).ok_or_else(|| {
            PyTypeError::new_err(format!("cyclescope: {ty} has no descriptor named {name}"))
        })
    }

    /// [`Descriptor::of`], read in place from now on: where `example` has what the descriptor reads of it,
    /// if one word alone is that. Only for a type that has no subclasses.
    ///
    /// # Errors
    /// As [`Descriptor::of`].
    pub fn learnt(
        ty: &Bound<'_, PyType>,
        name: &str,
        example: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let mut descriptor = Self::of(ty, name)?;
        if let Some(value) = descriptor.get(example) {
            let word = only_word(words(example)?, value.as_ptr() as usize);
            descriptor.place = word.map(|word| MemberPlace {
                owner: ty.as_ptr() as usize,
                offset: word * size_of::<usize>(),
            });
        }
        Ok(descriptor)
    }

    /// `descriptor` itself, if it has a getter.
    pub fn new(descriptor: &Bound<'_, PyAny>) -> Option<Self> {
        // SAFETY: attached (there is a `Bound`); the slot has the type that CPython documents.
        let get = unsafe {
            std::mem::transmute::<*mut c_void, Option<ffi::descrgetfunc>>(ffi::PyType_GetSlot(
                ffi::Py_TYPE(descriptor.as_ptr()),
                ffi::Py_tp_descr_get,
            ))
        }?;
        Some(Self {
            descriptor: descriptor.clone().unbind(),
            get,
            place: None,
        })
    }

    /// Reads in place from now on, if this stands for a reference.
    pub fn in_place(mut self, py: Python<'_>, members: Option<MemberLayout>) -> Self {
        if self.place.is_none() {
            self.place = members.and_then(|it| member_place(it, self.descriptor.bind(py)));
        }
        self
    }

    /// What the descriptor reads from `object`; `None` if it is unset or `object` has no such part.
    pub fn get<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let py = object.py();
        // SAFETY: attached. What lies at the descriptor's place is alive, as the object refers to it. A
        // descriptor implemented in C checks by the type pointer that `object` is its own
        // (`descr_check` in Objects/descrobject.c) and returns a new reference, or null with an
        // exception set.
        unsafe {
            if let Some(place) = self.place {
                let value = place.read(object)? as *mut ffi::PyObject;
                return Some(Bound::from_borrowed_ptr(py, value)).filter(|value| !value.is_none());
            }
            let value = (self.get)(
                self.descriptor.as_ptr(),
                object.as_ptr(),
                ffi::Py_TYPE(object.as_ptr()).cast(),
            );
            let value = Bound::from_owned_ptr_or_opt(py, value);
            if value.is_none() {
                ffi::PyErr_Clear();
            }
            value.filter(|value| !value.is_none())
        }
    }
}

/// Where the objects of a type have what a descriptor stands for, if that is a reference.
pub fn member_place(layout: MemberLayout, descriptor: &Bound<'_, PyAny>) -> Option<MemberPlace> {
    let (owner, offset) = layout.offset(descriptor)?;
    Some(MemberPlace { owner, offset })
}

/// The function that tells how many items an object of a built-in type has.
///
/// # Errors
/// If there is none.
pub fn length_of(ty: &Bound<'_, PyType>) -> PyResult<ffi::lenfunc> {
    // SAFETY: attached; the slot has the type that CPython documents.
    let length = unsafe {
        std::mem::transmute::<*mut c_void, Option<ffi::lenfunc>>(ffi::PyType_GetSlot(
            ty.as_type_ptr(),
            ffi::Py_sq_length,
        ))
    };
    length.ok_or_else(|| PyTypeError::new_err(format!("cyclescope: {ty} has no length")))
}

/// What an object refers to, by its type's `tp_traverse`, in order.
pub fn referents(object: &Bound<'_, PyAny>) -> Vec<usize> {
    let mut found = Vec::new();
    // SAFETY: attached, and the object and its type are alive; the slot has the type that CPython
    // documents, and the visitor only takes addresses.
    unsafe {
        let ty = ffi::Py_TYPE(object.as_ptr());
        let traverse = std::mem::transmute::<*mut c_void, Option<ffi::traverseproc>>(
            ffi::PyType_GetSlot(ty, ffi::Py_tp_traverse),
        );
        if let Some(traverse) = traverse {
            for_each_referent(object.as_ptr(), traverse, &mut |target| {
                found.push(target as usize);
            });
        }
    }
    found
}

/// Calls `f` with each key and value of a dict or an object of a subclass, until it returns false.
///
/// Walks the dict's own table (`PyDict_Next`): no hash, no comparison, no overridden method.
/// `f` must not change the dict.
pub fn dict_items<'py>(
    dict: &Bound<'py, PyAny>,
    f: &mut dyn FnMut(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> bool,
) {
    let py = dict.py();
    let mut position = 0;
    let mut key = std::ptr::null_mut();
    let mut value = std::ptr::null_mut();
    // SAFETY: attached; `PyDict_Next` returns 0 for anything that is not a dict, and lends the
    // key and the value, which are given references of their own for the time of the call.
    unsafe {
        while ffi::PyDict_Next(dict.as_ptr(), &mut position, &mut key, &mut value) != 0 {
            let key = Bound::from_borrowed_ptr(py, key);
            let value = Bound::from_borrowed_ptr(py, value);
            if !f(&key, &value) {
                break;
            }
        }
    }
}

/// The text of an exact or derived `str`, cut at [`TEXT_LIMIT`] characters; `None` for other types.
///
/// Lone surrogates, which have no UTF-8, become U+FFFD.
pub fn text_of(object: &Bound<'_, PyAny>) -> Option<String> {
    // SAFETY: attached; both functions check nothing but flags and read the string's own storage.
    unsafe {
        let text = object.as_ptr();
        if ffi::PyUnicode_Check(text) == 0 {
            return None;
        }
        let length = usize::try_from(ffi::PyUnicode_GetLength(text)).ok()?;
        let mut result: String = (0..length.min(TEXT_LIMIT))
            .map(|i| {
                char::from_u32(ffi::PyUnicode_ReadChar(text, i as ffi::Py_ssize_t))
                    .unwrap_or(char::REPLACEMENT_CHARACTER)
            })
            .collect();
        if length > TEXT_LIMIT {
            result.push('…');
        }
        Some(result)
    }
}

/// A program's text on one line: control characters, and those that turn the direction of writing,
/// become escapes.
pub fn printable(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
        match c {
            '\n' => result.push_str("\\n"),
            '\r' => result.push_str("\\r"),
            '\t' => result.push_str("\\t"),
            c if c.is_control() && u32::from(c) < 0x100 => {
                result.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c if turns => result.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => result.push(c),
        }
    }
    result
}

/// The value of an exact `int` or `bool` that fits; `None` for anything else.
pub fn int_value(object: &Bound<'_, PyAny>) -> Option<i64> {
    let exact = object.is_exact_instance_of::<pyo3::types::PyInt>()
        || object.is_exact_instance_of::<pyo3::types::PyBool>();
    if !exact {
        return None;
    }
    object.extract().ok()
}

/// The values of a tuple of strings, such as `co_varnames`.
pub fn texts_of(tuple: &Bound<'_, PyAny>) -> Vec<String> {
    items(tuple)
        .iter()
        .map(|item| text_of(item).unwrap_or_default())
        .collect()
}

/// The items of a tuple or a list, also of a subclass; empty for anything else.
pub fn items<'py>(sequence: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let (py, object) = (sequence.py(), sequence.as_ptr());
    // SAFETY: attached; the checks are by type flag. The items are lent, and given references of their
    // own before any other code runs.
    unsafe {
        if ffi::PyTuple_Check(object) != 0 {
            (0..ffi::PyTuple_Size(object))
                .map(|i| Bound::from_borrowed_ptr(py, ffi::PyTuple_GetItem(object, i)))
                .collect()
        } else if ffi::PyList_Check(object) != 0 {
            (0..ffi::PyList_Size(object))
                .map(|i| Bound::from_borrowed_ptr(py, ffi::PyList_GetItem(object, i)))
                .collect()
        } else {
            Vec::new()
        }
    }
}

/// Calls `f` with each key and value of a class's own dictionary, until it returns false.
///
/// A class made at run time refers to the dict itself, first of all dicts (`type_traverse` in
/// Objects/typeobject.c). Of any other, `type.__dict__` is a read-only proxy, made for the occasion; the dict
/// behind it is the one object that the proxy refers to. Asking the proxy for items would hash the keys.
pub fn class_items<'py>(
    builtins: &crate::cpython::Builtins,
    class: &Bound<'py, PyAny>,
    f: &mut dyn FnMut(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> bool,
) {
    // SAFETY: attached; the check is by type flag, and a class is a live type.
    let is_made_at_run_time = unsafe {
        if ffi::PyType_Check(class.as_ptr()) == 0 {
            return;
        }
        ffi::PyType_GetFlags(class.as_ptr().cast()) & ffi::Py_TPFLAGS_HEAPTYPE != 0
    };
    let holder = if is_made_at_run_time {
        class.clone()
    } else {
        match builtins.type_dict.get(class) {
            Some(proxy) => proxy,
            None => return,
        }
    };
    let dict = referents(&holder)
        .into_iter()
        // SAFETY: attached; the holder refers to the target and so keeps it alive.
        .map(|target| unsafe { Bound::from_borrowed_ptr(class.py(), target as *mut ffi::PyObject) })
        .find(|target| target.is_exact_instance_of::<PyDict>());
    if let Some(dict) = dict {
        dict_items(&dict, f);
    }
}

/// The first object of a kind among those that `object` refers to.
///
/// That is the code of a function and of a suspended object, for which `__code__` and `gi_code` would tell
/// the program's audit hooks (`func_traverse` in Objects/funcobject.c, `gen_traverse` in
/// Objects/genobject.c).
pub fn first_of_kind<'py>(
    builtins: &crate::cpython::Builtins,
    object: &Bound<'py, PyAny>,
    kind: crate::cpython::ObjectKind,
) -> Option<Bound<'py, PyAny>> {
    let found = referents(object).into_iter().find(|&target| {
        // SAFETY: attached; the object refers to the target and so keeps it alive.
        unsafe { builtins.kind(ffi::Py_TYPE(target as *mut ffi::PyObject)) == kind }
    });
    // SAFETY: as above.
    found.map(|target| unsafe {
        Bound::from_borrowed_ptr(object.py(), target as *mut ffi::PyObject)
    })
}

/// The items of a set or deque, also of a subclass: the last that it refers to, in their order
/// (`set_traverse` in Objects/setobject.c, `deque_traverse` in Modules/_collectionsmodule.c; the traversal
/// of a subclass ends with that of its base, `subtype_traverse` in Objects/typeobject.c).
pub fn last_referents(object: &Bound<'_, PyAny>, count: usize) -> Vec<usize> {
    let mut referents = referents(object);
    referents.split_off(referents.len().saturating_sub(count))
}

/// The value of a key that is an exact `str`, found without hashing or comparing other keys.
pub fn find_item<'py>(
    name: &str,
    walk: impl FnOnce(&mut dyn FnMut(&Bound<'py, PyAny>, &Bound<'py, PyAny>) -> bool),
) -> Option<Bound<'py, PyAny>> {
    let mut found = None;
    walk(&mut |key, value| {
        let hit = key.is_exact_instance_of::<PyString>() && text_of(key).as_deref() == Some(name);
        if hit {
            found = Some(value.clone());
        }
        !hit
    });
    found
}

/// An imported module of this name, found among all of them without hashing or comparing keys; for
/// names that come from the program. Slower than [`imported`], which is for names of our own.
pub fn module_named<'py>(py: Python<'py>, name: &str) -> Option<Bound<'py, PyAny>> {
    find_item(name, |f| {
        if let Some(modules) = modules(py) {
            dict_items(&modules, f);
        }
    })
}

/// The interpreter's own dict of modules.
fn modules(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: attached; the dict is borrowed from the interpreter.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }
}

/// How many modules the program has imported, or begun to.
pub fn module_count(_py: Python<'_>) -> usize {
    // SAFETY: attached; the dict is borrowed from the interpreter.
    let count = unsafe { ffi::PyDict_Size(ffi::PyImport_GetModuleDict()) };
    usize::try_from(count).unwrap_or(0)
}

/// A new string; `None` where there is no memory for it (`PyString::new` would panic).
pub fn new_text<'py>(py: Python<'py>, text: &str) -> Option<Bound<'py, PyString>> {
    // SAFETY: attached; CPython copies the text, and what it makes of it is a string or null.
    unsafe {
        let length = isize::try_from(text.len()).ok()?;
        let string = ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), length);
        if string.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(Bound::from_owned_ptr(py, string).cast_into_unchecked())
    }
}

/// The string that a cell is for, made at the first call; see the macro `intern`.
pub fn interned<'py>(
    py: Python<'py>,
    cell: &'static OnceLock<Py<PyString>>,
    text: &str,
) -> &'py Bound<'py, PyString> {
    // There is one empty string, for which no memory is asked (`PyUnicode_New` in Objects/unicodeobject.c).
    static EMPTY: OnceLock<Py<PyString>> = OnceLock::new();
    if let Some(known) = cell.get() {
        return known.bind(py);
    }
    match new_text(py, text) {
        Some(made) => cell.get_or_init(|| made.unbind()).bind(py),
        None => EMPTY
            .get_or_init(|| PyString::new(py, "").unbind())
            .bind(py),
    }
}

/// The names in an imported module; `None` if it has not been imported.
///
/// Goes through the interpreter's own dict of modules and the module's own dict: an attribute asked
/// of a module may call its `__getattr__`, and one of a lazy module imports it.
pub fn imported<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyDict>> {
    let modules = modules(name.py())?;
    let module = modules.cast::<PyDict>().ok()?.get_item(name).ok()??;
    Some(module.cast::<PyModule>().ok()?.dict())
}
