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

/// What a leak is ignored by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its signature, its pattern, or the known leak that it is, or the library of that.
    Name,
    /// The library whose code seems to have made it.
    Library,
}

impl Ignored {
    pub fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    /// True if the leak has one of the names.
    pub fn contains(&self, leak: &Leak) -> bool {
        self.by(leak).is_some()
    }

    /// Which of the names a leak has, if any.
    ///
    /// Whose the leak is, it finds out only where a name may be a library's: see
    /// [`say_whose`](crate::diagnose::library::say_whose).
    pub fn by(&self, leak: &Leak) -> Option<By> {
        let is_named = |own: &str| self.names.iter().any(|name| own == name);
        if self.names.is_empty() {
            return None;
        }
        if is_named(&leak.signature) || leak.pattern.as_deref().is_some_and(is_named) {
            return Some(By::Name);
        }
        let is_librarys = |library: &str| {
            self.names
                .iter()
                .any(|name| normal(library) == normal(name))
        };
        let mut leak = leak.clone();
        leak.library = library(&leak);
        match known(&leak) {
            Some(known) if is_named(&known.name) || is_librarys(&known.library) => Some(By::Name),
            _ => {
                let library = leak.library.filter(|library| is_librarys(&library.name));
                library.map(|_| By::Library)
            }
        }
    }
}
