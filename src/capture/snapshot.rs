//! Garbage as a [`Snapshot`]: every object and every reference, taken before anything is touched.

use pyo3::ffi;
use rustc_hash::FxHashMap;

use super::{Snapshot, SnapshotObject};
use crate::cpython::{Builtins, ObjectKind, TypeTable, Verdict, for_each_counted, reference_count};

/// An object outside the garbage with more references than this is not asked whether the garbage
/// alone holds it: it is a class, a module or another fixture of the program.
const SHARED: i64 = 1 << 16;

/// Takes the snapshot of `garbage` and of what only it holds: buffers, containers that the
/// collector does not track, and objects of older generations with no other referrer.
///
/// Asking an object for its `__dict__` or a frame for its locals may create objects and move
/// references into them, so this comes before any naming (see the design, section 3).
///
/// `own_references` is how many references to each object of `garbage` are the caller's own.
///
/// # Safety
/// The caller is attached to the interpreter; `garbage` are live and distinct.
pub unsafe fn capture(
    table: &mut TypeTable,
    builtins: &Builtins,
    classify: &impl Fn(*mut ffi::PyTypeObject) -> Verdict,
    garbage: &[*mut ffi::PyObject],
    own_references: i64,
) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut index: FxHashMap<usize, u32> =
        FxHashMap::with_capacity_and_hasher(garbage.len() * 2, Default::default());
    table.begin_pass();

    for &object in garbage {
        index.insert(object as usize, snapshot.objects.len() as u32);
        // SAFETY: live and attached, by this function's contract.
        unsafe {
            let facts = table.facts(builtins, classify, ffi::Py_TYPE(object));
            snapshot.objects.push(SnapshotObject {
                address: object as usize,
                type_address: ffi::Py_TYPE(object) as usize,
                kind: facts.kind,
                verdict: facts.verdict,
                in_garbage: true,
                outside_references: reference_count(object) - own_references,
                salt: 0,
            });
        }
    }

    // References to objects that have no number yet, each with where it was found.
    let mut undecided: FxHashMap<usize, u32> = FxHashMap::default();
    let mut edges: Vec<(u32, usize)> = Vec::new();
    let mut next = 0;
    while next < snapshot.objects.len() {
        let from = next as u32;
        let object = snapshot.objects[next].address as *mut ffi::PyObject;
        next += 1;
        // SAFETY: every object of the snapshot is alive: it is garbage, or held by such.
        let facts = unsafe { table.facts(builtins, classify, ffi::Py_TYPE(object)) };
        let Some(traverse) = facts.traverse else {
            continue;
        };
        let mut salt = 0u64;
        let objects = &mut snapshot.objects;
        // SAFETY: as above; the visitor touches only our own data and reads types and counts.
        unsafe {
            for_each_counted(builtins, object, facts.kind, traverse, &mut |target| {
                if index.contains_key(&(target as usize)) {
                    edges.push((from, target as usize));
                    return;
                }
                let target_facts = table.facts(builtins, classify, ffi::Py_TYPE(target));
                if target_facts.kind == ObjectKind::Code {
                    salt = salt.rotate_left(5) ^ target as u64;
                    return;
                }
                let ignored = matches!(target_facts.kind, ObjectKind::Class | ObjectKind::Module);
                if ignored || (target_facts.verdict == 0 && target_facts.traverse.is_none()) {
                    return;
                }
                let references = reference_count(target);
                if target_facts.verdict == 0 && references > SHARED {
                    return;
                }
                edges.push((from, target as usize));
                let found = undecided.entry(target as usize).or_insert(0);
                *found += 1;
                // A buffer is of interest whoever else holds it; anything else only if the
                // references found so far are all there are.
                if target_facts.verdict != 0 || i64::from(*found) == references {
                    index.insert(target as usize, objects.len() as u32);
                    objects.push(SnapshotObject {
                        address: target as usize,
                        type_address: ffi::Py_TYPE(target) as usize,
                        kind: target_facts.kind,
                        verdict: target_facts.verdict,
                        in_garbage: false,
                        outside_references: references,
                        salt: 0,
                    });
                }
            });
        }
        snapshot.objects[from as usize].salt = salt;
    }

    edges.retain(|(_, target)| index.contains_key(target));
    number(&mut snapshot, &edges, &index);
    snapshot
}

/// Puts the references into the snapshot by the numbers of their objects; they come object by object, in order.
fn number(snapshot: &mut Snapshot, edges: &[(u32, usize)], index: &FxHashMap<usize, u32>) {
    let mut first = vec![0u32; snapshot.objects.len() + 1];
    for &(from, _) in edges {
        first[from as usize + 1] += 1;
    }
    for i in 1..first.len() {
        first[i] += first[i - 1];
    }
    for (_, target) in edges {
        let to = index[target];
        snapshot.objects[to as usize].outside_references -= 1;
        snapshot.targets.push(to);
    }
    snapshot.first = first;
}
