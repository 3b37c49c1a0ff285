//! The live heap: every object that the collector tracks, what else they refer to, and the references
//! between all of them, in one pass of `tp_traverse`.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashSet;

use super::Csr;
use crate::cpython::{
    Builtins, Layouts, ListLayout, ObjectKind, TypeTable, Verdict, for_each_counted,
    reference_count,
};
use crate::memory::Marks;
use crate::memory::array::{Growing, prefetch, prefetch_at};

/// After so many objects, somebody who pressed Ctrl-C is heard.
const CHUNK: usize = 1 << 16;
/// So many objects are traversed before their targets get their numbers.
const BATCH: usize = 1 << 6;
/// As many references as this mean an immortal object (PEP 683), of which nobody counts them.
const IMMORTAL: i64 = 1 << 29;
/// Bytes shorter than this, of which there are many, lend nobody memory that counts.
const SMALL: ffi::Py_ssize_t = 64;
/// How many references an object has at a guess, to ask for memory once.
const REFERENCES_EACH: usize = 3;
/// One in so many objects is not among those that the collector tracks, at a guess.
const OTHERS: usize = 16;

/// The objects of the heap, held, and the references between them.
///
/// Objects have the numbers 0 to `len() - 1`: those that the collector tracks, in its order, then what
/// they refer to: tuples and dicts that it does not track, frozen objects (`gc.freeze`), buffers.
/// Strings, numbers and other things that hold nothing are left out.
///
/// Every object has a reference from here until this is dropped, so that none can die meanwhile.
pub struct LiveObjects<'py> {
    py: Python<'py>,
    tracked: Tracked<'py>,
    others: Vec<Bound<'py, PyAny>>,
    marks: Marks,
    pub graph: Csr,
    /// For each object how many references to it come from no object here, and not from us:
    /// from C or C++; [`LiveObjects::UNCOUNTED`] for an immortal object.
    pub unaccounted: Growing<u32>,
    is_class: Vec<bool>,
    /// The objects that may hold a buffer, with what the classifier says of their type.
    pub holders: Vec<(u32, Verdict)>,
}

/// What is told of objects by those who know.
pub struct Ask<C, O, U> {
    /// What objects of a type may hold.
    pub classify: C,
    /// True for an object that has no references in the graph: what it refers to is held from outside.
    pub is_own: O,
    /// Calls a function with the objects, alive, that one which may hold a buffer refers to beside those that its type
    /// tells of.
    pub untraversed: U,
}

/// Why there is no picture of the heap.
pub enum NotTaken {
    /// Somebody pressed Ctrl-C; its handler has not run yet.
    Interrupted,
    /// More than four thousand million objects.
    TooMany,
}

impl<'py> LiveObjects<'py> {
    /// What stands for the number of references to an immortal object.
    pub const UNCOUNTED: u32 = u32::MAX;

    /// Reads the objects of `tracked`, which `gc.get_objects()` has just made, and what they refer to;
    /// those at the addresses `held` too, which are alive: frames hold them that the collector does not
    /// track, and perhaps nothing else does.
    ///
    /// Runs no code of the program, signal handlers included: see [`interrupted`].
    ///
    /// # Errors
    /// If it was interrupted, or there are too many objects.
    pub fn take(
        tracked: Bound<'py, PyList>,
        held: impl Iterator<Item = usize>,
        table: &mut TypeTable,
        builtins: &Builtins,
        layouts: &Layouts,
        ask: &Ask<
            impl Fn(*mut ffi::PyTypeObject) -> Verdict,
            impl Fn(*mut ffi::PyObject, ObjectKind) -> bool,
            impl Fn(*mut ffi::PyObject, Verdict, &mut dyn FnMut(*mut ffi::PyObject)),
        >,
    ) -> Result<Self, NotTaken> {
        let heap = Self::numbered(tracked, layouts.lists)?;
        table.begin_pass();
        let mut reader = Reader {
            heap,
            immortal: Vec::new(),
            table,
            builtins,
            layouts,
            classify: &ask.classify,
        };
        reader.number_held(held);
        reader.read(&ask.is_own, &ask.untraversed)?;
        reader.finish()
    }

    /// The objects of the list with their numbers, and without references.
    fn numbered(list: Bound<'py, PyList>, layout: Option<ListLayout>) -> Result<Self, NotTaken> {
        let count = list.len();
        if u32::try_from(count).is_err() {
            return Err(NotTaken::TooMany);
        }
        let room = count + count / OTHERS;
        let mut heap = Self {
            py: list.py(),
            tracked: Tracked { list, layout },
            others: Vec::new(),
            marks: Marks::of_all(),
            graph: Csr::with_capacity(room, room * REFERENCES_EACH),
            unaccounted: Growing::with_capacity(room),
            is_class: Vec::with_capacity(room),
            holders: Vec::new(),
        };
        heap.unaccounted.resize(count);
        for number in 0..count {
            if let Some(object) = heap.tracked.get(number) {
                heap.marks.set(object as usize, number as u32);
            }
        }
        Ok(heap)
    }

