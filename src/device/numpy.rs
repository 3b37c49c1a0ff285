//! NumPy: host memory, for `devices="any"`.

use std::ffi::{c_char, c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyType};

use super::frameworks::Proposal;
use super::modules::class;
use crate::heap::Descriptor;

/// NumPy's array type and the descriptors through which its arrays are read.
pub struct Numpy {
    array: Py<PyType>,
    interface: Descriptor,
    base: Descriptor,
}

/// The C side of the array interface protocol (`PyArrayInterface`, numpy/ndarraytypes.h), which NumPy
/// promises not to change.
#[repr(C)]
struct ArrayInterface {
    two: c_int,
    dimensions: c_int,
    kind: c_char,
    item_size: c_int,
    flags: c_int,
    shape: *const ffi::Py_ssize_t,
    strides: *const ffi::Py_ssize_t,
    data: *const c_void,
    descr: *mut ffi::PyObject,
}

impl Numpy {
    /// Reads the module `numpy`.
    ///
    /// # Errors
    /// If the import of NumPy is still under way.
    pub fn new(numpy: &Bound<'_, PyDict>) -> PyResult<Self> {
        let array = class(numpy, "ndarray")?;
        Ok(Self {
            interface: Descriptor::of(&array, "__array_struct__")?,
            base: Descriptor::of(&array, "base")?,
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

    fn is_array(&self, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: attached, and the object and its type are alive.
        unsafe { self.is_array_type(ffi::Py_TYPE(object.as_ptr())) }
    }

    /// Address, bytes, element type and shape of one array.
    fn read(&self, array: &Bound<'_, PyAny>) -> Option<(u64, u64, String, Vec<u64>)> {
        let capsule = self.interface.get(array)?;
        // SAFETY: attached; the descriptor is NumPy's own, so the capsule holds the structure
        // that the protocol defines, alive as long as the capsule.
        unsafe {
            let interface = ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null())
                .cast::<ArrayInterface>();
            let Some(interface) = interface.as_ref().filter(|interface| interface.two == 2) else {
                ffi::PyErr_Clear();
                return None;
            };
            let dimensions = usize::try_from(interface.dimensions).ok()?;
            let shape: Vec<u64> = (0..dimensions)
                .map(|i| u64::try_from(*interface.shape.add(i)).unwrap_or(0))
                .collect();
            let item_size = u64::try_from(interface.item_size).ok()?;
            // A view made by hand may claim any shape.
            let bytes = shape
                .iter()
                .fold(item_size, |bytes, extent| bytes.saturating_mul(*extent));
            let bits = item_size * 8;
            let dtype = match interface.kind as u8 {
                b'b' => "bool".to_owned(),
                b'i' => format!("int{bits}"),
                b'u' => format!("uint{bits}"),
                b'f' => format!("float{bits}"),
                b'c' => format!("complex{bits}"),
                b'O' => "object".to_owned(),
                other => format!("{}{item_size}", other as char),
            };
            Some((interface.data as u64, bytes, dtype, shape))
        }
    }
}
