//! How many bytes an object takes by itself, as its built-in class counts them: `sys.getsizeof` without the
//! methods of the program's classes.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};

use super::{Builtins, int_value};

/// `PyGC_Head` of `Include/internal/pycore_gc.h`, which lies before each object that the collector tracks, but on
/// free-threaded builds.
const HEAD: u64 = if cfg!(Py_GIL_DISABLED) { 0 } else { 16 };

/// The `__sizeof__` of built-in classes, which is C code. That of `object` is not asked: it believes a generator,
/// say, to be as long as a word says that means something else.
pub struct Sizes<'a, 'py> {
    builtins: &'a Builtins,
    /// Those of classes whose objects differ in size or have memory elsewhere.
    methods: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
}

impl<'a, 'py> Sizes<'a, 'py> {
    /// # Errors
    /// If a built-in class lacks the method.
    pub fn new(py: Python<'py>, builtins: &'a Builtins) -> PyResult<Self> {
        let classes = [
            py.get_type::<PyDict>(),
            py.get_type::<PyList>(),
            py.get_type::<PySet>(),
            py.get_type::<PyFrozenSet>(),
            py.get_type::<PyString>(),
            py.get_type::<PyInt>(),
            py.get_type::<PyByteArray>(),
            py.get_type::<PyTuple>(),
            py.get_type::<PyBytes>(),
        ];
        let methods = classes.into_iter().map(|class| {
            let method = class.getattr("__sizeof__")?;
            Ok((class.into_any(), method))
        });
        Ok(Self {
            builtins,
            methods: methods.collect::<PyResult<_>>()?,
        })
    }

    /// The bytes of an object, at least: what its class keeps elsewhere in C is not counted.
    pub fn of(&self, object: &Bound<'py, PyAny>) -> u64 {
        // SAFETY: attached; the object, its class and the classes here are alive.
        let (method, flags) = unsafe {
            let class = ffi::Py_TYPE(object.as_ptr());
            let mut methods = self.methods.iter();
            let found =
                methods.find(|(base, _)| ffi::PyType_IsSubtype(class, base.as_ptr().cast()) != 0);
            (found, ffi::PyType_GetFlags(class))
        };
        let size = match method {
            Some((_, method)) => method.call1((object,)).ok(),
            None => self.builtins.type_basicsize.get(object.get_type().as_any()),
        };
        let size = size.and_then(|size| int_value(&size));
        let head = match flags & ffi::Py_TPFLAGS_HAVE_GC {
            0 => 0,
            _ => HEAD,
        };
        size.and_then(|size| u64::try_from(size).ok())
            .map_or(0, |size| size + head)
    }
}
