//! The frames that threads are in the midst of, and their variables.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::Place;
use super::builtins::Builtins;
use super::describe::frame_facts;
use super::read::{dict_items, find_item, imported, int_value, printable, text_of, texts_of};
use super::variables::{pairs_of, variable_names};

type Variables = Vec<(String, usize)>;
type Parts = Vec<(&'static str, usize)>;

/// A function call that a thread is in the midst of.
pub struct RunningFrame {
    /// The number of the thread, as `threading.get_ident()` has it.
    pub thread: u64,
    pub function: String,
    /// The line that is being run.
    pub place: Option<Place>,
    /// Address of the frame object, which may be a part of the heap already.
    pub address: usize,
    /// The variables and what they hold, by address; those of inner functions too are cells.
    pub variables: Variables,
    /// What else the frame holds, with what it is called: its function, its namespaces.
    pub parts: Parts,
    /// The call is the innermost of its thread and sets or deletes an attribute. A thread stops only
    /// between such instructions, so what it is in the midst of is C that lets others run.
    pub sets_attribute: bool,
}

impl RunningFrame {
    /// The addresses of all that the frame holds.
    pub fn held(&self) -> impl Iterator<Item = usize> {
        let variables = self.variables.iter().map(|(_, address)| *address);
        variables.chain(self.parts.iter().map(|(_, address)| *address))
    }
}

/// The frames of all threads, the innermost of each thread first.
///
/// `current_frames` is `sys._current_frames`. No frame is changed: on 3.11 and 3.12, where asking for
/// `f_locals` would write the variables into a dict that the frame then keeps, they are read where
/// the interpreter has them.
pub fn running_frames(
    py: Python<'_>,
    builtins: &Builtins,
    current_frames: &Py<PyAny>,
) -> PyResult<Vec<RunningFrame>> {
    let by_thread = current_frames.bind(py).call0()?;
    let mut frames = Vec::new();
    dict_items(&by_thread, &mut |thread, top| {
        let thread = thread.extract().unwrap_or(0);
        let mut frame = Some(top.clone());
        while let Some(current) = frame {
            let mut read = read(builtins, &current, thread);
            read.sets_attribute = current.is(top) && sets_attribute(builtins, top);
            frames.push(read);
            frame = builtins.frame_back.get(&current);
        }
        true
    });
    Ok(frames)
}

fn read(builtins: &Builtins, frame: &Bound<'_, PyAny>, thread: u64) -> RunningFrame {
    let (function, place) = frame_facts(builtins, frame);
    let version = frame.py().version_info();
    let (variables, parts) = match (version.major, version.minor) {
        (3, ..=10) => in_frame_object(builtins, frame),
        (3, 11) => in_place(builtins, frame, &LAYOUT_3_11),
        (3, 12) => in_place(builtins, frame, &LAYOUT_3_12),
        // A proxy that copies nothing (PEP 667), or for a module's frame its namespace.
        _ => match builtins.frame_locals.get(frame) {
            Some(locals) if locals.get_type().is(builtins.locals_proxy.bind(frame.py())) => (
                pairs_of(builtins, &locals)
                    .into_iter()
                    .map(|(name, value)| (name, value.as_ptr() as usize))
                    .collect(),
                Vec::new(),
            ),
            Some(namespace) => (Vec::new(), vec![("f_locals", namespace.as_ptr() as usize)]),
            None => Default::default(),
        },
    };
    RunningFrame {
        thread,
        function,
        place,
        address: frame.as_ptr() as usize,
        variables,
        parts,
        sets_attribute: false,
    }
}

/// True if the instruction that a frame runs is `STORE_ATTR` or `DELETE_ATTR` (Include/opcode.h); not known
/// of versions after 3.13.
fn sets_attribute(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> bool {
    let version = frame.py().version_info();
    let opcodes = match (version.major, version.minor) {
        (3, ..=12) => [95, 96],
        (3, 13) => [108, 63],
        _ => return false,
    };
    let code = builtins.frame_code.get(frame);
    let instructions = code.and_then(|code| builtins.code_bytes.get(&code));
    let at = builtins.frame_last_instruction.get(frame);
    let at = at.and_then(|at| usize::try_from(int_value(&at)?).ok());
    let opcode = instructions.zip(at).and_then(|(instructions, at)| {
        let instructions = instructions.cast::<PyBytes>().ok()?;
        instructions.as_bytes().get(at).copied()
    });
    opcode.is_some_and(|opcode| opcodes.contains(&opcode))
}

/// Where `_PyInterpreterFrame` has its parts, in words (Include/internal/pycore_frame.h). It does not
/// change within a minor version: debuggers and profilers rely on that.
struct Layout {
    code: usize,
    function: usize,
    globals: usize,
    locals: usize,
    frame_object: usize,
    variables: usize,
}

/// Where a frame object has the address of that, after `f_back` (`struct _frame`, same file).
const INTERPRETER_FRAME: usize = 3;

const LAYOUT_3_11: Layout = Layout {
    code: 4,
    function: 0,
    globals: 1,
    locals: 3,
    frame_object: 5,
    variables: 9,
};

const LAYOUT_3_12: Layout = Layout {
    code: 0,
    function: 2,
    globals: 3,
    locals: 5,
    frame_object: 6,
    variables: 9,
};

/// The variables of a running frame and the other objects that it holds; none if the interpreter does
/// not have them where the release of that number has.
fn in_place(builtins: &Builtins, frame: &Bound<'_, PyAny>, layout: &Layout) -> (Variables, Parts) {
    let Some(code) = builtins.frame_code.get(frame) else {
        return Default::default();
    };
    let words = frame.as_ptr().cast::<usize>();
    // SAFETY: attached, so the frame does not move on. A frame object has at least four words, and
    // what the fourth refers to is alive as long as the frame runs; that this is the structure we
    // take it for is checked by two of its parts before any other is read.
    unsafe {
        let inner = *words.add(INTERPRETER_FRAME) as *const usize;
        if inner.is_null()
            || !inner.is_aligned()
            || *inner.add(layout.frame_object) != frame.as_ptr() as usize
            || *inner.add(layout.code) != code.as_ptr() as usize
        {
            return Default::default();
        }
        let part = |word: usize| Some(*inner.add(word)).filter(|&address| address != 0);
        let variables = variable_names(builtins, &code)
            .into_iter()
            .enumerate()
            .filter_map(|(i, name)| Some((name, part(layout.variables + i)?)))
            .collect();
        let parts = [
            ("f_locals", layout.locals),
            ("f_globals", layout.globals),
            ("f_func", layout.function),
        ]
        .into_iter()
        .filter_map(|(name, word)| Some((name, part(word)?)))
        .collect();
        (variables, parts)
    }
}

/// Where a frame object of 3.10 has its parts, in words (`struct _frame` in Include/cpython/frameobject.h).
mod frame_3_10 {
    pub const CODE: usize = 4;
    pub const GLOBALS: usize = 6;
    pub const LOCALS: usize = 7;
    /// Where the calculation stack begins: behind the variables.
    pub const STACK: usize = 8;
    pub const VARIABLES: usize = 44;
}

/// As [`in_place`], for 3.10, where the frame object itself has the variables.
fn in_frame_object(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> (Variables, Parts) {
    use frame_3_10::*;
    let Some(code) = builtins.frame_code.get(frame) else {
        return Default::default();
    };
    // Unlike in later versions, an argument that inner functions use has a slot of either kind.
    let names: Vec<String> = [
        &builtins.code_varnames,
        &builtins.code_cellvars,
        &builtins.code_freevars,
    ]
    .into_iter()
    .filter_map(|part| part.get(&code))
    .flat_map(|names| texts_of(&names))
    .collect();
    let words = frame.as_ptr().cast::<usize>();
    // SAFETY: attached, so the frame does not move on. A frame object is larger than the parts read
    // first, which tell whether it is laid out as we take it for: the stack begins right behind as
    // many variables as there are names.
    unsafe {
        let stack = words.add(VARIABLES + names.len());
        if *words.add(CODE) != code.as_ptr() as usize || *words.add(STACK) != stack as usize {
            return Default::default();
        }
        let part = |word: usize| Some(*words.add(word)).filter(|&address| address != 0);
        let variables = names
            .into_iter()
            .enumerate()
            .filter_map(|(i, name)| Some((name, part(VARIABLES + i)?)))
            .collect();
        let parts = [("f_locals", LOCALS), ("f_globals", GLOBALS)]
            .into_iter()
            .filter_map(|(name, word)| Some((name, part(word)?)))
            .collect();
        (variables, parts)
    }
}

/// The names of threads, by number, as far as `threading` knows them.
pub fn thread_names(py: Python<'_>) -> Vec<(u64, String)> {
    let mut names = Vec::new();
    let Some(active) = imported(intern!(py, "threading"))
        .and_then(|threading| threading.get_item(intern!(py, "_active")).ok()?)
    else {
        return names;
    };
    dict_items(&active, &mut |number, thread| {
        // SAFETY: attached; reads or makes the object's own dict without asking its class.
        let attributes = unsafe {
            let dict = ffi::PyObject_GenericGetDict(thread.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_opt(py, dict)
        };
        let Some(attributes) = attributes else {
            // SAFETY: attached.
            unsafe { ffi::PyErr_Clear() };
            return true;
        };
        let name = find_item("_name", |f| dict_items(&attributes, f));
        if let (Some(number), Some(name)) =
            (int_value(number), name.and_then(|name| text_of(&name)))
        {
            names.push((number as u64, printable(&name)));
        }
        true
    });
    names
}

/// True for a file of this package: what runs there is our own call.
pub fn is_in_package(py: Python<'_>, file: &str) -> bool {
    let own = imported(intern!(py, "cyclescope"))
        .and_then(|own| find_item("__file__", |f| dict_items(own.as_any(), f)))
        .and_then(|own| text_of(&own));
    let folder = own
        .as_deref()
        .and_then(|own| own.strip_suffix("__init__.py"));
    folder.is_some_and(|folder| file.starts_with(folder))
}
