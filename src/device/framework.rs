//! What the adapter of a framework does.

use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::proposal::Proposal;
use super::storage_watch::StorageWatch;
use crate::cpython::Instances;

/// A framework whose objects hold memory: how these are known and read.
///
/// No method runs code of the program, waits, or makes an object that the collector tracks: most are called in the
/// midst of a collection. What is asked of an object is read through type pointers, C descriptors, and functions of
/// the framework that are implemented in C.
pub trait Framework {
    /// Called as each look begins, before the look has references to objects of the program.
    fn begin_look(&self, _py: Python<'_>) {}

    /// True for the types of its objects that hold memory.
    ///
    /// # Safety
    /// `ty` is a live type and the caller is attached to the interpreter.
    unsafe fn knows(&self, ty: *mut ffi::PyTypeObject) -> bool;

    /// False if all its memory is the host's.
    fn uses_devices(&self) -> bool {
        true
    }

    /// True if the collector tracks all its objects, so that each can be followed from step to step.
    fn is_tracked(&self) -> bool {
        false
    }

    /// True for the types of its objects that lend a few bytes only, which nobody asks about.
    ///
    /// # Safety
    /// As for [`Framework::knows`].
    unsafe fn is_small(&self, _ty: *mut ffi::PyTypeObject) -> bool {
        false
    }

    /// True if an object is quickly seen to be in host memory.
    fn is_on_host(&self, _object: &Bound<'_, PyAny>) -> bool {
        false
    }

    /// The memory that an object has, by the framework's word, on each of its devices. The driver confirms it
    /// afterwards.
    fn memory(&self, object: &Bound<'_, PyAny>) -> Vec<Proposal>;

    /// The part of host memory that an object shows, and whether that is all of an allocation, if it may be less than
    /// [`Framework::memory`].
    fn extent(&self, _object: &Bound<'_, PyAny>) -> Option<(Proposal, bool)> {
        None
    }

    /// What leads from an object to its lender, the object that the memory belongs to: each refers to the next, and
    /// the lender is the last. Empty where that is the object itself; `None` if nobody knows when the memory goes.
    fn way_to_lender<'py>(&self, _object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
        Some(Vec::new())
    }

    /// True if the memory of a lender that no framework knows goes with it.
    fn is_owner(&self, _lender: &Bound<'_, PyAny>) -> bool {
        true
    }

    /// The framework's own weak hold on memory of an object, given its address; without one, weak references to the lender
    /// serve.
    fn watch(&self, _object: &Bound<'_, PyAny>, _pointer: u64) -> Option<StorageWatch> {
        None
    }

    /// What an object is a view of, if the collector does not know that it refers to it.
    fn base(&self, _object: &Bound<'_, PyAny>) -> Option<*mut ffi::PyObject> {
        None
    }

    /// Calls `f` with the objects that an object refers to and its `tp_traverse` does not visit.
    fn for_each_untraversed(
        &self,
        _object: &Bound<'_, PyAny>,
        _f: &mut dyn FnMut(ArrayReference, *mut ffi::PyObject),
    ) {
    }
}

/// A framework that is there once its module is.
pub trait Imported: Framework + Sized {
    /// The module that is imported wherever the framework is used.
    fn module(py: Python<'_>) -> &Bound<'_, PyString>;

    /// Looks up, in that module, what the methods of [`Framework`] need.
    ///
    /// # Errors
    /// [`Unread::NotYet`] if the import is still under way, [`Unread::Never`] if this version cannot be read.
    fn new(module: &Bound<'_, PyDict>, instances: &Rc<Instances>) -> Result<Self, Unread>;
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
    /// What JAX keeps of an array's values in host memory.
    HostCopy,
}

/// Why a framework cannot be read.
#[derive(Debug)]
pub enum Unread {
    /// Not all of it has been imported.
    NotYet,
    /// Its version is not one that is known.
    Never,
}

impl From<PyErr> for Unread {
    fn from(_: PyErr) -> Self {
        Self::NotYet
    }
}
