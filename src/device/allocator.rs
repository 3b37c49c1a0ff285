//! What the framework's allocator counts.

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::modules::{imported, part};

/// The bytes that PyTorch's caching allocator has handed out on a CUDA device and not got back, and those that were
/// asked for, without what the allocator adds to each; the former again where the version of PyTorch does not count
/// those.
///
/// Reads the allocator's own counters (`torch._C._cuda_memoryStats`): no CUDA call, so it is
/// allowed while a graph is being captured. `None` without PyTorch, before it has initialised
/// CUDA, in a forked child, for other devices, and with `cudaMallocAsync`, whose numbers are the
/// driver's: they change when the stream gets there.
pub fn allocator_counts(py: Python<'_>, device: &str) -> Option<(u64, u64)> {
    let statistics = statistics(py, device)?;
    let allocated = current(&statistics, intern!(py, "allocated_bytes"))?;
    let requested = current(&statistics, intern!(py, "requested_bytes"));
    Some((allocated, requested.unwrap_or(allocated)))
}

/// The bytes handed out as in [`allocator_counts`], and those that the allocator has from the driver, in use or not.
pub fn allocator_bytes(py: Python<'_>, device: &str) -> Option<(u64, u64)> {
    let statistics = statistics(py, device)?;
    Some((
        current(&statistics, intern!(py, "allocated_bytes"))?,
        current(&statistics, intern!(py, "reserved_bytes"))?,
    ))
}

fn statistics<'py>(py: Python<'py>, device: &str) -> Option<Bound<'py, PyAny>> {
    let ordinal: i32 = device.strip_prefix("cuda:")?.parse().ok()?;
    let cuda = imported(intern!(py, "torch.cuda"))?;
    if !part(&cuda, "_initialized").ok()?.is_truthy().ok()? {
        return None;
    }
    let native = imported(intern!(py, "torch._C"))?;
    let forked = part(&native, "_cuda_isInBadFork").ok()?.call0().ok()?;
    let backend = part(&native, "_cuda_getAllocatorBackend")
        .ok()?
        .call0()
        .ok()?;
    if forked.is_truthy().ok()? || backend.extract::<String>().ok()? != "native" {
        return None;
    }
    part(&native, "_cuda_memoryStats")
        .ok()?
        .call1((ordinal,))
        .ok()
}

fn current(statistics: &Bound<'_, PyAny>, kind: &Bound<'_, PyString>) -> Option<u64> {
    let py = kind.py();
    statistics
        .get_item(kind)
        .and_then(|stat| stat.get_item(intern!(py, "all")))
        .and_then(|stat| stat.get_item(intern!(py, "current")))
        .ok()?
        .extract()
        .ok()
}
