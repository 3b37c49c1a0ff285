//! Reports as Python objects: read-only views of the model.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::ops::Deref;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::values::class;
use crate::capture::is_library_file;
use crate::graph::hide_unless_code;
use crate::model::redact::without_folder;
use crate::model::report::{
    Buffer, Cut, Known, Library, LineEdit, Patch, Report, SourceLines, Step,
};
use crate::model::shared::Shared;
use crate::model::{human_bytes, json, report as model};
use crate::render::{dot, html, markdown, svg, text};

/// True if what Python prints goes to a terminal whose user did not say no to colours
/// (<https://no-color.org>).
///
/// Where `sys.stdout` has been replaced, by a notebook or a test, nobody knows where it leads; it is
/// not asked, as its `isatty` would be the program's own code.
fn stdout_shows_color(py: Python<'_>) -> bool {
    let original = || {
        let sys = py.import("sys")?;
        Ok::<bool, PyErr>(sys.getattr("stdout")?.is(&sys.getattr("__stdout__")?))
    };
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_none_or(|value| value == "dumb");
    !refused && std::io::stdout().is_terminal() && original().unwrap_or(false)
}

/// What one collection, or one explicit check, found.
#[pyclass(frozen, module = "cyclescope")]
pub struct CycleReport {
    report: Arc<Report>,
}

impl CycleReport {
    pub fn new(report: Arc<Report>) -> Self {
        Self { report }
    }

    fn leaks_that(&self, choose: impl Fn(&model::Leak) -> bool) -> Vec<Leak> {
        (0..self.report.leaks.len())
            .filter(|&index| choose(&self.report.leaks[index]))
            .map(|index| Leak {
                report: Arc::clone(&self.report),
                index,
            })
            .collect()
    }

    /// One report of all that some reports found.
    ///
    /// # Errors
    /// If there is none.
    pub fn merged(
        py: Python<'_>,
        reports: &[Py<Self>],
        merge: fn(&[&Report]) -> Option<Report>,
    ) -> PyResult<Self> {
        let reports: Vec<Arc<Report>> = reports
            .iter()
            .map(|report| Arc::clone(&report.get().report))
            .collect();
        let merged = py.detach(|| {
            let reports: Vec<&Report> = reports.iter().map(AsRef::as_ref).collect();
            merge(&reports)
        });
        let merged = merged.ok_or_else(|| {
            PyValueError::new_err("there is nothing to merge: give one report or more")
        })?;
        Ok(Self::new(Arc::new(merged)))
    }

    /// A report made of this one.
    pub fn map(&self, of: impl FnOnce(Report) -> Report) -> Self {
        Self::new(Arc::new(of(Report::clone(&self.report))))
    }

    /// The report with only those of its leaks that have one of the signatures.
    pub fn with_only(&self, signatures: &[String]) -> Self {
        self.map(|mut report| {
            report
                .leaks
                .retain(|leak| signatures.contains(&leak.signature));
            report
        })
    }

    /// The report with the stacks that allocated its buffers, by device and pointer.
    ///
    /// The stacks come innermost frame first; of each, the library's frames before the first of the
    /// program's own are left out; in a `redacted` report, their folders too.
    pub fn with_allocations(
        &self,
        stacks: &HashMap<(String, u64), Vec<Frame>>,
        redacted: bool,
    ) -> Self {
        let mut report = Report::clone(&self.report);
        for buffer in report.leaks.iter_mut().flat_map(|leak| &mut leak.buffers) {
            if let Some(stack) = stacks.get(&(buffer.device.clone(), buffer.pointer)) {
                let own = stack.iter().position(|(file, ..)| !is_library_file(file));
                buffer.allocation = stack[own.unwrap_or(0)..]
                    .iter()
                    .map(|(file, line, function)| {
                        let file = if redacted { without_folder(file) } else { file };
                        let mut function = function.clone();
                        if redacted {
                            hide_unless_code(&mut function);
                        }
                        format!("{file}:{line} {function}")
                    })
                    .collect();
            }
        }
        Self::new(Arc::new(report))
    }
}

/// File, line and function of a stack.
pub type Frame = (String, u32, String);

#[pymethods]
impl CycleReport {
    #[getter]
    fn leaks(&self) -> Vec<Leak> {
        self.leaks_that(|_| true)
    }

    #[getter]
    fn yours(&self) -> Vec<Leak> {
        self.leaks_that(|leak| !leak.is_library())
    }

    #[getter]
    fn library(&self) -> Vec<Leak> {
        self.leaks_that(model::Leak::is_library)
    }

    #[getter]
    fn bytes_held(&self) -> u64 {
        self.report.bytes_held()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.report.notes.clone()
    }

    #[getter]
    fn garbage_objects(&self) -> u64 {
        self.report.collection.garbage_objects
    }

    #[getter]
    fn time(&self) -> f64 {
        self.report.time
    }

    #[getter]
    fn importing(&self) -> Option<&str> {
        self.report.collection.importing.as_deref()
    }

