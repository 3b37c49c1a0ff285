//! The stable name of a bug.

use petgraph::graph::EdgeIndex;
use sha2::{Digest, Sha256};

use crate::capture::{Description, ReferenceName, is_library_file};
use crate::cpython::ObjectKind;
use crate::graph::{Cycle, LeakGraph};

/// 16 hexadecimal digits: a hash of the cycle's types, reference names and code locations.
///
/// What differs between two occurrences of the same bug is left out: addresses, positions in lists,
/// numbers within dict keys, generated parts of names (`without_generated`), folders, packages
/// (`__main__` has none), at which object the cycle was entered, and how often equal steps come again: a ring is as long as there was data, and so is
/// what is left out of the middle of a long one. The line counts for the program's functions only: a
/// frame's or traceback's is where it stopped, and a library's moves from version to version.
///
/// `cut` is the reference to remove, if the cycle alone does not tell which.
pub fn signature(graph: &LeakGraph, cycle: &Cycle, cut: Option<EdgeIndex>) -> String {
    Named::new(graph, cycle, cut, true).hash()
}

/// As the signature, without lines: the same when code above the functions of the cycle has come or gone. `None` if the
/// signature has no lines.
pub fn outline(graph: &LeakGraph, cycle: &Cycle, cut: Option<EdgeIndex>) -> Option<String> {
    let named = Named::new(graph, cycle, cut, true);
    let without = Named::new(graph, cycle, cut, false);
    (named.steps != without.steps).then(|| without.hash())
}

/// What a hash is made of.
struct Named {
    /// The steps of a cycle, as far as they are the same in each occurrence.
    steps: Vec<String>,
    /// How many objects the cycle has.
    length: usize,
    /// The reference to remove, if that counts.
    cut: Option<String>,
}

impl Named {
    fn new(graph: &LeakGraph, cycle: &Cycle, cut: Option<EdgeIndex>, lines: bool) -> Self {
        let kept = cycle
            .nodes
            .iter()
            .zip(&cycle.edges)
            .filter(|(node, edge)| {
                graph[**node].stands_for == 0
                    && graph[**edge].name != ReferenceName::Omitted
                    && !is_passed_on(&graph[**edge].name)
            })
            .map(|(&node, &edge)| {
                let object = &graph[node].description;
                format!("{}|{}", shape(object, lines), normal(&graph[edge].name))
            });
        let cut = cut.map(|cut| normal(&graph[cut].name));
        Self {
            steps: kept.collect(),
            length: length(graph, cycle),
            cut: cut.map(|name| format!("cut|{name}")),
        }
    }

