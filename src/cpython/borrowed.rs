//! References that a suspended frame's stack only borrows from its variables.

use pyo3::ffi;
use pyo3::prelude::*;

use super::ObjectKind;
use super::builtins::Builtins;
use super::frame_layout::{FrameLayout, TAG};
use super::frames::{code_of_frame, variable_names};
use super::inline_values::AttributeLayout;
use super::stack::{KnownStacks, entries_kept};
use super::traverse::for_each_referent;

/// The tag of a `_PyStackRef` that no reference count has (`Py_TAG_REFCNT` in Include/internal/pycore_stackref.h).
const BORROWED: usize = 1;

/// As [`for_each_target`], without references that no reference count has, if it is [known](counts_are_known) which these are.
///
/// From 3.14 on, what a function's variable refers to goes onto its stack uncounted (`LOAD_FAST_BORROW`), and if the
/// function is a generator that is suspended just then, `tp_traverse` visits it twice. The collector skips it where
/// it takes counts, by the visitor (`_PyGC_VisitStackRef` in Python/gc.c).
///
/// # Safety
/// As for [`for_each_referent`]; `kind` is that of the object.
pub unsafe fn for_each_counted(
    builtins: &Builtins,
    object: *mut ffi::PyObject,
    kind: ObjectKind,
    traverse: ffi::traverseproc,
    f: &mut impl FnMut(*mut ffi::PyObject),
) {
    let layout = builtins
        .frames
        .filter(|_| builtins.frames_borrow && has_frame(kind));
    // SAFETY: by this function's contract.
    unsafe {
        let mut borrowed = layout.map_or_else(Vec::new, |layout| layout.borrowed(object, kind));
        for_each_target(builtins, object, traverse, &mut |target| match borrowed
            .iter()
            .position(|&it| it == target as usize)
        {
            Some(place) => _ = borrowed.swap_remove(place),
            None => f(target),
        });
    }
}

/// As [`for_each_referent`], but an instance refers to its dictionary and that to the values, as from 3.14 on, also where
/// `tp_traverse` visits the values in place of the [dictionary](AttributeLayout::hidden_dict).
///
/// # Safety
/// As for [`for_each_referent`].
pub unsafe fn for_each_target(
    builtins: &Builtins,
    object: *mut ffi::PyObject,
    traverse: ffi::traverseproc,
    f: &mut impl FnMut(*mut ffi::PyObject),
) {
    // SAFETY: by this function's contract.
    unsafe {
        match builtins.instances.layout.filter(|layout| layout.hides_dict) {
            None => for_each_referent(object, traverse, f),
            Some(layout) => for_each_shown(&layout, object, traverse, f),
        }
    }
}

/// As [`for_each_target`], where dictionaries are hidden.
///
/// # Safety
/// As for [`for_each_referent`].
unsafe fn for_each_shown(
    layout: &AttributeLayout,
    object: *mut ffi::PyObject,
    traverse: ffi::traverseproc,
    f: &mut impl FnMut(*mut ffi::PyObject),
) {
    // SAFETY: by this function's contract; a dictionary's values are its own while no code of others runs.
    unsafe {
        if let Some(hidden) = layout.hidden_dict(object) {
            let mut own: Vec<_> = hidden.values.iter().filter(|it| !it.is_null()).collect();
            for_each_referent(object, traverse, &mut |target| match own
                .iter()
                .position(|&&it| it == target)
            {
                Some(place) => _ = own.swap_remove(place),
                None => f(target),
            });
            return f(hidden.dict);
        }
        let mut visited = false;
        for_each_referent(object, traverse, &mut |target| {
            visited = true;
            f(target);
        });
        if !visited && ffi::PyDict_CheckExact(object) != 0 {
            let (mut position, mut value) = (0, std::ptr::null_mut());
            while ffi::PyDict_Next(object, &mut position, std::ptr::null_mut(), &mut value) != 0 {
                f(value);
            }
        }
    }
}

