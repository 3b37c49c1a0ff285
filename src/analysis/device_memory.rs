//! What the tensors of a device are for and what holds each: the live ones, and garbage.

use std::time::Instant;

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::found::Found;
use crate::device::DeviceSelection;
use crate::diagnose::division::{Piece, Use};
use crate::model::report::Collection;

impl Inspector {
    /// The memory of all tensors and arrays on some devices, each piece once.
    ///
    /// # Errors
    /// As [`Inspector::heap`].
    pub fn pieces_on(&self, py: Python<'_>, devices: &DeviceSelection) -> PyResult<Vec<Piece>> {
        let live = self.heap(py)?.buffers.into_iter();
        let live = live.filter(|buffer| devices.contains(&buffer.device));
        let mut pieces: Vec<Piece> = live
            .map(|buffer| Piece {
                address: buffer.pointer,
                used_for: Use::Live(buffer.category),
                holder: buffer.kind(),
            })
            .collect();
        let (garbage, _) = self.look(py, devices, None, usize::MAX)?;
        pieces.extend(self.pieces_of(py, garbage, Use::Garbage));
        let frozen = self.look_at_frozen(py, devices)?;
        pieces.extend(self.pieces_of(py, frozen, Use::FrozenGarbage));
        // A leak lists some of its buffers, and some garbage is in no cycle.
        let rest = self.unreachable_memory(py, devices)?.into_iter();
        pieces.extend(rest.map(|(address, _)| Piece {
            address,
            used_for: Use::Garbage,
            holder: String::new(),
        }));
        let mut seen = FxHashSet::default();
        pieces.retain(|piece| seen.insert(piece.address));
        Ok(pieces)
    }

    fn pieces_of(&self, py: Python<'_>, found: Vec<Found>, used_for: Use) -> Vec<Piece> {
        let mut report = self.report(py, found, Collection::default(), Instant::now());
        Self::finish(&mut report, self.redacts(), None);
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
