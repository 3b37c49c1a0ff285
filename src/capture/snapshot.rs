//! Garbage as a [`Snapshot`]: every object and every reference, taken before anything is touched.

use pyo3::ffi;
use rustc_hash::FxHashMap;

use super::{Snapshot, SnapshotObject};
use crate::cpython::{
    Builtins, ObjectKind, TypeFacts, TypeTable, Verdict, for_each_counted, reference_count,
};

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
    let mut taking = Taking {
        snapshot: Snapshot::default(),
        index: FxHashMap::with_capacity_and_hasher(garbage.len() * 2, Default::default()),
        found: FxHashMap::default(),
        edges: Vec::new(),
    };
    table.begin_pass();
    for &object in garbage {
        // SAFETY: live and attached, by this function's contract.
        unsafe {
            let facts = table.facts(builtins, classify, ffi::Py_TYPE(object));
            taking.push(
                object,
                facts,
                true,
                reference_count(object) - own_references,
            );
        }
    }

    let mut next = 0;
    while next < taking.snapshot.objects.len() {
        let from = next;
        let object = taking.snapshot.objects[from].address as *mut ffi::PyObject;
        next += 1;
        // SAFETY: every object of the snapshot is alive: it is garbage, or held by such.
        let facts = unsafe { table.facts(builtins, classify, ffi::Py_TYPE(object)) };
        let (kind, Some(traverse)) = (facts.kind, facts.traverse) else {
            continue;
        };
        let mut salt = 0u64;
        // SAFETY: as above; the visitor touches only our own data and reads types and counts.
        unsafe {
            for_each_counted(builtins, object, kind, traverse, &mut |target| {
                if taking.index.contains_key(&(target as usize)) {
                    taking.edges.push((from as u32, target as usize));
                    return;
                }
                let facts = table.facts(builtins, classify, ffi::Py_TYPE(target));
                if facts.kind == ObjectKind::Code {
                    salt = salt.rotate_left(5) ^ target as u64;
                } else {
                    taking.meet(from as u32, target, facts);
                }
            });
        }
        taking.snapshot.objects[from].salt = salt;
    }

    let Taking {
        mut snapshot,
        index,
        mut edges,
        ..
    } = taking;
    edges.retain(|(_, target)| index.contains_key(target));
    number(&mut snapshot, &edges, &index);
    snapshot
}

/// A snapshot that is being taken.
struct Taking {
    snapshot: Snapshot,
    /// The number of each object of the snapshot, by address.
    index: FxHashMap<usize, u32>,
    /// How many references were found to objects that have no number yet.
    found: FxHashMap<usize, u32>,
    /// The number of the object where a reference was found, and the address of the referent.
    edges: Vec<(u32, usize)>,
}

impl Taking {
    /// # Safety
    /// `object` is alive.
    unsafe fn push(
        &mut self,
        object: *mut ffi::PyObject,
        facts: &TypeFacts,
        in_garbage: bool,
        outside_references: i64,
    ) {
        let number = self.snapshot.objects.len() as u32;
        self.index.insert(object as usize, number);
        self.snapshot.objects.push(SnapshotObject {
            address: object as usize,
            // SAFETY: by this function's contract.
            type_address: unsafe { ffi::Py_TYPE(object) } as usize,
            kind: facts.kind,
            verdict: facts.verdict,
            in_garbage,
            outside_references,
            salt: 0,
        });
    }

    /// Notes a reference to an object that has no number yet, and gives it one if it is a buffer, which is of interest
    /// whoever else holds it, or if the references found so far are all there are.
    ///
    /// # Safety
    /// The caller is attached, `target` is alive and `facts` are its type's.
    unsafe fn meet(&mut self, from: u32, target: *mut ffi::PyObject, facts: &TypeFacts) {
        let is_buffer = facts.verdict != 0;
        let is_fixture = matches!(facts.kind, ObjectKind::Class | ObjectKind::Module);
        if is_fixture || (!is_buffer && facts.traverse.is_none()) {
            return;
        }
        // SAFETY: by this function's contract.
        let references = unsafe { reference_count(target) };
        if !is_buffer && references > SHARED {
            return;
        }
        self.edges.push((from, target as usize));
        let found = self.found.entry(target as usize).or_insert(0);
        *found += 1;
        if is_buffer || i64::from(*found) == references {
            // SAFETY: by this function's contract.
            unsafe { self.push(target, facts, false, references) };
        }
    }
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
