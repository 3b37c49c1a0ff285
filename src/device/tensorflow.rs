//! TensorFlow: eager tensors, and the variables that Keras's layers consist of.
//!
//! A tensor is asked only what its C++ code answers at once and without making an object that the collector tracks. Its
//! size is not answered at once while operations run asynchronously (`LocalTensorHandleData::NumElements`), so tensors
//! are not read where that may be. Variables are: what the tensor that is their handle refers to, a message in it says.
//! TensorFlow does not tell where memory is: the tensor, and the handle of a variable, stand for it.

use std::cell::Cell;
use std::rc::Rc;

use pyo3::exceptions::PyLookupError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};

use super::framework::{Framework, Imported, Unread};
use super::modules::{class, imported, part};
use super::native_function::NativeFunction;
use super::proposal::Proposal;
use super::protobuf::fields;
use super::tensorflow_handle::Handles;
use crate::cpython::{
    Descriptor, Instances, attribute, dict_items, find_item, int_value, items, reference_count,
};

/// The element types that are in the memory of a tensor itself, the number of each and the bytes of an element
/// (tensorflow/core/framework/types.proto).
const ELEMENT_TYPES: [(i64, &str, u64); 28] = [
    (1, "float32", 4),
    (2, "float64", 8),
    (3, "int32", 4),
    (4, "uint8", 1),
    (5, "int16", 2),
    (6, "int8", 1),
    (8, "complex64", 8),
    (9, "int64", 8),
    (10, "bool", 1),
    (11, "qint8", 1),
    (12, "quint8", 1),
    (13, "qint32", 4),
    (14, "bfloat16", 2),
    (15, "qint16", 2),
    (16, "quint16", 2),
    (17, "uint16", 2),
    (18, "complex128", 16),
    (19, "float16", 2),
    (22, "uint32", 4),
    (23, "uint64", 8),
    (24, "float8_e5m2", 1),
    (25, "float8_e4m3fn", 1),
    (26, "float8_e4m3fnuz", 1),
    (27, "float8_e4m3b11fnuz", 1),
    (28, "float8_e5m2fnuz", 1),
    (29, "int4", 1),
    (30, "uint4", 1),
    (31, "int2", 1),
];

/// The number of the type of handles (`DT_RESOURCE`).
const RESOURCE: i64 = 20;

/// How many references there are to the class of executors while there is no executor: its module's, that of its own
/// `__mro__`, and that of the descriptor of its slot.
const REFERENCES_WITHOUT_EXECUTORS: i64 = 3;

/// The ways in which tensors and variables are read.
pub struct Tensorflow {
    tensor: Py<PyType>,
    variable: Py<PyType>,
    handles: Handles,
    known_shape: Descriptor,
    extents: Descriptor,
    handle_data: Descriptor,
    /// The messages that say what a handle refers to, and how they are encoded; `None` if that is written in Python.
    message: Option<(Py<PyType>, NativeFunction)>,
    /// What this build of TensorFlow calls `GPU`.
    gpu: &'static str,
    has_gpu: bool,
    instances: Rc<Instances>,
    /// True if the size of a tensor may not be known yet.
    may_wait: Cell<bool>,
}

#[derive(Clone, Copy)]
struct ElementType {
    name: &'static str,
    bytes: u64,
}

impl ElementType {
    fn of(number: i64) -> Option<Self> {
        let found = ELEMENT_TYPES.iter().find(|(known, ..)| *known == number);
        found.map(|&(_, name, bytes)| Self { name, bytes })
    }
}

impl Imported for Tensorflow {
    fn module(py: Python<'_>) -> &Bound<'_, PyString> {
        intern!(py, "tensorflow.python.framework.ops")
    }

    fn new<'py>(ops: &Bound<'py, PyDict>, instances: &Rc<Instances>) -> Result<Self, Unread> {
        let py = ops.py();
        let module = |name: &Bound<'py, PyString>| {
            imported(name)
                .ok_or_else(|| PyLookupError::new_err("TensorFlow is still being imported"))
        };
        let tensor = class(ops, "EagerTensor")?;
        let variables = module(intern!(py, "tensorflow.python.ops.resource_variable_ops"))?;
        let shapes = module(intern!(py, "tensorflow.python.framework.tensor_shape"))?;
        // Asked below; while it is not there yet, so may others be.
        module(intern!(py, "tensorflow.python.platform.build_info"))?;
        let message = imported(intern!(py, "google._upb._message"));
        let message = message.and_then(|message| class(&message, "Message").ok());
        let message = message.and_then(|message| {
            let encode = NativeFunction::method(&message, "SerializePartialToString").ok()?;
            Some((message.unbind(), encode))
        });
        let gpu = gpu_of_build(py);
        Ok(Self {
            handles: Handles::new(&tensor)?,
            known_shape: Descriptor::of(&tensor, "_tensor_shape")?,
            extents: Descriptor::of(&class(&shapes, "TensorShape")?, "_dims")?,
            handle_data: Descriptor::of(&tensor, "_handle_data")?,
            message,
            gpu: gpu.unwrap_or("gpu"),
            has_gpu: gpu.is_some(),
            variable: class(&variables, "BaseResourceVariable")?.unbind(),
            tensor: tensor.unbind(),
            instances: Rc::clone(instances),
            may_wait: Cell::new(true),
        })
    }
}

