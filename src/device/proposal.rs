//! What a framework says of the memory of an object, before the driver was asked.

use pyo3::prelude::*;

use super::DeviceBuffer;
use crate::cpython::{int_value, items};

/// The memory that an object holds according to its framework, not yet confirmed.
pub struct Proposal {
    pub buffer: DeviceBuffer,
}

impl Proposal {
    pub fn new(pointer: u64, bytes: u64, device: String) -> Self {
        let buffer = DeviceBuffer {
            pointer,
            bytes,
            device,
            dtype: None,
            shape: None,
            confirmed: false,
            is_placed: true,
            is_lent: false,
        };
        Self { buffer }
    }

    /// Memory of a Python object that its framework does not tell the place of.
    pub fn unplaced(holder: &Bound<'_, PyAny>, bytes: u64, device: String) -> Self {
        let mut proposal = Self::new(holder.as_ptr() as u64, bytes, device);
        proposal.buffer.is_placed = false;
        proposal
    }
}

/// The numbers of a shape; `None` if some part of it is no size.
pub fn extents(shape: &Bound<'_, PyAny>) -> Option<Vec<u64>> {
    let extents = items(shape);
    let extents = extents.iter();
    extents
        .map(|extent| u64::try_from(int_value(extent)?).ok())
        .collect()
}
