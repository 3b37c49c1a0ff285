//! The one watcher of the process.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;

use pyo3::prelude::*;

use super::lock::Locked;
use crate::analysis::ensure_stack;
use crate::collector::Hook;
use crate::cpython::fork_count;
use crate::watch::Watcher;

/// The watcher and its hook, made with the first watch.
pub struct State {
    pub watcher: Rc<Watcher>,
    hook: RefCell<Option<Rc<Hook>>>,
    forks: u32,
}

/// The state, for one thread at a time.
pub struct Entered {
    state: Rc<State>,
    _locked: Locked,
}

impl Deref for Entered {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

/// State that only a thread attached to the interpreter touches, one at a time.
struct Attached<T>(T);
// SAFETY: the field is reached through `state` alone, which asks for a `Python<'_>`: proof that
// the thread holds the interpreter's lock, so no other is in there. On free-threaded builds it has `Locked`.
unsafe impl<T> Sync for Attached<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Attached<T> {}

/// Borrowed for moments only, in which no Python code can run: so it is never found borrowed, by
/// another thread or by a finalizer, nor left borrowed in a forked child.
static STATE: Attached<RefCell<Option<Rc<State>>>> = Attached(RefCell::new(None));

/// The state, made at the first call in each process.
///
/// # Errors
/// If it cannot be made.
pub fn state(py: Python<'_>) -> PyResult<Entered> {
    let locked = Locked::take(py);
    let state = match known_state() {
        Some(state) => state,
        None => {
            ensure_stack()?;
            make_state(py)?
        }
    };
    Ok(Entered {
        state,
        _locked: locked,
    })
}

/// As [`state`], for a look.
///
/// # Errors
/// If the thread that calls has too little of its stack left.
pub fn state_for_look(py: Python<'_>) -> PyResult<Entered> {
    ensure_stack()?;
    state(py)
}

/// That of this process, if it was made.
fn known_state() -> Option<Rc<State>> {
    let forks = fork_count();
    STATE
        .0
        .borrow()
        .clone()
        .filter(|state| state.forks == forks)
}

// Inlined, it would take all the stack before [`state`] asks how much there is.
#[inline(never)]
fn make_state(py: Python<'_>) -> PyResult<Rc<State>> {
    let forks = fork_count();
    let made = Rc::new(State {
        watcher: Watcher::new(py)?,
        hook: RefCell::new(None),
        forks,
    });
    // Making it ran Python code, and another thread may have made one meanwhile.
    if let Some(state) = known_state() {
        return Ok(state);
    }
    let parents = STATE.0.borrow_mut().replace(Rc::clone(&made));
    if let Some(parents) = parents {
        if parents.watcher.inspector().redacts() {
            made.watcher.inspector().redact();
        }
        if let Some(hook) = parents.hook() {
            hook.remove(py);
        }
        // Its locks may be held by threads that do not exist here. Leave it be.
        std::mem::forget(parents);
    }
    Ok(made)
}

impl State {
    /// Has the hook work, made and put into `gc.callbacks` if it is not there. Where collections cannot be
    /// watched, says so once.
    ///
    /// # Errors
    /// As [`Watcher::hook`] and [`Hook::install`].
    pub fn ensure_hook(&self, py: Python<'_>) -> PyResult<()> {
        if !self.watcher.can_watch() {
            return Ok(());
        }
        let hook = match self.hook() {
            Some(hook) => hook,
            None => {
                let made = Rc::new(self.watcher.hook(py)?);
                // Making it ran Python code, and another thread may have made one meanwhile.
                Rc::clone(self.hook.borrow_mut().get_or_insert(made))
            }
        };
        if hook.is_installed(py) {
            return Ok(());
        }
        hook.install(py)
    }

    /// Does an explicit check, which sees what its own collections free.
    pub fn check<T>(&self, py: Python<'_>, check: impl FnOnce(&Watcher) -> T) -> T {
        match self.hook() {
            Some(hook) => hook.excusing(py, || check(&self.watcher)),
            None => check(&self.watcher),
        }
    }

    /// Ends the work of the hook if nobody needs it.
    pub fn rest(&self, py: Python<'_>) {
        if self.watcher.is_idle()
            && let Some(hook) = self.hook()
        {
            hook.remove(py);
        }
    }

    pub fn hook(&self) -> Option<Rc<Hook>> {
        self.hook.borrow().clone()
    }
}
