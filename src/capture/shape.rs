//! Whether groups of objects are so alike that all that is said of one is true of the other.

use std::ffi::c_int;
use std::hash::{BuildHasher, Hash, Hasher};

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::Snapshot;
use super::places::function_code;
use crate::cpython::fields::visited;
use crate::cpython::frames::variable_names;
use crate::cpython::instances::instance_dict;
use crate::cpython::{Builtins, Descriptor, Form, Layouts, ObjectKind, int_value, text_of};

/// Groups of more objects have no shape, and lists with more items.
const FEW: usize = 256;
/// Of so many, the place of one is found by going through all.
const GONE_THROUGH: usize = 16;

/// A hash of some objects' types, code, and references among each other, each reference with what it takes its name
/// from: the place of an attribute or an item, or the key. So the references of two groups with equal shapes
/// have equal names. `None` where that cannot be told so quickly.
///
/// Addresses stand for types, and for what functions and methods refer to outside of the group. As memory is used again,
/// shapes compare while no class has died; code is also told by its place and its names, and a name by its text.
///
/// # Safety
/// The caller is attached to the interpreter, and the objects with these numbers are alive.
pub unsafe fn shape_of(
    builtins: &Builtins,
    layouts: &Layouts,
    snapshot: &Snapshot,
    objects: &[u32],
) -> Option<u64> {
    if objects.len() > FEW {
        return None;
    }
    let addresses: Vec<usize> = objects
        .iter()
        .map(|&object| snapshot.objects[object as usize].address)
        .collect();
    let by_address = match addresses.len() {
        ..=GONE_THROUGH => FxHashMap::default(),
        _ => addresses
            .iter()
            .enumerate()
            .map(|(at, &it)| (it, at))
            .collect(),
    };
    let mut shape = Shape {
        builtins,
        layouts,
        addresses: &addresses,
        by_address,
        hasher: FxBuildHasher.build_hasher(),
    };
    for (&object, &address) in objects.iter().zip(&addresses) {
        let facts = &snapshot.objects[object as usize];
        facts.type_address.hash(&mut shape.hasher);
        if facts.verdict == 0 {
            // SAFETY: by this function's contract.
            unsafe { shape.add(address as *mut ffi::PyObject, facts.kind)? };
        } else if !snapshot.targets(object as usize).is_empty() {
            return None;
        }
    }
    Some(shape.hasher.finish())
}

/// # Safety
/// The caller is attached to the interpreter, and the object is alive.
unsafe fn is_tuple_or_dict(object: *mut ffi::PyObject) -> bool {
    // SAFETY: by this function's contract.
    unsafe { ffi::PyTuple_CheckExact(object) != 0 || ffi::PyDict_CheckExact(object) != 0 }
}

struct Shape<'a, H> {
    builtins: &'a Builtins,
    layouts: &'a Layouts,
    /// Of all objects of the group.
    addresses: &'a [usize],
    /// Where each of them is, if they are many.
    by_address: FxHashMap<usize, usize>,
    hasher: H,
}

