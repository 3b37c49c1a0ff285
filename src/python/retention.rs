//! What keeps objects alive, for Python.

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use super::heap::settle;
use super::off;
use super::state::state_for_look;
use super::values::class;
use crate::model::json::{model_from_json, to_json};
use crate::model::report::Step;
use crate::model::retention::{Keeper, Path, Retention, RootKind};
use crate::model::words::counted;
use crate::render::html::live;
use crate::render::text;

class! {
    impl Retention {
        get
            /// Distinct paths from GC roots, shortest and most telling first.
            paths: Vec<Path>,
            /// Paths from an object through C++ back to itself, which no collection can free.
            loops: Vec<Path>,
            /// The references that keep the objects alive: each does so by itself.
            ///
            /// The nearest that the program can remove, the first 1,024.
            keepers: Vec<Keeper>,
            /// Number of further such references.
            keepers_omitted: u64,
            /// True if it is proven that the objects are freed once all ``keepers``, also those that are not listed, are
            /// removed.
            is_enough: bool,
            /// True if only a garbage collection frees them then, as a cycle or garbage holds them too.
            by_collection: bool,
            /// True if nothing holds the objects, but no collection frees them either.
            is_uncollectable: bool,
            /// Number of further paths.
            paths_omitted: u64,
            /// Remarks about the result.
            notes: Vec<String>,
            /// How long the search paused the program, in milliseconds.
            pause_ms: f64,
            /// When the objects were inspected, in seconds since 1970.
            time: f64;

        /// Read a result that :meth:`to_json` wrote.
        ///
        /// Raises:
        ///     ValueError: If ``text`` is not such a result.
        #[staticmethod]
        fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
            py.detach(|| model_from_json(text, "Retention", None))
                .map_err(PyValueError::new_err)
        }

        /// The result as JSON (``schema`` 1); :meth:`from_json` reads it back.
        fn to_json(&self) -> String {
            to_json(self)
        }

        /// The same text as ``str()``: the paths, with lines of at most 100 characters.
        fn to_text(&self, py: Python<'_>) -> String {
            py.detach(|| text::retention(self))
        }

        /// A self-contained HTML page: each path step by step.
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
                "<Retention: {}, {}>",
                counted(self.paths.len() as u64, "path", "paths"),
                counted(self.loops.len() as u64, "loop", "loops")
            )
        }
    }
}

class! {
    impl Keeper {
        get
            /// The reference in one line.
            words: String,
            /// A path through it to the object.
            path: Path,
            /// Index of the step of ``path`` that has the reference.
            step: u64,
            /// True for a variable of a running function: it goes when the function returns.
            goes_by_itself: bool,
            /// What to do instead of removing the reference, if a library has something for it: ``call
            /// `prepare.cache_clear()```, ``call `torch._dynamo.reset()```; else empty.
            release: String;

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
        get
            /// Kind of root: ``module``, ``local``, ``library``, ``outside``, ``garbage`` or ``itself``.
            ///
            /// ``library`` is what the standard library keeps: a thread, a timer, a context. ``outside`` is
            /// C or C++.
            root: RootKind,
            /// Readable name of the root.
            root_words: String,
            /// The whole path in one line.
            words: String,
            /// The objects on the path, the one asked about last.
            steps: Vec<Step>,
            /// Number of paths that differ from this one only in an index.
            alike: u64;

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

/// Find the paths from GC roots that keep objects alive.
///
/// Args:
///     objects: One or more tensors, arrays, containers or other objects that the garbage collector tracks.
///     redact: See `warn_tensor_cycles`.
///
/// Raises:
///     ValueError: If a setting is invalid.
///     TypeError: If no object is given, or the collector does not track one, such as a number.
#[pyfunction]
#[pyo3(signature = (*objects, redact=None), text_signature = "(*objects, redact=False)")]
pub fn why_alive(
    py: Python<'_>,
    objects: &Bound<'_, PyTuple>,
    redact: Option<&Bound<'_, PyAny>>,
) -> PyResult<Retention> {
    settle(py, redact)?;
    if let Some(note) = off(py)? {
        return Ok(Retention::nothing(note));
    }
    state_for_look(py)?
        .watcher
        .inspector()
        .why_alive(py, objects)
}
