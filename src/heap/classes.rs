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

/// The facts of the classes met in a look, none of which can die meanwhile.
///
/// Nothing is remembered longer: to tell whether a class is still the same would take a weak reference, which
/// may be garbage with the class, and which the collector would then leave alive.
#[derive(Default)]
pub struct Classes {
    by_address: FxHashMap<usize, Rc<ClassFacts>>,
}

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
        self.by_address.insert(address, Rc::clone(&facts));
        facts
    }
}
