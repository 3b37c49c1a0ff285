//! The stable name of a bug.

use sha2::{Digest, Sha256};

use crate::capture::{Description, ReferenceName, is_library_file};
use crate::cpython::ObjectKind;
use crate::graph::{Cycle, LeakGraph};

/// 16 hexadecimal digits: a hash of the cycle's types, reference names and code locations.
///
/// What differs between two occurrences of the same bug is left out: addresses, positions in lists,
/// numbers within dict keys, folders, packages (`__main__` has none), at which object the cycle was
/// entered, and how often equal steps come again: a ring is as long as there was data, and so is
/// what is left out of the middle of a long one. The line counts for the program's functions only: a
/// frame's or traceback's is where it stopped, and a library's moves from version to version.
pub fn signature(graph: &LeakGraph, cycle: &Cycle) -> String {
    let steps: Vec<String> = cycle
        .nodes
        .iter()
        .zip(&cycle.edges)
        .filter(|(node, edge)| {
            graph[**node].stands_for == 0 && graph[**edge].name != ReferenceName::Omitted
        })
        .map(|(&node, &edge)| {
            let object = &graph[node].description;
            format!("{}|{}", shape(object), normal(&graph[edge].name))
        })
        .collect();
    let mut distinct = steps.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let least = if distinct.len() < steps.len() {
        distinct
    } else {
        let first = steps.iter().position(|step| Some(step) == distinct.first());
        let (before, after) = steps.split_at(first.unwrap_or(0));
        [after, before].concat()
    };
    let hash = Sha256::digest(least.join("\n").as_bytes());
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// An object's type, name and place, as far as they are the same in each occurrence.
fn shape(object: &Description) -> String {
    let file = object.place.as_ref().map_or("", |place| {
        place.file.rsplit(['/', '\\']).next().unwrap_or_default()
    });
    let place = match (object.kind, &object.place) {
        (ObjectKind::Function | ObjectKind::Method, Some(place))
            if !is_library_file(&place.file) =>
        {
            format!("{file}:{}", place.line)
        }
        _ => file.to_owned(),
    };
    let (type_name, label) = match (&object.unplaced_class, object.kind) {
        (Some(class), ObjectKind::Class) => (object.type_name.clone(), format!("class {class}")),
        (Some(class), _) if object.label == object.type_name => (class.clone(), class.clone()),
        _ => (within(file, &object.type_name), within(file, &object.label)),
    };
    format!("{type_name}|{label}|{place}")
}

/// A class's name without the module that its file stands for: the program's own classes have no
/// module's name when it runs as a script, and another one when it is imported.
fn within(file: &str, name: &str) -> String {
    let module = file.strip_suffix(".py").unwrap_or(file);
    let (before, dotted) = name.rsplit_once(' ').unwrap_or(("", name));
    let inner = match dotted.find(&format!("{module}.")) {
        Some(at) if !module.is_empty() && (at == 0 || dotted[..at].ends_with('.')) => {
            &dotted[at + module.len() + 1..]
        }
        _ => dotted,
    };
    format!("{before} {inner}")
}

/// A reference's name without what varies from one occurrence to the next.
fn normal(name: &ReferenceName) -> String {
    match name {
        ReferenceName::Index(_) => "[]".to_owned(),
        ReferenceName::Key(key) => {
            let mut text = String::new();
            for c in key.chars() {
                if !c.is_ascii_digit() {
                    text.push(c);
                } else if !text.ends_with('#') {
                    text.push('#');
                }
            }
            format!("[{text}]")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{signature, within};
    use crate::capture::{Description, ReferenceName};
    use crate::cpython::ObjectKind;
    use crate::graph::{Cycle, LeakEdge, LeakGraph, LeakNode};

    /// A ring of instances of classes without methods, of these types and called so in their files.
    fn ring(classes: &[(&str, &str)], edges: &[&str]) -> String {
        let mut graph = LeakGraph::default();
        let nodes: Vec<_> = classes
            .iter()
            .map(|(type_name, in_file)| {
                graph.add_node(LeakNode {
                    description: Description {
                        kind: ObjectKind::Instance,
                        type_name: (*type_name).to_owned(),
                        label: (*type_name).to_owned(),
                        place: None,
                        unplaced_class: Some((*in_file).to_owned()),
                        weakly_referable: true,
                        free_variables: Vec::new(),
                        default_arguments: Vec::new(),
                        details: Vec::new(),
                    },
                    object: Some(0),
                    is_buffer: false,
                    is_tensor: false,
                    stands_for: 0,
                })
            })
            .collect();
        let edges = edges
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let name = ReferenceName::Attribute((*name).to_owned());
                let next = nodes[(i + 1) % nodes.len()];
                graph.add_edge(nodes[i], next, LeakEdge::new(name))
            })
            .collect();
        signature(&graph, &Cycle { nodes, edges })
    }

    #[test]
    fn a_ring_is_the_same_at_any_length_and_from_any_step() {
        let node = ("train.Node", "train.Node");
        let two = ring(&[node; 2], &["next"; 2]);
        assert_eq!(ring(&[node; 3], &["next"; 3]), two);
        assert_eq!(ring(&[node; 50], &["next"; 50]), two);
        assert_ne!(ring(&[node; 2], &["next", "prev"]), two);
        let (a, b) = (("train.A", "train.A"), ("train.B", "train.B"));
        assert_eq!(ring(&[a, b], &["b", "a"]), ring(&[b, a], &["a", "b"]));
        assert_ne!(ring(&[a, b], &["b", "a"]), ring(&[a, b], &["a", "b"]));
    }

    #[test]
    fn a_class_without_methods_is_the_same_in_a_script_and_in_a_module() {
        let script = ring(&[("Node", "train.Node")], &["me"]);
        assert_eq!(ring(&[("jobs.train.Node", "train.Node")], &["me"]), script);
        assert_ne!(ring(&[("Node", "test.Node")], &["me"]), script);
    }

    #[test]
    fn a_class_is_the_same_in_a_script_and_in_a_module() {
        let script = within("train.py", "Model.make.<locals>.Step");
        assert_eq!(
            within("train.py", "jobs.train.Model.make.<locals>.Step"),
            script
        );
        assert_eq!(within("train.py", "train.Model.make.<locals>.Step"), script);
        assert_eq!(
            within("train.py", "class train.Model"),
            within("train.py", "class Model")
        );
    }

    #[test]
    fn other_names_stay() {
        for name in ["dict", "retrain.Model", "generator train", "torch.Tensor"] {
            assert_eq!(within("train.py", name).trim_start(), name);
            assert_eq!(within("", name).trim_start(), name);
        }
    }
}
