//! The classes that the program has registered, as having memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyType;

use super::described::Description;

/// The most that a program may register.
pub const MOST: usize = 128;

/// A [`Description`] that lasts.
#[derive(Clone)]
pub struct Registration {
    pub kind: String,
    pub pointer: String,
    pub bytes: String,
    pub number: Option<String>,
    pub dtype: Option<String>,
    pub shape: Option<String>,
    pub owner: Option<String>,
}

impl Registration {
    /// Calls `f` with the description.
    pub fn with<T>(&self, f: impl FnOnce(&Description<'_>) -> T) -> T {
        f(&Description {
            kind: &self.kind,
            pointer: &self.pointer,
            bytes: &self.bytes,
            number: self.number.as_deref(),
            dtype: self.dtype.as_deref(),
            shape: self.shape.as_deref(),
            owner: self.owner.as_deref(),
            resource: None,
        })
    }
}

/// All of them, in the order in which they came. Locked for moments, by threads that hold the interpreter's lock.
static ALL: Mutex<Vec<(Py<PyType>, Registration)>> = Mutex::new(Vec::new());
/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Adds a class; false if there are too many.
pub fn add(class: &Bound<'_, PyType>, registration: Registration) -> bool {
    let Ok(mut all) = ALL.lock() else {
        return false;
    };
    if all.len() >= MOST {
        return false;
    }
    all.push((class.clone().unbind(), registration));
    COUNT.store(all.len(), Ordering::Release);
    true
}

/// Those that came after the first `known`.
pub fn from(py: Python<'_>, known: usize) -> Vec<(Py<PyType>, Registration)> {
    if COUNT.load(Ordering::Acquire) == known {
        return Vec::new();
    }
    let all = ALL.lock();
    let new = all.iter().flat_map(|all| all.iter().skip(known));
    new.map(|(class, it)| (class.clone_ref(py), it.clone()))
        .collect()
}
