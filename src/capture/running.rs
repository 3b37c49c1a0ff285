//! The frames that threads and greenlets are in the midst of.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyType};

use super::globals::{globals_named, passes_argument};
use super::places::{code_place, frame_facts, function_code, qualname};
use super::{Place, ReferenceName, is_library_file};
use crate::cpython::frames::{Variables, code_of_frame, inner_frame};
use crate::cpython::instances::attribute;
use crate::cpython::read::{dict_items, find_item, imported, int_value, printable, text_of};
use crate::cpython::stack::{KnownStacks, kept_on_stack};
use crate::cpython::{Builtins, CurrentFrames, Descriptor, class_items};

/// A function call that a thread is running.
pub struct RunningFrame {
    /// The number of the thread, as `threading.get_ident()` has it.
    pub thread: u64,
    pub function: String,
    /// The line that is being run.
    pub place: Option<Place>,
    /// Address of the frame object, which may be a part of the heap already.
    pub address: usize,
    /// The address of the generator or coroutine that runs, if it is one.
    pub suspended: usize,
    /// The address of the greenlet that is suspended in the call, if one is.
    pub greenlet: usize,
    /// The variables and what they hold, by address; those of inner functions too are cells.
    pub variables: Variables,
    /// What else the frame holds, with what it is called: its function, its namespaces, what is on its stack.
    pub parts: Vec<(ReferenceName, usize)>,
    /// The address of the function's code; 0 if it is not known.
    pub code: usize,
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
/// No frame is changed: the variables are read where the
/// interpreter has them. What is on the stacks takes a moment more.
pub fn running_frames(
    py: Python<'_>,
    builtins: &Builtins,
    current_frames: &CurrentFrames,
    with_stacks: bool,
) -> PyResult<Vec<RunningFrame>> {
    let mut frames = Vec::new();
    let mut known = KnownStacks::default();
    current_frames.for_each(py, &mut |thread, top| {
        let mut frame = Some(top.clone());
        while let Some(current) = frame {
            let mut read = read(builtins, &current, thread);
            if with_stacks {
                read.parts.extend(stack(builtins, &current, &mut known));
            }
            read.sets_attribute = current.is(top) && sets_attribute(builtins, top);
            frames.push(read);
            frame = builtins.frame_back.get(&current);
        }
        true
    })?;
    Ok(frames)
}

fn stack(
    builtins: &Builtins,
    frame: &Bound<'_, PyAny>,
    known: &mut KnownStacks,
) -> impl Iterator<Item = (ReferenceName, usize)> + use<> {
    let kept = kept_on_stack(builtins, frame, known).into_iter();
    kept.map(|address| (ReferenceName::Stack, address))
}

fn read(builtins: &Builtins, frame: &Bound<'_, PyAny>, thread: u64) -> RunningFrame {
    let (function, place) = frame_facts(builtins, frame);
    let inner = inner_frame(builtins, frame).unwrap_or_default();
    let attribute = |name: &str| ReferenceName::Attribute(name.to_owned());
    let parts = [
        (attribute("f_locals"), inner.locals),
        (attribute("f_globals"), inner.globals),
        (ReferenceName::Function, inner.function),
    ];
    RunningFrame {
        thread,
        function,
        place,
        address: frame.as_ptr() as usize,
        suspended: inner.suspended,
        greenlet: 0,
        variables: inner.variables,
        parts: parts
            .into_iter()
            .filter(|(_, address)| *address != 0)
            .collect(),
        code: code_of_frame(builtins, frame).map_or(0, |code| code.as_ptr() as usize),
        sets_attribute: false,
    }
}

/// The calls in which greenlets are suspended, the innermost of each first. `objects` are those that the collector
/// tracks.
pub fn suspended_frames(builtins: &Builtins, objects: &Bound<'_, PyList>) -> Vec<RunningFrame> {
    let mut frames = Vec::new();
    let mut known = KnownStacks::default();
    let Some((class, frame_of)) = greenlets(builtins, objects.py()) else {
        return frames;
    };
    let class = class.as_ptr().cast();
    // SAFETY: attached; the type of a live object is alive, and so is the class.
    let is_greenlet = |object: &Bound<'_, PyAny>| unsafe {
        ffi::PyType_IsSubtype(ffi::Py_TYPE(object.as_ptr()), class) != 0
    };
    for greenlet in objects.iter().filter(is_greenlet) {
        let mut frame = frame_of.get(&greenlet);
        while let Some(current) = frame {
            let mut read = read(builtins, &current, 0);
            read.parts.extend(stack(builtins, &current, &mut known));
            read.greenlet = greenlet.as_ptr() as usize;
            frames.push(read);
            frame = builtins.frame_back.get(&current);
        }
    }
    frames
}

/// The class of greenlets, and how the innermost frame of one is read, if the program has imported it.
fn greenlets<'py>(builtins: &Builtins, py: Python<'py>) -> Option<(Bound<'py, PyAny>, Descriptor)> {
    let module = imported(intern!(py, "greenlet"))?;
    let part = |name: &str| find_item(name, |f| dict_items(module.as_any(), f));
    let version = text_of(&part("__version__")?)?;
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let version: (u32, u32) = (numbers.next()?, numbers.next()?);
    // From CPython 3.12 on, earlier ones have calling frames that are gone.
    if py.version_info() >= (3, 12) && version < (3, 1) {
        return None;
    }
    let class = part("greenlet").filter(|class| class.is_instance_of::<PyType>())?;
    let frame = find_item("gr_frame", |f| class_items(builtins, &class, f))?;
    // In C, and so none of the program's own.
    let is_native = frame.get_type().as_type_ptr() == &raw mut ffi::PyGetSetDescr_Type;
    let frame = is_native.then(|| Descriptor::new(&frame))??;
    Some((class, frame))
}