    fn hash(&self) -> String {
        let mut distinct = self.steps.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut least = if distinct.len() < self.length {
            // An object that refers to itself is none of a ring of such objects.
            distinct.push("again".to_owned());
            distinct
        } else {
            let first = self
                .steps
                .iter()
                .position(|step| Some(step) == distinct.first());
            let (before, after) = self.steps.split_at(first.unwrap_or(0));
            [after, before].concat()
        };
        least.extend(self.cut.clone());
        let hash = Sha256::digest(least.join("\n").as_bytes());
        hash.iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// True for the reference of a traceback to the one of the next call. Through how many calls an exception went, or whether
/// it was raised once more, is no matter of who keeps it.
fn is_passed_on(name: &ReferenceName) -> bool {
    matches!(name, ReferenceName::Attribute(name) if name == "tb_next")
}

/// How many objects a cycle has, but for tracebacks that lead to the next.
fn length(graph: &LeakGraph, cycle: &Cycle) -> usize {
    let names = cycle.edges.iter().map(|&edge| &graph[edge].name);
    names.filter(|name| !is_passed_on(name)).count()
}

/// An object's type, name and place, as far as they are the same in each occurrence.
fn shape(object: &Description, lines: bool) -> String {
    let file = &object.place.as_ref().map_or_else(String::new, |place| {
        file_name(place.file.rsplit(['/', '\\']).next().unwrap_or_default())
    });
    let place = match (object.kind, &object.place) {
        (ObjectKind::Function | ObjectKind::Method, Some(place))
            if lines && !is_library_file(&place.file) =>
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
    let (type_name, label) = (without_generated(&type_name), without_generated(&label));
    format!("{type_name}|{label}|{place}")
}

/// A file's name without what `tempfile` or a counter added: code that a library generates is in
/// `package.module_name_pvvpo6gr.py` or `<eval_with_key>.12`. No module's own file has a dotted stem.
fn file_name(name: &str) -> String {
    if name.starts_with('<') {
        return match name.rsplit_once('.') {
            Some((before, number)) if before.ends_with('>') && is_decimal(number) => {
                before.to_owned()
            }
            _ => name.to_owned(),
        };
    }
    let random = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let Some(stem) = name.strip_suffix(".py") else {
        return name.to_owned();
    };
    match stem.char_indices().rev().nth(8) {
        Some((at, '_')) if stem.contains('.') && stem[at..].chars().all(random) => {
            format!("{}_#.py", &stem[..at])
        }
        _ => name.to_owned(),
    }
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A name with `#` for each part that looks generated: a UUID, a word of eight or more hexadecimal
/// digits of which one is decimal, five or more decimal digits in a row. Others may be part of an
/// ordinary name: `layer2`, `block_12`.
fn without_generated(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let word = word(rest);
        if let Some(length) = uuid(rest) {
            out.push('#');
            rest = &rest[length..];
        } else if word.is_empty() {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else if is_long_hexadecimal(word) {
            out.push('#');
            rest = &rest[word.len()..];
        } else {
            push_without_long_numbers(&mut out, word);
            rest = &rest[word.len()..];
        }
    }
    out
}

/// The ASCII letters and digits that a text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric());
    &text[..end.unwrap_or(text.len())]
}

/// The length of the UUID that a text begins with.
fn uuid(text: &str) -> Option<usize> {
    let mut length = 0;
    for (index, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            length += text[length..].starts_with(['-', '_']).then_some(1)?;
        }
        let part = word(&text[length..]);
        if part.len() != digits || !is_hexadecimal(part) {
            return None;
        }
        length += digits;
    }
    Some(length)
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_long_hexadecimal(word: &str) -> bool {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    digits.len() >= 8 && is_hexadecimal(digits) && digits.bytes().any(|byte| byte.is_ascii_digit())
}

fn push_without_long_numbers(out: &mut String, word: &str) {
    for part in word
        .as_bytes()
        .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
    {
        match part {
            [first, ..] if first.is_ascii_digit() && part.len() >= 5 => out.push('#'),
            _ => out.extend(part.iter().map(|&byte| char::from(byte))),
        }
    }
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
            for c in without_generated(key).chars() {
                if !c.is_ascii_digit() {
                    text.push(c);
                } else if !text.ends_with('#') {
                    text.push('#');
                }
            }
            format!("[{text}]")
        }
        other => without_generated(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{file_name, normal, signature, within, without_generated};
    use crate::capture::{Description, ReferenceName, WeakReferences};
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
                        type_name: (*type_name).to_owned(),
                        unplaced_class: Some((*in_file).to_owned()),
                        weak_references: WeakReferences::Taken,
                        ..Description::blank(ObjectKind::Instance, (*type_name).to_owned())
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
        signature(&graph, &Cycle { nodes, edges }, None)
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
    fn generated_parts_of_names_are_left_out() {
        let same = [
            ("state_a81705df-85de-4526-a864-ff96b5054839", "state_#"),
            ("state_a81705df_85de_4526_a864_ff96b5054839", "state_#"),
            ("hook_7f6a9da90f40", "hook_#"),
            ("hook_0x7f6a9da90f40", "hook_#"),
            ("_f81d4fae7dec11d0a76500a0c91e6bf6", "_#"),
            ("class train.FSDP_140233", "class train.FSDP_#"),
            ("Model140233456.forward", "Model#.forward"),
        ];
        for (name, expected) in same {
            assert_eq!(without_generated(name), expected);
        }
    }

    #[test]
    fn ordinary_names_stay() {
        let names = [
            "layer2",
            "block_12",
            "conv2d_1x1",
            "year_2026",
            "deadbeef",
            "effaced_facade",
            "float8_e4m3fn",
            "a-b-c-d-e",
            "abcd123-ab12",
            "été_größe",
            "closure variable 'self'",
            "function Net.__init__.<locals>.<lambda>",
            "_ad5f00e",
            "resume_in_forward_at_1234",
            "",
        ];
        for name in names {
            assert_eq!(without_generated(name), name);
        }
    }

    #[test]
    fn a_generated_name_changes_no_signature() {
        let node = ("train.Node", "train.Node");
        let one = ring(&[node], &["state_a81705df-85de-4526-a864-ff96b5054839"]);
        let other = ring(&[node], &["state_0b6ad9f2-1c55-4b1e-9d1c-5e2f6ac0a711"]);
        assert_eq!(one, other);
        assert_ne!(ring(&[node], &["layer1"]), ring(&[node], &["layer2"]));
        let key = |text: &str| normal(&ReferenceName::Key(text.to_owned()));
        assert_eq!(key("'a81705df_state'"), key("'0b6ad9f2_state'"));
        assert_eq!(key("'layer1'"), key("'layer22'"));
        assert_ne!(key("'layer1'"), key("'stage1'"));
    }

    #[test]
    fn a_generated_file_is_the_same_in_each_process() {
        let file = "torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_pvvpo6gr.py";
        let other = "torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_3ba_lcgx.py";
        assert_eq!(file_name(file), file_name(other));
        assert_eq!(file_name("<eval_with_key>.12"), "<eval_with_key>");
        for name in [
            "train_resnet50.py",
            "my_trainers.py",
            "<stdin>",
            "a.b.py",
            "x",
            "ü.é_12345678.pyc",
        ] {
            assert_eq!(file_name(name), name);
        }
    }

    #[test]
    fn other_names_stay() {
        for name in ["dict", "retrain.Model", "generator train", "torch.Tensor"] {
            assert_eq!(within("train.py", name).trim_start(), name);
            assert_eq!(within("", name).trim_start(), name);
        }
    }
}
