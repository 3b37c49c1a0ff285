//! The frames that threads are in the midst of, and their variables.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList, PyTuple};

use super::builtins::Builtins;
use super::describe::{
    code_place, frame_facts, function_code, globals_named, passes_argument, qualname,
};
use super::fields::{only_word, words};
use super::inline_values::attribute;
use super::read::{
    dict_items, find_item, first_of_kind, imported, int_value, printable, referents, text_of,
    texts_of,
};
use super::{Descriptor, ObjectKind, Place, is_library_file};

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
/// `current_frames` is `sys._current_frames`. No frame is changed: the variables are read where the
/// interpreter has them.
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
    let inner = inner_frame(builtins, frame).unwrap_or_default();
    let parts = [
        ("f_locals", inner.locals),
        ("f_globals", inner.globals),
        ("f_func", inner.function),
    ];
    RunningFrame {
        thread,
        function,
        place,
        address: frame.as_ptr() as usize,
        variables: inner.variables,
        parts: parts
            .into_iter()
            .filter(|(_, address)| *address != 0)
            .collect(),
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
    let code = code_of_frame(builtins, frame);
    let instructions = code.and_then(|code| builtins.code_bytes.get(&code));
    let at = builtins.frame_last_instruction.get(frame);
    let at = at.and_then(|at| usize::try_from(int_value(&at)?).ok());
    let opcode = instructions.zip(at).and_then(|(instructions, at)| {
        let instructions = instructions.cast::<PyBytes>().ok()?;
        instructions.as_bytes().get(at).copied()
    });
    opcode.is_some_and(|opcode| opcodes.contains(&opcode))
}

/// Addresses of what a frame refers to, zero for what it has not got.
#[derive(Default)]
pub struct InnerFrame {
    pub function: usize,
    pub globals: usize,
    pub locals: usize,
    pub frame_object: usize,
    /// The calling frame, if the frame object refers to it.
    pub back: usize,
    pub variables: Variables,
}

/// What a frame refers to, read where the interpreter has it; `None` if that is not known.
pub fn inner_frame(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> Option<InnerFrame> {
    if builtins.frames_await {
        in_frame_object(builtins, frame)
    } else {
        builtins.frames?.of_frame(builtins, frame)
    }
}

/// The code of a frame. The getter `f_code`, which would tell the program's audit hooks, is the last resort.
pub fn code_of_frame<'py>(
    builtins: &Builtins,
    frame: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: attached, the object and its type are alive.
    if unsafe { builtins.kind(ffi::Py_TYPE(frame.as_ptr())) } != ObjectKind::Frame {
        return None;
    }
    if builtins.frames_await {
        return first_of_kind(builtins, frame, ObjectKind::Code);
    }
    let Some(layout) = builtins.frames else {
        return builtins.frame_code.get(frame);
    };
    let (code, _) = layout.checked(builtins, frame)?;
    // SAFETY: attached; the frame refers to its code.
    Some(unsafe { Bound::from_borrowed_ptr(frame.py(), code as *mut ffi::PyObject) })
}

/// Where frames have their parts from 3.11 on, in words: `_PyInterpreterFrame` and `struct _frame`
/// (Include/internal/pycore_frame.h; from 3.14 on pycore_interpframe_structs.h), and `_PyGenObject_HEAD`
/// (same files).
///
/// Learnt from a suspended generator, in which such a structure is embedded, and from the frame of a
/// call that is over.
#[derive(Clone, Copy)]
pub struct FrameLayout {
    /// Which word of a frame object is the calling frame.
    back: usize,
    /// Which word of a frame object is the address of the structure.
    inner: usize,
    /// Where the structure begins in a suspended object.
    in_suspended: usize,
    /// Where it begins in the frame object of a call that is over.
    in_frame: usize,
    code: usize,
    function: usize,
    globals: usize,
    locals: usize,
    frame_object: usize,
    variables: usize,
}

/// The bits of a `_PyStackRef` that are no part of the address (Include/internal/pycore_stackref.h, from 3.14
/// on); in any other word these are zero.
const TAG: usize = 3;

