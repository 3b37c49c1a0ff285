//! A Rust program that embeds Python and looks for leaks: no Python package, no watch, one look.
//!
//! `cargo run --example embedding` prints the leak trace. It links with Python's shared library.

use cyclescope::model::report::Report;
use cyclescope::render::text;
use cyclescope::{DeviceSelection, Inspector};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A class that stands for a framework's array, so that the example needs none: `cupy.ndarray`, whose
/// memory is read through slots. On host memory the driver is not asked.
pub const PROGRAM: &std::ffi::CStr = c"
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

/// The leaks in the memory of a device. Looking changes nothing: the garbage stays until Python collects it.
pub fn leaks_of(py: Python<'_>, inspector: &Inspector, device: &str) -> PyResult<Report> {
    let devices = DeviceSelection::parse([device])
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    inspector.find(py, &devices)
}

/// Runs a program that leaks, and prints the leak trace.
pub fn main() -> PyResult<()> {
    Python::attach(|py| {
        let globals = PyDict::new(py);
        py.run(PROGRAM, Some(&globals), None)?;
        py.run(c"leak()", Some(&globals), None)?;
        let report = leaks_of(py, &Inspector::new(py)?, "cuda:1")?;
        print!("{}", text::trace(&report));
        py.run(c"gc.collect()", Some(&globals), None)
    })
}
