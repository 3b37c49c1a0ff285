//! Diagnoses that were made before: a program that leaks in every step leaks the same way in each.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use petgraph::visit::{EdgeRef, IntoEdgeReferences};

use super::{Diagnosis, Maker, diagnose};
use crate::graph::{Code, LeakGraph};

/// The diagnoses of the leaks met lately, by all that a diagnosis is made from.
#[derive(Default)]
pub struct Diagnoses {
    made: HashMap<u64, Vec<Rc<Diagnosis>>>,
}

/// So many are remembered; then it starts afresh.
const LIMIT: usize = 512;

impl Diagnoses {
    /// As [`diagnose`], which is asked only about what was not met before, with what `maker` says of each.
    /// `bases` tells classes apart that look the same in the graph.
    pub fn of(
        &mut self,
        graph: &LeakGraph,
        bases: u64,
        code: &dyn Code,
        maker: impl Fn(&Diagnosis) -> Option<Maker>,
    ) -> Vec<Rc<Diagnosis>> {
        let key = content(graph, bases);
        if let Some(made) = self.made.get(&key) {
            return made.clone();
        }
        if self.made.len() >= LIMIT {
            self.made.clear();
        }
        let mut made = diagnose(graph, code);
        for diagnosis in &mut made {
            diagnosis.maker = maker(diagnosis);
        }
        let made: Vec<Rc<Diagnosis>> = made.into_iter().map(Rc::new).collect();
        self.made.insert(key, made.clone());
        made
    }
}

/// A hash of a graph's nodes and edges with their indices, but for what no diagnosis looks at: which
/// object of the garbage a node stands for, and its details.
fn content(graph: &LeakGraph, bases: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    bases.hash(&mut hasher);
    for node in graph.node_indices() {
        let node = &graph[node];
        let description = &node.description;
        description.kind.hash(&mut hasher);
        description.type_name.hash(&mut hasher);
        description.label.hash(&mut hasher);
        description.place.hash(&mut hasher);
        (&description.unplaced_class, description.of_program).hash(&mut hasher);
        (description.weak_references, description.frozen).hash(&mut hasher);
        (description.standing, description.wraps).hash(&mut hasher);
        description.free_variables.hash(&mut hasher);
        description.default_arguments.hash(&mut hasher);
        (node.is_buffer, node.is_tensor, node.stands_for).hash(&mut hasher);
    }
    for edge in graph.edge_references() {
        (edge.id(), edge.source(), edge.target()).hash(&mut hasher);
        edge.weight().name.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::Diagnoses;
    use crate::capture::{Description, ReferenceName, WeakReferences};
    use crate::cpython::ObjectKind;
    use crate::graph::{LeakEdge, LeakGraph, LeakNode};

    fn pair(first: &str, label: &str, address: &str) -> LeakGraph {
        let node = |label: &str, is_buffer| LeakNode {
            description: Description {
                type_name: "Node".to_owned(),
                weak_references: WeakReferences::Taken,
                details: vec![("address".to_owned(), address.to_owned())],
                ..Description::blank(ObjectKind::Instance, label.to_owned())
            },
            object: Some(0),
            is_buffer,
            is_tensor: is_buffer,
            stands_for: 0,
        };
        let edge = |name: &str| LeakEdge::new(ReferenceName::Attribute(name.to_owned()));
        let mut graph = LeakGraph::default();
        let one = graph.add_node(node(label, false));
        let other = graph.add_node(node("Node", true));
        graph.add_edge(one, other, edge(first));
        graph.add_edge(other, one, edge("back"));
        graph
    }

    #[test]
    fn the_same_again_is_not_diagnosed_again() {
        let mut diagnoses = Diagnoses::default();
        let first = diagnoses.of(&pair("left", "Node", "0x1"), 0, &(), |_| None)[0].clone();
        let again = diagnoses.of(&pair("left", "Node", "0x2"), 0, &(), |_| None)[0].clone();
        assert!(Rc::ptr_eq(&first, &again));
    }

    #[test]
    fn what_differs_is_another() {
        let mut diagnoses = Diagnoses::default();
        let first = diagnoses.of(&pair("left", "Node", "0x1"), 0, &(), |_| None)[0].clone();
        let edge = diagnoses.of(&pair("right", "Node", "0x1"), 0, &(), |_| None)[0].clone();
        let label = diagnoses.of(&pair("left", "Leaf", "0x1"), 0, &(), |_| None)[0].clone();
        assert_ne!(first.signature, edge.signature);
        assert_ne!(first.signature, label.signature);
    }
}
