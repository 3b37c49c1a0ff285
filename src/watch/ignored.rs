//! Leaks that the program wants to ignore.

use crate::diagnose::known::{known, normal};
use crate::diagnose::library::library;
use crate::model::report::Leak;

/// Leaks that a watch, or an explicit check, ignores.
#[derive(Clone, Debug, Default)]
pub struct Ignored {
    /// Signatures, names of patterns or of known leaks, and libraries, the latter as the package
    /// index compares them.
    names: Vec<String>,
}

impl Ignored {
    pub fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    /// True if the leak has one of the names.
    ///
    /// Whose the leak is, it finds out only where a name may be a library's: see
    /// [`say_whose`](crate::diagnose::library::say_whose).
    pub fn contains(&self, leak: &Leak) -> bool {
        let named = |name: &String| leak.signature == *name || leak.pattern.as_ref() == Some(name);
        if self.names.is_empty() || self.names.iter().any(named) {
            return !self.names.is_empty();
        }
        let mut leak = leak.clone();
        leak.library = library(&leak);
        let known = known(&leak);
        let libraries: Vec<&String> = leak
            .library
            .iter()
            .map(|library| &library.name)
            .chain(known.iter().map(|known| &known.library))
            .collect();
        self.names.iter().any(|name| {
            known.as_ref().is_some_and(|known| known.name == *name)
                || libraries
                    .iter()
                    .any(|library| normal(library) == normal(name))
        })
    }
}
