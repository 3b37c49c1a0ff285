//! Finds the reference cycles that hold GPU memory in Python programs.
//!
//! The rooms of the crate, each of which knows only those before it:
//!
//! | room | what it does |
//! |---|---|
//! | [`hook`] | watches collections, takes their garbage, breaks it |
//! | [`heap`] | reads CPython objects: references, their names, labels, places in source |
//! | [`device`] | says which device memory an object holds |
//! | [`graph`] | components, cycles, paths and cuts of the object graph |
//! | [`diagnose`] | from graph facts to a leak: signature, pattern, advice |
//! | [`report`] | the serde model and its renderings |
//!
//! [`Inspector`] ties them together for a program that embeds Python; [`watch`] keeps an eye on every
//! collection; the Python package is made of both. Without the feature `python` only the rooms
//! from `graph` on do anything, and no interpreter is needed.

/// A Python string that is made once, as by `pyo3::intern!`, but without letting other threads run, and where
/// there is no memory for it the empty string, for this once: no name of anything.
///
/// PyO3's own detaches from the interpreter while its cell is filled (`init_once_cell_py_attached` in
/// `pyo3/src/sync/once_lock.rs`). In the middle of a collection another thread could fork just then,
/// and in the child CPython would believe that the collection was still under way. To make a
/// string runs no code of others, so whoever fills the cell keeps the interpreter, and nobody waits.
#[cfg(feature = "python")]
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static TEXT: std::sync::OnceLock<pyo3::Py<pyo3::types::PyString>> =
            std::sync::OnceLock::new();
        crate::heap::interned($py, &TEXT, $text)
    }};
}
mod array;
pub mod device;
pub mod diagnose;
pub mod graph;
pub mod heap;
pub mod hook;
pub mod report;
#[cfg(feature = "extension")]
mod reserve;

#[cfg(feature = "python")]
mod inspector;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
pub mod watch;

pub use device::DeviceSelection;
#[cfg(feature = "python")]
pub use inspector::Inspector;
