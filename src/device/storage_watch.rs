//! Whether a storage is gone, found out later and without keeping it alive.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyType};

use crate::cpython::{call_with, reference_count};

/// A weak hold on a buffer's memory, which keeps nothing from being freed: tells afterwards whether
/// the memory really went.
pub enum StorageWatch {
    /// PyTorch's own weak handle of a storage.
    Torch(WeakStorage),
    Lent(Lent),
    /// The framework offers nothing.
    Blind,
}

/// Memory of a Python object, the lender, which goes with it.
pub struct Lent {
    /// The lender, and what leads to it, as far as no weak reference can refer to them; none if one can refer to the
    /// lender.
    links: Vec<Link>,
    /// The objects that alone keep the links, or the lender itself; weakly.
    holders: Vec<Holder>,
    /// The arrays and tensors from which the links were followed; weakly.
    users: Vec<Holder>,
}

/// An object that goes when all that refers to it goes.
struct Link {
    address: usize,
    /// How many references there are to it.
    references: i64,
    /// The addresses of the objects that are known to have one.
    referrers: Vec<usize>,
}

struct Holder {
    address: usize,
    /// `None` for an object that no weak reference can refer to, and that the collector tracks.
    weak: Option<Py<PyAny>>,
    /// The collector clears weak references to objects that it means to free before it runs finalizers, and one of
    /// those may save the object.
    collectable: bool,
}

impl StorageWatch {
    /// Takes account of another holder of the same memory.
    pub fn join(&mut self, other: impl FnOnce() -> Self) {
        if let Self::Lent(lent) = self
            && !lent.is_known_whole()
            && let Self::Lent(other) = other()
        {
            lent.add(other);
        }
    }

    /// Whether the memory is gone; `None` if there is no telling.
    ///
    /// Of an object to which weak references were cleared, `is_alive` says by its address whether the collector
    /// still knows it, and `is_tracked` of one that has none.
    pub fn into_gone(
        self,
        py: Python<'_>,
        is_alive: &dyn Fn(usize) -> Option<bool>,
        is_tracked: &dyn Fn(usize) -> Option<bool>,
    ) -> Option<bool> {
        match self {
            Self::Torch(storage) => storage.is_gone(py),
            Self::Lent(lent) => lent.is_gone(py, is_alive, is_tracked),
            Self::Blind => None,
        }
    }
}

impl Lent {
    /// A watch on what the last of a chain of objects lends, each of which refers to the next.
    pub(super) fn watch(
        class: &Bound<'_, PyType>,
        mut chain: Vec<Bound<'_, PyAny>>,
        own: &dyn Fn(usize) -> i64,
    ) -> Option<Self> {
        let user = chain.first()?.clone();
        let mut links = Vec::new();
        while let Some(object) = chain.pop() {
            let holder = Holder::new(class, &object);
            if let Some(holder) = holder.or_else(|| Holder::without_weak_reference(&object)) {
                let users = match links.is_empty() {
                    true => Vec::new(),
                    false => vec![Holder::new(class, &user)?],
                };
                return Some(Self {
                    links,
                    holders: vec![holder],
                    users,
                });
            }
            let address = object.as_ptr() as usize;
            // SAFETY: attached, and the object is alive. One reference is that of the chain.
            let references = unsafe { reference_count(object.as_ptr()) } - 1 - own(address);
            links.push(Link {
                address,
                references,
                referrers: vec![chain.last()?.as_ptr() as usize],
            });
        }
        None
    }

    fn add(&mut self, other: Self) {
        for link in other.links {
            match self
                .links
                .iter_mut()
                .find(|known| known.address == link.address)
            {
                Some(known) => {
                    for referrer in link.referrers {
                        if !known.referrers.contains(&referrer) {
                            known.referrers.push(referrer);
                        }
                    }
                }
                None => self.links.push(link),
            }
        }
        self.users.extend(other.users);
        for holder in other.holders {
            if !self
                .holders
                .iter()
                .any(|known| known.address == holder.address)
            {
                self.holders.push(holder);
            }
        }
    }

    /// True if all that keeps the lender is known.
    fn is_known_whole(&self) -> bool {
        self.links
            .iter()
            .all(|link| link.referrers.len() as i64 >= link.references)
    }

