//! Reports as Python objects: read-only views of the model.

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal;
use std::ops::Deref;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::values::{class, no_attribute, shown};
use crate::capture::is_library_file;
use crate::graph::hide_unless_code;
use crate::model::counts::LeakTally;
use crate::model::redact::without_folder;
use crate::model::report::{Buffer, Cut, Known, Library, Report, Step};
use crate::model::shared::Shared;
use crate::model::source::{LineEdit, Patch, SourceLines};
use crate::model::words::counted;
use crate::model::{human_bytes, json, report as model};
use crate::render::{dot, html, markdown, svg, text};

/// True if what Python prints goes to a terminal, and the user did not say otherwise: `NO_COLOR`
/// (<https://no-color.org>) comes first, then `FORCE_COLOR` (<https://force-color.org>).
///
/// Where `sys.stdout` has been replaced, by a notebook or a test, nobody knows where it leads; it is
/// not asked, as its `isatty` would be the program's own code.
fn stdout_shows_color(py: Python<'_>) -> bool {
    let original = || {
        let sys = py.import("sys")?;
        Ok::<bool, PyErr>(sys.getattr("stdout")?.is(&sys.getattr("__stdout__")?))
    };
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_set("NO_COLOR") || is_set("FORCE_COLOR") {
        return !is_set("NO_COLOR");
    }
    let is_dumb = std::env::var_os("TERM").is_none_or(|value| value == "dumb");
    !is_dumb && std::io::stdout().is_terminal() && original().unwrap_or(false)
}

/// The leaks found by one collection or one explicit check.
///
/// ``str()`` returns the leak trace without colour. Notebooks show the HTML page.
#[pyclass(frozen, module = "cyclescope")]
pub struct CycleReport {
    report: Arc<Report>,
}

impl CycleReport {
    pub fn new(report: Arc<Report>) -> Self {
        Self { report }
    }

    /// The report itself.
    pub fn report(&self) -> &Report {
        &self.report
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

    /// The signatures of some of its leaks.
    pub fn signatures(&self, choose: impl Fn(&model::Leak) -> bool) -> Vec<String> {
        let leaks = self.report.leaks.iter().filter(|leak| choose(leak));
        leaks.map(|leak| leak.signature.clone()).collect()
    }

    /// As [`Report::epochs`].
    pub fn epochs(&self) -> HashMap<String, Vec<Option<u64>>> {
        self.report.epochs.clone()
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
    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Err(no_attribute(slf, name))
    }

    /// The distinct leaks, sorted by bytes held, largest first.
    #[getter]
    fn leaks(&self) -> Vec<Leak> {
        self.leaks_that(|_| true)
    }

    /// The leaks that are, or may be, in the program's own code.
    #[getter]
    fn yours(&self) -> Vec<Leak> {
        self.leaks_that(|leak| !leak.is_library())
    }

    /// The leaks in libraries: those with :attr:`Leak.library` or :attr:`Leak.known`.
    #[getter]
    fn library(&self) -> Vec<Leak> {
        self.leaks_that(model::Leak::is_library)
    }

    /// Total bytes of device memory that the leaks held.
    #[getter]
    fn bytes_held(&self) -> u64 {
        self.report.bytes_held()
    }

    /// Remarks about the report, such as limits that were reached.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.report.notes.clone()
    }

    /// Total number of unreachable objects.
    #[getter]
    fn garbage_objects(&self) -> u64 {
        self.report.collection.garbage_objects
    }

    /// Time when the collection ended, in seconds since 1970.
    #[getter]
    fn time(&self) -> f64 {
        self.report.time
    }

    /// The library module that was being imported meanwhile, if any.
    #[getter]
    fn importing(&self) -> Option<&str> {
        self.report.collection.importing.as_deref()
    }

    /// How long the inspection and analysis paused the program, in microseconds.
    #[getter]
    fn pause_us(&self) -> u64 {
        self.report.collection.pause_us
    }

