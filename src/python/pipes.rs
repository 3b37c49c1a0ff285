//! Pipes that nobody reads.

use pyo3::prelude::*;

/// True for a pipe into which a message cannot be written without waiting for whoever reads it; false for what is no pipe.
#[pyfunction]
pub fn is_full_pipe(file: i32) -> bool {
    #[cfg(unix)]
    return is_pipe(file) && is_full(file);
    #[cfg(not(unix))]
    return false;
}

#[cfg(unix)]
fn is_pipe(file: i32) -> bool {
    let mut facts = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for what is written.
    let is_known = unsafe { libc::fstat(file, facts.as_mut_ptr()) } == 0;
    // SAFETY: the call has written it.
    is_known && unsafe { facts.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// A pipe takes `PIPE_BUF` bytes at once, 4,096 on Linux, if `poll` says that it takes any (pipe(7)).
#[cfg(unix)]
fn is_full(file: i32) -> bool {
    let mut asked = libc::pollfd {
        fd: file,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: there is one entry, and nothing is waited for.
    unsafe { libc::poll(&raw mut asked, 1, 0) == 0 }
}
