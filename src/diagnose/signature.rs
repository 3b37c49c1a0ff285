//! The stable name of a bug.

use sha2::{Digest, Sha256};

use crate::graph::{Cycle, LeakGraph};
use crate::heap::{ObjectKind, ReferenceName};

/// 16 hexadecimal digits: a hash of the cycle's types, reference names and code locations.
///
/// What differs between two occurrences of the same bug is left out: addresses, positions in lists,
/// numbers within dict keys, folders, and at which object the cycle was entered. The line counts
/// for functions only: a frame's or traceback's is where it stopped.
pub fn signature(graph: &LeakGraph, cycle: &Cycle) -> String {
    let steps: Vec<String> = cycle
        .nodes
        .iter()
        .zip(&cycle.edges)
        .map(|(&node, &edge)| {
            let object = &graph[node].description;
            let place = object.place.as_ref().map_or_else(String::new, |place| {
                let file = place.file.rsplit(['/', '\\']).next().unwrap_or_default();
                match object.kind {
                    ObjectKind::Function | ObjectKind::Method => format!("{file}:{}", place.line),
                    ObjectKind::Frame | ObjectKind::Generator | ObjectKind::Coroutine => {
                        file.to_owned()
                    }
                    _ => String::new(),
                }
            });
            let label = if graph[node].stands_for > 0 {
                "…"
            } else {
                &object.label
            };
            format!(
                "{}|{label}|{place}|{}",
                object.type_name,
                normal(&graph[edge].name)
            )
        })
        .collect();
    let least = (0..steps.len())
        .map(|start| {
            let mut turned = steps[start..].to_vec();
            turned.extend_from_slice(&steps[..start]);
            turned
        })
        .min()
        .unwrap_or_default();
    let hash = Sha256::digest(least.join("\n").as_bytes());
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
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
