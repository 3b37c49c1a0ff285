//! NumPy: host memory, for `devices="any"`.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyType};

use super::modules::class;
use super::proposal::Proposal;
use crate::cpython::{Descriptor, int_value, text_of};

/// NumPy's array type, and how its arrays are read.
///
/// Not through `__array_struct__` or `__array_interface__`: of an array with fields these call functions of NumPy's
/// that are written in Python (`arraydescr_protocol_descr_get` in numpy/_core/src/multiarray/descriptor.c).
pub struct Numpy {
    array: Py<PyType>,
    scalar: Py<PyType>,
    base: Descriptor,
    kind: Descriptor,
    item_size: Descriptor,
}

/// How an array refers to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayReference {
    /// `array.base`.
    Base,
    /// An element of an array of one dimension.
    Index(usize),
    /// An element of another array.
    Element,
}

/// The memory of an array, as extension modules are compiled to read it (`PyArrayObject_fields` in
/// numpy/ndarraytypes.h).
#[repr(C)]
struct ArrayFields {
    head: ffi::PyObject,
    data: *const c_void,
    dimensions: c_int,
    extents: *const ffi::Py_ssize_t,
    strides: *const ffi::Py_ssize_t,
    base: *mut ffi::PyObject,
    dtype: *mut ffi::PyObject,
}

impl Numpy {
    /// Reads the module `numpy`.
    ///
    /// # Errors
    /// If the import of NumPy is still under way, or its arrays do not lie in memory as known.
    pub fn new(numpy: &Bound<'_, PyDict>) -> PyResult<Self> {
        let array = class(numpy, "ndarray")?;
        let dtype = class(numpy, "dtype")?;
        if !lies_as_known(&array)? {
            return Err(PyTypeError::new_err(
                "cyclescope: NumPy's arrays do not lie in memory as known",
            ));
        }
        Ok(Self {
            base: Descriptor::of(&array, "base")?,
            kind: Descriptor::of(&dtype, "kind")?,
            item_size: Descriptor::of(&dtype, "itemsize")?,
            scalar: class(numpy, "generic")?.unbind(),
            array: array.unbind(),
        })
    }

    /// True for the types of arrays.
    ///
    /// # Safety
    /// `ty` is a live type and the caller is attached to the interpreter.
    pub unsafe fn is_array_type(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; walks the type's own `tp_mro`.
        unsafe { ffi::PyType_IsSubtype(ty, self.array.as_ptr().cast()) != 0 }
    }

    /// True for the types of single numbers, which lend their few bytes as arrays do.
    ///
    /// # Safety
    /// As for [`Numpy::is_array_type`].
    pub unsafe fn is_scalar_type(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: as above.
        unsafe { ffi::PyType_IsSubtype(ty, self.scalar.as_ptr().cast()) != 0 }
    }

