//! What PyTorch's modules and optimizers keep tensors for.
//!
//! The post-mortem of an out-of-memory error sorts tensors again (`roles` in `_live/kept.py`), to the same
//! end but without a look at autograd's graphs: memory often runs out in a backward pass.

use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;

use super::Inspector;
use super::live::Live;
use crate::device::{Frameworks, attributes_of, class};
use crate::heap::{dict_items, find_item, imported, items};
use crate::report::heap::Category;

/// In an optimizer's state, tensors are looked for so deep: `state[parameter]['exp_avg']`, or one
/// dictionary, list or tuple deeper, such as `['old_dirs'][0]` of LBFGS.
const DEPTH: usize = 3;

impl Inspector {
    /// The tensors that live modules and optimizers keep, each with what for; and the optimizers.
    pub(super) fn kept_by_modules_and_optimizers(
        &self,
        frameworks: &Frameworks,
        live: &Live<'_>,
    ) -> (Vec<(u32, Category)>, Vec<u32>) {
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
            let parts: &[(&str, Category)] = match (module, optimizer) {
                (true, _) => &[
                    ("_parameters", Category::Parameter),
                    ("_buffers", Category::Parameter),
                ],
                (_, true) => &[("state", Category::OptimizerState)],
                _ => continue,
            };
            if optimizer {
                optimizers.push(node);
            }
            let Some(attributes) = attributes_of(&object) else {
                continue;
            };
            for (name, category) in parts {
                let part = find_item(name, |f| dict_items(attributes.as_any(), f));
                if let Some(part) = part {
                    tensors_in(frameworks, live, &part, DEPTH, &mut |tensor| {
                        found.push((tensor, *category));
                    });
                }
            }
        }
        (found, optimizers)
    }
}

/// The base classes that tell.
struct Classes<'py> {
    module: Bound<'py, PyType>,
    optimizer: Option<Bound<'py, PyType>>,
}

impl<'py> Classes<'py> {
    /// `None` if the program has not imported PyTorch.
    fn imported(py: Python<'py>) -> Option<Self> {
        let module = imported(intern!(py, "torch.nn.modules.module"))?;
        let optimizer = imported(intern!(py, "torch.optim.optimizer"));
        Some(Self {
            module: class(&module, "Module").ok()?,
            optimizer: optimizer.and_then(|it| class(&it, "Optimizer").ok()),
        })
    }

    /// Whether an object is a module, and whether it is an optimizer, by its type alone.
    ///
    /// # Safety
    /// Attached, and the object is alive.
    unsafe fn of(&self, object: &Bound<'_, PyAny>) -> (bool, bool) {
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

/// Calls `f` with each tensor among the values of a dictionary, list or tuple, and of those in it.
fn tensors_in(
    frameworks: &Frameworks,
    live: &Live<'_>,
    object: &Bound<'_, PyAny>,
    depth: usize,
    f: &mut dyn FnMut(u32),
) {
    if Frameworks::is_tensor(frameworks.verdict_of(object)) {
        if let Some(node) = live.objects.number_of(object) {
            f(node);
        }
        return;
    }
    if depth > 0 {
        dict_items(object, &mut |_, value| {
            tensors_in(frameworks, live, value, depth - 1, f);
            true
        });
        for item in items(object) {
            tensors_in(frameworks, live, &item, depth - 1, f);
        }
    }
}
