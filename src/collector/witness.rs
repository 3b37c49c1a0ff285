//! An object of ours that becomes garbage with the others, and so sees them from among them.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::cpython::{CollectorHead, GcState};

/// Called with its argument from among the garbage; see [`Witness::stand`].
pub type Call = unsafe fn(*const c_void);

/// What became of a witness in a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was called, and all the garbage stood before it.
    All,
    /// It was called, but something stood behind it: there may be more garbage, and finalizers still to run.
    Some,
    /// It was not called, or did not stand.
    Nothing,
}

/// A reference cycle of a single object, which joins the youngest objects as a collection begins.
///
/// CPython finds it unreachable with the rest and calls its finalizer, in the order of its list
/// (`finalize_garbage` in `Modules/gcmodule.c`, since 3.13 in `Python/gc.c`). If it is the last of the list, that
/// is after all other finalizers and before anything is destroyed, and the objects before it in the list are
/// all the garbage. It leaves the list in its finalizer, so it is neither counted nor destroyed.
///
/// A second object, the usher, sees to it that the witness is the last. It stands directly before it, and
/// CPython calls its `tp_traverse` in `subtract_refs`, when the lists of all generations that are collected have
/// been merged and only the forward links of the list are in use (`update_refs` keeps counts in the others,
/// `move_unreachable` makes them anew). There it moves the witness to the end. The `tp_traverse` of the witness
/// then checks that nothing stands behind it; that check is what makes [`Seen::All`] true.
pub struct Witness {
    pair: *mut Pair,
}

/// The two objects, and what they know of the collection. Never freed: the collector may have one of them in its
/// hands.
struct Pair {
    witness: *mut Object,
    usher: *mut Object,
    gc: Cell<GcState>,
    stands: Cell<bool>,
    /// The usher has had its turn.
    ushered: Cell<bool>,
    /// Whether nothing stands behind the witness, once its own turn has come.
    is_last: Cell<Option<bool>>,
    was_called: Cell<bool>,
    call: Cell<Option<Call>>,
    argument: Cell<*const c_void>,
}

/// The memory of a witness or an usher.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    /// The reference that makes it a cycle.
    itself: *mut ffi::PyObject,
    /// Null in an object that is not one of ours.
    pair: *const Pair,
    /// The other reference to it, ours, is given up until it leaves the collection.
    is_lent: Cell<bool>,
}

/// A pair that no witness uses.
static SPARE: AtomicPtr<Pair> = AtomicPtr::new(ptr::null_mut());

impl Witness {
    /// # Errors
    /// If memory runs out.
    pub fn new(py: Python<'_>, gc: GcState) -> PyResult<Self> {
        let spare = SPARE.swap(ptr::null_mut(), Ordering::Relaxed);
        let pair = if spare.is_null() {
            make(py, gc)?
        } else {
            spare
        };
        let witness = Self { pair };
        witness.pair().gc.set(gc);
        Ok(witness)
    }

    fn pair(&self) -> &Pair {
        // SAFETY: a pair is never freed, and only threads attached to the interpreter have a witness.
        unsafe { &*self.pair }
    }

    /// Has `call` called with `argument` from among the garbage of the collection that is about to begin.
    /// False, and nothing has changed, if the collector's lists are not what they should be.
    ///
    /// # Safety
    /// `call` may be called so until [`Witness::leave`].
    pub unsafe fn stand(&self, py: Python<'_>, call: Call, argument: *const c_void) -> bool {
        self.leave(py);
        let pair = self.pair();
        pair.stands.set(true);
        pair.ushered.set(false);
        pair.is_last.set(None);
        pair.was_called.set(false);
        pair.call.set(Some(call));
        pair.argument.set(argument);
        // SAFETY: attached; both objects are ours, alive by two references each and not tracked, so that their
        // heads hold nothing but the flag.
        let in_place = unsafe {
            for object in [pair.usher, pair.witness] {
                (*head_of(object)).previous &= !CollectorHead::FINALIZED;
                ffi::PyObject_GC_Track(object.cast());
                (*object).is_lent.set(true);
                ffi::Py_DECREF(object.cast());
            }
            let witness = head_of(pair.witness);
            (*head_of(pair.usher)).next() == witness && (*witness).next() == pair.gc.get().head(0)
        };
        if !in_place {
            self.leave(py);
        }
        in_place
    }

