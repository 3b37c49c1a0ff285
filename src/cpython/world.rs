//! The other threads stand still while objects are read: on free-threaded builds, where no lock of the
//! interpreter's sees to it.

use std::marker::PhantomData;

use pyo3::prelude::*;

/// While this lives, no other thread of the interpreter runs Python code, changes an object or frees one, as within a
/// collection (`_PyEval_StopTheWorld` in Python/pystate.c). With the GIL, holding that is enough, and this is nothing.
///
/// A thread that is stopped may hold any lock. So meanwhile: no code of the program's, and nothing that stops the world
/// itself, as `gc.get_objects()` and `sys._current_frames()` do. No object is to die, either; what was held before is
/// released after this: in a struct, it is the first field.
pub struct StoppedWorld<'py> {
    #[cfg(Py_GIL_DISABLED)]
    _stop: free_threaded::Stop,
    /// Belongs to the thread that has stopped the others.
    attached: PhantomData<(Python<'py>, *const ())>,
}

impl<'py> StoppedWorld<'py> {
    /// Within another one of this thread's, this does nothing.
    pub fn new(_py: Python<'py>) -> Self {
        Self {
            #[cfg(Py_GIL_DISABLED)]
            _stop: free_threaded::Stop::new(_py),
            attached: PhantomData,
        }
    }

    /// Has the others go on.
    pub fn end(self) {}
}

#[cfg(Py_GIL_DISABLED)]
pub use free_threaded::frozen;

/// The objects that `gc.freeze()` excluded from collections, where there are no lists of generations: none is known.
#[cfg(not(Py_GIL_DISABLED))]
pub fn frozen<'py>(_py: Python<'py>, _count: usize) -> Vec<Bound<'py, PyAny>> {
    Vec::new()
}

#[cfg(Py_GIL_DISABLED)]
mod free_threaded {
    use std::cell::Cell;
    use std::ffi::{c_int, c_void};

    use pyo3::ffi;
    use pyo3::prelude::*;

    /// The bit of `ob_gc_bits` that `gc.freeze()` sets (`_PyGC_BITS_FROZEN` in Include/internal/pycore_gc.h).
    const FROZEN: u8 = 1 << 3;

    // Include/internal/pycore_pystate.h and Include/cpython/objimpl.h; 3.14 and 3.15 export them.
    unsafe extern "C" {
        #[link_name = "_PyEval_StopTheWorld"]
        fn stop_the_world(interpreter: *mut ffi::PyInterpreterState);
        #[link_name = "_PyEval_StartTheWorld"]
        fn start_the_world(interpreter: *mut ffi::PyInterpreterState);
        fn PyUnstable_GC_VisitObjects(
            visit: unsafe extern "C" fn(*mut ffi::PyObject, *mut c_void) -> c_int,
            argument: *mut c_void,
        );
    }

    /// The objects that `gc.freeze()` excluded from collections, which says that there are `count`; none if there are
    /// not. Not within a [`Stop`].
    pub fn frozen(py: Python<'_>, count: usize) -> Vec<Bound<'_, PyAny>> {
        unsafe extern "C" fn visit(object: *mut ffi::PyObject, found: *mut c_void) -> c_int {
            // SAFETY: the world is stopped, and the object alive; `found` is the vector below. It has room.
            unsafe {
                let found = &mut *found.cast::<Vec<*mut ffi::PyObject>>();
                if (*object).ob_gc_bits & FROZEN != 0 && found.len() < found.capacity() {
                    ffi::Py_IncRef(object);
                    found.push(object);
                }
            }
            1
        }
        let mut found: Vec<*mut ffi::PyObject> = Vec::new();
        if found.try_reserve_exact(count).is_err() {
            return Vec::new();
        }
        // SAFETY: attached; what is visited has been given a reference.
        let found: Vec<_> = unsafe {
            PyUnstable_GC_VisitObjects(visit, (&raw mut found).cast());
            let found = found.into_iter();
            found.map(|it| Bound::from_owned_ptr(py, it)).collect()
        };
        if found.len() == count {
            found
        } else {
            Vec::new()
        }
    }

    thread_local! {
        static IS_STOPPED: Cell<bool> = const { Cell::new(false) };
    }

    pub struct Stop {
        /// The interpreter whose threads this has stopped; null within another one.
        interpreter: *mut ffi::PyInterpreterState,
        /// No collection begins in the midst of it, which would wait for this thread for ever.
        enables: bool,
    }

    impl Stop {
        pub fn new(_py: Python<'_>) -> Self {
            if IS_STOPPED.replace(true) {
                return Self {
                    interpreter: std::ptr::null_mut(),
                    enables: false,
                };
            }
            // SAFETY: attached, and this thread has not stopped the world already.
            unsafe {
                let interpreter = ffi::PyInterpreterState_Get();
                stop_the_world(interpreter);
                Self {
                    interpreter,
                    enables: ffi::PyGC_Disable() != 0,
                }
            }
        }
    }

    impl Drop for Stop {
        fn drop(&mut self) {
            if self.interpreter.is_null() {
                return;
            }
            // SAFETY: attached, as `StoppedWorld` has a lifetime of the interpreter's; the world was stopped by this.
            unsafe {
                if self.enables {
                    ffi::PyGC_Enable();
                }
                start_the_world(self.interpreter);
            }
            IS_STOPPED.set(false);
        }
    }
}