    /// What looks into the memory, if references to the lender were counted; `None` if some of it is gone.
    pub(super) fn users<'py>(&self, py: Python<'py>) -> Option<Vec<Bound<'py, PyAny>>> {
        self.users.iter().map(|user| user.object(py)).collect()
    }

    /// True if it was counted how many references there are to the lender.
    pub(super) fn counts(&self) -> bool {
        !self.links.is_empty()
    }

    pub(super) fn is_gone(
        &self,
        py: Python<'_>,
        is_alive: &dyn Fn(usize) -> Option<bool>,
        is_tracked: &dyn Fn(usize) -> Option<bool>,
    ) -> Option<bool> {
        if !self.is_known_whole() {
            return None;
        }
        for holder in &self.holders {
            if holder.weak.is_none() {
                if is_tracked(holder.address)? {
                    return Some(false);
                }
                continue;
            }
            if holder.object(py).is_some() {
                return Some(false);
            }
            if holder.collectable && is_alive(holder.address)? {
                return Some(false);
            }
        }
        Some(true)
    }
}

impl Holder {
    /// `None` for an object that no weak reference can refer to.
    ///
    /// `class` derives from `weakref.ref`: a plain reference without a callback may be one that the program has
    /// already (`get_basic_refs` in Objects/weakrefobject.c). It may be garbage, which holding it would keep alive.
    fn new(class: &Bound<'_, PyType>, object: &Bound<'_, PyAny>) -> Option<Self> {
        if object.is_exact_instance_of::<PyBytes>() || object.is_exact_instance_of::<PyByteArray>()
        {
            return None;
        }
        // SAFETY: attached; without a callback, a weak reference runs no code. Nobody else has it, and it refers to
        // nothing, so the collector need not know it.
        unsafe {
            let end = std::ptr::null_mut::<ffi::PyObject>();
            let weak = ffi::PyObject_CallFunctionObjArgs(class.as_ptr(), object.as_ptr(), end);
            let Some(weak) = Bound::from_owned_ptr_or_opt(object.py(), weak) else {
                ffi::PyErr_Clear();
                return None;
            };
            ffi::PyObject_GC_UnTrack(weak.as_ptr().cast());
            let flags = ffi::PyType_GetFlags(ffi::Py_TYPE(object.as_ptr()));
            Some(Self {
                address: object.as_ptr() as usize,
                weak: Some(weak.unbind()),
                collectable: flags & ffi::Py_TPFLAGS_HAVE_GC != 0,
            })
        }
    }

    /// An object that no weak reference can refer to; `None` unless the collector tracks it.
    fn without_weak_reference(object: &Bound<'_, PyAny>) -> Option<Self> {
        // SAFETY: attached, and the object is alive.
        let is_tracked = unsafe { ffi::PyObject_GC_IsTracked(object.as_ptr()) != 0 };
        is_tracked.then(|| Self {
            address: object.as_ptr() as usize,
            weak: None,
            collectable: true,
        })
    }

    /// The object; `None` if it is gone, or the weak reference to it was cleared all the same.
    fn object<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let weak = self.weak.as_ref()?;
        let mut object = std::ptr::null_mut();
        // SAFETY: attached; on success this is a new reference.
        unsafe {
            if ffi::compat::PyWeakref_GetRef(weak.as_ptr(), &mut object) == -1 {
                ffi::PyErr_Clear();
            }
            Bound::from_owned_ptr_or_opt(py, object)
        }
    }
}

/// PyTorch's own weak handle of a storage, given back when dropped.
pub struct WeakStorage {
    pub handle: Py<PyAny>,
    pub expired: Py<PyAny>,
    pub free: Py<PyAny>,
}

impl WeakStorage {
    /// True if the storage is gone; `None` if there is no telling.
    pub(super) fn is_gone(&self, py: Python<'_>) -> Option<bool> {
        call_with(self.expired.bind(py), self.handle.bind(py))?
            .extract()
            .ok()
    }
}

impl Drop for WeakStorage {
    fn drop(&mut self) {
        // Without an interpreter there is no PyTorch to give it back to.
        Python::try_attach(|py| {
            drop(call_with(self.free.bind(py), self.handle.bind(py)));
        });
    }
}
