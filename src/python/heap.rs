//! The live heap in Python: what its models do there beside having fields.

use std::str::FromStr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use super::off;
use super::state::state_for_look;
use super::values::{class, no_attribute, shown};
use crate::model::diff::Diff;
use crate::model::heap::{Buffer, By, Heap, Row, Table};
use crate::model::human_bytes;
use crate::model::json::{model_from_json, to_json};
use crate::model::words::counted;
use crate::render::html::live;
use crate::render::text;

class! {
    impl Heap {
        get
            /// Number of objects: those that the collector tracks, and their referents.
            objects: u64,
            /// Number of references between them.
            references: u64,
            /// Number of objects unreachable from GC roots (modules, running functions, C code).
            unreachable: u64,
            /// Time of the snapshot, in seconds since 1970.
            time: f64,
            /// How long the snapshot paused the program, in milliseconds.
            pause_ms: f64,
            /// Approximate peak memory that the snapshot needed; all of it has been released.
            working_bytes: u64,
            /// Remarks about the snapshot, such as limits that were reached.
            notes: Vec<String>,
            /// The buffers: device memory first, then by size, largest first.
            buffers: Vec<Buffer>;

        /// Milliseconds per phase: ``graph``, ``ways``, ``dominators``, ``names``, ``release``.
        #[getter(phases)]
        fn dict_of_phases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            self.phases.clone().into_py_dict(py)
        }

        /// Bytes of all buffers on devices, each storage counted once.
        #[getter(device_bytes)]
        fn all_device_bytes(&self) -> u64 {
            self.device_bytes()
        }

        /// Bytes of all arrays and tensors in host memory, each storage counted once.
        #[getter(host_bytes)]
        fn all_host_bytes(&self) -> u64 {
            self.host_bytes()
        }

        /// The largest holders of memory.
        ///
        /// Args:
        ///     by: How to group memory. ``"owner"``: the first named object on the path from a GC
        ///         root, such as a module's variable. ``"class"``: the memory that all objects of a
        ///         class retain. ``"module"``: the module or file of the owner. ``"site"``: the line
        ///         that allocated the buffer's holder, if :mod:`tracemalloc` was tracing.
        ///         ``"category"``: parameter, gradient, optimizer state, activation, input or other.
        ///     count: Maximum number of rows.
        ///
        /// Raises:
        ///     ValueError: If ``by`` is none of these, or ``count`` is no number.
        #[pyo3(name = "top", signature = (by="owner", count=20))]
        fn table(
            &self,
            by: &str,
            #[pyo3(from_py_with = number_of_rows)] count: usize,
        ) -> PyResult<Table> {
            let by = By::from_str(by).map_err(PyValueError::new_err)?;
            Ok(self.top(by, count))
        }

        /// The changes since ``old``, by owner.
        #[pyo3(name = "diff")]
        fn diff_since(&self, old: &Bound<'_, Self>) -> Diff {
            self.diff(old.get())
        }

        /// Read a snapshot that :meth:`to_json` wrote.
        ///
        /// Raises:
        ///     ValueError: If ``text`` is not a snapshot.
        #[staticmethod]
        fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
            py.detach(|| model_from_json(text, "Heap", None))
                .map_err(PyValueError::new_err)
        }

        /// The snapshot as JSON (``schema`` 1); :meth:`from_json` reads it back.
        fn to_json(&self, py: Python<'_>) -> String {
            py.detach(|| to_json(self))
        }

        /// The same text as ``str()``: a summary and the largest owners.
        fn to_text(&self, py: Python<'_>) -> String {
            py.detach(|| text::heap(self))
        }

        /// A self-contained HTML page: a zoomable treemap of the owners, and tables.
        ///
        /// The treemap shows device memory, or host memory if there is none on devices. The width of
        /// a block is proportional to the bytes reached through it. Each buffer is counted once, on
        /// the path in :attr:`HeapBuffer.owner`. At most 500 blocks are drawn; the rest are combined.
        fn to_html(&self, py: Python<'_>) -> String {
            py.detach(|| live::heap(self))
        }

        fn _repr_html_(&self, py: Python<'_>) -> String {
            live::framed(self.to_html(py))
        }

        fn __str__(&self, py: Python<'_>) -> String {
            py.detach(|| text::heap(self))
        }

        fn __repr__(&self) -> String {
            format!(
                "<Heap: {} objects, {} on devices, {} on the host>",
                self.objects,
                human_bytes(self.device_bytes()),
                human_bytes(self.host_bytes())
            )
        }
    }
}

