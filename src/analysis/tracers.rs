//! Tracers of JAX that were stored, and so outlive the function that was transformed.

use super::keepers::{Keeper, Search};
use super::naming::Naming;

const TRACER: &str = "jax._src.core.Tracer";

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
}
