//! What PyTorch's modules and optimizers keep tensors for.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::live::Live;
use crate::cpython::instances::attribute;
use crate::cpython::{dict_items, imported, items};
use crate::device::{Frameworks, class};
use crate::model::heap::Category;

/// In an optimizer's state, tensors are looked for so deep: `state[parameter]['exp_avg']`, or one
/// dictionary, list or tuple deeper, such as `['old_dirs'][0]` of LBFGS.
const DEPTH: usize = 3;

/// What a module or an optimizer keeps a tensor as. If it is several things, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Parameter,
    /// Of a module.
    Buffer,
    OptimizerState,
}

impl Part {
    pub fn category(self) -> Category {
        match self {
            Self::Parameter | Self::Buffer => Category::Parameter,
            Self::OptimizerState => Category::OptimizerState,
        }
    }
}

/// A tensor that a module or an optimizer keeps.
pub(super) struct KeptTensor {
    pub node: u32,
    pub part: Part,
    /// Of a module: the dictionary that has it by its name.
    pub of_module: Option<u32>,
}

impl Inspector {
    /// The tensors that live modules and optimizers keep, and the optimizers.
    pub(super) fn kept_by_modules_and_optimizers(
        &self,
        frameworks: &Frameworks,
        live: &Live<'_>,
    ) -> (Vec<KeptTensor>, Vec<u32>) {
        let Some(classes) = Classes::imported(live.py()) else {
            return Default::default();
        };
        let mut found = Vec::new();
        let mut optimizers = Vec::new();
        // A heap has few types. None dies meanwhile, so an address stays one type's.
        let mut known: FxHashMap<usize, (bool, bool)> = FxHashMap::default();
        for node in 0..live.objects.len() as u32 {
            let Some(object) = live.objects.object(node) else {
                continue;
            };
            // SAFETY: attached, the object and the classes are alive.
            let (module, optimizer) = *known
                .entry(object.get_type_ptr() as usize)
                .or_insert_with(|| unsafe { classes.of(&object) });
            let parts: &[(&str, Part)] = match (module, optimizer) {
                (true, _) => &[("_parameters", Part::Parameter), ("_buffers", Part::Buffer)],
                (_, true) => &[
                    ("state", Part::OptimizerState),
                    // The model may be gone.
                    ("param_groups", Part::Parameter),
                ],
                _ => continue,
            };
            if optimizer {
                optimizers.push(node);
            }
            for (name, kind) in parts {
                if let Some(tensors) = attribute(&self.builtins.instances, &object, name) {
                    let of_module = live.objects.number_of(&tensors).filter(|_| module);
                    tensors_in(frameworks, live, tensors, &mut |node| {
                        found.push(KeptTensor {
                            node,
                            part: *kind,
                            of_module,
                        });
                    });
                }
            }
        }
        // A parameter that no module has, or whose module is gone.
        let tensors = live.all_tensors(frameworks).into_iter();
        let parameters = tensors.filter(|(_, tensor)| classes.is_parameter(tensor));
        found.extend(parameters.map(|(node, _)| KeptTensor {
            node,
            part: Part::Parameter,
            of_module: None,
        }));
        (found, optimizers)
    }
}

/// The base classes that tell.
pub(super) struct Classes<'py> {
    module: Bound<'py, PyType>,
    optimizer: Option<Bound<'py, PyType>>,
    parameter: Option<Bound<'py, PyType>>,
}

impl<'py> Classes<'py> {
    /// `None` if the program has not imported PyTorch.
    pub fn imported(py: Python<'py>) -> Option<Self> {
        let module = imported(intern!(py, "torch.nn.modules.module"))?;
        let optimizer = imported(intern!(py, "torch.optim.optimizer"));
        let parameter = imported(intern!(py, "torch.nn.parameter"));
        Some(Self {
            module: class(&module, "Module").ok()?,
            optimizer: optimizer.and_then(|it| class(&it, "Optimizer").ok()),
            parameter: parameter.and_then(|it| class(&it, "Parameter").ok()),
        })
    }

    /// True for a parameter, by its type alone: `isinstance` would ask the class's own code.
    fn is_parameter(&self, tensor: &Bound<'_, PyAny>) -> bool {
        let parameter = self.parameter.as_ref();
        // SAFETY: attached, both are alive; walks the type's own `tp_mro`.
        parameter.is_some_and(|it| unsafe {
            pyo3::ffi::PyType_IsSubtype(tensor.get_type_ptr(), it.as_type_ptr()) != 0
        })
    }

    /// Whether an object is a module, and whether it is an optimizer, by its type alone.
    ///
    /// # Safety
    /// Attached, and the object is alive.
    pub unsafe fn of(&self, object: &Bound<'_, PyAny>) -> (bool, bool) {
        // SAFETY: by this function's contract; walks the type's own `tp_mro`.
        unsafe {
            let ty = pyo3::ffi::Py_TYPE(object.as_ptr());
            let derived =
                |base: &Bound<'_, PyType>| pyo3::ffi::PyType_IsSubtype(ty, base.as_type_ptr()) != 0;
            (
                derived(&self.module),
                self.optimizer.as_ref().is_some_and(derived),
            )
        }
    }
}

/// Calls `f` with each tensor in a dictionary, list or tuple, and in those within it.
fn tensors_in<'py>(
    frameworks: &Frameworks,
    live: &Live<'_>,
    container: Bound<'py, PyAny>,
    f: &mut dyn FnMut(u32),
) {
    // Each is looked into once: one that holds itself a thousand times takes no longer for it.
    let mut seen = FxHashSet::from_iter([container.as_ptr() as usize]);
    let mut level = vec![container];
    for _ in 0..DEPTH {
        let mut below = Vec::new();
        let mut look_at = |value: &Bound<'py, PyAny>| {
            if Frameworks::is_tensor(frameworks.verdict_of(value)) {
                live.objects.number_of(value).into_iter().for_each(&mut *f);
            } else if is_container(value) && seen.insert(value.as_ptr() as usize) {
                below.push(value.clone());
            }
        };
        for container in &level {
            dict_items(container, &mut |_, value| {
                look_at(value);
                true
            });
            items(container).iter().for_each(&mut look_at);
        }
        level = below;
    }
}

fn is_container(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyDict>()
        || object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
}
