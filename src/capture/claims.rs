//! Which references of an object have a name already.

use std::collections::hash_map::Entry;

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::ReferenceName;
use crate::cpython::Descriptor;
use crate::cpython::read::printable;

/// The references of one object, named so far or not.
pub(super) struct Names<'a> {
    pub(super) targets: &'a [usize],
    pub(super) found: Vec<Option<ReferenceName>>,
    /// The positions of the nameless references to each target, the first of them last.
    nameless: FxHashMap<usize, Vec<usize>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(targets: &'a [usize]) -> Self {
        let mut nameless: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (i, &target) in targets.iter().enumerate().rev() {
            nameless.entry(target).or_default().push(i);
        }
        Self {
            targets,
            found: vec![None; targets.len()],
            nameless,
        }
    }

    pub(super) fn done(&self) -> bool {
        self.nameless.is_empty()
    }

    /// True if a reference to `target` has no name yet.
    pub(super) fn wants(&self, target: usize) -> bool {
        self.nameless.contains_key(&target)
    }

    /// Names the first nameless reference to `target`, if there is one.
    pub(super) fn claim(&mut self, target: usize, name: impl FnOnce() -> ReferenceName) {
        let Entry::Occupied(mut positions) = self.nameless.entry(target) else {
            return;
        };
        if let Some(i) = positions.get_mut().pop() {
            self.found[i] = Some(name());
        }
        if positions.get().is_empty() {
            positions.remove();
        }
    }

    pub(super) fn claim_value(
        &mut self,
        value: &Bound<'_, PyAny>,
        name: impl FnOnce() -> ReferenceName,
    ) {
        self.claim(value.as_ptr() as usize, name);
    }

    pub(super) fn attribute(
        &mut self,
        descriptor: &Descriptor,
        object: &Bound<'_, PyAny>,
        name: &str,
    ) {
        if self.done() {
            return;
        }
        if let Some(value) = descriptor.get(object) {
            self.claim_value(&value, || ReferenceName::Attribute(printable(name)));
        }
    }

    /// Names the first nameless reference to an exact dict.
    pub(super) fn claim_dict(&mut self, name: &str) {
        if let Some(dict) = self.nameless_of_type(|ty| ty == &raw mut ffi::PyDict_Type) {
            self.claim(dict, || ReferenceName::Attribute(name.to_owned()));
        }
    }

    pub(super) fn nameless_of_type(
        &self,
        of_type: impl Fn(*mut ffi::PyTypeObject) -> bool,
    ) -> Option<usize> {
        self.targets.iter().copied().find(|&target| {
            // SAFETY: the targets are alive: the object that is being named refers to them.
            let ty = unsafe { ffi::Py_TYPE(target as *mut ffi::PyObject) };
            of_type(ty) && self.wants(target)
        })
    }
}
