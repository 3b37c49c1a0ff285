//! Finds the reference cycles that hold GPU memory in Python programs.
//!
//! The rooms of the crate. Data flows from top to bottom; a room imports only rooms above it, and
//! `tests/test_rooms.py` holds it to that.
//!
//! | room | what it does |
//! |---|---|
//! | `memory` | arrays and tables for millions of objects; what is put aside for when there is no memory |
//! | [`cpython`] | every assumption about CPython's memory and C API |
//! | [`collector`] | which objects are garbage: the callback, the witness, the second way |
//! | [`capture`] | objects as plain data: nodes, edges, names, labels, locations |
//! | [`device`] | which device memory an object holds |
//! | [`graph`] | components, shortest paths, dominators, cuts |
//! | [`model`] | what was found, as plain data: reports, heaps, retention, growth |
//! | [`diagnose`] | from facts to a leak: signature, pattern, advice; whose memory it is; what grows; why it ran out |
//! | `analysis` | [`Inspector`]: cycles in garbage, and what keeps the live heap alive |
//! | [`render`] | text, Markdown, DOT, SVG and HTML: pure functions of the model |
//! | [`watch`] | looks at every collection, and delivers what leaked |
//! | `python` | the bindings |
//!
//! # For programs that embed Python
//!
//! [`Inspector`] looks at the garbage and at the live heap of the interpreter that a program embeds, [`DeviceSelection`]
//! says which memory it is about, and [`render`] makes text or a page of what was found:
//!
//! ```
//! # #[cfg(feature = "python")]
//! # fn main() -> pyo3::PyResult<()> {
//! use cyclescope::{DeviceSelection, Inspector, render::text};
//!
//! pyo3::Python::attach(|py| {
//!     let report = Inspector::new(py)?.find(py, &DeviceSelection::Any)?;
//!     print!("{}", text::trace(&report));
//!     Ok(())
//! })
//! # }
//! # #[cfg(not(feature = "python"))]
//! # fn main() {}
//! ```
//!
//! `examples/embedding.rs` is a whole program.
//!
//! # Features
//!
//! - `python` (default): all that touches a Python interpreter, such as [`Inspector`], [`watch`] and [`collector`].
//! - `extension`: for the Python package only. The allocator keeps a reserve for when there is no memory.
//!
//! Without the feature `python` only what is plain Rust is there ([`graph`], [`model`], [`diagnose`], [`render`] and the
//! data types of [`capture`] and [`device`]), and no interpreter is needed: enough to read, merge and render reports.
//!
//! # Versions
//!
//! [`Inspector`], [`DeviceSelection`], [`model`] and [`render`] keep to semantic versioning. The other rooms are public so
//! that their documentation can be read, and may change in any release.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
        crate::cpython::interned($py, &TEXT, $text)
    }};
}
#[cfg(feature = "python")]
mod analysis;
pub mod capture;
pub mod collector;
pub mod cpython;
pub mod device;
pub mod diagnose;
pub mod graph;
mod memory;
pub mod model;
#[cfg(feature = "python")]
mod python;
pub mod render;
#[cfg(feature = "python")]
pub mod watch;

#[cfg(feature = "python")]
pub use analysis::Inspector;
pub use device::DeviceSelection;
