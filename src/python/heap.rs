//! The live heap in Python: what its models do there beside having fields.

use std::str::FromStr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use super::off;
use super::state::state;
use super::values::class;
use crate::model::diff::Diff;
use crate::model::heap::{Buffer, By, Heap, Row, Table};
use crate::model::human_bytes;
use crate::model::json::to_json;
use crate::render::html::live;
use crate::render::text;

class! {
    impl Heap {
        get objects: u64, references: u64, unreachable: u64, time: f64, pause_ms: f64,
            working_bytes: u64, notes: Vec<String>, buffers: Vec<Buffer>;

        #[getter(phases)]
        fn dict_of_phases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
            self.phases.clone().into_py_dict(py)
        }

        #[getter(device_bytes)]
        fn all_device_bytes(&self) -> u64 {
            self.device_bytes()
        }

        #[getter(host_bytes)]
        fn all_host_bytes(&self) -> u64 {
            self.host_bytes()
        }

        #[pyo3(name = "top", signature = (by="owner", count=20))]
        fn table(&self, by: &str, count: usize) -> PyResult<Table> {
            let by = By::from_str(by).map_err(PyValueError::new_err)?;
            Ok(self.top(by, count))
        }

        #[pyo3(name = "diff")]
        fn diff_since(&self, old: &Bound<'_, Self>) -> Diff {
            self.diff(old.get())
        }

        fn to_json(&self, py: Python<'_>) -> String {
            py.detach(|| to_json(self))
        }

        fn to_text(&self, py: Python<'_>) -> String {
            py.detach(|| text::heap(self))
        }

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

#[pymethods]
impl Buffer {
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
        get by: String, rows: Vec<Row>, omitted: u64;

        fn to_json(&self) -> String {
            to_json(self)
        }

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

#[pymethods]
impl Row {
    fn __repr__(&self) -> String {
        format!("<HeapRow {}: {}>", self.name, human_bytes(self.bytes()))
    }
}

class! {
    impl Diff {
        get bytes: i64, objects: i64;

        /// `(owner, bytes, buffers)` of each owner whose memory changed.
        #[getter(rows)]
        fn tuples(&self) -> Vec<(String, i64, i64)> {
            let rows = self.rows.iter();
            rows.map(|row| (row.name.clone(), row.bytes, row.buffers))
                .collect()
        }

        fn to_json(&self) -> String {
            to_json(self)
        }

        fn to_text(&self, py: Python<'_>) -> String {
            py.detach(|| text::diff(self))
        }

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
                "<HeapDiff: {} bytes, {} owners>",
                self.bytes,
                self.rows.len()
            )
        }
    }
}

/// Follows the settings and what the call says as to `redact`.
///
/// They are asked from here, as the functions below are what the program calls: one in Python that passed
/// its arguments on would be among what holds them.
pub(super) fn settle(py: Python<'_>, redact: bool) -> PyResult<()> {
    py.import("cyclescope._settings")?
        .call_method0("settings")?;
    if redact {
        state(py)?.watcher.inspector().redact();
    }
    Ok(())
}

/// What memory is alive, who owns it, and what it is for.
#[pyfunction]
#[pyo3(signature = (*, redact=false))]
pub fn heap(py: Python<'_>, redact: bool) -> PyResult<Heap> {
    settle(py, redact)?;
    let state = state(py)?;
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
