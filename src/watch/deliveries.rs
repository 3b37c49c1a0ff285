//! The queue between the hook and whoever reports to the user.
//!
//! A collection can happen anywhere, also in the middle of code that holds a lock which a log handler
//! or a callback wants. So nothing is reported from within the hook, and the hook waits for nobody: a
//! separate thread takes deliveries from this queue as soon as it gets to run.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::{Ignored, WatchId};
use crate::model::report::Report;

/// How often a teller with nothing to tell looks whether it is needed elsewhere.
const PATROL: Duration = Duration::from_secs(1);
/// How often one who waits looks for signals.
const SIGNALS: Duration = Duration::from_millis(50);
/// While more reports than this are waiting, those for watches that report every collection are not kept, but counted.
const QUEUE_LIMIT: usize = 256;
/// More than this are not kept for anybody: twice the number of distinct leaks that a watch reports.
const KEPT_LIMIT: usize = 2048;

/// Something to tell.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The watch that it is for; 0 for all.
    pub watch: WatchId,
    pub news: News,
    /// It is queued even where many wait.
    pub is_kept: bool,
    /// What is taken out of a report once it is known whose its leaks are.
    pub ignored: Ignored,
}

#[derive(Clone, Debug)]
pub enum News {
    /// A collection freed leaks.
    Report(std::sync::Arc<Report>),
    /// Something went wrong inside, as a sentence.
    Trouble(String),
}

/// What a teller gets to do.
#[derive(Debug)]
pub enum Next {
    Delivery(Delivery),
    /// There is nothing to tell, and other work to do.
    Elsewhere,
    /// The queue is closed and empty, or the teller is relieved.
    Closed,
}

/// The queue. Its lock is held for moments only, in which nothing else is waited for.
#[derive(Default)]
pub struct Deliveries {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Delivery)>,
    sent: u64,
    told: u64,
    /// What did not fit, and was not said yet.
    lost: u64,
    teller: Option<ThreadId>,
    closed: bool,
    /// The teller is to end, and another will go on.
    relieved: bool,
}

impl Queue {
    /// The next thing to tell, what was lost first of all once there is room again.
    fn take(&mut self) -> Option<Delivery> {
        let (_, delivery) = self.waiting.pop_front()?;
        if self.lost > 0 && self.waiting.is_empty() {
            let lost = std::mem::take(&mut self.lost);
            self.push(Delivery {
                watch: 0,
                is_kept: true,
                ignored: Ignored::default(),
                news: News::Trouble(format!(
                    "{lost} reports were dropped, because they came faster than they could be delivered. The \
                     counts of the watches include them"
                )),
            });
        }
        Some(delivery)
    }

    fn push(&mut self, delivery: Delivery) {
        self.sent += 1;
        self.waiting.push_back((self.sent, delivery));
    }
}

impl Deliveries {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing in this file can panic while it has the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts news into the queue, as far as they fit.
    pub(super) fn send(&self, news: impl IntoIterator<Item = Delivery>) {
        let mut queue = self.queue();
        for delivery in news {
            let limit = if delivery.is_kept {
                KEPT_LIMIT
            } else {
                QUEUE_LIMIT
            };
            if queue.waiting.len() < limit {
                queue.push(delivery);
            } else {
                queue.lost += 1;
            }
        }
        drop(queue);
        self.changed.notify_all();
    }

    /// The next delivery, for the teller: blocks until there is one, or until `is_needed`, asked
    /// about once a second, says that the teller has other work. Asking for the next says that the
    /// last one has been delivered.
    pub fn next(&self, is_needed: impl Fn() -> bool) -> Next {
        let mut queue = self.queue();
        queue.teller = Some(std::thread::current().id());
        queue.told = queue
            .waiting
            .front()
            .map_or(queue.sent, |(number, _)| number - 1);
        self.changed.notify_all();
        loop {
            if queue.relieved {
                queue.teller = None;
                return Next::Closed;
            }
            if let Some(delivery) = queue.take() {
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

    /// Waits until everything sent so far has been delivered; false if that took longer than `patience`.
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
            if left.is_zero() {
                return false;
            }
            queue = self
                .changed
                .wait_timeout(queue, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(queue, _)| queue);
        }
        true
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

    /// Ends the teller's work before the next delivery, or lets another go on with it.
    pub fn relieve(&self, is_relieved: bool) {
        self.queue().relieved = is_relieved;
        self.changed.notify_all();
    }

    /// Drops what has not been taken yet.
    pub fn drop_waiting(&self) {
        let dropped = std::mem::take(&mut self.queue().waiting);
        drop(dropped);
    }
}
