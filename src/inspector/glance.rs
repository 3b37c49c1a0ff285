//! The quick look that all garbage gets: does it hold a buffer?

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::{Inspector, ask_for_room, busy};
use crate::device::DeviceSelection;
use crate::heap::{Builtins, TypeFacts, TypeTable, Verdict, for_each_referent, reference_count};

/// What a quick look at garbage says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Glance {
    /// Some object holds a buffer on one of the devices asked for.
    pub holds_buffer: bool,
    /// The collector ran a finalizer of some object.
    pub finalizer_ran: bool,
}

/// The search for buffers in garbage.
struct Search<'a, C> {
    table: &'a mut TypeTable,
    builtins: &'a Builtins,
    classify: &'a C,
    candidates: Vec<(Verdict, usize)>,
    /// Objects that only one object of the garbage refers to, and which the collector did not find
    /// because they are of an older generation or not tracked.
    held: Vec<*mut ffi::PyObject>,
    /// References from the garbage to dicts and tuples that the collector does not track because
    /// they refer to nothing that it tracks, such as an array of NumPy's (`_PyDict_MaybeUntrack` in
    /// Objects/dictobject.c). If all references to one are from the garbage, it is garbage too.
    untracked: FxHashMap<*mut ffi::PyObject, i64>,
}

impl<C: Fn(*mut ffi::PyTypeObject) -> Verdict> Search<'_, C> {
    /// # Safety
    /// As for the other two: attached, and the object is alive.
    unsafe fn facts(&mut self, object: *mut ffi::PyObject) -> TypeFacts {
        // SAFETY: by this function's contract.
        unsafe {
            let ty = ffi::Py_TYPE(object);
            self.table.facts(self.builtins, self.classify, ty)
        }
    }

    /// Passes a referent of the garbage. Nearly all are classes, strings and objects that others
    /// refer to as well, so what finds that out is short enough to need no stack.
    #[inline]
    unsafe fn pass(&mut self, target: *mut ffi::PyObject) {
        // SAFETY: by the contract of `facts`; the types are CPython's own.
        unsafe {
            let ty = ffi::Py_TYPE(target);
            // Half of all. A class refers to itself by its `__mro__`, so garbage cannot be all that
            // holds it without being found by the collector.
            if ty == &raw mut ffi::PyUnicode_Type || ty == &raw mut ffi::PyType_Type {
                return;
            }
            match self.table.met(ty) {
                Some(facts) if !may_matter(facts, target) => {}
                _ => self.consider(target),
            }
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn consider(&mut self, target: *mut ffi::PyObject) {
        // SAFETY: by the contract of `facts`.
        unsafe {
            let facts = self.facts(target);
            if !may_matter(&facts, target) {
                return;
            }
            if facts.verdict != 0 {
                self.candidates.push((facts.verdict, target as usize));
                return;
            }
            let references = reference_count(target);
            if references == 1 {
                self.held.push(target);
            } else {
                let found = self.untracked.entry(target).or_insert(0);
                *found += 1;
                if *found == references {
                    self.held.push(target);
                }
            }
        }
    }
}

/// A dict or tuple with more references than this is a fixture of the program, and not looked into.
const SHARED: i64 = 64;

/// True for what may be a buffer, and for what may hold one and be part of the garbage though the
/// collector does not say so: see [`Search::held`] and [`Search::untracked`].
///
/// # Safety
/// As for [`reference_count`].
#[inline]
unsafe fn may_matter(facts: &TypeFacts, object: *mut ffi::PyObject) -> bool {
    if facts.verdict != 0 {
        return true;
    }
    if facts.traverse.is_none() {
        return false;
    }
    // SAFETY: by this function's contract.
    unsafe {
        let references = reference_count(object);
        references == 1
            || (facts.untrackable
                && references <= SHARED
                && ffi::PyObject_GC_IsTracked(object) == 0)
    }
}

/// Less garbage than this is looked at without asking whether there is memory for it.
const MANY: usize = 10_000;

impl Inspector {
    /// Looks whether garbage holds a buffer: one traversal, no graph.
    pub(crate) fn glance(
        &self,
        py: Python<'_>,
        garbage: &[*mut ffi::PyObject],
        devices: &DeviceSelection,
    ) -> PyResult<Glance> {
        if garbage.len() > MANY {
            ask_for_room(garbage.len())?;
        }
        let mut table = self.table.try_borrow_mut().map_err(|_| busy())?;
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        // SAFETY: attached; the types that are classified are alive.
        let classify = |ty| unsafe { frameworks.classify(ty) };
        let mut glance = Glance::default();
        let mut search = Search {
            table: &mut table,
            builtins: &self.builtins,
            classify: &classify,
            candidates: Vec::new(),
            held: Vec::new(),
            untracked: FxHashMap::default(),
        };
        search.table.begin_pass();
        let mut row = (ptr::null_mut(), TypeFacts::NONE);
        let mut next = 0;
        while let Some(object) = garbage.get(next).copied().or_else(|| search.held.pop()) {
            next += 1;
            // SAFETY: attached; the garbage is held by the caller, and holds what it refers to.
            unsafe {
                let ty = ffi::Py_TYPE(object);
                // Objects of one type come in rows.
                if ty != row.0 {
                    row = (ty, search.facts(object));
                }
                let facts = &row.1;
                if facts.verdict != 0 {
                    search.candidates.push((facts.verdict, object as usize));
                }
                glance.finalizer_ran |=
                    facts.finalizes && ffi::PyObject_GC_IsFinalized(object) != 0;
                if let Some(traverse) = facts.traverse {
                    for_each_referent(object, traverse, &mut |target| search.pass(target));
                }
            }
        }
        let mut candidates = search.candidates;
        drop(table);
        candidates.sort_unstable();
        candidates.dedup();
        glance.holds_buffer = candidates.iter().any(|&(verdict, address)| {
            // SAFETY: attached; the candidates are held by the garbage.
            let object = unsafe { Bound::from_borrowed_ptr(py, address as *mut ffi::PyObject) };
            frameworks.buffer(verdict, &object, devices).is_some()
        });
        Ok(glance)
    }
}
