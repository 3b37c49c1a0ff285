//! The stable name of a bug.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use crate::graph::{Cycle, LeakGraph};
use crate::heap::{ObjectKind, ReferenceName};

/// 16 hexadecimal digits: a hash of the cycle's types, reference names and code locations.
///
/// What differs between two occurrences of the same bug is left out: addresses, positions in lists,
/// numbers within dict keys, folders, packages (`__main__` has none), and at which object the cycle was entered. The line counts
/// for functions only: a frame's or traceback's is where it stopped.
pub fn signature(graph: &LeakGraph, cycle: &Cycle) -> String {
    let steps: Vec<String> = cycle
        .nodes
        .iter()
        .zip(&cycle.edges)
        .map(|(&node, &edge)| {
            let object = &graph[node].description;
            let file = object.place.as_ref().map_or("", |place| {
                place.file.rsplit(['/', '\\']).next().unwrap_or_default()
            });
            let place = match (object.kind, &object.place) {
                (ObjectKind::Function | ObjectKind::Method, Some(place)) => {
                    format!("{file}:{}", place.line)
                }
                _ => file.to_owned(),
            };
            let label = if graph[node].stands_for > 0 {
                "…".to_owned()
            } else {
                within(file, &object.label)
            };
            format!(
                "{}|{label}|{place}|{}",
                within(file, &object.type_name),
                normal(&graph[edge].name)
            )
        })
        .collect();
    let (before, after) = steps.split_at(least_rotation(&steps));
    let least = [after, before].concat();
    let hash = Sha256::digest(least.join("\n").as_bytes());
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Where the rotation begins that comes first in lexicographic order, in linear time: of two
/// candidates that agree in `length` items and differ in the next, none that begins within those of
/// the greater one can win (Shiloach, "Fast canonization of circular strings", 1981).
fn least_rotation<T: Ord>(items: &[T]) -> usize {
    let count = items.len();
    let (mut best, mut other, mut length) = (0, 1, 0);
    while best < count && other < count && length < count {
        match items[(best + length) % count].cmp(&items[(other + length) % count]) {
            Ordering::Equal => {
                length += 1;
                continue;
            }
            Ordering::Greater => best += length + 1,
            Ordering::Less => other += length + 1,
        }
        if best == other {
            other += 1;
        }
        length = 0;
    }
    best.min(other)
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
    use super::{least_rotation, within};

    #[test]
    fn the_least_rotation_is_the_least_of_all() {
        for length in 1..8u32 {
            // Every word over three letters.
            for word in 0..3usize.pow(length) {
                let word: Vec<usize> = (0..length).map(|i| word / 3usize.pow(i) % 3).collect();
                let turned = |start: usize| [&word[start..], &word[..start]].concat();
                let least = (0..word.len()).map(turned).min().unwrap_or_default();
                assert_eq!(turned(least_rotation(&word)), least);
            }
        }
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
