//! What `cyclescope attach` asks in a process that may not have the package: only this module is loaded there, and
//! nothing of the package is imported. The process that asked reads the JSON.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::selection;
use super::state::state;
use crate::model::json::to_json;

/// The live heap.
#[pyfunction]
pub fn attached_heap(py: Python<'_>) -> PyResult<String> {
    let heap = state(py)?.watcher.inspector().heap(py)?;
    Ok(py.detach(|| to_json(&heap)))
}

/// The cycles that hold memory now. Nothing is collected.
#[pyfunction]
pub fn attached_cycles(py: Python<'_>, devices: Vec<String>) -> PyResult<String> {
    let devices = selection(&devices)?;
    let report = state(py)?.watcher.inspector().find(py, &devices)?;
    Ok(py.detach(|| to_json(&report)))
}

/// What keeps some objects alive.
#[pyfunction]
#[pyo3(signature = (*objects))]
pub fn attached_why(py: Python<'_>, objects: &Bound<'_, PyTuple>) -> PyResult<String> {
    let retention = state(py)?.watcher.inspector().why_alive(py, objects)?;
    Ok(py.detach(|| to_json(&retention)))
}
