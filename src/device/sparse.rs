//! The tensors of which PyTorch's sparse tensors consist.
//!
//! The operators that return them let other threads run. That must not happen while the objects of a snapshot are held:
//! another thread may be filling a tuple, which fails if anybody else holds it (`_PyTuple_Resize`, `PyTuple_SetItem` in
//! Objects/tupleobject.c). For a snapshot the parts are read ahead.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::{FxHashMap, FxHashSet};

use super::modules::part;
use crate::cpython::{Descriptor, call, call_with, imported, int_value, reference_count};

/// How the parts of sparse tensors are read; nothing in versions that have other names.
pub struct Sparse {
    is_sparse: Option<Descriptor>,
    layout: Option<Descriptor>,
    detach: Option<Py<PyAny>>,
    /// The number of modes (`__torch_dispatch__`) that the program is in: they would see each call.
    modes: Option<Py<PyAny>>,
    /// What is told of the operations of this thread: the state of `torch.jit.trace`, and whether a profiler is on.
    recorders: [Option<Py<PyAny>>; 2],
    coordinates: Parts,
    /// Those of the layouts that compress rows, and columns.
    compressed: [(Vec<Py<PyAny>>, Parts); 2],
    /// What was read ahead of the snapshot that is being looked at, if one is.
    ahead: Rc<RefCell<Option<Ahead>>>,
}

