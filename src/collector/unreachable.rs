//! Which objects nothing but themselves refers to, found without collecting.

use pyo3::ffi;
use rustc_hash::FxHashMap;

use crate::cpython::{
    Builtins, TypeTable, Verdict, counts_are_known, for_each_counted, for_each_target,
    reference_count,
};
use crate::memory::Marks;

/// A mark begins as the number of references from outside, or as this if there are more.
const MANY: u32 = (1 << 30) - 2;
/// Something reachable refers to the object.
const REACHED: u32 = 1 << 30;
/// The object has had its turn in the search.
const PASSED: u32 = 1 << 31;

/// The objects among `objects` that cannot be reached from outside of them.
///
/// The method of the collector itself (`deduce_unreachable` in `Modules/gcmodule.c`, since 3.13 in
/// `Python/gc.c`): from each reference count take away the references that come from inside; what
/// keeps a reference is reachable, and so is all it refers to. Nothing is changed and no finalizer
/// runs, so this also finds the cycles that a finalizer would break.
///
/// `marks` are empty; afterwards the objects, and nothing else, have some. `own_references` is how many
/// references to each object are the caller's own (the list that holds them, say).
///
/// # Safety
/// The caller is attached to the interpreter; `objects` are live and distinct.
pub unsafe fn unreachable(
    table: &mut TypeTable,
    builtins: &Builtins,
    classify: &impl Fn(*mut ffi::PyTypeObject) -> Verdict,
    marks: &mut Marks,
    objects: &[*mut ffi::PyObject],
    own_references: i64,
) -> Vec<*mut ffi::PyObject> {
    for &object in objects {
        // SAFETY: live and attached, by this function's contract.
        let outside = unsafe { reference_count(object) } - own_references;
        marks.set(object as usize, outside.clamp(0, MANY.into()) as u32);
    }

    table.begin_pass();
    let mut walk = Walk {
        table,
        builtins,
        classify,
    };
    for &object in objects {
        // SAFETY: live and attached, by this function's contract.
        unsafe {
            walk.for_each_counted_target(object, |target| {
                // Where there are too many to count, the object is never garbage.
                marks.change(target, |mark| {
                    if *mark < MANY {
                        *mark = mark.saturating_sub(1);
                    }
                });
            });
        }
    }

    // In the order of the list as far as possible: neighbours in it are neighbours in memory.
    let mut pending: Vec<*mut ffi::PyObject> = Vec::new();
    for &object in objects {
        let reachable = marks.change(object as usize, |mark| {
            let reachable = *mark != 0;
            *mark |= if reachable { PASSED | REACHED } else { PASSED };
            reachable
        });
        if reachable == Some(true) {
            pending.push(object);
        }
        while let Some(object) = pending.pop() {
            // SAFETY: live and attached, by this function's contract.
            unsafe {
                walk.for_each_target(object, |target| {
                    let passed = marks.change(target, |mark| {
                        let new = *mark & REACHED == 0;
                        *mark |= REACHED;
                        new && *mark & PASSED != 0
                    });
                    if passed == Some(true) {
                        pending.push(target as *mut ffi::PyObject);
                    }
                });
            }
        }
    }
    let is_free = |&object: &*mut ffi::PyObject| {
        let mark = marks.get(object as usize);
        mark.is_some_and(|mark| mark & REACHED == 0)
    };
    let free: Vec<_> = objects.iter().copied().filter(is_free).collect();
    // Between the list and here, other threads went on.
    if cfg!(Py_GIL_DISABLED) && own_references > 0 {
        // SAFETY: live and attached, by this function's contract.
        return unsafe { without_released(&mut walk, free) };
    }
    free
}

/// Unreachable objects without those that the program has released since they were listed: nothing refers to them but the
/// list, or others of that kind.
///
/// # Safety
/// As for [`unreachable`].
unsafe fn without_released<C: Fn(*mut ffi::PyTypeObject) -> Verdict>(
    walk: &mut Walk<'_, C>,
    free: Vec<*mut ffi::PyObject>,
) -> Vec<*mut ffi::PyObject> {
    let mut references: FxHashMap<usize, usize> =
        free.iter().map(|&object| (object as usize, 0)).collect();
    let targets = |walk: &mut Walk<'_, C>, object| {
        let mut targets = Vec::new();
        // SAFETY: by this function's contract.
        unsafe { walk.for_each_target(object, |target| targets.push(target)) };
        targets
    };
    for &object in &free {
        for target in targets(walk, object) {
            references.entry(target).and_modify(|count| *count += 1);
        }
    }
    let is_released = |object: &&*mut ffi::PyObject| references[&(**object as usize)] == 0;
    let mut pending: Vec<_> = free.iter().filter(is_released).copied().collect();
    while let Some(object) = pending.pop() {
        for target in targets(walk, object) {
            if let Some(count) = references.get_mut(&target) {
                *count -= 1;
                if *count == 0 {
                    pending.push(target as *mut ffi::PyObject);
                }
            }
        }
    }
    let is_referred_to = |object: &*mut ffi::PyObject| references[&(*object as usize)] > 0;
    free.into_iter().filter(is_referred_to).collect()
}

/// What is needed to step from an object to its referents.
struct Walk<'a, C> {
    table: &'a mut TypeTable,
    builtins: &'a Builtins,
    classify: &'a C,
}

impl<C: Fn(*mut ffi::PyTypeObject) -> Verdict> Walk<'_, C> {
    /// Calls `f` with the address of each referent, as often as the referent's count has the reference; not at all if
    /// that cannot be told.
    ///
    /// # Safety
    /// As for [`for_each_target`].
    unsafe fn for_each_counted_target(
        &mut self,
        object: *mut ffi::PyObject,
        mut f: impl FnMut(usize),
    ) {
        // SAFETY: by this function's contract.
        unsafe {
            let ty = ffi::Py_TYPE(object);
            let facts = self.table.facts(self.builtins, self.classify, ty);
            if let Some(traverse) = facts.traverse
                && counts_are_known(self.builtins, facts.kind)
            {
                for_each_counted(self.builtins, object, facts.kind, traverse, &mut |target| {
                    f(target as usize)
                });
            }
        }
    }

    /// Calls `f` with the address of each referent.
    ///
    /// # Safety
    /// As for [`for_each_target`].
    unsafe fn for_each_target(&mut self, object: *mut ffi::PyObject, mut f: impl FnMut(usize)) {
        // SAFETY: by this function's contract.
        unsafe {
            let ty = ffi::Py_TYPE(object);
            if let Some(traverse) = self.table.facts(self.builtins, self.classify, ty).traverse {
                for_each_target(self.builtins, object, traverse, &mut |target| {
                    f(target as usize)
                });
            }
        }
    }
}
