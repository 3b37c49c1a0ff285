//! The buffer protocol (PEP 3118): which objects lend their memory, and what memory that is.

use std::ffi::{c_char, c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyType};

use super::read::{imported, referents};

/// `Py_bf_getbuffer` and `Py_bf_releasebuffer` in Include/typeslots.h; known to `PyType_GetSlot` since 3.9.
const GET: c_int = 1;
const RELEASE: c_int = 2;
/// `PyBUF_SIMPLE`: memory in one piece, as bytes.
const SIMPLE: c_int = 0;

type GetBuffer = unsafe extern "C" fn(*mut ffi::PyObject, *mut View, c_int) -> c_int;
type ReleaseBuffer = unsafe extern "C" fn(*mut ffi::PyObject, *mut View);

/// `Py_buffer`, the same in CPython 3.10 to 3.15 (Include/pybuffer.h).
#[repr(C)]
struct View {
    memory: *mut c_void,
    lender: *mut ffi::PyObject,
    bytes: ffi::Py_ssize_t,
    item_size: ffi::Py_ssize_t,
    is_readonly: c_int,
    dimensions: c_int,
    format: *mut c_char,
    extents: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

impl View {
    const EMPTY: Self = Self {
        memory: std::ptr::null_mut(),
        lender: std::ptr::null_mut(),
        bytes: 0,
        item_size: 0,
        is_readonly: 0,
        dimensions: 0,
        format: std::ptr::null_mut(),
        extents: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        suboffsets: std::ptr::null_mut(),
        internal: std::ptr::null_mut(),
    };
}

/// The functions by which the objects of a type lend their memory and take it back.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slots {
    get: usize,
    release: usize,
}

impl Slots {
    /// Those of a live type; the caller is attached.
    fn of(ty: *mut ffi::PyTypeObject) -> Self {
        // SAFETY: by this function's contract.
        let [get, release] = [GET, RELEASE].map(|slot| unsafe { ffi::PyType_GetSlot(ty, slot) });
        Self {
            get: get as usize,
            release: release as usize,
        }
    }
}

/// The types of the standard library that lend memory of their own, by the functions that do so. A class that derives
/// from one has the same, unless it defines `__buffer__` or `__release_buffer__` in Python, from CPython 3.12 on.
pub struct Exporters {
    known: Vec<Slots>,
    memoryview: Option<Slots>,
}

impl Exporters {
    /// Those of the modules that the program has imported.
    pub fn new(py: Python<'_>) -> Self {
        let mut types = vec![py.get_type::<PyBytes>(), py.get_type::<PyByteArray>()];
        for (module, names) in [
            (intern!(py, "array"), &["array"][..]),
            (intern!(py, "mmap"), &["mmap"]),
            (
                intern!(py, "_ctypes"),
                &["Array", "Structure", "Union", "_SimpleCData"],
            ),
        ] {
            let Some(module) = imported(module) else {
                continue;
            };
            for name in names {
                let ty = module.get_item(name).ok().flatten();
                types.extend(ty.and_then(|ty| ty.cast_into::<PyType>().ok()));
            }
        }
        let of = |ty: &Bound<'_, PyType>| Slots::of(ty.as_type_ptr());
        let exporters = Self {
            known: types
                .iter()
                .map(of)
                .filter(|slots| slots.get != 0)
                .collect(),
            memoryview: Some(of(&py.get_type::<PyMemoryView>())),
        };
        match exporters.are_read_as_known(py) {
            true => exporters,
            false => Self {
                known: Vec::new(),
                memoryview: None,
            },
        }
    }

    /// True for the types whose objects lend memory.
    ///
    /// # Safety
    /// `ty` is a live type and the caller is attached to the interpreter.
    pub unsafe fn is_exporter(ty: *mut ffi::PyTypeObject) -> bool {
        Slots::of(ty).get != 0
    }

    /// Address and bytes of the memory that an object lends, and whether it is all that it has: a memoryview may
    /// show a part. `None` unless its type has the functions of one of the standard library's, which are C.
    pub fn memory(&self, object: &Bound<'_, PyAny>) -> Option<(u64, u64, bool)> {
        // SAFETY: attached, and the object is alive.
        let ty = unsafe { ffi::Py_TYPE(object.as_ptr()) };
        let slots = Slots::of(ty);
        let is_whole = self.known.contains(&slots);
        if !is_whole && self.memoryview != Some(slots) {
            return None;
        }
        let mut view = View::EMPTY;
        // SAFETY: attached; the slots have the types that CPython documents, and are of a type of the standard
        // library. As `PyObject_GetBuffer` and `PyBuffer_Release` do (Objects/abstract.c): what was got is given back
        // before anything else runs.
        unsafe {
            let get = std::mem::transmute::<usize, GetBuffer>(slots.get);
            if get(object.as_ptr(), &raw mut view, SIMPLE) != 0 {
                ffi::PyErr_Clear(); // It is closed, or has no memory in one piece.
                return None;
            }
            if slots.release != 0 {
                let release = std::mem::transmute::<usize, ReleaseBuffer>(slots.release);
                release(view.lender, &raw mut view);
            }
            ffi::Py_DecRef(view.lender);
        }
        let bytes = u64::try_from(view.bytes).ok()?;
        (bytes > 0).then_some((view.memory as u64, bytes, is_whole))
    }

    fn are_read_as_known(&self, py: Python<'_>) -> bool {
        let probe = PyBytes::new(py, b"cyclescope");
        let memory = self.memory(probe.as_any());
        memory == Some((probe.as_bytes().as_ptr() as u64, 10, true))
    }
}

/// What a memoryview of bytes or of a bytearray leads to: the buffer that it shares with other views of the same memory, and
/// the bytes.
///
/// `memory_traverse` and `mbuf_traverse` in Objects/memoryobject.c visit one object each.
pub fn bytes_behind<'py>(view: &Bound<'py, PyAny>) -> Option<[Bound<'py, PyAny>; 2]> {
    let next = |object: &Bound<'py, PyAny>| {
        let [address] = referents(object)[..] else {
            return None;
        };
        // SAFETY: attached; the object, which is alive, refers to it.
        Some(unsafe { Bound::from_borrowed_ptr(object.py(), address as *mut ffi::PyObject) })
    };
    if !view.is_exact_instance_of::<PyMemoryView>() {
        return None;
    }
    let shared = next(view)?;
    let lender = next(&shared)?;
    let is_bytes =
        lender.is_exact_instance_of::<PyBytes>() || lender.is_exact_instance_of::<PyByteArray>();
    is_bytes.then_some([shared, lender])
}
