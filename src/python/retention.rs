//! What keeps objects alive, for Python.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use super::heap::settle;
use super::off;
use super::state::state;
use super::values::class;
use crate::model::json::to_json;
use crate::model::report::Step;
use crate::model::retention::{Keeper, Path, Retention, RootKind};
use crate::render::html::live;
use crate::render::text;

class! {
    impl Retention {
        get paths: Vec<Path>, loops: Vec<Path>, keepers: Vec<Keeper>, is_enough: bool, by_collection: bool, is_uncollectable: bool, paths_omitted: u64, notes: Vec<String>, pause_ms: f64;

        fn to_json(&self) -> String {
            to_json(self)
        }

        fn to_text(&self, py: Python<'_>) -> String {
            py.detach(|| text::retention(self))
        }

        fn to_html(&self, py: Python<'_>) -> String {
            py.detach(|| live::retention(self))
        }

        fn _repr_html_(&self, py: Python<'_>) -> String {
            live::framed(self.to_html(py))
        }

        fn __str__(&self) -> String {
            text::retention(self)
        }

        fn __repr__(&self) -> String {
            format!(
                "<Retention: {} paths, {} loops>",
                self.paths.len(),
                self.loops.len()
            )
        }
    }
}

class! {
    impl Keeper {
        get words: String, path: Path, step: u64, goes_by_itself: bool;

        fn __str__(&self) -> &str {
            &self.words
        }

        fn __repr__(&self) -> String {
            format!("<Keeper {}>", self.words)
        }
    }
}

class! {
    impl Path {
        get root: RootKind, root_words: String, words: String, steps: Vec<Step>, alike: u64;

        fn __len__(&self) -> usize {
            self.steps.len()
        }

        fn __getitem__(&self, index: isize) -> PyResult<Step> {
            let length = self.steps.len();
            let place = if index < 0 {
                index + length as isize
            } else {
                index
            };
            usize::try_from(place)
                .ok()
                .and_then(|place| self.steps.get(place))
                .cloned()
                .ok_or_else(|| {
                    PyIndexError::new_err(format!(
                        "step index {index} out of range for a path of {length} steps"
                    ))
                })
        }

        fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
            PyList::new(py, self.steps.clone())?.try_iter()
        }

        fn __str__(&self) -> &str {
            &self.words
        }

        fn __repr__(&self) -> String {
            format!("<RetentionPath {}>", self.words)
        }
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
        return Ok(Retention::nothing(note));
    }
    state(py)?.watcher.inspector().why_alive(py, objects)
}
