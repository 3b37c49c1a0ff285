//! The memory that an object holds, as far as its framework and the driver agree.

use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use super::driver::{PointerKind, pointer_kind};
use super::framework::Framework;
use super::frameworks::{Frameworks, TENSOR};
use super::proposal::Proposal;
use super::{DeviceBuffer, DeviceSelection};
use crate::cpython::Verdict;

/// How far a tensor is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Its own memory, which nothing of the program notices.
    Itself,
    /// That of the tensors inside as well, where it has none of its own: see [`Frameworks::dense_parts`]. Not in a collection,
    /// as other threads may run meanwhile.
    Inside,
}

impl Frameworks {
    /// The buffers that an object holds on some of `devices`, one on each, as far as framework and driver agree.
    pub fn buffers(
        &self,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
        devices: &DeviceSelection,
    ) -> Vec<DeviceBuffer> {
        let proposals = self.framework(verdict).and_then(|framework| {
            let is_elsewhere = !devices.includes_host() && framework.is_on_host(object);
            (!is_elsewhere).then(|| self.memory(framework, object))?
        });
        let confirmed = proposals
            .into_iter()
            .flatten()
            .filter_map(|proposal| self.confirm(object.py(), proposal.buffer));
        confirmed
            .filter(|buffer| devices.contains(&buffer.device))
            .collect()
    }

    /// As [`Frameworks::buffers`], as far as a tensor is to be read.
    pub fn buffers_read(
        &self,
        reading: Reading,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
        devices: &DeviceSelection,
    ) -> Vec<DeviceBuffer> {
        let own = self.buffers(verdict, object, devices);
        if reading == Reading::Itself || verdict != TENSOR || !own.is_empty() {
            return own;
        }
        let parts = self.dense_parts(object).into_iter();
        let parts = parts.filter(|part| !part.is(object));
        parts
            .flat_map(|part| self.buffers(TENSOR, &part, devices))
            .collect()
    }

    /// The first of [`Frameworks::buffers`].
    pub fn buffer(
        &self,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
        devices: &DeviceSelection,
    ) -> Option<DeviceBuffer> {
        self.buffers(verdict, object, devices).into_iter().next()
    }

    /// As [`Frameworks::buffer`]; that of a sparse tensor is at the place of its values, with the bytes of all its parts.
    pub fn whole_buffer(
        &self,
        verdict: Verdict,
        object: &Bound<'_, PyAny>,
        devices: &DeviceSelection,
    ) -> Option<DeviceBuffer> {
        let of_parts = || {
            let parts = self.buffers_read(Reading::Inside, verdict, object, devices);
            parts.into_iter().reduce(|before, last| DeviceBuffer {
                bytes: before.bytes + last.bytes,
                ..last
            })
        };
        self.buffer(verdict, object, devices).or_else(of_parts)
    }

    /// What memory an object has, of its own or of the array that it looks into.
    fn memory(
        &self,
        framework: &dyn Framework,
        object: &Bound<'_, PyAny>,
    ) -> Option<Vec<Proposal>> {
        let Some(lender) = framework.way_to_lender(object)?.pop() else {
            return Some(framework.memory(object));
        };
        let lender = self.shown_by(&lender).unwrap_or(lender);
        let Some(lending) = self.framework(self.verdict_of(&lender)) else {
            return framework
                .is_owner(&lender)
                .then(|| framework.memory(object));
        };
        let own = framework.memory(object).into_iter().next()?.buffer;
        let mut lent = lending.memory(&lender);
        for proposal in &mut lent {
            proposal.buffer.dtype.clone_from(&own.dtype);
            proposal.buffer.shape.clone_from(&own.shape);
        }
        Some(lent)
    }

    /// The array that a memoryview shows, if a framework knows it.
    pub(super) fn shown_by<'py>(&self, lender: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let is_view = lender.is_exact_instance_of::<PyMemoryView>();
        let shown = is_view.then(|| self.shown.get(lender))?;
        shown.filter(|shown| self.verdict_of(shown) != 0)
    }

    /// Asks the driver about a proposed buffer: whether it is CUDA's, or host memory that is locked in place. Other devices
    /// go by the framework's word.
    fn confirm(&self, py: Python<'_>, mut buffer: DeviceBuffer) -> Option<DeviceBuffer> {
        let on_host = buffer.device == "cpu";
        let driver_knows = buffer.is_placed
            && (on_host || buffer.device.starts_with("cuda"))
            && self
                .torch
                .as_ref()
                .is_none_or(|torch| !torch.hip && !torch.is_in_bad_fork(py));
        if !driver_knows {
            return Some(buffer);
        }
        match pointer_kind(buffer.pointer) {
            // What a framework takes for the device's own may be memory of the host that the device can reach.
            PointerKind::Host => {
                buffer.confirmed = true;
                buffer.device = "pinned".to_owned();
                Some(buffer)
            }
            _ if on_host => Some(buffer),
            PointerKind::Device { ordinal } => {
                buffer.confirmed = true;
                if let Some(ordinal) = ordinal {
                    buffer.device = format!("cuda:{ordinal}");
                }
                Some(buffer)
            }
            PointerKind::Unanswered => Some(buffer),
            PointerKind::Unknown => None,
        }
    }
}
