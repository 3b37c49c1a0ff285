//! The crate in a Rust program that embeds Python: no Python package, no watch, one look.
#![cfg(feature = "python")]

use cyclescope::model::json;
use cyclescope::render::text;
use cyclescope::{DeviceSelection, Inspector};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A class that stands for a framework's array, so that the test needs none: `cupy.ndarray`, whose
/// memory is read through slots. On host memory the driver is not asked.
const PROGRAM: &std::ffi::CStr = c"
import gc, sys, types

class Memory:
    __slots__ = ('ptr', 'size', 'device_id')

class MemoryPointer:
    __slots__ = ('mem',)

class ndarray:
    __slots__ = ('data', '__weakref__')

cupy, memory = types.ModuleType('cupy'), types.ModuleType('cupy.cuda.memory')
cupy.ndarray = ndarray
memory.MemoryPointer, memory.BaseMemory, memory.Memory = MemoryPointer, Memory, Memory
sys.modules.update({'cupy': cupy, 'cupy.cuda.memory': memory})

class Model:
    pass

def leak():
    memory = Memory()
    memory.ptr, memory.size, memory.device_id = 0x7f0000000000, 4096, 1
    pointer = MemoryPointer()
    pointer.mem = memory
    array = ndarray()
    array.data = pointer
    model = Model()
    model.weights = array
    model.callback = lambda: model

gc.disable()
";

#[test]
fn an_embedding_program_looks_without_collecting() -> PyResult<()> {
    Python::attach(|py| {
        let globals = PyDict::new(py);
        py.run(PROGRAM, Some(&globals), None)?;
        let inspector = Inspector::new(py)?;
        assert_eq!(inspector.find(py, &DeviceSelection::Any)?.leaks.len(), 0);

        py.run(c"leak()", Some(&globals), None)?;
        let devices = DeviceSelection::parse(["cuda:1"]).expect("a device");
        let report = inspector.find(py, &devices)?;
        let [leak] = report.leaks.as_slice() else {
            panic!("one leak expected:\n{}", text::trace(&report));
        };
        assert_eq!((leak.bytes_held, leak.count), (4096, 1));
        assert_eq!(leak.buffers[0].device, "cuda:1");
        assert_eq!(leak.buffers[0].path, [".weights"]);
        assert_eq!(leak.pattern.as_deref(), Some("closure-captures-owner"));
        assert_eq!(
            json::from_json(&json::to_json(&report)).expect("a report"),
            report
        );

        // Looking changed nothing: the garbage is still there, and still found.
        let again = inspector.find(py, &devices)?;
        assert_eq!(again.leaks[0].signature, leak.signature);
        py.run(c"gc.collect()", Some(&globals), None)?;
        assert_eq!(inspector.find(py, &devices)?.leaks.len(), 0);

        let elsewhere = DeviceSelection::parse(["cuda:0"]).expect("a device");
        py.run(c"leak()", Some(&globals), None)?;
        assert_eq!(inspector.find(py, &elsewhere)?.leaks.len(), 0);
        Ok(())
    })
}
