//! What the framework's allocator counts.

use pyo3::intern;
use pyo3::prelude::*;

use super::modules::imported_module;

/// The bytes that PyTorch's caching allocator has handed out on a CUDA device and not got back.
///
/// Reads the allocator's own counters (`torch._C._cuda_memoryStats`): no CUDA call, so it is
/// allowed while a graph is being captured. `None` without PyTorch, before it has initialised
/// CUDA, in a forked child, and for other devices.
pub fn allocated_bytes(py: Python<'_>, device: &str) -> Option<u64> {
    let ordinal: i32 = device.strip_prefix("cuda:")?.parse().ok()?;
    let cuda = imported_module(intern!(py, "torch.cuda"))?;
    if !cuda
        .getattr(intern!(py, "_initialized"))
        .ok()?
        .is_truthy()
        .ok()?
    {
        return None;
    }
    let native = imported_module(intern!(py, "torch._C"))?;
    let forked = native.call_method0(intern!(py, "_cuda_isInBadFork")).ok()?;
    if forked.is_truthy().ok()? {
        return None;
    }
    let stats = native
        .call_method1(intern!(py, "_cuda_memoryStats"), (ordinal,))
        .ok()?;
    stats
        .get_item(intern!(py, "allocated_bytes"))
        .and_then(|stat| stat.get_item(intern!(py, "all")))
        .and_then(|stat| stat.get_item(intern!(py, "current")))
        .ok()?
        .extract()
        .ok()
}
