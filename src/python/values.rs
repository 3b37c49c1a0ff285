//! How values of the models look in Python.

use std::convert::Infallible;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::model::heap::{Categories, Category};
use crate::model::report::{Extents, Location};

/// `file:line`.
impl<'py> IntoPyObject<'py> for Location {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(PyString::new(py, &self.to_string()))
    }
}

impl<'py> IntoPyObject<'py> for Extents {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        PyTuple::new(py, self.0)
    }
}

impl<'py> IntoPyObject<'py> for Category {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(PyString::new(py, self.words()))
    }
}

impl<'py> IntoPyObject<'py> for Categories {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        let categories = PyDict::new(py);
        for (category, bytes) in self.0 {
            categories.set_item(category, bytes)?;
        }
        Ok(categories)
    }
}