fn number_of_rows(count: &Bound<'_, PyAny>) -> PyResult<usize> {
    count.extract().map_err(|_| {
        let given = count
            .repr()
            .map_or_else(|_| "this".to_owned(), |it| it.to_string());
        PyValueError::new_err(format!(
            "count must be a number of rows, 0 or more, not {given}"
        ))
    })
}

#[pymethods]
impl Buffer {
    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Err(no_attribute(slf, name))
    }

    /// The owner without indices and lengths: the same for all buffers of a growing list.
    #[getter(kind)]
    fn kind_of_owner(&self) -> String {
        self.kind()
    }

    fn __repr__(&self) -> String {
        format!(
            "<HeapBuffer {} on {}: {}>",
            human_bytes(self.bytes),
            self.device,
            self.owner
        )
    }
}

class! {
    impl Table {
        get
            /// How memory is grouped; see :meth:`Heap.top`.
            by: String,
            /// The rows, most memory first.
            rows: Vec<Row>,
            /// Number of rows left out.
            omitted: u64;

        /// The table as JSON (``schema`` 1).
        fn to_json(&self) -> String {
            to_json(self)
        }

        /// The same text as ``str()``: the table.
        fn to_text(&self) -> String {
            text::table(self)
        }

        fn __str__(&self) -> String {
            text::table(self)
        }

        fn __repr__(&self) -> String {
            format!("<HeapTable by {}: {} rows>", self.by, self.rows.len())
        }
    }
}

shown! {
    Row(it) => format!("<HeapRow {}: {}>", it.name, human_bytes(it.bytes()));
}

class! {
    impl Diff {
        get
            /// Total change in bytes.
            bytes: i64,
            /// Change in the number of objects.
            objects: i64;

        /// Owner, change in bytes and change in buffers, most bytes first.
        #[getter(rows)]
        fn tuples(&self) -> Vec<(String, i64, i64)> {
            let rows = self.rows.iter();
            rows.map(|row| (row.name.clone(), row.bytes, row.buffers))
                .collect()
        }

        /// Read changes that :meth:`to_json` wrote.
        ///
        /// Raises:
        ///     ValueError: If ``text`` is not of a heap diff.
        #[staticmethod]
        fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
            py.detach(|| model_from_json(text, "HeapDiff", Some("owners")))
                .map_err(PyValueError::new_err)
        }

        /// The changes as JSON (``schema`` 1); :meth:`from_json` reads it back.
        fn to_json(&self) -> String {
            to_json(self)
        }

        /// The same text as ``str()``: the owners whose memory changed.
        fn to_text(&self, py: Python<'_>) -> String {
            py.detach(|| text::diff(self))
        }

        /// A self-contained HTML page: each owner's memory before and after.
        fn to_html(&self, py: Python<'_>) -> String {
            py.detach(|| live::diff(self))
        }

        fn _repr_html_(&self, py: Python<'_>) -> String {
            live::framed(self.to_html(py))
        }

        fn __str__(&self) -> String {
            text::diff(self)
        }

        fn __repr__(&self) -> String {
            format!(
                "<HeapDiff: {} bytes, {}>",
                self.bytes,
                counted(self.rows.len() as u64, "owner", "owners")
            )
        }
    }
}

/// Follows the settings and what the call says as to `redact`.
///
/// They are asked from here, as the functions below are what the program calls: one in Python that passed
/// its arguments on would be among what holds them.
pub(super) fn settle(py: Python<'_>, redact: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    py.import("cyclescope._settings")?
        .call_method0("settings")?;
    if let Some(redact) = redact {
        py.import("cyclescope._selection")?
            .call_method1("redact_if", (redact,))?;
    }
    Ok(())
}

/// Take a snapshot of all live memory: its owners, sizes and categories.
///
/// No code of the program runs, and the result keeps no object alive. The program is paused for about as long as
/// `gc.collect()` takes; see `Heap.pause_ms`.
///
/// Args:
///     redact: See `warn_tensor_cycles`.
///
/// Raises:
///     ValueError: If a setting is invalid.
#[pyfunction]
#[pyo3(signature = (*, redact=None), text_signature = "(*, redact=False)")]
pub fn heap(py: Python<'_>, redact: Option<&Bound<'_, PyAny>>) -> PyResult<Heap> {
    settle(py, redact)?;
    let state = state_for_look(py)?;
    let inspector = state.watcher.inspector();
    match off(py)? {
        Some(note) => Ok(Heap::nothing(inspector.process_to_tell(py), note)),
        None => inspector.heap(py),
    }
}

/// A page in a frame, as a notebook shows it.
#[pyfunction]
pub fn framed(page: String) -> String {
    live::framed(page)
}
