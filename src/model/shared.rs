//! Memory that several leaks hold, which counts once in their sum.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// How many sets of other leaks are told apart for each leak. What it shares with further ones counts for each.
pub const SETS: usize = 16;

/// Of a set, so many others are named: those with the least signatures.
pub const OTHERS: usize = 100;

/// Bytes that a leak holds together with certain others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, eq, from_py_object, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Shared {
    /// The signatures of the others, ascending.
    pub others: Vec<String>,
    /// Bytes that the leak and all of them hold.
    pub bytes: u64,
}

/// Adds what a leak shared in further occurrences.
pub fn add(shared: &mut Vec<Shared>, more: &[Shared]) {
    for further in more {
        let known = shared
            .iter()
            .position(|known| known.others == further.others);
        if let Some(known) = known {
            shared[known].bytes = shared[known].bytes.saturating_add(further.bytes);
        } else if shared.len() < SETS {
            shared.push(further.clone());
        }
    }
}

/// The bytes of some leaks together, each given by its signature, the bytes that it holds, and those of them that it
/// shares. Shared bytes count for the leak with the least signature, of those that are there.
pub fn total<'a>(leaks: impl Iterator<Item = (&'a str, u64, &'a [Shared])> + Clone) -> u64 {
    let present: HashSet<&str> = leaks.clone().map(|(signature, ..)| signature).collect();
    leaks.fold(0, |sum: u64, (signature, bytes, shared)| {
        let is_counted_there = |other: &String| &**other < signature && present.contains(&**other);
        let elsewhere = shared
            .iter()
            .filter(|one| one.others.iter().any(is_counted_there))
            .fold(0, |sum: u64, one| sum.saturating_add(one.bytes));
        sum.saturating_add(bytes.saturating_sub(elsewhere))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(others: &[&str], bytes: u64) -> Shared {
        Shared {
            others: others.iter().map(ToString::to_string).collect(),
            bytes,
        }
    }

    #[test]
    fn what_is_shared_counts_once_whoever_is_left_out() {
        // 1 is held by a, 2 by a and b, 4 by b and c, 8 by all.
        let a = ("a", 11, &[shared(&["b"], 2), shared(&["b", "c"], 8)][..]);
        let b = [shared(&["a"], 2), shared(&["c"], 4), shared(&["a", "c"], 8)];
        let b = ("b", 14, &b[..]);
        let c = ("c", 12, &[shared(&["b"], 4), shared(&["a", "b"], 8)][..]);
        let sum = |leaks: &[(&str, u64, &[Shared])]| total(leaks.iter().copied());
        assert_eq!(sum(&[a, b, c]), 15);
        assert_eq!(sum(&[c, b, a]), 15);
        assert_eq!(sum(&[a, b]), 15);
        assert_eq!(sum(&[b, c]), 14);
        assert_eq!(sum(&[a, c]), 1 + 2 + 4 + 8);
        assert_eq!(sum(&[c]), 12);
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn the_same_set_is_added_to() {
        let mut all = vec![shared(&["a"], 1)];
        add(&mut all, &[shared(&["a"], 2), shared(&["b"], 3)]);
        assert_eq!(all, [shared(&["a"], 3), shared(&["b"], 3)]);
    }
}