    /// Ends what [`Witness::stand`] began, wherever the collection is.
    pub fn leave(&self, _py: Python<'_>) -> Seen {
        let pair = self.pair();
        if !pair.stands.replace(false) {
            return Seen::Nothing;
        }
        pair.call.set(None);
        for object in [pair.usher, pair.witness] {
            // SAFETY: attached; the object is ours and alive, if only by its own reference.
            unsafe { take_out(object) };
        }
        match (pair.was_called.get(), pair.is_last.get()) {
            (true, Some(true)) => Seen::All,
            (true, _) => Seen::Some,
            (false, _) => Seen::Nothing,
        }
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
            let own = &*head_of(self.pair().witness);
            (own.next(), own.previous(), own.is_collecting())
        };
        Unreachable {
            at: if found { last } else { end },
            end,
            whole: found,
            witness: PhantomData,
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // Whoever drops a witness is attached; where there is no interpreter any more nothing is in its lists.
        Python::try_attach(|py| self.leave(py));
        SPARE.store(self.pair, Ordering::Relaxed);
    }
}

impl Pair {
    /// The usher's turn: moves the witness from directly behind the usher to the end of the list.
    ///
    /// # Safety
    /// The collector is in `subtract_refs`, at the usher.
    unsafe fn usher(&self) {
        if self.ushered.replace(true) {
            return;
        }
        // SAFETY: by this function's contract all objects of the list are alive and linked forward, and so is its
        // head, which knows its last. The collector reads the next link of the usher after this.
        unsafe {
            let (usher, witness) = (head_of(self.usher), head_of(self.witness));
            let Some(list) = self.gc.get().list_under_collection() else {
                return;
            };
            let last = (*list).previous();
            if (*usher).next() != witness || last == witness || (*last).next() != list {
                return;
            }
            (*usher).next = (*witness).next;
            (*last).next = witness as usize;
            (*witness).next = list as usize;
            (*list).previous = witness as usize;
        }
    }

    /// The witness's turn: is anything behind it?
    ///
    /// # Safety
    /// The collector is in `subtract_refs`, at the witness.
    unsafe fn look_behind(&self) {
        if self.is_last.get().is_none() {
            // SAFETY: by this function's contract the link is to an object or a list's head.
            let next = unsafe { (*head_of(self.witness)).next() };
            self.is_last.set(Some(self.gc.get().is_head(next)));
        }
    }
}

/// That of one of our objects.
fn head_of(object: *mut Object) -> *mut CollectorHead {
    // SAFETY: our objects have one, as their type says.
    unsafe { CollectorHead::of(object.cast()) }
}

/// Takes one of our objects out of whatever list of the collector's it is in, and has our reference back.
///
/// Any code that runs in a collection may do so, as the destruction of an object does.
///
/// # Safety
/// The caller is attached to the interpreter.
unsafe fn take_out(object: *mut Object) {
    // SAFETY: attached; the object is alive by its own reference at least.
    unsafe {
        if (*object).is_lent.replace(false) {
            ffi::Py_INCREF(object.cast());
        }
        ffi::PyObject_GC_UnTrack(object.cast());
    }
}