impl Framework for Tensorflow {
    fn begin_look(&self, py: Python<'_>) {
        self.may_wait.set(self.is_remote_or_late(py) != Some(false));
    }

    unsafe fn knows(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; walks the type's own `tp_mro`.
        ty.cast() == self.tensor.as_ptr()
            || unsafe { ffi::PyType_IsSubtype(ty, self.variable.as_ptr().cast()) != 0 }
    }

    fn uses_devices(&self) -> bool {
        self.has_gpu
    }

    fn is_tracked(&self) -> bool {
        true
    }

    fn memory(&self, object: &Bound<'_, PyAny>) -> Vec<Proposal> {
        let read = match self.is_tensor(object) {
            true => self.read_tensor(object),
            false => self.handle(object).and_then(|it| self.read_handle(&it)),
        };
        read.into_iter().collect()
    }

    /// The memory of a variable goes with the handle that refers to it.
    fn way_to_lender<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
        match self.is_tensor(object) {
            true => Some(Vec::new()),
            false => Some(vec![self.handle(object)?]),
        }
    }
}

impl Tensorflow {
    /// The class has no subclasses.
    fn is_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type().is(self.tensor.bind(object.py()))
    }

    fn handle<'py>(&self, variable: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let handle = attribute(&self.instances, variable, "_handle")?;
        // In a graph it is symbolic.
        self.is_tensor(&handle).then_some(handle)
    }

    fn read_tensor(&self, tensor: &Bound<'_, PyAny>) -> Option<Proposal> {
        let handle = self.handles.of(tensor)?;
        let number = handle.element_type();
        if number == RESOURCE {
            return self.read_handle(tensor);
        }
        let kind = ElementType::of(number)?;
        // Small integers of a GPU are in host memory.
        let device = name_of(&handle.backing_device()?, self.gpu)?;
        if self.may_wait.get() {
            return None;
        }
        let count = handle.count()?;
        let shape = self.known_shape.get(tensor);
        let shape = shape.and_then(|shape| self.extents_of(&shape));
        proposed(tensor, kind, count, device, shape)
    }

    /// The memory of the variable that a handle refers to, if it is one of a variable, and its shape is known.
    fn read_handle(&self, handle: &Bound<'_, PyAny>) -> Option<Proposal> {
        let (class, encode) = self.message.as_ref()?;
        let data = self.handle_data.get(handle)?;
        // SAFETY: attached, and both types are alive.
        let is_message = unsafe {
            ffi::PyType_IsSubtype(ffi::Py_TYPE(data.as_ptr()), class.as_ptr().cast()) != 0
        };
        let encoded = is_message.then(|| encode.of(&data))??;
        let (kind, shape) = referred(encoded.cast_exact::<PyBytes>().ok()?.as_bytes())?;
        let mut extents = shape.iter();
        let count = extents.try_fold(1_u64, |count, extent| count.checked_mul(*extent))?;
        let device = name_of(&self.handles.of(handle)?.device()?, self.gpu)?;
        proposed(handle, kind, count, device, Some(shape))
    }

    /// The extents of a shape; `None` unless all are known.
    fn extents_of(&self, shape: &Bound<'_, PyAny>) -> Option<Vec<u64>> {
        let extents = self.extents.get(shape)?;
        let extents = items(&extents);
        let extents = extents.iter();
        extents
            .map(|extent| u64::try_from(int_value(extent)?).ok())
            .collect()
    }

    /// True if the values of tensors may not have been computed yet: TensorFlow was told to run operations
    /// asynchronously, for which threads have executors, or to have a server run them.
    fn is_remote_or_late(&self, py: Python<'_>) -> Option<bool> {
        let executors = imported(intern!(py, "tensorflow.python.eager.executor"))?;
        let executor = part(&executors, "Executor").ok()?;
        // SAFETY: attached, and the class is alive. One reference is the one that was just made.
        let references = unsafe { reference_count(executor.as_ptr()) } - 1;
        if references != REFERENCES_WITHOUT_EXECUTORS {
            return Some(true);
        }
        let contexts = imported(intern!(py, "tensorflow.python.eager.context"))?;
        let context = part(&contexts, "_context").ok()?;
        let is_async = attribute(&self.instances, &context, "_default_is_async")?;
        let server = attribute(&self.instances, &context, "_server_def")?;
        Some(int_value(&is_async)? != 0 || !server.is_none())
    }
}