    pub fn py(&self) -> Python<'py> {
        self.py
    }

    pub fn len(&self) -> usize {
        self.unaccounted.len()
    }

    /// The number of an object, if it is one of these.
    pub fn number_of(&self, object: &Bound<'_, PyAny>) -> Option<u32> {
        self.marks.get(object.as_ptr() as usize)
    }

    /// Takes the references of some objects for nobody's.
    pub fn release(&mut self, numbers: &FxHashSet<u32>) {
        for &target in numbers.iter().flat_map(|&it| self.graph.targets(it)) {
            let left = &mut self.unaccounted[target as usize];
            if *left != Self::UNCOUNTED {
                *left += 1;
            }
        }
        self.graph.clear(numbers);
    }

    /// As [`LiveObjects::number_of`], by address.
    pub fn number_at(&self, address: usize) -> Option<u32> {
        self.marks.get(address)
    }

    pub fn object(&self, number: u32) -> Option<Bound<'py, PyAny>> {
        let object = self.nth(number as usize)?;
        // SAFETY: attached, as `py` shows; the object is held.
        Some(unsafe { Bound::from_borrowed_ptr(self.py, object) })
    }

    pub fn address(&self, number: u32) -> Option<usize> {
        self.nth(number as usize).map(|object| object as usize)
    }

    /// The object with a number: of the list, or behind those.
    #[inline]
    fn nth(&self, number: usize) -> Option<*mut ffi::PyObject> {
        let behind = || self.others.get(number - self.tracked.len());
        let tracked = self.tracked.get(number);
        tracked.or_else(|| behind().map(Bound::as_ptr))
    }

    /// Puts the object with a number and those after it into `batch`, as many as a batch has.
    fn put_from(&self, number: usize, batch: &mut Vec<*mut ffi::PyObject>) {
        match self.tracked.items() {
            Some(items) if number < items.len() => {
                batch.extend_from_slice(&items[number..items.len().min(number + BATCH)]);
            }
            _ => batch.extend((number..number + BATCH).map_while(|number| self.nth(number))),
        }
    }

    /// True for the reference of an object to its class.
    #[inline]
    pub fn is_type_reference(&self, from: u32, to: u32) -> bool {
        if self.is_class.get(to as usize) != Some(&true) {
            return false;
        }
        match (self.nth(from as usize), self.nth(to as usize)) {
            // SAFETY: attached; the object is held.
            (Some(from), Some(to)) => unsafe { ffi::Py_TYPE(from).cast() == to },
            _ => false,
        }
    }

    /// Forgets which object has which number, which takes a good part of the memory: from here on
    /// [`LiveObjects::number_of`] knows none.
    pub fn forget_numbers(&mut self) {
        self.marks = Marks::default();
    }

    /// The bytes of memory that all this takes beside the graph.
    pub fn bytes(&self) -> usize {
        size_of::<usize>() * (self.tracked.len() * 9 / 8 + self.others.capacity())
            + size_of::<u32>() * self.unaccounted.capacity()
            + self.is_class.capacity()
            + self.marks.bytes()
    }
}

/// The heap while it is read, and what that needs.
struct Reader<'a, 'py, C> {
    heap: LiveObjects<'py>,
    /// Objects of which nobody counts the references.
    immortal: Vec<u32>,
    table: &'a mut TypeTable,
    builtins: &'a Builtins,
    layouts: &'a Layouts,
    classify: &'a C,
}

