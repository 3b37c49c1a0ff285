//! The triage of all garbage: does it hold a buffer, and so is worth an examination?

use std::ffi::{c_int, c_void};
use std::{iter, ptr};

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::Inspector;
use super::busy::busy;
use super::room::{MANY, ROOM_FOR_OBJECT, ask_for_room};
use crate::cpython::{
    Builtins, Form, FunctionLayout, HeadLayout, Layouts, ObjectKind, TypeFacts, TypeTable, Verdict,
    reference_count,
};
use crate::device::{DeviceSelection, Reading};

/// What triage says of garbage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Triage {
    /// Some object holds a buffer on one of the devices asked for.
    pub holds_buffer: bool,
    /// Some object has a finalizer that has not run.
    pub finalizer_due: bool,
    /// A class is among the garbage.
    pub class_dies: bool,
    /// How many objects there are.
    pub objects: usize,
}

/// The search for buffers in garbage.
struct Search<'a, C> {
    table: &'a mut TypeTable,
    builtins: &'a Builtins,
    classify: &'a C,
    layouts: &'a Layouts,
    heads: HeadLayout,
    /// What the last function referred to, in its words and as far as it could be passed: the next one mostly
    /// refers to the same globals, built-ins, code and name.
    passed: [*mut ffi::PyObject; FunctionLayout::WORDS],
    candidates: Vec<(Verdict, usize)>,
    /// Objects that only one object of the garbage refers to, and which the collector did not find
    /// because they are of an older generation or not tracked.
    held: Vec<*mut ffi::PyObject>,
    /// References from the garbage to dicts and tuples that the collector does not track because
    /// they refer to nothing that it tracks, such as an array of NumPy's (`_PyDict_MaybeUntrack` in
    /// Objects/dictobject.c). If all references to one are from the garbage, it is garbage too.
    untracked: FxHashMap<*mut ffi::PyObject, i64>,
    finalizer_due: bool,
    class_dies: bool,
}

impl<C: Fn(*mut ffi::PyTypeObject) -> Verdict> Search<'_, C> {
    /// # Safety
    /// As for the other two: attached, and the object is alive.
    unsafe fn facts(&mut self, object: *mut ffi::PyObject) -> &TypeFacts {
        // SAFETY: by this function's contract.
        unsafe {
            let ty = ffi::Py_TYPE(object);
            self.table.facts(self.builtins, self.classify, ty)
        }
    }

    /// True if a referent of the garbage can be passed. Nearly all are classes, strings and objects that
    /// others refer to as well, so what finds that out is short and has no branch that is hard to foresee;
    /// `consider` does the rest.
    ///
    /// # Safety
    /// As for `facts`.
    #[inline(always)]
    unsafe fn passes(&self, target: *mut ffi::PyObject) -> bool {
        // SAFETY: by this function's contract.
        unsafe {
            let references = reference_count(target);
            match self.table.met(ffi::Py_TYPE(target)) {
                Some(facts) if references > i64::from(facts.most_references) => true,
                // What the collector has found as well, the closure of a function, say. Neither classes nor
                // objects that refer to nothing come here, and so nothing without a collector's head.
                Some(facts) => {
                    facts.verdict == 0
                        && (self.heads.is_being_collected(target)
                            || facts.is_untrackable()
                                && references > 1
                                && self.heads.tracks(target))
                }
                None => false,
            }
        }
    }

    /// Passes or considers a referent of the garbage: a `visitproc`, with the search as its argument. It
    /// needs no stack: `consider` takes its place.
    ///
    /// # Safety
    /// As for `facts`, and `search` is the search.
    unsafe extern "C" fn pass(target: *mut ffi::PyObject, search: *mut c_void) -> c_int {
        // SAFETY: by this function's contract.
        unsafe {
            if (*search.cast::<Self>()).passes(target) {
                0
            } else {
                Self::consider(target, search)
            }
        }
    }

    /// Looks at what [`Search::pass`] could not pass.
    ///
    /// # Safety
    /// As for `pass`.
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn consider(target: *mut ffi::PyObject, search: *mut c_void) -> c_int {
        // SAFETY: by this function's contract.
        unsafe {
            let search = &mut *search.cast::<Self>();
            let facts = *search.facts(target);
            let references = reference_count(target);
            if facts.verdict != 0 {
                search.candidates.push((facts.verdict, target as usize));
            } else if references > i64::from(facts.most_references) {
                // As in `pass`, of a type that was not met yet.
            } else if facts.traverse.is_some() && search.heads.is_being_collected(target) {
                // As there, too.
            } else if references == 1 {
                search.held.push(target);
            } else if ffi::PyObject_GC_IsTracked(target) == 0 {
                let found = search.untracked.entry(target).or_insert(0);
                *found += 1;
                if *found == references {
                    search.held.push(target);
                }
            }
        }
        0
    }

    /// Looks at objects of the garbage, passes their referents, and counts them.
    ///
    /// Alone in a function so that all that changes with each object is in registers.
    ///
    /// # Safety
    /// As for `facts`.
    #[inline(never)]
    unsafe fn look(&mut self, objects: impl Iterator<Item = *mut ffi::PyObject>) -> usize {
        let mut count = 0;
        for object in objects {
            count += 1;
            // SAFETY: by this function's contract.
            unsafe {
                let form = self.facts(object).form;
                let Some(items) = self.layouts.items(object, form) else {
                    self.look_at_other(object);
                    continue;
                };
                for &target in items {
                    if !target.is_null() && !self.passes(target) {
                        Self::consider(target, ptr::from_mut(self).cast());
                    }
                }
            }
        }
        count
    }

    /// Looks at an object whose referents do not lie in one place.
    ///
    /// # Safety
    /// As for `facts`.
    #[inline(never)]
    unsafe fn look_at_other(&mut self, object: *mut ffi::PyObject) {
        // SAFETY: by this function's contract; `pass` keeps the protocol of `tp_traverse` and changes
        // nothing.
        unsafe {
            let facts = *self.facts(object);
            if facts.form == Form::Function && self.read_function(object) {
                return;
            }
            if facts.verdict != 0 {
                self.candidates.push((facts.verdict, object as usize));
            }
            self.class_dies |= facts.kind == ObjectKind::Class;
            self.finalizer_due |= facts.finalizes && ffi::PyObject_GC_IsFinalized(object) == 0;
            if let Some(traverse) = facts.traverse {
                traverse(object, Self::pass, ptr::from_mut(self).cast());
            }
        }
    }

    /// Passes what a function refers to without its `tp_traverse`; false if it is not known where that is.
    ///
    /// # Safety
    /// As for `facts`, and the object is a function.
    #[inline(always)]
    unsafe fn read_function(&mut self, function: *mut ffi::PyObject) -> bool {
        let Some(functions) = self.layouts.functions else {
            return false;
        };
        // SAFETY: by this function's contract.
        unsafe {
            let (words, mut others) = functions.beside(function, &self.passed);
            while others != 0 {
                let word = others.trailing_zeros() as usize % FunctionLayout::WORDS;
                others &= others - 1;
                let target = words[word];
                if target.is_null() {
                    continue;
                }
                if self.passes(target) {
                    self.passed[word] = target;
                } else {
                    Self::consider(target, ptr::from_mut(self).cast());
                }
            }
        }
        true
    }
}