    /// The report with what has changed since an earlier one, by signature: its page, text and Markdown
    /// say which leaks are new, have grown, or are gone.
    fn against(&self, py: Python<'_>, earlier: &Bound<'_, Self>) -> Self {
        let earlier = Arc::clone(&earlier.get().report);
        py.detach(|| Self::new(Arc::new(self.report.against(&earlier))))
    }

    /// The signatures of the leaks that an earlier report has too, each with the one there: another if
    /// lines have moved.
    fn known_again(&self, py: Python<'_>, earlier: &Bound<'_, Self>) -> BTreeMap<String, String> {
        let earlier = Arc::clone(&earlier.get().report);
        py.detach(|| {
            let again = self.report.known_again(&earlier).into_iter();
            again
                .map(|(now, before)| (now.to_owned(), before.signature.clone()))
                .collect()
        })
    }

    /// The report as a self-contained HTML page.
    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| html::html(&self.report))
    }

    /// The leaks as a Graphviz graph.
    fn to_dot(&self, py: Python<'_>) -> String {
        py.detach(|| dot::dot(&self.report))
    }

    /// The report as JSON (``schema`` 1); :meth:`from_json` reads it back.
    fn to_json(&self, py: Python<'_>) -> String {
        py.detach(|| json::to_json(&*self.report))
    }

    /// Pickles the report as its JSON, so that what keeps one can be sent to another process.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let read = py.get_type::<Self>().getattr("from_json")?;
        Ok((read, (self.to_json(py),)))
    }

    /// The leaks as one SVG drawing.
    fn to_svg(&self, py: Python<'_>) -> String {
        py.detach(|| svg::sheet(&self.report))
    }

    /// The leaks as Markdown for an issue tracker.
    ///
    /// The text contains no times, addresses or indices, so equal leaks give equal text. Names of
    /// the program appear only as code, so that trackers do not turn them into links or mentions.
    fn to_markdown(&self, py: Python<'_>) -> String {
        py.detach(|| markdown::markdown(&self.report))
    }

    /// The MiB that each leak held in each process of a job, as text.
    fn table_of_processes(&self, py: Python<'_>) -> String {
        py.detach(|| text::table_of_processes(&self.report))
    }

    /// The leak trace, with lines of at most 100 characters.
    ///
    /// Args:
    ///     color: True for terminal colours, False for plain text. With None, ``NO_COLOR`` and
    ///         ``FORCE_COLOR`` decide, or else colours are used if ``sys.stdout`` is the original
    ///         stream and a terminal, and ``TERM`` is set and not ``dumb``.
    #[pyo3(signature = (color=None))]
    fn to_text(&self, py: Python<'_>, color: Option<bool>) -> String {
        let color = color.unwrap_or_else(|| stdout_shows_color(py));
        py.detach(|| text::colored_trace(&self.report, color))
    }

    fn __str__(&self, py: Python<'_>) -> String {
        py.detach(|| text::trace(&self.report))
    }

    fn __repr__(&self) -> String {
        format!(
            "<CycleReport: {}, {}>",
            counted(self.report.leaks.len() as u64, "leak", "leaks"),
            human_bytes(self.report.bytes_held())
        )
    }

    /// The page in a frame of its own, so that its style does not leak into the notebook.
    fn _repr_html_(&self, py: Python<'_>) -> String {
        py.detach(|| html::framed(&self.report))
    }

    /// Read a report written by :meth:`to_json`.
    ///
    /// Raises:
    ///     ValueError: If ``text`` is not a report, or comes from a newer version of cyclescope.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        py.detach(|| json::from_json(text))
            .map(|report| Self::new(Arc::new(report)))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

#[pymethods]
impl LeakTally {
    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Err(no_attribute(slf, name))
    }

    fn __repr__(&self) -> String {
        let LeakTally {
            signature, summary, ..
        } = self;
        let (count, bytes) = (self.count, human_bytes(self.bytes));
        format!("<LeakTally {signature}: {count} × {summary}, {bytes}>")
    }
}

