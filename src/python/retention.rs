//! What keeps objects alive, for Python.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use super::heap::settle;
use super::off;
use super::state::state;
use crate::model::report::Step;
use crate::model::retention as kept;
use crate::render::html::live;
use crate::render::text;

/// The paths that keep objects alive.
#[pyclass(frozen, module = "cyclescope")]
pub struct Retention {
    retention: kept::Retention,
}

fn paths(paths: &[kept::Path]) -> Vec<RetentionPath> {
    let paths = paths.iter().cloned();
    paths.map(|path| RetentionPath { path }).collect()
}

#[pymethods]
impl Retention {
    #[getter]
    fn paths(&self) -> Vec<RetentionPath> {
        paths(&self.retention.paths)
    }

    #[getter]
    fn loops(&self) -> Vec<RetentionPath> {
        paths(&self.retention.loops)
    }

    #[getter]
    fn paths_omitted(&self) -> u64 {
        self.retention.paths_omitted
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.retention.notes.clone()
    }

    #[getter]
    fn pause_ms(&self) -> f64 {
        self.retention.pause_ms
    }

    fn to_json(&self) -> String {
        self.retention.to_json()
    }

    fn to_text(&self, py: Python<'_>) -> String {
        py.detach(|| text::retention(&self.retention))
    }

    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| live::retention(&self.retention))
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        live::framed(self.to_html(py))
    }

    fn __str__(&self) -> String {
        text::retention(&self.retention)
    }

    fn __repr__(&self) -> String {
        let Self { retention } = self;
        format!(
            "<Retention: {} paths, {} loops>",
            retention.paths.len(),
            retention.loops.len()
        )
    }
}

/// A way from a root to an object: a sequence of steps.
#[pyclass(frozen, sequence, module = "cyclescope")]
pub struct RetentionPath {
    path: kept::Path,
}

#[pymethods]
impl RetentionPath {
    #[getter]
    fn root(&self) -> &'static str {
        self.path.root.name()
    }

    #[getter]
    fn root_words(&self) -> &str {
        &self.path.root_words
    }

    #[getter]
    fn words(&self) -> &str {
        &self.path.words
    }

    #[getter]
    fn alike(&self) -> u64 {
        self.path.alike
    }

    #[getter]
    fn steps(&self) -> Vec<Step> {
        self.path.steps.clone()
    }

    fn __len__(&self) -> usize {
        self.path.steps.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Step> {
        let length = self.path.steps.len();
        let place = if index < 0 {
            index + length as isize
        } else {
            index
        };
        usize::try_from(place)
            .ok()
            .and_then(|place| self.path.steps.get(place))
            .cloned()
            .ok_or_else(|| {
                PyIndexError::new_err(format!(
                    "step index {index} out of range for a path of {length} steps"
                ))
            })
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.steps())?.try_iter()
    }

    fn __str__(&self) -> &str {
        &self.path.words
    }

    fn __repr__(&self) -> String {
        format!("<RetentionPath {}>", self.path.words)
    }
}

/// What keeps some objects alive.
#[pyfunction]
#[pyo3(signature = (*objects, redact=false))]
pub fn why_alive(
    py: Python<'_>,
    objects: &Bound<'_, PyTuple>,
    redact: bool,
) -> PyResult<Retention> {
    settle(py, redact)?;
    if let Some(note) = off(py)? {
        let retention = kept::Retention::nothing(note);
        return Ok(Retention { retention });
    }
    let retention = state(py)?.watcher.inspector().why_alive(py, objects)?;
    Ok(Retention { retention })
}