/// The element type and the extents of what a handle refers to, by its encoded message (`HandleData` in
/// tensorflow/core/framework/cpp_shape_inference.proto); `None` unless that is one tensor, of known extents.
fn referred(encoded: &[u8]) -> Option<(ElementType, Vec<u64>)> {
    let all = fields(encoded)?;
    let mut tensors = all.iter().filter(|(field, _)| *field == 2);
    let (tensor, None) = (tensors.next()?.1.bytes()?, tensors.next()) else {
        return None;
    };
    let (mut kind, mut shape) = (None, None);
    for (field, value) in fields(tensor)? {
        match field {
            1 => shape = Some(extents_in(value.bytes()?)?),
            2 => kind = ElementType::of(i64::try_from(value.number()?).ok()?),
            _ => {}
        }
    }
    Some((kind?, shape?))
}

/// The extents of an encoded shape (`TensorShapeProto` in tensorflow/core/framework/tensor_shape.proto); `None` unless all
/// are known.
fn extents_in(shape: &[u8]) -> Option<Vec<u64>> {
    let mut extents = Vec::new();
    for (field, value) in fields(shape)? {
        match field {
            2 => {
                let dimension = fields(value.bytes()?)?;
                let size = dimension.iter().find(|(field, _)| *field == 1);
                let size = size.map_or(Some(0), |(_, size)| size.number())?;
                // An unknown one is -1.
                i64::try_from(size).ok()?;
                extents.push(size);
            }
            3 if value.number()? != 0 => return None,
            _ => {}
        }
    }
    Some(extents)
}

/// The name of a device, such as `cuda:0` for `/job:localhost/replica:0/task:0/device:GPU:0`.
fn name_of(said: &str, gpu: &str) -> Option<String> {
    let (_, device) = said.rsplit_once("/device:")?;
    let (kind, number) = device.split_once(':')?;
    let number: u32 = number.parse().ok()?;
    match kind {
        "CPU" => Some("cpu".to_owned()),
        "GPU" => Some(format!("{gpu}:{number}")),
        "TPU" => Some(format!("tpu:{number}")),
        // Such as that of a distributed tensor, whose parts are elsewhere.
        _ => None,
    }
}

fn proposed(
    holder: &Bound<'_, PyAny>,
    kind: ElementType,
    count: u64,
    device: String,
    shape: Option<Vec<u64>>,
) -> Option<Proposal> {
    let bytes = count.checked_mul(kind.bytes).filter(|bytes| *bytes != 0)?;
    let mut proposal = Proposal::unplaced(holder, bytes, device);
    proposal.buffer.dtype = Some(kind.name.to_owned());
    proposal.buffer.shape = shape;
    Some(proposal)
}

/// What a build of TensorFlow calls `GPU`; `None` for one without.
fn gpu_of_build(py: Python<'_>) -> Option<&'static str> {
    let module = imported(intern!(py, "tensorflow.python.platform.build_info"))?;
    let build = part(&module, "build_info").ok()?;
    let has = |name| {
        let flag = find_item(name, |f| dict_items(&build, f));
        flag.and_then(|flag| int_value(&flag)) == Some(1)
    };
    match (has("is_cuda_build"), has("is_rocm_build")) {
        (true, _) => Some("cuda"),
        (_, true) => Some("rocm"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_those_of_others() {
        let place = "/job:localhost/replica:0/task:0/device:";
        let name = |device: &str| name_of(&format!("{place}{device}"), "cuda");
        assert_eq!(name("CPU:0").as_deref(), Some("cpu"));
        assert_eq!(name("GPU:3").as_deref(), Some("cuda:3"));
        assert_eq!(name("TPU:1").as_deref(), Some("tpu:1"));
        assert_eq!(name("CUSTOM:0"), None);
        assert_eq!(name("GPU:"), None);
        assert_eq!(name_of("", "cuda"), None);
    }

    #[test]
    fn a_handle_says_what_it_refers_to() {
        let of_3_by_5 = [8, 1, 18, 12, 10, 8, 18, 2, 8, 3, 18, 2, 8, 5, 16, 1];
        let read = referred(&of_3_by_5).map(|(kind, shape)| (kind.name, shape));
        assert_eq!(read, Some(("float32", vec![3, 5])));
        let of_unknown_rank = [8, 1, 18, 6, 10, 2, 24, 1, 16, 14];
        assert!(referred(&of_unknown_rank).is_none());
        assert!(referred(&[]).is_none());
    }

    #[test]
    fn element_types_have_numbers_of_their_own() {
        assert_eq!(
            ElementType::of(1).map(|it| (it.name, it.bytes)),
            Some(("float32", 4))
        );
        // Strings, handles of resources, and variants.
        assert!(
            [0, 7, 20, 21]
                .iter()
                .all(|number| ElementType::of(*number).is_none())
        );
        let numbers: std::collections::BTreeSet<i64> =
            ELEMENT_TYPES.iter().map(|it| it.0).collect();
        assert_eq!(numbers.len(), ELEMENT_TYPES.len());
    }
}
