//! RMM, and cuDF, whose columns are in buffers of RMM.
//!
//! The pointer and the size of a buffer are attributes that C code defines (pylibrmm/device_buffer.pyx). It does not say
//! on which device it is: the driver does.

use super::described::{Description, Known};

/// `rmm.DeviceBuffer`.
pub const BUFFER: Known = Known {
    module: "rmm.pylibrmm.device_buffer",
    class: "DeviceBuffer",
    description: Description {
        kind: "cuda",
        pointer: "ptr",
        bytes: "size",
        number: None,
        dtype: None,
        shape: None,
        owner: None,
        resource: None,
    },
};
