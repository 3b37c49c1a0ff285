//! Which objects are read in their memory, and not through `tp_traverse`.

use pyo3::ffi;
use pyo3::prelude::*;

use super::ObjectKind;
use super::builtins::Builtins;
use super::fields::{CellLayout, FunctionLayout, TupleLayout};
use super::inline_values::AttributeLayout;
use super::list::ListLayout;

/// Which objects have memory that [`Layouts`] may know: those of a built-in type, not of
/// one that derives from it, and instances of most classes made in Python.
#[derive(Clone, Copy, PartialEq)]
pub enum Form {
    List,
    Tuple,
    Function,
    Cell,
    Instance,
    Other,
}

impl Form {
    /// # Safety
    /// The caller is attached to the interpreter, and `ty` is a live type.
    pub unsafe fn of(ty: *mut ffi::PyTypeObject, kind: ObjectKind, builtins: &Builtins) -> Self {
        // SAFETY: by this function's contract.
        let is_known = |layout: AttributeLayout| unsafe { layout.tells_all_of(ty) };
        match kind {
            // No class can derive from these.
            ObjectKind::Function => Self::Function,
            ObjectKind::Cell => Self::Cell,
            _ if ty == &raw mut ffi::PyList_Type => Self::List,
            _ if ty == &raw mut ffi::PyTuple_Type => Self::Tuple,
            ObjectKind::Instance if builtins.instances.layout.is_some_and(is_known) => {
                Self::Instance
            }
            _ => Self::Other,
        }
    }
}

/// What is known of the memory of built-in types whose objects are much of all garbage: to read it takes
/// less time than to call `tp_traverse`, which calls back for each reference. `None` where an
/// interpreter lays the objects out otherwise.
#[derive(Clone, Copy)]
pub struct Layouts {
    pub lists: Option<ListLayout>,
    pub tuples: Option<TupleLayout>,
    pub functions: Option<FunctionLayout>,
    pub cells: Option<CellLayout>,
    pub instances: Option<AttributeLayout>,
}

impl Layouts {
    /// # Errors
    /// If memory runs out, or a signal handler raises an exception meanwhile.
    pub fn known(py: Python<'_>, builtins: &Builtins) -> PyResult<Self> {
        Ok(Self {
            lists: ListLayout::known(py),
            tuples: TupleLayout::known(py)?,
            functions: FunctionLayout::known(py)?,
            cells: CellLayout::known(py)?,
            instances: builtins.instances.layout,
        })
    }
}

impl Layouts {
    /// What an object refers to if that lies in one place, null for what it has not got; but for the class of an
    /// instance. `None` if it does not, or it is not known where.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, the object is alive and of that form, and nothing changes it
    /// while the slice is in use.
    #[inline(always)]
    pub unsafe fn items<'a>(
        &self,
        object: *mut ffi::PyObject,
        form: Form,
    ) -> Option<&'a [*mut ffi::PyObject]> {
        // SAFETY: by this function's contract.
        unsafe {
            match form {
                Form::List => self.lists.map(|it| it.items(object)),
                Form::Tuple => self.tuples.map(|it| it.items(object)),
                Form::Cell => self.cells.map(|it| it.items(object)),
                Form::Instance => self.instances.and_then(|it| it.attributes(object)),
                Form::Function | Form::Other => None,
            }
        }
    }

    /// As [`Layouts::items`], of an instance that has its attributes itself and a dictionary of them besides.
    ///
    /// # Safety
    /// As for [`Layouts::items`].
    pub unsafe fn attributes_beside_dict<'a>(
        &self,
        object: *mut ffi::PyObject,
    ) -> Option<&'a [*mut ffi::PyObject]> {
        let layout = self.instances?;
        // SAFETY: by this function's contract.
        unsafe { layout.attributes_beside_dict(object) }
    }

    /// Calls `f` with what an object refers to, in the order of its `tp_traverse`; false, and nothing has
    /// happened, if it is not known where that lies.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, the object is alive and of that form, and `f` changes
    /// nothing.
    #[inline(always)]
    pub unsafe fn visit(
        &self,
        object: *mut ffi::PyObject,
        form: Form,
        mut f: impl FnMut(*mut ffi::PyObject),
    ) -> bool {
        // SAFETY: by this function's contract.
        unsafe {
            match (self.items(object, form), self.functions) {
                (Some(items), _) if form == Form::Instance => {
                    each(items.iter().copied(), &mut f);
                    f(ffi::Py_TYPE(object).cast());
                }
                (Some(items), _) => each(items.iter().rev().copied(), f),
                (None, Some(functions)) if form == Form::Function => {
                    each(functions.referents(object), f);
                }
                (None, _) => return false,
            }
        }
        true
    }
}

/// Calls `f` with those that are there.
#[inline(always)]
fn each(targets: impl Iterator<Item = *mut ffi::PyObject>, f: impl FnMut(*mut ffi::PyObject)) {
    targets.filter(|target| !target.is_null()).for_each(f);
}

#[cfg(test)]
mod tests {
    use pyo3::types::PyList;

    use super::*;
    use crate::cpython::fields::visited;

    #[test]
    fn what_is_read_is_what_traversal_visits() {
        Python::attach(|py| {
            let builtins = Builtins::new(py).expect("CPython has all of them");
            let layouts = Layouts::known(py, &builtins).expect("there is memory");
            assert!(layouts.lists.is_some() && layouts.tuples.is_some() && layouts.cells.is_some());
            assert_eq!(layouts.functions.is_some(), py.version_info() < (3, 14));
            let objects = py
                .import("gc")
                .and_then(|gc| gc.call_method0("get_objects"));
            let objects = objects
                .expect("gc is there")
                .cast_into::<PyList>()
                .expect("a list");
            let mut compared = 0;
            for object in &objects {
                let (pointer, ty) = (object.as_ptr(), object.get_type_ptr());
                let mut read = Vec::new();
                // SAFETY: attached; the object is held and of the form that is asked for.
                let is_known = unsafe {
                    let form = Form::of(ty, builtins.kind(ty), &builtins);
                    layouts.visit(pointer, form, |target| read.push(target))
                };
                if !is_known {
                    continue;
                }
                assert_eq!(read, visited(&object), "{object:?}");
                compared += 1;
            }
            assert!(compared > 1000);
        });
    }
}