/// True if [`for_each_counted`] knows which references of objects of this kind are counted.
pub fn counts_are_known(builtins: &Builtins, kind: ObjectKind) -> bool {
    let reads_stack = builtins
        .frames
        .is_some_and(|layout| layout.stack_top.is_some());
    !builtins.frames_borrow || reads_stack || !has_frame(kind)
}

/// The references that the Python code which called into this module has on its stack for this call, its arguments: those
/// that are counted, as addresses. `None` if that is not known.
///
/// Before 3.14 all are counted; from then on, one to a variable is not (`LOAD_FAST_BORROW`).
pub fn counted_by_caller(builtins: &Builtins, py: Python<'_>) -> Option<Vec<usize>> {
    let layout = builtins.frames.filter(|_| builtins.frames_borrow)?;
    // SAFETY: attached; the frame is borrowed from the interpreter, in which it runs as long as this call.
    let frame = unsafe {
        let frame = ffi::PyEval_GetFrame().cast::<ffi::PyObject>();
        Bound::from_borrowed_ptr_or_opt(py, frame)?
    };
    let (_, inner) = layout.checked(builtins, &frame)?;
    let variables = variable_names(builtins, &code_of_frame(builtins, &frame)?).len();
    // SAFETY: the structure has been checked. The interpreter puts the top of the stack into it before it calls anything
    // (`_PyFrame_SetStackPointer` in Include/internal/pycore_interpframe.h), and null when that returns.
    let entries = unsafe { layout.entries(inner)? };
    let is_counted = |word: &usize| word & TAG == 0 && *word != 0;
    let kept = entries_kept(builtins, &frame, &mut KnownStacks::default()).unwrap_or(0);
    let stack = entries.into_iter().skip(variables + kept);
    Some(stack.filter(is_counted).collect())
}

fn has_frame(kind: ObjectKind) -> bool {
    use ObjectKind::{AsyncGenerator, Coroutine, Frame, Generator};
    matches!(kind, Generator | Coroutine | AsyncGenerator | Frame)
}

impl FrameLayout {
    /// The objects to which a suspended object, or the frame object of a call that is over, refers uncounted, each as
    /// often as it does.
    ///
    /// # Safety
    /// The caller is attached, and `object` is alive and of that kind.
    unsafe fn borrowed(&self, object: *mut ffi::PyObject, kind: ObjectKind) -> Vec<usize> {
        // SAFETY: by this function's contract, every such object has the structure, up to the variables. The
        // interpreter keeps the top of the stack in it while other code runs, and its own `tp_traverse` reads as far.
        unsafe {
            let words = object.cast::<usize>().cast_const();
            let inner = if kind == ObjectKind::Frame {
                words.add(self.in_frame)
            } else {
                words.add(self.in_suspended)
            };
            // The frame object of a call that goes on does not visit what the call refers to.
            if kind == ObjectKind::Frame && *words.add(self.inner) != inner as usize {
                return Vec::new();
            }
            let Some(entries) = self.entries(inner) else {
                return Vec::new();
            };
            [self.function, self.code]
                .map(|word| *inner.add(word))
                .into_iter()
                .chain(entries)
                .filter(|word| word & TAG == BORROWED)
                .map(|word| word & !TAG)
                .collect()
        }
    }

    /// The variables of a frame and what is on its stack, as they are there.
    ///
    /// # Safety
    /// The caller is attached, and `inner` is such a structure.
    unsafe fn entries(&self, inner: *const usize) -> Option<Vec<usize>> {
        // SAFETY: by this function's contract; the stack follows the variables, up to its top.
        unsafe {
            let first = inner.add(self.variables);
            let top = *inner.add(self.stack_top?);
            let entries = top.saturating_sub(first as usize) / size_of::<usize>();
            Some((0..entries).map(|place| *first.add(place)).collect())
        }
    }
}
