//! Attributes that are read without running code that is written in Python.

use std::fmt;

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::native_function::NativeFunction;
use crate::cpython::{Descriptor, Instances, attribute, items, text_of};

/// An attribute that all objects of a class have, and their subclasses'.
pub enum Attribute {
    /// C code defines it: a slot, or an attribute of a class that is implemented in C.
    InC(Descriptor),
    /// A property whose getter is in C.
    Property(NativeFunction),
    /// Each object has it in its own dictionary.
    OwnOfEach(String),
}

/// Why an attribute of a class cannot be read.
#[derive(Debug)]
pub enum NoAttribute {
    /// The class has something else of this name, of the type that is named.
    RunsCode(String),
    /// Neither has the class the attribute, nor can its objects have any of their own.
    Missing,
}

impl Attribute {
    /// The attribute `name` of the objects of a class.
    ///
    /// # Errors
    /// If it is none that can be read as data.
    pub fn of(
        instances: &Instances,
        class: &Bound<'_, PyType>,
        name: &str,
    ) -> Result<Self, NoAttribute> {
        match definitions(class, name).into_iter().next() {
            Some(definition) if is_written_in_c(&definition) => Descriptor::new(&definition)
                .map(Self::InC)
                .ok_or(NoAttribute::Missing),
            Some(definition) => {
                if let Ok(getter) = NativeFunction::of_property(&definition) {
                    return Ok(Self::Property(getter));
                }
                let kind = definition.get_type();
                let kind = kind.qualname().map(|name| text_of(&name));
                Err(NoAttribute::RunsCode(
                    kind.ok().flatten().unwrap_or_default(),
                ))
            }
            None if instances.have_dict(class) => Ok(Self::OwnOfEach(name.to_owned())),
            None => Err(NoAttribute::Missing),
        }
    }

    /// What an object has there; `None` for nothing and for Python's None.
    pub fn get<'py>(
        &self,
        instances: &Instances,
        object: &Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyAny>> {
        match self {
            Self::InC(descriptor) => descriptor.get(object),
            Self::Property(getter) => getter.of(object),
            Self::OwnOfEach(name) => {
                attribute(instances, object, name).filter(|value| !value.is_none())
            }
        }
    }
}

impl fmt::Display for NoAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunsCode(kind) => write!(
                f,
                "it is a {kind}, and to read it could run Python code. Name an attribute that C code \
                 defines, a slot, or one that each object has in its own dictionary"
            ),
            Self::Missing => f.write_str(
                "the class has no such attribute, and its objects have no dictionary for their own",
            ),
        }
    }
}

/// The descriptor of an attribute that C code defines, of a class or the first of its bases that has one.
pub fn in_c(class: &Bound<'_, PyType>, name: &str) -> PyResult<Descriptor> {
    let found = definitions(class, name).into_iter().find(is_written_in_c);
    found.and_then(|it| Descriptor::new(&it)).ok_or_else(|| {
        PyAttributeError::new_err(format!(
            "cyclescope: {class} has no attribute {name} implemented in C"
        ))
    })
}

/// What a class and its bases have of this name, in the order in which they are asked.
///
/// Their dictionaries are read, so no metaclass has a say.
fn definitions<'py>(class: &Bound<'py, PyType>, name: &str) -> Vec<Bound<'py, PyAny>> {
    let metaclass = class.py().get_type::<PyType>();
    let read = |name| Descriptor::of(&metaclass, name).ok();
    let (Some(bases_of), Some(dict_of)) = (read("__mro__"), read("__dict__")) else {
        return Vec::new();
    };
    let bases = bases_of.get(class.as_any());
    let bases = bases.iter().flat_map(items);
    bases
        .filter_map(|base| dict_of.get(&base)?.get_item(name).ok())
        .collect()
}

/// True for the descriptors of attributes that C code defines.
fn is_written_in_c(definition: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached; compares addresses of types, which are static.
    unsafe {
        let ty = ffi::Py_TYPE(definition.as_ptr());
        ty == &raw mut ffi::PyGetSetDescr_Type || ty == &raw mut ffi::PyMemberDescr_Type
    }
}