/// True if the Python code that called into this module did so with `*arguments`, and if that is not known: the instruction
/// is `CALL_FUNCTION_EX` then.
pub fn may_call_with_star(py: Python<'_>, builtins: &Builtins) -> bool {
    let version = py.version_info();
    let opcode = match (version.major, version.minor) {
        (3, ..=12) => 142,
        (3, 13) => 54,
        (3, 14 | 15) => 4,
        _ => return true,
    };
    // SAFETY: attached; the frame is borrowed from the interpreter, in which it runs as long as this call.
    let frame = unsafe {
        let frame = ffi::PyEval_GetFrame().cast::<ffi::PyObject>();
        Bound::from_borrowed_ptr_or_opt(py, frame)
    };
    let runs = frame.and_then(|frame| opcode_of(builtins, &frame));
    runs.is_none_or(|it| it == opcode)
}

/// True if the instruction that a frame runs is `STORE_ATTR` or `DELETE_ATTR` (Include/opcode.h, from 3.14 on
/// opcode_ids.h); not known of versions after 3.15.
fn sets_attribute(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> bool {
    let version = frame.py().version_info();
    let opcodes = match (version.major, version.minor) {
        (3, ..=12) => [95, 96],
        (3, 13) => [108, 63],
        (3, 14) => [110, 61],
        (3, 15) => [109, 59],
        _ => return false,
    };
    opcode_of(builtins, frame).is_some_and(|opcode| opcodes.contains(&opcode))
}

/// The instruction that a frame runs.
fn opcode_of(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> Option<u8> {
    let instructions = builtins.code_bytes.get(&code_of_frame(builtins, frame)?)?;
    let at = int_value(&builtins.frame_last_instruction.get(frame)?)?;
    let instructions = instructions.cast::<PyBytes>().ok()?;
    let at = usize::try_from(at).ok()?;
    instructions.as_bytes().get(at).copied()
}

/// The function, running or called by name from one that is, whose code passes an argument of some name;
/// the program's own only.
pub fn who_passes_argument(
    py: Python<'_>,
    builtins: &Builtins,
    current_frames: &CurrentFrames,
    argument: &str,
) -> Option<(String, Place)> {
    let mut found = None;
    let visit = &mut |_, top: &Bound<'_, PyAny>| {
        let mut frame = Some(top.clone());
        while let (Some(current), None) = (frame.take(), &found) {
            let code = code_of_frame(builtins, &current);
            let place = code.as_ref().and_then(|code| code_place(builtins, code));
            let is_own = place.is_some_and(|place| {
                !is_in_package(py, &place.file) && !is_library_file(&place.file)
            });
            if let (Some(code), true) = (code, is_own) {
                let globals = builtins.frame_globals.get(&current);
                let called = globals.map_or_else(Vec::new, |globals| {
                    let named = globals_named(builtins, &code, &globals);
                    named
                        .iter()
                        .filter_map(|it| function_code(builtins, it))
                        .collect()
                });
                found = std::iter::once(code)
                    .chain(called)
                    .find(|code| passes_argument(builtins, code, argument))
                    .and_then(|code| {
                        let place = code_place(builtins, &code)?;
                        Some((qualname(&builtins.code_name, &code), place))
                    });
            }
            frame = builtins.frame_back.get(&current);
        }
        found.is_none()
    };
    current_frames.for_each(py, visit).ok()?;
    found
}

/// The code of all running functions.
pub(super) fn running_codes<'py>(
    py: Python<'py>,
    builtins: &Builtins,
    current_frames: &CurrentFrames,
) -> Vec<Bound<'py, PyAny>> {
    let mut found = Vec::new();
    let visit = &mut |_, top: &Bound<'py, PyAny>| {
        let mut frame = Some(top.clone());
        while let Some(current) = frame.take() {
            found.extend(code_of_frame(builtins, &current));
            frame = builtins.frame_back.get(&current);
        }
        true
    };
    match current_frames.for_each(py, visit) {
        Ok(()) => found,
        Err(_) => Vec::new(),
    }
}

/// The names of threads, by number, as far as `threading` knows them.
pub fn thread_names(py: Python<'_>, builtins: &Builtins) -> Vec<(u64, String)> {
    let mut names = Vec::new();
    let Some(active) = imported(intern!(py, "threading"))
        .and_then(|threading| threading.get_item(intern!(py, "_active")).ok()?)
    else {
        return names;
    };
    dict_items(&active, &mut |number, thread| {
        let name = attribute(&builtins.instances, thread, "_name").and_then(|name| text_of(&name));
        if let (Some(number), Some(name)) = (int_value(number), name) {
            names.push((number as u64, printable(&name)));
        }
        true
    });
    names
}

/// True for a file of this package: what runs there is our own call.
pub fn is_in_package(py: Python<'_>, file: &str) -> bool {
    file == INJECTED || package_folder(py).is_some_and(|folder| file.starts_with(&folder))
}

/// The file name of the code that `cyclescope attach` runs in another process (`_attach/request.py`).
const INJECTED: &str = "<cyclescope>";

/// The folder of the package itself, with a slash at its end.
pub(super) fn package_folder(py: Python<'_>) -> Option<String> {
    let own = imported(intern!(py, "cyclescope"))
        .and_then(|own| find_item("__file__", |f| dict_items(own.as_any(), f)))
        .and_then(|own| text_of(&own));
    own?.strip_suffix("__init__.py").map(str::to_owned)
}
