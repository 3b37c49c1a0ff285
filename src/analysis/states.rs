//! Which tensors with graphs a program carries from one step to the next.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

/// Numbers of functions by the shape of their tensors, the youngest first.
pub(super) type ByShape<'a> = FxHashMap<&'a [u64], BTreeSet<Reverse<u64>>>;

pub(super) fn by_shape(roots: &FxHashMap<u64, Vec<u64>>) -> ByShape<'_> {
    let mut found = ByShape::default();
    for (number, shape) in roots {
        let numbers = found.entry(shape.as_slice()).or_default();
        numbers.insert(Reverse(*number));
    }
    found
}

/// Which tensors were carried on to a later step, by their shape and their place among those of this shape.
///
/// Tensors that are older still may be there: autograd has saved the states of earlier steps.
pub(super) struct States(FxHashMap<Vec<u64>, FxHashSet<usize>>);

impl States {
    /// Those whose functions are among `crossed`.
    pub fn of(roots: &FxHashMap<u64, Vec<u64>>, crossed: &FxHashSet<u64>) -> Self {
        let states = by_shape(roots).into_iter().map(|(shape, numbers)| {
            let places = numbers.iter().enumerate();
            let places = places.filter(|(_, number)| crossed.contains(&number.0));
            (shape.to_vec(), places.map(|(place, _)| place).collect())
        });
        Self(states.collect())
    }

    /// True for a tensor of such a shape at such a place.
    pub fn may_be(&self, now: &ByShape<'_>, number: u64, shape: &[u64]) -> bool {
        let (Some(places), Some(numbers)) = (self.0.get(shape), now.get(shape)) else {
            return false;
        };
        let place = numbers.iter().position(|it| it.0 == number);
        place.is_some_and(|it| places.contains(&it))
    }
}
