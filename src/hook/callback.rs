//! The callable in `gc.callbacks`, and what it does around each collection.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::clear::Garbage;
use super::fork::fork_count;
use super::gc_module::{DEBUG_SAVEALL, GcModule};

/// What CPython says of a collection.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectionInfo {
    /// The generation collected, 0 to 2.
    pub generation: u32,
    /// True if something may have got hold of the garbage since it was saved, so that it has to be
    /// checked object by object before it is destroyed.
    pub suspect: bool,
}

/// What to do with the garbage. Nothing of it may raise; a panic is caught and disables the hook.
pub trait Handler {
    /// A collection is about to begin. Called only if [`Handler::is_armed`].
    fn before(&self, py: Python<'_>, gc: &GcModule, info: CollectionInfo);

    /// True if the handler wants to look before the collection of a generation.
    fn is_armed(&self, generation: u32) -> bool;

    /// A collection has ended; `garbage` is what it found, none perhaps.
    fn after(&self, py: Python<'_>, garbage: Garbage<'_>, info: CollectionInfo);

    /// True if [`Handler::after`] is to be called even where there is no garbage.
    fn wants_empty(&self) -> bool;

    /// The hook had to be disabled.
    fn disabled(&self, py: Python<'_>, reason: &str);
}

/// Where between "start" and "stop" the hook is.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Idle,
    /// The hook set `DEBUG_SAVEALL`; `flags` are the program's, `garbage` the length of its list.
    Taking {
        flags: i64,
        garbage: isize,
    },
    /// The program set `DEBUG_SAVEALL` itself.
    Observing {
        garbage: isize,
    },
}

/// What the callable and the handle share.
struct Shared {
    gc: GcModule,
    handler: Box<dyn Handler>,
    phase: Cell<Phase>,
    disabled: Cell<bool>,
    forks: u32,
    /// The callable itself, borrowed: only `gc.callbacks` refers to it, so that its end shows that
    /// it was removed.
    callable: Cell<*mut ffi::PyObject>,
    busy: RefCell<()>,
}

/// The hook in `gc.callbacks`. Dropping it leaves the callable in place; see [`Hook::remove`].
pub struct Hook {
    shared: Rc<Shared>,
}

const CAPSULE: &CStr = c"cyclescope.hook";

impl Hook {
    /// Installs the hook as the first callback, so that at the end of a collection it comes first.
    ///
    /// # Errors
    /// If `gc` is not CPython's, or memory runs out.
    pub fn install(py: Python<'_>, handler: Box<dyn Handler>) -> PyResult<Self> {
        let shared = Rc::new(Shared {
            gc: GcModule::new(py)?,
            handler,
            phase: Cell::new(Phase::Idle),
            disabled: Cell::new(false),
            forks: fork_count(),
            callable: Cell::new(ptr::null_mut()),
            busy: RefCell::new(()),
        });
        // SAFETY: attached. The capsule owns one count of `shared` and gives it up in its
        // destructor; the callable owns the capsule; `gc.callbacks` owns the callable. The method
        // definition is static, and its flags are those of `called`.
        unsafe {
            let state = Rc::into_raw(Rc::clone(&shared)).cast_mut().cast::<c_void>();
            let capsule = ffi::PyCapsule_New(state, CAPSULE.as_ptr(), Some(capsule_gone));
            if capsule.is_null() {
                drop(Rc::from_raw(state.cast::<Shared>()));
                return Err(PyErr::fetch(py));
            }
            let capsule = Bound::from_owned_ptr(py, capsule);
            let callable = ffi::PyCFunction_NewEx(
                (&raw const DEFINITION.0).cast_mut(),
                capsule.as_ptr(),
                ptr::null_mut(),
            );
            let callable = Bound::from_owned_ptr_or_err(py, callable)?;
            shared.callable.set(callable.as_ptr());
            shared.gc.callbacks.bind(py).insert(0, callable)?;
        }
        Ok(Self { shared })
    }

    /// True if the callable is still in `gc.callbacks` of this process and working.
    pub fn is_installed(&self, py: Python<'_>) -> bool {
        !self.shared.disabled.get()
            && self.shared.forks == fork_count()
            && self.position(py).is_some()
    }

    /// Takes the callable out of `gc.callbacks`. Also right in the middle of a collection.
    pub fn remove(&self, py: Python<'_>) {
        if let Some(position) = self.position(py) {
            let removed = self.shared.gc.callbacks.bind(py).del_item(position);
            drop(removed);
        }
    }

    /// Runs a full collection, with the hook looking on.
    ///
    /// # Errors
    /// As [`GcModule::collect`].
    pub fn collect(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.gc.collect(py)
    }

