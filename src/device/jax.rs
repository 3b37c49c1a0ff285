//! JAX: arrays on any device.
//!
//! An array is asked only what its C++ object answers at once and without making an object that the collector tracks
//! (jaxlib/py_array.cc). So it is not asked where its memory is: `unsafe_buffer_pointer` waits while the array is
//! being donated, in the midst of a host callback for ever, and makes an array of each shard. `is_ready` makes the
//! frame objects of all calls. The array itself stands for its memory.
//!
//! Tracers are objects of other types, and none of theirs has memory.

use std::rc::Rc;

use pyo3::exceptions::PyLookupError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyType};

use super::dtype::DtypeNames;
use super::framework::{ArrayReference, Framework, Imported, Unread};
use super::modules::{class, imported, part};
use super::native_function::NativeFunction;
use super::proposal::{Proposal, extents};
use crate::cpython::{Descriptor, Instances, int_value, text_of};

/// The first version of jaxlib that says how large an array is without running code of JAX's in Python.
const OLDEST: (u32, u32) = (0, 10);
/// The runtime that is in this process. Another asks a server.
const LOCAL_RUNTIME: &str = "pjrt_ifrt";
/// What devices call themselves that JAX calls `gpu`.
const GPUS: [&str; 2] = ["cuda", "rocm"];

/// The functions by which arrays are read.
pub struct Jax {
    array: Py<PyType>,
    is_deleted: NativeFunction,
    bytes: NativeFunction,
    sharding: NativeFunction,
    abstract_value: NativeFunction,
    host_copy: NativeFunction,
    shape: Descriptor,
    dtype: Descriptor,
    dtypes: DtypeNames,
    shardings: Vec<Sharding>,
    devices: Devices,
}

/// A class of shardings, each of which says on which devices the shards of an array are.
struct Sharding {
    class: Py<PyType>,
    devices: NativeFunction,
    memory_kind: NativeFunction,
}

/// How lists of devices, devices, and the clients that they belong to are read.
struct Devices {
    length: NativeFunction,
    item: NativeFunction,
    platform: NativeFunction,
    text: NativeFunction,
    hardware_number: NativeFunction,
    process: NativeFunction,
    client: NativeFunction,
    runtime: NativeFunction,
    own_process: NativeFunction,
}

impl Imported for Jax {
    fn module(py: Python<'_>) -> &Bound<'_, PyString> {
        intern!(py, "jaxlib._jax")
    }

    fn new<'py>(native: &Bound<'py, PyDict>, _: &Rc<Instances>) -> Result<Self, Unread> {
        let py = native.py();
        let module = |name: &Bound<'py, PyString>| {
            imported(name).ok_or_else(|| PyLookupError::new_err("JAX is still being imported"))
        };
        let version = part(&module(intern!(py, "jaxlib.version"))?, "__version__")?;
        if version_of(&text_of(&version).unwrap_or_default()) < Some(OLDEST) {
            return Err(Unread::Never);
        }
        let array = class(native, "ArrayImpl")?;
        let shaped = class(&module(intern!(py, "jax._src.core"))?, "ShapedArray")?;
        let shardings = ["SingleDeviceSharding", "NamedSharding", "GSPMDSharding"];
        Ok(Self {
            is_deleted: NativeFunction::method(&array, "is_deleted")?,
            bytes: NativeFunction::method(&array, "on_device_size_in_bytes")?,
            sharding: NativeFunction::getter(&array, "_sharding")?,
            abstract_value: NativeFunction::getter(&array, "aval")?,
            host_copy: NativeFunction::getter(&array, "_npy_value")?,
            shape: Descriptor::of(&shaped, "shape")?,
            dtype: Descriptor::of(&shaped, "dtype")?,
            dtypes: DtypeNames::new(&module(intern!(py, "numpy"))?)?,
            shardings: shardings
                .iter()
                .filter_map(|name| Sharding::new(class(native, name).ok()?).ok())
                .collect(),
            devices: Devices::new(native)?,
            array: array.unbind(),
        })
    }
}

impl Framework for Jax {
    /// The class has no subclasses.
    unsafe fn knows(&self, ty: *mut ffi::PyTypeObject) -> bool {
        ty.cast() == self.array.as_ptr()
    }

    fn is_tracked(&self) -> bool {
        true
    }

    fn memory(&self, array: &Bound<'_, PyAny>) -> Vec<Proposal> {
        self.shards(array).unwrap_or_default()
    }

    /// The copy of an array in host memory, which JAX keeps once somebody has asked for it.
    fn for_each_untraversed(
        &self,
        array: &Bound<'_, PyAny>,
        f: &mut dyn FnMut(ArrayReference, *mut ffi::PyObject),
    ) {
        if let Some(copy) = self.host_copy.of(array) {
            f(ArrayReference::HostCopy, copy.as_ptr());
        }
    }
}