/// Names of parts, and the methods that return them.
type Parts = Vec<(&'static str, Py<PyAny>)>;

#[derive(Default)]
struct Ahead {
    /// The parts of each tensor, by its address.
    known: FxHashMap<usize, Vec<(&'static str, Part)>>,
    /// The tensors that were met and are not known.
    unread: Vec<Py<PyAny>>,
}

enum Part {
    /// Nobody else has the Python object.
    Own(Py<PyAny>),
    /// The program has it too; a reference more would be taken for one of the program's.
    OfProgram(Py<PyWeakrefReference>),
}

impl Part {
    fn new(part: Bound<'_, PyAny>) -> PyResult<Self> {
        // SAFETY: attached, and the object is alive.
        Ok(match unsafe { reference_count(part.as_ptr()) } {
            1 => Self::Own(part.unbind()),
            _ => Self::OfProgram(PyWeakrefReference::new(&part)?.unbind()),
        })
    }

    fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match self {
            Self::Own(part) => Some(part.bind(py).clone()),
            Self::OfProgram(reference) => reference.bind(py).upgrade(),
        }
    }
}

/// While this lives, the parts of sparse tensors are those that were read before.
pub struct PartsReadAhead {
    ahead: Rc<RefCell<Option<Ahead>>>,
    /// The addresses of the objects that were made for it.
    pub made: FxHashSet<usize>,
}

impl PartsReadAhead {
    /// The sparse tensors that were met meanwhile and whose parts are not known.
    pub fn take_unread(&self) -> Vec<Py<PyAny>> {
        let mut ahead = self.ahead.borrow_mut();
        let ahead = ahead
            .as_mut()
            .map(|ahead| std::mem::take(&mut ahead.unread));
        ahead.unwrap_or_default()
    }
}

impl Drop for PartsReadAhead {
    fn drop(&mut self) {
        let before = self.ahead.take();
        // Outside of the borrow, as the end of an object may run code of the program.
        drop(before);
    }
}

impl Sparse {
    /// Reads `torch._C` and its class of tensors.
    pub fn new(native: &Bound<'_, PyDict>, tensor: &Bound<'_, PyType>) -> Self {
        let py = native.py();
        let parts = |names: [(&'static str, &str); 3]| {
            let found = names.into_iter().filter(|(_, method)| !method.is_empty());
            let found = found
                .filter_map(|(name, method)| Some((name, tensor.getattr(method).ok()?.unbind())));
            found.collect()
        };
        let layouts = |names: [&str; 2]| {
            let torch = imported(intern!(py, "torch"));
            let found = names.into_iter().filter_map(|name| {
                let torch = torch.as_ref()?;
                Some(part(torch, name).ok()?.unbind())
            });
            found.collect()
        };
        Self {
            is_sparse: Descriptor::of(tensor, "is_sparse").ok(),
            layout: Descriptor::of(tensor, "layout").ok(),
            detach: tensor.getattr("detach").ok().map(Bound::unbind),
            modes: part(native, "_len_torch_dispatch_stack")
                .ok()
                .map(Bound::unbind),
            recorders: [
                part(native, "_get_tracing_state").ok().map(Bound::unbind),
                imported(intern!(py, "torch._C._autograd"))
                    .and_then(|autograd| part(&autograd, "_profiler_enabled").ok())
                    .map(Bound::unbind),
            ],
            coordinates: parts([
                ("_indices()", "_indices"),
                ("_values()", "_values"),
                ("", ""),
            ]),
            compressed: [
                (
                    layouts(["sparse_csr", "sparse_bsr"]),
                    parts([
                        ("crow_indices()", "crow_indices"),
                        ("col_indices()", "col_indices"),
                        ("values()", "values"),
                    ]),
                ),
                (
                    layouts(["sparse_csc", "sparse_bsc"]),
                    parts([
                        ("ccol_indices()", "ccol_indices"),
                        ("row_indices()", "row_indices"),
                        ("values()", "values"),
                    ]),
                ),
            ],
            ahead: Rc::default(),
        }
    }

    /// True while operations become part of what the program wants: of a graph that `torch.jit` traces, or of a profile.
    fn is_recorded(&self, py: Python<'_>) -> bool {
        let is_active = |state: Bound<'_, PyAny>| match int_value(&state) {
            Some(number) => number != 0,
            None => !state.is_none(),
        };
        let mut asked = self.recorders.iter().flatten();
        asked.any(|recorder| call(recorder.bind(py)).is_none_or(is_active))
    }

    /// Reads the parts of these tensors, and no others until the result is dropped.
    pub fn read_ahead<'py>(
        &self,
        py: Python<'py>,
        tensors: Vec<Py<PyAny>>,
        is_plain: impl Fn(&Bound<'py, PyAny>) -> bool,
    ) -> PartsReadAhead {
        let mut known = FxHashMap::default();
        let mut made = FxHashSet::default();
        for tensor in &tensors {
            let tensor = tensor.bind(py);
            // A look meets a tensor more than once.
            if known.contains_key(&(tensor.as_ptr() as usize)) {
                continue;
            }
            let parts = self.parts(tensor, is_plain(tensor)).into_iter();
            let parts = parts.filter_map(|(name, part)| Some((name, Part::new(part).ok()?)));
            let parts: Vec<_> = parts.collect();
            made.extend(parts.iter().map(|(_, part)| match part {
                Part::Own(part) => part.as_ptr() as usize,
                Part::OfProgram(reference) => reference.as_ptr() as usize,
            }));
            known.insert(tensor.as_ptr() as usize, parts);
        }
        let unread = Vec::new();
        self.ahead.replace(Some(Ahead { known, unread }));
        PartsReadAhead {
            ahead: Rc::clone(&self.ahead),
            made,
        }
    }

    /// The tensors of which a sparse one consists; none for any other. Only for one of PyTorch's own classes,
    /// and in no mode: others may run code of the program.
    pub fn parts<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        is_plain: bool,
    ) -> Vec<(&'static str, Bound<'py, PyAny>)> {
        self.read(tensor, is_plain).unwrap_or_default()
    }

    fn read<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        is_plain: bool,
    ) -> Option<Vec<(&'static str, Bound<'py, PyAny>)>> {
        // The layout of another class may be what its `__torch_dispatch__` says.
        if !is_plain {
            return None;
        }
        let py = tensor.py();
        let layout = self.layout.as_ref()?.get(tensor)?;
        let is_sparse = int_value(&self.is_sparse.as_ref()?.get(tensor)?) == Some(1);
        let compressed = self.compressed.iter();
        let parts = match is_sparse {
            true => &self.coordinates,
            false => {
                let mut compressed = compressed.map(|(layouts, parts)| (layouts, parts));
                let found = compressed.find(|(layouts, _)| layouts.iter().any(|it| it.is(&layout)));
                found?.1
            }
        };
        let modes = call(self.modes.as_ref()?.bind(py))?;
        if int_value(&modes) != Some(0) || self.is_recorded(py) {
            return None;
        }
        if let Some(ahead) = &mut *self.ahead.borrow_mut() {
            let Some(parts) = ahead.known.get(&(tensor.as_ptr() as usize)) else {
                ahead.unread.push(tensor.clone().unbind());
                return None;
            };
            let parts = parts.iter();
            let parts = parts.filter_map(|(name, part)| Some((*name, part.get(py)?)));
            return Some(parts.collect());
        }
        // Without the autograd graph, which would grow by what is read.
        let plain = call_with(self.detach.as_ref()?.bind(py), tensor)?;
        let read = parts
            .iter()
            .filter_map(|(name, method)| Some((*name, call_with(method.bind(py), &plain)?)));
        Some(read.collect())
    }
}