impl<H: Hasher> Shape<'_, H> {
    /// Adds an object's references.
    ///
    /// # Safety
    /// As for [`shape_of`].
    unsafe fn add(&mut self, object: *mut ffi::PyObject, kind: ObjectKind) -> Option<()> {
        // SAFETY: by this function's contract; nothing that runs here changes the object.
        unsafe {
            match kind {
                ObjectKind::Instance | ObjectKind::List | ObjectKind::Tuple | ObjectKind::Cell => {
                    let form = Form::of(ffi::Py_TYPE(object), kind, self.builtins);
                    let beside_dict = || match form {
                        Form::Instance => self.layouts.attributes_beside_dict(object),
                        _ => None,
                    };
                    let items = self.layouts.items(object, form).or_else(beside_dict);
                    let Some(items) = items else {
                        return self.add_with_dict(object);
                    };
                    if items.len() > FEW {
                        return None;
                    }
                    items.len().hash(&mut self.hasher);
                    for &item in items {
                        // An attribute that is not there, and one that is of no interest, have no name.
                        self.place(item).hash(&mut self.hasher);
                    }
                }
                // Its name, its code and the function of a method are among what is outside, and said of it; tuples
                // and dicts of annotations and defaults are not. Which part of it a reference is shows in those
                // around it, but for the dicts.
                ObjectKind::Function | ObjectKind::Method => {
                    let object = Bound::from_borrowed_ptr(Python::assume_attached(), object);
                    if self.has_attributes(&object) {
                        return None;
                    }
                    for referent in visited(&object) {
                        match self.place(referent) {
                            Some(_) if ffi::PyDict_Check(referent) != 0 => return None,
                            Some(place) => {
                                (place, ffi::Py_TYPE(referent) as usize).hash(&mut self.hasher);
                            }
                            None if is_tuple_or_dict(referent) => {
                                (ffi::Py_TYPE(referent) as usize).hash(&mut self.hasher);
                            }
                            None => self.add_outside(referent, kind)?,
                        }
                    }
                }
                // One of a derived class may have attributes.
                ObjectKind::Dict if ffi::PyDict_CheckExact(object) != 0 => self.add_dict(object)?,
                _ => return None,
            }
        }
        Some(())
    }

    /// Adds an instance that refers to its dict, and to nothing else in the group.
    ///
    /// # Safety
    /// As for [`shape_of`].
    unsafe fn add_with_dict(&mut self, object: *mut ffi::PyObject) -> Option<()> {
        // SAFETY: by this function's contract.
        let object = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), object) };
        let dict = instance_dict(&self.builtins.instances, &object)?;
        for referent in visited(&object) {
            match self.place(referent) {
                Some(place) if referent as usize == dict => place.hash(&mut self.hasher),
                Some(_) => return None,
                None => {}
            }
        }
        Some(())
    }

    /// # Safety
    /// As for [`shape_of`], and the object is a dict.
    unsafe fn add_dict(&mut self, dict: *mut ffi::PyObject) -> Option<()> {
        let (mut at, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: by this function's contract; nothing changes the dict meanwhile.
        unsafe {
            if ffi::PyDict_Size(dict) > FEW as ffi::Py_ssize_t {
                return None;
            }
            while ffi::PyDict_Next(dict, &mut at, &mut key, &mut value) != c_int::from(false) {
                if ffi::PyUnicode_CheckExact(key) == 0 {
                    return None;
                }
                // Of a string, and known since it became a key.
                (ffi::PyObject_Hash(key), self.place(value)).hash(&mut self.hasher);
            }
        }
        Some(())
    }

    /// Adds what a function or a method refers to outside of the group: of a method only the function, as of another
    /// callable it takes longer to tell whether it is the same.
    ///
    /// # Safety
    /// As for [`shape_of`].
    unsafe fn add_outside(&mut self, object: *mut ffi::PyObject, of: ObjectKind) -> Option<()> {
        (object as usize).hash(&mut self.hasher);
        // SAFETY: by this function's contract.
        unsafe {
            let kind = self.builtins.kind(ffi::Py_TYPE(object));
            let object = Bound::from_borrowed_ptr(Python::assume_attached(), object);
            let code = match kind {
                ObjectKind::Code => Some(object),
                ObjectKind::Function if self.has_attributes(&object) => return None,
                ObjectKind::Function => {
                    let name = self.builtins.function_qualname.get(&object);
                    name.and_then(|name| text_of(&name)).hash(&mut self.hasher);
                    function_code(self.builtins, &object)
                }
                _ if of == ObjectKind::Method => return None,
                _ => {
                    text_of(&object).hash(&mut self.hasher);
                    None
                }
            };
            if let Some(code) = code {
                let part = |part: &Descriptor| part.get(&code);
                let text = |it: &Descriptor| part(it).and_then(|it| text_of(&it));
                let number = |it: &Descriptor| part(it).and_then(|it| int_value(&it));
                let line = number(&self.builtins.code_first_line);
                let arguments = (
                    number(&self.builtins.code_argcount),
                    number(&self.builtins.code_kwonlyargcount),
                );
                arguments.hash(&mut self.hasher);
                let place = (text(&self.builtins.code_filename), line);
                let name = text(&self.builtins.code_name);
                (place, name, variable_names(self.builtins, &code)).hash(&mut self.hasher);
            }
        }
        Some(())
    }

    /// True for a function with attributes, such as `__wrapped__`, by which it may be called something else.
    fn has_attributes(&self, function: &Bound<'_, PyAny>) -> bool {
        let dict = instance_dict(&self.builtins.instances, function);
        // SAFETY: attached; the dict is alive, as the function refers to it.
        dict.is_some_and(|dict| unsafe { ffi::PyDict_Size(dict as *mut ffi::PyObject) > 0 })
    }

    /// Which object of the group it is, if it is one.
    fn place(&self, object: *mut ffi::PyObject) -> Option<usize> {
        let wanted = object as usize;
        match self.by_address.is_empty() {
            true => self.addresses.iter().position(|&it| it == wanted),
            false => self.by_address.get(&wanted).copied(),
        }
    }
}
