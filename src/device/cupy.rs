//! CuPy: arrays on the GPU.

use pyo3::exceptions::{PyAttributeError, PyLookupError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use super::dtype::DtypeNames;
use super::framework::{Framework, Unread};
use super::modules::{class, imported};
use super::proposal::Proposal;
use crate::cpython::{Descriptor, int_value};

/// CuPy's array type and the C descriptors through which its arrays are read: an array has a
/// `data` pointer into a `mem`ory block, which has an address, a size and a device.
pub struct Cupy {
    array: Py<PyType>,
    data: Descriptor,
    memory: Descriptor,
    pointer: Descriptor,
    size: Descriptor,
    device: Descriptor,
    /// The classes of memory that CuPy takes from CUDA itself.
    owned: Vec<Py<PyType>>,
    /// The class of memory that something else lent, and how to read what.
    unowned: Option<(Py<PyType>, Descriptor)>,
    dtype: Option<Descriptor>,
    dtypes: Option<DtypeNames>,
    shape: Option<Descriptor>,
}

impl Framework for Cupy {
    fn module(py: Python<'_>) -> &Bound<'_, PyString> {
        intern!(py, "cupy")
    }

    fn new(cupy: &Bound<'_, PyDict>) -> Result<Self, Unread> {
        let py = cupy.py();
        let array = class(cupy, "ndarray")?;
        let memory = imported(intern!(py, "cupy.cuda.memory"))
            .ok_or_else(|| PyLookupError::new_err("CuPy is not all there yet"))?;
        let pointer_class = class(&memory, "MemoryPointer")?;
        let memory_class = class(&memory, "BaseMemory")?;
        let owned = ["Memory", "MemoryAsync", "ManagedMemory", "PooledMemory"];
        let unowned = class(&memory, "UnownedMemory").and_then(|class| {
            let owner = inherited(&class, "_owner")?;
            Ok((class.unbind(), owner))
        });
        Ok(Self {
            data: inherited(&array, "data")?,
            memory: inherited(&pointer_class, "mem")?,
            pointer: inherited(&memory_class, "ptr")?,
            size: inherited(&memory_class, "size")?,
            device: inherited(&memory_class, "device_id")?,
            owned: owned
                .iter()
                .filter_map(|name| Some(class(&memory, name).ok()?.unbind()))
                .collect(),
            unowned: unowned.ok(),
            dtype: inherited(&array, "dtype").ok(),
            dtypes: imported(intern!(py, "numpy")).and_then(|numpy| DtypeNames::new(&numpy).ok()),
            shape: inherited(&array, "shape").ok(),
            array: array.unbind(),
        })
    }

    unsafe fn knows(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; walks the type's own `tp_mro`.
        unsafe { ffi::PyType_IsSubtype(ty, self.array.as_ptr().cast()) != 0 }
    }

    fn memory(&self, array: &Bound<'_, PyAny>) -> Vec<Proposal> {
        self.block(array).into_iter().collect()
    }

    /// An array's pointer, the block of memory that this leads into, and if that is not CuPy's own what lent it to
    /// CuPy. `None` for memory of other origin, such as DLPack: nobody here knows when it goes.
    fn way_to_lender<'py>(&self, array: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
        let py = array.py();
        let pointer = self.data.get(array)?;
        let memory = self.memory.get(&pointer)?;
        let class = memory.get_type();
        if let Some((unowned, owner)) = &self.unowned
            && class.is(unowned.bind(py))
        {
            let owner = owner.get(&memory)?;
            return Some(vec![pointer, memory, owner]);
        }
        let is_owned = self.owned.iter().any(|owned| class.is(owned.bind(py)));
        is_owned.then(|| vec![pointer, memory])
    }
}

impl Cupy {
    /// What memory an array has: the whole block that it is in.
    fn block(&self, array: &Bound<'_, PyAny>) -> Option<Proposal> {
        let memory = self.memory.get(&self.data.get(array)?)?;
        let number = |part: &Descriptor| u64::try_from(int_value(&part.get(&memory)?)?).ok();
        let (pointer, bytes) = (number(&self.pointer)?, number(&self.size)?);
        if pointer == 0 || bytes == 0 {
            return None;
        }
        let device = format!("cuda:{}", number(&self.device)?);
        let mut proposal = Proposal::new(pointer, bytes, device);
        proposal.buffer.shape =
            self.shape
                .as_ref()
                .and_then(|shape| shape.get(array))
                .map(|shape| {
                    crate::cpython::items(&shape)
                        .iter()
                        .filter_map(|extent| u64::try_from(int_value(extent)?).ok())
                        .collect()
                });
        proposal.buffer.dtype = self
            .dtype
            .as_ref()
            .and_then(|dtype| self.dtypes.as_ref()?.name(&dtype.get(array)?));
        Some(proposal)
    }
}

/// The descriptor `name` of a class or the first base that has it, if it is implemented in C.
fn inherited(class: &Bound<'_, PyType>, name: &str) -> PyResult<Descriptor> {
    for base in class.mro() {
        let base = base.cast_into::<PyType>()?;
        if let Ok(descriptor) = base.getattr("__dict__")?.get_item(name)
            && is_written_in_c(&descriptor)
            && let Some(descriptor) = Descriptor::new(&descriptor)
        {
            return Ok(descriptor);
        }
    }
    Err(PyAttributeError::new_err(format!(
        "cyclescope: {class} has no attribute {name} implemented in C"
    )))
}

/// True for the descriptors of attributes that C code defines.
fn is_written_in_c(descriptor: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached; compares addresses of types, which are static.
    unsafe {
        let ty = ffi::Py_TYPE(descriptor.as_ptr());
        ty == &raw mut ffi::PyGetSetDescr_Type || ty == &raw mut ffi::PyMemberDescr_Type
    }
}
