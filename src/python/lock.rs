//! One thread at a time is in here: on free-threaded builds, where no lock of the interpreter's sees to it.

#[cfg(Py_GIL_DISABLED)]
pub use free_threaded::Locked;
#[cfg(not(Py_GIL_DISABLED))]
pub use with_gil::Locked;

#[cfg(not(Py_GIL_DISABLED))]
mod with_gil {
    use pyo3::prelude::*;

    /// Nothing: who is attached to the interpreter holds its lock.
    pub struct Locked(());

    impl Locked {
        pub fn take(_py: Python<'_>) -> Self {
            Self(())
        }
    }
}

#[cfg(Py_GIL_DISABLED)]
mod free_threaded {
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use pyo3::prelude::*;

    use crate::cpython::fork_count;

    /// Who is in here: the number of forks in the upper half, and the number of the thread in the lower; zero for
    /// nobody. A thread of the process before a fork does not exist any longer.
    static OWNER: AtomicU64 = AtomicU64::new(0);
    const PAUSE: Duration = Duration::from_micros(200);

    thread_local! {
        /// The number of this thread, from one on.
        static NUMBER: u32 = {
            static LAST: AtomicU32 = AtomicU32::new(0);
            LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
        };
        /// How often this thread has the lock, and after how many forks.
        static DEPTH: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    /// While this exists, other threads wait. A thread may have it several times.
    ///
    /// A thread waits detached from the interpreter, so that the world can be stopped meanwhile.
    pub struct Locked {
        /// It belongs to the thread that took it.
        thread: PhantomData<*const ()>,
    }

    impl Locked {
        pub fn take(py: Python<'_>) -> Self {
            let forks = fork_count();
            let (depth, at) = DEPTH.get();
            let depth = if at == forks { depth } else { 0 };
            if depth == 0 {
                let own = u64::from(forks) << 32 | u64::from(NUMBER.with(|number| *number));
                while !acquire(own) {
                    py.detach(|| thread::sleep(PAUSE));
                }
            }
            DEPTH.set((depth + 1, forks));
            Self {
                thread: PhantomData,
            }
        }
    }

    fn acquire(own: u64) -> bool {
        let owner = OWNER.load(Ordering::Relaxed);
        let is_free = owner == 0 || owner >> 32 != own >> 32;
        is_free
            && OWNER
                .compare_exchange(owner, own, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    impl Drop for Locked {
        fn drop(&mut self) {
            let (depth, forks) = DEPTH.get();
            // What was taken before a fork was taken in another process.
            if forks == fork_count() {
                DEPTH.set((depth.saturating_sub(1), forks));
                if depth == 1 {
                    OWNER.store(0, Ordering::Release);
                }
            }
        }
    }
}
