//! The collector's own state, as it lies in memory: the lists of its generations.

use std::ffi::c_int;
use std::ops::ControlFlow;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::builtin_function::BuiltinFunction;
use super::{CollectorHead, HeadLayout};

/// `struct gc_generation` (Include/internal/pycore_gc.h, since 3.14 pycore_interp_structs.h).
#[repr(C)]
struct Generation {
    head: CollectorHead,
    threshold: c_int,
    count: c_int,
}

const GENERATIONS: usize = 3;
const WORD: usize = size_of::<usize>();
/// Where, in words from the first generation, `gc.garbage` is looked for; behind three generations and the permanent
/// one, and before the statistics of the interpreter's own end.
const GARBAGE: std::ops::Range<usize> = 12..48;
/// `generation0` lies at most so many words behind `gc.callbacks`.
const ALIAS: usize = 12;

/// Where a generational collector has its lists (`struct _gc_runtime_state`), in CPython 3.10 to 3.13, 3.14.5 and
/// later, and 3.15. It lives as long as the interpreter.
///
/// What is found is checked against what the module `gc` says, and nothing is taken from a version but one
/// offset, which is checked at each collection ([`GcState::is_collecting`]).
#[derive(Clone, Copy)]
pub struct GcState {
    generations: *mut Generation,
    /// The list of what `gc.freeze()` excludes from collections, where that is known.
    permanent: Option<*mut CollectorHead>,
    collecting: *const c_int,
    get_debug: BuiltinFunction,
}

/// Prints each object of the garbage (`gc.DEBUG_COLLECTABLE`).
pub const DEBUG_COLLECTABLE: i64 = 1 << 1;

impl GcState {
    /// `None` if this interpreter has no such lists: its collector is an incremental one (3.14.0 to 3.14.4), or it
    /// lays its state out otherwise.
    pub fn find(
        py: Python<'_>,
        garbage: &Bound<'_, PyList>,
        callbacks: &Bound<'_, PyList>,
        thresholds: [c_int; GENERATIONS],
        get_debug: BuiltinFunction,
        is_any_frozen: bool,
    ) -> Option<Self> {
        if !HeadLayout::new(py).is_known() {
            return None;
        }
        let youngest = PyList::empty(py);
        // SAFETY: attached. A new object is the last of the youngest generation's list, so its next link is to the head
        // of that, which lies in the interpreter's state. That is larger by far than what is read of it, and is
        // taken for what it seems only if all of it agrees.
        unsafe {
            let generations = (*CollectorHead::of(youngest.as_ptr())).next() as *mut Generation;
            let words = generations.cast::<usize>();
            let word = |index: usize| *words.add(index);
            for (index, threshold) in thresholds.into_iter().enumerate() {
                let generation = generations.add(index);
                let head = &raw mut (*generation).head;
                if (*generation).threshold != threshold
                    || (*(*head).next()).previous() != head
                    || (*(*head).previous()).next() != head
                {
                    return None;
                }
            }
            let at = GARBAGE.into_iter().find(|&at| {
                word(at) == garbage.as_ptr() as usize && word(at + 1) == callbacks.as_ptr() as usize
            })?;
            // Only a generational collector has another name for its first list, directly behind the three or
            // behind the rest.
            let behind = GENERATIONS * size_of::<Generation>() / WORD;
            let is_generational = word(behind) == generations as usize
                || (at + 2..at + ALIAS).any(|index| word(index) == generations as usize);
            // From 3.15 on the frame that began the collection lies between.
            let collecting = at - if py.version_info() >= (3, 15) { 2 } else { 1 };
            // The list of the permanent generation follows, behind the other name if that is here.
            let next = behind + usize::from(word(behind) == generations as usize);
            is_generational.then_some(Self {
                generations,
                permanent: permanent(words.add(next).cast(), is_any_frozen),
                collecting: words.add(collecting).cast(),
                get_debug,
            })
        }
    }

    /// True if a collection is under way: only then does CPython go through `gc.callbacks`.
    pub fn is_collecting(&self, _py: Python<'_>) -> bool {
        // SAFETY: attached, and the interpreter's state lives as long as that.
        unsafe { *self.collecting == 1 }
    }

    /// The head of a generation's list.
    pub fn head(&self, generation: usize) -> *mut CollectorHead {
        debug_assert!(generation < GENERATIONS);
        // SAFETY: there are so many, as `find` has seen.
        unsafe { &raw mut (*self.generations.add(generation)).head }
    }

    pub fn is_head(&self, head: *mut CollectorHead) -> bool {
        (0..GENERATIONS).any(|generation| self.head(generation) == head)
    }

    /// The list whose objects are being collected: those of younger generations have been merged into it, and are
    /// empty.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, and called by the collector in `subtract_refs`.
    pub unsafe fn list_under_collection(&self) -> Option<*mut CollectorHead> {
        (0..GENERATIONS)
            .map(|generation| self.head(generation))
            // SAFETY: by this function's contract, the heads are not changed meanwhile. An object that a `tp_traverse`
            // has made is in the list of the youngest, without the flag.
            .find(|&head| unsafe {
                let first = (*head).next();
                first != head && (*first).is_collecting()
            })
    }

