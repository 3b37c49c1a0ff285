//! The hooks with which autograd packs what it saves.
//!
//! A saved tensor holds both functions of `torch.autograd.graph.saved_tensors_hooks`, and tells of the one that unpacks
//! only (`PySavedVariableHooks` in torch/csrc/autograd/python_saved_variable_hooks.cpp).

use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::edges::Edges;
use super::live::Live;
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;

/// Autograd functions by the hook that unpacks what they saved, each with the name of what it saved.
pub(super) type UnpackHooks = FxHashMap<u32, Vec<(u32, String)>>;

impl Live<'_> {
    /// Adds the references to the hooks that pack.
    ///
    /// One is taken for the partner of a hook that unpacks if it captures a variable that this one captures too, or is a
    /// method of the same object, and if C++ holds it as often.
    pub(super) fn add_pack_hooks(
        &mut self,
        inspector: &Inspector,
        unpack: UnpackHooks,
        edges: &mut Edges,
    ) {
        if unpack.is_empty() {
            return;
        }
        let held = (0..self.objects.len() as u32).filter(|&node| self.unaccounted(node) > 0);
        let mut candidates: Vec<(u32, FxHashSet<u32>)> = Vec::new();
        for node in held.filter(|node| !unpack.contains_key(node)) {
            let captured = self.captured(inspector, node);
            if !captured.is_empty() {
                candidates.push((node, captured));
            }
        }
        let mut unpack: Vec<_> = unpack.into_iter().collect();
        unpack.sort_unstable_by_key(|(hook, _)| *hook);
        for (hook, savers) in unpack {
            let captured = self.captured(inspector, hook);
            let held = self.unaccounted(hook) as usize + savers.len();
            let mut partners = candidates.iter().filter(|(node, own)| {
                self.unaccounted(*node) as usize == held && !own.is_disjoint(&captured)
            });
            let (Some(&(pack, _)), None) = (partners.next(), partners.next()) else {
                continue;
            };
            self.counted.insert(pack);
            self.account_for(pack, savers.len() as u32);
            for (function, saved) in savers {
                let name = format!("pack hook of saved {saved}");
                edges.add(function, pack, ReferenceName::Attribute(name));
            }
        }
    }

    /// The variables that a function captures, or the object that a method is bound to.
    fn captured(&self, inspector: &Inspector, node: u32) -> FxHashSet<u32> {
        let of_kind = |node: u32, kind| {
            let targets = self.graph().targets(node).iter().copied();
            targets.filter(move |&target| self.is_kind(inspector, target, kind))
        };
        if self.is_kind(inspector, node, ObjectKind::Function) {
            let tuples = of_kind(node, ObjectKind::Tuple);
            tuples
                .flat_map(|tuple| of_kind(tuple, ObjectKind::Cell))
                .collect()
        } else if self.is_kind(inspector, node, ObjectKind::Method) {
            let targets = self.graph().targets(node).iter().copied();
            targets
                .filter(|&target| !self.is_kind(inspector, target, ObjectKind::Function))
                .collect()
        } else {
            FxHashSet::default()
        }
    }
}
