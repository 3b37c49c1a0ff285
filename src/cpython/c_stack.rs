//! How much of the C stack a thread has left.
//!
//! Python code needs little of it from 3.11 on, and a program may give its threads as little as 32 KiB
//! (`threading.stack_size`).

use std::cell::Cell;

/// What a look may take, in bytes.
pub const NEEDED: usize = 128 << 10;

/// The lowest and the highest address of a stack.
type Bounds = (usize, usize);

thread_local! {
    static BOUNDS: Cell<Option<Option<Bounds>>> = const { Cell::new(None) };
}

/// False if the thread that calls has less than [`NEEDED`] left. True where that is not known: on the main thread, whose
/// stack grows, on a stack that is not the thread's own, and on systems that do not say.
pub fn has_room() -> bool {
    let bounds = BOUNDS.with(|known| match known.get() {
        Some(bounds) => bounds,
        None => {
            let bounds = bounds();
            known.set(Some(bounds));
            bounds
        }
    });
    let here = std::ptr::from_ref(&bounds) as usize;
    bounds.is_none_or(|(lowest, highest)| {
        !(lowest..highest).contains(&here) || here - lowest >= NEEDED
    })
}

#[cfg(target_os = "linux")]
fn bounds() -> Option<Bounds> {
    let mut first = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: the attributes are written by `pthread_getattr_np`, read if that succeeds, and destroyed.
    unsafe {
        if i64::from(libc::getpid()) == libc::syscall(libc::SYS_gettid) as i64 {
            return None;
        }
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return None;
        }
        let is_known =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut first, &raw mut size) == 0;
        libc::pthread_attr_destroy(&raw mut attributes);
        let first = first as usize;
        is_known.then_some((first, first + size))
    }
}

#[cfg(target_os = "macos")]
fn bounds() -> Option<Bounds> {
    // SAFETY: asks about the calling thread.
    unsafe {
        let thread = libc::pthread_self();
        let highest = libc::pthread_get_stackaddr_np(thread) as usize;
        let size = libc::pthread_get_stacksize_np(thread);
        (libc::pthread_main_np() == 0).then(|| (highest.saturating_sub(size), highest))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn bounds() -> Option<Bounds> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_a_small_stack_has_no_room() {
        let with = |size| {
            let thread = std::thread::Builder::new().stack_size(size);
            thread.spawn(has_room).unwrap().join().unwrap()
        };
        assert!(!with(96 << 10));
        assert!(with(1 << 20));
        assert!(has_room());
    }
}