impl FrameLayout {
    /// `None` on 3.10, or if the parts are not where they are looked for.
    ///
    /// # Errors
    /// If what to learn from cannot be made.
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        let made = PyDict::new(py);
        let program = cr"
import sys, types
def suspend(value):
    yield
def complete(namespace, names):
    exec('import sys; frame = sys._getframe()', namespace, names)
    return names.pop('frame')
value, namespace, names = object(), {}, {}
generator = suspend(value)
suspended = generator.gi_frame
completed = complete(namespace, names)
back = completed.f_back
sizes = {t.__basicsize__ for t in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)}
";
        py.run(program, Some(&made), None)?;
        let layout = Self::learn(&made);
        made.clear();
        layout
    }

    fn learn(made: &Bound<'_, PyDict>) -> PyResult<Option<Self>> {
        let py = made.py();
        let get = |name: &str| made.as_any().get_item(name);
        if py.version_info() < (3, 11) || get("sizes")?.len()? != 1 {
            return Ok(None);
        }
        let address = |name: &str| PyResult::Ok(get(name)?.as_ptr() as usize);
        let (generator, suspended, completed) =
            (get("generator")?, get("suspended")?, get("completed")?);
        let (of_generator, of_frame) = (words(&generator)?, words(&suspended)?);
        // What is embedded ends where the variables begin (`PyGen_Type` in Objects/genobject.c).
        let within = |owner: &[usize], word: usize| {
            let offset = word.checked_sub(owner.as_ptr() as usize)? / size_of::<usize>();
            (offset > 1 && offset < owner.len()).then_some(offset)
        };
        let inner = of_frame
            .iter()
            .position(|&word| within(of_generator, word).is_some());
        let Some((inner, in_suspended)) =
            inner.and_then(|inner| Some((inner, within(of_generator, of_frame[inner])?)))
        else {
            return Ok(None);
        };
        let embedded: Vec<usize> = of_generator[in_suspended..]
            .iter()
            .map(|word| word & !TAG)
            .collect();
        let part = |value: usize| only_word(&embedded, value);
        let function = address("suspend")?;
        let code = get("suspend")?.getattr("__code__")?.as_ptr() as usize;
        let own_globals = get("suspend")?.getattr("__globals__")?.as_ptr() as usize;
        // A call that is over has left all of this in its frame object.
        let of_completed = words(&completed)?;
        let Some(start) = within(of_completed, of_completed[inner]) else {
            return Ok(None);
        };
        let moved: Vec<usize> = of_completed[start..]
            .iter()
            .map(|word| word & !TAG)
            .collect();
        let moved_code = completed.getattr("f_code")?.as_ptr() as usize;
        let found = (
            only_word(&of_completed[..inner], address("back")?),
            part(code),
            part(function),
            part(own_globals),
            part(suspended.as_ptr() as usize),
            only_word(&moved, address("names")?),
        );
        let (
            Some(back),
            Some(code),
            Some(function),
            Some(globals),
            Some(frame_object),
            Some(locals),
        ) = found
        else {
            return Ok(None);
        };
        let variables = embedded.len();
        // SAFETY: the generator has a variable, which follows the part that all generators have.
        let variable = unsafe { *generator.as_ptr().cast::<usize>().add(of_generator.len()) };
        let is_known = variable & !TAG == address("value")?
            && embedded.get(locals) == Some(&0)
            && moved.get(code) == Some(&moved_code)
            && moved.get(globals) == Some(&address("namespace")?)
            && moved.get(frame_object) == Some(&0);
        Ok(is_known.then_some(Self {
            back,
            inner,
            in_suspended,
            in_frame: start,
            code,
            function,
            globals,
            locals,
            frame_object,
            variables,
        }))
    }

    /// The address of a frame's code and that of the structure, if that is what it should be: it knows the
    /// frame object or is a part of it, and has the globals that `f_globals` returns.
    fn checked(
        &self,
        builtins: &Builtins,
        frame: &Bound<'_, PyAny>,
    ) -> Option<(usize, *const usize)> {
        let globals = builtins.frame_globals.get(frame)?;
        // SAFETY: attached, so the frame does not move on. The structure is alive as long as the frame
        // object: if the call ends first, it is moved there (`take_ownership` in Python/frame.c).
        unsafe {
            let inner = *frame.as_ptr().cast::<usize>().add(self.inner) as *const usize;
            if inner.is_null() || !inner.is_aligned() {
                return None;
            }
            let own = frame
                .as_ptr()
                .cast::<usize>()
                .add(self.in_frame)
                .cast_const();
            let linked = match *inner.add(self.frame_object) {
                0 => inner == own,
                object => object == frame.as_ptr() as usize,
            };
            let is_it = linked && *inner.add(self.globals) == globals.as_ptr() as usize;
            is_it.then(|| (*inner.add(self.code) & !TAG, inner))
        }
    }

    fn of_frame(&self, builtins: &Builtins, frame: &Bound<'_, PyAny>) -> Option<InnerFrame> {
        let (_, inner) = self.checked(builtins, frame)?;
        // SAFETY: the structure has been checked; the word before it is the frame object's own.
        unsafe {
            let mut read = self.read(builtins, frame.py(), inner);
            read.back = *frame.as_ptr().cast::<usize>().add(self.back);
            Some(read)
        }
    }

    /// What a generator, coroutine or asynchronous generator refers to, without making its frame object.
    ///
    /// `None` if it has come to its end. Else it refers to its function and its code, one after the other
    /// (`_PyFrame_Traverse` in Python/frame.c), and these are two words of the structure.
    pub fn of_suspended(
        &self,
        builtins: &Builtins,
        object: &Bound<'_, PyAny>,
    ) -> Option<InnerFrame> {
        // SAFETY: attached; every suspended object has the structure, up to the variables.
        unsafe {
            let inner = object
                .as_ptr()
                .cast::<usize>()
                .add(self.in_suspended)
                .cast_const();
            let pair = [self.function, self.code].map(|word| *inner.add(word) & !TAG);
            let is_it = referents(object).windows(2).any(|next| next == pair);
            is_it.then(|| self.read(builtins, object.py(), inner))
        }
    }

    /// # Safety
    /// The caller is attached, and `inner` is such a structure, with as many variables as its code has.
    unsafe fn read(&self, builtins: &Builtins, py: Python<'_>, inner: *const usize) -> InnerFrame {
        // SAFETY: by this function's contract.
        unsafe {
            let part = |word: usize| *inner.add(word) & !TAG;
            let code = Bound::from_borrowed_ptr(py, part(self.code) as *mut ffi::PyObject);
            InnerFrame {
                function: part(self.function),
                globals: part(self.globals),
                locals: part(self.locals),
                frame_object: part(self.frame_object),
                back: 0,
                variables: variable_names(builtins, &code)
                    .into_iter()
                    .enumerate()
                    .map(|(i, name)| (name, part(self.variables + i)))
                    .filter(|(_, address)| *address != 0)
                    .collect(),
            }
        }
    }
}

