//! What the element types of NumPy are called, which other frameworks use as well.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::modules::class;
use crate::cpython::{Descriptor, int_value, text_of};

/// How dtypes are read. Their own `__str__` is written in Python.
pub struct DtypeNames {
    kind: Descriptor,
    item_size: Descriptor,
    scalar: Descriptor,
    class_name: Descriptor,
    class_module: Descriptor,
}

impl DtypeNames {
    /// Reads the module `numpy`.
    ///
    /// # Errors
    /// If the import of NumPy is still under way.
    pub fn new(numpy: &Bound<'_, PyDict>) -> PyResult<Self> {
        let dtype = class(numpy, "dtype")?;
        let metaclass = numpy.py().get_type::<PyType>();
        Ok(Self {
            class_name: Descriptor::of(&metaclass, "__name__")?,
            class_module: Descriptor::of(&metaclass, "__module__")?,
            kind: Descriptor::of(&dtype, "kind")?,
            item_size: Descriptor::of(&dtype, "itemsize")?,
            scalar: Descriptor::of(&dtype, "type")?,
        })
    }

    /// The letter for the kind of a dtype, such as `f`.
    pub fn kind<'py>(&self, dtype: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        self.kind.get(dtype)
    }

    /// The bytes of an element.
    pub fn item_size(&self, dtype: &Bound<'_, PyAny>) -> Option<u64> {
        u64::try_from(int_value(&self.item_size.get(dtype)?)?).ok()
    }

    /// The name of a dtype, such as `float32`.
    pub fn name(&self, dtype: &Bound<'_, PyAny>) -> Option<String> {
        let item_size = self.item_size(dtype)?;
        let bits = item_size * 8;
        Some(match text_of(&self.kind.get(dtype)?)?.as_str() {
            "b" => "bool".to_owned(),
            "i" => format!("int{bits}"),
            "u" => format!("uint{bits}"),
            "f" => format!("float{bits}"),
            "c" => format!("complex{bits}"),
            "O" => "object".to_owned(),
            other => self
                .added(dtype)
                .unwrap_or_else(|| format!("{other}{item_size}")),
        })
    }

    /// The name of a type that the package ml_dtypes adds, such as `bfloat16`.
    fn added(&self, dtype: &Bound<'_, PyAny>) -> Option<String> {
        let scalar = self.scalar.get(dtype)?;
        let is_added = text_of(&self.class_module.get(&scalar)?)? == "ml_dtypes";
        is_added.then(|| text_of(&self.class_name.get(&scalar)?))?
    }
}
