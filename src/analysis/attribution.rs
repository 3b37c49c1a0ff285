//! Which members of a growing group belong to what was told: counted at each look.

use super::book::Book;
use super::grown::{Diagnosis, Grouping, Kept, Name};
use super::told::{Due, Followed, Key, Told};
use crate::diagnose::cohorts::Group;

impl Book {
    /// What a look is to find out about a group that grows in intervals of a length.
    pub(super) fn grouping(
        &self,
        key: &Key,
        group: &Group<Name>,
        length: usize,
    ) -> (Due, Grouping) {
        let told = self.told.iter();
        let grouping = Grouping {
            kind: key.0,
            members: self.groups.members(group, length),
            known: told.filter_map(|told| told.holder_in(key)).collect(),
        };
        let due = Due {
            key: key.clone(),
            length,
            is_growing: true,
        };
        (due, grouping)
    }

    /// The groups some of whose members are kept by what was told.
    pub(super) fn told_groups(&self) -> Vec<(Due, Grouping)> {
        let groups = self.groups.groups.iter();
        let told = groups.filter_map(|(key, group)| {
            let told = self.left().find(|told| told.holder_in(key).is_some())?;
            match told.followed {
                Followed::Group { length, .. } => Some(self.grouping(key, group, length)),
                _ => None,
            }
        });
        told.collect()
    }

    /// Takes note of what those keep that were told, by a look at the members of a group: the same object, or another
    /// that has taken its place, or nothing.
    pub(super) fn attribute(&mut self, key: &Key, known: &[Kept], found: &[Diagnosis]) {
        let now = self.groups.steps.len();
        let step = self.groups.steps.last().copied().unwrap_or_default();
        let group = self.groups.groups.get(key);
        for told in &mut self.told {
            let Some(holder) = told.holder_in(key) else {
                continue;
            };
            // If nothing is left of what it kept, another object may be at its address.
            let is_alive = told.members_in(group) > 0;
            let same = known.iter().find(|kept| is_alive && kept.holder == holder);
            let other = || found.iter().find(|it| told.is_of(it)).map(|it| &it.keeps);
            // The old head of a chain keeps less of it than the new one.
            let kept = same.into_iter().chain(other()).max_by_key(|it| it.count);
            let kept = kept.copied();
            // Of a chain each new link keeps those before it.
            let has_moved = other().is_some_and(|it| it.holder != holder);
            let Followed::Group {
                keeps,
                looked_at,
                most,
                grew_at,
                ..
            } = &mut told.followed
            else {
                continue;
            };
            let count = kept.map_or(0, |it| it.count);
            if count > *most || has_moved {
                (*most, *grew_at) = (count.max(*most), step);
            }
            // A group is looked at in longer and in shorter intervals, and either may find it.
            if kept.is_some() || *looked_at != now {
                *keeps = kept.unwrap_or(Kept {
                    holder,
                    ..Kept::default()
                });
                *looked_at = now;
            }
        }
    }

    /// Takes note of what those keep that were told, as a monitor ends. What they have released since the last sample stays
    /// counted.
    pub(super) fn attribute_more(&mut self, key: &Key, known: &[Kept], found: &[Diagnosis]) {
        let now = self.groups.steps.len();
        let group = self.groups.groups.get(key);
        let told = self.told.iter_mut();
        for told in told.filter(|told| told.members_in(group) > 0) {
            let holder = told.holder_in(key);
            let same = known.iter().filter(|kept| Some(kept.holder) == holder);
            let other = found.iter().filter(|it| told.is_of(it));
            let found = same.chain(other.map(|it| &it.keeps));
            let found = found.max_by_key(|it| it.count);
            if let (
                Some(found),
                Followed::Group {
                    keeps, looked_at, ..
                },
            ) = (found, &mut told.followed)
                && found.count >= keeps.count
            {
                *keeps = *found;
                *looked_at = now;
            }
        }
    }
}

impl Told {
    /// How many of the members that were kept when it was told are alive.
    fn members_in(&self, group: Option<&Group<Name>>) -> usize {
        match (&self.followed, group) {
            (Followed::Group { members, .. }, Some(group)) => group.alive_of(members),
            _ => 0,
        }
    }
}
