//! An object of ours that becomes garbage with the others, and so sees them from among them.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::cpython::{CollectorHead, GcState};

/// Called with an argument from among the garbage; see [`Witness::stand`].
pub type Call = unsafe fn(*const c_void);

/// What is called in a collection, with which argument.
#[derive(Clone, Copy)]
pub struct Calls {
    /// Before the finalizers of all other objects, if there is garbage and all of it is to be seen.
    pub first: Call,
    /// After the finalizers of all other objects, if `first` was called.
    pub last: Call,
    pub argument: *const c_void,
}

/// Three objects in reference cycles of their own, which join the youngest objects as a collection begins.
///
/// CPython finds them unreachable with the rest, and calls finalizers in the order of its list
/// (`finalize_garbage` in `Modules/gcmodule.c`, since 3.13 in `Python/gc.c`). The witness is the first of the list:
/// all the garbage is there, as no finalizer has run. The sentinel is the last, and marks the end of the list. Each
/// leaves the list in its finalizer, so it is neither counted nor destroyed.
///
/// The third object, the usher, brings both to their places. They stand directly behind it, and
/// CPython calls its `tp_traverse` in `subtract_refs`, when the lists of all generations that are collected have
/// been merged and only the forward links of the list are in use (`update_refs` keeps counts in the others,
/// `move_unreachable` makes them anew). There it moves the witness to the front and the sentinel to the end. As
/// `subtract_refs` has passed the front then, only the usher refers to the witness.
///
/// Two checks make [`Witness::leave`] true. The `tp_traverse` of the sentinel looks whether anything is behind it.
/// The finalizer of the witness looks whether it is the first: `finalize_garbage` has moved it, and nothing else, to
/// a list of those that it is done with.
pub struct Witness {
    party: *mut Party,
}

/// The three objects, and what they know of the collection. Never freed: the collector may have one of them in its
/// hands.
struct Party {
    usher: *mut Object,
    witness: *mut Object,
    sentinel: *mut Object,
    gc: Cell<GcState>,
    stands: Cell<bool>,
    /// The usher has had its turn.
    ushered: Cell<bool>,
    /// Whether nothing stands behind the sentinel, once its turn has come.
    is_last: Cell<Option<bool>>,
    /// All the garbage was to be seen.
    saw_all: Cell<bool>,
    /// [`Calls::last`] is due.
    calls_last: Cell<bool>,
    calls: Cell<Option<Calls>>,
}

/// The memory of one of our objects.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    /// What it refers to; null for nothing. Each object is referred to once.
    referents: [*mut ffi::PyObject; 2],
    /// Null in an object that is not one of ours.
    party: *const Party,
    /// The other reference to it, ours, is given up until it leaves the collection.
    is_lent: Cell<bool>,
}

/// A party that no witness uses.
static SPARE: AtomicPtr<Party> = AtomicPtr::new(ptr::null_mut());

impl Witness {
    /// # Errors
    /// If memory runs out.
    pub fn new(py: Python<'_>, gc: GcState) -> PyResult<Self> {
        let spare = SPARE.swap(ptr::null_mut(), Ordering::Relaxed);
        let party = if spare.is_null() {
            make(py, gc)?
        } else {
            spare
        };
        let witness = Self { party };
        witness.party().gc.set(gc);
        Ok(witness)
    }

    fn party(&self) -> &Party {
        // SAFETY: a party is never freed, and only threads attached to the interpreter have a witness.
        unsafe { &*self.party }
    }

    /// Has `calls` made from among the garbage of the collection that is about to begin.
    /// False, and nothing has changed, if the collector's lists are not what they should be.
    ///
    /// # Safety
    /// The calls may be made so until [`Witness::leave`].
    pub unsafe fn stand(&self, py: Python<'_>, calls: Calls) -> bool {
        self.leave(py);
        let party = self.party();
        party.stands.set(true);
        party.ushered.set(false);
        party.is_last.set(None);
        party.saw_all.set(false);
        party.calls_last.set(false);
        party.calls.set(Some(calls));
        // SAFETY: attached; the objects are ours, alive by two references each and not tracked, so that their
        // heads hold nothing but the flag.
        let in_place = unsafe {
            for object in party.objects() {
                (*head_of(object)).previous &= !CollectorHead::FINALIZED;
                ffi::PyObject_GC_Track(object.cast());
                (*object).is_lent.set(true);
                ffi::Py_DECREF(object.cast());
            }
            let [usher, witness, sentinel] = party.objects().map(head_of);
            (*usher).next() == witness
                && (*witness).next() == sentinel
                && (*sentinel).next() == party.gc.get().head(0)
        };
        if !in_place {
            self.leave(py);
        }
        in_place
    }

    /// Ends what [`Witness::stand`] began, wherever the collection is. True if all its garbage was to be seen.
    pub fn leave(&self, _py: Python<'_>) -> bool {
        let party = self.party();
        if !party.stands.replace(false) {
            return false;
        }
        party.calls.set(None);
        for object in party.objects() {
            // SAFETY: attached; the object is ours and alive, if only by one of ours.
            unsafe { take_out(object) };
        }
        party.saw_all.get()
    }

    /// The garbage of the collection under way.
    ///
    /// # Safety
    /// The caller is attached, and called as [`Calls::first`]. Until it has gone through the garbage, and that
    /// is before it returns, no code runs that could make or destroy an object of it.
    pub unsafe fn garbage(&self) -> Unreachable<'_> {
        self.party().garbage()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // Whoever drops a witness is attached; where there is no interpreter any more nothing is in its lists.
        Python::try_attach(|py| self.leave(py));
        SPARE.store(self.party, Ordering::Relaxed);
    }
}

