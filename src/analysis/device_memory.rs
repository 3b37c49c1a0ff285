//! What the tensors of a device are for and what holds each: the live ones, and garbage.

use std::time::Instant;

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::found::{Behind, Found};
use crate::device::DeviceSelection;
use crate::diagnose::division::{Piece, Use};
use crate::model::redact::redact;
use crate::model::report::Collection;

impl Inspector {
    /// The memory of all tensors and arrays on a device, each piece once; and remarks about it.
    pub fn pieces_on(
        &self,
        py: Python<'_>,
        device: &str,
        devices: &DeviceSelection,
    ) -> PyResult<(Vec<Piece>, Vec<String>)> {
        let look = self.look(py, devices, None, usize::MAX, Behind::Ignored)?;
        let mut garbage = look.found;
        self.drop_in_use(py, &mut garbage)?;
        let mut pieces = self.pieces_of(py, garbage, Use::Garbage);
        let frozen = self.look_at_frozen(py, devices)?;
        pieces.extend(self.pieces_of(py, frozen, Use::FrozenGarbage));
        // A leak lists some of its buffers only.
        let unreached = self.memory_in_use(py, device, Instant::now())?.garbage;
        pieces.extend(unreached.into_iter().map(|(address, _)| Piece {
            address,
            used_for: Use::Garbage,
            holder: String::new(),
        }));
        let heap = self.heap(py)?;
        let live = heap.buffers.into_iter();
        let live = live.filter(|buffer| buffer.device == device);
        pieces.extend(live.map(|buffer| Piece {
            address: buffer.pointer,
            used_for: Use::Live(buffer.category),
            holder: buffer.first_owner,
        }));
        let mut seen = FxHashSet::default();
        pieces.retain(|piece| seen.insert(piece.address));
        Ok((pieces, heap.notes))
    }

    fn pieces_of(&self, py: Python<'_>, found: Vec<Found>, used_for: Use) -> Vec<Piece> {
        let mut report = self.report(py, found, Collection::default(), Instant::now());
        if self.redacts() {
            redact(&mut report);
        }
        let pieces = report.leaks.iter().flat_map(|leak| {
            leak.buffers.iter().map(|buffer| Piece {
                address: buffer.pointer,
                used_for,
                holder: format!("leak {}: {}", leak.signature, leak.summary),
            })
        });
        pieces.collect()
    }
}
