//! Which device memory does an object hold?
//!
//! A framework's adapter proposes a pointer, the CUDA driver confirms it. So a fake tensor or
//! a freed buffer is never taken for memory, and the buffers of all frameworks are treated alike.

mod selection;

#[cfg(feature = "python")]
mod address;
#[cfg(feature = "python")]
mod allocator;
#[cfg(feature = "python")]
mod attribute;
#[cfg(feature = "python")]
mod autograd;
#[cfg(feature = "python")]
mod cuda_core;
#[cfg(feature = "python")]
mod cupy;
#[cfg(feature = "python")]
mod described;
#[cfg(feature = "python")]
mod driver;
#[cfg(feature = "python")]
mod dtype;
#[cfg(feature = "python")]
mod framework;
#[cfg(feature = "python")]
mod frameworks;
#[cfg(feature = "python")]
mod held;
#[cfg(feature = "python")]
mod jax;
#[cfg(feature = "python")]
mod modules;
#[cfg(feature = "python")]
mod native_function;
#[cfg(feature = "python")]
mod numba;
#[cfg(feature = "python")]
mod numpy;
#[cfg(feature = "python")]
mod proposal;
#[cfg(feature = "python")]
mod protobuf;
#[cfg(feature = "python")]
mod registered;
#[cfg(feature = "python")]
mod rmm;
#[cfg(feature = "python")]
mod sparse;
#[cfg(feature = "python")]
mod storage_watch;
#[cfg(feature = "python")]
mod tensorflow;
#[cfg(feature = "python")]
mod tensorflow_handle;
#[cfg(feature = "python")]
mod torch;

pub(crate) use selection::is_host;
pub use selection::{DeviceSelection, UnknownDevice};
#[cfg(feature = "python")]
pub(crate) use selection::{add_kind, kinds};
#[cfg(feature = "python")]
pub(crate) use {
    allocator::{allocator_bytes, allocator_counts},
    autograd::{Autograd, UNPACK_HOOK, autograd_sequence_now, keeps_casts},
    described::Described,
    driver::{driver_present, gpu_names},
    framework::ArrayReference,
    frameworks::Frameworks,
    held::Reading,
    modules::class,
    registered::{MOST as MOST_REGISTERED, Registration, add as register},
    sparse::PartsReadAhead,
    storage_watch::StorageWatch,
};

/// A piece of device memory, as its framework and the driver describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceBuffer {
    /// Address of the first byte of the storage, on the device; or what stands for it: see `is_placed`.
    pub pointer: u64,
    /// Size of the whole storage in bytes.
    pub bytes: u64,
    /// The device, such as `cuda:0` or `cpu`.
    pub device: String,
    /// Element type, such as `float32`; `None` for raw storage.
    pub dtype: Option<String>,
    /// Extent of each dimension; `None` for raw storage.
    pub shape: Option<Vec<u64>>,
    /// True if the CUDA driver said that `pointer` is device memory.
    pub confirmed: bool,
    /// False if the framework does not tell where the memory is: then `pointer` is the address of the Python object that
    /// holds it.
    pub is_placed: bool,
    /// As [`crate::model::report::Buffer::lent`].
    pub is_lent: bool,
}

impl DeviceBuffer {
    /// True if all of another buffer is in this one.
    #[cfg(feature = "python")]
    pub(crate) fn contains(&self, part: &Self) -> bool {
        self.space() == part.space()
            && self.pointer <= part.pointer
            && part.pointer.saturating_add(part.bytes) <= self.pointer.saturating_add(self.bytes)
    }

    /// What has the addresses: the host, or else the device.
    #[cfg(feature = "python")]
    pub(crate) fn space(&self) -> &str {
        if is_host(&self.device) {
            "cpu"
        } else {
            &self.device
        }
    }
}
