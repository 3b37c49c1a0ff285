//! What is alive, for the parts of the package that say when to look: growth and out-of-memory errors.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::selection;
use super::state::state;
use crate::analysis::{Diagnosis, GradientWatch as Watch, GroupKind, Name, Pieces};

/// `((class, attribute), (module, tensor), bytes, example)`.
type KeptOnModule = ((String, String), (usize, usize), u64, String);

/// What is alive at a step.
#[pyclass(frozen, get_all, module = "cyclescope")]
pub struct Sample {
    /// `((device, dtype, kind), (address, pointer), bytes)` of each piece of memory.
    pieces: Vec<((String, String, &'static str), Name, u64)>,
    /// Addresses of autograd functions.
    functions: Vec<usize>,
    kept_on_modules: Vec<KeptOnModule>,
    /// `(name, number, shape)`.
    roots: Vec<(Name, u64, Vec<u64>)>,
    older: Option<u64>,
    crossed: Vec<u64>,
    mark: u64,
}

/// What the memory of a device is for, each piece as `(pointer, bytes)`.
#[pyclass(frozen, get_all, module = "cyclescope")]
pub struct MemoryInUse {
    parameters: Pieces,
    gradients: Pieces,
    optimizer_state: Pieces,
    module_buffers: Pieces,
    saved: Pieces,
    other: Pieces,
    /// `(owner, tensors, freed)` of each collection of tensors with graphs.
    graphs: Vec<(String, usize, Pieces)>,
    working: Pieces,
    left_out: Vec<String>,
}

/// Watches some parameters for gradients that are added to and never cleared.
#[pyclass(module = "cyclescope")]
#[derive(Default)]
pub struct GradientWatch {
    watch: Watch,
}

#[pymethods]
impl GradientWatch {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Looks at the gradients at the end of a step; what they are, once, if they are never cleared.
    fn step(&mut self, py: Python<'_>) -> PyResult<Option<Diagnosis>> {
        let state = state(py)?;
        let inspector = state.watcher.inspector();
        if !self.watch.step(inspector, py) {
            return Ok(None);
        }
        inspector.uncleared_gradients(py).map(Some)
    }
}

fn kind(name: &str) -> PyResult<GroupKind> {
    Ok(match name {
        "graph" => GroupKind::Graph,
        "parameter" => GroupKind::Parameter,
        "plain" => GroupKind::Plain,
        "function" => GroupKind::Function,
        other => return Err(PyValueError::new_err(format!("no kind of group: {other}"))),
    })
}

fn name_of(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Graph => "graph",
        GroupKind::Parameter => "parameter",
        GroupKind::Plain => "plain",
        GroupKind::Function => "function",
    }
}

/// What is alive on some devices; `mark` is that of the last sample, if graphs are to be walked.
#[pyfunction]
pub fn sample(
    py: Python<'_>,
    devices: Vec<String>,
    mark: Option<u64>,
    gradients: &Bound<'_, GradientWatch>,
) -> PyResult<Sample> {
    let devices = selection(&devices)?;
    let state = state(py)?;
    let mut gradients = gradients.try_borrow_mut()?;
    let found = state
        .watcher
        .inspector()
        .sample(py, &devices, mark, &mut gradients.watch)?;
    let pieces = found.pieces.into_iter();
    let kept = found.kept_on_modules.into_iter();
    Ok(Sample {
        pieces: pieces
            .map(|it| ((it.device, it.dtype, name_of(it.kind)), it.name, it.bytes))
            .collect(),
        functions: found.functions,
        kept_on_modules: kept
            .map(|it| {
                let names = (it.class, it.attribute);
                (names, (it.module, it.tensor), it.bytes, it.example)
            })
            .collect(),
        roots: found.roots,
        older: found.older,
        crossed: found.crossed,
        mark: found.mark,
    })
}

/// What each of some groups is, `(kind, names)`; None if only C++ holds it.
#[pyfunction]
pub fn diagnose(
    py: Python<'_>,
    groups: Vec<(String, Vec<Name>)>,
) -> PyResult<Vec<Option<Diagnosis>>> {
    let groups = groups
        .into_iter()
        .map(|(name, members)| Ok((kind(&name)?, members)))
        .collect::<PyResult<Vec<_>>>()?;
    state(py)?.watcher.inspector().diagnose(py, &groups)
}

/// The tensor that carries its graph from step to step.
#[pyfunction]
pub fn diagnose_state(
    py: Python<'_>,
    roots: Vec<(Name, bool)>,
    mark: u64,
) -> PyResult<Option<Diagnosis>> {
    let state = state(py)?;
    state.watcher.inspector().diagnose_state(py, &roots, mark)
}

/// Where the program has tensors, each given by the addresses of the object whose attribute it is and its
/// own; None for what has gone.
#[pyfunction]
pub fn owners_of(py: Python<'_>, attributes: Vec<(usize, usize)>) -> PyResult<Vec<Option<String>>> {
    state(py)?.watcher.inspector().owners_of(py, &attributes)
}

/// What the memory of a device is for; may take about so many seconds.
#[pyfunction]
pub fn memory_in_use(py: Python<'_>, device: &str, seconds: f64) -> PyResult<MemoryInUse> {
    let patience = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    let now = Instant::now();
    let deadline = now
        .checked_add(patience)
        .unwrap_or(now + Duration::from_secs(3600));
    let state = state(py)?;
    let found = state
        .watcher
        .inspector()
        .memory_in_use(py, device, deadline)?;
    let graphs = found.graphs.into_iter();
    Ok(MemoryInUse {
        parameters: found.parameters,
        gradients: found.gradients,
        optimizer_state: found.optimizer_state,
        module_buffers: found.module_buffers,
        saved: found.saved,
        other: found.other,
        graphs: graphs.map(|it| (it.owner, it.tensors, it.freed)).collect(),
        working: found.working,
        left_out: found.left_out,
    })
}

/// The memory of garbage on a device, as `(pointer, bytes)`.
#[pyfunction]
pub fn unreachable_memory(py: Python<'_>, device: String) -> PyResult<Pieces> {
    let devices = selection(&[device])?;
    state(py)?
        .watcher
        .inspector()
        .unreachable_memory(py, &devices)
}

/// True if some thread is in a backward pass of PyTorch's.
#[pyfunction]
pub fn is_backward_running(py: Python<'_>) -> PyResult<bool> {
    Ok(state(py)?.watcher.inspector().is_backward_running(py))
}
