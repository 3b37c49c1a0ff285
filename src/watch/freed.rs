//! How much memory the allocator got back.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use crate::analysis::Found;
use crate::device::allocator_counts;
use crate::model::report::Buffer;

/// What PyTorch's allocator had handed out on the CUDA devices of some leaks.
#[derive(Default)]
pub(super) struct Counters {
    /// By device: bytes of the blocks handed out, and the bytes that were asked for.
    devices: Vec<(String, u64, u64)>,
}

impl Counters {
    pub fn of(py: Python<'_>, found: &[Found]) -> Self {
        let mut devices: Vec<String> = found.iter().flat_map(Found::counted_devices).collect();
        devices.sort_unstable();
        devices.dedup();
        let count = |device: String| {
            let (allocated, requested) = allocator_counts(py, &device)?;
            Some((device, allocated, requested))
        };
        Self {
            devices: devices.into_iter().filter_map(count).collect(),
        }
    }

    /// Says of each leak how much the allocator got back since, with what C++ held behind its tensors.
    ///
    /// Of a single leak that is what the counters say. Of several, each gave back what its own storages had; what
    /// went besides, such as an autograd graph, belongs to the only one that has such a graph, or
    /// else the sentence that this returns says that nobody knows whose it was. What finalizers freed went before
    /// these counts.
    pub fn share_out(&self, py: Python<'_>, found: &mut [Found]) -> Option<String> {
        if self.devices.is_empty() {
            return None;
        }
        let (mut blocks, mut bytes) = (0, 0u64);
        for (device, allocated, requested) in &self.devices {
            let (allocated_now, requested_now) = allocator_counts(py, device)?;
            blocks += allocated.saturating_sub(allocated_now);
            bytes += requested.saturating_sub(requested_now);
        }
        let counted = |leak: &Found| {
            let buffers = leak.counted_buffers();
            let is_counted = |of: &Buffer| self.devices.iter().any(|(it, ..)| *it == of.device);
            let counted = buffers.filter(|(buffer, _)| is_counted(buffer));
            let parts = |(buffer, early): (&Buffer, bool)| {
                let place = (buffer.device.clone(), buffer.pointer);
                (place, buffer.bytes, early)
            };
            counted.map(parts).collect::<Vec<_>>()
        };
        let own = |leak: &Found| -> u64 { counted(leak).iter().map(|(_, bytes, _)| bytes).sum() };
        let mut leaks: Vec<&mut Found> = found.iter_mut().filter(|leak| own(leak) > 0).collect();
        if let [only] = leaks.as_mut_slice()
            && !counted(only).iter().any(|&(.., early)| early)
        {
            // Less, and some of it was not of this allocator: an array of CuPy's, or memory lent to a tensor.
            only.freed = (blocks >= own(only)).then_some(blocks);
            return None;
        }
        let mut seen = FxHashSet::default();
        let late = leaks.iter().flat_map(|leak| counted(leak));
        let late = late.filter(|(.., early)| !early);
        let distinct = late.filter(|(place, ..)| seen.insert(place.clone()));
        let rest = bytes.saturating_sub(distinct.map(|(_, bytes, _)| bytes).sum());
        let with_graph = |leak: &Found| leak.buffers().any(|buffer| buffer.has_grad_fn);
        let graphs = leaks.iter().filter(|leak| with_graph(leak)).count();
        for leak in &mut leaks {
            let graph = if graphs == 1 && with_graph(leak) {
                rest
            } else {
                0
            };
            leak.freed = Some(own(leak) + graph);
        }
        (rest > 0 && graphs > 1).then(|| {
            format!(
                "{rest} more bytes were freed with these leaks: the autograd graphs of {graphs} of them held these."
            )
        })
    }
}
