//! Post-mortem of a failed request for memory: the model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::growth::Growth;
use super::report::Process;

/// Why memory ran out, with the numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct PostMortem {
    /// ``cycles``, ``kept-graphs``, ``fragmentation``, ``growth``, ``elsewhere``,
    /// ``batch-too-big``, or ``unclear``.
    pub verdict: String,
    /// Why memory ran out, as far as it is proven, in one line.
    pub headline: String,
    /// What to change.
    pub advice: String,
    /// Time of the error, in seconds since 1970-01-01 UTC.
    pub time: f64,
    /// The process that ran out of memory.
    pub process: Process,
    /// The device, such as ``cuda:0``.
    pub device: String,
    /// The state of the device's memory; None if it could not be read.
    pub numbers: Option<Numbers>,
    /// The Python stack of the request, innermost first.
    pub requested_at: Vec<String>,
    pub cycles: Option<Finding>,
    /// The leak trace of the cycles.
    pub trace: String,
    /// Containers that keep tensors with their graphs.
    pub graphs: Vec<Finding>,
    /// Bytes by category.
    pub roles: BTreeMap<String, u64>,
    pub owners: Vec<Finding>,
    pub growth: Vec<Growth>,
    /// The parts that were not examined, with the reason.
    pub left_out: Vec<String>,
    pub seconds: f64,
}

/// One holder of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Finding {
    pub what: String,
    pub bytes: u64,
    /// True if the request would fit without it.
    pub would_fit: Option<bool>,
    pub details: Vec<String>,
}

/// The state of the device's memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Numbers {
    /// The number of the device.
    pub device: u32,
    /// Bytes requested, as the allocator rounded them up.
    pub requested: u64,
    /// Bytes that this process may take: the whole device, or the fraction of it that was set.
    pub limit: u64,
    /// Bytes that the driver says are free, for any process.
    pub free: u64,
    /// Bytes that the allocator has from CUDA.
    pub reserved: u64,
    /// Bytes of the allocator's blocks in use.
    pub allocated: u64,
    /// Bytes that are neither free nor the allocator's: other processes, CUDA itself, libraries.
    pub elsewhere: Option<u64>,
    /// Bytes of the largest block that is reserved and not in use.
    pub largest_free_block: u64,
    /// Bytes of unused blocks that a request of this size could take if they were contiguous.
    pub free_in_blocks: u64,
    /// Bytes of the segments that only a CUDA graph may use.
    pub private: u64,
}

impl Numbers {
    /// Bytes that the allocator could still take from CUDA.
    pub fn headroom(&self) -> u64 {
        self.free.min(self.limit.saturating_sub(self.reserved))
    }

    /// Each number with its name, to show.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let private = Some(self.private).filter(|&bytes| bytes > 0);
        [
            (Some(self.requested), "requested"),
            (Some(self.limit), "limit of this process"),
            (Some(self.reserved), "reserved by PyTorch's allocator"),
            (Some(self.allocated), "allocated from that"),
            (Some(self.free_in_blocks), "free in blocks of the allocator"),
            (Some(self.largest_free_block), "largest free block"),
            (Some(self.free), "free on the device"),
            (self.elsewhere, "used outside PyTorch's allocator"),
            (private, "reserved for CUDA graphs"),
        ]
        .into_iter()
        .filter_map(|(bytes, name)| Some((bytes?, name)))
    }
}
