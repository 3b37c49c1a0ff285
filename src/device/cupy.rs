//! CuPy: arrays on the GPU.

use std::rc::Rc;

use pyo3::exceptions::PyLookupError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use super::attribute::in_c;
use super::dtype::DtypeNames;
use super::framework::{Framework, Imported, Unread};
use super::modules::{class, imported};
use super::proposal::{Proposal, extents};
use crate::cpython::{Descriptor, Instances, int_value};

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

impl Imported for Cupy {
    fn module(py: Python<'_>) -> &Bound<'_, PyString> {
        intern!(py, "cupy")
    }

    fn new(cupy: &Bound<'_, PyDict>, _: &Rc<Instances>) -> Result<Self, Unread> {
        let py = cupy.py();
        let array = class(cupy, "ndarray")?;
        let memory = imported(intern!(py, "cupy.cuda.memory"))
            .ok_or_else(|| PyLookupError::new_err("CuPy is still being imported"))?;
        let pointer_class = class(&memory, "MemoryPointer")?;
        let memory_class = class(&memory, "BaseMemory")?;
        let owned = ["Memory", "MemoryAsync", "ManagedMemory", "PooledMemory"];
        let unowned = class(&memory, "UnownedMemory").and_then(|class| {
            let owner = in_c(&class, "_owner")?;
            Ok((class.unbind(), owner))
        });
        Ok(Self {
            data: in_c(&array, "data")?,
            memory: in_c(&pointer_class, "mem")?,
            pointer: in_c(&memory_class, "ptr")?,
            size: in_c(&memory_class, "size")?,
            device: in_c(&memory_class, "device_id")?,
            owned: owned
                .iter()
                .filter_map(|name| Some(class(&memory, name).ok()?.unbind()))
                .collect(),
            unowned: unowned.ok(),
            dtype: in_c(&array, "dtype").ok(),
            dtypes: imported(intern!(py, "numpy")).and_then(|numpy| DtypeNames::new(&numpy).ok()),
            shape: in_c(&array, "shape").ok(),
            array: array.unbind(),
        })
    }
}

impl Framework for Cupy {
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
        let shape = self.shape.as_ref().and_then(|shape| shape.get(array));
        proposal.buffer.shape = shape.and_then(|shape| extents(&shape));
        proposal.buffer.dtype = self
            .dtype
            .as_ref()
            .and_then(|dtype| self.dtypes.as_ref()?.name(&dtype.get(array)?));
        Some(proposal)
    }
}
