//! Which objects are new: made since some moment.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::ControlFlow;

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cpython::{GcModule, GcState, without_collections};

/// The number of an epoch, the time from one moment asked for ([`Epochs::begin`]) to the next. Later ones have
/// higher numbers.
pub type Epoch = u64;

/// What was made before the first epoch.
const BEFORE: Epoch = 0;

/// Young garbage is collected at most so many times as an epoch begins: finalizers may leave new garbage.
const ROUNDS: usize = 3;

/// So many objects' epochs are remembered over full collections at most.
const REMEMBERED: usize = 4_000_000;

/// So many boundaries from before the last full collection are kept at most.
const PASSED: usize = 1024;

/// Epochs, told apart by the order of the objects in the lists of the collector.
///
/// A collection moves what is alive to the end of an older generation's list (`gc_list_merge` in
/// Modules/gcmodule.c, since 3.13 in Python/gc.c). So from the oldest generation to the youngest, objects lie in
/// about the order in which they were made. As an epoch begins, a young collection moves all young objects to the
/// oldest generation, and an object of ours behind them: the boundary. What is made later lies behind
/// it. So the cost of finding it is proportional to what was made, not to the heap.
///
/// A full collection changes that order: what it reaches late it puts to the end (`move_unreachable`). So the epochs of
/// objects are written down before (`Epochs::before_full`), and there is a new boundary afterwards
/// (`Epochs::after_full`); objects stay where they are in memory, so an address that lies before that
/// boundary is that of the same object. An earlier boundary stays where it is, since something outside of the heap
/// refers to it: what lay behind it still does. If a full collection was not told, or `gc.freeze()` and `gc.unfreeze()` changed
/// the order, nothing is said of earlier epochs.
///
/// An object that is tracked anew, such as a dict that gets its first list, counts as made then: before, it was in no
/// reference cycle.
#[derive(Default)]
pub struct Epochs {
    /// Since the last full collection, the first one first.
    boundaries: RefCell<Vec<Boundary>>,
    /// The last ones from before that collection, the first one first: no object of their epochs lies before them.
    passed: RefCell<VecDeque<Boundary>>,
    /// The epochs of objects before the first boundary, by address, without those made before all epochs. Some
    /// of the objects may be gone.
    earlier: RefCell<FxHashMap<usize, Epoch>>,
    /// The last of those epochs.
    last_earlier: Cell<Epoch>,
    /// The first epoch that is known.
    first: Cell<Epoch>,
    last: Cell<Epoch>,
}

struct Boundary {
    epoch: Epoch,
    /// An empty list. Nothing else refers to it, so a collection leaves it where it is in relation to the objects
    /// behind it.
    object: Py<PyAny>,
    order: Order,
}

/// As long as this is the same, objects have their order.
#[derive(Clone, Copy, PartialEq)]
struct Order {
    full_collections: u64,
    /// The first object of the oldest generation, by its address. `gc.freeze()` takes it away, and what
    /// `gc.unfreeze()` brings back comes behind what is there by then.
    first: usize,
}

/// Where a look for new objects has to look.
pub(crate) struct New {
    /// Those of the younger generations first.
    pub objects: Vec<*mut ffi::PyObject>,
    /// How many are of the younger generations.
    pub young: usize,
}

impl Epochs {
    /// Begins an epoch: collects young garbage, and moves what is young to the oldest generation. Its number, and
    /// whether nothing is known of earlier ones; `None` where that cannot be done.
    ///
    /// # Errors
    /// If memory runs out, or the interpreter is shutting down.
    pub fn begin(&self, py: Python<'_>, gc: &GcModule) -> PyResult<Option<(Epoch, bool)>> {
        let Some(state) = &gc.state else {
            return Ok(None);
        };
        for _ in 0..ROUNDS {
            if gc.collect(py, 1)?.unwrap_or(0) == 0 {
                break;
            }
        }
        let object = empty_list(py)?;
        gc.collect(py, 1)?;
        let young = state.objects(py, 1);
        if young.is_none_or(|young| young.contains(&object.as_ptr())) {
            return Ok(None);
        }
        let order = order(py, gc, state)?;
        let epoch = self.last.get() + 1;
        self.last.set(epoch);
        let is_first = !self.is_ordered(order);
        if is_first {
            self.clear();
            self.first.set(epoch);
        }
        self.boundaries.borrow_mut().push(Boundary {
            epoch,
            object,
            order,
        });
        Ok(Some((epoch, is_first)))
    }

    /// Forgets all epochs.
    pub fn forget(&self, _py: Python<'_>) {
        self.clear();
    }

    fn clear(&self) {
        self.boundaries.borrow_mut().clear();
        self.passed.borrow_mut().clear();
        self.earlier.take();
        self.last_earlier.set(BEFORE);
    }

    /// The epoch that has not ended; `None` if there are none.
    pub fn current(&self) -> Option<Epoch> {
        Some(self.boundaries.borrow().last()?.epoch)
    }

    /// A full collection is about to begin. Takes time in proportion to what was made since the last one.
    pub(crate) fn before_full(&self, py: Python<'_>, gc: &GcModule) {
        let Some(state) = gc.state.as_ref().filter(|_| self.current().is_some()) else {
            return;
        };
        let order = order(py, gc, state).ok();
        let mut earlier = self.earlier.borrow_mut();
        let is_known = order.is_some_and(|order| self.is_ordered(order))
            && self.for_each_since(py, state, BEFORE, |object, _, epoch| {
                earlier.insert(object as usize, epoch);
                keep_on(earlier.len() < REMEMBERED)
            });
        drop(earlier);
        if is_known {
            self.last_earlier.set(self.last.get());
        } else {
            self.clear();
        }
    }

