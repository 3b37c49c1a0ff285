//! What was told, and is no longer so.

use std::mem::take;

use super::{BEYOND, Book, GIVEN_BACK, has_begun_since};
use crate::analysis::told::{Followed, Told};
use crate::diagnose::cohorts::Group;
use crate::model::growth::Growth;

impl Book {
    /// What was told, but has given back most of that since, or, where the flag is set, does not grow any longer.
    pub fn clear(&mut self) -> Vec<(Growth, bool)> {
        let (mut cleared, mut within_limits) = (Vec::new(), Vec::new());
        let mut all = take(&mut self.told);
        for told in all.iter_mut().filter(|told| !told.is_cleared) {
            let has_fallen = self.has_fallen(told);
            told.has_stopped = !has_fallen && self.has_stopped(told);
            if has_fallen || told.has_stopped {
                told.is_cleared = true;
                told.again_from = self.again_from(told);
                if told.limit.is_some() {
                    within_limits.push(told.growth.clone());
                } else if !told.is_part {
                    cleared.push((told.growth.clone(), told.has_stopped));
                }
            }
        }
        // With the whole go its parts.
        let withdrawn = || cleared.iter().map(|it| &it.0).chain(&within_limits);
        let is_withdrawn = |told: &Told| withdrawn().any(|it| it.is_same(&told.growth));
        all.retain(|told| !told.is_part || !told.is_cleared && !is_withdrawn(told));
        self.told = all;
        cleared
    }

    /// True if most of what was told has been given back.
    fn has_fallen(&self, told: &mut Told) -> bool {
        match &mut told.followed {
            // Who releases the oldest and keeps more than that all the same still grows, and who keeps others in their
            // place has given nothing back.
            Followed::Group {
                key,
                length,
                members,
                ..
            } => {
                let Some(group) = self.groups.groups.get(key) else {
                    return true;
                };
                let left = group.alive_of(members) as f64;
                let steps = self.groups.steps.iter();
                let then = steps
                    .zip(&group.totals)
                    .find(|(step, _)| **step == told.growth.step);
                let then = then.map_or(0, |(_, total)| total.1);
                let given_back = then.saturating_sub(group.bytes()) as f64;
                left <= (1.0 - GIVEN_BACK) * members.len() as f64
                    && given_back >= GIVEN_BACK * told.growth.bytes as f64
                    && !self.groups.grows_still(group, *length)
            }
            // A line begins anew when it becomes shorter.
            Followed::Longer { family, .. } => {
                has_begun_since(self.lengths.get(family), told.growth.step)
            }
            Followed::Arrays { address, .. } | Followed::Atoms(address) => {
                has_begun_since(self.containers.get(address), told.growth.step)
            }
            Followed::State { older, .. } => {
                let now = self.older_now;
                *older = now.unwrap_or_default().max(*older);
                now.is_some_and(|now| (now as f64) < (1.0 - GIVEN_BACK) * *older as f64)
            }
            Followed::Objects {
                ty,
                length,
                members,
                found_at,
            } => {
                let left = self.types.part_alive(ty, members);
                // Another owner may have more and more of the type.
                let looked_at = self.looks.get(ty).map_or(0, |look| look.step);
                left.is_some_and(|left| left <= 1.0 - GIVEN_BACK)
                    && (!self.types.grows_still(ty, *length)
                        || looked_at.saturating_sub(*found_at) >= told.window)
            }
            Followed::Counter(_) | Followed::Not => false,
        }
    }

    /// True if what was told has not grown for as long as it took to find it.
    fn has_stopped(&self, told: &Told) -> bool {
        let step = self.groups.steps.last().copied().unwrap_or_default();
        match &told.followed {
            Followed::Group {
                key,
                looked_at,
                grew_at,
                ..
            } => {
                let group = self.groups.groups.get(key);
                // Another owner may have more and more of the group.
                let look = self.groups.steps.get(looked_at.saturating_sub(1));
                let since = look.map_or(0, |look| look.saturating_sub(*grew_at));
                since >= told.window
                    || group.is_some_and(|it| self.groups.nothing_stays(it, told.window))
            }
            Followed::Longer { family, .. } => {
                let line = self.lengths.get(family);
                line.is_some_and(|line| step - line.last_rise() >= told.window)
            }
            Followed::Arrays { address, .. } => {
                let line = self.containers.get(address);
                line.is_some_and(|line| step - line.last_rise() >= told.window)
            }
            Followed::Objects { ty, .. } => self.types.has_stopped(ty, told.window),
            Followed::Atoms(address) => {
                let line = self.containers.get(address);
                line.is_some_and(|line| line.has_stopped(step))
            }
            Followed::Counter(counter) => counter.has_stopped(&self.counters),
            Followed::State { .. } | Followed::Not => false,
        }
    }

    /// How large what is withdrawn must be to be told again.
    fn again_from(&mut self, told: &Told) -> f64 {
        match &told.followed {
            Followed::Group { key, keeps, .. } => {
                self.looked_at.remove(key);
                let group = self.groups.groups.get(key);
                let left = group.map_or(0, Group::bytes);
                let most = group.map_or(0, Group::most_bytes);
                // What has stopped may go on for a short while, what has fallen may come as far as before.
                let more = match told.has_stopped {
                    true => (BEYOND - 1.0) * keeps.bytes as f64,
                    false => BEYOND * (most - left) as f64,
                };
                left as f64 + more
            }
            Followed::Longer { family, .. } => {
                self.told_longer.remove(family);
                let line = self.lengths.get(family);
                BEYOND * line.map_or(0, |line| line.length) as f64
            }
            Followed::Arrays { address, .. } | Followed::Atoms(address) => {
                let line = self.containers.get(address);
                BEYOND * line.map_or(0, |line| line.length) as f64
            }
            Followed::Objects { ty, .. } => {
                self.types.set_told(ty, false);
                BEYOND * self.types.count(ty) as f64
            }
            _ => 0.0,
        }
    }
}
