//! The built-in types and their C descriptors, looked up once.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;

use super::ObjectKind;
use super::descriptor::{Descriptor, length_of};
use super::fields::MemberLayout;
use super::frame_layout::{FrameLayout, VariableNames};
use super::inline_values::AttributeLayout;

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
    /// Where instances have their attributes, from 3.11 on.
    pub attributes: Option<AttributeLayout>,
    /// Where frames and suspended objects have their variables, from 3.11 on.
    pub frames: Option<FrameLayout>,
    pub variable_names: VariableNames,
    pub type_qualname: Descriptor,
    pub type_module: Descriptor,
    pub type_mro: Descriptor,
    pub type_bases: Descriptor,
    pub type_base: Descriptor,
    pub type_dict: Descriptor,
    pub type_dictoffset: Descriptor,
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
    pub code_bytes: Descriptor,
    pub code_flags: Descriptor,
    pub cell_contents: Descriptor,
    pub method_function: Descriptor,
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
    pub builtin_self: Descriptor,
    pub builtin_name: Descriptor,
    pub module_dict: Descriptor,
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

impl Builtins {
    /// Looks everything up. Imports standard library modules, so not for the hot path.
    ///
    /// # Errors
    /// If the interpreter lacks one of the types or descriptors.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let types = py.import("types")?;
        let named = |module: &Bound<'_, PyModule>, name: &str| -> PyResult<Py<PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        let function = named(&types, "FunctionType")?;
        let method = named(&types, "MethodType")?;
        let code = named(&types, "CodeType")?;
        let cell = named(&types, "CellType")?;
        let frame = named(&types, "FrameType")?;
        let traceback = named(&types, "TracebackType")?;
        let generator = named(&types, "GeneratorType")?;
        let coroutine = named(&types, "CoroutineType")?;
        let async_generator = named(&types, "AsyncGeneratorType")?;
        let builtin = named(&types, "BuiltinFunctionType")?;
        let member_descriptor = named(&types, "MemberDescriptorType")?;
        let base = py.import("builtins")?;
        let exception = named(&base, "BaseException")?;
        let type_type = named(&base, "type")?;
        let partial = named(&py.import("functools")?, "partial")?;
        let deque = named(&py.import("collections")?, "deque")?;
        let weakref = py.import("weakref")?;

        let module = named(&types, "ModuleType")?;
        let set = named(&base, "set")?;
        let mut all: Vec<(Py<PyType>, ObjectKind)> = vec![
            (module.clone_ref(py), ObjectKind::Module),
            (set.clone_ref(py), ObjectKind::Set),
            (named(&base, "frozenset")?, ObjectKind::Set),
            (deque.clone_ref(py), ObjectKind::Deque),
            (partial.clone_ref(py), ObjectKind::Partial),
            (named(&weakref, "ReferenceType")?, ObjectKind::Weakref),
        ];
        for name in ["property", "staticmethod", "classmethod", "super"] {
            all.push((named(&base, name)?, ObjectKind::Descriptor));
        }
        let bases = all
            .iter()
            .map(|(ty, kind)| (ty.as_ptr() as usize, *kind))
            .collect();
        all.extend([
            (function.clone_ref(py), ObjectKind::Function),
            (method.clone_ref(py), ObjectKind::Method),
            (code.clone_ref(py), ObjectKind::Code),
            (cell.clone_ref(py), ObjectKind::Cell),
            (frame.clone_ref(py), ObjectKind::Frame),
            (traceback.clone_ref(py), ObjectKind::Traceback),
            (generator.clone_ref(py), ObjectKind::Generator),
            (coroutine.clone_ref(py), ObjectKind::Coroutine),
            (async_generator.clone_ref(py), ObjectKind::AsyncGenerator),
            (builtin.clone_ref(py), ObjectKind::BuiltinFunction),
        ]);
        for name in ["ProxyType", "CallableProxyType"] {
            all.push((named(&weakref, name)?, ObjectKind::Weakref));
        }
        for name in [
            "GetSetDescriptorType",
            "MethodDescriptorType",
            "WrapperDescriptorType",
        ] {
            all.push((named(&types, name)?, ObjectKind::Descriptor));
        }
        all.push((member_descriptor.clone_ref(py), ObjectKind::Descriptor));

