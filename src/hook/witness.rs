//! An object of ours that becomes garbage with the others, and so sees them from among them.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::heap::{CollectorHead, HeadLayout};

/// What is no address in a collector's head.
const FLAGS: usize = CollectorHead::FINALIZED | CollectorHead::COLLECTING;

/// The memory of a witness.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    /// The reference that makes it a cycle.
    itself: *mut ffi::PyObject,
    /// Called from the finalizer, with `state`; null while it does not stand in a collection.
    call: Option<unsafe fn(*const c_void)>,
    state: *const c_void,
}

/// A reference cycle of a single object, which is put among the youngest objects as a collection of those
/// begins, and is found unreachable there. The collector then calls its finalizer, after all others, as it
/// is the youngest of all, and before it destroys anything (`finalize_garbage` in `Modules/gcmodule.c`, since
/// 3.13 in `Python/gc.c`): the list that it stands in is that of all the garbage. It leaves that list at
/// once, and so is not counted.
///
/// So garbage is seen without any of it being saved, which takes CPython twice as long as the look.
pub struct Witness {
    object: *mut Object,
    standing: Cell<bool>,
}

/// A witness of a hook that is gone. They are never destroyed: the collector may have one in its hands.
static SPARE: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());

impl Witness {
    /// `None` if this interpreter is of a later version than known, or lays its objects out otherwise.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(py: Python<'_>) -> PyResult<Option<Self>> {
        if py.version_info() >= (3, 14) || !HeadLayout::new(py).is_known() {
            return Ok(None);
        }
        let spare = SPARE.swap(ptr::null_mut(), Ordering::Relaxed);
        let object = if spare.is_null() { make(py)? } else { spare };
        Ok(Some(Self {
            object,
            standing: Cell::new(false),
        }))
    }

    /// Has `call` called with `state` from the collection that is about to begin, if that is of the youngest
    /// generation and nothing is made before it.
    ///
    /// # Safety
    /// `call` may be called so until [`Witness::leave`] or the end of the witness.
    pub unsafe fn stand(
        &self,
        _py: Python<'_>,
        call: unsafe fn(*const c_void),
        state: *const c_void,
    ) {
        if self.standing.replace(true) {
            return;
        }
        let object = self.object.cast::<ffi::PyObject>();
        // SAFETY: attached; the object is ours, alive by two references, and not tracked, so that its head
        // holds nothing but the flag, and nobody else knows of it.
        unsafe {
            (*self.object).call = Some(call);
            (*self.object).state = state;
            (*CollectorHead::of(object)).previous &= !CollectorHead::FINALIZED;
            ffi::PyObject_GC_Track(object.cast());
            ffi::Py_DECREF(object);
        }
    }

    /// Ends what [`Witness::stand`] began; true if the collector has called.
    pub fn leave(&self, _py: Python<'_>) -> bool {
        if !self.standing.replace(false) {
            return true;
        }
        let object = self.object.cast::<ffi::PyObject>();
        // SAFETY: attached; the object is ours and alive, if only by its own reference.
        unsafe {
            let called = (*self.object).call.take().is_none();
            if !called {
                ffi::Py_INCREF(object);
            }
            ffi::PyObject_GC_UnTrack(object.cast());
            called
        }
    }

    /// True between [`Witness::stand`] and [`Witness::leave`].
    pub fn stands(&self) -> bool {
        self.standing.get()
    }

    /// The garbage of the collection under way.
    ///
    /// # Safety
    /// The caller is attached, and was called by the witness. Until it has gone through the garbage, and that
    /// is before it returns, no code runs that could make or destroy an object of it.
    pub unsafe fn garbage(&self) -> Unreachable<'_> {
        // SAFETY: by this function's contract the object is the last of a list, whose head is no
        // object and comes behind it.
        let (end, last, found) = unsafe {
            let own = CollectorHead::of(self.object.cast());
            let previous = (*own).previous;
            (
                (*own).next & !FLAGS,
                previous & !FLAGS,
                previous & CollectorHead::COLLECTING != 0,
            )
        };
        Unreachable {
            at: if found { last } else { end },
            end,
            whole: found,
            witness: PhantomData,
        }
    }
}

/// The objects that a collection has found unreachable and not yet destroyed, from the witness back to the
/// first. See what [`Witness::garbage`] asks of whoever goes through them.
pub struct Unreachable<'a> {
    /// The address of the next one's [`CollectorHead`].
    at: usize,
    /// The address of the list's own head, which is no object's.
    end: usize,
    whole: bool,
    witness: PhantomData<&'a Witness>,
}

impl Unreachable<'_> {
    /// True if there are no more.
    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// False if the list did not look as it should, and was left there.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

impl Iterator for Unreachable<'_> {
    type Item = *mut ffi::PyObject;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_empty() {
            return None;
        }
        let head = self.at as *mut CollectorHead;
        // SAFETY: the witness was in the list with it, and each object of the list so far had the flag of
        // those that the collector found with the witness; nothing changes the list meanwhile, by the contract
        // of `Witness::garbage`.
        let (previous, object) = unsafe { ((*head).previous, head.add(1).cast()) };
        if previous & CollectorHead::COLLECTING == 0 {
            self.whole = false;
            self.at = self.end;
            return None;
        }
        self.at = previous & !FLAGS;
        Some(object)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // One that stands in a collection stays there, alive, and calls nobody.
        if self.standing.get() {
            // SAFETY: the object is alive; whoever drops a hook is attached.
            unsafe {
                if (*self.object).call.take().is_some() {
                    ffi::Py_INCREF(self.object.cast());
                }
            }
        } else {
            SPARE.store(self.object, Ordering::Relaxed);
        }
    }
}

/// A new one, not tracked, with two references: its own and ours.
fn make(py: Python<'_>) -> PyResult<*mut Object> {
    let mut slots = [
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_finalize, finalize as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"cyclescope.Witness".as_ptr(),
        basicsize: size_of::<Object>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT
            | ffi::Py_TPFLAGS_HAVE_GC
            | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: attached; each slot has a function of its kind, and the object is as large as it says. What is
    // not a pointer to itself in new memory is zero, which is `None`.
    unsafe {
        let ty = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec))?;
        let object = ffi::PyType_GenericAlloc(ty.as_ptr().cast(), 0);
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        ffi::PyObject_GC_UnTrack(object.cast());
        ffi::Py_INCREF(object);
        (*object.cast::<Object>()).itself = object;
        Ok(object.cast())
    }
}

fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

unsafe extern "C" fn traverse(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: CPython calls with an object of this type, and with what it wants to be called.
    unsafe {
        match visit((*object.cast::<Object>()).itself, argument) {
            0 => visit(ffi::Py_TYPE(object).cast(), argument),
            stopped => stopped,
        }
    }
}

/// Breaks nothing: should the collector ever take it for garbage, it survives.
unsafe extern "C" fn clear(_object: *mut ffi::PyObject) -> c_int {
    0
}

unsafe extern "C" fn finalize(object: *mut ffi::PyObject) {
    // SAFETY: CPython calls with an object of this type, attached. The reference is the one that
    // `stand` gave up. A finalizer may take any object out of the collector's lists, as destruction does.
    unsafe {
        let witness = object.cast::<Object>();
        if let Some(call) = (*witness).call.take() {
            ffi::Py_INCREF(object);
            call((*witness).state);
            ffi::PyObject_GC_UnTrack(object.cast());
        }
    }
}