/// A reference cycle that kept device memory alive, with all its occurrences.
// It looks into its report, whose graphs may be large.
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
        get
            /// Hash that identifies this leak: stable across runs, processes and machines.
            signature: String,
            /// The signature without the line numbers of the program's functions; None if it has none.
            ///
            /// :meth:`CycleReport.against` and ``cyclescope diff`` recognize a leak by it when code above its functions
            /// was added or removed.
            outline: Option<String>,
            /// Name of the recognised pattern, such as ``closure-captures-owner``; None if unknown.
            pattern: Option<String>,
            /// The cycle in one line.
            summary: String,
            /// Number of occurrences.
            count: u64,
            /// Number of occurrences that no collection frees, because objects that ``gc.freeze()`` excluded keep them
            /// alive.
            frozen: u64,
            /// Number of objects in the cycles, over all occurrences.
            objects: u64,
            /// Bytes of the buffers that the leak held, each storage counted once.
            bytes_held: u64,
            /// Bytes that other leaks hold too. They count once in :attr:`CycleReport.bytes_held`.
            shared: Vec<Shared>,
            /// Bytes that the framework's allocator got back; None if not measured.
            bytes_freed: Option<u64>,
            /// The device buffers that the leak held, largest first; at most 100.
            buffers: Vec<Buffer>,
            /// Number of buffers left out of ``buffers``; ``bytes_held`` includes them.
            buffers_omitted: u64,
            /// The most telling cycle; its last step refers to the first.
            cycle: Vec<Step>,
            /// Number of steps left out of the middle of ``cycle``, if it is long.
            cycle_omitted: u64,
            /// The references to remove, best first; see :attr:`also_held_by`.
            cuts: Vec<Cut>,
            /// The library whose code made the whole cycle; None if some of it may be the program's.
            library: Option<Library>,
            /// The known library leak that this leak matches; None if there is none.
            known: Option<Known>,
            /// The program's own lines that make the reference to remove; None if they could not be read
            /// or do not fit what is known of the objects.
            source: Option<SourceLines>,
            /// The lines of each statement that may have made the reference, where several may have; see
            /// :attr:`Cut.candidates`.
            candidate_sources: Vec<SourceLines>,
            /// The change that removes the reference, if nothing is found that could notice it.
            patch: Option<Patch>;

        /// Signatures of the other leaks in :attr:`shared`.
        #[getter(also_held_by)]
        fn other_holders(&self) -> Vec<&str> {
            model::Leak::also_held_by(self)
        }

        /// The command that prints the patch or, where there is none, explains the pattern.
        #[getter]
        fn command(&self) -> Option<String> {
            text::command(self)
        }

        /// What to change, as text.
        #[getter]
        fn advice(&self) -> &str {
            &self.advice.text
        }

        /// Example of the code before the fix, if the pattern is known; :attr:`source` is yours.
        #[getter]
        fn before(&self) -> Option<&str> {
            self.advice.before.as_deref()
        }

        /// Example of the code after the fix, if the pattern is known.
        #[getter]
        fn after(&self) -> Option<&str> {
            self.advice.after.as_deref()
        }

        /// The leak as an SVG drawing.
        fn to_svg(&self, py: Python<'_>) -> String {
            py.detach(|| svg::svg(self))
        }

        /// The leak as Markdown; see :meth:`CycleReport.to_markdown`.
        fn to_markdown(&self, py: Python<'_>) -> String {
            py.detach(|| markdown::leak_markdown(self))
        }

        /// What is held, what to change and the command that says more, in a few lines.
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

shown! {
    Step(it) => format!("<Step {} {}>", it.label, it.edge);
    Buffer(it) => {
        let bytes = human_bytes(it.bytes);
        format!("<Buffer {} {bytes} on {} at {:#x}>", it.type_name, it.device, it.pointer)
    };
    Cut(it) => format!("<Cut {}{}>", it.owner, it.edge);
    Library(it) => match &it.version {
        Some(version) => format!("<Library {} {version}>", it.name),
        None => format!("<Library {}>", it.name),
    };
    SourceLines(it) => format!("<SourceLines {}:{}>", it.file, it.marked);
    Patch(it) => format!("<Patch {}:{}>", it.file, it.line);
    LineEdit(it) => format!("<LineEdit {}: {} removed>", it.line, it.removed);
    Known(it) => format!("<Known {}>", it.name);
}
