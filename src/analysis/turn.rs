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
const PAUSE: Duration = Duration::from_millis(2);

/// Who is looking: a thread, of the process after so many forks.
static LOOKING: Mutex<Option<(ThreadId, u32)>> = Mutex::new(None);

/// While this exists, looks of other threads wait.
pub(super) struct Turn {
    is_own: bool,
}

impl Turn {
    /// Waits until no other thread is looking, without the interpreter's lock.
    pub fn take(py: Python<'_>) -> Self {
        let own = (thread::current().id(), fork_count());
        let begin = Instant::now();
        loop {
            // Whoever has this has the interpreter's lock, too: only a child forked without that finds it taken.
            let Ok(mut looking) = LOOKING.try_lock() else {
                return Self { is_own: false };
            };
            let is_others = looking.is_some_and(|it| it.0 != own.0 && it.1 == own.1);
            if !is_others || begin.elapsed() > PATIENCE {
                // A look from within a look, as from a function that PyTorch calls, does not wait for itself.
                let is_free = looking.is_none_or(|it| it.1 != own.1);
                if is_free {
                    *looking = Some(own);
                }
                return Self { is_own: is_free };
            }
            drop(looking);
            py.detach(|| thread::sleep(PAUSE));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_own
            && let Ok(mut looking) = LOOKING.try_lock()
        {
            *looking = None;
        }
    }
}
