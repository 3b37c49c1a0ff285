//! Which objects are new: made since some moment.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cpython::{GcModule, without_collections};

/// The number of an epoch, the time from one moment asked for ([`Epochs::begin`]) to the next. Later ones have
/// higher numbers.
pub type Epoch = u64;

/// What was made before the first epoch.
pub const BEFORE: Epoch = 0;

/// Young garbage is collected at most so many times as an epoch begins: finalizers may leave new garbage.
const ROUNDS: usize = 3;

/// Epochs, told apart by the order of the objects in the lists of the collector.
///
/// As an epoch begins, a young collection moves all young objects to the oldest generation, at the end of its list, and
/// an object of ours among the last of them: the boundary. What is made later is young, or lies behind the
/// boundary. So the cost of finding it is proportional to what was made, not to the heap.
///
/// A full collection, or `gc.unfreeze()`, changes that order. Then what was made later still lies behind the boundary,
/// but so may older objects, and nothing is said of their epochs. An object that is tracked anew, such as a
/// dict that gets its first list, counts as made then: before, it was in no reference cycle.
#[derive(Default)]
pub struct Epochs {
    /// Since the order was last changed, the first one first.
    boundaries: RefCell<Vec<Boundary>>,
    last: Cell<Epoch>,
}

struct Boundary {
    epoch: Epoch,
    /// An empty list. Nothing else refers to it, so a collection leaves it where it is in relation to the objects
    /// behind it (`move_unreachable` in Modules/gcmodule.c, since 3.13 in Python/gc.c).
    object: Py<PyList>,
    order: Order,
}

/// As long as this is the same, the oldest generation has its order.
#[derive(Clone, Copy, PartialEq)]
struct Order {
    full_collections: u64,
    /// The first object, by its address. `gc.freeze()` takes it away, and what `gc.unfreeze()` brings back
    /// comes behind what is there by then.
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
    /// whether it is the first since the order of objects was last changed, so that of earlier ones nothing is
    /// known; `None` where that cannot be done.
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
        let object = PyList::empty(py);
        gc.collect(py, 1)?;
        let young = state.objects(py, 1);
        if young.is_none_or(|young| young.contains(&object.as_ptr())) {
            return Ok(None);
        }
        let Some(order) = order(py, gc)? else {
            return Ok(None);
        };
        let epoch = self.last.get() + 1;
        self.last.set(epoch);
        let mut boundaries = self.boundaries.borrow_mut();
        if boundaries.first().is_some_and(|first| first.order != order) {
            boundaries.clear();
        }
        boundaries.push(Boundary {
            epoch,
            object: object.unbind(),
            order,
        });
        Ok(Some((epoch, boundaries.len() == 1)))
    }

    /// Forgets all epochs.
    pub fn forget(&self, _py: Python<'_>) {
        self.boundaries.borrow_mut().clear();
    }

    /// The epoch that has not ended; `None` if there are none.
    pub fn current(&self) -> Option<Epoch> {
        Some(self.boundaries.borrow().last()?.epoch)
    }

    /// The objects made since an epoch began, and a few that were there; `None` where only a walk of the whole heap
    /// would tell.
    ///
    /// # Errors
    /// If memory runs out.
    pub(crate) fn new_since(
        &self,
        py: Python<'_>,
        gc: &GcModule,
        epoch: Epoch,
    ) -> PyResult<Option<New>> {
        let now = order(py, gc)?;
        let boundaries = self.boundaries.borrow();
        let boundary = boundaries.iter().find(|boundary| boundary.epoch == epoch);
        let (Some(state), Some(boundary)) = (&gc.state, boundary) else {
            return Ok(None);
        };
        let Some(mut objects) = state.objects(py, 1).filter(|_| now == Some(boundary.order)) else {
            return Ok(None);
        };
        let young = objects.len();
        let mut is_met = false;
        state.walk_oldest_back(py, |object| {
            is_met = object == boundary.object.as_ptr();
            if is_met || objects.try_reserve(1).is_err() {
                return ControlFlow::Break(());
            }
            objects.push(object);
            ControlFlow::Continue(())
        });
        Ok(is_met.then_some(New { objects, young }))
    }

    /// The epochs of objects, by address; without those of which nothing is known. Takes no time if there are none.
    pub(crate) fn of(
        &self,
        py: Python<'_>,
        gc: &GcModule,
        mut addresses: FxHashSet<usize>,
    ) -> FxHashMap<usize, Epoch> {
        let mut epochs = FxHashMap::default();
        let boundaries = self.boundaries.borrow();
        let (Some(state), Some(last), false) = (&gc.state, boundaries.last(), addresses.is_empty())
        else {
            return epochs;
        };
        let now = order(py, gc).ok().flatten();
        for object in state.objects(py, 1).unwrap_or_default() {
            if addresses.remove(&(object as usize)) {
                epochs.insert(object as usize, last.epoch);
            }
        }
        if now != Some(last.order) || addresses.is_empty() {
            return epochs;
        }
        let mut earlier = boundaries.iter().rev().peekable();
        state.walk_oldest_back(py, |object| {
            let Some(boundary) = earlier.peek() else {
                return ControlFlow::Break(());
            };
            if object == boundary.object.as_ptr() {
                earlier.next();
            } else if addresses.remove(&(object as usize)) {
                epochs.insert(object as usize, boundary.epoch);
            }
            ControlFlow::Continue(())
        });
        if earlier.peek().is_none() {
            epochs.extend(addresses.into_iter().map(|address| (address, BEFORE)));
        }
        epochs
    }
}

/// The order as it is now.
fn order(py: Python<'_>, gc: &GcModule) -> PyResult<Option<Order>> {
    let Some(state) = &gc.state else {
        return Ok(None);
    };
    // Nothing of the program runs in there.
    without_collections(py, || {
        Ok(Some(Order {
            full_collections: gc.full_collections(py)?,
            first: state.first_of_oldest(py),
        }))
    })
}
