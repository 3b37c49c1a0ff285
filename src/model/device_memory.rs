//! What the memory of a device is used for, with nothing left over: the model.

use serde::{Deserialize, Serialize};

use super::report::Process;

/// The memory of a device, divided by use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// The device, such as `cuda:0`.
    pub device: String,
    /// Time of the result, in seconds since 1970-01-01 UTC.
    pub time: f64,
    /// The process that was inspected.
    pub process: Process,
    /// The device's memory in bytes.
    pub total: u64,
    /// Bytes of the device that the driver says are free.
    pub free: u64,
    /// The uses of the memory that is not free, largest first; each byte is in one row.
    pub rows: Vec<MemoryRow>,
    /// PyTorch's pinned host memory, which is not part of the device's. Sizes are those of the allocator's blocks, powers
    /// of two.
    pub host: Vec<MemoryRow>,
    /// Remarks about the result, such as what could not be inspected.
    pub notes: Vec<String>,
}

/// One use of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct MemoryRow {
    /// What the memory is used for, such as `parameters` or `cached by PyTorch`.
    pub name: String,
    /// Bytes in this use, each block of the allocator as a whole.
    pub bytes: u64,
    /// What gives the memory back.
    pub freed_by: String,
    /// The owners or leaks that hold most of it.
    pub holders: Vec<MemoryHolder>,
}

/// What holds some of the memory of one use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct MemoryHolder {
    /// The owner as the live heap names it, or the leak's signature and cycle.
    pub name: String,
    /// Bytes of this use that it holds.
    pub bytes: u64,
}

impl DeviceMemory {
    /// The bytes of the device that are not free.
    pub fn in_use(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// Where memory is: `on cuda:0`, `in shared memory`.
pub fn on_device(device: &str) -> String {
    match device {
        "pinned" | "shared" => format!("in {device} memory"),
        _ => format!("on {device}"),
    }
}
