//! Gradients that are added to and never cleared.

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::busy::busy;
use super::grown::{Diagnosis, example_of, parameters_of};
use crate::capture::may_clear_gradients;
use crate::cpython::{Builtins, StoppedWorld};
use crate::device::{DeviceBuffer, DeviceSelection, Frameworks};
use crate::diagnose::growth;

/// How many parameters are watched for gradients that are never cleared.
const WATCHED: usize = 4;
/// In how many steps in a row a gradient must have been added to once, and nothing else done to it: more
/// than are made where gradients are accumulated on purpose.
const STEPS: u32 = 100;

/// How many classes of modules are named.
const NAMED: usize = 3;

/// What is known of gradients that seem never to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncleared {
    /// In each step they were added to once, and nothing else was done to them.
    AddedToOnly,
    /// In each step they were written to, perhaps cleared.
    Perhaps,
}

/// The memory of a parameter's gradient.
fn gradient_memory(frameworks: &Frameworks, parameter: &Bound<'_, PyAny>) -> Option<DeviceBuffer> {
    let (gradient, _) = frameworks.gradient(parameter)?;
    let verdict = frameworks.verdict_of(&gradient);
    frameworks.buffer(verdict, &gradient, &DeviceSelection::Any)
}

/// Watches some parameters for gradients that are added to and never cleared.
///
/// To add to a gradient, or to fill it with zeros, raises the version of its tensor by one, and a new
/// gradient begins at zero. So a version that is one more after each step than after the one before says
/// that the gradient was added to once and not cleared. With `clip_grad_norm_`, which multiplies it, the
/// version cannot tell; then the program's code is asked whether anything in it clears gradients.
#[derive(Default)]
pub struct GradientWatch {
    watched: Vec<Watched>,
    said: bool,
}

struct Watched {
    /// A weak reference to the parameter itself would forbid `torch.utils.swap_tensors`, by which `Module.to` replaces
    /// the parameters that are tensor subclasses.
    module: Py<PyWeakrefReference>,
    /// Which of the module's parameters it is.
    place: usize,
    /// The gradient's address and version at the last step.
    last: Option<(usize, i64)>,
    /// In how many steps in a row it was written to, and in how many of these once.
    in_row: u32,
    once: u32,
}

impl GradientWatch {
    /// Chooses the parameters to watch, unless those that were are alive.
    pub(super) fn choose(
        &mut self,
        builtins: &Builtins,
        frameworks: &Frameworks,
        modules: &[Bound<'_, PyAny>],
    ) {
        let is_alive = |watched: &Watched, py| watched.module.bind(py).upgrade().is_some();
        let Some(py) = modules.first().map(Bound::py) else {
            return;
        };
        if self.said || self.watched.iter().any(|watched| is_alive(watched, py)) {
            return;
        }
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        let parameters = modules.iter().flat_map(|module| {
            let parameters = parameters_of(builtins, module).into_iter().enumerate();
            parameters.map(move |(place, parameter)| (module, place, parameter))
        });
        self.watched = parameters
            .filter(|(.., parameter)| seen.insert(parameter.as_ptr() as usize))
            .filter(|(.., parameter)| gradient_memory(frameworks, parameter).is_some())
            .filter_map(|(module, place, _)| {
                let module = PyWeakrefReference::new(module).ok()?.unbind();
                Some(Watched {
                    module,
                    place,
                    last: None,
                    in_row: 0,
                    once: 0,
                })
            })
            .take(WATCHED)
            .collect();
    }

    /// True for the address of a gradient that is watched.
    pub(super) fn has(&self, address: usize) -> bool {
        let mut watched = self.watched.iter();
        watched.any(|it| it.last.is_some_and(|(gradient, _)| gradient == address))
    }

    /// Looks at the versions, at the end of a step; says, once, what they tell.
    pub fn step(&mut self, inspector: &Inspector, py: Python<'_>) -> Option<Uncleared> {
        if self.said || self.watched.is_empty() {
            return None;
        }
        let frameworks = inspector.frameworks.try_borrow().ok()?;
        for watched in &mut self.watched {
            let module = watched.module.bind(py).upgrade();
            let parameter = module.and_then(|module| {
                let parameters = parameters_of(&inspector.builtins, &module);
                parameters.into_iter().nth(watched.place)
            });
            let gradient = parameter.and_then(|it| frameworks.gradient(&it));
            let now = gradient.map(|(gradient, version)| (gradient.as_ptr() as usize, version));
            let writes = match (watched.last, now) {
                (Some((before, last)), Some((gradient, version))) if before == gradient => {
                    version - last
                }
                _ => 0,
            };
            watched.in_row = if writes > 0 { watched.in_row + 1 } else { 0 };
            watched.once = if writes == 1 { watched.once + 1 } else { 0 };
            watched.last = now;
        }
        self.said = self.watched.iter().all(|watched| watched.in_row >= STEPS);
        let once = self.watched.iter().all(|watched| watched.once >= STEPS);
        self.said.then_some(match once {
            true => Uncleared::AddedToOnly,
            false => Uncleared::Perhaps,
        })
    }
}

impl Inspector {
    /// What is said of gradients that are never cleared.
    pub fn uncleared_gradients(
        &self,
        py: Python<'_>,
        uncleared: Uncleared,
    ) -> PyResult<Option<Diagnosis>> {
        let and_what = match uncleared {
            Uncleared::AddedToOnly if self.some_code_clears_gradients(py, true)? => {
                return Ok(None);
            }
            Uncleared::AddedToOnly => "and nothing else changed them",
            Uncleared::Perhaps if self.some_code_clears_gradients(py, false)? => return Ok(None),
            Uncleared::Perhaps => "and the running code calls nothing that clears gradients",
        };
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        let mut gradients: Vec<DeviceBuffer> = Vec::new();
        let mut owners: Vec<String> = Vec::new();
        for module in self
            .torch_objects(py, &frameworks, &FxHashMap::default())?
            .modules
        {
            for parameter in parameters_of(&self.builtins, &module) {
                let Some(buffer) = gradient_memory(&frameworks, &parameter) else {
                    continue;
                };
                owners.push(self.type_name(&module));
                if seen.insert(parameter.as_ptr() as usize) {
                    gradients.push(buffer);
                }
            }
        }
        owners.sort_unstable();
        owners.dedup();
        owners.truncate(NAMED);
        if owners.is_empty() {
            owners.push("parameters".to_owned());
        }
        let largest = gradients.iter().max_by_key(|buffer| buffer.bytes);
        Ok(Some(Diagnosis {
            pattern: growth::GRADIENTS_NEVER_CLEARED,
            owner: owners.join(" and "),
            tensors: gradients.len(),
            bytes: gradients.iter().map(|buffer| buffer.bytes).sum(),
            example: largest.map(example_of).unwrap_or_default(),
            evidence: format!("{STEPS} steps in a row added to each, {and_what}"),
            ..Diagnosis::default()
        }))
    }

    fn some_code_clears_gradients(&self, py: Python<'_>, aside: bool) -> PyResult<bool> {
        let listed = self.gc.listed(py, None)?;
        let frozen = self.gc.frozen(py);
        let _stopped = StoppedWorld::new(py);
        let all = listed.iter().chain(frozen.iter().cloned());
        Ok(may_clear_gradients(
            py,
            &self.builtins,
            &self.current_frames,
            all,
            aside,
        ))
    }
}
