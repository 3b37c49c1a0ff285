//! NumPy: host memory, for `devices="any"`.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyType};

use super::dtype::DtypeNames;
use super::framework::{ArrayReference, Framework, Imported, Unread};
use super::modules::{class, imported};
use super::proposal::Proposal;
use crate::cpython::{Descriptor, Instances, attribute, bytes_behind, new_text, text_of};

/// NumPy's array type, and how its arrays are read.
///
/// Not through `__array_struct__` or `__array_interface__`: of an array with fields these call functions of NumPy's
/// that are written in Python (`arraydescr_protocol_descr_get` in numpy/_core/src/multiarray/descriptor.c).
pub struct Numpy {
    array: Py<PyType>,
    scalar: Py<PyType>,
    base: Descriptor,
    dtypes: DtypeNames,
    stand_in: Option<Py<PyType>>,
    instances: Rc<Instances>,
}

/// The modules that may have the class of what a view by `as_strided` or `sliding_window_view` has for its base: an
/// object written in Python, with the viewed array in `base` (`DummyArray`).
const OF_STRIDE_TRICKS: [&str; 2] = ["numpy.lib._stride_tricks_impl", "numpy.lib.stride_tricks"];

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

impl Imported for Numpy {
    fn module(py: Python<'_>) -> &Bound<'_, PyString> {
        intern!(py, "numpy")
    }

    fn new(numpy: &Bound<'_, PyDict>, instances: &Rc<Instances>) -> Result<Self, Unread> {
        let array = class(numpy, "ndarray")?;
        if !lies_as_known(&array)? {
            return Err(Unread::Never);
        }
        Ok(Self {
            base: Descriptor::of(&array, "base")?,
            dtypes: DtypeNames::new(numpy)?,
            scalar: class(numpy, "generic")?.unbind(),
            stand_in: OF_STRIDE_TRICKS.iter().find_map(|name| {
                let module = imported(&new_text(numpy.py(), name)?)?;
                Some(class(&module, "DummyArray").ok()?.unbind())
            }),
            instances: Rc::clone(instances),
            array: array.unbind(),
        })
    }
}

impl Framework for Numpy {
    unsafe fn knows(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; walks the type's own `tp_mro`.
        unsafe { ffi::PyType_IsSubtype(ty, self.array.as_ptr().cast()) != 0 }
    }

    fn uses_devices(&self) -> bool {
        false
    }

    /// Single numbers.
    unsafe fn is_small(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: as above.
        unsafe { ffi::PyType_IsSubtype(ty, self.scalar.as_ptr().cast()) != 0 }
    }

    fn is_on_host(&self, _array: &Bound<'_, PyAny>) -> bool {
        true
    }

    fn memory(&self, array: &Bound<'_, PyAny>) -> Vec<Proposal> {
        self.whole(array).into_iter().collect()
    }

    /// The array that an array is a view of, and so on, up to the object that the memory belongs to: an array or what
    /// lent its memory to one.
    fn way_to_lender<'py>(&self, array: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
        let mut way = Vec::new();
        let mut last = array.clone();
        while let Some(base) = self.base_of(&last) {
            way.push(base.clone());
            last = base;
        }
        way.extend(bytes_behind(&last).into_iter().flatten());
        Some(way)
    }

    /// Of what is no array only bytes are: a mapping of a file, a capsule, most memoryviews only stand for memory that may
    /// go on without them.
    fn is_owner(&self, lender: &Bound<'_, PyAny>) -> bool {
        memory_of_bytes(lender).is_some()
    }

    fn extent(&self, array: &Bound<'_, PyAny>) -> Option<(Proposal, bool)> {
        self.span(array)
    }

    fn base(&self, array: &Bound<'_, PyAny>) -> Option<*mut ffi::PyObject> {
        // SAFETY: attached, and this is an array, which lies in memory so, as `lies_as_known` has seen.
        let base = unsafe { (*array.as_ptr().cast::<ArrayFields>()).base };
        (!base.is_null()).then_some(base)
    }

    fn for_each_untraversed(
        &self,
        array: &Bound<'_, PyAny>,
        f: &mut dyn FnMut(ArrayReference, *mut ffi::PyObject),
    ) {
        self.for_each_referent(array, f);
    }
}

