//! The one watcher of the process.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::hook::{Hook, fork_count};
use crate::watch::{Deliveries, Watcher};

/// The watcher and its hook.
pub struct State {
    pub watcher: Rc<Watcher>,
    hook: Option<Rc<Hook>>,
    forks: u32,
}

/// State that only a thread attached to the interpreter touches, one at a time.
struct Attached<T>(T);
// SAFETY: the field is reached through `with_state` alone, which asks for a `Python<'_>`: proof that
// the thread holds the interpreter's lock, so no other is in there. (cyclescope refuses to load into
// free-threaded builds: they have no such lock, and do not load abi3 modules.)
unsafe impl<T> Sync for Attached<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Attached<T> {}

static STATE: Attached<RefCell<Option<State>>> = Attached(RefCell::new(None));

/// Calls `f` with the state, made at the first call in each process.
///
/// # Errors
/// If the state cannot be made, or is in use further up the stack.
pub fn with_state<T>(py: Python<'_>, f: impl FnOnce(&mut State) -> PyResult<T>) -> PyResult<T> {
    let mut slot = STATE.0.try_borrow_mut().map_err(|_| {
        PyRuntimeError::new_err("cyclescope is busy on another thread; try again when it is done")
    })?;
    let forks = fork_count();
    if let Some(state) = slot.take_if(|state| state.forks != forks) {
        // The parent's: its locks may be held by threads that do not exist here. Leave it be.
        if let Some(hook) = &state.hook {
            hook.remove(py);
        }
        std::mem::forget(state);
    }
    let state = match &mut *slot {
        Some(state) => state,
        empty => empty.insert(State {
            watcher: Watcher::new(py)?,
            hook: None,
            forks,
        }),
    };
    f(state)
}

/// The queue of what there is to tell.
///
/// # Errors
/// As [`with_state`].
pub fn deliveries(py: Python<'_>) -> PyResult<Arc<Deliveries>> {
    with_state(py, |state| Ok(state.watcher.deliveries()))
}

impl State {
    /// Installs the hook unless it is there and working.
    pub fn ensure_hook(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.hook.as_ref().is_some_and(|hook| hook.is_installed(py)) {
            return Ok(());
        }
        self.remove_hook(py);
        self.hook = Some(Rc::new(self.watcher.install(py)?));
        Ok(())
    }

    pub fn remove_hook(&mut self, py: Python<'_>) {
        if let Some(hook) = self.hook.take() {
            hook.remove(py);
        }
    }

    pub fn hook(&self) -> Option<Rc<Hook>> {
        self.hook.clone()
    }
}
