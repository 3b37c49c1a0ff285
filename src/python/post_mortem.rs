//! The post-mortem of a request for memory that failed, put together part by part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::report::CycleReport;
use super::selection;
use super::state::state;
use super::values::{no_attribute, shown};
use crate::analysis::{MemoryInUse, Pieces};
use crate::diagnose::growth::GARBAGE_ACCUMULATES;
use crate::diagnose::segments::{Segment, count, would_fit, would_fit_beside};
use crate::diagnose::verdict::{Needs, judge};
use crate::model::growth::{Grown, GrowthReport};
use crate::model::heap::{Buffer, Heap};
use crate::model::json::{model_from_json, versioned};
use crate::model::post_mortem::{Finding, Numbers, PostMortem};
use crate::model::report::Report;
use crate::model::retention::UNREACHABLE;
use crate::model::words::{counted, grouped, with_each_index, without_indices};
use crate::render::html::live::{self, Looked};
use crate::render::text;

/// How many owners of memory are listed.
const OWNERS: usize = 8;
/// How many leaks are listed, in one line each.
const LEAKS: usize = 5;

/// What is known so far; the package says which part is looked at when, and whether there is time.
#[pyclass(module = "cyclescope")]
#[derive(Default)]
pub struct Examination {
    found: PostMortem,
    segments: Vec<Segment>,
    stream: Option<i64>,
    needs: Needs<'static>,
    /// As [`Needs::grown`].
    grown: Vec<u64>,
    heap: Option<Heap>,
    grew: Option<GrowthReport>,
    leaks: Option<Report>,
}

impl Examination {
    /// Whether the request would fit without the memory at some addresses; `None` if that is not known.
    fn fits_without(&self, freed: impl IntoIterator<Item = u64>) -> Option<bool> {
        let numbers = self.found.numbers.as_ref()?;
        let is_known = !self.segments.is_empty();
        is_known.then(|| would_fit(numbers, &self.segments, freed, self.stream))
    }
}

#[pymethods]
impl Examination {
    #[new]
    fn new(py: Python<'_>, device: String, time: f64) -> PyResult<Self> {
        let mut made = Self::default();
        (made.found.device, made.found.time) = (device, time);
        made.found.process = state(py)?.watcher.inspector().process_to_tell(py);
        Ok(made)
    }

    /// What is known so far.
    #[getter]
    fn found(&self) -> PostMortem {
        self.found.clone()
    }

    /// The page of what is known so far.
    fn page(&self, py: Python<'_>) -> String {
        let looked = Looked {
            heap: self.heap.as_ref(),
            grew: self.grew.as_ref(),
            leaks: self.leaks.as_ref(),
        };
        py.detach(|| live::post_mortem(&self.found, looked))
    }

    /// Takes note of what is not examined, and why.
    fn leave_out(&mut self, part: String) {
        self.found.left_out.push(part);
    }

    /// Says why memory ran out, as far as is known, after so many seconds.
    fn judge(&mut self, seconds: f64) {
        self.found.seconds = seconds;
        let needs = Needs {
            grown: &self.grown,
            ..self.needs
        };
        judge(&mut self.found, needs);
    }

    /// The Python stack of the request.
    fn stack(&mut self, lines: Vec<String>) {
        self.found.requested_at = lines;
    }

    /// The allocator's segments, as `torch.cuda.memory_snapshot` lists them, and the stream of the request.
    fn segments(&mut self, segments: Vec<Segment>, stream: Option<i64>) {
        (self.segments, self.stream) = (segments, stream);
    }

    /// What the observer was called with, and what the allocator and the driver say.
    #[pyo3(signature = (device, request, *, reserved, allocated, total))]
    fn numbers(
        &mut self,
        device: u32,
        request: (u64, u64, u64),
        reserved: u64,
        allocated: u64,
        total: Option<u64>,
    ) {
        let (requested, limit, free) = request;
        let known = free.saturating_add(reserved);
        let mut numbers = Numbers {
            device,
            requested,
            limit,
            free,
            reserved,
            allocated,
            elsewhere: total.map(|total| total.saturating_sub(known)),
            ..Numbers::default()
        };
        count(&mut numbers, &self.segments);
        self.found.numbers = Some(numbers);
    }

