//! The memory of tensors and arrays, and who shares it.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::edges::Edges;
use super::live::{Extra, Live, LiveBuffer};
use super::naming::array_reference;
use crate::capture::ReferenceName;
use crate::cpython::{Exporters, Verdict};
use crate::device::{ArrayReference, DeviceBuffer, DeviceSelection, Frameworks};

impl<'py> Live<'py> {
    /// Finds the memory of tensors and arrays, and of the objects that lend them theirs.
    pub(super) fn find_buffers(&mut self, frameworks: &Frameworks, edges: &mut Edges) {
        let exporters = Exporters::new(self.py());
        let mut found: Vec<(bool, u32, Verdict, DeviceBuffer)> = Vec::new();
        for &(node, verdict) in &self.objects.holders {
            if let Some(object) = self.objects.object(node) {
                let extents = frameworks.extents(&exporters, verdict, &object);
                let all = extents.into_iter();
                found.extend(all.map(|(buffer, is_whole)| (is_whole, node, verdict, buffer)));
            }
        }
        found.sort_by(|(is_whole, _, _, a), (other_is_whole, _, _, b)| {
            (other_is_whole, a.space(), a.pointer).cmp(&(is_whole, b.space(), b.pointer))
        });
        let mut used: FxHashSet<usize> = FxHashSet::default();
        let mut regions = Vec::with_capacity(found.len());
        for (is_whole, _, verdict, buffer) in &found {
            let region = edges.region(buffer, *is_whole);
            if !Frameworks::is_exporter(*verdict) {
                used.insert(region);
            }
            if *is_whole && !Frameworks::is_tensor(*verdict) && !Frameworks::is_storage(*verdict) {
                edges.lent.insert(region);
            }
            regions.push(region);
        }
        // Those that use it before those that only lend it.
        for is_exporter in [false, true] {
            for ((_, node, verdict, buffer), &region) in found.iter().zip(&regions) {
                if Frameworks::is_exporter(*verdict) == is_exporter && used.contains(&region) {
                    self.add_holder(*node, *verdict, buffer, region, edges);
                }
            }
        }
        self.hold_by_lenders(frameworks, edges);
    }

    /// What an array is on that is no buffer itself, such as an object with `__array_interface__`, keeps the memory as
    /// far as anybody knows.
    fn hold_by_lenders(&self, frameworks: &Frameworks, edges: &mut Edges) {
        for &(array, verdict) in &self.objects.holders {
            let (Some(&index), Some(object)) =
                (edges.memory_of.get(&array), self.objects.object(array))
            else {
                continue;
            };
            frameworks.for_each_untraversed(verdict, &object, |reference, target| {
                if reference == ArrayReference::Base
                    && let Some(lender) = self.objects.number_at(target as usize)
                    && edges.memory_of.insert(lender, index).is_none()
                {
                    edges.list.push((lender, self.buffers[index].node));
                }
            });
        }
    }

    /// A tensor on the memory of an array or of another object (`torch.from_numpy`, `torch.frombuffer`, DLPack) holds
    /// one of those in C++, and so has one reference for each storage. Of several there is no telling which, but each
    /// keeps the memory; so where C or C++ has no more references to them than there are storages, they are the tensors'.
    pub(super) fn give_lenders_to_tensors(&mut self, frameworks: &Frameworks, edges: &mut Edges) {
        let mut lenders: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
        for &(node, verdict) in self
            .objects
            .holders
            .iter()
            .filter(|_| !edges.lent.is_empty())
        {
            if let Some(&index) = edges.memory_of.get(&node)
                && self.unaccounted(node) > 0
                && !Frameworks::is_tensor(verdict)
                && !Frameworks::is_storage(verdict)
            {
                lenders.entry(index).or_default().push(node);
            }
        }
        let lent = edges.lent.iter().filter_map(|it| edges.memory.get(it));
        let lent: FxHashSet<usize> = lent.copied().collect();
        lenders.retain(|index, _| lent.contains(index));
        let mut tensors: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
        let mut storages: FxHashMap<usize, FxHashSet<u64>> = FxHashMap::default();
        for (node, object) in self.all_tensors(frameworks) {
            if let Some(&index) = edges.memory_of.get(&node)
                && lenders.contains_key(&index)
                && let Some(storage) = frameworks.storage_identity(&object)
            {
                tensors.entry(index).or_default().push(node);
                storages.entry(index).or_default().insert(storage);
            }
        }
        for (index, lenders) in lenders {
            let storages = storages.get(&index).map_or(0, FxHashSet::len);
            let unaccounted: u32 = lenders.iter().map(|&it| self.unaccounted(it)).sum();
            // Of one lender they are all references, whatever else it has.
            if storages == 0 || lenders.len() > 1 && unaccounted as usize > storages {
                continue;
            }
            for lender in lenders {
                for &tensor in tensors.get(&index).into_iter().flatten() {
                    let name = ReferenceName::Attribute("untyped_storage()".to_owned());
                    edges.add(tensor, lender, name);
                }
                self.account_for(lender, self.unaccounted(lender).min(storages as u32));
            }
        }
    }

