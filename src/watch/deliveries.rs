//! The queue between the hook and whoever tells the user.
//!
//! A collection can happen anywhere, also in the middle of code that holds a lock which a log handler
//! or a callback wants. So nothing is told from within the hook: a thread of its own takes deliveries
//! from this queue. The hook waits a moment for it, so that what a collection leaked is told
//! before the program goes on, but never longer than [`PATIENCE`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::WatchId;
use crate::report::model::Report;

/// How long a collection waits for its report to be told.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often a teller with nothing to tell looks whether it is needed elsewhere.
const PATROL: Duration = Duration::from_secs(1);
/// How often one who waits looks for signals.
const SIGNALS: Duration = Duration::from_millis(50);
/// More untold reports than this are not kept; the oldest go first.
const QUEUE_LIMIT: usize = 256;

/// Something to tell.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The watch that it is for; 0 for all.
    pub watch: WatchId,
    pub news: News,
}

#[derive(Clone, Debug)]
pub enum News {
    /// A collection freed leaks.
    Report(Arc<Report>),
    /// Something went wrong inside, as a sentence.
    Trouble(String),
}

/// What a teller gets to do.
#[derive(Debug)]
pub enum Next {
    Delivery(Delivery),
    /// There is nothing to tell, and other work to do.
    Elsewhere,
    /// The queue is closed and empty.
    Closed,
}

/// The queue.
pub struct Deliveries {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Cleared when the teller once took too long: then the hook no longer waits.
    wait: AtomicBool,
    /// How many collections are waiting for their reports to be told.
    waiting: AtomicUsize,
    /// How many threads are about to fork: then no collection waits.
    forking: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Delivery)>,
    sent: u64,
    told: u64,
    teller: Option<ThreadId>,
    closed: bool,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            changed: Condvar::new(),
            wait: AtomicBool::new(true),
            waiting: AtomicUsize::new(0),
            forking: AtomicUsize::new(0),
        }
    }
}

impl Deliveries {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing in this file can panic while it has the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts news into the queue and, if asked to, waits a moment until they are told.
    pub(super) fn send(&self, py: Python<'_>, news: Vec<Delivery>, wait: bool) {
        let mut queue = self.queue();
        for delivery in news {
            queue.sent += 1;
            let number = queue.sent;
            queue.waiting.push_back((number, delivery));
            if queue.waiting.len() > QUEUE_LIMIT {
                queue.waiting.pop_front();
            }
        }
        let last = queue.sent;
        let told_by_other = queue
            .teller
            .is_some_and(|teller| teller != std::thread::current().id());
        drop(queue);
        self.changed.notify_all();
        if wait && told_by_other && self.wait.load(Ordering::Relaxed) && !self.is_forking() {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let in_time = py.detach(|| self.wait_until_told(last, PATIENCE));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if !in_time && !self.is_forking() {
                self.wait.store(false, Ordering::Relaxed);
            }
        }
    }

    /// The next delivery, for the teller: blocks until there is one, or until `is_needed`, asked
    /// about once a second, says that the teller has other work. Asking for the next says that the
    /// last one has been told.
    pub fn next(&self, is_needed: impl Fn() -> bool) -> Next {
        let mut queue = self.queue();
        queue.teller = Some(std::thread::current().id());
        queue.told = queue
            .waiting
            .front()
            .map_or(queue.sent, |(number, _)| number - 1);
        self.changed.notify_all();
        loop {
            if let Some((_, delivery)) = queue.waiting.pop_front() {
                return Next::Delivery(delivery);
            }
            if queue.closed {
                queue.teller = None;
                queue.told = queue.sent;
                return Next::Closed;
            }
            let (again, waited) = self
                .changed
                .wait_timeout(queue, PATROL)
                .unwrap_or_else(PoisonError::into_inner);
            queue = again;
            if waited.timed_out() && is_needed() {
                return Next::Elsewhere;
            }
        }
    }

    /// Waits until everything sent so far has been told; false if that took longer than `patience`.
    ///
    /// # Errors
    /// What a signal handler of the program raises meanwhile, such as `KeyboardInterrupt`.
    pub fn flush(&self, py: Python<'_>, patience: Duration) -> PyResult<bool> {
        let (last, teller) = {
            let queue = self.queue();
            (queue.sent, queue.teller)
        };
        // Waits also where there is no teller yet: its thread may be about to begin.
        if teller == Some(std::thread::current().id()) {
            return Ok(last == self.queue().told);
        }
        let started = Instant::now();
        loop {
            let left = patience.saturating_sub(started.elapsed());
            if py.detach(|| self.wait_until_told(last, left.min(SIGNALS))) {
                return Ok(true);
            }
            py.check_signals()?;
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    fn wait_until_told(&self, number: u64, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut queue = self.queue();
        while queue.told < number {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_forking() {
                return false;
            }
            queue = self
                .changed
                .wait_timeout(queue, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(queue, _)| queue);
        }
        true
    }

    /// Lets collections that wait end before the process is forked, and lets none wait until
    /// [`Deliveries::after_fork`].
    ///
    /// A collection lets other threads run while it waits. If one of those forked then, CPython
    /// would believe in the child, for ever, that this collection was under way (`collecting` in
    /// `struct _gc_runtime_state`), and never collect there again.
    pub fn before_fork(&self, py: Python<'_>) {
        self.forking.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
        let started = Instant::now();
        while self.waiting.load(Ordering::SeqCst) > 0 && started.elapsed() < PATIENCE {
            py.detach(|| std::thread::sleep(Duration::from_millis(1)));
        }
    }

    /// The fork is done, or failed; for the parent.
    pub fn after_fork(&self) {
        let forking = &self.forking;
        // Nothing to take back where the watch began in between.
        let _ended = forking.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
            count.checked_sub(1)
        });
    }

    fn is_forking(&self) -> bool {
        self.forking.load(Ordering::SeqCst) > 0
    }

    /// True once [`Deliveries::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Ends the teller's work once the queue is empty.
    pub fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_all();
    }
}
