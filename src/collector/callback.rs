//! The callable in `gc.callbacks`, and what it does around each collection.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::witness::{Calls, Unreachable, Witness};
use crate::cpython::{DEBUG_COLLECTABLE, GcModule, GcState, fork_count, has_stack};

/// The collector prints how many objects there are (`gc.DEBUG_STATS`).
const DEBUG_STATS: i64 = 1 << 0;

/// What CPython says of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CollectionInfo {
    /// The generation collected, 0 to 2.
    pub generation: u32,
    /// When it began, if that is known.
    pub began: Option<Instant>,
}

/// What to do around a collection. Nothing of it may run code of the program, raise, or keep a reference to an
/// object; a panic is caught and ends the watch.
pub trait Handler {
    /// Whether [`Handler::before`] is to be called for the collection that is about to begin.
    fn wants_before(&self, info: CollectionInfo) -> bool;

    /// A collection is about to begin.
    fn before(&self, py: Python<'_>, info: CollectionInfo);

    /// Whether [`Handler::look`] is to be called in the collection that is about to begin.
    fn wants_look(&self) -> bool {
        true
    }

    /// There is garbage, and no finalizer has run yet. What is made here must not be tracked by the
    /// collector when this returns.
    fn look(&self, py: Python<'_>, garbage: &mut Unreachable<'_>, info: CollectionInfo);

    /// Whether [`Handler::finalized`] is to be called.
    fn wants_finalized(&self) -> bool;

    /// After [`Handler::look`]: all finalizers have run, and the collector has destroyed nothing yet.
    fn finalized(&self, py: Python<'_>);

    /// Whether [`Handler::after`] is to be called for the collection that has ended.
    fn wants_after(&self, seen: bool) -> bool;

    /// The collection has ended; `seen` says whether all its garbage was to be seen. If so, and if there was any,
    /// [`Handler::look`] was called.
    fn after(&self, py: Python<'_>, info: CollectionInfo, seen: bool);

    /// There will be no further calls, because of a panic.
    fn failed(&self, py: Python<'_>);
}

/// The hook in `gc.callbacks`. There is no need for more than one.
pub struct Hook {
    shared: Rc<Shared>,
    callable: Py<PyAny>,
}

/// What the callable and the handle share.
struct Shared {
    gc: GcModule,
    state: GcState,
    handler: Box<dyn Handler>,
    witness: Witness,
    /// The collection that has begun and not ended.
    info: Cell<Option<CollectionInfo>>,
    /// False while nobody needs it; the callable may be in `gc.callbacks` still.
    active: Cell<bool>,
    failed: Cell<bool>,
    forks: u32,
    busy: RefCell<()>,
    tally: Tally,
}

/// Which collections came while the hook was to work, and which of them it was told of.
#[derive(Default)]
struct Tally {
    /// How many collections there had been when the hook began to work.
    earlier: Cell<u64>,
    /// How many it was told of since.
    told: Cell<u64>,
    /// How many it was not told of before that.
    untold: Cell<u64>,
}

/// A hook has something to put right that it could not in the middle of a collection.
static UNDONE: AtomicBool = AtomicBool::new(false);

/// True if [`Hook::mend`] may be due: a collection has begun and not yet ended, or ended without telling us.
/// Any thread may ask.
pub fn may_need_mending() -> bool {
    UNDONE.load(Ordering::Relaxed)
}

impl Hook {
    /// A hook that is not in `gc.callbacks` yet.
    ///
    /// # Errors
    /// If `gc` is not CPython's, its collector is not a generational one, or memory runs out.
    pub fn new(py: Python<'_>, handler: Box<dyn Handler>) -> PyResult<Self> {
        let gc = GcModule::new(py)?;
        let Some(state) = gc.state else {
            return Err(PyRuntimeError::new_err(
                "the garbage collector of this Python keeps no lists of generations while it runs, so it \
                 cannot be watched",
            ));
        };
        let shared = Rc::new(Shared {
            gc,
            state,
            handler,
            witness: Witness::new(py, state)?,
            info: Cell::default(),
            active: Cell::new(false),
            failed: Cell::new(false),
            forks: fork_count(),
            busy: RefCell::new(()),
            tally: Tally::default(),
        });
        let callable = make_callable(py, Rc::clone(&shared))?;
        Ok(Self { shared, callable })
    }

    /// Puts the callable at the end of `gc.callbacks`, unless it is there, and has it work.
    ///
    /// # Errors
    /// If memory runs out, or the hook was made before a fork or has failed.
    pub fn install(&self, py: Python<'_>) -> PyResult<()> {
        let shared = &self.shared;
        if shared.failed.get() || shared.forks != fork_count() {
            return Err(PyRuntimeError::new_err("the hook no longer works"));
        }
        if self.position(py).is_none() {
            shared.gc.callbacks.bind(py).append(&self.callable)?;
        }
        shared.tally.untold.set(self.untold(py));
        shared.tally.told.set(0);
        // The one under way has been told to those in the list before.
        let under_way = u64::from(shared.state.is_collecting(py));
        let earlier = shared.gc.all_collections(py)? + under_way;
        shared.tally.earlier.set(earlier);
        shared.active.set(true);
        Ok(())
    }

    /// How many collections came without a call of ours while the hook was to work: the program took the callable out
    /// of `gc.callbacks`, or changed that list while CPython went through it. In the middle of a collection, those
    /// until the hook last began to work.
    pub fn untold(&self, py: Python<'_>) -> u64 {
        let Shared { gc, tally, .. } = &*self.shared;
        if !self.shared.active.get()
            || self.shared.forks != fork_count()
            || self.shared.state.is_collecting(py)
        {
            return tally.untold.get();
        }
        let Ok(all) = gc.all_collections(py) else {
            return tally.untold.get();
        };
        let since = all.saturating_sub(tally.earlier.get());
        tally.untold.get() + since.saturating_sub(tally.told.get())
    }

    /// True if the callable is in `gc.callbacks` of this process and working.
    pub fn is_installed(&self, py: Python<'_>) -> bool {
        let shared = &self.shared;
        shared.active.get()
            && !shared.failed.get()
            && shared.forks == fork_count()
            && self.position(py).is_some()
    }

    /// Does what begins collections of our own, whose garbage it looks at itself: none of them counts as untold.
    pub fn excusing<T>(&self, py: Python<'_>, work: impl FnOnce() -> T) -> T {
        let before = self.untold(py);
        let done = work();
        let tally = &self.shared.tally;
        let own = self.untold(py).saturating_sub(before);
        tally.told.set(tally.told.get() + own);
        done
    }

    /// Ends its work. The callable leaves `gc.callbacks` now, or if a collection is under way after that: CPython
    /// goes through the list by index (`invoke_gc_callback`), and would pass over another's.
    pub fn remove(&self, py: Python<'_>) {
        self.shared.tally.untold.set(self.untold(py));
        self.shared.active.set(false);
        self.mend(py);
    }

    /// Does what could not be done in the middle of a collection, if none is under way.
    pub fn mend(&self, py: Python<'_>) {
        if self.shared.state.is_collecting(py) {
            UNDONE.store(true, Ordering::Relaxed);
            return;
        }
        // A "stop" that never came: the callable was taken out in between.
        self.shared.witness.leave(py);
        if !self.shared.active.get()
            && let Some(position) = self.position(py)
        {
            let removed = self.shared.gc.callbacks.bind(py).del_item(position);
            drop(removed);
        }
        UNDONE.store(false, Ordering::Relaxed);
    }

    /// Where in `gc.callbacks` the callable is, compared by identity.
    fn position(&self, py: Python<'_>) -> Option<usize> {
        let callbacks = self.shared.gc.callbacks.bind(py);
        callbacks.iter().position(|other| other.is(&self.callable))
    }
}

/// Calls `f` attached as PyO3 knows it: what it drops of Python's is given back at once, and not
/// kept until somebody attaches (`register_decref` in pyo3/src/internal/state.rs).
///
/// `None` on a thread whose state is not the one that `PyGILState_Ensure` knows, where that would wait for ever for
/// a lock that the thread itself has; and where the interpreter is on its way out, in which PyO3 attaches no more.
///
/// # Safety
/// The caller is attached to the interpreter.
unsafe fn attached<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    // SAFETY: by this function's contract.
    let is_known = unsafe { ffi::PyGILState_GetThisThreadState() == ffi::PyThreadState_Get() };
    (is_known && is_initialized()).then(|| Python::attach(f))
}

/// Does something in the middle of a collection. What it raises or panics with ends here; after a panic comes `failed`.
/// An exception that a finalizer in C left behind is put aside meanwhile.
///
/// # Safety
/// As for [`attached`].
#[cfg_attr(
    Py_GIL_DISABLED,
    expect(deprecated, reason = "3.10 and 3.11 have no other")
)]
pub(super) unsafe fn guarded(work: impl FnOnce(Python<'_>), failed: impl FnOnce(Python<'_>)) {
    // SAFETY: by this function's contract.
    unsafe {
        attached(|py| {
            // `PyErr::take` goes on with the panic of a `PanicException`.
            let mut left = [ptr::null_mut(); 3];
            let [kind, value, traceback] = left.each_mut();
            ffi::PyErr_Fetch(kind, value, traceback);
            if catch_unwind(AssertUnwindSafe(|| work(py))).is_err() {
                failed(py);
            }
            if !ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_Clear();
            }
            let [kind, value, traceback] = left;
            if !kind.is_null() {
                ffi::PyErr_Restore(kind, value, traceback);
            }
        });
    }
}

