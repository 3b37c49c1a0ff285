//! Compares the leaks of two reports, by signature, which is stable across runs of the same code.

use std::cmp::Reverse;

use super::earlier::{Earlier, Gone};
use super::report::{Leak, Report};
use super::words::human_bytes;

/// What has become of a leak since an earlier report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    New,
    /// It holds more than the bytes that it held.
    Grown(u64),
    /// It holds fewer.
    Smaller(u64),
    Unchanged,
}

/// How many leaks have changed in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub new: usize,
    pub grown: usize,
    pub gone: usize,
    pub unchanged_or_smaller: usize,
}

impl Report {
    /// The report with what has changed since an earlier one.
    pub fn against(&self, earlier: &Report) -> Report {
        let held = earlier.leaks.iter();
        let held = held.map(|leak| (leak.signature.clone(), leak.bytes_held));
        let is_gone = |leak: &&Leak| {
            let signature = &leak.signature;
            !self.leaks.iter().any(|other| other.signature == *signature)
        };
        let mut gone: Vec<Gone> = earlier.leaks.iter().filter(is_gone).map(gone).collect();
        gone.sort_by_key(|leak| Reverse(leak.bytes_held));
        let mut compared = self.clone();
        compared.earlier = Some(Earlier {
            time: earlier.time,
            bytes_held: held.collect(),
            gone,
        });
        compared
    }

    /// What has become of one of its leaks; `None` if it is compared with nothing.
    pub fn change(&self, leak: &Leak) -> Option<Change> {
        let earlier = self.earlier.as_ref()?;
        Some(match earlier.bytes_held.get(&leak.signature) {
            None => Change::New,
            Some(&before) if before < leak.bytes_held => Change::Grown(before),
            Some(&before) if before > leak.bytes_held => Change::Smaller(before),
            Some(_) => Change::Unchanged,
        })
    }

    /// How many of its leaks are new or have grown, and how many are gone.
    pub fn changes(&self) -> Option<Changes> {
        let mut changes = Changes {
            gone: self.earlier.as_ref()?.gone.len(),
            ..Changes::default()
        };
        for change in self.leaks.iter().filter_map(|leak| self.change(leak)) {
            match change {
                Change::New => changes.new += 1,
                Change::Grown(_) => changes.grown += 1,
                Change::Smaller(_) | Change::Unchanged => changes.unchanged_or_smaller += 1,
            }
        }
        Some(changes)
    }
}

fn gone(leak: &Leak) -> Gone {
    Gone {
        signature: leak.signature.clone(),
        pattern: leak.pattern.clone(),
        summary: leak.summary.clone(),
        count: leak.count,
        bytes_held: leak.bytes_held,
        location: leak.line_to_change(),
    }
}

impl Change {
    /// `new`, `grown`, `smaller` or `unchanged`.
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Grown(_) => "grown",
            Self::Smaller(_) => "smaller",
            Self::Unchanged => "unchanged",
        }
    }

    /// The word with what was held before: `grown, was 1.0 MiB`.
    pub fn words(self) -> String {
        match self {
            Self::Grown(before) | Self::Smaller(before) => {
                format!("{}, was {}", self.word(), human_bytes(before))
            }
            Self::New | Self::Unchanged => self.word().to_owned(),
        }
    }
}

impl std::fmt::Display for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            new,
            grown,
            gone,
            unchanged_or_smaller: rest,
        } = self;
        write!(
            f,
            "{new} new, {grown} grown, {gone} gone, {rest} unchanged or smaller"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::{from_json, to_json};
    use crate::render::samples;

    #[test]
    fn a_leak_is_new_grown_gone_or_neither() {
        let earlier = samples::linked_nodes_and_exception();
        let mut later = earlier.clone();
        assert_eq!(later.change(&later.leaks[0]), None);
        later.leaks[0].bytes_held += 1;
        later.leaks.remove(1);
        later.leaks.extend(samples::callback().leaks);
        let compared = later.against(&earlier);
        let before = earlier.leaks[0].bytes_held;
        let changes: Vec<_> = compared
            .leaks
            .iter()
            .map(|it| compared.change(it))
            .collect();
        assert_eq!(changes, [Some(Change::Grown(before)), Some(Change::New)]);
        let gone = &compared.earlier.as_ref().expect("compared").gone;
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].signature, earlier.leaks[1].signature);
        let said = compared.changes().expect("compared").to_string();
        assert_eq!(said, "1 new, 1 grown, 1 gone, 0 unchanged or smaller");
        let same = earlier.against(&earlier).changes().expect("compared");
        assert_eq!(same.unchanged_or_smaller, 2);
        let smaller = earlier.against(&compared);
        assert_eq!(
            smaller.change(&smaller.leaks[0]),
            Some(Change::Smaller(before + 1))
        );
        assert_eq!(from_json(&to_json(&compared)), Ok(compared));
    }
}