impl<'py, C: Fn(*mut ffi::PyTypeObject) -> Verdict> Reader<'_, 'py, C> {
    /// Gives a number to each of the objects at the addresses that has none and can hold something.
    fn number_held(&mut self, held: impl Iterator<Item = usize>) {
        for address in held {
            if self.heap.marks.get(address).is_none() {
                // SAFETY: attached; the object is alive, as the caller of `take` says.
                unsafe { self.number(address) };
            }
        }
    }

    /// Gives an object that has no number the next one, and holds it, if it can hold something.
    ///
    /// # Safety
    /// Attached, and an object that is alive has this address.
    unsafe fn number(&mut self, address: usize) -> Option<u32> {
        let object = address as *mut ffi::PyObject;
        // SAFETY: by this function's contract.
        unsafe {
            if !matters(self.table, self.builtins, self.classify, object) {
                return None;
            }
            let heap = &mut self.heap;
            let number = heap.unaccounted.len() as u32;
            heap.marks.set(address, number);
            heap.unaccounted.push(0);
            heap.others.push(Bound::from_borrowed_ptr(heap.py, object));
            Some(number)
        }
    }

    /// Reads the objects in batches until all that they refer to have been read too.
    fn read(
        &mut self,
        is_own: &impl Fn(*mut ffi::PyObject, ObjectKind) -> bool,
        untraversed: &impl Fn(*mut ffi::PyObject, Verdict, &mut dyn FnMut(*mut ffi::PyObject)),
    ) -> Result<(), NotTaken> {
        let mut batch = Batch::default();
        let mut coming: Vec<*mut ffi::PyObject> = Vec::new();
        let mut next = 0;
        while next < self.heap.len() {
            if next % CHUNK == 0 && interrupted(self.heap.py) {
                return Err(NotTaken::Interrupted);
            }
            batch.clear();
            batch.objects.append(&mut coming);
            if batch.objects.is_empty() {
                self.heap.put_from(next, &mut batch.objects);
            }
            let first = next;
            next += batch.objects.len();
            self.heap.put_from(next, &mut coming);
            for &object in &coming {
                prefetch_at(object.cast());
            }
            for (number, &object) in (first..next).zip(&batch.objects) {
                let verdict = self.visit(number, object, is_own, &mut batch.targets);
                if verdict != 0 {
                    untraversed(object, verdict, &mut |target| {
                        batch.targets.push(target as usize)
                    });
                }
                batch.ends.push(batch.targets.len());
            }
            self.account(&mut batch);
            self.heap.graph.push_nodes(&batch.numbers, &batch.ends);
        }
        Ok(())
    }

    /// Notes what an object is and how many references to it there are, and adds to `targets` what it
    /// refers to. What the classifier says of its type.
    #[inline]
    fn visit(
        &mut self,
        number: usize,
        object: *mut ffi::PyObject,
        is_own: &impl Fn(*mut ffi::PyObject, ObjectKind) -> bool,
        targets: &mut Growing<usize>,
    ) -> Verdict {
        // SAFETY: attached; the object is held by the list or by `others`.
        let ty = unsafe { ffi::Py_TYPE(object) };
        // SAFETY: as above.
        let facts = unsafe { self.table.facts(self.builtins, self.classify, ty) };
        let verdict = facts.verdict;
        let heap = &mut self.heap;
        heap.is_class.push(facts.kind == ObjectKind::Class);
        if facts.verdict != 0 {
            heap.holders.push((number as u32, facts.verdict));
        }
        // SAFETY: as above. One reference is ours.
        match unsafe { reference_count(object) } - 1 {
            IMMORTAL.. => self.immortal.push(number as u32),
            // Those that were met before have been taken off: the number may have gone below zero and
            // round.
            references => {
                let left = &mut heap.unaccounted[number];
                *left = left.wrapping_add(references as u32);
            }
        }
        let Some(traverse) = facts.traverse else {
            return verdict;
        };
        let kept = targets.len();
        // SAFETY: attached; the object is alive and `traverse` its type's own.
        unsafe {
            let layouts = self.layouts;
            if !layouts.visit(object, facts.form, |it| targets.push(it as usize)) {
                for_each_counted(self.builtins, object, facts.kind, traverse, &mut |target| {
                    targets.push(target as usize);
                });
            }
        }
        if is_own(object, facts.kind) {
            targets.truncate(kept);
        }
        verdict
    }

    /// Replaces the targets of a batch by their numbers, without those that hold nothing, and takes each
    /// reference off what is unaccounted for.
    #[inline]
    fn account(&mut self, batch: &mut Batch) {
        batch.number(&self.heap.marks, &self.heap.unaccounted);
        batch.keep(|address, number| {
            // What was met for the first time in this batch has a number by now.
            let number = match number {
                Marks::NONE => self.heap.marks.get(address),
                number => Some(number),
            };
            // SAFETY: attached; the object that was traversed refers to the target.
            let number = number.or_else(|| unsafe { self.number(address) })?;
            let left = &mut self.heap.unaccounted[number as usize];
            *left = left.wrapping_sub(1);
            Some(number)
        });
    }

    fn finish(self) -> Result<LiveObjects<'py>, NotTaken> {
        let mut heap = self.heap;
        for left in &mut *heap.unaccounted {
            // Some objects visit what others hold for them: more than all references.
            *left = u32::try_from(*left as i32).unwrap_or(0);
        }
        for number in self.immortal {
            heap.unaccounted[number as usize] = LiveObjects::UNCOUNTED;
        }
        match u32::try_from(heap.len()) {
            Ok(_) => Ok(heap),
            Err(_) => Err(NotTaken::TooMany),
        }
    }
}

/// Some objects and their targets.
///
/// Their numbers are read in one go: each is somewhere else in memory, and a processor waits for many
/// at once if nothing else is done in between.
#[derive(Default)]
struct Batch {
    objects: Vec<*mut ffi::PyObject>,
    targets: Growing<usize>,
    /// Where the targets of each object end.
    ends: Vec<usize>,
    numbers: Growing<u32>,
}

