//! How much of the growth what was told explains, and what grows beside it.

use std::cmp::Reverse;

use super::{ALL, Book, FEWEST};
use crate::analysis::told::{Followed, Told};
use crate::diagnose::cohorts::WARM_UP;
use crate::diagnose::lengths::Line;
use crate::model::growth::{Counters, MoreObjects};
use crate::model::heap::same_owner;

impl Book {
    /// The bytes that an owner keeps of what came since the warm-up, and how many of these no tensor of
    /// Python's shows.
    pub fn explained(&self, told: &Told) -> (u64, u64) {
        match &told.followed {
            Followed::Group {
                key,
                keeps,
                looked_at,
                ..
            } => {
                let Some(group) = self.groups.groups.get(key) else {
                    return (0, 0);
                };
                // What has come since the last look is shared as it was before that.
                let came = keeps.share * group.came_since(*looked_at) as f64;
                let larger = match keeps.share >= ALL {
                    true => group.larger_since(looked_at.saturating_sub(1)),
                    false => 1.0,
                };
                let more = 1.0 + came * larger / keeps.count.max(1) as f64;
                let of_all = |bytes: u64| (bytes as f64 * more) as u64;
                (of_all(keeps.bytes), of_all(keeps.hidden))
            }
            Followed::Longer { family, share } => {
                let grown = self.lengths.get(family).map_or(0, Line::grown);
                ((grown as f64 * share) as u64, 0)
            }
            Followed::Arrays {
                address,
                bytes,
                hidden,
            } => {
                let line = self.containers.get(address);
                let added = line.map_or(0, |line| line.length - line.first_length);
                let of_all = |bytes: f64| (added as f64 * bytes) as u64;
                (of_all(*bytes), of_all(*hidden))
            }
            Followed::State { bytes, hidden, .. } => {
                let first = self.groups.steps.get(WARM_UP).copied().unwrap_or_default();
                let last = self.groups.steps.last().copied().unwrap_or_default();
                let steps = last.saturating_sub(first) as f64;
                ((steps * bytes) as u64, (steps * hidden) as u64)
            }
            Followed::Objects { .. }
            | Followed::Atoms(_)
            | Followed::Counter(_)
            | Followed::Not => (0, 0),
        }
    }

    /// How many more objects there are than when it was told, by type, by container, or of the process.
    pub fn more_since(&self, told: &Told) -> u64 {
        let (then, now) = match &told.followed {
            Followed::Objects { ty, .. } => {
                let history = self.types.history(ty);
                let then = history.iter().find(|(step, _)| *step >= told.growth.step);
                (then.map_or(0, |it| it.1), self.types.count(ty))
            }
            Followed::Atoms(address) => {
                let line = self.containers.get(address);
                (told.length, line.map_or(0, |line| line.length))
            }
            Followed::Counter(counter) => {
                let at = |it: Option<&Counters>| it.map_or(0, |it| counter.of(it));
                let then = self.counters.iter().find(|it| it.step >= told.growth.step);
                (at(then), at(self.counters.last()))
            }
            _ => (0, 0),
        };
        now.saturating_sub(then)
    }

    /// The types that have more and more objects and are not told, and not known to be within a limit.
    pub fn untold_objects(&self) -> Vec<MoreObjects> {
        let mut found = Vec::new();
        for (ty, more, since) in self.types.untold() {
            let Some(look) = self.looks.get(ty).filter(|it| !it.is_limited) else {
                continue;
            };
            // What only tensors hold is told as these.
            if look.owner.is_empty() && look.name.starts_with("torch.") {
                continue;
            }
            let is_told = |told: &Told| same_owner(&told.growth.owner, &look.owner);
            if more >= FEWEST && !self.left().any(is_told) {
                found.push(MoreObjects {
                    class: look.name.clone(),
                    owner: match look.keeps_all {
                        true => look.owner.clone(),
                        false => String::new(),
                    },
                    objects: more,
                    bytes: (more as f64 * look.each) as u64,
                    since,
                });
            }
        }
        found.sort_by_key(|it| (Reverse(it.bytes), Reverse(it.objects), it.class.clone()));
        found
    }
}
