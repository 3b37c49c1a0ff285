//! What a framework says of the memory of an object, before the driver was asked.

use super::DeviceBuffer;

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
        };
        Self { buffer }
    }
}
