//! One look at the live heap at a time: the references that a look holds would be the program's to another.
//!
//! A look keeps the interpreter's lock but for some of PyTorch's getters, in which another thread may begin one.

use std::sync::Mutex;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::cpython::fork_count;

/// A look waits no longer than this for another one, which has perhaps been stopped in a debugger. Then there are
/// two at a time.
const PATIENCE: Duration = Duration::from_secs(10);
/// It waits no longer than this for several that come one after another.
const LONGEST: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

static LOOKING: Mutex<Looking> = Mutex::new(Looking {
    who: None,
    count: 0,
});

struct Looking {
    /// Who is looking: a thread, of the process after so many forks.
    who: Option<(ThreadId, u32)>,
    /// Number of looks so far.
    count: u64,
}

/// While this exists, looks of other threads wait.
pub(super) struct Turn {
    is_own: bool,
}

impl Turn {
    /// Waits until no other thread is looking, without the interpreter's lock.
    pub fn take(py: Python<'_>) -> Self {
        let own = (thread::current().id(), fork_count());
        let mut wait = Wait::new(Instant::now());
        loop {
            // Whoever has this has the interpreter's lock, too: only a child forked without that finds it taken.
            let Ok(mut looking) = LOOKING.try_lock() else {
                return Self { is_own: false };
            };
            let is_others = looking.who.is_some_and(|it| it.0 != own.0 && it.1 == own.1);
            if !is_others || wait.is_over(looking.count, Instant::now()) {
                // A look from within a look, as from a function that PyTorch calls, does not wait for itself.
                let is_free = looking.who.is_none_or(|it| it.1 != own.1);
                if is_free {
                    looking.who = Some(own);
                    looking.count += 1;
                }
                return Self { is_own: is_free };
            }
            drop(looking);
            py.detach(|| thread::sleep(PAUSE));
        }
    }
}

/// How long a look has waited for others.
struct Wait {
    begin: Instant,
    /// The look that is waited for, and since when.
    current: Option<(u64, Instant)>,
}

impl Wait {
    fn new(now: Instant) -> Self {
        Self {
            begin: now,
            current: None,
        }
    }

    fn is_over(&mut self, look: u64, now: Instant) -> bool {
        let since = match self.current {
            Some((current, since)) if current == look => since,
            _ => now,
        };
        self.current = Some((look, since));
        now - since > PATIENCE || now - self.begin > LONGEST
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_own
            && let Ok(mut looking) = LOOKING.try_lock()
        {
            looking.who = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_one_after_another_are_waited_for_and_one_that_stands_still_is_not() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut wait = Wait::new(begin);
        for (look, second) in [(1, 0), (1, 9), (2, 11), (2, 20), (3, 22), (3, 31)] {
            assert!(!wait.is_over(look, at(second)));
        }
        assert!(wait.is_over(3, at(33)));
        let mut wait = Wait::new(begin);
        assert!((0..12).all(|look| !wait.is_over(look, at(5 * look))));
        assert!(wait.is_over(12, at(61)));
    }
}