impl Inspector {
    /// Looks whether garbage holds a buffer: one traversal, no graph.
    pub(crate) fn triage(
        &self,
        py: Python<'_>,
        mut garbage: impl Iterator<Item = *mut ffi::PyObject>,
        reading: Reading,
        devices: &DeviceSelection,
    ) -> PyResult<Triage> {
        let mut table = self.table.try_borrow_mut().map_err(|_| busy())?;
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        // SAFETY: attached; the types that are classified are alive.
        let classify = |ty| unsafe { frameworks.classify(ty) };
        let mut search = Search {
            table: &mut table,
            builtins: &self.builtins,
            classify: &classify,
            layouts: &self.layouts,
            heads: self.heads,
            passed: [ptr::null_mut(); FunctionLayout::WORDS],
            candidates: Vec::new(),
            held: Vec::new(),
            untracked: FxHashMap::default(),
            finalizer_due: false,
            class_dies: false,
        };
        search.table.begin_pass();
        let (mut objects, mut room) = (0, MANY);
        // SAFETY: attached; the garbage is held by the caller, and holds what it refers to.
        unsafe {
            loop {
                objects += search.look(garbage.by_ref().take(room - objects));
                if objects < room {
                    break;
                }
                room *= 2;
                ask_for_room(room, ROOM_FOR_OBJECT)?;
            }
            while let Some(object) = search.held.pop() {
                search.look(iter::once(object));
            }
        }
        let (finalizer_due, class_dies) = (search.finalizer_due, search.class_dies);
        let mut candidates = search.candidates;
        drop(table);
        candidates.sort_unstable();
        candidates.dedup();
        let holds_buffer = candidates.iter().any(|&(verdict, address)| {
            // SAFETY: attached; the candidates are held by the garbage.
            let object = unsafe { Bound::from_borrowed_ptr(py, address as *mut ffi::PyObject) };
            !frameworks
                .buffers_read(reading, verdict, &object, devices)
                .is_empty()
        });
        Ok(Triage {
            holds_buffer,
            finalizer_due,
            class_dies,
            objects,
        })
    }
}
