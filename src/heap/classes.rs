//! What is known of each class, remembered for the time of a look.

use std::rc::Rc;

use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::Place;
use super::builtins::Builtins;
use super::describe::{class_in_file, class_name, class_place, is_weakly_referable};
use super::types::is_heap_type;

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
///
/// A class made at run time can die and another be born at its address, and no weak reference tells of it, as the
/// program would see that. Classes die in collections, being cycles: whoever keeps this over a collection
/// [forgets](Classes::forget) all, unless it has seen that there was no class in its garbage.
#[derive(Default)]
pub struct Classes {
    by_address: FxHashMap<usize, Rc<ClassFacts>>,
}

/// So many classes are remembered; then it starts afresh.
const LIMIT: usize = 1024;

impl Classes {
    /// The facts of a class, read without running its code.
    pub fn facts(&mut self, builtins: &Builtins, class: &Bound<'_, PyAny>) -> Rc<ClassFacts> {
        let address = class.as_ptr() as usize;
        if let Some(known) = self.by_address.get(&address) {
            return Rc::clone(known);
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
        if self.by_address.len() >= LIMIT {
            self.by_address.clear();
        }
        self.by_address.insert(address, Rc::clone(&facts));
        facts
    }

    /// Forgets all classes.
    pub fn forget(&mut self) {
        self.by_address.clear();
    }
}