impl Jax {
    /// The shards of an array that are on devices of this process, each with the array's own type and shape; `None`
    /// for one that was deleted or donated.
    fn shards(&self, array: &Bound<'_, PyAny>) -> Option<Vec<Proposal>> {
        let sharding = self.sharding.of(array)?;
        let class = sharding.get_type();
        let kind = self
            .shardings
            .iter()
            .find(|kind| class.is(kind.class.bind(array.py())))?;
        let list = kind.devices.of(&sharding)?;
        let devices = self.devices.of_process(&list)?;
        if int_value(&self.is_deleted.of(array)?)? != 0 {
            return None;
        }
        let all = u64::try_from(int_value(&self.bytes.of(array)?)?).ok()?;
        let bytes = all.checked_div(self.devices.count(&list)?)?;
        if bytes == 0 {
            return None;
        }
        let host_memory = kind.host_memory(&sharding);
        let (dtype, shape) = self.type_and_shape(array);
        let names = devices.iter().map(|device| match host_memory {
            Some(name) => Some(name.to_owned()),
            None => self.devices.name(device),
        });
        let mut shards: Vec<Proposal> = Vec::new();
        for name in names {
            let name = name?;
            // All shards in host memory are one buffer.
            if let Some(known) = shards.iter_mut().find(|it| it.buffer.device == name) {
                known.buffer.bytes += bytes;
                continue;
            }
            let mut shard = Proposal::unplaced(array, bytes, name);
            shard.buffer.dtype.clone_from(&dtype);
            shard.buffer.shape.clone_from(&shape);
            shards.push(shard);
        }
        Some(shards)
    }

    fn type_and_shape(&self, array: &Bound<'_, PyAny>) -> (Option<String>, Option<Vec<u64>>) {
        let Some(value) = self.abstract_value.of(array) else {
            return (None, None);
        };
        let dtype = self.dtype.get(&value);
        let shape = self.shape.get(&value).and_then(|shape| extents(&shape));
        (dtype.and_then(|dtype| self.dtypes.name(&dtype)), shape)
    }
}

impl Sharding {
    fn new(class: Bound<'_, PyType>) -> Result<Self, Unread> {
        Ok(Self {
            devices: NativeFunction::getter(&class, "_internal_device_list")?,
            memory_kind: NativeFunction::getter(&class, "_memory_kind")?,
            class: class.unbind(),
        })
    }

    /// The name of the host's memory that the arrays are in, whatever device they belong to; `None` for the device's own.
    fn host_memory(&self, sharding: &Bound<'_, PyAny>) -> Option<&'static str> {
        let kind = text_of(&self.memory_kind.of(sharding)?)?;
        match kind.as_str() {
            "pinned_host" => Some("pinned"),
            kind => kind.ends_with("host").then_some("cpu"),
        }
    }
}

impl Devices {
    fn new(native: &Bound<'_, PyDict>) -> Result<Self, Unread> {
        let list = class(native, "DeviceList")?;
        let device = class(native, "Device")?;
        let client = class(native, "Client")?;
        Ok(Self {
            length: NativeFunction::method(&list, "__len__")?,
            item: NativeFunction::method(&list, "__getitem__")?,
            platform: NativeFunction::getter(&device, "platform")?,
            text: NativeFunction::method(&device, "__str__")?,
            hardware_number: NativeFunction::getter(&device, "local_hardware_id")?,
            process: NativeFunction::getter(&device, "process_index")?,
            client: NativeFunction::getter(&device, "client")?,
            runtime: NativeFunction::getter(&client, "runtime_type")?,
            own_process: NativeFunction::method(&client, "process_index")?,
        })
    }

    fn count(&self, list: &Bound<'_, PyAny>) -> Option<u64> {
        u64::try_from(int_value(&self.length.of(list)?)?).ok()
    }

    /// The devices of a list that are this process's own; `None` if they are a server's.
    fn of_process<'py>(&self, list: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
        let mut own = Vec::new();
        let mut process = None;
        for number in 0..self.count(list)? {
            let number = PyInt::new(list.py(), number).into_any();
            let device = self.item.of_with(list, &number)?;
            if process.is_none() {
                let client = self.client.of(&device)?;
                if text_of(&self.runtime.of(&client)?)? != LOCAL_RUNTIME {
                    return None;
                }
                process = Some(int_value(&self.own_process.of(&client)?)?);
            }
            if int_value(&self.process.of(&device)?) == process {
                own.push(device);
            }
        }
        Some(own)
    }

    /// The name of a device, such as `cuda:0`.
    fn name(&self, device: &Bound<'_, PyAny>) -> Option<String> {
        let platform = text_of(&self.platform.of(device)?)?.to_lowercase();
        let kind = match platform.as_str() {
            "cpu" => return Some(platform),
            "gpu" => {
                let text = text_of(&self.text.of(device)?)?.to_lowercase();
                let known = GPUS.iter().find(|kind| text.starts_with(**kind));
                known.map_or(platform, |kind| (*kind).to_owned())
            }
            _ => platform,
        };
        let number = int_value(&self.hardware_number.of(device)?)?;
        Some(format!("{kind}:{number}"))
    }
}

/// The first two numbers of a version.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version_of("0.12.0.1") > Some(OLDEST));
        assert!(version_of("0.10.0.dev20260101") >= Some(OLDEST));
        assert!(version_of("0.9.2") < Some(OLDEST));
        assert!(version_of("") < Some(OLDEST));
    }
}
