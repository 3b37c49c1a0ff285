//! A signal on which the process writes what it knows of its memory.
//!
//! The handler may be called on any thread and between any two instructions, so it does only what is allowed there
//! (signal-safety(7)): it posts a semaphore. A thread of ours waits for that semaphore without the interpreter's lock. There is
//! no pipe, as a program may close, and then open for itself, any file descriptor; the interpreter's own
//! handlers and `signal.set_wakeup_fd` are left alone; and no signal is blocked, as a mask survives `exec`.

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use others as system;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Handles a signal from now on, in this process only. Returns the number by which [`next_signal`] waits for it.
///
/// # Errors
/// `ValueError`, with a clause that says why the signal is left alone.
#[pyfunction]
pub fn arm_signal(number: i32) -> PyResult<u64> {
    system::arm(number).map_err(PyValueError::new_err)
}

/// Has an interrupt end the process, by its default action, once the interpreter has come to its end. So Python itself ends a
/// program that does not handle `KeyboardInterrupt` (`exit_sigint` in Modules/main.c).
#[pyfunction]
pub fn end_by_interrupt() {
    #[cfg(unix)]
    {
        extern "C" fn end() {
            // SAFETY: the interpreter has ended, and with it all that handled signals.
            unsafe {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                libc::kill(libc::getpid(), libc::SIGINT);
            }
        }
        // SAFETY: attached. The function calls nothing of Python's.
        unsafe { pyo3::ffi::Py_AtExit(Some(end)) };
    }
}

