//! What is cyclescope's own.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashSet;

use crate::cpython::{Builtins, ObjectKind, dict_items, text_of};

/// cyclescope's own objects, which are never named as what keeps an object of the program alive: the
/// instances of its classes and its modules. (Its frames and threads are told by [`Live::find_frames`].)
pub(super) struct OwnObjects {
    types: FxHashSet<usize>,
    /// Modules and their dictionaries.
    namespaces: FxHashSet<usize>,
}

impl OwnObjects {
    pub fn of(py: Python<'_>, builtins: &Builtins) -> Self {
        let mut own = Self {
            types: FxHashSet::default(),
            namespaces: FxHashSet::default(),
        };
        // SAFETY: attached; the dict is borrowed from the interpreter.
        let modules = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) };
        let Some(modules) = modules else { return own };
        dict_items(&modules, &mut |name, module| {
            let is_own = text_of(name).is_some_and(|name| is_own_module(&name));
            if let (true, Ok(module)) = (is_own, module.cast::<PyModule>()) {
                let names = module.dict();
                own.namespaces.insert(module.as_ptr() as usize);
                own.namespaces.insert(names.as_ptr() as usize);
                dict_items(names.as_any(), &mut |_, value| {
                    if value.is_instance_of::<PyType>()
                        && builtins
                            .type_module
                            .get(value)
                            .and_then(|module| text_of(&module))
                            .is_some_and(|module| is_own_module(&module))
                    {
                        own.types.insert(value.as_ptr() as usize);
                    }
                    true
                });
            }
            true
        });
        own
    }

    #[inline]
    pub fn contains(&self, object: *mut ffi::PyObject, kind: ObjectKind) -> bool {
        match kind {
            ObjectKind::Instance => {
                // SAFETY: the caller is attached and the object alive.
                let ty = unsafe { ffi::Py_TYPE(object) };
                self.types.contains(&(ty as usize))
            }
            ObjectKind::Dict | ObjectKind::Module => self.namespaces.contains(&(object as usize)),
            _ => false,
        }
    }
}

pub(super) fn is_own_module(name: &str) -> bool {
    let rest = name.strip_prefix("cyclescope");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
