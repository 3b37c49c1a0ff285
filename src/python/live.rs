//! What is alive, for the parts of the package that say when to look: growth and out-of-memory errors.

use std::hash::BuildHasher;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustc_hash::FxBuildHasher;

use super::selection;
use super::state::{state, state_for_look};
use super::values::no_attribute;
use crate::analysis::{Moment, Monitor, has_reserve};
use crate::model::growth::{Growth, GrowthReport};
use crate::model::json::{model_from_json, to_json, versioned};
use crate::render::html::live;
use crate::render::text;

/// What does not grow any longer; the flag says that it is still kept, and has not been given back.
type Cleared = (Growth, bool);

/// Follows the live tensors of some devices; the package says when.
#[pyclass(frozen, module = "cyclescope")]
pub struct GrowthWatch {
    monitor: Monitor,
}

#[pymethods]
impl GrowthWatch {
    #[new]
    fn new(devices: Vec<String>, min_bytes: f64) -> PyResult<Self> {
        // For the steps in which memory is short.
        has_reserve();
        let monitor = Monitor::new(selection(&devices)?, min_bytes);
        Ok(Self { monitor })
    }

    #[getter]
    fn found(&self) -> Vec<Growth> {
        self.monitor.found()
    }

    /// Look at the gradients at the end of a step; returns what is new.
    fn step(
        &self,
        py: Python<'_>,
        step: u64,
        every: u64,
        line_of: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Growth>> {
        let now = Moment {
            step,
            every,
            allocated: 0,
            pinned: 0,
        };
        let line_of = |device: &str, pointer| line_of.call1((device, pointer))?.extract();
        let state = state_for_look(py)?;
        let inspector = state.watcher.inspector();
        inspector.watch_gradients(py, &self.monitor, now, &line_of)
    }

    /// Take a sample; returns what is new, and what has been released since it was reported or, with a flag,
    /// does not grow any longer. `in_use` is what PyTorch has in use on GPUs, and of pinned memory.
    fn sample(
        &self,
        py: Python<'_>,
        step: u64,
        every: u64,
        in_use: (u64, u64),
        line_of: &Bound<'_, PyAny>,
    ) -> PyResult<(Vec<Growth>, Vec<Cleared>)> {
        let now = Moment {
            step,
            every,
            allocated: in_use.0,
            pinned: in_use.1,
        };
        let line_of = |device: &str, pointer| line_of.call1((device, pointer))?.extract();
        let state = state_for_look(py)?;
        let inspector = state.watcher.inspector();
        let news = inspector.watch_growth(py, &self.monitor, now, &line_of)?;
        Ok((news.told, news.cleared))
    }

    /// Counts once more what those keep that were reported.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let state = state(py)?;
        state.watcher.inspector().end_growth(py, &self.monitor)
    }

    /// What was found so far. `next_sample` is the step of the next sample.
    #[pyo3(signature = (*, time, steps, every, samples, seconds, share, next_sample, notes))]
    #[expect(clippy::too_many_arguments, reason = "they are named")]
    fn report(
        &self,
        py: Python<'_>,
        time: f64,
        steps: u64,
        every: u64,
        samples: u64,
        seconds: f64,
        share: f64,
        next_sample: u64,
        notes: Vec<String>,
    ) -> PyResult<GrowthReport> {
        let process = state(py)?.watcher.inspector().process_to_tell(py);
        Ok(self.monitor.report(GrowthReport {
            time,
            process,
            steps,
            every,
            samples,
            seconds,
            share,
            known_from: next_sample,
            notes,
            ..GrowthReport::default()
        }))
    }
}

#[pymethods]
impl Growth {
    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Err(no_attribute(slf, name))
    }

    /// The fields as a dictionary, for JSON.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // `json.loads` may be a test's.
        let decoder = py.import("json.decoder")?.getattr("JSONDecoder")?.call0()?;
        decoder.call_method1("decode", (to_json(self),))
    }

    fn __hash__(&self) -> u64 {
        FxBuildHasher.hash_one((&self.pattern, &self.owner, self.step))
    }

    /// What grows, what to change, how much it is, and the command that says more, in a few lines.
    fn to_text(&self) -> String {
        text::paragraph(self)
    }

    fn __str__(&self) -> String {
        text::grown(self)
    }

    fn __repr__(&self) -> String {
        format!("<Growth {}: {}>", self.pattern, self.owner)
    }
}

#[pymethods]
impl GrowthReport {
    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Err(no_attribute(slf, name))
    }

    /// The groups, as they were when first told.
    #[getter]
    fn found(&self) -> Vec<Growth> {
        self.found.iter().map(|it| it.growth.clone()).collect()
    }

    /// How much memory has grown, and what explains it, in one line.
    #[getter]
    fn headline(&self) -> String {
        text::growth_headline(self)
    }

    fn to_json(&self) -> String {
        versioned("growth", self).to_string()
    }

    fn to_text(&self) -> String {
        text::growth(self)
    }

    fn to_html(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| live::growth(self)))
    }

    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        model_from_json(text, "GrowthReport", None).map_err(PyValueError::new_err)
    }
}

/// True if some thread is in a backward pass of PyTorch's.
#[pyfunction]
pub fn is_backward_running(py: Python<'_>) -> PyResult<bool> {
    Ok(state(py)?.watcher.inspector().is_backward_running(py))
}
