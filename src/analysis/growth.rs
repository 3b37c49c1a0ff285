//! From tensors that grow in number to who keeps them, and as what.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::Inspector;
use super::busy::busy;
use super::grown::{Arrays, Diagnosis, Grouping, Kept, Look, Name, bytes_shown, mark_of};
use super::live::{Depth, Live};
use super::naming::Naming;
use crate::cpython::instances::instance_dict;
use crate::cpython::{Builtins, dict_items, items};
use crate::device::DeviceSelection;
use crate::graph::ShortestPaths;

/// How many items of an item are looked at.
const PARTS: usize = 16;

impl Inspector {
    /// Looks at the live heap for what grows.
    pub(super) fn look_for_growth<'py, R>(
        &self,
        py: Python<'py>,
        depth: Depth,
        work: impl FnOnce(&Look<'_, 'py>) -> R,
    ) -> PyResult<R> {
        let mut live = Live::take(self, py, None, depth)?;
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let ways = live.paths_with_loops(self);
        Ok(work(&Look::new(self, &frameworks, &live, ways)))
    }

    /// Who keeps the members of each of some groups, as [`Look::diagnose`] says; nobody if only C++ holds them, such as
    /// an autograd graph.
    pub fn diagnose(
        &self,
        py: Python<'_>,
        groups: &[Grouping],
    ) -> PyResult<Vec<(Vec<Diagnosis>, Vec<Kept>)>> {
        self.look_for_growth(py, Depth::Graphs, |look| {
            groups.iter().map(|it| look.diagnose(it)).collect()
        })
    }

    /// What is said of tensors that have become longer, by those that have done so together: for each owner how many it
    /// has. Nothing of what has gone or has no name.
    pub fn diagnose_longer(
        &self,
        py: Python<'_>,
        tensors: &[&[Name]],
    ) -> PyResult<Vec<Vec<Diagnosis>>> {
        self.look_for_growth(py, Depth::Graphs, |look| {
            tensors.iter().map(|it| look.diagnose_longer(it)).collect()
        })
    }

    /// What is said of containers of arrays, each with these; `None` for what has gone.
    pub fn diagnose_arrays(
        &self,
        py: Python<'_>,
        containers: &[(usize, Arrays)],
    ) -> PyResult<Vec<Option<Diagnosis>>> {
        self.look_for_growth(py, Depth::Graphs, |look| {
            let found = containers.iter();
            found
                .map(|(at, arrays)| look.diagnose_arrays(*at, arrays))
                .collect()
        })
    }

    /// The arrays that a container holds, directly or in tuples, lists and dictionaries of its own. `of_tensors` has the
    /// marks of memory that tensors show.
    ///
    /// # Errors
    /// If the inspector is at work already.
    pub fn arrays_in(
        &self,
        container: &Bound<'_, PyAny>,
        devices: &DeviceSelection,
        of_tensors: &FxHashSet<u64>,
    ) -> PyResult<Option<Arrays>> {
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        if !frameworks.may_have_arrays(devices) {
            return Ok(None);
        }
        let mut seen: FxHashSet<(String, u64)> = FxHashSet::default();
        let (mut count, mut bytes, mut hidden, mut shown, mut last) = (0, 0, 0, 0, None);
        let values = values_of(container);
        for value in values.iter().flat_map(|value| {
            let mut parts = values_of(value);
            parts.truncate(PARTS);
            parts.push(value.clone());
            parts
        }) {
            let verdict = frameworks.verdict_of(&value);
            if frameworks.is_tracked(verdict) {
                continue;
            }
            let mut buffers = frameworks.buffers(verdict, &value, devices);
            shown += buffers.iter().map(bytes_shown).sum::<u64>();
            buffers.retain(|buffer| seen.insert((buffer.device.clone(), buffer.pointer)));
            count += usize::from(!buffers.is_empty());
            bytes += buffers.iter().map(|buffer| buffer.bytes).sum::<u64>();
            let alone = buffers
                .iter()
                .filter(|it| !of_tensors.contains(&mark_of(it)));
            hidden += alone.map(|buffer| buffer.bytes).sum::<u64>();
            last = buffers.pop().or(last);
        }
        Ok(last.map(|last| Arrays {
            count,
            bytes,
            hidden,
            are_views: 2 * shown <= bytes && 2 * bytes_shown(&last) <= last.bytes,
            last,
        }))
    }

    /// The tensor that carries its graph from step to step, but not an output or a loss that was computed
    /// from it, behind which there are as many old functions.
    ///
    /// `roots` are tensors with graphs, the likeliest last, each with whether it may be a state: one of its shape was
    /// there at the last sample and younger functions led to it directly. `marks` has for each of the last samples, the
    /// last one at the end, the number of the first function that is younger.
    pub fn diagnose_state(
        &self,
        py: Python<'_>,
        roots: &[(Name, bool)],
        marks: &[u64],
    ) -> PyResult<Option<Diagnosis>> {
        self.look_for_growth(py, Depth::Graphs, |look| look.diagnose_state(roots, marks))
    }

    /// Where the program has each of some tensors, given by its address with that of the object whose
    /// attribute it is; `None` for what has gone.
    ///
    /// # Errors
    /// As [`Inspector::heap`].
    pub fn owners_of(
        &self,
        py: Python<'_>,
        attributes: &[(usize, usize)],
    ) -> PyResult<Vec<Option<String>>> {
        let live = Live::take(self, py, None, Depth::Graphs)?;
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let ways = live.shortest_paths();
        let found: Vec<Vec<u32>> = attributes
            .iter()
            .map(|&(object, value)| {
                live.way_to_attribute(&self.builtins, &ways, object, value)
                    .unwrap_or_default()
            })
            .collect();
        let naming = Naming::new(self, &frameworks, &live, &found);
        Ok(found.iter().map(|way| naming.owner(way)).collect())
    }
}

impl Live<'_> {
    /// The way to an object and on to the value of an attribute of it.
    fn way_to_attribute(
        &self,
        builtins: &Builtins,
        ways: &ShortestPaths,
        object: usize,
        value: usize,
    ) -> Option<Vec<u32>> {
        let node = self.objects.number_at(object)?;
        let value = self.objects.number_at(value)?;
        let names = instance_dict(&builtins.instances, &self.object(node)?);
        let mut way = ways.path_to(node);
        let names = names.and_then(|names| self.objects.number_at(names));
        way.extend(names.filter(|names| self.graph().targets(node).contains(names)));
        way.push(value);
        Some(way)
    }
}

/// The items of a list or tuple, or the values of a dictionary.
fn values_of<'py>(container: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let mut found = items(container);
    dict_items(container, &mut |_, value| {
        found.push(value.clone());
        true
    });
    found
}
