//! The built-in types and their C descriptors, looked up once.

use std::rc::Rc;

use pyo3::exceptions::{PyAttributeError, PyImportError, PyLookupError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;

use super::ObjectKind;
use super::descriptor::{Descriptor, length_of};
use super::fields::MemberLayout;
use super::frame_layout::{FrameLayout, VariableNames};
use super::instances::Instances;
use super::operations::Operations;
use super::stack_effects::StackEffects;

/// Built-in types by kind, and the C descriptors through which their parts are read.
///
/// The descriptors are the built-in types' own, taken from their dictionaries, so a subclass
/// cannot get in between.
pub struct Builtins {
    kinds: FxHashMap<usize, ObjectKind>,
    /// Those of them that a class may derive from and that no type flag tells.
    bases: Vec<(usize, ObjectKind)>,
    /// Keeps the types of `kinds` alive, so that their addresses stay theirs.
    _types: Vec<Py<PyType>>,
    pub member_descriptor: Py<PyType>,
    /// Where member descriptors say which part of an object they stand for.
    pub members: Option<MemberLayout>,
    pub instances: Rc<Instances>,
    /// Where frames and suspended objects have their variables, from 3.11 on.
    pub frames: Option<FrameLayout>,
    pub variable_names: VariableNames,
    /// What the instructions of code mean; `None` where the interpreter does not say.
    pub operations: Option<Operations>,
    /// What they do to the stack; `None` as for those.
    pub stack_effects: Option<StackEffects>,
    pub type_qualname: Descriptor,
    pub type_module: Descriptor,
    pub type_mro: Descriptor,
    pub type_bases: Descriptor,
    pub type_base: Descriptor,
    pub type_dict: Descriptor,
    pub type_basicsize: Descriptor,
    pub type_itemsize: Descriptor,
    pub type_weakrefoffset: Descriptor,
    pub function_module: Descriptor,
    pub function_qualname: Descriptor,
    pub function_closure: Descriptor,
    pub function_globals: Descriptor,
    pub function_defaults: Descriptor,
    pub function_kwdefaults: Descriptor,
    pub code_filename: Descriptor,
    pub code_first_line: Descriptor,
    pub code_name: Descriptor,
    pub code_consts: Descriptor,
    pub code_names: Descriptor,
    pub code_argcount: Descriptor,
    pub code_kwonlyargcount: Descriptor,
    pub code_nlocals: Descriptor,
    pub code_bytes: Descriptor,
    pub code_flags: Descriptor,
    pub code_stacksize: Descriptor,
    /// From 3.11 on.
    pub code_exception_table: Option<Descriptor>,
    pub cell_contents: Descriptor,
    pub method_function: Descriptor,
    pub method_self: Descriptor,
    pub frame_code: Descriptor,
    pub frame_line: Descriptor,
    pub frame_globals: Descriptor,
    pub frame_back: Descriptor,
    pub frame_last_instruction: Descriptor,
    pub traceback_next: Descriptor,
    pub traceback_frame: Descriptor,
    pub traceback_line: Descriptor,
    pub exception_traceback: Descriptor,
    pub exception_context: Descriptor,
    pub exception_cause: Descriptor,
    pub exception_args: Descriptor,
    /// For generators, coroutines and asynchronous generators in turn.
    pub suspended: [Suspended; 3],
    /// Up to 3.10 it is the frame, not the suspended object, that refers to what is awaited.
    pub frames_await: bool,
    /// From 3.14 on the stack of a suspended object has references that no count has.
    pub frames_borrow: bool,
    pub builtin_self: Descriptor,
    pub builtin_name: Descriptor,
    pub module_dict: Descriptor,
    pub deque_limit: Descriptor,
    /// How many items a deque has.
    pub deque_length: ffi::lenfunc,
    pub partial_function: Descriptor,
}

/// How the parts of a suspended object are read.
pub struct Suspended {
    /// Creates the frame object, from 3.11 on.
    pub frame: Descriptor,
    pub qualname: Descriptor,
    /// What it waits for, and the name of the attribute that says so.
    pub awaited: (Descriptor, &'static str),
}

/// The types whose parts are read.
struct Types {
    function: Py<PyType>,
    method: Py<PyType>,
    code: Py<PyType>,
    cell: Py<PyType>,
    frame: Py<PyType>,
    traceback: Py<PyType>,
    generator: Py<PyType>,
    coroutine: Py<PyType>,
    async_generator: Py<PyType>,
    builtin: Py<PyType>,
    member_descriptor: Py<PyType>,
    module: Py<PyType>,
    exception: Py<PyType>,
    class: Py<PyType>,
    partial: Py<PyType>,
    deque: Py<PyType>,
}

/// Types with what their objects are.
type Kinds = Vec<(Py<PyType>, ObjectKind)>;

fn named(module: &Bound<'_, PyModule>, name: &str) -> PyResult<Py<PyType>> {
    Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
}

impl Types {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let types = py.import("types")?;
        let base = py.import("builtins")?;
        Ok(Self {
            function: named(&types, "FunctionType")?,
            method: named(&types, "MethodType")?,
            code: named(&types, "CodeType")?,
            cell: named(&types, "CellType")?,
            frame: named(&types, "FrameType")?,
            traceback: named(&types, "TracebackType")?,
            generator: named(&types, "GeneratorType")?,
            coroutine: named(&types, "CoroutineType")?,
            async_generator: named(&types, "AsyncGeneratorType")?,
            builtin: named(&types, "BuiltinFunctionType")?,
            member_descriptor: named(&types, "MemberDescriptorType")?,
            module: named(&types, "ModuleType")?,
            exception: named(&base, "BaseException")?,
            class: named(&base, "type")?,
            partial: named(&py.import("functools")?, "partial")?,
            deque: named(&py.import("collections")?, "deque")?,
        })
    }

    /// What objects of built-in types are, and by address those types among them that a class may derive from
    /// and that no type flag tells.
    fn kinds(&self, py: Python<'_>) -> PyResult<(Kinds, Vec<(usize, ObjectKind)>)> {
        use ObjectKind::{
            AsyncGenerator, BuiltinFunction, Cell, Code, Coroutine, Deque, Descriptor, Frame,
            Function, Generator, Method, Module, Partial, Set, Traceback, Weakref,
        };
        let base = py.import("builtins")?;
        let weakref = py.import("weakref")?;
        let mut all: Kinds = vec![
            (self.module.clone_ref(py), Module),
            (named(&base, "set")?, Set),
            (named(&base, "frozenset")?, Set),
            (self.deque.clone_ref(py), Deque),
            (self.partial.clone_ref(py), Partial),
            (named(&weakref, "ReferenceType")?, Weakref),
        ];
        for name in ["property", "staticmethod", "classmethod", "super"] {
            all.push((named(&base, name)?, Descriptor));
        }
        let bases = all.iter().map(|(ty, kind)| (ty.as_ptr() as usize, *kind));
        let bases = bases.collect();
        let final_types = [
            (&self.function, Function),
            (&self.method, Method),
            (&self.code, Code),
            (&self.cell, Cell),
            (&self.frame, Frame),
            (&self.traceback, Traceback),
            (&self.generator, Generator),
            (&self.coroutine, Coroutine),
            (&self.async_generator, AsyncGenerator),
            (&self.builtin, BuiltinFunction),
            (&self.member_descriptor, Descriptor),
        ];
        all.extend(final_types.map(|(ty, kind)| (ty.clone_ref(py), kind)));
        for name in ["ProxyType", "CallableProxyType"] {
            all.push((named(&weakref, name)?, Weakref));
        }
        let types = py.import("types")?;
        for name in [
            "GetSetDescriptorType",
            "MethodDescriptorType",
            "WrapperDescriptorType",
        ] {
            all.push((named(&types, name)?, Descriptor));
        }
        Ok((all, bases))
    }

    /// How to read generators, coroutines and asynchronous generators; `of` finds a descriptor of a type.
    fn suspended(
        &self,
        of: &dyn Fn(&Py<PyType>, &str) -> PyResult<Descriptor>,
    ) -> PyResult<[Suspended; 3]> {
        let suspended = |ty: &Py<PyType>, prefix: &str, awaited: &'static str| {
            PyResult::Ok(Suspended {
                frame: of(ty, &format!("{prefix}_frame"))?,
                qualname: of(ty, "__qualname__")?,
                awaited: (of(ty, awaited)?, awaited),
            })
        };
        Ok([
            suspended(&self.generator, "gi", "gi_yieldfrom")?,
            suspended(&self.coroutine, "cr", "cr_await")?,
            suspended(&self.async_generator, "ag", "ag_await")?,
        ])
    }
}

