//! The threads of this interpreter, and the frames that they run.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::StoppedWorld;
use super::read::{dict_items, int_value};

/// The innermost frame of each thread.
///
/// `sys._current_frames` has them. Up to CPython 3.13 it also has those of sub-interpreters
/// (`_PyThread_CurrentFrames` in Python/pystate.c), and makes frame objects for them while they run under a lock of
/// their own, of which the process dies. So where there are any, the states of this interpreter's threads
/// are gone through here instead.
pub struct CurrentFrames {
    /// `sys._current_frames`.
    of_process: Py<PyAny>,
    states: Option<ThreadStates>,
}

impl CurrentFrames {
    /// # Errors
    /// If `sys` has no such function, or CPython's library lacks one that is needed.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let states = ThreadStates::new(py);
        if cfg!(Py_GIL_DISABLED) && states.is_none() {
            return Err(PyRuntimeError::new_err(
                "cyclescope: this Python does not export PyThreadState_Next, which is needed where there is no GIL",
            ));
        }
        Ok(Self {
            of_process: py.import("sys")?.getattr("_current_frames")?.unbind(),
            states,
        })
    }

    /// Calls `visit` with the number of each thread, zero where it is not known, and its innermost frame, until
    /// it returns false.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn for_each<'py>(
        &self,
        py: Python<'py>,
        visit: &mut dyn FnMut(u64, &Bound<'py, PyAny>) -> bool,
    ) -> PyResult<()> {
        // `sys._current_frames` stops the world itself, and has it go on before the frames are read.
        let is_own = |states: &&ThreadStates| cfg!(Py_GIL_DISABLED) || states.has_subinterpreters();
        let _stopped = StoppedWorld::new(py);
        if let Some(states) = self.states.as_ref().filter(is_own) {
            for (thread, frame) in states.frames(py) {
                if !visit(thread, &frame) {
                    break;
                }
            }
        } else {
            let frames = self.of_process.bind(py).call0()?;
            dict_items(&frames, &mut |thread, frame| {
                visit(int_value(thread).unwrap_or(0) as u64, frame)
            });
        }
        Ok(())
    }
}

type State = *mut ffi::PyThreadState;
type Interpreter = *mut ffi::PyInterpreterState;

/// Functions of CPython that are not in the stable ABI (Include/cpython/pystate.h); all versions have them.
struct ThreadStates {
    newest_interpreter: unsafe extern "C" fn() -> Interpreter,
    first: unsafe extern "C" fn(Interpreter) -> State,
    next: unsafe extern "C" fn(State) -> State,
    /// The word of a state that is the number of the thread.
    number: Option<usize>,
}

impl ThreadStates {
    /// How many words of a state are searched; all versions have more.
    const WORDS: usize = 28;

    fn new(py: Python<'_>) -> Option<Self> {
        let library = python_library(py)?;
        // SAFETY: the functions have these types in all versions. A state is as long as said, and this
        // thread's does not change meanwhile.
        unsafe {
            let states = Self {
                newest_interpreter: *library.get(b"PyInterpreterState_Head\0").ok()?,
                first: *library.get(b"PyInterpreterState_ThreadHead\0").ok()?,
                next: *library.get(b"PyThreadState_Next\0").ok()?,
                number: {
                    let own = ffi::PyThreadState_Get().cast::<usize>();
                    let thread = thread_number(py);
                    (0..Self::WORDS).find(|&word| Some(*own.add(word) as u64) == thread)
                },
            };
            std::mem::forget(library);
            Some(states)
        }
    }

    /// True if there is an interpreter besides this one, the main one: a new one comes first in the list. Without
    /// this one's lock none can be made where there is none yet.
    fn has_subinterpreters(&self) -> bool {
        // SAFETY: attached, as whoever has an inspector is. The other interpreter is not read, as it may end.
        unsafe { (self.newest_interpreter)() != ffi::PyInterpreterState_Get() }
    }

    fn frames<'py>(&self, py: Python<'py>) -> Vec<(u64, Bound<'py, PyAny>)> {
        let mut found = Vec::new();
        // SAFETY: attached: threads of this interpreter neither run nor end, and new ones come first in the list.
        // `PyThreadState_GetFrame` returns a new reference or null.
        unsafe {
            let mut state = (self.first)(ffi::PyInterpreterState_Get());
            while !state.is_null() {
                let frame = ffi::PyThreadState_GetFrame(state).cast();
                if let Some(frame) = Bound::from_owned_ptr_or_opt(py, frame) {
                    let number = self
                        .number
                        .map_or(0, |word| *state.cast::<usize>().add(word));
                    found.push((number as u64, frame));
                }
                state = (self.next)(state);
            }
            ffi::PyErr_Clear();
        }
        found
    }
}

/// `threading.get_ident()`
fn thread_number(py: Python<'_>) -> Option<u64> {
    let get_ident = py.import("_thread").ok()?.getattr("get_ident").ok()?;
    get_ident.call0().ok()?.extract().ok()
}

#[cfg(unix)]
fn python_library(_py: Python<'_>) -> Option<libloading::os::unix::Library> {
    Some(libloading::os::unix::Library::this())
}

#[cfg(windows)]
fn python_library(py: Python<'_>) -> Option<libloading::os::windows::Library> {
    let version = py.version_info();
    let name = format!("python{}{}.dll", version.major, version.minor);
    libloading::os::windows::Library::open_already_loaded(name).ok()
}