/// How the variables of a function are found in its code object.
pub enum VariableNames {
    /// `co_varnames`, `co_cellvars` and `co_freevars` are there (3.10).
    Stored([Descriptor; 3]),
    /// A word of the code object is the tuple of all, in the order of a frame's slots (`co_localsplusnames` in
    /// Include/cpython/code.h, from 3.11 on). `co_varnames` would make a tuple, and from 3.12 on keep it.
    InPlace {
        code_type: usize,
        word: usize,
    },
    Unknown,
}

impl VariableNames {
    /// # Errors
    /// If what to learn from cannot be made.
    pub fn known(py: Python<'_>) -> PyResult<Self> {
        let made = PyDict::new(py);
        let program = cr"
def around(free):
    def function(argument, cell):
        local = 0
        return lambda: (cell, free)
    return function
code = around(0).__code__
";
        py.run(program, Some(&made), None)?;
        let code = made.as_any().get_item("code")?;
        let ty = code.get_type();
        if py.version_info() < (3, 11) {
            let stored = |name| Descriptor::of(&ty, name);
            let [locals, cells, free] = ["co_varnames", "co_cellvars", "co_freevars"].map(stored);
            return Ok(Self::Stored([locals?, cells?, free?]));
        }
        // A copy has a new tuple, which the collector tracks and so can show. It untracks tuples when it
        // next runs, which it may do just here; hence the second and third try.
        let youngest = [("generation", 0)].into_py_dict(py)?;
        let get_objects = py.import("gc")?.getattr("get_objects")?;
        let renamed = [("co_name", "renamed")].into_py_dict(py)?;
        let replace = code.getattr("replace")?;
        for _ in 0..3 {
            let copy = replace.call((), Some(&renamed))?;
            let tracked = get_objects.call((), Some(&youngest))?;
            let code_words = words(&copy)?;
            let found = tracked.cast::<PyList>()?.iter().find_map(|it| {
                let names = it
                    .is_exact_instance_of::<PyTuple>()
                    .then(|| texts_of(&it))?;
                let is_it = names == ["argument", "cell", "local", "free"];
                is_it
                    .then(|| only_word(code_words, it.as_ptr() as usize))
                    .flatten()
            });
            if let Some(word) = found {
                let code_type = ty.as_ptr() as usize;
                return Ok(Self::InPlace { code_type, word });
            }
        }
        Ok(Self::Unknown)
    }
}

