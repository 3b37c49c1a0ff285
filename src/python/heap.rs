//! The live heap as Python objects: read-only views of the models.

use std::str::FromStr;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::off;
use super::state::state;
use crate::model::diff::Diff;
use crate::model::heap::{Buffer, By, Row};
use crate::model::{heap as model, human_bytes};
use crate::render::html::live;

/// What memory is alive, and who owns it.
#[pyclass(frozen, module = "cyclescope")]
pub struct Heap {
    pub heap: Arc<model::Heap>,
}

#[pymethods]
impl Heap {
    #[getter]
    fn objects(&self) -> u64 {
        self.heap.objects
    }

    #[getter]
    fn references(&self) -> u64 {
        self.heap.references
    }

    #[getter]
    fn unreachable(&self) -> u64 {
        self.heap.unreachable
    }

    #[getter]
    fn time(&self) -> f64 {
        self.heap.time
    }

    #[getter]
    fn pause_ms(&self) -> f64 {
        self.heap.pause_ms
    }

    #[getter]
    fn phases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let phases = PyDict::new(py);
        for (name, milliseconds) in &self.heap.phases {
            phases.set_item(name, milliseconds)?;
        }
        Ok(phases)
    }

    #[getter]
    fn working_bytes(&self) -> u64 {
        self.heap.working_bytes
    }

    #[getter]
    fn device_bytes(&self) -> u64 {
        self.heap.device_bytes()
    }

    #[getter]
    fn host_bytes(&self) -> u64 {
        self.heap.host_bytes()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.heap.notes.clone()
    }

    #[getter]
    fn buffers(&self) -> Vec<Buffer> {
        self.heap.buffers.clone()
    }

    #[pyo3(signature = (by="owner", count=20))]
    fn top(&self, by: &str, count: usize) -> PyResult<HeapTable> {
        let by = By::from_str(by).map_err(PyValueError::new_err)?;
        Ok(HeapTable {
            table: self.heap.top(by, count),
        })
    }

    fn diff(&self, old: &Bound<'_, Self>) -> HeapDiff {
        HeapDiff {
            diff: self.heap.diff(&old.get().heap),
        }
    }

    fn to_json(&self, py: Python<'_>) -> String {
        py.detach(|| self.heap.to_json())
    }

    fn to_text(&self, py: Python<'_>) -> String {
        py.detach(|| self.heap.to_text())
    }

    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| live::heap(&self.heap))
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        live::framed(self.to_html(py))
    }

    fn __str__(&self, py: Python<'_>) -> String {
        py.detach(|| self.heap.to_text())
    }

    fn __repr__(&self) -> String {
        format!(
            "<Heap: {} objects, {} on devices, {} on the host>",
            self.heap.objects,
            human_bytes(self.heap.device_bytes()),
            human_bytes(self.heap.host_bytes())
        )
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

/// A table of memory by owner, class, module, site or category.
#[pyclass(frozen, module = "cyclescope")]
pub struct HeapTable {
    table: model::Table,
}

#[pymethods]
impl HeapTable {
    #[getter]
    fn by(&self) -> &str {
        &self.table.by
    }

    #[getter]
    fn rows(&self) -> Vec<Row> {
        self.table.rows.clone()
    }

    #[getter]
    fn omitted(&self) -> u64 {
        self.table.omitted
    }

    fn to_json(&self) -> String {
        self.table.to_json()
    }

    fn to_text(&self) -> String {
        self.table.to_text()
    }

    fn __str__(&self) -> String {
        self.table.to_text()
    }

    fn __repr__(&self) -> String {
        format!(
            "<HeapTable by {}: {} rows>",
            self.table.by,
            self.table.rows.len()
        )
    }
}

#[pymethods]
impl Row {
    fn __repr__(&self) -> String {
        let bytes = self.device_bytes.saturating_add(self.host_bytes);
        format!("<HeapRow {}: {}>", self.name, human_bytes(bytes))
    }
}

/// The changes between two heaps.
#[pyclass(frozen, module = "cyclescope")]
pub struct HeapDiff {
    diff: Diff,
}

#[pymethods]
impl HeapDiff {
    #[getter]
    fn bytes(&self) -> i64 {
        self.diff.bytes
    }

    #[getter]
    fn objects(&self) -> i64 {
        self.diff.objects
    }

    /// `(owner, bytes, buffers)` of each owner whose memory changed.
    #[getter]
    fn rows(&self) -> Vec<(String, i64, i64)> {
        let rows = self.diff.rows.iter();
        rows.map(|row| (row.name.clone(), row.bytes, row.buffers))
            .collect()
    }

    fn to_json(&self) -> String {
        self.diff.to_json()
    }

    fn to_text(&self, py: Python<'_>) -> String {
        py.detach(|| self.diff.to_text())
    }

    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| live::diff(&self.diff))
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        live::framed(self.to_html(py))
    }

    fn __str__(&self) -> String {
        self.diff.to_text()
    }

    fn __repr__(&self) -> String {
        format!(
            "<HeapDiff: {} bytes, {} owners>",
            self.diff.bytes,
            self.diff.rows.len()
        )
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
    let heap = match off(py)? {
        Some(note) => model::Heap::nothing(inspector.process_to_tell(py), note),
        None => inspector.heap(py)?,
    };
    Ok(Heap {
        heap: Arc::new(heap),
    })
}

/// A page in a frame, as a notebook shows it.
#[pyfunction]
pub fn framed(page: String) -> String {
    live::framed(page)
}