impl Numpy {
    /// What an array is a view of, or what stands in for it between the two.
    fn base_of<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        if self.is_array(object) {
            return self.base.get(object);
        }
        let stand_in = self.stand_in.as_ref()?;
        let is_one = object.get_type().is(stand_in.bind(object.py()));
        is_one
            .then(|| attribute(&self.instances, object, "base"))?
            .filter(|base| self.is_array(base))
    }

    /// What memory an array has; for a view, the memory of what it looks into.
    fn whole(&self, array: &Bound<'_, PyAny>) -> Option<Proposal> {
        let way = self.way_to_lender(array)?;
        let (pointer, bytes) = match way.last().and_then(memory_of_bytes) {
            Some(memory) => memory,
            None => {
                let owner = way.iter().rfind(|it| self.is_array(it)).unwrap_or(array);
                let (pointer, bytes, _, _) = self.read(owner)?;
                (pointer, bytes)
            }
        };
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
    fn span(&self, array: &Bound<'_, PyAny>) -> Option<(Proposal, bool)> {
        let (pointer, _, dtype, shape) = self.read(array)?;
        // SAFETY: attached, and this is an array, which lies in memory so, as `lies_as_known` has seen; it has as many strides
        // as extents, and a dtype.
        let (strides, is_own, item_size) = unsafe {
            let fields = &*array.as_ptr().cast::<ArrayFields>();
            let strides = (0..shape.len()).map(|i| *fields.strides.add(i) as i64);
            let dtype = Bound::from_borrowed_ptr_or_opt(array.py(), fields.dtype)?;
            let strides: Vec<i64> = strides.collect();
            (
                strides,
                fields.base.is_null(),
                self.dtypes.item_size(&dtype)?,
            )
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

    /// Calls `f` with the objects that an array refers to: what it is a view of, or the objects in an array of objects.
    ///
    /// The collector does not know of them (`PyArray_Type` has no `tp_traverse`).
    fn for_each_referent(
        &self,
        array: &Bound<'_, PyAny>,
        f: &mut dyn FnMut(ArrayReference, *mut ffi::PyObject),
    ) {
        // SAFETY: attached, and this is an array, which lies in memory so, as `lies_as_known` has seen.
        let fields = unsafe { &*array.as_ptr().cast::<ArrayFields>() };
        if !fields.base.is_null() {
            return f(ArrayReference::Base, fields.base);
        }
        // SAFETY: as above; it has a dtype.
        let dtype = unsafe { Bound::from_borrowed_ptr_or_opt(array.py(), fields.dtype) };
        let Some(dtype) = dtype.filter(|_| !fields.data.is_null()) else {
            return;
        };
        let kind = self.dtypes.kind(&dtype).and_then(|kind| text_of(&kind));
        let is_structured = match kind.as_deref() {
            Some("O") => false,
            Some("V") => true,
            _ => return,
        };
        let places = self.dtypes.objects(&dtype);
        let (Ok(dimensions), Some(size), false) = (
            usize::try_from(fields.dimensions),
            self.dtypes.item_size(&dtype),
            places.is_empty(),
        ) else {
            return;
        };
        // SAFETY: as above; it has as many extents as dimensions.
        let extents = (0..dimensions).map(|i| unsafe { *fields.extents.add(i) });
        let count = extents.fold(1, |count: usize, extent| {
            count.saturating_mul(usize::try_from(extent).unwrap_or(0))
        });
        for index in 0..count {
            for place in &places {
                // SAFETY: as above. An array that is no view has its elements in one piece of memory, each with pointers to
                // objects at these places that it holds, or null in place of None.
                let object = unsafe {
                    let element = fields.data.byte_add(index * size as usize + place);
                    element.cast::<*mut ffi::PyObject>().read_unaligned()
                };
                if !object.is_null() {
                    let reference = match dimensions {
                        1 if !is_structured => ArrayReference::Index(index),
                        _ => ArrayReference::Element,
                    };
                    f(reference, object);
                }
            }
        }
    }

    fn is_array(&self, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: attached, and the object and its type are alive.
        unsafe { self.knows(ffi::Py_TYPE(object.as_ptr())) }
    }

    /// Address, bytes, element type and shape of one array.
    fn read(&self, array: &Bound<'_, PyAny>) -> Option<(u64, u64, String, Vec<u64>)> {
        // SAFETY: attached, and this is an array, which lies in memory so, as `lies_as_known` has seen; it has as many
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
        let item_size = self.dtypes.item_size(&dtype)?;
        // A view made by hand may claim any shape.
        let bytes = shape
            .iter()
            .fold(item_size, |bytes, extent| bytes.saturating_mul(*extent));
        let dtype = self.dtypes.name(&dtype)?;
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

/// Address and bytes of the memory of bytes or of a bytearray.
fn memory_of_bytes(lender: &Bound<'_, PyAny>) -> Option<(u64, u64)> {
    if let Ok(bytes) = lender.cast_exact::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return Some((bytes.as_ptr() as u64, bytes.len() as u64));
    }
    let bytes = lender.cast_exact::<PyByteArray>().ok()?;
    Some((bytes.data() as u64, bytes.len() as u64))
}
