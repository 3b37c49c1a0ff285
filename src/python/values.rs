//! How values and fields of the models look in Python.

use std::convert::Infallible;

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyString, PyTuple};

use crate::model::heap::{Categories, Category};
use crate::model::report::{Extents, Location};
use crate::model::retention::RootKind;

/// The methods of a class, with a getter of each field that Python sees.
///
/// `get_all` would show all fields, and a field of a model, which is plain Rust without Python, cannot be marked
/// one by one: `pyclass` does not see through `cfg_attr`.
macro_rules! class {
    (impl $class:ident { get $($(#[$doc:meta])* $field:ident: $type:ty),+; $($methods:tt)* }) => {
        #[pymethods]
        impl $class {
            $($(#[$doc])*
            #[getter]
            fn $field(&self) -> $type {
                Clone::clone(&self.$field)
            })+
            $($methods)*

            fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
                Err($crate::python::values::no_attribute(slf, name))
            }
        }
    };
}
pub(super) use class;

/// What an object is in a few words, of classes whose fields `get_all` shows.
macro_rules! shown {
    ($($class:ident($it:ident) => $text:expr;)+) => {$(
        #[pymethods]
        impl $class {
            fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
                Err($crate::python::values::no_attribute(slf, name))
            }

            fn __repr__(&self) -> String {
                let $it = self;
                $text
            }
        }
    )+};
}
pub(super) use shown;

/// An `AttributeError` that says which attribute may have been meant.
pub(super) fn no_attribute<T>(object: &Bound<'_, T>, name: &str) -> PyErr {
    let py = object.py();
    py.import("cyclescope._suggest")
        .and_then(|words| words.call_method1("no_attribute", (object.as_any().get_type(), name)))
        .map_or_else(|error| error, PyErr::from_value)
}

/// What is a string in Python.
macro_rules! text {
    ($($class:ident($it:ident) => $text:expr;)+) => {$(
        impl<'py> IntoPyObject<'py> for $class {
            type Target = PyString;
            type Output = Bound<'py, PyString>;
            type Error = Infallible;

            fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
                let $it = self;
                Ok(PyString::new(py, $text))
            }
        }
    )+};
}

text! {
    Location(it) => &it.to_string();
    Category(it) => it.words();
    RootKind(it) => it.name();
}

impl<'py> IntoPyObject<'py> for Extents {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        PyTuple::new(py, self.0)
    }
}

impl<'py> IntoPyObject<'py> for Categories {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        self.0.into_py_dict(py)
    }
}
