//! Frameworks of which it is enough to say in which attributes their objects have what.

use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::address::Addresses;
use super::attribute::{Attribute, NoAttribute};
use super::dtype::DtypeNames;
use super::framework::Framework;
use super::modules::imported;
use super::proposal::{Proposal, extents};
use crate::cpython::{Instances, int_value, text_of};

/// In which attributes objects have their memory.
#[derive(Clone, Copy)]
pub struct Description<'a> {
    /// The kind of device, such as `cuda`.
    pub kind: &'a str,
    pub pointer: &'a str,
    pub bytes: &'a str,
    /// The number of the device; without it, the driver knows.
    pub number: Option<&'a str>,
    pub dtype: Option<&'a str>,
    pub shape: Option<&'a str>,
    /// What lent the memory to the object, or nothing.
    pub owner: Option<&'a str>,
    /// What the memory goes back to, or nothing if it is not the object's own.
    pub resource: Option<&'a str>,
}

/// A class of a library that is described here.
#[derive(Clone, Copy)]
pub struct Known {
    pub module: &'static str,
    pub class: &'static str,
    pub description: Description<'static>,
}

/// A class whose objects have their memory as described.
pub struct Described {
    class: Py<PyType>,
    kind: String,
    pointer: Attribute,
    bytes: Attribute,
    number: Option<Attribute>,
    dtype: Option<Attribute>,
    shape: Option<Attribute>,
    owner: Option<Attribute>,
    resource: Option<Attribute>,
    instances: Rc<Instances>,
    addresses: Addresses,
    dtypes: Option<DtypeNames>,
}

impl Described {
    /// A class that is as described.
    ///
    /// # Errors
    /// The name of an attribute that cannot be read without running Python code, and why.
    pub fn new(
        class: &Bound<'_, PyType>,
        description: &Description<'_>,
        instances: &Rc<Instances>,
    ) -> Result<Self, (String, NoAttribute)> {
        let py = class.py();
        let required = |name: &str| {
            Attribute::of(instances, class, name).map_err(|error| (name.to_owned(), error))
        };
        let optional = |name: Option<&str>| name.map(required).transpose();
        let numpy = imported(intern!(py, "numpy"));
        Ok(Self {
            pointer: required(description.pointer)?,
            bytes: required(description.bytes)?,
            number: optional(description.number)?,
            dtype: optional(description.dtype)?,
            shape: optional(description.shape)?,
            owner: optional(description.owner)?,
            resource: optional(description.resource)?,
            kind: description.kind.to_owned(),
            class: class.clone().unbind(),
            instances: Rc::clone(instances),
            addresses: Addresses::new(py),
            dtypes: numpy.and_then(|numpy| DtypeNames::new(&numpy).ok()),
        })
    }
}

impl Framework for Described {
    /// True for the class and those that derive from it.
    unsafe fn knows(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; walks the type's own `tp_mro`.
        unsafe { ffi::PyType_IsSubtype(ty, self.class.as_ptr().cast()) != 0 }
    }

    fn uses_devices(&self) -> bool {
        self.kind != "cpu"
    }

    fn is_tracked(&self) -> bool {
        // SAFETY: the interpreter is attached wherever a framework is asked, and the class is alive.
        let flags = unsafe { ffi::PyType_GetFlags(self.class.as_ptr().cast()) };
        flags & ffi::Py_TPFLAGS_HAVE_GC != 0
    }

    fn memory(&self, object: &Bound<'_, PyAny>) -> Vec<Proposal> {
        self.read(object).into_iter().collect()
    }

    fn way_to_lender<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
        let part = |part: &Attribute| part.get(&self.instances, object);
        if let Some(owner) = self.owner.as_ref().and_then(part) {
            return Some(vec![owner]);
        }
        match &self.resource {
            Some(resource) => part(resource).map(|_| Vec::new()),
            None => Some(Vec::new()),
        }
    }
}

impl Described {
    fn read(&self, object: &Bound<'_, PyAny>) -> Option<Proposal> {
        let part = |part: &Attribute| part.get(&self.instances, object);
        let address = self.addresses.read(&part(&self.pointer)?)?;
        let bytes = u64::try_from(int_value(&part(&self.bytes)?)?).ok()?;
        if bytes == 0 {
            return None;
        }
        let number = self.number.as_ref().and_then(part);
        let number = number.and_then(|number| u32::try_from(int_value(&number)?).ok());
        let device = match number {
            Some(number) => format!("{}:{number}", self.kind),
            None => self.kind.clone(),
        };
        let mut proposal = Proposal::new(address, bytes, device);
        let dtype = self.dtype.as_ref().and_then(part);
        proposal.buffer.dtype = dtype.and_then(|dtype| {
            let of_numpy = || self.dtypes.as_ref()?.name(&dtype);
            text_of(&dtype).or_else(of_numpy)
        });
        let shape = self.shape.as_ref().and_then(part);
        proposal.buffer.shape = shape.and_then(|shape| extents(&shape));
        Some(proposal)
    }
}
