//! Descriptors implemented in C, through which the parts of objects are read.

use std::ffi::c_void;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::fields::{MemberLayout, only_word, words};

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
