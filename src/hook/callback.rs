//! The callable in `gc.callbacks`, and what it does around each collection.

mod saved;
mod trust;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::clear::Garbage;
use super::fork::fork_count;
use super::gc_module::{DEBUG_SAVEALL, GcModule};
use super::witness::{Unreachable, Witness};
use crate::heap::{ListLayout, TypeLayout};
use saved::Older;
use trust::{Trust, witnessed};

/// What CPython says of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CollectionInfo {
    /// The generation collected, 0 to 2.
    pub generation: u32,
}

/// What to do with the garbage. Nothing of it may raise; a panic is caught and disables the hook.
pub trait Handler {
    /// A collection is about to begin.
    fn before(&self, py: Python<'_>, info: CollectionInfo);

    /// True if all that is asked of the coming collection is a [`Handler::glance`] at its garbage.
    fn needs_glance_only(&self) -> bool;

    /// Looks at garbage, before any of it is destroyed and after all finalizers; true if it is wanted, and
    /// so to be saved for [`Handler::after`]. Must run no code of the program.
    fn glance(&self, py: Python<'_>, garbage: &mut Unreachable<'_>, info: CollectionInfo) -> bool;

    /// The objects of the garbage, by index, that something outside of it refers to, directly or
    /// through others of it; all of them if there is no telling.
    fn held(&self, py: Python<'_>, garbage: &Garbage<'_>) -> Vec<usize>;

    /// A collection has ended; `garbage` is what it found, none perhaps. It is destroyed when this
    /// returns, if it has not been by then.
    fn after(&self, py: Python<'_>, garbage: &mut Garbage<'_>, info: CollectionInfo);

    /// True if [`Handler::after`] is to be called even where there is no garbage.
    fn wants_empty(&self) -> bool;

    /// The hook had to be disabled.
    fn disabled(&self, py: Python<'_>, reason: &str);
}

/// Where between "start" and "stop" the hook is.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Idle,
    /// The hook set `DEBUG_SAVEALL`; `flags` are the program's, `older` its garbage.
    Taking {
        flags: i64,
        older: Older,
    },
    /// The program set `DEBUG_SAVEALL` itself.
    Observing {
        older: Older,
    },
    /// The witness stands in the collection, which saves nothing so far.
    Witnessing {
        info: CollectionInfo,
    },
}

/// What the callable and the handle share.
struct Shared {
    gc: GcModule,
    /// How `gc.garbage` lies in memory, where that is known.
    layout: Option<ListLayout>,
    types: TypeLayout,
    /// What held the last garbage, empty, so that not every collection need ask for memory.
    memory: Cell<Vec<*mut ffi::PyObject>>,
    handler: Box<dyn Handler>,
    phase: Cell<Phase>,
    disabled: Cell<bool>,
    forks: u32,
    /// The callable itself, borrowed: only `gc.callbacks` refers to it, so that its end shows that
    /// it was removed.
    callable: Cell<*mut ffi::PyObject>,
    busy: RefCell<()>,
    keys: Keys,
    /// A collection has saved garbage in our list, so it is the collector's.
    proven: Cell<bool>,
    /// Collections that collected something and saved nothing, before that.
    misses: Cell<u32>,
    /// `None` where the interpreter is not known well enough.
    witness: Option<Witness>,
    trust: Cell<Trust>,
    /// What the witness saw: only for memory, unless that is still to be compared with what is saved.
    seen: RefCell<Vec<*mut ffi::PyObject>>,
}

/// The names in what CPython says of a collection, made beforehand: there may be no memory for them
/// when a collection runs.
struct Keys {
    generation: Py<PyString>,
    collected: Py<PyString>,
    uncollectable: Py<PyString>,
}

impl Keys {
    fn new(py: Python<'_>) -> Self {
        let name = |text| PyString::intern(py, text).unbind();
        Self {
            generation: name("generation"),
            collected: name("collected"),
            uncollectable: name("uncollectable"),
        }
    }
}

/// After so many misses the list must be another. One proves nothing: what was collected may all have
/// been weak references that died of their callbacks.
const MISSES: u32 = 8;

/// The hook in `gc.callbacks`. Dropping it leaves the callable in place; see [`Hook::remove`].
pub struct Hook {
    shared: Rc<Shared>,
}

static WAITING: AtomicBool = AtomicBool::new(false);

/// True if a hook has seen a collection begin and not yet seen it end. Any thread may ask.
///
/// If that lasts, the callable may have been taken out of `gc.callbacks` in the middle of a
/// collection; then [`Hook::mend`] is due.
pub fn is_waiting_for_stop() -> bool {
    WAITING.load(Ordering::Relaxed)
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
            layout: ListLayout::known(py),
            types: TypeLayout::new(py),
            memory: Cell::default(),
            handler,
            phase: Cell::new(Phase::Idle),
            disabled: Cell::new(false),
            forks: fork_count(),
            callable: Cell::new(ptr::null_mut()),
            busy: RefCell::new(()),
            keys: Keys::new(py),
            proven: Cell::new(false),
            misses: Cell::new(0),
            witness: Witness::new(py)?,
            trust: Cell::new(Trust::Growing(0)),
            seen: RefCell::default(),
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
            && self.shared.position(py).is_some()
    }

