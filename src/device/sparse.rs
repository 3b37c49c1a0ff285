//! The tensors of which PyTorch's sparse tensors consist.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::modules::part;
use crate::cpython::{Descriptor, imported, int_value};

/// How the parts of sparse tensors are read; nothing in versions that have other names.
pub struct Sparse {
    is_sparse: Option<Descriptor>,
    layout: Option<Descriptor>,
    detach: Option<Py<PyAny>>,
    /// The number of modes (`__torch_dispatch__`) that the program is in: they would see each call.
    modes: Option<Py<PyAny>>,
    coordinates: Parts,
    /// Those of the layouts that compress rows, and columns.
    compressed: [(Vec<Py<PyAny>>, Parts); 2],
}

/// Names of parts, and the methods that return them.
type Parts = Vec<(&'static str, Py<PyAny>)>;

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
        let modes = self.modes.as_ref()?.bind(py).call0().ok()?;
        if !is_plain || int_value(&modes) != Some(0) {
            return None;
        }
        // Without the autograd graph, which would grow by what is read.
        let plain = self.detach.as_ref()?.bind(py).call1((tensor,)).ok()?;
        let read = parts.iter().filter_map(|(name, method)| {
            let part = method.bind(py).call1((&plain,)).ok()?;
            Some((*name, part))
        });
        Some(read.collect())
    }
}