        let members = MemberLayout::known(py)?;
        let of = |ty: &Py<PyType>, name: &str| {
            PyResult::Ok(Descriptor::of(ty.bind(py), name)?.in_place(py, members))
        };
        // Their getters would tell the program's audit hooks.
        let example = py.eval(c"lambda first=(), *, second=(): first", None, None)?;
        let of_function = |name| Descriptor::learnt(function.bind(py), name, &example);
        let suspended = |ty: &Py<PyType>, prefix: &str, awaited: &'static str| {
            PyResult::Ok(Suspended {
                frame: of(ty, &format!("{prefix}_frame"))?,
                qualname: of(ty, "__qualname__")?,
                awaited: (of(ty, awaited)?, awaited),
            })
        };
        Ok(Self {
            type_qualname: of(&type_type, "__qualname__")?,
            type_module: of(&type_type, "__module__")?,
            type_mro: of(&type_type, "__mro__")?,
            type_bases: of(&type_type, "__bases__")?,
            type_base: of(&type_type, "__base__")?,
            type_dict: of(&type_type, "__dict__")?,
            type_dictoffset: of(&type_type, "__dictoffset__")?,
            type_basicsize: of(&type_type, "__basicsize__")?,
            type_itemsize: of(&type_type, "__itemsize__")?,
            type_weakrefoffset: of(&type_type, "__weakrefoffset__")?,
            function_module: of(&function, "__module__")?,
            function_qualname: of(&function, "__qualname__")?,
            function_closure: of(&function, "__closure__")?,
            function_globals: of(&function, "__globals__")?,
            function_defaults: of_function("__defaults__")?,
            function_kwdefaults: of_function("__kwdefaults__")?,
            code_filename: of(&code, "co_filename")?,
            code_first_line: of(&code, "co_firstlineno")?,
            code_name: of(&code, "co_name")?,
            code_consts: of(&code, "co_consts")?,
            code_names: of(&code, "co_names")?,
            code_argcount: of(&code, "co_argcount")?,
            code_bytes: of(&code, "co_code")?,
            code_flags: of(&code, "co_flags")?,
            cell_contents: of(&cell, "cell_contents")?,
            method_function: of(&method, "__func__")?,
            frame_code: of(&frame, "f_code")?,
            frame_line: of(&frame, "f_lineno")?,
            frame_globals: of(&frame, "f_globals")?,
            frame_back: of(&frame, "f_back")?,
            frame_last_instruction: of(&frame, "f_lasti")?,
            traceback_next: of(&traceback, "tb_next")?,
            traceback_frame: of(&traceback, "tb_frame")?,
            traceback_line: of(&traceback, "tb_lineno")?,
            exception_traceback: of(&exception, "__traceback__")?,
            exception_context: of(&exception, "__context__")?,
            exception_cause: of(&exception, "__cause__")?,
            exception_args: of(&exception, "args")?,
            suspended: [
                suspended(&generator, "gi", "gi_yieldfrom")?,
                suspended(&coroutine, "cr", "cr_await")?,
                suspended(&async_generator, "ag", "ag_await")?,
            ],
            frames_await: py.version_info() < (3, 11),
            builtin_self: of(&builtin, "__self__")?,
            builtin_name: of(&builtin, "__name__")?,
            module_dict: of(&module, "__dict__")?,
            deque_length: length_of(deque.bind(py))?,
            bases,
            partial_function: of(&partial, "func")?,
            member_descriptor,
            members,
            attributes: AttributeLayout::known(py)?,
            frames: FrameLayout::known(py)?,
            variable_names: VariableNames::known(py)?,
            kinds: all
                .iter()
                .map(|(ty, kind)| (ty.as_ptr() as usize, *kind))
                .collect(),
            _types: all.into_iter().map(|(ty, _)| ty).collect(),
        })
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
