//! Compares the leaks of two reports: by signature, which is stable across runs of the same code, and those that are
//! left by outline, which is stable where lines have moved.

use std::cmp::Reverse;
use std::collections::BTreeMap;

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
        let again = self.known_again(earlier);
        let held = again.iter();
        let held = held.map(|(now, before)| ((*now).to_owned(), before.bytes_held));
        let is_gone = |leak: &&Leak| {
            let mut found = again.values();
            !found.any(|before| before.signature == leak.signature)
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

    /// Those of its leaks that an earlier report has, by signature, each with that leak. Leaks of one outline that have
    /// other signatures than before are the same if they hold as much, or else in the order of their lines.
    pub fn known_again<'a>(&'a self, earlier: &'a Report) -> BTreeMap<&'a str, &'a Leak> {
        let same = |leak: &&'a Leak| {
            let mut before = earlier.leaks.iter();
            before.find(|before| before.signature == leak.signature)
        };
        let mut again: BTreeMap<&str, &Leak> = self
            .leaks
            .iter()
            .filter_map(|leak| Some((&*leak.signature, same(&leak)?)))
            .collect();
        let in_order = |leaks: &'a [Leak], others: &'a [Leak]| {
            let left = leaks.iter().filter(|leak| leak.outline.is_some());
            let mut left: Vec<&'a Leak> = left
                .filter(|leak| others.iter().all(|it| it.signature != leak.signature))
                .collect();
            left.sort_by_key(|leak| leak.line_to_change().map(|it| it.line));
            left
        };
        let mut before = in_order(&earlier.leaks, &self.leaks);
        let mut after = in_order(&self.leaks, &earlier.leaks);
        for as_large in [true, false] {
            after.retain(|leak| {
                let moved = before.iter().position(|it| {
                    it.outline == leak.outline
                        && place_of(it) == place_of(leak)
                        && (!as_large || it.bytes_held == leak.bytes_held)
                });
                if let Some(moved) = moved {
                    again.insert(&leak.signature, before.remove(moved));
                }
                moved.is_none()
            });
        }
        again
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

/// The file to change with its folder, which is as far as the same code has the same path on two machines.
fn place_of(leak: &Leak) -> Option<String> {
    let file = leak.line_to_change()?.file;
    let mut parts = file.rsplit(['/', '\\']);
    let name = parts.next()?;
    Some(format!("{}/{name}", parts.next().unwrap_or_default()))
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

    /// True for a leak that was not there, or held less.
    pub fn is_for_worse(self) -> bool {
        matches!(self, Self::New | Self::Grown(_))
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

impl Changes {
    /// What has changed: `2 new, 1 gone`; empty if nothing has.
    pub fn words(&self) -> String {
        let known = [
            (self.new, "new"),
            (self.grown, "grown"),
            (self.gone, "gone"),
        ];
        let known = known.iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = known
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        words.join(", ")
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
    use crate::model::source::Location;
    use crate::render::samples;

    #[test]
    fn a_leak_whose_line_moved_is_the_same() {
        let named = |signature: &str, line: u32| {
            let mut leak = samples::callback().leaks.remove(0);
            leak.signature = signature.into();
            leak.outline = Some("0123456789abcdef".into());
            leak.source = None;
            leak.cuts[0].location = Some(Location {
                file: "train.py".into(),
                line,
            });
            leak
        };
        let report = |leaks: Vec<Leak>| Report {
            leaks,
            ..samples::callback()
        };
        let changes = |now: &Report, before: &Report| now.against(before).changes();
        let before = report(vec![named("a", 10), named("b", 20)]);
        let moved = report(vec![named("d", 23), named("c", 13)]);
        let again = moved.known_again(&before);
        assert_eq!([&again["c"].signature, &again["d"].signature], ["a", "b"]);
        let unchanged = Changes {
            unchanged_or_smaller: 2,
            ..Changes::default()
        };
        assert_eq!(changes(&moved, &before), Some(unchanged));
        let one_more = report(vec![named("c", 13), named("d", 23), named("e", 5)]);
        let said = changes(&one_more, &before).map(|it| (it.new, it.gone));
        assert_eq!(said, Some((1, 0)));
        let one_stays = report(vec![named("a", 10), named("e", 30)]);
        let again = one_stays.known_again(&before);
        assert_eq!([&again["a"].signature, &again["e"].signature], ["a", "b"]);
        let mut without = moved.clone();
        without
            .leaks
            .iter_mut()
            .for_each(|leak| leak.outline = None);
        let said = changes(&without, &before).map(|it| (it.new, it.gone));
        assert_eq!(said, Some((2, 2)));
    }

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