    /// Where in `gc.callbacks` the callable is, compared by identity.
    fn position(&self, py: Python<'_>) -> Option<usize> {
        let callable = self.shared.callable.get();
        if callable.is_null() {
            return None;
        }
        self.shared
            .gc
            .callbacks
            .bind(py)
            .iter()
            .position(|other| other.as_ptr() == callable)
    }
}

/// A method definition that can be shared: nothing in it is ever changed.
struct Definition(ffi::PyMethodDef);
// SAFETY: only read, by CPython, which keeps such definitions in static memory itself.
unsafe impl Sync for Definition {}

static DEFINITION: Definition = Definition(ffi::PyMethodDef {
    ml_name: c"cyclescope_hook".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer {
        PyCFunctionFast: called,
    },
    ml_flags: ffi::METH_FASTCALL,
    ml_doc: c"Watches collections for cyclescope.".as_ptr(),
});

/// The C function behind the callable: `hook(phase, info)`. Never raises.
unsafe extern "C" fn called(
    capsule: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls with the interpreter attached, with the capsule that `install` made and
    // with `count` arguments, which it lends.
    unsafe {
        let py = Python::assume_attached();
        let state = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()).cast::<Shared>();
        if count == 2
            && let Some(shared) = state.as_ref()
            && let (phase, info) = (*arguments, *arguments.add(1))
            && ffi::PyUnicode_Check(phase) != 0
            && ffi::PyDict_Check(info) != 0
        {
            // The state must outlive the call even if it removes the callable.
            Rc::increment_strong_count(state);
            let shared_for_call = Rc::from_raw(state);
            // "start" has five letters and "stop" four.
            let start = ffi::PyUnicode_GetLength(phase) == 5;
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                if start {
                    shared.start(py, info)
                } else {
                    shared.stop(py, info)
                }
            }));
            if outcome.is_err() {
                shared.disable(py, "an internal error (a panic) in cyclescope");
            }
            drop(shared_for_call);
        }
        if !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
        ffi::Py_NewRef(ffi::Py_None())
    }
}

/// The callable is gone from `gc.callbacks`, perhaps between "start" and "stop".
unsafe extern "C" fn capsule_gone(capsule: *mut ffi::PyObject) {
    // SAFETY: CPython calls with the interpreter attached and the capsule that `install` made, once.
    unsafe {
        let state = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()).cast::<Shared>();
        if state.is_null() {
            ffi::PyErr_Clear();
            return;
        }
        let shared = Rc::from_raw(state);
        shared.callable.set(ptr::null_mut());
        shared.restore_flags(Python::assume_attached());
    }
}

impl Shared {
    fn start(&self, py: Python<'_>, info: *mut ffi::PyObject) {
        if self.disabled.get() || self.forks != fork_count() {
            return;
        }
        let Ok(_busy) = self.busy.try_borrow_mut() else {
            return;
        };
        // A "stop" that never came (the callable was taken out and put back) left flags behind.
        self.restore_flags(py);
        let flags = self.gc.debug_flags(py);
        let garbage = self.garbage_length(py);
        if flags < 0 {
            return;
        }
        if flags & DEBUG_SAVEALL != 0 {
            self.phase.set(Phase::Observing { garbage });
        } else {
            self.phase.set(Phase::Taking { flags, garbage });
        }
        let generation = number(info, c"generation");
        if self.handler.is_armed(generation) {
            self.handler.before(
                py,
                &self.gc,
                CollectionInfo {
                    generation,
                    suspect: false,
                },
            );
        }
        if flags & DEBUG_SAVEALL == 0 {
            self.gc.set_debug_flags(py, flags | DEBUG_SAVEALL);
        }
    }