impl Party {
    fn objects(&self) -> [*mut Object; 3] {
        [self.usher, self.witness, self.sentinel]
    }

    /// The usher's turn: moves the witness and the sentinel from directly behind it to the ends of the list.
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
            let [usher, witness, sentinel] = self.objects().map(head_of);
            let Some(list) = self.gc.get().list_under_collection() else {
                return;
            };
            let last = (*list).previous();
            if (*usher).next() != witness || (*witness).next() != sentinel || (*last).next() != list
            {
                return;
            }
            if last != sentinel {
                (*usher).next = (*sentinel).next;
                (*last).next = sentinel as usize;
                (*sentinel).next = list as usize;
                (*list).previous = sentinel as usize;
            } else {
                (*usher).next = sentinel as usize;
            }
            (*witness).next = (*list).next;
            (*list).next = witness as usize;
        }
    }

    /// The sentinel's turn: is anything behind it?
    ///
    /// # Safety
    /// The collector is in `subtract_refs`, at the sentinel.
    unsafe fn look_behind(&self) {
        if self.is_last.get().is_none() {
            // SAFETY: by this function's contract the link is to an object or a list's head.
            let next = unsafe { (*head_of(self.sentinel)).next() };
            self.is_last.set(Some(self.gc.get().is_head(next)));
        }
    }

    /// The witness's turn: calls, if no finalizer has run yet and the sentinel is at the other end.
    ///
    /// # Safety
    /// The collector is in `finalize_garbage`, at the witness.
    unsafe fn testify(&self) {
        // SAFETY: by this function's contract the witness is in a list, and so is the sentinel if it has the flag. A
        // finalizer may take any object out of the collector's lists, as destruction does.
        unsafe {
            let own = &*head_of(self.witness);
            let is_first = own.next() == own.previous();
            let sees_end =
                self.is_last.get() == Some(true) && (*head_of(self.sentinel)).is_collecting();
            take_out(self.usher);
            if !is_first || !sees_end {
                return;
            }
            self.saw_all.set(true);
            if !self.garbage().is_empty()
                && let Some(calls) = self.calls.get()
            {
                self.calls_last.set(true);
                (calls.first)(calls.argument);
            }
        }
    }

    /// The objects before the sentinel, which is in the list of the garbage.
    fn garbage(&self) -> Unreachable<'_> {
        // SAFETY: the sentinel is alive, and where it has the flag, the last of a list whose head is no object and
        // comes behind it.
        let (end, last, found) = unsafe {
            let own = &*head_of(self.sentinel);
            (own.next(), own.previous(), own.is_collecting())
        };
        Unreachable {
            at: if found { last } else { end },
            end,
            whole: found,
            party: PhantomData,
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

/// The objects that a collection has found unreachable and not yet destroyed, from the last to the
/// first. See what `Witness::garbage` asks of whoever goes through them.
#[derive(Clone)]
pub struct Unreachable<'a> {
    /// The head of the next one.
    at: *mut CollectorHead,
    /// The list's own head, which is no object's.
    end: *mut CollectorHead,
    whole: bool,
    party: PhantomData<&'a Party>,
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
        // SAFETY: the sentinel was in the list with it, and each object of the list so far had the flag of
        // those that the collector found with the sentinel; nothing changes the list meanwhile, by the contract
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

/// A new party, no object of which is tracked, with two references to each: that of its referrer and ours.
fn make(py: Python<'_>, gc: GcState) -> PyResult<*mut Party> {
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
            Ok(object.cast::<Object>())
        };
        let party = Box::into_raw(Box::new(Party {
            usher: object()?,
            witness: object()?,
            sentinel: object()?,
            gc: Cell::new(gc),
            stands: Cell::new(false),
            ushered: Cell::new(false),
            is_last: Cell::new(None),
            saw_all: Cell::new(false),
            calls_last: Cell::new(false),
            calls: Cell::new(None),
        }));
        let [usher, witness, sentinel] = (*party).objects();
        (*usher).referents = [usher.cast(), witness.cast()];
        (*sentinel).referents[0] = sentinel.cast();
        for object in [usher, witness, sentinel] {
            ffi::Py_INCREF(object.cast());
            (*object).party = party;
        }
        Ok(party)
    }
}

fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

/// The party that one of our objects belongs to, if it stands in a collection that has begun.
///
/// # Safety
/// `object` is one of our type, and the caller is attached.
unsafe fn party_in_collection<'a>(object: *mut Object) -> Option<&'a Party> {
    // SAFETY: by this function's contract; a party is never freed.
    unsafe {
        let party = (*object).party.as_ref()?;
        (party.stands.get() && (*head_of(object)).is_collecting()).then_some(party)
    }
}

unsafe extern "C" fn traverse(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: CPython calls with an object of this type, attached, and with what it wants to be called. The first
    // to do so in a collection that has begun is `subtract_refs`, but at the witness, which it has passed.
    unsafe {
        let own = object.cast::<Object>();
        if let Some(party) = party_in_collection(own) {
            if own == party.usher {
                party.usher();
            } else if own == party.sentinel {
                party.look_behind();
            }
            // The flag was set after the callbacks were called. Reachable objects are not printed.
            if party.gc.get().prints_garbage() {
                return 0;
            }
        }
        for referent in (*own).referents {
            if !referent.is_null()
                && let stopped @ (..=-1 | 1..) = visit(referent, argument)
            {
                return stopped;
            }
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
        let Some(party) = party_in_collection(own) else {
            return;
        };
        if own == party.witness {
            party.testify();
        } else if own == party.sentinel
            && party.calls_last.get()
            && let Some(calls) = party.calls.get()
        {
            (calls.last)(calls.argument);
        }
        take_out(own);
    }
}