    /// A full collection that was told has ended, and nothing but callbacks has run since.
    pub(crate) fn after_full(&self, py: Python<'_>, gc: &GcModule) {
        let (Some(state), Some(epoch)) = (&gc.state, self.current()) else {
            return;
        };
        let mut passed = self.passed.borrow_mut();
        passed.extend(self.boundaries.borrow_mut().drain(..));
        let too_many = passed.len().saturating_sub(PASSED);
        passed.drain(..too_many);
        drop(passed);
        let (Ok(object), Ok(order), Some(young)) =
            (empty_list(py), order(py, gc, state), state.objects(py, 1))
        else {
            return self.clear();
        };
        // What callbacks have made lies before the boundary.
        let young = young.into_iter().map(|object| (object as usize, epoch));
        self.earlier.borrow_mut().extend(young);
        self.boundaries.borrow_mut().push(Boundary {
            epoch,
            object,
            order,
        });
    }

    /// The epoch of an object that is in the full collection under way, which was told.
    pub(crate) fn in_full_collection(&self, address: usize) -> Option<Epoch> {
        self.current()?;
        Some(self.earlier_epoch(address))
    }

    /// The objects made since an epoch began, and a few that were there; `None` where only a look at the whole heap
    /// tells.
    pub(crate) fn new_since(&self, py: Python<'_>, gc: &GcModule, since: Epoch) -> Option<New> {
        let state = gc.state.as_ref()?;
        let order = order(py, gc, state).ok()?;
        if !self.is_ordered(order) || since < self.first.get() {
            return None;
        }
        let mut new = New {
            objects: Vec::new(),
            young: 0,
        };
        let mut has_room = true;
        let mut add = |object, generation| {
            has_room = new.objects.try_reserve(1).is_ok();
            if has_room {
                new.objects.push(object);
                new.young += usize::from(generation < 2);
            }
            keep_on(has_room)
        };
        if self.last_earlier.get() < since {
            self.for_each_since(py, state, since, |object, generation, _| {
                add(object, generation)
            });
            return has_room.then_some(new);
        }
        // Some lie before the first boundary, anywhere. They are few among those that have an epoch.
        let earlier = self.earlier.borrow();
        let recent = earlier.iter().filter(|&(_, &epoch)| epoch >= since);
        let recent: FxHashSet<usize> = recent.map(|(&address, _)| address).collect();
        let base = self.boundaries.borrow().first()?.object.as_ptr();
        let passed = self.passed.borrow();
        let end = passed.iter().find(|boundary| boundary.epoch == since);
        let end = end.map(|boundary| boundary.object.as_ptr());
        let mut is_behind = true;
        state.walk_back(py, |object, generation| {
            if Some(object) == end {
                return ControlFlow::Break(());
            }
            if object == base {
                is_behind = false;
            } else if is_behind || recent.contains(&(object as usize)) {
                return add(object, generation);
            }
            ControlFlow::Continue(())
        });
        (has_room && !is_behind).then_some(new)
    }

    /// The epochs of objects, by address; none if nothing is known. Takes no time without objects.
    pub(crate) fn of(
        &self,
        py: Python<'_>,
        gc: &GcModule,
        mut addresses: FxHashSet<usize>,
    ) -> FxHashMap<usize, Epoch> {
        let mut epochs = FxHashMap::default();
        let Some(state) = gc.state.as_ref().filter(|_| !addresses.is_empty()) else {
            return epochs;
        };
        if !order(py, gc, state).is_ok_and(|order| self.is_ordered(order)) {
            return epochs;
        }
        let is_known = self.for_each_since(py, state, BEFORE, |object, _, epoch| {
            if addresses.remove(&(object as usize)) {
                epochs.insert(object as usize, epoch);
            }
            ControlFlow::Continue(())
        });
        if is_known {
            let rest = addresses.into_iter();
            epochs.extend(rest.map(|address| (address, self.earlier_epoch(address))));
        }
        epochs
    }

    /// The epoch of an object that lies before the first boundary.
    fn earlier_epoch(&self, address: usize) -> Epoch {
        self.earlier
            .borrow()
            .get(&address)
            .copied()
            .unwrap_or(BEFORE)
    }

    fn is_ordered(&self, now: Order) -> bool {
        let boundaries = self.boundaries.borrow();
        boundaries.first().is_some_and(|first| first.order == now)
    }

    /// Calls `visit` with each object made since an epoch began, its generation and its epoch, the last object first,
    /// until that says to stop; not with those before the first boundary. False if it did, or the boundary is not there.
    fn for_each_since(
        &self,
        py: Python<'_>,
        state: &GcState,
        since: Epoch,
        mut visit: impl FnMut(*mut ffi::PyObject, usize, Epoch) -> ControlFlow<()>,
    ) -> bool {
        let boundaries = self.boundaries.borrow();
        let since = boundaries.iter().rev().take_while(|it| it.epoch >= since);
        let mut left = since.peekable();
        state.walk_back(py, |object, generation| {
            match left.next_if(|boundary| boundary.object.as_ptr() == object) {
                Some(_) => keep_on(left.peek().is_some()),
                None => match left.peek() {
                    Some(boundary) => visit(object, generation, boundary.epoch),
                    None => ControlFlow::Break(()),
                },
            }
        });
        left.peek().is_none()
    }
}

fn keep_on(on: bool) -> ControlFlow<()> {
    match on {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

fn empty_list(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // SAFETY: attached; a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyList_New(0)) }.map(Bound::unbind)
}

/// The order as it is now.
fn order(py: Python<'_>, gc: &GcModule, state: &GcState) -> PyResult<Order> {
    // Nothing of the program runs in there.
    without_collections(py, || {
        Ok(Order {
            full_collections: gc.full_collections(py)?,
            first: state.first_of_oldest(py),
        })
    })
}