impl Batch {
    fn clear(&mut self) {
        self.objects.clear();
        self.targets.clear();
        self.ends.clear();
    }

    fn number(&mut self, marks: &Marks, counts: &[u32]) {
        for &address in &*self.targets {
            marks.prefetch(address);
        }
        self.numbers.resize(self.targets.len());
        for (number, &address) in self.numbers.iter_mut().zip(&*self.targets) {
            *number = marks.raw(address);
            prefetch(counts, *number as usize);
        }
    }

    /// Leaves of the numbers, and of the references that they stand for, those that `number` says,
    /// which is given each target's address and the number read for it.
    #[inline(always)]
    fn keep(&mut self, mut number: impl FnMut(usize, u32) -> Option<u32>) {
        let (mut from, mut kept) = (0, 0);
        for end in &mut self.ends {
            for place in from..*end {
                if let Some(number) = number(self.targets[place], self.numbers[place]) {
                    self.numbers[kept] = number;
                    kept += 1;
                }
            }
            from = *end;
            *end = kept;
        }
        self.numbers.truncate(kept);
    }
}

/// The list of the objects that the collector tracks; nobody else has it, so that it stays as it is.
struct Tracked<'py> {
    list: Bound<'py, PyList>,
    layout: Option<ListLayout>,
}

impl Tracked<'_> {
    fn len(&self) -> usize {
        self.list.len()
    }

    /// All of them, if it is known how they lie in the list's memory.
    #[inline]
    fn items(&self) -> Option<&[*mut ffi::PyObject]> {
        // SAFETY: attached, as the list shows, and nothing changes it.
        let items = |layout: &ListLayout| unsafe { layout.items(self.list.as_ptr()) };
        self.layout.as_ref().map(items)
    }

    #[inline]
    fn get(&self, number: usize) -> Option<*mut ffi::PyObject> {
        if let Some(items) = self.items() {
            return items.get(number).copied();
        }
        // SAFETY: attached; within the list.
        (number < self.len())
            .then(|| unsafe { ffi::PyList_GetItem(self.list.as_ptr(), number as ffi::Py_ssize_t) })
    }
}

/// True for an object that the collector did not list and that can hold something.
///
/// # Safety
/// Attached, and the object is alive.
unsafe fn matters(
    table: &mut TypeTable,
    builtins: &Builtins,
    classify: &impl Fn(*mut ffi::PyTypeObject) -> Verdict,
    object: *mut ffi::PyObject,
) -> bool {
    // SAFETY: by this function's contract; the types are CPython's own.
    unsafe {
        let ty = ffi::Py_TYPE(object);
        if ty == &raw mut ffi::PyUnicode_Type || ty == &raw mut ffi::PyLong_Type {
            return false;
        }
        if ty == &raw mut ffi::PyBytes_Type && ffi::PyBytes_Size(object) < SMALL {
            return false;
        }
        let facts = table.facts(builtins, classify, ty);
        if facts.verdict != 0 {
            return true;
        }
        let Some(traverse) = facts.traverse else {
            return false;
        };
        // A class that is part of the interpreter or a library is not the collector's: `type_traverse`
        // in Objects/typeobject.c ends the process if it is asked.
        if facts.kind == ObjectKind::Class && !crate::cpython::types::is_heap_type(object.cast()) {
            return false;
        }
        if ffi::PyObject_GC_IsTracked(object) != 0 {
            return true;
        }
        // The collector stops to track a tuple or dict that holds nothing that it tracks, and never tracks the tuples
        // with names that C makes (`PyStructSequence_New`), which may hold anything. Other objects that it does not
        // track are not all made yet.
        if !facts.is_untrackable() {
            return false;
        }
        let mut holds = false;
        for_each_counted(builtins, object, facts.kind, traverse, &mut |target| {
            let ty = ffi::Py_TYPE(target);
            if !holds && ty != &raw mut ffi::PyUnicode_Type {
                let facts = table.facts(builtins, classify, ty);
                holds = facts.verdict != 0
                    || facts.is_untrackable()
                    || facts.traverse.is_some() && ffi::PyObject_GC_IsTracked(target) != 0;
            }
        });
        holds
    }
}

/// True if somebody pressed Ctrl-C since the last call, on the thread that is told of it.
///
/// Only looks: the handler, which is the program's code and could change the heap in the middle of the
/// pass, runs when the caller asks for signals (`PyErr_CheckSignals`), for which the interrupt is put
/// back.
fn interrupted(_py: Python<'_>) -> bool {
    // SAFETY: attached.
    unsafe {
        let pressed = ffi::PyOS_InterruptOccurred() != 0;
        if pressed {
            ffi::PyErr_SetInterrupt();
        }
        pressed
    }
}
