//! `tp_traverse` and reference counts: the two facts of an object that need no attribute look-up.

use std::ffi::{c_int, c_void};

use pyo3::ffi;

/// Calls `f` with each object that `object` refers to, once per reference, as borrowed pointers.
///
/// `f` must not run Python code, change any reference or panic: `object` is in the middle of
/// being read.
///
/// # Safety
/// The caller is attached to the interpreter, `object` is a live object and `traverse` is the
/// `tp_traverse` of its type.
pub unsafe fn for_each_referent<F: FnMut(*mut ffi::PyObject)>(
    object: *mut ffi::PyObject,
    traverse: ffi::traverseproc,
    f: &mut F,
) {
    unsafe extern "C" fn visit<F: FnMut(*mut ffi::PyObject)>(
        target: *mut ffi::PyObject,
        f: *mut c_void,
    ) -> c_int {
        // SAFETY: `f` is the exclusive reference passed below, alive until `traverse` returns.
        unsafe { (*f.cast::<F>())(target) };
        0
    }
    // SAFETY: by this function's contract; `visit` keeps the protocol of `tp_traverse`, which
    // holds no reference to `f` after it returns.
    unsafe { traverse(object, visit::<F>, std::ptr::from_mut(f).cast()) };
}

/// The number of references to `object`; over four thousand million for an immortal one, and on free-threaded builds for
/// one of which stacks have references that nobody counts: modules, classes, functions of modules
/// (`_PyObject_SetDeferredRefcount` in Objects/object.c).
///
/// # Safety
/// `object` is a live object and the caller is attached to the interpreter.
#[inline]
pub unsafe fn reference_count(object: *mut ffi::PyObject) -> i64 {
    // The lower half is the count in every version from 3.10 on; 3.14 keeps flags in the upper
    // half (Include/refcount.h).
    // SAFETY: by this function's contract.
    let count = unsafe { ffi::Py_REFCNT(object) as i64 };
    if cfg!(Py_GIL_DISABLED) {
        count.clamp(0, 0xFFFF_FFFF)
    } else {
        count & 0xFFFF_FFFF
    }
}
