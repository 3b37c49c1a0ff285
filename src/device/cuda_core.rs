//! cuda.core: the buffers of its memory resources.
//!
//! A buffer's attributes are defined by C code (cuda/core/_memory/_buffer.pyx). Its `device_id` asks the memory resource, which
//! may be a class of the program's, so the driver is asked instead. A buffer that has neither an owner nor a resource
//! stands for a pointer that came as a number.

use super::described::{Description, Known};

/// `cuda.core.Buffer`.
pub const BUFFER: Known = Known {
    module: "cuda.core._memory._buffer",
    class: "Buffer",
    description: Description {
        kind: "cuda",
        pointer: "handle",
        bytes: "size",
        number: None,
        dtype: None,
        shape: None,
        owner: Some("owner"),
        resource: Some("memory_resource"),
    },
};
