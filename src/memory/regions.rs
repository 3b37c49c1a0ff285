//! Pieces of memory, told apart by address: what overlaps is one piece, for no two allocations do.

use std::collections::BTreeMap;

/// Pieces of memory by their number, each with a device and the addresses that it spans.
#[derive(Default)]
pub struct Regions {
    by_start: BTreeMap<(String, u64), usize>,
    all: Vec<Region>,
}

/// A piece of memory.
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// An allocation of its own: no more than what is said of it.
    is_whole: bool,
}

impl Regions {
    pub fn get(&self, number: usize) -> Option<&Region> {
        self.all.get(number)
    }

    /// The number of the piece that some memory is part of; a new one if it is part of none.
    ///
    /// Whole allocations come before views, which may claim any extent, and in the order of their addresses.
    pub fn add(&mut self, device: &str, start: u64, bytes: u64, is_whole: bool) -> usize {
        let end = start.saturating_add(bytes);
        if let Some(number) = self.overlapping(device, start, end) {
            let region = &mut self.all[number];
            if is_whole || !region.is_whole {
                region.end = region.end.max(end);
            }
            return number;
        }
        let number = self.all.len();
        self.by_start.insert((device.to_owned(), start), number);
        self.all.push(Region {
            start,
            end,
            is_whole,
        });
        number
    }

    fn overlapping(&self, device: &str, start: u64, end: u64) -> Option<usize> {
        let last = (device.to_owned(), end.saturating_sub(1).max(start));
        let (key, &number) = self.by_start.range(..=last).next_back()?;
        let is_there = key.0 == device && self.all[number].end > start;
        is_there.then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_one_piece() {
        let mut regions = Regions::default();
        let first = regions.add("cpu", 100, 50, true);
        assert_eq!(regions.add("cpu", 100, 20, true), first);
        assert_eq!(regions.add("cpu", 140, 20, true), first);
        let second = regions.add("cpu", 160, 10, true);
        assert_ne!(second, first);
        assert_ne!(regions.add("cuda:0", 100, 50, true), first);
        let region = regions.get(first).expect("a region");
        assert_eq!((region.start, region.end), (100, 160));
    }

    #[test]
    fn a_view_makes_no_allocation_larger() {
        let mut regions = Regions::default();
        let whole = regions.add("cpu", 100, 50, true);
        assert_eq!(regions.add("cpu", 120, 5000, false), whole);
        assert_eq!(regions.add("cpu", 90, 20, false), whole);
        assert_eq!(regions.get(whole).map(|it| it.end), Some(150));
    }

    #[test]
    fn views_of_unknown_memory_are_as_large_as_all_of_them() {
        let mut regions = Regions::default();
        let part = regions.add("cpu", 100, 50, false);
        assert_eq!(regions.add("cpu", 120, 100, false), part);
        assert_eq!(regions.get(part).map(|it| it.end), Some(220));
    }
}