/// The objects that a collection has found unreachable and not yet destroyed, from the witness back to the
/// first. See what `Witness::garbage` asks of whoever goes through them.
#[derive(Clone)]
pub struct Unreachable<'a> {
    /// The head of the next one.
    at: *mut CollectorHead,
    /// The list's own head, which is no object's.
    end: *mut CollectorHead,
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
        // SAFETY: the witness was in the list with it, and each object of the list so far had the flag of
        // those that the collector found with the witness; nothing changes the list meanwhile, by the contract
        // of `Witness::garbage`.
        let (head, object) = unsafe { (&*self.at, self.at.add(1).cast()) };
        if !head.is_collecting() {
            self.whole = false;
            self.at = self.end;
            return None;
        }
        self.at = head.previous();
        Some(object)
    }
}

/// A new pair, neither of which is tracked, with two references to each: its own and ours.
fn make(py: Python<'_>, gc: GcState) -> PyResult<*mut Pair> {
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
            | ffi::Py_TPFLAGS_IMMUTABLETYPE
            | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: attached; each slot has a function of its kind, and the object is as large as it says. What is
    // not set in new memory is zero. The reference to the type is never given up: were it held by its
    // instances alone, it would be garbage with them.
    unsafe {
        let ty = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec))?.into_ptr();
        let object = || {
            let object = ffi::PyType_GenericAlloc(ty.cast(), 0);
            if object.is_null() {
                return Err(PyErr::fetch(py));
            }
            ffi::PyObject_GC_UnTrack(object.cast());
            ffi::Py_INCREF(object);
            (*object.cast::<Object>()).itself = object;
            Ok(object.cast::<Object>())
        };
        let pair = Box::into_raw(Box::new(Pair {
            usher: object()?,
            witness: object()?,
            gc: Cell::new(gc),
            stands: Cell::new(false),
            ushered: Cell::new(false),
            is_last: Cell::new(None),
            was_called: Cell::new(false),
            call: Cell::new(None),
            argument: Cell::new(ptr::null()),
        }));
        for object in [(*pair).usher, (*pair).witness] {
            (*object).pair = pair;
        }
        Ok(pair)
    }
}

fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

/// The pair that one of our objects belongs to, if it stands in a collection that has begun.
///
/// # Safety
/// `object` is one of our type, and the caller is attached.
unsafe fn pair_in_collection<'a>(object: *mut Object) -> Option<&'a Pair> {
    // SAFETY: by this function's contract; a pair is never freed.
    unsafe {
        let pair = (*object).pair.as_ref()?;
        (pair.stands.get() && (*head_of(object)).is_collecting()).then_some(pair)
    }
}

unsafe extern "C" fn traverse(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: CPython calls with an object of this type, attached, and with what it wants to be called. The first
    // to do so in a collection that has begun is `subtract_refs`.
    unsafe {
        let own = object.cast::<Object>();
        if let Some(pair) = pair_in_collection(own) {
            if own == pair.usher {
                pair.usher();
            } else {
                pair.look_behind();
            }
            // The flag was set after the callbacks were called. Reachable objects are not printed.
            if pair.gc.get().prints_garbage() {
                return 0;
            }
        }
        let itself = (*own).itself;
        if !itself.is_null()
            && let stopped @ (..=-1 | 1..) = visit(itself, argument)
        {
            return stopped;
        }
        visit(ffi::Py_TYPE(object).cast(), argument)
    }
}

/// Breaks nothing: should the collector ever take it for garbage, it survives.
unsafe extern "C" fn clear(_object: *mut ffi::PyObject) -> c_int {
    0
}

unsafe extern "C" fn finalize(object: *mut ffi::PyObject) {
    // SAFETY: CPython calls with an object of this type, attached; whoever else does (`__del__`, by a program that
    // has got hold of it) does so outside of a collection that found it. A finalizer may take any
    // object out of the collector's lists, as destruction does.
    unsafe {
        let own = object.cast::<Object>();
        let Some(pair) = pair_in_collection(own) else {
            return;
        };
        if own == pair.witness
            && let Some(call) = pair.call.take()
        {
            pair.was_called.set(true);
            call(pair.argument.get());
        }
        take_out(own);
    }
}
