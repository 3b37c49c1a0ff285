//! What is known of each class, remembered: a class says the same of itself in every collection.

use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::Place;
use super::builtins::Builtins;
use super::describe::{class_in_file, class_name, class_place, is_weakly_referable};
use super::types::{is_heap_type, refers_to};

/// How to present a class to a person.
#[derive(Debug)]
pub struct ClassFacts {
    /// Qualified name with the module, unless that is `builtins` or `__main__`.
    pub name: String,
    /// Where it is written, if it is written in Python.
    pub place: Option<Place>,
    /// As [`Description::unplaced_class`](super::Description::unplaced_class).
    pub in_file: Option<String>,
    /// As [`Description::weakly_referable`](super::Description::weakly_referable).
    pub weakly_referable: bool,
}

/// The facts of the classes met lately.
#[derive(Default)]
pub struct Classes {
    by_address: FxHashMap<usize, Class>,
}

struct Class {
    facts: Rc<ClassFacts>,
    /// Tells whether a class made at run time is still the one the facts are about.
    alive: Option<Py<PyAny>>,
}

/// So many classes are remembered; then it starts afresh.
const LIMIT: usize = 1024;

impl Classes {
    /// The facts of a class, read without running its code.
    pub fn facts(&mut self, builtins: &Builtins, class: &Bound<'_, PyAny>) -> Rc<ClassFacts> {
        let address = class.as_ptr() as usize;
        if let Some(known) = self.by_address.get(&address)
            // SAFETY: attached, as `class` shows.
            && known.alive.as_ref().is_none_or(|weak| unsafe { refers_to(weak, class.as_ptr().cast()) })
        {
            return Rc::clone(&known.facts);
        }
        // SAFETY: attached, and a class is a live type.
        let mortal = unsafe { is_heap_type(class.as_ptr().cast()) };
        let facts = Rc::new(ClassFacts {
            name: class_name(builtins, class),
            // What is part of the interpreter or of a library has no function written in Python.
            place: mortal.then(|| class_place(builtins, class)).flatten(),
            in_file: class_in_file(builtins, class),
            weakly_referable: is_weakly_referable(builtins, class),
        });
        let alive = mortal.then(|| weak_reference(class));
        if alive.as_ref().is_some_and(Option::is_none) {
            return facts;
        }
        if self.by_address.len() >= LIMIT {
            self.by_address.clear();
        }
        let class = Class {
            facts: Rc::clone(&facts),
            alive: alive.flatten(),
        };
        self.by_address.insert(address, class);
        facts
    }
}

/// A weak reference without a callback, which runs no code; `None` if there is no memory for it.
fn weak_reference(class: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    // SAFETY: attached, as `class` shows; a new reference, or null with an exception set.
    unsafe {
        let weak = ffi::PyWeakref_NewRef(class.as_ptr(), std::ptr::null_mut());
        let weak = Bound::from_owned_ptr_or_opt(class.py(), weak);
        if weak.is_none() {
            ffi::PyErr_Clear();
        }
        weak.map(Bound::unbind)
    }
}
