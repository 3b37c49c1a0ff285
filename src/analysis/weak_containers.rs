//! Containers that lose an entry when the object dies that it is about: they become as large as others make them.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::FxHashSet;

use super::grown::Look;
use super::live::Live;
use super::registries::awaited;
use crate::capture::class_name;
use crate::cpython::instances::attributes;
use crate::cpython::read::referents;
use crate::cpython::{dict_items, imported, items};
use crate::device::class;

const FINALIZE: &str = "weakref.finalize";
/// Each has its entries in `data` (`Lib/weakref.py`, `Lib/_weakrefset.py`).
const CONTAINERS: [&str; 3] = [
    "_weakrefset.WeakSet",
    "weakref.WeakKeyDictionary",
    "weakref.WeakValueDictionary",
];
/// Of so many entries it is asked who keeps what they are about.
const ASKED: usize = 256;

impl Live<'_> {
    /// Looks for paths through the caches of `jax.jit` after all others: an entry goes with its key, a function of the
    /// program's, which has what it captures as well.
    pub(super) fn find_weak_caches(&mut self) {
        let module = imported(intern!(self.py(), "jaxlib.weakref_lru_cache"));
        let class = module.and_then(|module| class(&module, "WeakrefLRUCache").ok());
        let Some(class) = class else { return };
        let nodes = 0..self.objects.len() as u32;
        let is_one = |&node: &u32| {
            let object = self.objects.object(node);
            object.is_some_and(|object| object.get_type().is(&class))
        };
        let found: Vec<u32> = nodes.filter(is_one).collect();
        self.late.extend(found);
    }
}

impl<'py> Look<'_, 'py> {
    /// True for the entries of a weak container, or of `weakref.finalize`, if objects that others keep are what most
    /// of them are about. `members` are the addresses of the objects that become more there.
    pub(super) fn follows_others(&self, node: u32, members: &FxHashSet<usize>) -> bool {
        let Some(container) = self.live.object(node) else {
            return false;
        };
        let about = match self.owner_of_entries(node, &container) {
            None => return false,
            Some(Owner::Finalize) => {
                let mut about = Vec::new();
                dict_items(&container, &mut |_, info| {
                    about.push(awaited(info));
                    true
                });
                // To be called for them, it keeps them.
                let mut known = about.iter().flatten();
                if known.any(|it| members.contains(&(it.as_ptr() as usize))) {
                    return false;
                }
                about
            }
            Some(Owner::Container) => referents(&container)
                .into_iter()
                .filter_map(|address| {
                    // SAFETY: attached; the container refers to it, and nothing runs that could change that.
                    let part = unsafe {
                        Bound::from_borrowed_ptr(container.py(), address as *mut ffi::PyObject)
                    };
                    let weak = part.cast_into::<PyWeakrefReference>().ok()?;
                    Some(weak.upgrade())
                })
                .collect(),
        };
        let step = about.len().div_ceil(ASKED).max(1);
        let asked: Vec<_> = about.iter().step_by(step).collect();
        let distinct: FxHashSet<usize> = asked
            .iter()
            .filter_map(|about| Some(about.as_ref()?.as_ptr() as usize))
            .filter(|&address| self.is_kept_by_others(address, node))
            .collect();
        2 * distinct.len() >= asked.len()
    }

    /// True for what only such a cache as [`Live::find_weak_caches`] looks for leads to: it goes with a function that
    /// others keep.
    pub(super) fn is_in_weak_cache(&self, node: u32) -> bool {
        let way = || self.ways.path_to(node);
        !self.live.late.is_empty() && way().iter().any(|it| self.live.late.contains(it))
    }

    fn owner_of_entries(&self, node: u32, container: &Bound<'py, PyAny>) -> Option<Owner> {
        let graph = self.live.graph();
        let builtins = &self.inspector.builtins;
        let mut level = vec![node];
        // An instance refers to its attributes itself, or by a dictionary.
        for _ in 0..2 {
            level = level.iter().flat_map(|&it| graph.sources(it)).collect();
            for owner in level.iter().filter_map(|&it| self.live.object(it)) {
                // The class itself has the registry of all.
                if owner.is_instance_of::<PyType>() && class_name(builtins, &owner) == FINALIZE {
                    return Some(Owner::Finalize);
                }
                // By the descriptor: a metaclass may answer for `__mro__` itself.
                let bases = builtins.type_mro.get(owner.get_type().as_any());
                let mut bases = bases.iter().flat_map(items);
                if bases.any(|base| CONTAINERS.contains(&class_name(builtins, &base).as_str()))
                    && attributes(&builtins.instances, &owner)
                        .iter()
                        .any(|(name, value)| name == "data" && value.is(container))
                {
                    return Some(Owner::Container);
                }
            }
        }
        None
    }

    /// True if the shortest path to an object does not pass the node.
    fn is_kept_by_others(&self, address: usize, node: u32) -> bool {
        let target = self.live.objects.number_at(address);
        target.is_some_and(|target| {
            self.ways.reaches(target) && !self.ways.path_to(target).contains(&node)
        })
    }
}

enum Owner {
    Finalize,
    Container,
}
