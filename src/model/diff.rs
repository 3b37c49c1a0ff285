//! The changes between two heaps.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::heap::{Buffer, Heap, SCHEMA, version, without_numbers};
use super::report::Process;

/// The changes between two heaps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, name = "HeapDiff", module = "cyclescope")
)]
#[non_exhaustive]
pub struct Diff {
    /// Version of this format: 1.
    #[serde(default = "version")]
    pub schema: u32,
    /// The paths to the memory that changed.
    pub rows: Vec<Change>,
    /// The same by owner: the first named object on these paths.
    #[serde(default)]
    pub owners: Vec<Change>,
    /// The paths to the memory that did not change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchanged: Vec<Change>,
    /// Total change in bytes.
    pub bytes: i64,
    /// Change in the number of objects.
    pub objects: i64,
    /// Times of the earlier and the later heap, in seconds since 1970-01-01 UTC.
    #[serde(default)]
    pub times: [f64; 2],
    /// The process of the later one.
    #[serde(default)]
    pub process: Process,
}

/// How one owner's memory changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Change {
    /// As [`Buffer::kind`], or [`Buffer::first_owner`] without numbers.
    pub name: String,
    pub bytes: i64,
    /// Change in the number of buffers.
    pub buffers: i64,
    pub now_bytes: u64,
}

impl Heap {
    /// The changes since `old`, by owner, most bytes first.
    pub fn diff(&self, old: &Self) -> Diff {
        let (rows, unchanged) = self.changes(old, Buffer::kind);
        let (owners, _) = self.changes(old, |buffer| without_numbers(&buffer.first_owner));
        Diff {
            schema: SCHEMA,
            bytes: rows
                .iter()
                .map(|row| row.bytes)
                .fold(0, i64::saturating_add),
            rows,
            owners,
            unchanged,
            objects: (self.objects as i64).saturating_sub(old.objects as i64),
            times: [old.time, self.time],
            process: self.process.clone(),
        }
    }

    /// The changes by this name of each buffer, most bytes first; and what did not change.
    fn changes(&self, old: &Self, name: impl Fn(&Buffer) -> String) -> (Vec<Change>, Vec<Change>) {
        let mut rows: BTreeMap<String, Change> = BTreeMap::new();
        for (heap, sign) in [(old, -1i64), (self, 1)] {
            for buffer in &heap.buffers {
                let name = name(buffer);
                let row = rows.entry(name.clone()).or_insert_with(|| Change {
                    name,
                    ..Change::default()
                });
                row.buffers += sign;
                let bytes = sign * i64::try_from(buffer.bytes).unwrap_or(i64::MAX);
                row.bytes = row.bytes.saturating_add(bytes);
                if sign > 0 {
                    row.now_bytes = row.now_bytes.saturating_add(buffer.bytes);
                }
            }
        }
        let is_changed = |row: &Change| row.bytes != 0 || row.buffers != 0;
        let (mut rows, unchanged): (Vec<_>, Vec<_>) = rows.into_values().partition(is_changed);
        rows.sort_by(|a, b| {
            (Reverse(a.bytes.unsigned_abs()), &a.name)
                .cmp(&(Reverse(b.bytes.unsigned_abs()), &b.name))
        });
        (rows, unchanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grew_is_matched_however_long_the_list() {
        let buffer = |owner| Buffer {
            owner,
            bytes: 8,
            device: "cuda:0".to_owned(),
            ..Buffer::default()
        };
        let heap = |items: u64| Heap {
            buffers: (0..items)
                .map(|i| buffer(format!("`h` (list, {items} items) → [{i}]")))
                .collect(),
            ..Heap::default()
        };
        let diff = heap(5).diff(&heap(2));
        assert_eq!(diff.rows.len(), 1);
        assert_eq!((diff.rows[0].bytes, diff.rows[0].buffers), (24, 3));
        assert_eq!(heap(2).diff(&heap(2)).rows, []);
    }
}
