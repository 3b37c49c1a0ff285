//! Numba: arrays on the GPU, of `numba.cuda` and of the package `numba-cuda`.
//!
//! Numba's classes are written in Python. All that is read of them is what their objects have in their own
//! dictionaries (cudadrv/driver.py and cudadrv/devicearray.py of either package).
//!
//! An array has a pointer. A pointer with a share in an allocation refers to the allocation weakly, and gives its share
//! back in a callback of `weakref.finalize`: in a collection, before finalizers. The allocation goes with the last share.
//! Then the memory waits in a queue of Numba's, and the driver knows it still.

use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use super::address::Addresses;
use super::dtype::DtypeNames;
use super::framework::{Framework, Imported, Unread};
use super::modules::{class, imported, part};
use super::proposal::{Proposal, extents};
use crate::cpython::{Instances, attribute, int_value, text_of};

/// Numba's classes, and how their objects are read.
pub struct Numba {
    array: Py<PyType>,
    /// The pointers that own memory, or look into memory of another object's.
    pointer: Py<PyType>,
    /// The pointers with a share in memory.
    shares: Py<PyType>,
    instances: Rc<Instances>,
    addresses: Addresses,
    dtypes: Option<DtypeNames>,
}

impl Imported for Numba {
    fn module(py: Python<'_>) -> &Bound<'_, PyString> {
        intern!(py, "numba.cuda.cudadrv.devicearray")
    }

    fn new(arrays: &Bound<'_, PyDict>, instances: &Rc<Instances>) -> Result<Self, Unread> {
        let py = arrays.py();
        // With `NUMBA_ENABLE_CUDASIM`, the simulator stands in its place: its arrays are NumPy's.
        if text_of(&part(arrays, "__name__")?).is_some_and(|name| name.contains(".simulator.")) {
            return Err(Unread::Never);
        }
        let driver = imported(intern!(py, "numba.cuda.cudadrv.driver")).ok_or(Unread::NotYet)?;
        let numpy = imported(intern!(py, "numpy"));
        Ok(Self {
            array: class(arrays, "DeviceNDArrayBase")?.unbind(),
            pointer: class(&driver, "MemoryPointer")?.unbind(),
            shares: class(&driver, "OwnedPointer")?.unbind(),
            instances: Rc::clone(instances),
            addresses: Addresses::new(py),
            dtypes: numpy.and_then(|numpy| DtypeNames::new(&numpy).ok()),
        })
    }
}

impl Framework for Numba {
    unsafe fn knows(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; walks the type's own `tp_mro`.
        unsafe { ffi::PyType_IsSubtype(ty, self.array.as_ptr().cast()) != 0 }
    }

    fn is_tracked(&self) -> bool {
        true
    }

    fn memory(&self, array: &Bound<'_, PyAny>) -> Vec<Proposal> {
        self.allocation(array).into_iter().collect()
    }

    /// An array's pointer, the allocation that it has a share in, and what lent the memory to Numba. `None` for a
    /// pointer that came as a number: nobody knows when the memory goes.
    fn way_to_lender<'py>(&self, array: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
        let pointer = self.part(array, "gpu_data")?;
        let mut way = vec![pointer.clone()];
        if is_kind(&pointer, &self.shares) {
            way.extend(self.shared(&pointer));
        } else if let Some(owner) = self.part(&pointer, "_owner") {
            way.push(owner);
        } else if int_value(&self.part(&pointer, "is_managed")?) != Some(1) {
            return None;
        }
        Some(way)
    }
}

impl Numba {
    /// What memory an array has: the whole allocation, or what is left to read of one that was just given back.
    fn allocation(&self, array: &Bound<'_, PyAny>) -> Option<Proposal> {
        let pointer = self.part(array, "gpu_data")?;
        let allocation = match is_kind(&pointer, &self.shares) {
            true => self.shared(&pointer),
            false => Some(pointer.clone()).filter(|it| is_kind(it, &self.pointer)),
        };
        let (address, bytes, device) = match &allocation {
            Some(allocation) => (
                self.part(allocation, "device_pointer")?,
                self.part(allocation, "size")?,
                self.device(allocation),
            ),
            None => (
                self.part(&pointer, "device_ctypes_pointer")?,
                self.part(array, "alloc_size")?,
                None,
            ),
        };
        let address = self.addresses.read(&address)?;
        let bytes = u64::try_from(int_value(&bytes)?).ok()?;
        if bytes == 0 {
            return None;
        }
        // The driver knows the number.
        let device = device.unwrap_or_else(|| "cuda".to_owned());
        let mut proposal = Proposal::new(address, bytes, device);
        proposal.buffer.dtype = self.part(array, "dtype").and_then(|dtype| {
            let dtypes = self.dtypes.as_ref()?;
            dtypes.name(&dtype)
        });
        proposal.buffer.shape = self.part(array, "shape").and_then(|shape| extents(&shape));
        Some(proposal)
    }

    /// The allocation that a pointer has a share in; `None` if it was given back.
    fn shared<'py>(&self, pointer: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let proxy = self.part(pointer, "_mem")?;
        behind(&proxy).filter(|it| is_kind(it, &self.pointer))
    }

    /// The device of an allocation, of which it knows the context by a weak proxy.
    fn device(&self, allocation: &Bound<'_, PyAny>) -> Option<String> {
        let context = self.part(allocation, "context")?;
        let context = behind(&context).unwrap_or(context);
        let number = self.part(&self.part(&context, "device")?, "id")?;
        Some(format!("cuda:{}", u32::try_from(int_value(&number)?).ok()?))
    }

    /// What an object has of its own; `None` also for Python's None.
    fn part<'py>(&self, object: &Bound<'py, PyAny>, name: &str) -> Option<Bound<'py, PyAny>> {
        attribute(&self.instances, object, name).filter(|value| !value.is_none())
    }
}

fn is_kind(object: &Bound<'_, PyAny>, class: &Py<PyType>) -> bool {
    // SAFETY: attached, and the object is alive; walks its type's own `tp_mro`.
    unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(object.as_ptr()), class.as_ptr().cast()) != 0 }
}

/// What a weak proxy stands for, if that is alive; `None` for what is no proxy.
fn behind<'py>(proxy: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let mut object = std::ptr::null_mut();
    // SAFETY: attached; a proxy is a kind of weak reference (`PyWeakref_Check`). On success this is a new reference,
    // else null, with an exception set for an object of another type.
    unsafe {
        if ffi::PyWeakref_Check(proxy.as_ptr()) == 0 {
            return None;
        }
        ffi::compat::PyWeakref_GetRef(proxy.as_ptr(), &mut object);
        Bound::from_owned_ptr_or_opt(proxy.py(), object)
    }
}
