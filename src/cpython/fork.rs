//! Has the process been forked?

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one that first asked. A change means that
/// threads and CUDA contexts of the parent are not there.
pub fn fork_count() -> u32 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register);
    FORKS.load(Ordering::Relaxed)
}

#[cfg(unix)]
fn register() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler only adds to an atomic, which is allowed between fork and exec. If
    // there is no memory to register it, forks go unnoticed, as on systems without fork.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

#[cfg(not(unix))]
fn register() {}