    /// The garbage in cycles.
    fn cycles(&mut self, py: Python<'_>) -> PyResult<()> {
        let devices = selection(std::slice::from_ref(&self.found.device))?;
        let state = state(py)?;
        let inspector = state.watcher.inspector();
        let report = inspector.find_up_to(py, &devices, None)?;
        if report.leaks.is_empty() {
            return Ok(());
        }
        let leaks = report.leaks.iter();
        let mut pieces: Vec<u64> = leaks
            .flat_map(|it| &it.buffers)
            .map(|it| it.pointer)
            .collect();
        // A report lists a hundred of each leak.
        if report.leaks.iter().any(|leak| leak.buffers_omitted > 0) {
            pieces.extend(pointers(&inspector.unreachable_memory(py, &devices)?));
        }
        self.found.cycles = Some(Finding {
            what: format!(
                "{} of unreachable cycles",
                counted(report.leaks.len() as u64, "leak", "leaks")
            ),
            bytes: report.bytes_held(),
            would_fit: self.fits_without(pieces),
            details: report
                .leaks
                .iter()
                .take(LEAKS)
                .map(text::one_line)
                .collect(),
        });
        self.found.trace = text::trace(&report);
        self.leaks = Some(report);
        Ok(())
    }

    /// What a monitor has found, but for garbage, which the cycles tell of.
    fn growth(&mut self, report: &Bound<'_, GrowthReport>) {
        let mut report = report.get().clone();
        // What the program lets grow up to a limit fills the memory all the same.
        for mut grown in std::mem::take(&mut report.limited) {
            grown.growth.advice = grown.growth.beyond_limit();
            report.found.push(grown);
        }
        let is_alive = |grown: &&Grown| grown.growth.pattern != GARBAGE_ACCUMULATES.name;
        let growing = report.found.iter().filter(is_alive);
        self.grown = growing.clone().map(|grown| grown.explains).collect();
        self.found.growth = growing.map(|grown| grown.growth.clone()).collect();
        self.grew = Some(report);
    }

    /// What the memory is for; may take about so many seconds.
    fn live(&mut self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let known = in_use(py, &self.found.device, seconds)?;
        let graphs = known.graphs.iter().map(|kept| Finding {
            what: format!(
                "{}: {} tensors with their autograd graphs",
                kept.owner, kept.tensors
            ),
            bytes: bytes_of(&kept.freed),
            would_fit: self.fits_without(pointers(&kept.freed)),
            details: Vec::new(),
        });
        let graphs = graphs.collect();
        self.found.graphs = graphs;
        self.sort(&known);
        self.found.left_out.extend(known.left_out);
        Ok(())
    }

    /// The owners of the largest tensors.
    fn owners(&mut self, py: Python<'_>) -> PyResult<()> {
        let state = state(py)?;
        let inspector = state.watcher.inspector();
        if inspector.is_backward_running(py) {
            // To name an owner, autograd graphs are walked too.
            return Err(PyRuntimeError::new_err("a backward pass is running"));
        }
        let heap = inspector.heap(py)?;
        self.found.owners = owners_on(&self.found.device, &heap);
        self.heap = Some(heap);
        Ok(())
    }
}

/// Who has most memory on a device. Items of one container are told as one.
fn owners_on(device: &str, heap: &Heap) -> Vec<Finding> {
    let mut groups: BTreeMap<_, Vec<&Buffer>> = BTreeMap::new();
    for buffer in heap.buffers.iter().filter(|it| it.device == device) {
        let alike = (
            without_indices(&buffer.owner),
            &buffer.dtype,
            buffer.category,
        );
        groups.entry(alike).or_default().push(buffer);
    }
    let mut groups: Vec<(u64, Vec<&Buffer>)> = groups
        .into_values()
        .map(|all| (all.iter().map(|it| it.bytes).sum(), all))
        .collect();
    groups.sort_by_key(|(bytes, _)| Reverse(*bytes));
    let findings = groups.into_iter().take(OWNERS).map(|(bytes, all)| {
        let owners: Vec<&str> = all.iter().map(|it| &*it.owner).collect();
        let dtype = all[0].dtype.as_deref().unwrap_or_default();
        let shape = all[0].shape.as_ref().map(ToString::to_string);
        let count = match all.len() {
            1 => String::new(),
            // The largest comes first.
            more => format!("{} buffers, the largest ", grouped(more as u64)),
        };
        Finding {
            what: format!(
                "{}: {count}{dtype}{}",
                with_each_index(&owners),
                shape.unwrap_or_default()
            ),
            bytes,
            would_fit: None,
            details: vec![match all[0].owner.starts_with(UNREACHABLE) {
                true => "garbage".to_owned(),
                false => all[0].category.words().to_owned(),
            }],
        }
    });
    findings.collect()
}