    /// Takes the callable out of `gc.callbacks`, for good: if the program puts a copy of it back,
    /// it does nothing. Also right in the middle of a collection.
    pub fn remove(&self, py: Python<'_>) {
        self.shared.disabled.set(true);
        if let Some(position) = self.shared.position(py) {
            let removed = self.shared.gc.callbacks.bind(py).del_item(position);
            drop(removed);
        }
        self.mend(py);
    }

    /// Undoes what "start" did if the callable is no longer in `gc.callbacks`, so that no "stop"
    /// will come, and has not noticed because the program holds a copy of the list.
    pub fn mend(&self, py: Python<'_>) {
        if self.shared.position(py).is_none() {
            self.shared.undo(py);
        }
    }

    /// Runs a full collection, with the hook looking on.
    ///
    /// # Errors
    /// As [`GcModule::collect`].
    pub fn collect(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.gc.collect(py)
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
                    shared.start(py, info, state)
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
        // In the middle of a collection, before the garbage is saved: CPython goes on without us.
        // Later, because the program held a copy of the list: what was saved must go.
        shared.undo(Python::assume_attached());
    }
}

impl Shared {
    /// Where in `gc.callbacks` the callable is, compared by identity.
    fn position(&self, py: Python<'_>) -> Option<usize> {
        let callable = self.callable.get();
        if callable.is_null() {
            return None;
        }
        self.gc
            .callbacks
            .bind(py)
            .iter()
            .position(|other| other.as_ptr() == callable)
    }

    fn is_first(&self) -> bool {
        let callbacks = self.gc.callbacks.as_ptr();
        // SAFETY: attached (called from the hook only); this is a list, which lends its first item
        // if it has one.
        unsafe {
            ffi::PyList_Size(callbacks) > 0
                && ffi::PyList_GetItem(callbacks, 0) == self.callable.get()
        }
    }

    /// True if there is no other callback.
    fn is_alone(&self) -> bool {
        // SAFETY: attached (called from the hook only); this is a list.
        unsafe { ffi::PyList_Size(self.gc.callbacks.as_ptr()) == 1 }
    }

    /// Moves the callable to the front, so that at the end of the collection nobody comes between
    /// the collector and this hook, and nobody sees garbage in `gc.garbage` that would not be there
    /// without it. Safe in the middle of "start": CPython walks the list by index, and those that
    /// move up have been called (`invoke_gc_callback`).
    fn come_first(&self, py: Python<'_>) {
        if self.is_first() {
            return;
        }
        let callbacks = self.gc.callbacks.bind(py);
        if let Some(position) = self.position(py)
            && let Ok(callable) = callbacks.get_item(position)
            && callbacks.insert(0, callable).is_ok()
        {
            let removed = callbacks.del_item(position + 1);
            drop(removed);
        }
    }

    /// `own` is the pointer to this that the capsule has.
    fn start(&self, py: Python<'_>, info: *mut ffi::PyObject, own: *const Self) {
        if self.disabled.get() || self.forks != fork_count() {
            return;
        }
        let Ok(_busy) = self.busy.try_borrow_mut() else {
            return;
        };
        // A "stop" that never came: the callable was taken out and put back.
        self.undo(py);
        self.come_first(py);
        let flags = self.gc.debug_flags(py);
        if flags < 0 {
            return;
        }
        let generation = number(info, self.keys.generation.bind(py));
        let info = CollectionInfo { generation };
        let older = self.older(py);
        self.set_phase(if flags & DEBUG_SAVEALL != 0 {
            Phase::Observing { older }
        } else {
            Phase::Taking { flags, older }
        });
        self.handler.before(py, info);
        if flags & DEBUG_SAVEALL != 0 {
            return;
        }
        // What other callbacks make would come behind the witness.
        if let Some(witness) = &self.witness
            && generation == 0
            && flags == 0
            && self.trust.get() != Trust::Lost
            && self.is_alone()
            && self.handler.needs_glance_only()
        {
            self.set_phase(Phase::Witnessing { info });
            // SAFETY: the witness belongs to this hook, and calls nobody when that is gone.
            unsafe { witness.stand(py, witnessed, own.cast()) };
        } else {
            self.gc.set_debug_flags(py, flags | DEBUG_SAVEALL);
        }
    }

