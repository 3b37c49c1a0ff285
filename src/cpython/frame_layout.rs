//! Where frames, and code objects with their variables' names, have their parts.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};

use super::descriptor::Descriptor;
use super::fields::{only_word, words};
use super::read::texts_of;

/// Where frames have their parts from 3.11 on, in words: `_PyInterpreterFrame` and `struct _frame`
/// (Include/internal/pycore_frame.h; from 3.14 on pycore_interpframe_structs.h), and `_PyGenObject_HEAD`
/// (same files).
///
/// Learnt from a suspended generator, in which such a structure is embedded, and from the frame of a
/// call that is over.
#[derive(Clone, Copy)]
pub struct FrameLayout {
    /// Which word of a frame object is the calling frame.
    pub(super) back: usize,
    /// Which word of a frame object is the address of the structure.
    pub(super) inner: usize,
    /// Where the structure begins in a suspended object.
    pub(super) in_suspended: usize,
    /// Where it begins in the frame object of a call that is over.
    pub(super) in_frame: usize,
    pub(super) code: usize,
    pub(super) function: usize,
    pub(super) globals: usize,
    pub(super) locals: usize,
    pub(super) frame_object: usize,
    pub(super) variables: usize,
    /// Which word is the address behind the last entry of the stack, which follows the variables; known from 3.14 on.
    pub(super) stack_top: Option<usize>,
}

/// The bits of a `_PyStackRef` that are no part of the address (Include/internal/pycore_stackref.h, from 3.14
/// on); in any other word these are zero.
pub(super) const TAG: usize = 3;

impl FrameLayout {
    /// `None` on 3.10, or if the parts are not where they are looked for.
    pub fn known(py: Python<'_>) -> PyResult<Option<Self>> {
        let made = PyDict::new(py);
        let program = cr"
import sys, types
def suspend(value):
    return value, value, (yield)
def complete(namespace, names):
    exec('import sys; frame = sys._getframe()', namespace, names)
    return names.pop('frame')
value, namespace, names = object(), {}, {}
generator = suspend(value)
next(generator)
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
        let untagged = |words: &[usize]| words.iter().map(|word| word & !TAG).collect::<Vec<_>>();
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
        let embedded = untagged(&of_generator[in_suspended..]);
        let part = |value: usize| only_word(&embedded, value);
        let function = address("suspend")?;
        let code = get("suspend")?.getattr("__code__")?.as_ptr() as usize;
        let own_globals = get("suspend")?.getattr("__globals__")?.as_ptr() as usize;
        // A call that is over has left all of this in its frame object.
        let of_completed = words(&completed)?;
        let Some(start) = within(of_completed, of_completed[inner]) else {
            return Ok(None);
        };
        let moved = untagged(&of_completed[start..]);
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
        let value = address("value")?;
        // SAFETY: a variable, and two entries of the stack, follow the part that all generators have.
        let slots = unsafe {
            let first = generator.as_ptr().cast::<usize>().add(of_generator.len());
            std::slice::from_raw_parts(first, 3)
        };
        let is_on_stack = slots[1..].iter().all(|slot| slot & !TAG == value);
        let stack_top = only_word(of_generator, slots.as_ptr_range().end as usize)
            .filter(|_| is_on_stack)
            .and_then(|word| word.checked_sub(in_suspended));
        let is_known = slots[0] & !TAG == value
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
            stack_top,
        }))
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
        // Its function refers to it.
        made.clear();
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
