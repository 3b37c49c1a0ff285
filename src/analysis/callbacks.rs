//! Weak references to garbage with callbacks, which a collection calls, and which may let go of more.

use std::cell::OnceCell;

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use crate::cpython::{Builtins, Descriptor, text_of};

/// The callback of a `weakref.WeakSet`, by module and qualified name (`Lib/_weakrefset.py`).
const OF_WEAK_SET: (&str, &str) = ("_weakrefset", "WeakSet.__init__.<locals>._remove");
/// That of the sets of an abstract base class, a built-in function (`_destroy` in Modules/_abc.c).
const OF_ABSTRACT_CLASS: &str = "_destroy";

impl Inspector {
    /// True if a collection of this garbage calls back because of it: a `weakref.WeakKeyDictionary` then drops the values of
    /// these keys, `weakref.finalize` its arguments, and a cache in C++ what it has for them. Until then what they
    /// hold is reachable.
    pub(super) fn is_called_back(&self, py: Python<'_>, garbage: &[*mut ffi::PyObject]) -> bool {
        let (Some(references), Some(_)) = (&self.weak_references, &self.gc.state) else {
            return false;
        };
        let addresses = OnceCell::new();
        let is_garbage = |reference: &Bound<'_, PyAny>| {
            let all: &FxHashSet<usize> =
                addresses.get_or_init(|| garbage.iter().map(|&it| it as usize).collect());
            all.contains(&(reference.as_ptr() as usize))
        };
        garbage.iter().any(|&object| {
            let object = self.object(py, object as usize);
            let mut with_callback = references.with_callback(&object).into_iter();
            with_callback.any(|(reference, callback)| {
                !is_of_set(&self.builtins, &callback) && !is_garbage(&reference)
            })
        })
    }
}

/// True if the callback only takes the weak reference itself out of a set.
fn is_of_set(builtins: &Builtins, callback: &Bound<'_, PyAny>) -> bool {
    let text = |part: &Descriptor| part.get(callback).and_then(|it| text_of(&it));
    if let Some(name) = text(&builtins.builtin_name) {
        return name == OF_ABSTRACT_CLASS;
    }
    let (module, name) = OF_WEAK_SET;
    text(&builtins.function_module).as_deref() == Some(module)
        && text(&builtins.function_qualname).as_deref() == Some(name)
}