/// False once `Py_FinalizeEx` has begun to take the interpreter apart, which collects, too.
fn is_initialized() -> bool {
    // SAFETY: it may be called at any time.
    unsafe { ffi::Py_IsInitialized() != 0 }
}

/// The memory of the callable: an object with a vectorcall and no more, as a call of it makes neither a frame nor a
/// tuple, and asks nobody whether the stack is deep enough.
#[repr(C)]
struct Callable {
    head: ffi::PyObject,
    vectorcall: Option<ffi::vectorcallfunc>,
    /// From `Rc::into_raw`.
    shared: *const Shared,
}

fn make_callable(py: Python<'_>, shared: Rc<Shared>) -> PyResult<Py<PyAny>> {
    // `T_PYSSIZET` and `READONLY` of Include/structmember.h.
    const SIZE: c_int = 19;
    const READONLY: c_int = 1;
    let member = |name: *const c_char, offset| ffi::PyMemberDef {
        name,
        type_code: SIZE,
        offset,
        flags: READONLY,
        doc: ptr::null(),
    };
    let mut members = [
        member(
            c"__vectorcalloffset__".as_ptr(),
            offset_of!(Callable, vectorcall) as ffi::Py_ssize_t,
        ),
        member(ptr::null(), 0),
    ];
    let mut slots = [
        (ffi::Py_tp_members, members.as_mut_ptr().cast()),
        (ffi::Py_tp_call, called_by_hand as *mut c_void),
        (ffi::Py_tp_dealloc, deallocate as *mut c_void),
        (0, ptr::null_mut()),
    ]
    .map(|(slot, pfunc)| ffi::PyType_Slot { slot, pfunc });
    // `Py_TPFLAGS_HAVE_VECTORCALL`, part of the stable ABI since 3.12 and the same before.
    const HAVE_VECTORCALL: std::ffi::c_ulong = 1 << 11;
    let mut spec = ffi::PyType_Spec {
        name: c"cyclescope.Hook".as_ptr(),
        basicsize: size_of::<Callable>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT
            | HAVE_VECTORCALL
            | ffi::Py_TPFLAGS_IMMUTABLETYPE
            | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: attached; each slot has a function of its kind, the members are copied, and the object is as large as
    // it says. It owns one count of `shared`, given up in its destructor.
    unsafe {
        let ty = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec))?;
        let callable = ffi::PyType_GenericAlloc(ty.as_ptr().cast(), 0);
        let callable = Bound::from_owned_ptr_or_err(py, callable)?;
        let memory = callable.as_ptr().cast::<Callable>();
        (*memory).vectorcall = Some(called);
        (*memory).shared = Rc::into_raw(shared);
        Ok(callable.unbind())
    }
}