impl Examination {
    /// What the memory is for, and whether the request would fit beside what the step itself needs.
    fn sort(&mut self, known: &MemoryInUse) {
        let roles = known.roles();
        let mut totals = Vec::from(roles.map(|(name, pieces)| (name, bytes_of(pieces))));
        if let Some(numbers) = &self.found.numbers {
            let seen = totals.iter().map(|(_, bytes)| bytes).sum();
            // In a backward pass autograd graphs are left alone, and are in this.
            totals.push((
                "not visible from Python",
                numbers.allocated.saturating_sub(seen),
            ));
            let model = roles[..4].iter().flat_map(|(_, pieces)| pieces.iter());
            let needed: FxHashSet<u64> = model
                .chain(&known.working)
                .map(|(pointer, _)| *pointer)
                .collect();
            let fits = would_fit_beside(numbers, &self.segments, &needed, self.stream);
            if !self.segments.is_empty() {
                self.needs = Needs {
                    too_big: !fits,
                    model: totals[..4].iter().map(|(_, bytes)| bytes).sum(),
                    step: bytes_of(&known.working),
                    largest: roles
                        .iter()
                        .flat_map(|(_, pieces)| pieces.iter().map(|(_, bytes)| *bytes))
                        .max()
                        .filter(|_| known.left_out.is_empty()),
                    grown: &[],
                };
            }
        }
        let totals = totals.into_iter().filter(|(_, bytes)| *bytes > 0);
        let totals = totals.map(|(name, bytes)| (name.to_owned(), bytes));
        self.found.roles = totals.collect();
    }
}

fn in_use(py: Python<'_>, device: &str, seconds: f64) -> PyResult<MemoryInUse> {
    let patience = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    let now = Instant::now();
    let deadline = now.checked_add(patience);
    let deadline = deadline.unwrap_or(now + Duration::from_secs(3600));
    let state = state(py)?;
    let inspector = state.watcher.inspector();
    inspector.memory_in_use(py, device, deadline)
}

/// What the memory of a device is for, each piece as `(pointer, bytes)`.
#[pyfunction]
pub fn memory_in_use(
    py: Python<'_>,
    device: &str,
    seconds: f64,
) -> PyResult<HashMap<&'static str, Pieces>> {
    let known = in_use(py, device, seconds)?;
    let roles = known.roles().map(|(name, pieces)| (name, pieces.clone()));
    Ok(HashMap::from(roles))
}

fn bytes_of(pieces: &Pieces) -> u64 {
    pieces.iter().map(|(_, bytes)| bytes).sum()
}

fn pointers(pieces: &Pieces) -> impl Iterator<Item = u64> {
    pieces.iter().map(|(pointer, _)| *pointer)
}

#[pymethods]
impl PostMortem {
    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Err(no_attribute(slf, name))
    }

    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        model_from_json(text, "PostMortem", None).map_err(PyValueError::new_err)
    }

    /// The post-mortem as JSON (``schema`` 1).
    fn to_json(&self) -> String {
        format!("{:#}", versioned("out-of-memory", self))
    }

    /// The post-mortem as text. The first line is the verdict.
    fn to_text(&self) -> String {
        text::post_mortem(self)
    }

    /// A self-contained HTML page: the numbers, the largest leak, a treemap of the owners, growing tensors.
    #[pyo3(signature = (heap=None, growth=None, cycles=None))]
    fn to_html(
        &self,
        py: Python<'_>,
        heap: Option<&Bound<'_, Heap>>,
        growth: Option<&Bound<'_, GrowthReport>>,
        cycles: Option<&Bound<'_, CycleReport>>,
    ) -> String {
        let looked = Looked {
            heap: heap.map(Bound::get),
            grew: growth.map(Bound::get),
            leaks: cycles.map(|report| report.get().report()),
        };
        py.detach(|| live::post_mortem(self, looked))
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        live::framed(py.detach(|| live::post_mortem(self, Looked::default())))
    }

    fn __str__(&self) -> String {
        text::post_mortem(self)
    }

    fn __repr__(&self) -> String {
        format!("<PostMortem {}: {}>", self.verdict, self.headline)
    }
}

shown! {
    Finding(it) => format!("<Finding {}>", it.what);
}

#[pymethods]
impl Numbers {
    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Err(no_attribute(slf, name))
    }

    /// What the allocator could still take from CUDA.
    #[getter(headroom)]
    fn room(&self) -> u64 {
        self.headroom()
    }
}
