//! What lies before an object that the collector can track.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

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
    /// What is no address in either link.
    const FLAGS: usize = Self::FINALIZED | Self::COLLECTING;

    /// True if both neighbours in the list refer back to this head.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, and this is the head of a tracked object, if objects have
    /// one.
    pub(super) unsafe fn is_linked(&self) -> bool {
        let own = std::ptr::from_ref(self).cast_mut();
        let (next, previous) = (self.next(), self.previous());
        if (next as usize) < 0x1_0000 || (previous as usize) < 0x1_0000 {
            return false;
        }
        // SAFETY: by this function's contract, these are heads, or the list's own.
        unsafe { (*next).previous() == own && (*previous).next() == own }
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

    /// The next head, be it an object's or that of the list itself.
    #[inline(always)]
    pub fn next(&self) -> *mut Self {
        (self.next & !Self::FLAGS) as *mut Self
    }

    /// The head before.
    #[inline(always)]
    pub fn previous(&self) -> *mut Self {
        (self.previous & !Self::FLAGS) as *mut Self
    }

    /// True if the collection under way is about the object and has not found it reachable.
    #[inline(always)]
    pub fn is_collecting(&self) -> bool {
        self.previous & Self::COLLECTING != 0
    }
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
        // On free-threaded builds nothing lies before an object.
        if cfg!(Py_GIL_DISABLED) {
            return Self { known: false };
        }
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
        self.known && unsafe { (*CollectorHead::of(object)).is_collecting() }
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
