//! The objects of a list as they lie in its memory.

use std::mem::size_of;
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

/// The memory of a list: `PyListObject` in `Include/cpython/listobject.h`, the same in CPython 3.10
/// to 3.15. It is not part of the stable ABI, hence [`ListLayout`].
#[repr(C)]
struct ListObject {
    head: ffi::PyVarObject,
    items: *mut *mut ffi::PyObject,
    allocated: ffi::Py_ssize_t,
}

/// Proof that lists lie in memory as [`ListObject`] says.
#[derive(Clone, Copy)]
pub struct ListLayout(());

impl ListLayout {
    /// `None` if the lists of this interpreter look different.
    pub fn known(py: Python<'_>) -> Option<Self> {
        let size = py.get_type::<PyList>().getattr("__basicsize__").ok()?;
        if size.extract::<usize>().ok()? != size_of::<ListObject>() {
            return None;
        }
        let expected = [
            py.None().into_bound(py),
            py.get_type::<PyType>().into_any(),
            py.get_type::<PyList>().into_any(),
        ];
        let probe = PyList::new(py, &expected).ok()?;
        let empty = PyList::empty(py);
        // SAFETY: attached; a list is as large as this structure, by the check above, and `items` is
        // read only if all else is as it should be.
        unsafe {
            let none = &*empty.as_ptr().cast::<ListObject>();
            if none.head.ob_size != 0 || none.allocated != 0 || !none.items.is_null() {
                return None;
            }
            let list = &*probe.as_ptr().cast::<ListObject>();
            let plausible = list.head.ob_size == 3
                && (3..64).contains(&list.allocated)
                && !list.items.is_null()
                && list.items.is_aligned();
            let same = plausible
                && slice::from_raw_parts(list.items, 3)
                    .iter()
                    .zip(&expected)
                    .all(|(item, object)| *item == object.as_ptr());
            same.then_some(Self(()))
        }
    }

    /// The objects of a list, each alive as long as it stays there; null for one not put in yet.
    ///
    /// # Safety
    /// The caller is attached to the interpreter, `list` is a list, alive, and nothing changes it while
    /// the slice is in use.
    #[inline]
    pub unsafe fn items<'a>(&self, list: *mut ffi::PyObject) -> &'a [*mut ffi::PyObject] {
        // SAFETY: by this function's contract; the list is laid out so, as `self` shows, and its first
        // `ob_size` items are valid.
        unsafe {
            let list = &*list.cast::<ListObject>();
            match usize::try_from(list.head.ob_size) {
                Ok(size @ 1..) => slice::from_raw_parts(list.items, size),
                _ => &[],
            }
        }
    }
}