    #[getter]
    fn pause_us(&self) -> u64 {
        self.report.collection.pause_us
    }

    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| html::html(&self.report))
    }

    fn to_dot(&self, py: Python<'_>) -> String {
        py.detach(|| dot::dot(&self.report))
    }

    fn to_json(&self, py: Python<'_>) -> String {
        py.detach(|| json::to_json(&*self.report))
    }

    fn to_svg(&self, py: Python<'_>) -> String {
        py.detach(|| svg::sheet(&self.report))
    }

    fn to_markdown(&self, py: Python<'_>) -> String {
        py.detach(|| markdown::markdown(&self.report))
    }

    /// Which process of a job held how much, as text.
    fn table_of_processes(&self, py: Python<'_>) -> String {
        py.detach(|| text::table_of_processes(&self.report))
    }

    #[pyo3(signature = (color=None))]
    fn to_text(&self, py: Python<'_>, color: Option<bool>) -> String {
        let color = color.unwrap_or_else(|| stdout_shows_color(py));
        py.detach(|| text::colored_trace(&self.report, color))
    }

    fn __str__(&self, py: Python<'_>) -> String {
        py.detach(|| text::trace(&self.report))
    }

    fn __repr__(&self) -> String {
        let leaks = self.report.leaks.len();
        format!(
            "<CycleReport: {leaks} leaks, {}>",
            human_bytes(self.report.bytes_held())
        )
    }

    /// The page in a frame of its own, so that its style does not leak into the notebook.
    fn _repr_html_(&self, py: Python<'_>) -> String {
        py.detach(|| html::framed(&self.report))
    }

    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| json::from_json(text))
            .map(|report| Self::new(Arc::new(report)))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// A group of reference cycles that kept device memory alive. It looks into its report, whose graphs may be large.
#[pyclass(frozen, module = "cyclescope")]
pub struct Leak {
    report: Arc<Report>,
    index: usize,
}

impl Deref for Leak {
    type Target = model::Leak;

    fn deref(&self) -> &model::Leak {
        &self.report.leaks[self.index]
    }
}

class! {
    impl Leak {
        get signature: String, pattern: Option<String>, summary: String, count: u64, frozen: u64, objects: u64,
            bytes_held: u64, shared: Vec<Shared>, bytes_freed: Option<u64>, buffers: Vec<Buffer>, buffers_omitted: u64,
            cycle: Vec<Step>, cycle_omitted: u64, cuts: Vec<Cut>, library: Option<Library>,
            known: Option<Known>, source: Option<SourceLines>, patch: Option<Patch>;

        #[getter(also_held_by)]
        fn other_holders(&self) -> Vec<&str> {
            model::Leak::also_held_by(self)
        }

        #[getter]
        fn advice(&self) -> &str {
            &self.advice.text
        }

        #[getter]
        fn before(&self) -> Option<&str> {
            self.advice.before.as_deref()
        }

        #[getter]
        fn after(&self) -> Option<&str> {
            self.advice.after.as_deref()
        }

        fn to_svg(&self, py: Python<'_>) -> String {
            py.detach(|| svg::svg(self))
        }

        fn to_markdown(&self, py: Python<'_>) -> String {
            py.detach(|| markdown::leak_markdown(self))
        }

        fn to_text(&self, py: Python<'_>) -> String {
            py.detach(|| text::warning(self))
        }

        fn __str__(&self, py: Python<'_>) -> String {
            py.detach(|| text::one_line(self))
        }

        fn __repr__(&self) -> String {
            let model::Leak { signature, bytes_held, summary, .. } = &**self;
            format!("<Leak {signature}: {}, {summary}>", human_bytes(*bytes_held))
        }
    }
}

#[pymethods]
impl Step {
    fn __repr__(&self) -> String {
        format!("<Step {} {}>", self.label, self.edge)
    }
}

#[pymethods]
impl Buffer {
    fn __repr__(&self) -> String {
        format!(
            "<Buffer {} {} on {} at {:#x}>",
            self.type_name,
            human_bytes(self.bytes),
            self.device,
            self.pointer
        )
    }
}

#[pymethods]
impl Cut {
    fn __repr__(&self) -> String {
        format!("<Cut {}{}>", self.owner, self.edge)
    }
}

#[pymethods]
impl Library {
    fn __repr__(&self) -> String {
        match &self.version {
            Some(version) => format!("<Library {} {version}>", self.name),
            None => format!("<Library {}>", self.name),
        }
    }
}

#[pymethods]
impl SourceLines {
    fn __repr__(&self) -> String {
        format!("<SourceLines {}:{}>", self.file, self.marked)
    }
}

#[pymethods]
impl Patch {
    fn __repr__(&self) -> String {
        format!("<Patch {}:{}>", self.file, self.line)
    }
}

#[pymethods]
impl LineEdit {
    fn __repr__(&self) -> String {
        format!("<LineEdit {}: {} removed>", self.line, self.removed)
    }
}

#[pymethods]
impl Known {
    fn __repr__(&self) -> String {
        format!("<Known {}>", self.name)
    }
}
