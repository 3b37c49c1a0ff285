//! When to look before a collection.

use std::cell::Cell;

/// The look from among the garbage sees what is left after finalizers, and not a cycle that a finalizer
/// broke. Looking *before* the collection finds it, at about the price of the collection itself, so
/// that is done now and then, and at once when something hints that it would find something.
///
/// Each generation has its own rhythm: the gap between looks grows as long as they find nothing,
/// up to [`LONGEST_GAP`] collections, and closes when one does.
pub struct Arming {
    rhythms: [Rhythm; 3],
}

struct Rhythm {
    /// Collections until the next look.
    countdown: Cell<u32>,
    /// The gap after the next look, if it finds nothing.
    gap: Cell<u32>,
    /// Looks in a row that a hint asked for and that found nothing.
    false_alarms: Cell<u32>,
}

/// At the least every 64th collection is looked at beforehand.
const LONGEST_GAP: u32 = 63;
/// Hints count for nothing after so many false alarms, until a look finds something.
const PATIENCE: u32 = 4;

impl Arming {
    /// Looks are due from the start.
    pub fn new() -> Self {
        let rhythm = || Rhythm {
            countdown: Cell::new(0),
            gap: Cell::new(1),
            false_alarms: Cell::new(0),
        };
        Self {
            rhythms: [rhythm(), rhythm(), rhythm()],
        }
    }

    fn rhythm(&self, generation: u32) -> &Rhythm {
        &self.rhythms[(generation as usize).min(2)]
    }

    /// Counts a collection that begins; true if it is to be looked at beforehand.
    ///
    /// Counted here and not in [`Arming::learn`], which does not hear of the collections that have no
    /// garbage left; and such are those in which finalizers break all cycles.
    pub fn begin(&self, generation: u32) -> bool {
        let countdown = &self.rhythm(generation).countdown;
        let due = countdown.get() == 0;
        countdown.set(countdown.get().saturating_sub(1));
        due
    }

    /// Takes note of what a collection showed: whether there was a look beforehand, whether it found what was
    /// not among the garbage later, and whether anything hints that a look would be worth while (a
    /// finalizer ran, or device memory went that was in no garbage).
    pub fn learn(&self, generation: u32, looked: bool, found: bool, hint: bool) {
        let rhythm = self.rhythm(generation);
        if found {
            rhythm.countdown.set(0);
            rhythm.gap.set(1);
            rhythm.false_alarms.set(0);
        } else if looked {
            rhythm.countdown.set(rhythm.gap.get());
            rhythm.gap.set((rhythm.gap.get() * 2 + 1).min(LONGEST_GAP));
        }
        // Objects grow old: what a hint is about may be garbage of an older generation next time.
        if hint && !found {
            for rhythm in &self.rhythms {
                if rhythm.false_alarms.get() < PATIENCE && rhythm.countdown.get() > 0 {
                    rhythm.countdown.set(0);
                    rhythm.false_alarms.set(rhythm.false_alarms.get() + 1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(arming: &Arming, collections: usize, hint: bool) -> usize {
        (0..collections)
            .filter(|_| {
                let due = arming.begin(0);
                arming.learn(0, due, false, hint);
                due
            })
            .count()
    }

    #[test]
    fn looks_become_rare_when_they_find_nothing() {
        let arming = Arming::new();
        assert_eq!(looks(&arming, 1, false), 1);
        let many = looks(&arming, 6400, false);
        assert!(
            (100..=110).contains(&many),
            "{many} looks in 6400 collections"
        );
    }

    #[test]
    fn a_hint_asks_for_a_look_at_once_but_not_for_ever() {
        let arming = Arming::new();
        looks(&arming, 1000, false);
        // Collections without garbage are counted, but there is nothing to learn from them.
        let gap = (0..).take_while(|_| !arming.begin(0)).count();
        assert!(gap <= 64);
        arming.learn(0, true, false, false);
        assert!(!arming.begin(0));
        arming.learn(0, false, false, true);
        assert!(arming.begin(0));
        let many = looks(&arming, 640, true);
        assert!(
            many <= 10 + PATIENCE as usize + 10,
            "{many} looks although none found anything"
        );
    }

    #[test]
    fn a_find_keeps_looking() {
        let arming = Arming::new();
        looks(&arming, 1000, false);
        for _ in 0..3 {
            arming.learn(0, true, true, false);
            assert!(arming.begin(0));
        }
    }
}