impl Builtins {
    /// Looks everything up. Imports standard library modules, so not for the hot path.
    ///
    /// # Errors
    /// If the interpreter lacks one of the types or descriptors.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let types = Types::new(py)?;
        let (all, bases) = types.kinds(py)?;
        let members = MemberLayout::known(py)?;
        let of = |ty: &Py<PyType>, name: &str| {
            PyResult::Ok(Descriptor::of(ty.bind(py), name)?.in_place(py, members))
        };
        // Their getters would tell the program's audit hooks.
        let example = py.eval(c"lambda first=(), *, second=(): first", None, None)?;
        let of_function = |name| Descriptor::learnt(types.function.bind(py), name, &example);
        Ok(Self {
            type_qualname: of(&types.class, "__qualname__")?,
            type_module: of(&types.class, "__module__")?,
            type_mro: of(&types.class, "__mro__")?,
            type_bases: of(&types.class, "__bases__")?,
            type_base: of(&types.class, "__base__")?,
            type_dict: of(&types.class, "__dict__")?,
            type_basicsize: of(&types.class, "__basicsize__")?,
            type_itemsize: of(&types.class, "__itemsize__")?,
            type_weakrefoffset: of(&types.class, "__weakrefoffset__")?,
            function_module: of(&types.function, "__module__")?,
            function_qualname: of(&types.function, "__qualname__")?,
            function_closure: of(&types.function, "__closure__")?,
            function_globals: of(&types.function, "__globals__")?,
            function_defaults: of_function("__defaults__")?,
            function_kwdefaults: of_function("__kwdefaults__")?,
            code_filename: of(&types.code, "co_filename")?,
            code_first_line: of(&types.code, "co_firstlineno")?,
            code_name: of(&types.code, "co_name")?,
            code_consts: of(&types.code, "co_consts")?,
            code_names: of(&types.code, "co_names")?,
            code_argcount: of(&types.code, "co_argcount")?,
            code_kwonlyargcount: of(&types.code, "co_kwonlyargcount")?,
            code_nlocals: of(&types.code, "co_nlocals")?,
            code_bytes: of(&types.code, "co_code")?,
            code_flags: of(&types.code, "co_flags")?,
            code_stacksize: of(&types.code, "co_stacksize")?,
            code_exception_table: of(&types.code, "co_exceptiontable").ok(),
            cell_contents: of(&types.cell, "cell_contents")?,
            method_function: of(&types.method, "__func__")?,
            method_self: of(&types.method, "__self__")?,
            frame_code: of(&types.frame, "f_code")?,
            frame_line: of(&types.frame, "f_lineno")?,
            frame_globals: of(&types.frame, "f_globals")?,
            frame_back: of(&types.frame, "f_back")?,
            frame_last_instruction: of(&types.frame, "f_lasti")?,
            traceback_next: of(&types.traceback, "tb_next")?,
            traceback_frame: of(&types.traceback, "tb_frame")?,
            traceback_line: of(&types.traceback, "tb_lineno")?,
            exception_traceback: of(&types.exception, "__traceback__")?,
            exception_context: of(&types.exception, "__context__")?,
            exception_cause: of(&types.exception, "__cause__")?,
            exception_args: of(&types.exception, "args")?,
            suspended: types.suspended(&of)?,
            frames_await: py.version_info() < (3, 11),
            frames_borrow: py.version_info() >= (3, 14),
            builtin_self: of(&types.builtin, "__self__")?,
            builtin_name: of(&types.builtin, "__name__")?,
            module_dict: of(&types.module, "__dict__")?,
            deque_limit: of(&types.deque, "maxlen")?,
            deque_length: length_of(types.deque.bind(py))?,
            bases,
            partial_function: of(&types.partial, "func")?,
            member_descriptor: types.member_descriptor,
            members,
            instances: Rc::new(Instances::new(py)?),
            frames: FrameLayout::known(py)?,
            variable_names: VariableNames::known(py)?,
            operations: told(py, Operations::known(py))?,
            stack_effects: told(py, StackEffects::known(py))?.flatten(),
            kinds: all
                .iter()
                .map(|(ty, kind)| (ty.as_ptr() as usize, *kind))
                .collect(),
            _types: all.into_iter().map(|(ty, _)| ty).collect(),
        })
    }

    /// What objects of a built-in type are; `None` for other types.
    pub fn built_in_kind(&self, ty: usize) -> Option<ObjectKind> {
        self.kinds.get(&ty).copied()
    }

    /// What objects of a type are.
    ///
    /// # Safety
    /// `ty` is a live type and the caller is attached to the interpreter.
    pub unsafe fn kind(&self, ty: *mut ffi::PyTypeObject) -> ObjectKind {
        if let Some(&kind) = self.kinds.get(&(ty as usize)) {
            return kind;
        }
        // SAFETY: by this function's contract. The flags say what a type derives from without
        // asking it (Include/object.h, Py_TPFLAGS_*_SUBCLASS).
        let flags = unsafe { ffi::PyType_GetFlags(ty) };
        let derives = |flag| flags & flag != 0;
        if derives(ffi::Py_TPFLAGS_TYPE_SUBCLASS) {
            ObjectKind::Class
        } else if derives(ffi::Py_TPFLAGS_DICT_SUBCLASS) {
            ObjectKind::Dict
        } else if derives(ffi::Py_TPFLAGS_LIST_SUBCLASS) {
            ObjectKind::List
        } else if derives(ffi::Py_TPFLAGS_TUPLE_SUBCLASS) {
            ObjectKind::Tuple
        } else if derives(ffi::Py_TPFLAGS_BASE_EXC_SUBCLASS) {
            ObjectKind::Exception
        } else if let Some(layout) = self.instances.layout
            // SAFETY: by this function's contract.
            && unsafe { layout.tells_all_of(ty) }
        {
            // Its objects would refer to more if it derived from any of those below.
            ObjectKind::Instance
        } else {
            // SAFETY: by this function's contract; walks the type's own `tp_mro`.
            let derived = |base: usize| unsafe { ffi::PyType_IsSubtype(ty, base as *mut _) != 0 };
            self.bases
                .iter()
                .find(|(base, _)| derived(*base))
                .map_or(ObjectKind::Instance, |(_, kind)| *kind)
        }
    }
}

/// What the module `opcode` tells, or `None` if it tells it otherwise than CPython's does. What else was raised goes
/// on: the module's import runs Python code, between whose instructions signal handlers run.
fn told<T>(py: Python<'_>, known: PyResult<T>) -> PyResult<Option<T>> {
    let differs = |error: &PyErr| {
        error.is_instance_of::<PyImportError>(py)
            || error.is_instance_of::<PyAttributeError>(py)
            || error.is_instance_of::<PyLookupError>(py)
            || error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyValueError>(py)
    };
    match known {
        Err(error) if differs(&error) => Ok(None),
        known => known.map(Some),
    }
}