    /// An array, the array that it is a view of, and so on, up to the object that the memory belongs to: an array
    /// or what lent its memory to one.
    pub fn chain<'py>(&self, array: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let mut chain = vec![array.clone()];
        while let Some(last) = chain.last().filter(|last| self.is_array(last))
            && let Some(base) = self.base.get(last)
        {
            chain.push(base);
        }
        chain
    }

    /// True if a lender's memory goes when the lender does: an array, or bytes. A mapping of a file,
    /// a memoryview, a capsule only stand for memory that may go on without them.
    pub fn is_owner(&self, lender: &Bound<'_, PyAny>) -> bool {
        self.is_array(lender)
            || lender.is_exact_instance_of::<PyBytes>()
            || lender.is_exact_instance_of::<PyByteArray>()
    }

    /// What memory an array has; for a view, the memory of the array it looks into.
    pub fn array(&self, array: &Bound<'_, PyAny>) -> Option<Proposal> {
        let mut owner = array.clone();
        while let Some(base) = self.base.get(&owner).filter(|base| self.is_array(base)) {
            owner = base;
        }
        let (pointer, bytes, _, _) = self.read(&owner)?;
        let (_, _, dtype, shape) = self.read(array)?;
        if pointer == 0 || bytes == 0 {
            return None;
        }
        let mut proposal = Proposal::new(pointer, bytes, "cpu".to_owned());
        proposal.buffer.dtype = Some(dtype);
        proposal.buffer.shape = Some(shape);
        Some(proposal)
    }

    /// The memory that an array spans, and whether it is the array's own.
    pub fn extent(&self, array: &Bound<'_, PyAny>) -> Option<(Proposal, bool)> {
        let (pointer, _, dtype, shape) = self.read(array)?;
        // SAFETY: attached, and this is an array, which lies in memory so, as `new` has seen; it has as many strides
        // as extents, and a dtype.
        let (strides, is_own, item_size) = unsafe {
            let fields = &*array.as_ptr().cast::<ArrayFields>();
            let strides = (0..shape.len()).map(|i| *fields.strides.add(i) as i64);
            let dtype = Bound::from_borrowed_ptr_or_opt(array.py(), fields.dtype)?;
            let strides: Vec<i64> = strides.collect();
            (strides, fields.base.is_null(), self.item_size(&dtype)?)
        };
        if pointer == 0 || item_size == 0 || shape.contains(&0) {
            return None;
        }
        let (mut first, mut end) = (pointer, pointer.saturating_add(item_size));
        for (extent, stride) in shape.iter().zip(strides) {
            let span = stride.unsigned_abs().saturating_mul(extent - 1);
            if stride < 0 {
                first = first.saturating_sub(span);
            } else {
                end = end.saturating_add(span);
            }
        }
        let mut proposal = Proposal::new(first, end - first, "cpu".to_owned());
        proposal.buffer.dtype = Some(dtype);
        proposal.buffer.shape = Some(shape);
        Some((proposal, is_own))
    }

    /// What a dtype of NumPy's is called. Its own `__str__` is written in Python.
    pub fn dtype_name(&self, dtype: &Bound<'_, PyAny>) -> Option<String> {
        let item_size = self.item_size(dtype)?;
        let bits = item_size * 8;
        Some(match text_of(&self.kind.get(dtype)?)?.as_str() {
            "b" => "bool".to_owned(),
            "i" => format!("int{bits}"),
            "u" => format!("uint{bits}"),
            "f" => format!("float{bits}"),
            "c" => format!("complex{bits}"),
            "O" => "object".to_owned(),
            other => format!("{other}{item_size}"),
        })
    }

    fn item_size(&self, dtype: &Bound<'_, PyAny>) -> Option<u64> {
        u64::try_from(int_value(&self.item_size.get(dtype)?)?).ok()
    }

    /// Calls `f` with the objects that an array refers to: what it is a view of, or the objects in an array of objects.
    ///
    /// The collector does not know of them (`PyArray_Type` has no `tp_traverse`).
    pub fn for_each_referent(
        &self,
        array: &Bound<'_, PyAny>,
        mut f: impl FnMut(ArrayReference, *mut ffi::PyObject),
    ) {
        // SAFETY: attached, and this is an array, which lies in memory so, as `new` has seen.
        let fields = unsafe { &*array.as_ptr().cast::<ArrayFields>() };
        if !fields.base.is_null() {
            return f(ArrayReference::Base, fields.base);
        }
        // SAFETY: as above; it has a dtype.
        let dtype = unsafe { Bound::from_borrowed_ptr_or_opt(array.py(), fields.dtype) };
        let kind = dtype.and_then(|dtype| text_of(&self.kind.get(&dtype)?));
        if kind.as_deref() != Some("O") || fields.data.is_null() {
            return;
        }
        let Ok(dimensions) = usize::try_from(fields.dimensions) else {
            return;
        };
        // SAFETY: as above; it has as many extents as dimensions. An array that is no view has its elements in one piece
        // of memory: pointers to objects that it holds, or null in place of None.
        let objects = unsafe {
            let extents = (0..dimensions).map(|i| *fields.extents.add(i));
            let count = extents.fold(1, |count: usize, extent| {
                count.saturating_mul(usize::try_from(extent).unwrap_or(0))
            });
            std::slice::from_raw_parts(fields.data.cast::<*mut ffi::PyObject>(), count)
        };
        for (index, &object) in objects.iter().enumerate() {
            if !object.is_null() {
                let reference = match dimensions {
                    1 => ArrayReference::Index(index),
                    _ => ArrayReference::Element,
                };
                f(reference, object);
            }
        }
    }

    fn is_array(&self, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: attached, and the object and its type are alive.
        unsafe { self.is_array_type(ffi::Py_TYPE(object.as_ptr())) }
    }

    /// Address, bytes, element type and shape of one array.
    fn read(&self, array: &Bound<'_, PyAny>) -> Option<(u64, u64, String, Vec<u64>)> {
        // SAFETY: attached, and this is an array, which lies in memory so, as `new` has seen; it has as many
        // extents as dimensions, and a dtype.
        let (data, shape, dtype) = unsafe {
            let fields = &*array.as_ptr().cast::<ArrayFields>();
            let dimensions = usize::try_from(fields.dimensions).ok()?;
            let shape: Vec<u64> = (0..dimensions)
                .map(|i| u64::try_from(*fields.extents.add(i)).unwrap_or(0))
                .collect();
            let dtype = Bound::from_borrowed_ptr_or_opt(array.py(), fields.dtype)?;
            (fields.data as u64, shape, dtype)
        };
        let item_size = self.item_size(&dtype)?;
        // A view made by hand may claim any shape.
        let bytes = shape
            .iter()
            .fold(item_size, |bytes, extent| bytes.saturating_mul(*extent));
        let dtype = self.dtype_name(&dtype)?;
        Some((data, bytes, dtype, shape))
    }
}

/// Compares a new array with what NumPy says of it.
fn lies_as_known(class: &Bound<'_, PyType>) -> PyResult<bool> {
    const EXTENTS: [ffi::Py_ssize_t; 2] = [3, 5];
    let array = class.call1((EXTENTS,))?;
    let size = class.getattr("__basicsize__")?.extract::<usize>()?;
    let dtype = array.getattr("dtype")?;
    if size < size_of::<ArrayFields>() {
        return Ok(false);
    }
    // SAFETY: attached; the array is as large as what is read, and where it has as many extents as it should they are
    // read.
    unsafe {
        let fields = &*array.as_ptr().cast::<ArrayFields>();
        Ok(fields.dimensions == 2
            && fields.dtype == dtype.as_ptr()
            && fields.base.is_null()
            && !fields.data.is_null()
            && std::slice::from_raw_parts(fields.extents, 2) == EXTENTS)
    }
}