    /// True if the program has the collector print what is garbage.
    pub fn prints_garbage(&self) -> bool {
        // SAFETY: attached, as this is asked in collections only. It makes no object but a number.
        let flags = unsafe { self.get_debug.call_unchecked(std::ptr::null_mut()) };
        flags & DEBUG_COLLECTABLE != 0
    }

    /// The objects of the generations up to `oldest`, those of the youngest first; borrowed. `None` if there is no
    /// memory to list them.
    pub fn objects(&self, _py: Python<'_>, oldest: u32) -> Option<Vec<*mut ffi::PyObject>> {
        let mut objects = Vec::new();
        for generation in 0..=(oldest as usize).min(GENERATIONS - 1) {
            // SAFETY: attached, and the head of a list that nothing here changes.
            unsafe { add_objects(self.head(generation), usize::MAX, &mut objects)? };
        }
        Some(objects)
    }

    /// Calls `visit` with each object and its generation, the last object of the youngest generation first and the first
    /// one of the oldest last, until that says to stop.
    pub fn walk_back(
        &self,
        _py: Python<'_>,
        mut visit: impl FnMut(*mut ffi::PyObject, usize) -> ControlFlow<()>,
    ) {
        for generation in 0..GENERATIONS {
            let list = self.head(generation);
            // SAFETY: attached, and the head of a list of objects that are alive; outside of a collection, and before
            // it takes the list in hand, the links lead both ways. `visit` is given no way to change the list.
            unsafe {
                let mut at = (*list).previous();
                while at != list {
                    if visit(at.add(1).cast(), generation).is_break() {
                        return;
                    }
                    at = (*at).previous();
                }
            }
        }
    }

    /// The address of the first object of the oldest generation; its head if there is none.
    pub fn first_of_oldest(&self, _py: Python<'_>) -> usize {
        // SAFETY: attached, and the head of a list.
        unsafe { (*self.head(GENERATIONS - 1)).next() as usize }
    }

    /// Those of all objects that `keep` says yes to, in the same order. `None` if there is no memory to list them.
    ///
    /// `keep` must neither create nor drop an object of Python's, nor run its code.
    pub fn objects_where(
        &self,
        _py: Python<'_>,
        mut keep: impl FnMut(*mut ffi::PyObject) -> bool,
    ) -> Option<Vec<*mut ffi::PyObject>> {
        let mut objects = Vec::new();
        for generation in 0..GENERATIONS {
            let list = self.head(generation);
            // SAFETY: attached, and the head of a list of objects that are alive, which nothing here changes.
            unsafe {
                let mut at = (*list).next();
                while at != list {
                    let object = at.add(1).cast();
                    if keep(object) {
                        objects.try_reserve(1).ok()?;
                        objects.push(object);
                    }
                    at = (*at).next();
                }
            }
        }
        Some(objects)
    }

    /// The objects of the permanent generation, of which the collector says that there are `count`; borrowed. `None`
    /// if there are not, or no memory to list them, or the list is not known.
    pub(super) fn frozen(&self, _py: Python<'_>, count: usize) -> Option<Vec<*mut ffi::PyObject>> {
        let mut objects = Vec::new();
        // SAFETY: attached, and `permanent` has seen a head of a list, which nothing here changes.
        unsafe { add_objects(self.permanent?, count, &mut objects)? };
        (objects.len() == count).then_some(objects)
    }
}

/// The permanent generation, if that is what lies here: it has neither a threshold nor a count, and as long as nothing
/// is frozen it refers to itself alone, so that nothing else has to be read.
///
/// # Safety
/// Attached, and this is a part of the interpreter's state, of which all that was known has been as expected.
unsafe fn permanent(
    generation: *mut Generation,
    is_any_frozen: bool,
) -> Option<*mut CollectorHead> {
    // SAFETY: by this function's contract. In every CPython that has such a list, it lies here.
    unsafe {
        let head = &raw mut (*generation).head;
        let is_alone = || (*head).next() == head && (*head).previous() == head;
        let is_list = (*generation).threshold == 0
            && (*generation).count == 0
            && (is_alone() || (is_any_frozen && (*head).is_linked()));
        is_list.then_some(head)
    }
}

/// Adds the objects of a list. `None` if there are more than `most`, or no memory for them.
///
/// # Safety
/// Attached, and this is the head of a list of objects that are alive.
unsafe fn add_objects(
    list: *mut CollectorHead,
    most: usize,
    objects: &mut Vec<*mut ffi::PyObject>,
) -> Option<()> {
    let end = objects.len().saturating_add(most);
    // SAFETY: by this function's contract.
    unsafe {
        let mut at = (*list).next();
        while at != list && objects.len() < end {
            if objects.len() == objects.capacity() {
                objects.try_reserve(1).ok()?;
            }
            objects.push(at.add(1).cast());
            at = (*at).next();
        }
        (at == list).then_some(())
    }
}
