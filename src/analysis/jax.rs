//! What is said of arrays that JAX keeps: by tracers that were stored, and so outlive the function that was transformed,
//! and by its caches.

use pyo3::types::{PyString, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::FxHashSet;

use super::keepers::{Keeper, Search};
use super::naming::Naming;
use crate::cpython::instances::attribute;
use crate::cpython::{dict_items, find_item, imported};

const TRACER: &str = "jax._src.core.Tracer";
/// Where JAX keeps, weakly, the caches that `jax.clear_caches()` empties (`clear_all_caches` in `jax/_src/util.py`).
const REGISTRY: (&str, &str) = ("jax._src.util", "_caches");

impl Search<'_, '_> {
    /// What is said of keepers that pass a tracer; nothing while a running function has one, as it may be the one that
    /// JAX is transforming.
    pub fn tracer_leaks(self, keepers: &[Keeper], naming: &Naming<'_, '_>) -> Vec<String> {
        let mut leaks = Vec::new();
        for keeper in keepers {
            let nodes = &keeper.nodes;
            let before = &nodes[..nodes.len() - 1];
            let Some(at) = before.iter().position(|&node| self.is_of(node, &[TRACER])) else {
                continue;
            };
            if nodes.iter().any(|&node| self.live.is_frame(node)) {
                return Vec::new();
            }
            let class = self.live.object(nodes[at]);
            let class = class.map(|tracer| self.inspector.type_name(&tracer));
            let class = class.unwrap_or_default();
            let class = class.rsplit('.').next().unwrap_or_default();
            let name = naming.expression(&nodes[..=at]);
            let name = name.map_or_else(|| format!("a {class}"), |it| format!("`{it}` ({class})"));
            let leak = format!(
                "Kept by a tracer leak: {name} is a value inside a function that JAX transformed, and was stored outside \
                 of it. Return it from the function instead."
            );
            if !leaks.contains(&leak) {
                leaks.push(leak);
            }
        }
        leaks
    }

    /// What is said of keepers that are entries of JAX's caches, if any is.
    pub fn jax_caches(self, keepers: &[Keeper]) -> Option<String> {
        let registered = self.registered_caches();
        let is_entry = |keeper: &&Keeper| keeper.nodes.iter().any(|it| registered.contains(it));
        let entries = keepers.iter().filter(is_entry).count();
        let which = match entries {
            0 => return None,
            1 if keepers.len() == 1 => "This reference is an entry of a cache of JAX".to_owned(),
            1 => "1 of these references is an entry of a cache of JAX".to_owned(),
            all if all == keepers.len() => {
                "These references are entries of caches of JAX".to_owned()
            }
            some => format!("{some} of these references are entries of caches of JAX"),
        };
        Some(format!(
            "{which}, which `jax.clear_caches()` empties. JAX keeps what a jitted function captures, and its static \
             arguments. It does not keep an array that is passed as another argument."
        ))
    }

    /// The caches that JAX has registered; none if it has another way to do so.
    fn registered_caches(self) -> FxHashSet<u32> {
        let py = self.live.py();
        let module = imported(&PyString::new(py, REGISTRY.0));
        let registry = module.and_then(|names| find_item(REGISTRY.1, |f| dict_items(&names, f)));
        let instances = &self.inspector.builtins.instances;
        let entries = registry.and_then(|registry| attribute(instances, &registry, "data"));
        let mut caches = FxHashSet::default();
        if let Some(entries) = entries {
            dict_items(&entries, &mut |reference, _| {
                let cache = reference.cast::<PyWeakrefReference>();
                let cache = cache.ok().and_then(|it| it.upgrade());
                caches.extend(cache.and_then(|cache| self.live.objects.number_of(&cache)));
                true
            });
        }
        caches
    }
}
