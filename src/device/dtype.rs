//! What the element types of NumPy are called, which other frameworks use as well.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::modules::class;
use crate::cpython::read::referents;
use crate::cpython::{Descriptor, dict_items, int_value, items, text_of};

/// How dtypes are read. Their own `__str__` is written in Python.
pub struct DtypeNames {
    kind: Descriptor,
    item_size: Descriptor,
    scalar: Descriptor,
    class_name: Descriptor,
    class_module: Descriptor,
    has_object: Descriptor,
    fields: Descriptor,
    subarray: Descriptor,
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
            has_object: Descriptor::of(&dtype, "hasobject")?,
            fields: Descriptor::of(&dtype, "fields")?,
            subarray: Descriptor::of(&dtype, "subdtype")?,
        })
    }

    /// The letter for the kind of a dtype, such as `f`.
    pub fn kind<'py>(&self, dtype: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        self.kind.get(dtype)
    }

    /// Where in an element there are references to objects, in bytes: those of its fields, and of the arrays that these are.
    pub fn objects(&self, dtype: &Bound<'_, PyAny>) -> Vec<usize> {
        let mut places = self.places(dtype).unwrap_or_default();
        // A field with a title has two names.
        places.sort_unstable();
        places.dedup();
        places
    }

    fn places(&self, dtype: &Bound<'_, PyAny>) -> Option<Vec<usize>> {
        if text_of(&self.kind.get(dtype)?)? == "O" {
            return Some(vec![0]);
        }
        if int_value(&self.has_object.get(dtype)?) != Some(1) {
            return None;
        }
        let number = |value: &Bound<'_, PyAny>| usize::try_from(int_value(value)?).ok();
        let mut found = Vec::new();
        let mut add = |dtype: &Bound<'_, PyAny>, starts: &mut dyn Iterator<Item = usize>| {
            let places = self.places(dtype).unwrap_or_default();
            found.extend(starts.flat_map(|start| places.iter().map(move |place| start + place)));
        };
        let subarray = self.subarray.get(dtype);
        if let [of_part, shape] = subarray
            .iter()
            .flat_map(items)
            .collect::<Vec<_>>()
            .as_slice()
        {
            let count = items(shape).iter().map(number).product::<Option<usize>>()?;
            let size = usize::try_from(self.item_size(of_part)?).ok()?;
            add(of_part, &mut (0..count).map(|part| part * size));
        }
        let Some(fields) = self.fields.get(dtype) else {
            return Some(found);
        };
        // A view of the dictionary, which is read-only.
        let fields = referents(&fields).into_iter().next()?;
        // SAFETY: attached; the view refers to its dictionary and so keeps it alive.
        let fields = unsafe { Bound::from_borrowed_ptr(dtype.py(), fields as *mut ffi::PyObject) };
        dict_items(&fields, &mut |_, field| {
            if let [of_field, start, ..] = items(field).as_slice()
                && let Some(start) = number(start)
            {
                add(of_field, &mut std::iter::once(start));
            }
            true
        });
        Some(found)
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