    fn stop(&self, py: Python<'_>, info: *mut ffi::PyObject) {
        let Ok(_busy) = self.busy.try_borrow_mut() else {
            return;
        };
        let phase = self.phase.replace(Phase::Idle);
        let (before, ours) = match phase {
            Phase::Idle => return,
            Phase::Observing { garbage } => (garbage, false),
            Phase::Taking { flags, garbage } => {
                let now = self.gc.debug_flags(py);
                if now == flags | DEBUG_SAVEALL {
                    self.gc.set_debug_flags(py, flags);
                }
                // Flags changed in the middle, by a finalizer: they are the program's now, and so
                // is what DEBUG_SAVEALL among them has saved.
                (
                    garbage,
                    now == flags | DEBUG_SAVEALL || now & DEBUG_SAVEALL == 0,
                )
            }
        };
        let added = self.garbage_length(py) - before;
        if added <= 0 {
            let collected = number(info, c"collected");
            if collected > 0 && ours && added == 0 && matches!(phase, Phase::Taking { .. }) {
                return self.disable(
                    py,
                    "gc.garbage was replaced by another list, so that saved garbage cannot be found",
                );
            }
            if self.handler.wants_empty() {
                let generation = number(info, c"generation");
                let none = Garbage::to_observe(PyList::empty(py));
                self.handler.after(
                    py,
                    none,
                    CollectionInfo {
                        generation,
                        suspect: false,
                    },
                );
            }
            return;
        }
        let collected = number(info, c"collected") as isize;
        let uncollectable = number(info, c"uncollectable") as isize;
        let first = self.gc.callbacks.bind(py).get_item(0);
        let suspect = added != collected + uncollectable
            || !first.is_ok_and(|first| first.as_ptr() == self.callable.get());
        let info = CollectionInfo {
            generation: number(info, c"generation"),
            suspect,
        };

        let saved_end = before + added.min(collected);
        let end = before + added;
        if ours {
            let uncollected = self.slice(py, saved_end, end);
            let Some(saved) = self.slice(py, before, saved_end) else {
                return;
            };
            // SAFETY: attached; removes the tail, which `saved` and `uncollected` hold.
            let removed = unsafe {
                ffi::PyList_SetSlice(self.gc.garbage.as_ptr(), before, end, ptr::null_mut())
            };
            if removed != 0 {
                // SAFETY: attached.
                unsafe { ffi::PyErr_Clear() };
                return;
            }
            if let Some(uncollected) = uncollected {
                self.put_back_uncollectable(py, &uncollected);
            }
            self.handler.after(py, Garbage::to_destroy(saved), info);
        } else if let Some(saved) = self.slice(py, before, saved_end) {
            self.handler.after(py, Garbage::to_observe(saved), info);
        }
    }

    /// Puts back what CPython keeps in `gc.garbage` without `DEBUG_SAVEALL` too: the objects with a
    /// finalizer of the old kind, but not what they refer to (`handle_legacy_finalizers`).
    fn put_back_uncollectable(&self, py: Python<'_>, uncollected: &Bound<'_, PyList>) {
        for object in uncollected.iter() {
            // SAFETY: attached, and the object and its type are alive.
            let legacy =
                unsafe { ffi::PyType_GetSlot(ffi::Py_TYPE(object.as_ptr()), ffi::Py_tp_del) };
            if !legacy.is_null() {
                let appended = self.gc.garbage.bind(py).append(object);
                drop(appended);
            }
        }
    }

    fn garbage_length(&self, _py: Python<'_>) -> isize {
        // SAFETY: attached; this is a list.
        unsafe { ffi::PyList_Size(self.gc.garbage.as_ptr()) }
    }

    fn slice<'py>(&self, py: Python<'py>, from: isize, to: isize) -> Option<Bound<'py, PyList>> {
        // SAFETY: attached; a new list, or null with an exception set.
        let slice = unsafe {
            let slice = ffi::PyList_GetSlice(self.gc.garbage.as_ptr(), from, to);
            Bound::from_owned_ptr_or_opt(py, slice)
        };
        if slice.is_none() {
            // SAFETY: attached.
            unsafe { ffi::PyErr_Clear() };
        }
        slice?.cast_into::<PyList>().ok()
    }

    /// Undoes what "start" did, if it has not been undone.
    fn restore_flags(&self, py: Python<'_>) {
        if let Phase::Taking { flags, .. } = self.phase.replace(Phase::Idle)
            && self.gc.debug_flags(py) == flags | DEBUG_SAVEALL
        {
            self.gc.set_debug_flags(py, flags);
        }
    }

    fn disable(&self, py: Python<'_>, reason: &str) {
        if self.disabled.replace(true) {
            return;
        }
        self.restore_flags(py);
        let told = catch_unwind(AssertUnwindSafe(|| self.handler.disabled(py, reason)));
        drop(told);
    }
}

/// A number of the information that CPython passes to callbacks; 0 if it is not there.
fn number(info: *mut ffi::PyObject, key: &CStr) -> u32 {
    let key: *const c_char = key.as_ptr();
    // SAFETY: attached (called from the hook only); the value is lent by the dict.
    unsafe {
        let value = ffi::PyDict_GetItemString(info, key);
        if value.is_null() {
            return 0;
        }
        let number = ffi::PyLong_AsLongLong(value);
        if number == -1 {
            ffi::PyErr_Clear();
        }
        u32::try_from(number).unwrap_or(0)
    }
}
