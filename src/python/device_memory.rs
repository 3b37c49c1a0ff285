//! The memory of a device in Python, divided by use.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::state::state;
use super::{off, selection};
use crate::diagnose::division::{Pool, divide, pinned_row};
use crate::diagnose::segments::Segment;
use crate::model::device_memory::{DeviceMemory, MemoryHolder, MemoryRow};
use crate::model::human_bytes;
use crate::model::json::{model_from_json, versioned};
use crate::render::html::live;
use crate::render::text;

/// Divides the memory of a device: `numbers` are its total and free bytes and the time, `segments` what
/// `torch.cuda.memory_snapshot` lists of it, `pools` the memory of other frameworks' allocators, and `pinned` the
/// bytes of pinned host memory that PyTorch holds.
#[pyfunction]
#[pyo3(signature = (device, numbers, segments, pools, pinned = 0))]
pub fn device_memory(
    py: Python<'_>,
    device: String,
    numbers: (u64, u64, f64),
    segments: Vec<Segment>,
    pools: Vec<Pool>,
    pinned: u64,
) -> PyResult<DeviceMemory> {
    let (total, free, time) = numbers;
    let state = state(py)?;
    let mut memory = DeviceMemory {
        device,
        time,
        process: state.watcher.inspector().process_to_tell(py),
        total,
        free,
        rows: Vec::new(),
        host: Vec::new(),
        notes: Vec::new(),
    };
    if let Some(note) = off(py)? {
        memory.notes.push(note.to_owned());
    } else {
        let devices = selection(std::slice::from_ref(&memory.device))?;
        let inspector = state.watcher.inspector();
        let (pieces, notes) = inspector.pieces_on(py, &memory.device, &devices)?;
        memory.notes = notes;
        memory.rows = py.detach(|| divide(memory.in_use(), &segments, pieces, pools));
        memory.host = pinned_row(pinned).into_iter().collect();
    }
    Ok(memory)
}

#[pymethods]
impl DeviceMemory {
    /// The bytes that are not free: the sum of all rows.
    #[getter(in_use)]
    fn not_free(&self) -> u64 {
        self.in_use()
    }

    /// Reads rows that :meth:`to_json` wrote.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        model_from_json(text, "DeviceMemory", Some("device")).map_err(PyValueError::new_err)
    }

    /// The rows as JSON (`schema` 1).
    fn to_json(&self) -> String {
        format!("{:#}", versioned("device-memory", self))
    }

    /// A sentence, then each use with what holds most of it and what gives it back.
    fn to_text(&self) -> String {
        text::device_memory(self)
    }

    /// A self-contained HTML page of the rows.
    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| live::device_memory(self))
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        live::framed(self.to_html(py))
    }

    fn __str__(&self) -> String {
        text::device_memory(self)
    }

    fn __repr__(&self) -> String {
        format!(
            "<DeviceMemory {}: {} in use>",
            self.device,
            human_bytes(self.in_use())
        )
    }
}

#[pymethods]
impl MemoryRow {
    fn __repr__(&self) -> String {
        format!("<MemoryRow {}: {}>", self.name, human_bytes(self.bytes))
    }
}

#[pymethods]
impl MemoryHolder {
    fn __repr__(&self) -> String {
        format!("<MemoryHolder {}: {}>", self.name, human_bytes(self.bytes))
    }
}
