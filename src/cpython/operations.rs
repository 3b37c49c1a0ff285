//! What the operation codes of the running interpreter mean.

use pyo3::prelude::*;

use super::read::{is_untrue, items};

/// What an operation code means in the running interpreter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Skip,
    Extended,
    Load,
    LoadTwo,
    /// Of a variable that inner functions share.
    LoadShared,
    Store,
    StoreAndLoad,
    StoreTwo,
    StoreShared,
    StoreGlobal,
    Global,
    Constant,
    /// One of those that all code objects share.
    CommonConstant,
    /// The names of the last arguments of the call that follows; elsewhere they are a constant.
    Keywords,
    Attribute,
    Method,
    SuperAttribute,
    SetAttribute,
    SetItem,
    Build,
    /// As `Build`, whatever its argument.
    Extend,
    MakeFunction,
    Call,
    Drop,
    Leave,
    Other,
}

/// The operation codes of the running interpreter, which differ from version to version (`Lib/opcode.py`).
pub struct Operations {
    pub by_code: Vec<Operation>,
    /// Which of the constants that all code objects share are not true.
    pub untrue: Vec<usize>,
    /// (3, 11) and so on.
    pub version: (u8, u8),
}

impl Operations {
    /// Reads them from the module `opcode`.
    ///
    /// # Errors
    /// If the interpreter has no such module.
    pub fn known(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("opcode")?;
        let names = module.getattr("opmap")?;
        let mut by_code = vec![Operation::Other; 256];
        for item in names.call_method0("items")?.try_iter()? {
            let (name, code): (String, usize) = item?.extract()?;
            if let Some(operation) = by_code.get_mut(code) {
                *operation = meaning(&name);
            }
        }
        let common = module.getattr("_common_constants").ok();
        let common: Vec<Bound<'_, PyAny>> = common.map_or_else(Vec::new, |it| items(&it));
        let untrue = common.iter().enumerate().filter(|(_, it)| is_untrue(it));
        let version = py.version_info();
        Ok(Self {
            by_code,
            untrue: untrue.map(|(index, _)| index).collect(),
            version: (version.major, version.minor),
        })
    }
}

fn meaning(name: &str) -> Operation {
    match name {
        "CACHE" | "NOP" | "RESUME" | "PRECALL" | "PUSH_NULL" | "MAKE_CELL" | "COPY_FREE_VARS"
        | "NOT_TAKEN" => Operation::Skip,
        "KW_NAMES" => Operation::Keywords,
        "LOAD_COMMON_CONSTANT" => Operation::CommonConstant,
        "EXTENDED_ARG" => Operation::Extended,
        "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_FAST_BORROW" | "LOAD_FAST_AND_CLEAR" => {
            Operation::Load
        }
        "LOAD_FAST_LOAD_FAST" | "LOAD_FAST_BORROW_LOAD_FAST_BORROW" => Operation::LoadTwo,
        "LOAD_DEREF" | "LOAD_CLOSURE" | "LOAD_CLASSDEREF" => Operation::LoadShared,
        "STORE_FAST" => Operation::Store,
        "STORE_FAST_LOAD_FAST" => Operation::StoreAndLoad,
        "STORE_FAST_STORE_FAST" => Operation::StoreTwo,
        "STORE_DEREF" => Operation::StoreShared,
        "STORE_GLOBAL" | "STORE_NAME" => Operation::StoreGlobal,
        "LOAD_GLOBAL" => Operation::Global,
        "LOAD_CONST" => Operation::Constant,
        "LOAD_ATTR" => Operation::Attribute,
        "LOAD_METHOD" => Operation::Method,
        "LOAD_SUPER_ATTR" => Operation::SuperAttribute,
        "STORE_ATTR" => Operation::SetAttribute,
        "STORE_SUBSCR" => Operation::SetItem,
        "BUILD_LIST" | "BUILD_TUPLE" | "BUILD_SET" | "BUILD_MAP" | "BUILD_CONST_KEY_MAP" => {
            Operation::Build
        }
        "LIST_APPEND" | "SET_ADD" | "MAP_ADD" => Operation::Extend,
        "MAKE_FUNCTION" => Operation::MakeFunction,
        "POP_TOP" => Operation::Drop,
        "RETURN_VALUE" | "RETURN_CONST" | "RAISE_VARARGS" | "RERAISE" => Operation::Leave,
        _ if name.starts_with("CALL") && !name.starts_with("CALL_INTRINSIC") => Operation::Call,
        _ => Operation::Other,
    }
}
