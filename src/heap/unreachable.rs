//! Which objects nothing but themselves refers to, found without collecting.

use pyo3::ffi;
use rustc_hash::FxHashMap;

use super::builtins::Builtins;
use super::traverse::{for_each_referent, reference_count};
use super::types::{TypeTable, Verdict};

/// The objects among `objects` that cannot be reached from outside of them.
///
/// The method of the collector itself (`deduce_unreachable` in `Modules/gcmodule.c`, since 3.13 in
/// `Python/gc.c`): from each reference count take away the references that come from inside; what
/// keeps a reference is reachable, and so is all it refers to. Nothing is changed and no finalizer
/// runs, so this also finds the cycles that a finalizer would break.
///
/// `own_references` is how many references to each object are the caller's own (the list that
/// holds them, say).
///
/// # Safety
/// The caller is attached to the interpreter; `objects` are live and distinct.
pub unsafe fn unreachable(
    table: &mut TypeTable,
    builtins: &Builtins,
    classify: &impl Fn(*mut ffi::PyTypeObject) -> Verdict,
    objects: &[*mut ffi::PyObject],
    own_references: i64,
) -> Vec<*mut ffi::PyObject> {
    let mut index = FxHashMap::with_capacity_and_hasher(objects.len(), Default::default());
    let mut outside = Vec::with_capacity(objects.len());
    for (i, &object) in objects.iter().enumerate() {
        index.insert(object as usize, i as u32);
        // SAFETY: live and attached, by this function's contract.
        outside.push(unsafe { reference_count(object) } - own_references);
    }
    table.begin_pass();
    let mut visit_targets = |object: *mut ffi::PyObject, f: &mut dyn FnMut(u32)| {
        // SAFETY: live and attached, by this function's contract; the visitor only looks at
        // addresses.
        unsafe {
            let facts = table.facts(builtins, classify, ffi::Py_TYPE(object));
            if let Some(traverse) = facts.traverse {
                for_each_referent(object, traverse, &mut |target| {
                    if let Some(&i) = index.get(&(target as usize)) {
                        f(i);
                    }
                });
            }
        }
    };
    for &object in objects {
        visit_targets(object, &mut |i| {
            if let Some(count) = outside.get_mut(i as usize) {
                *count -= 1;
            }
        });
    }
    let mut reachable: Vec<bool> = outside.iter().map(|&count| count > 0).collect();
    let mut pending: Vec<u32> = (0..objects.len() as u32)
        .filter(|&i| reachable[i as usize])
        .collect();
    while let Some(i) = pending.pop() {
        visit_targets(objects[i as usize], &mut |target| {
            if let Some(seen) = reachable.get_mut(target as usize)
                && !*seen
            {
                *seen = true;
                pending.push(target);
            }
        });
    }
    objects
        .iter()
        .zip(reachable)
        .filter(|(_, seen)| !seen)
        .map(|(&object, _)| object)
        .collect()
}