/// The variables of a function in the order of its frame's slots: its own, beginning with the arguments,
/// then further ones that inner functions use too, then those it has from functions around it.
pub fn variable_names(builtins: &Builtins, code: &Bound<'_, PyAny>) -> Vec<String> {
    match &builtins.variable_names {
        VariableNames::Stored(parts) => parts
            .iter()
            .filter_map(|part| part.get(code))
            .flat_map(|names| texts_of(&names))
            .collect(),
        VariableNames::InPlace { code_type, word }
            if *code_type == code.get_type().as_ptr() as usize =>
        {
            // SAFETY: attached; every code object has the tuple there, as `known` has seen.
            let names = unsafe {
                let names = *code.as_ptr().cast::<*mut ffi::PyObject>().add(*word);
                Bound::from_borrowed_ptr(code.py(), names)
            };
            texts_of(&names)
        }
        _ => Vec::new(),
    }
}

/// Where a frame object of 3.10 has its parts, in words (`struct _frame` in Include/cpython/frameobject.h).
mod frame_3_10 {
    pub const BACK: usize = 3;
    pub const CODE: usize = 4;
    pub const GLOBALS: usize = 6;
    pub const LOCALS: usize = 7;
    /// Where the calculation stack begins: behind the variables.
    pub const STACK: usize = 8;
    pub const VARIABLES: usize = 44;
}

/// As [`FrameLayout::of_frame`], for 3.10, where the frame object itself has the variables.
fn in_frame_object(builtins: &Builtins, frame: &Bound<'_, PyAny>) -> Option<InnerFrame> {
    use frame_3_10::*;
    let code = code_of_frame(builtins, frame)?;
    let names = variable_names(builtins, &code);
    let words = frame.as_ptr().cast::<usize>();
    // SAFETY: attached, so the frame does not move on. A frame object is larger than the parts read
    // first, which tell whether it is laid out as we take it for: the stack begins right behind as
    // many variables as there are names.
    unsafe {
        let stack = words.add(VARIABLES + names.len());
        if *words.add(CODE) != code.as_ptr() as usize || *words.add(STACK) != stack as usize {
            return None;
        }
        Some(InnerFrame {
            globals: *words.add(GLOBALS),
            locals: *words.add(LOCALS),
            back: *words.add(BACK),
            variables: names
                .into_iter()
                .enumerate()
                .map(|(i, name)| (name, *words.add(VARIABLES + i)))
                .filter(|(_, address)| *address != 0)
                .collect(),
            ..InnerFrame::default()
        })
    }
}

/// The function, running or called by name from one that is, whose code passes an argument of some name;
/// the program's own only.
pub fn who_passes_argument(
    py: Python<'_>,
    builtins: &Builtins,
    current_frames: &Py<PyAny>,
    argument: &str,
) -> Option<(String, Place)> {
    let by_thread = current_frames.bind(py).call0().ok()?;
    let mut found = None;
    dict_items(&by_thread, &mut |_, top| {
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
    });
    found
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
        let name = attribute(builtins, thread, "_name").and_then(|name| text_of(&name));
        if let (Some(number), Some(name)) = (int_value(number), name) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_suspended_generator_are_read_in_it() {
        Python::attach(|py| {
            let builtins = Builtins::new(py).expect("CPython has all of them");
            let since_3_11 = py.version_info() >= (3, 11);
            assert_eq!(builtins.frames.is_some(), since_3_11);
            let names = matches!(builtins.variable_names, VariableNames::InPlace { .. });
            assert_eq!(names, since_3_11);
            let made = py
                .eval(c"(it for it in [type])", None, None)
                .expect("it is valid");
            made.call_method0("__next__").expect("there is an item");
            let Some(layout) = builtins.frames else {
                return;
            };
            let inner = layout
                .of_suspended(&builtins, &made)
                .expect("it is suspended");
            let found = inner.variables.iter().find(|(name, _)| name == "it");
            assert_eq!(
                found.map(|(_, address)| *address),
                Some(py.get_type::<pyo3::types::PyType>().as_ptr() as usize)
            );
            assert_eq!(inner.frame_object, 0);
            assert!(made.call_method0("__next__").is_err());
            assert!(layout.of_suspended(&builtins, &made).is_none());
        });
    }
}
