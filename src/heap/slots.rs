//! The slots of a type, and whether an object is tracked, as they lie in memory.

use std::ffi::{c_char, c_ulong, c_void};
use std::mem;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PyString, PyType};

/// What lies before an object that the collector can track: `PyGC_Head` in
/// `Include/internal/pycore_gc.h` (from 3.14 on `pycore_interp_structs.h`), the same in CPython 3.10 to 3.15.
#[repr(C)]
pub struct CollectorHead {
    /// The next one in a list of the collector's; zero where it does not track the object
    /// (`_PyObject_GC_IS_TRACKED`).
    pub next: usize,
    /// The one before, with flags in the lowest bits.
    pub previous: usize,
}

impl CollectorHead {
    /// The finalizer has run (`_PyGC_PREV_MASK_FINALIZED`).
    pub const FINALIZED: usize = 1;
    /// The collector has found the object unreachable, in the collection under way
    /// (`_PyGC_PREV_MASK_COLLECTING`).
    pub const COLLECTING: usize = 2;

    /// The bits of either word that are flags: two of `previous`, and in the incremental collector some of
    /// `next`.
    const FLAGS: usize = 3;

    /// True if both neighbours in the list refer back to this head.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, and this is the head of a tracked object, if objects have
    /// one.
    unsafe fn is_linked(&self) -> bool {
        let [next, previous] = [self.next, self.previous].map(|word| word & !Self::FLAGS);
        if next < 0x1_0000 || previous < 0x1_0000 {
            return false;
        }
        let own = std::ptr::from_ref(self) as usize;
        // SAFETY: by this function's contract, these are heads, or the list's own.
        unsafe {
            (*(next as *const Self)).previous & !Self::FLAGS == own
                && (*(previous as *const Self)).next & !Self::FLAGS == own
        }
    }

    /// That of an object.
    ///
    /// # Safety
    /// The object has one: its type has `Py_TPFLAGS_HAVE_GC`, and it is no class of a library's own.
    #[inline(always)]
    pub unsafe fn of(object: *mut ffi::PyObject) -> *mut Self {
        // SAFETY: by this function's contract.
        unsafe { object.cast::<Self>().sub(1) }
    }
}

/// The memory of a type up to its `tp_clear`: `PyTypeObject` in `Include/cpython/object.h`, the same
/// in CPython 3.10 to 3.15. It is not part of the stable ABI, hence [`TypeLayout`].
#[repr(C)]
struct TypeObject {
    head: ffi::PyVarObject,
    name: *const c_char,
    sizes: [ffi::Py_ssize_t; 2],
    /// `tp_dealloc` to `tp_as_buffer`.
    others: [*mut c_void; 15],
    flags: c_ulong,
    doc: *const c_char,
    traverse: Option<ffi::traverseproc>,
    clear: Option<ffi::inquiry>,
}

/// Whether types lie in memory as [`TypeObject`] says; where they do not, CPython is asked for their
/// slots, which takes several times as long.
#[derive(Clone, Copy)]
pub struct TypeLayout {
    known: bool,
}

/// Whether the collector's head lies before objects as [`CollectorHead`] says.
#[derive(Clone, Copy)]
pub struct HeadLayout {
    known: bool,
}

impl HeadLayout {
    /// Compares objects, tracked and not, with what CPython says of them. A tracked one must stand between
    /// its neighbours in the list.
    pub fn new(py: Python<'_>) -> Self {
        let list = PyList::empty(py);
        let layout = Self { known: true };
        // SAFETY: attached. Nobody else has the list, and it is tracked again before it goes.
        let known = unsafe {
            let object = list.as_ptr();
            let tracked = layout.tracks(object)
                && ffi::PyObject_GC_IsTracked(object) != 0
                && (*CollectorHead::of(object)).is_linked();
            ffi::PyObject_GC_UnTrack(object.cast());
            let untracked = !layout.tracks(object) && ffi::PyObject_GC_IsTracked(object) == 0;
            ffi::PyObject_GC_Track(object.cast());
            tracked && untracked && layout.tracks(object)
        };
        Self { known }
    }

    /// True if an object is garbage of the collection under way, so far as that is known.
    ///
    /// # Safety
    /// As for [`HeadLayout::tracks`].
    #[inline]
    pub unsafe fn is_being_collected(&self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: by this function's contract; the head lies before the object, as `self` says.
        self.known
            && unsafe { (*CollectorHead::of(object)).previous & CollectorHead::COLLECTING != 0 }
    }

    pub fn is_known(&self) -> bool {
        self.known
    }

    /// True if the collector tracks an object; false also if it is not known how to tell.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, and the object is alive and has a [`CollectorHead`].
    #[inline]
    pub unsafe fn tracks(&self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: by this function's contract; the head lies before the object, as `self` says.
        self.known && unsafe { (*CollectorHead::of(object)).next != 0 }
    }
}

impl TypeLayout {
    /// Compares types of several kinds with what CPython says of them.
    pub fn new(py: Python<'_>) -> Self {
        let types = [
            py.get_type::<PyDict>(),
            py.get_type::<PyFrozenSet>(),
            py.get_type::<PyList>(),
            py.get_type::<PyString>(),
            py.get_type::<PyType>(),
        ];
        let made = py.eval(c"type('Probe', (), {})", None, None);
        let made = made.ok().and_then(|made| made.cast_into::<PyType>().ok());
        let known = types.iter().chain(&made).all(lies_as_known) && made.is_some();
        Self { known }
    }

    /// The `tp_clear` of a type, if it has one.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, and the type is alive.
    #[inline]
    pub unsafe fn clear(&self, ty: *mut ffi::PyTypeObject) -> Option<ffi::inquiry> {
        // SAFETY: by this function's contract; the type is laid out so, as `self` says, or the slot is
        // of the type that CPython documents.
        unsafe {
            if self.known {
                (*ty.cast::<TypeObject>()).clear
            } else {
                mem::transmute::<*mut c_void, Option<ffi::inquiry>>(ffi::PyType_GetSlot(
                    ty,
                    ffi::Py_tp_clear,
                ))
            }
        }
    }

    /// True for a type made at run time, false for one that is part of a library.
    ///
    /// # Safety
    /// As for [`TypeLayout::clear`].
    #[inline]
    pub unsafe fn is_heap_type(&self, ty: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: by this function's contract; the type is laid out so, as `self` says.
        let flags = unsafe {
            if self.known {
                (*ty.cast::<TypeObject>()).flags
            } else {
                ffi::PyType_GetFlags(ty)
            }
        };
        flags & ffi::Py_TPFLAGS_HEAPTYPE != 0
    }
}

fn lies_as_known(ty: &Bound<'_, PyType>) -> bool {
    let ty = ty.as_type_ptr();
    // SAFETY: attached, and the type is alive; in every version it is larger than what is read of it.
    unsafe {
        let lies = &*ty.cast::<TypeObject>();
        lies.flags == ffi::PyType_GetFlags(ty)
            && address(lies.traverse) == ffi::PyType_GetSlot(ty, ffi::Py_tp_traverse)
            && address(lies.clear) == ffi::PyType_GetSlot(ty, ffi::Py_tp_clear)
    }
}

fn address<F>(slot: Option<F>) -> *mut c_void {
    const { assert!(mem::size_of::<Option<F>>() == mem::size_of::<*mut c_void>()) };
    // SAFETY: both are pointers, by the assertion; no function is null, as `None`.
    unsafe { mem::transmute_copy(&slot) }
}