    /// The tensors that Python sees, and those that only C++ holds.
    pub(super) fn all_tensors(&self, frameworks: &Frameworks) -> Vec<(u32, Bound<'py, PyAny>)> {
        let seen = self.tensors().into_iter();
        let seen = seen.map(|(node, _, tensor)| (node, tensor));
        let first = self.objects.len() as u32;
        let others = self.extra.iter().zip(first..);
        let others = others.filter_map(|(extra, node)| match extra {
            Extra::Tensor(tensor) => Some((node, tensor.clone())),
            _ => None,
        });
        let is_tensor =
            |object: &Bound<'_, PyAny>| Frameworks::is_tensor(frameworks.verdict_of(object));
        let others = others.filter(|(_, object)| is_tensor(object));
        seen.chain(others).collect()
    }

    /// The Python object of a storage, once made, is kept by the storage in C++, which the tensors
    /// on it keep.
    pub(super) fn give_storages_to_tensors(&mut self, edges: &mut Edges) {
        let mut tensors: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
        let mut storages: Vec<(u32, usize)> = Vec::new();
        for &(node, verdict) in &self.objects.holders {
            let Some(&index) = edges.memory_of.get(&node) else {
                continue;
            };
            if Frameworks::is_tensor(verdict) {
                tensors.entry(index).or_default().push(node);
            } else if Frameworks::is_storage(verdict) {
                storages.push((node, index));
            }
        }
        // Those that only C++ holds, too.
        for position in 0..self.extra.len() {
            let node = (self.objects.len() + position) as u32;
            if let (Extra::Tensor(_), Some(&index)) =
                (&self.extra[position], edges.memory_of.get(&node))
            {
                tensors.entry(index).or_default().push(node);
            }
        }
        for (storage, index) in storages {
            for &tensor in tensors.get(&index).into_iter().flatten() {
                let name = ReferenceName::Attribute("untyped_storage()".to_owned());
                self.add_hidden(tensor, storage, name, edges);
            }
        }
    }

    /// Adds the memory that a tensor or array holds.
    pub(super) fn add_buffer(
        &mut self,
        frameworks: &Frameworks,
        node: u32,
        verdict: Verdict,
        object: &Bound<'py, PyAny>,
        edges: &mut Edges,
    ) {
        for buffer in frameworks.buffers(verdict, object, &DeviceSelection::Any) {
            let region = edges.region(&buffer, true);
            self.add_holder(node, verdict, &buffer, region, edges);
        }
    }

    /// Adds a node that holds the memory of a region.
    fn add_holder(
        &mut self,
        node: u32,
        verdict: Verdict,
        buffer: &DeviceBuffer,
        region: usize,
        edges: &mut Edges,
    ) {
        let index = match edges.memory.get(&region) {
            Some(&index) => index,
            None => {
                let index = self.buffers.len();
                edges.memory.insert(region, index);
                let own = self.next();
                self.extra.push(Extra::Memory(index));
                let mut buffer = buffer.clone();
                if let Some(region) = edges.regions.get(region).filter(|_| buffer.is_placed) {
                    buffer.pointer = region.start;
                    buffer.bytes = region.end - region.start;
                }
                self.buffers.push(LiveBuffer {
                    buffer,
                    node: own,
                    holders: 0,
                    holder: node,
                    is_shown: false,
                    is_gradient: false,
                    is_saved: false,
                    is_leaf: false,
                    is_result: false,
                });
                index
            }
        };
        let known = &mut self.buffers[index];
        let is_of_program = (node as usize) < self.objects.len() && !self.made.contains(&node);
        known.is_shown |= is_of_program && !Frameworks::is_storage(verdict);
        // A storage becomes an object when a tensor on it is first asked for its memory.
        let is_tensor = !Frameworks::is_exporter(verdict) && !Frameworks::is_storage(verdict);
        known.holders += u32::from(is_tensor);
        // A storage does not know what it is made of; a tensor on it does.
        if known.buffer.dtype.is_none() {
            known.buffer.dtype.clone_from(&buffer.dtype);
            known.buffer.shape.clone_from(&buffer.shape);
        }
        edges.list.push((node, known.node));
        edges.memory_of.insert(node, index);
    }

    /// The tensors of the heap.
    pub(super) fn tensors(&self) -> Vec<(u32, Verdict, Bound<'py, PyAny>)> {
        let holders = self.objects.holders.iter().copied();
        holders
            .filter(|&(_, verdict)| Frameworks::is_tensor(verdict))
            .filter_map(|(node, verdict)| Some((node, verdict, self.objects.object(node)?)))
            .collect()
    }

    /// Names the references of arrays, which `tp_traverse` does not show.
    pub(super) fn name_references_of_arrays(&mut self, frameworks: &Frameworks, edges: &mut Edges) {
        for &(array, verdict) in &self.objects.holders {
            let Some(object) = self.objects.object(array) else {
                continue;
            };
            frameworks.for_each_untraversed(verdict, &object, |reference, target| {
                if let Some(target) = self.objects.number_at(target as usize) {
                    self.arrays.insert(array);
                    let name = array_reference(reference);
                    edges.names.entry((array, target)).or_insert(name);
                }
            });
        }
    }
}