    fn stop(&self, py: Python<'_>, info: *mut ffi::PyObject) {
        let Ok(_busy) = self.busy.try_borrow_mut() else {
            return;
        };
        let phase = self.set_phase(Phase::Idle);
        let witnessed = self.witness.as_ref().is_some_and(Witness::stands);
        if let Some(witness) = &self.witness
            && !witness.leave(py)
        {
            self.trust.set(Trust::Lost);
        }
        let (flags, older) = match phase {
            Phase::Idle | Phase::Witnessing { .. } => return,
            Phase::Observing { older } => (None, older),
            Phase::Taking { flags, older } => (Some(flags), older),
        };
        let now = self.gc.debug_flags(py);
        // If they changed in the middle, by a finalizer, then they are the program's now, and so is what
        // DEBUG_SAVEALL among them has saved.
        let ours = flags.is_some_and(|flags| now == flags | DEBUG_SAVEALL);
        let flags = flags.unwrap_or(now);
        if ours {
            self.gc.set_debug_flags(py, flags);
        }
        let about = || CollectionInfo {
            generation: number(info, self.keys.generation.bind(py)),
        };
        let forked = self.forks != fork_count();
        let nothing = || {
            if !forked && self.handler.wants_empty() {
                let mut none = Garbage::new(self.gc.garbage.bind(py), 0..0, self.types);
                self.handler.after(py, &mut none, about());
            }
        };
        if now & DEBUG_SAVEALL == 0 {
            return nothing();
        }

        let collected = number(info, self.keys.collected.bind(py)) as isize;
        let uncollectable = number(info, self.keys.uncollectable.bind(py)) as isize;
        let end = self.garbage_length(py) - uncollectable;
        let first = self.is_first();
        let start = self.start_of_saved(py, older, end, collected);
        let changed = start != older.length;
        if start < end {
            self.proven.set(true);
        } else if collected > 0 && !self.proven.get() {
            self.misses.set(self.misses.get() + 1);
            if self.misses.get() == MISSES {
                return self.disable(
                    py,
                    "gc.garbage was replaced by another list, so that what a collection saves \
                     cannot be found; put the original back before starting a watch",
                );
            }
        }
        if start >= end && end == self.garbage_length(py) || (changed && !first) {
            return nothing();
        }
        if !ours {
            if !forked {
                let mut garbage = Garbage::new(self.gc.garbage.bind(py), start..end, self.types);
                self.handler.after(py, &mut garbage, about());
            }
            return;
        }
        let Some(mut garbage) = self.take(py, start, end) else {
            return;
        };
        if witnessed {
            self.prove(&garbage);
        }
        // Somebody else may have taken hold of the garbage: a callback that came first, or
        // `sys.stderr`, to which CPython prints after it has saved if the program set flags.
        if !first || changed || flags != 0 {
            for index in self.handler.held(py, &garbage) {
                garbage.keep(index);
            }
        }
        // In a forked child there is nobody to tell, and CUDA is out of bounds.
        if !forked {
            self.handler.after(py, &mut garbage, about());
        }
        let memory = garbage.into_memory();
        if memory.capacity() <= ListLayout::FEW {
            self.memory.set(memory);
        }
    }

    fn set_phase(&self, phase: Phase) -> Phase {
        WAITING.store(phase != Phase::Idle, Ordering::Relaxed);
        self.phase.replace(phase)
    }

    /// Puts the program's flags back, if that has not been done.
    fn restore_flags(&self, py: Python<'_>) {
        if let Phase::Taking { flags, .. } = self.set_phase(Phase::Idle)
            && self.gc.debug_flags(py) == flags | DEBUG_SAVEALL
        {
            self.gc.set_debug_flags(py, flags);
        }
    }

    /// Puts the program's flags back, and takes what was saved out of `gc.garbage`, if there was
    /// no "stop" to do it.
    ///
    /// The garbage is only let go, not cleared: anybody may have found it in `gc.garbage` by now.
    /// What nobody holds is garbage for the next collection; its finalizers have run and will
    /// not run again.
    fn undo(&self, py: Python<'_>) {
        if let Some(witness) = &self.witness {
            witness.leave(py);
        }
        let Phase::Taking { older, .. } = self.phase.get() else {
            self.set_phase(Phase::Idle);
            return;
        };
        self.restore_flags(py);
        let end = self.garbage_length(py);
        if end > older.length
            && let Some(left) = self.slice(py, older.length, end)
        {
            // SAFETY: attached; removes the tail, which `left` holds.
            unsafe {
                if ffi::PyList_SetSlice(
                    self.gc.garbage.as_ptr(),
                    older.length,
                    end,
                    ptr::null_mut(),
                ) != 0
                {
                    ffi::PyErr_Clear();
                }
            }
            self.put_back_uncollectable(py, &left);
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
fn number(info: *mut ffi::PyObject, key: &Bound<'_, PyString>) -> u32 {
    // SAFETY: attached, as the key shows; the value is lent by the dict. The key is of a built-in
    // type and its hash is known, so that no code of the program runs.
    unsafe {
        let value = ffi::PyDict_GetItemWithError(info, key.as_ptr());
        if value.is_null() {
            ffi::PyErr_Clear();
            return 0;
        }
        let number = ffi::PyLong_AsLongLong(value);
        if number == -1 {
            ffi::PyErr_Clear();
        }
        u32::try_from(number).unwrap_or(0)
    }
}
