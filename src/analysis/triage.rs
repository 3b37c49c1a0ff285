//! The triage of all garbage: does it hold a buffer, and so is worth an examination?

use std::ffi::{c_int, c_void};
use std::ptr;

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
use crate::device::DeviceSelection;

/// What triage says of garbage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Triage {
    /// Some object holds a buffer on one of the devices asked for.
    pub holds_buffer: bool,
    /// The collector ran a finalizer of some object.
    pub finalizer_ran: bool,
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
    layouts: Layouts,
    heads: HeadLayout,
    /// What the last function referred to, in its words and as far as it could be passed: the next one mostly
    /// refers to the same globals, built-ins, code and name.
    passed: [*mut ffi::PyObject; FunctionLayout::WORDS],
    /// The type of the object that is being looked at, and what is known of it. Instances refer to their classes, and
    /// stand in the list beside others of the same.
    ty: *mut ffi::PyTypeObject,
    facts: TypeFacts,
    candidates: Vec<(Verdict, usize)>,
    /// Objects that only one object of the garbage refers to, and which the collector did not find
    /// because they are of an older generation or not tracked.
    held: Vec<*mut ffi::PyObject>,
    /// References from the garbage to dicts and tuples that the collector does not track because
    /// they refer to nothing that it tracks, such as an array of NumPy's (`_PyDict_MaybeUntrack` in
    /// Objects/dictobject.c). If all references to one are from the garbage, it is garbage too.
    untracked: FxHashMap<*mut ffi::PyObject, i64>,
    finalizer_ran: bool,
    class_dies: bool,
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
                // What the collector has found as well, the closure of a function, say. No class comes here,
                // and so nothing without a collector's head.
                Some(facts) => {
                    facts.verdict == 0
                        && facts.traverse.is_some()
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
            let own = search.cast::<Self>();
            if target == (*own).ty.cast() || (*own).passes(target) {
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
            let facts = search.facts(target);
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

    /// Looks at an object of the garbage and passes its referents.
    ///
    /// # Safety
    /// As for `facts`.
    #[inline]
    unsafe fn look(&mut self, object: *mut ffi::PyObject) {
        // SAFETY: by this function's contract; `pass` keeps the protocol of `tp_traverse` and changes
        // nothing.
        unsafe {
            let ty = ffi::Py_TYPE(object);
            if ty != self.ty {
                self.facts = self.facts(object);
                self.ty = ty;
            }
            let form = self.facts.form;
            if form != Form::Other && self.read(object, form) {
                return;
            }
            if self.facts.matters() {
                self.regard(object);
            }
            if let Some(traverse) = self.facts.traverse {
                traverse(object, Self::pass, ptr::from_mut(self).cast());
            }
        }
    }

    /// Passes what an object refers to without its `tp_traverse`; false if it is not known where that is.
    ///
    /// # Safety
    /// As for `facts`, and the object is of that form.
    #[inline]
    unsafe fn read(&mut self, object: *mut ffi::PyObject, form: Form) -> bool {
        let layouts = self.layouts;
        // SAFETY: by this function's contract.
        unsafe {
            match (form, layouts.functions) {
                (Form::Function, Some(functions)) => {
                    let (words, mut others) = functions.beside(object, &self.passed);
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
                    true
                }
                _ => layouts.visit(object, form, |target| {
                    if !self.passes(target) {
                        Self::consider(target, ptr::from_mut(self).cast());
                    }
                }),
            }
        }
    }

    /// # Safety
    /// As for `facts`.
    #[inline(never)]
    unsafe fn regard(&mut self, object: *mut ffi::PyObject) {
        // SAFETY: by this function's contract.
        unsafe {
            let facts = self.facts(object);
            if facts.verdict != 0 {
                self.candidates.push((facts.verdict, object as usize));
            }
            self.class_dies |= facts.kind == ObjectKind::Class;
            self.finalizer_ran |= facts.finalizes && ffi::PyObject_GC_IsFinalized(object) != 0;
        }
    }
}

impl Inspector {
    /// Looks whether garbage holds a buffer: one traversal, no graph.
    pub(crate) fn triage(
        &self,
        py: Python<'_>,
        garbage: impl Iterator<Item = *mut ffi::PyObject>,
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
            layouts: self.layouts,
            heads: self.heads,
            passed: [ptr::null_mut(); FunctionLayout::WORDS],
            ty: ptr::null_mut(),
            facts: TypeFacts::NONE,
            candidates: Vec::new(),
            held: Vec::new(),
            untracked: FxHashMap::default(),
            finalizer_ran: false,
            class_dies: false,
        };
        search.table.begin_pass();
        let mut room = MANY;
        let mut objects = 0;
        // SAFETY: attached; the garbage is held by the caller, and holds what it refers to.
        unsafe {
            for object in garbage {
                objects += 1;
                if objects == room {
                    room *= 2;
                    ask_for_room(room, ROOM_FOR_OBJECT)?;
                }
                search.look(object);
            }
            while let Some(object) = search.held.pop() {
                search.look(object);
            }
        }
        let (finalizer_ran, class_dies) = (search.finalizer_ran, search.class_dies);
        let mut candidates = search.candidates;
        drop(table);
        candidates.sort_unstable();
        candidates.dedup();
        let holds_buffer = candidates.iter().any(|&(verdict, address)| {
            // SAFETY: attached; the candidates are held by the garbage.
            let object = unsafe { Bound::from_borrowed_ptr(py, address as *mut ffi::PyObject) };
            frameworks.buffer(verdict, &object, devices).is_some()
        });
        Ok(Triage {
            holds_buffer,
            finalizer_ran,
            class_dies,
            objects,
        })
    }
}