unsafe extern "C" fn deallocate(callable: *mut ffi::PyObject) {
    // SAFETY: CPython calls with an object of this type that nobody refers to, attached, once. It is not tracked and
    // has a reference to its type.
    unsafe {
        let ty = ffi::Py_TYPE(callable);
        let shared = (*callable.cast::<Callable>()).shared;
        if !shared.is_null() {
            attached(|_py| drop(Rc::from_raw(shared)));
        }
        ffi::PyObject_Free(callable.cast());
        ffi::Py_DECREF(ty.cast());
    }
}

/// What a call by the type's `__call__` gets; a plain call comes to [`called`].
unsafe extern "C" fn called_by_hand(
    _callable: *mut ffi::PyObject,
    _arguments: *mut ffi::PyObject,
    _keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: attached.
    unsafe { ffi::Py_NewRef(ffi::Py_None()) }
}

/// `hook(phase, info)`, as CPython calls it. Never raises.
unsafe extern "C" fn called(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    _keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls with an object of this type, attached, and with so many arguments (the highest bit is a
    // flag), which it lends. The state outlives the call even if that removes the callable.
    unsafe {
        let shared = (*callable.cast::<Callable>()).shared;
        if count << 1 == 4
            && !shared.is_null()
            && let (phase, info) = (*arguments, *arguments.add(1))
            && ffi::PyUnicode_Check(phase) != 0
            && ffi::PyDict_Check(info) != 0
        {
            Rc::increment_strong_count(shared);
            let shared = Rc::from_raw(shared);
            // "start" has five letters and "stop" four.
            if ffi::PyUnicode_GetLength(phase) == 5 {
                shared.start(info);
            } else {
                shared.stop();
            }
            if Rc::strong_count(&shared) == 1 {
                attached(|_py| drop(shared));
            }
        }
        ffi::Py_NewRef(ffi::Py_None())
    }
}

/// True if a witness would be counted, or printed: then there is none.
pub fn shows_witness(py: Python<'_>, gc: &GcModule) -> bool {
    gc.debug_flags(py) & (DEBUG_STATS | DEBUG_COLLECTABLE) != 0
}

/// What the witness calls first.
///
/// # Safety
/// The interpreter is attached, and `shared` is that of a hook, alive.
unsafe fn witnessed(shared: *const c_void) {
    // SAFETY: by this function's contract; the hook leaves before it goes.
    unsafe { (*shared.cast::<Shared>()).look() };
}

/// What the witness calls last.
///
/// # Safety
/// As for [`witnessed`].
unsafe fn finalized(shared: *const c_void) {
    // SAFETY: by this function's contract; the hook leaves before it goes.
    unsafe { (*shared.cast::<Shared>()).finalized() };
}

/// What a collection calls. Most have nothing to show, and then nothing of PyO3's is attached; nor is there then
/// anything of Python's to be dropped.
///
/// All of these are called attached to the interpreter, by CPython.
impl Shared {
    fn works(&self) -> bool {
        self.active.get() && !self.failed.get() && self.forks == fork_count() && is_initialized()
    }

    /// Has the handler do something.
    fn enter(&self, work: impl FnOnce(&Self, Python<'_>)) {
        // SAFETY: attached.
        unsafe { guarded(|py| work(self, py), |py| self.fail(py)) };
    }

    fn start(&self, info: *mut ffi::PyObject) {
        // SAFETY: attached.
        let py = unsafe { Python::assume_attached() };
        // A "stop" that never came.
        self.witness.leave(py);
        self.info.set(None);
        if self.state.is_collecting(py) {
            self.tally.told.set(self.tally.told.get() + 1);
        }
        let Ok(_busy) = self.busy.try_borrow_mut() else {
            return;
        };
        // What is not known to be a collection is left alone, such as a call by other callbacks.
        if !self.works() || !self.state.is_collecting(py) || !has_stack() {
            return;
        }
        let info = CollectionInfo {
            generation: generation(info),
            began: Some(Instant::now()),
        };
        self.info.set(Some(info));
        if self.handler.wants_before(info) {
            self.enter(|shared, py| shared.handler.before(py, info));
        }
        if self.handler.wants_look() && !shows_witness(py, &self.gc) {
            UNDONE.store(true, Ordering::Relaxed);
            let calls = Calls {
                first: witnessed,
                last: finalized,
                argument: ptr::from_ref(self).cast(),
            };
            // SAFETY: the witness belongs to this hook, and leaves before that is gone.
            unsafe { self.witness.stand(py, calls) };
        }
    }

    /// The witness is among the garbage, of which there is some.
    fn look(&self) {
        if let Some(info) = self.info.get()
            && self.works()
            && let Ok(_busy) = self.busy.try_borrow_mut()
        {
            // SAFETY: attached, and called by the witness; a handler's look runs no code of the program and
            // makes no object that the collector tracks.
            let mut garbage = unsafe { self.witness.garbage() };
            self.enter(|shared, py| shared.handler.look(py, &mut garbage, info));
        }
    }

    fn finalized(&self) {
        if self.works()
            && self.handler.wants_finalized()
            && let Ok(_busy) = self.busy.try_borrow_mut()
        {
            self.enter(|shared, py| shared.handler.finalized(py));
        }
    }

    fn stop(&self) {
        // SAFETY: attached.
        let seen = self.witness.leave(unsafe { Python::assume_attached() });
        // The callable is still to leave `gc.callbacks` if it is not active: see `Hook::remove`.
        UNDONE.store(!self.active.get(), Ordering::Relaxed);
        if let Some(info) = self.info.take()
            && self.works()
            && self.handler.wants_after(seen)
            && let Ok(_busy) = self.busy.try_borrow_mut()
        {
            self.enter(|shared, py| shared.handler.after(py, info, seen));
        }
    }

    fn fail(&self, py: Python<'_>) {
        if !self.failed.replace(true) {
            let told = catch_unwind(AssertUnwindSafe(|| self.handler.failed(py)));
            drop(told);
        }
    }
}

/// The generation that CPython tells callbacks of; 0 if it is not where CPython puts it, before all else
/// (`invoke_gc_callback`).
fn generation(info: *mut ffi::PyObject) -> u32 {
    let (mut position, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
    // SAFETY: attached, and this is a dict, which lends its first item. Exact types run no code of the program.
    unsafe {
        let found = ffi::PyDict_Next(info, &mut position, &mut key, &mut value) != 0
            && ffi::PyUnicode_CheckExact(key) != 0
            && ffi::PyUnicode_GetLength(key) == "generation".len() as ffi::Py_ssize_t
            && ffi::PyLong_CheckExact(value) != 0;
        if !found {
            return 0;
        }
        let number = ffi::PyLong_AsLongLong(value);
        if number == -1 {
            ffi::PyErr_Clear();
        }
        u32::try_from(number).unwrap_or(0)
    }
}