/// Says that an exception is ignored, by `sys.unraisablehook`, which takes no arguments that Python code has made.
#[pyfunction]
pub fn ignore(error: Bound<'_, PyAny>, r#where: &Bound<'_, PyAny>) {
    let py = error.py();
    PyErr::from_value(error).write_unraisable(py, Some(r#where));
}

/// Waits until the signal has come since the last call. False once it was disarmed.
#[pyfunction]
pub fn next_signal(py: Python<'_>, armed: u64) -> bool {
    py.detach(|| system::next(armed))
}

/// Ends the waiting in [`next_signal`]. With `restore`, the signal does by default again what it does in a program
/// that does not handle it, unless the program handles it by now.
#[pyfunction]
pub fn disarm_signal(restore: bool) {
    system::disarm(restore);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::UnsafeCell;
    use std::io::Error;
    use std::mem::zeroed;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

    use libc::{c_int, pid_t, sem_t};

    /// Who waits for the signal.
    struct Waiter {
        id: u64,
        /// The process: its forked children have the handler too, but no thread that waits.
        process: pid_t,
        number: c_int,
        semaphore: UnsafeCell<sem_t>,
        ended: AtomicBool,
    }

    /// The latest one, or null. A waiter is never freed: the handler may have got hold of it.
    static WAITER: AtomicPtr<Waiter> = AtomicPtr::new(null_mut());

    fn waiter() -> Option<&'static Waiter> {
        // SAFETY: null, or leaked by `arm`; nobody has a mutable reference to it.
        unsafe { WAITER.load(Ordering::Acquire).as_ref() }
    }

    extern "C" fn handler(_number: c_int) {
        let Some(waiter) = waiter() else { return };
        // SAFETY: these functions are async-signal-safe, and the semaphore was initialised before the waiter was
        // published. The code that was interrupted may be about to read `errno`.
        unsafe {
            if libc::getpid() == waiter.process {
                let errno = libc::__errno_location();
                let before = *errno;
                libc::sem_post(waiter.semaphore.get());
                *errno = before;
            }
        }
    }

    pub fn arm(number: i32) -> Result<u64, String> {
        static ARMED: AtomicU64 = AtomicU64::new(0);
        may_handle(current(number)?.sa_sigaction)?;
        // SAFETY: plain data, for which zeroes are valid.
        let semaphore = UnsafeCell::new(unsafe { zeroed() });
        let id = ARMED.fetch_add(1, Ordering::Relaxed) + 1;
        let waiter = Box::new(Waiter {
            id,
            // SAFETY: no precondition.
            process: unsafe { libc::getpid() },
            number,
            semaphore,
            ended: AtomicBool::new(false),
        });
        // SAFETY: the semaphore lies where it will stay, and nobody else knows of it yet.
        if unsafe { libc::sem_init(waiter.semaphore.get(), 0, 0) } != 0 {
            return Err(format!("no semaphore: {}", Error::last_os_error()));
        }
        WAITER.store(Box::leak(waiter), Ordering::Release);
        install(number)?;
        Ok(id)
    }

    pub fn next(armed: u64) -> bool {
        let Some(waiter) = waiter().filter(|it| it.id == armed) else {
            return false;
        };
        loop {
            // SAFETY: initialised by `arm`, and never destroyed.
            if unsafe { libc::sem_wait(waiter.semaphore.get()) } == 0 {
                break;
            }
        }
        // Signals that came meanwhile have one answer, as pending signals of one number are one.
        // SAFETY: as above.
        while unsafe { libc::sem_trywait(waiter.semaphore.get()) } == 0 {}
        !waiter.ended.load(Ordering::Acquire)
    }

    pub fn disarm(restore: bool) {
        let Some(waiter) = waiter() else { return };
        // SAFETY: no precondition.
        if waiter.process != unsafe { libc::getpid() } {
            return;
        }
        if restore && current(waiter.number).is_ok_and(|it| it.sa_sigaction == ours()) {
            // SAFETY: plain data, for which zeroes are valid: the default action, no flags, an empty mask.
            let default: libc::sigaction = unsafe { zeroed() };
            // SAFETY: both pointers are valid or null.
            unsafe { libc::sigaction(waiter.number, &raw const default, null_mut()) };
        }
        waiter.ended.store(true, Ordering::Release);
        // SAFETY: as in `next`.
        unsafe { libc::sem_post(waiter.semaphore.get()) };
    }

    fn ours() -> usize {
        handler as *const () as usize
    }

    fn current(number: c_int) -> Result<libc::sigaction, String> {
        // SAFETY: plain data, for which zeroes are valid.
        let mut found: libc::sigaction = unsafe { zeroed() };
        // SAFETY: both pointers are valid or null.
        match unsafe { libc::sigaction(number, std::ptr::null(), &raw mut found) } {
            0 => Ok(found),
            _ => Err(format!("the system refuses: {}", Error::last_os_error())),
        }
    }

    /// A handler of the program stays. So does an ignored signal: children that are started would have it ignored
    /// too, and not if it had a handler here.
    fn may_handle(action: usize) -> Result<(), String> {
        if action == libc::SIG_IGN {
            return Err("the program ignores it".to_owned());
        }
        if action != libc::SIG_DFL && action != ours() {
            return Err("the program has a handler of its own for it".to_owned());
        }
        Ok(())
    }

    fn install(number: c_int) -> Result<(), String> {
        // SAFETY: plain data, for which zeroes are valid: an empty mask.
        let mut action: libc::sigaction = unsafe { zeroed() };
        action.sa_sigaction = ours();
        // System calls are resumed where the kernel can, and a thread's own signal stack is used where it has one.
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: plain data, for which zeroes are valid.
        let mut before: libc::sigaction = unsafe { zeroed() };
        // SAFETY: the pointers are valid, and the handler is async-signal-safe.
        if unsafe { libc::sigaction(number, &raw const action, &raw mut before) } != 0 {
            return Err(format!("the system refuses: {}", Error::last_os_error()));
        }
        may_handle(before.sa_sigaction).inspect_err(|_| {
            // Another thread of the program has been quicker.
            // SAFETY: as it was.
            unsafe { libc::sigaction(number, &raw const before, null_mut()) };
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod others {
    pub fn arm(_number: i32) -> Result<u64, String> {
        Err("signals are handled on Linux only".to_owned())
    }

    pub fn next(_armed: u64) -> bool {
        false
    }

    pub fn disarm(_restore: bool) {}
}
