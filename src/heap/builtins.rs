//! The built-in types and their C descriptors, looked up once.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;

use super::ObjectKind;
use super::read::Descriptor;

/// Built-in types by kind, and the C descriptors through which their parts are read.
///
/// The descriptors are the built-in types' own, taken from their dictionaries, so a subclass
/// cannot get in between.
pub struct Builtins {
    kinds: FxHashMap<usize, ObjectKind>,
    /// Keeps the types of `kinds` alive, so that their addresses stay theirs.
    _types: Vec<Py<PyType>>,
    pub member_descriptor: Py<PyType>,
    /// What `f_locals` of a function's frame is: a dict, from 3.13 on a proxy.
    pub locals_proxy: Py<PyType>,
    pub type_qualname: Descriptor,
    pub type_module: Descriptor,
    pub type_mro: Descriptor,
    pub type_bases: Descriptor,
    pub type_base: Descriptor,
    pub type_dict: Descriptor,
    pub type_dictoffset: Descriptor,
    pub function_code: Descriptor,
    pub function_qualname: Descriptor,
    pub function_closure: Descriptor,
    pub function_defaults: Descriptor,
    pub function_kwdefaults: Descriptor,
    pub code_filename: Descriptor,
    pub code_first_line: Descriptor,
    pub code_name: Descriptor,
    pub code_varnames: Descriptor,
    pub code_argcount: Descriptor,
    pub code_freevars: Descriptor,
    pub code_cellvars: Descriptor,
    pub code_flags: Descriptor,
    pub cell_contents: Descriptor,
    pub method_function: Descriptor,
    pub frame_code: Descriptor,
    pub frame_line: Descriptor,
    pub frame_locals: Descriptor,
    pub frame_back: Descriptor,
    pub traceback_next: Descriptor,
    pub traceback_frame: Descriptor,
    pub traceback_line: Descriptor,
    pub exception_traceback: Descriptor,
    pub exception_context: Descriptor,
    pub exception_cause: Descriptor,
    pub exception_args: Descriptor,
    /// For generators, coroutines and asynchronous generators in turn: frame, code, qualified name.
    pub suspended: [[Descriptor; 3]; 3],
    pub builtin_self: Descriptor,
    pub partial_function: Descriptor,
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

        let locals_proxy = py
            .eval(
                c"(lambda: type(__import__('sys')._getframe().f_locals))()",
                None,
                None,
            )?
            .cast_into::<PyType>()?
            .unbind();

        let mut all: Vec<(Py<PyType>, ObjectKind)> = vec![
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
            (partial.clone_ref(py), ObjectKind::Partial),
            (deque, ObjectKind::Deque),
            (named(&types, "ModuleType")?, ObjectKind::Module),
            (named(&base, "set")?, ObjectKind::Set),
            (named(&base, "frozenset")?, ObjectKind::Set),
        ];
        for name in ["ReferenceType", "ProxyType", "CallableProxyType"] {
            all.push((named(&weakref, name)?, ObjectKind::Weakref));
        }
        for name in ["property", "staticmethod", "classmethod", "super"] {
            all.push((named(&base, name)?, ObjectKind::Descriptor));
        }
        for name in [
            "GetSetDescriptorType",
            "MethodDescriptorType",
            "WrapperDescriptorType",
        ] {
            all.push((named(&types, name)?, ObjectKind::Descriptor));
        }
        all.push((member_descriptor.clone_ref(py), ObjectKind::Descriptor));

        let of = |ty: &Py<PyType>, name: &str| Descriptor::of(ty.bind(py), name);
        let suspended = |ty: &Py<PyType>, prefix: &str| -> PyResult<[Descriptor; 3]> {
            Ok([
                of(ty, &format!("{prefix}_frame"))?,
                of(ty, &format!("{prefix}_code"))?,
                of(ty, "__qualname__")?,
            ])
        };
        Ok(Self {
            type_qualname: of(&type_type, "__qualname__")?,
            type_module: of(&type_type, "__module__")?,
            type_mro: of(&type_type, "__mro__")?,
            type_bases: of(&type_type, "__bases__")?,
            type_base: of(&type_type, "__base__")?,
            type_dict: of(&type_type, "__dict__")?,
            type_dictoffset: of(&type_type, "__dictoffset__")?,
            function_code: of(&function, "__code__")?,
            function_qualname: of(&function, "__qualname__")?,
            function_closure: of(&function, "__closure__")?,
            function_defaults: of(&function, "__defaults__")?,
            function_kwdefaults: of(&function, "__kwdefaults__")?,
            code_filename: of(&code, "co_filename")?,
            code_first_line: of(&code, "co_firstlineno")?,
            code_name: of(&code, "co_name")?,
            code_varnames: of(&code, "co_varnames")?,
            code_argcount: of(&code, "co_argcount")?,
            code_freevars: of(&code, "co_freevars")?,
            code_cellvars: of(&code, "co_cellvars")?,
            code_flags: of(&code, "co_flags")?,
            cell_contents: of(&cell, "cell_contents")?,
            method_function: of(&method, "__func__")?,
            frame_code: of(&frame, "f_code")?,
            frame_line: of(&frame, "f_lineno")?,
            frame_locals: of(&frame, "f_locals")?,
            frame_back: of(&frame, "f_back")?,
            traceback_next: of(&traceback, "tb_next")?,
            traceback_frame: of(&traceback, "tb_frame")?,
            traceback_line: of(&traceback, "tb_lineno")?,
            exception_traceback: of(&exception, "__traceback__")?,
            exception_context: of(&exception, "__context__")?,
            exception_cause: of(&exception, "__cause__")?,
            exception_args: of(&exception, "args")?,
            suspended: [
                suspended(&generator, "gi")?,
                suspended(&coroutine, "cr")?,
                suspended(&async_generator, "ag")?,
            ],
            builtin_self: of(&builtin, "__self__")?,
            partial_function: of(&partial, "func")?,
            member_descriptor,
            locals_proxy,
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
            ObjectKind::Instance
        }
    }
}
