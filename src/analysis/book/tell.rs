//! What has grown is told, and followed from then on.

use super::{ALL, Book, FOLLOWED, Moment};
use crate::analysis::grown::Diagnosis;
use crate::analysis::told::{Finding, Followed, Origin, Told};
use crate::diagnose::cohorts::Group;
use crate::diagnose::growth::ACTIVATION_ON_MODULE;
use crate::diagnose::lengths::Line;
use crate::model::growth::Growth;
use crate::model::heap::{same_owner, without_line};

/// True for one of the containers of which several were told as one owner, `cache[each]`.
fn is_each(told: &str, owner: &str) -> bool {
    let (told, owner) = (without_line(told), without_line(owner));
    told.split_once("[each]").is_some_and(|(before, behind)| {
        let rest = owner.strip_prefix(before);
        let one = rest.and_then(|it| it.strip_suffix(behind));
        // What is deeper within one of them is another.
        one.is_some_and(|it| it.starts_with('[') && it.ends_with(']') && !it.contains(" → "))
    })
}

impl Book {
    /// True if this was told. What was withdrawn is told again once there is more than there ever was till then: what
    /// only comes as far as before may be given back as before.
    pub fn has_told(&self, found: &Finding) -> bool {
        // Who keeps tensors is told by these, and not by what else there is of them.
        let is_of_objects = matches!(found.from, Origin::Objects { .. } | Origin::Atoms(_));
        let is_activation = found.diagnosis.pattern.name == ACTIVATION_ON_MODULE.name;
        let owner = &found.diagnosis.owner;
        if (is_of_objects || is_activation)
            && self.left().any(|told| {
                same_owner(&told.growth.owner, owner) || is_each(&told.growth.owner, owner)
            })
        {
            return true;
        }
        let mut told = self.told.iter();
        told.any(|told| {
            let length = |line: Option<u64>| line.unwrap_or_default() as f64;
            let now = match &found.from {
                Origin::Group(due) => length(self.groups.groups.get(&due.key).map(Group::bytes)),
                Origin::Objects { ty, .. } => self.types.count(ty) as f64,
                Origin::Arrays(address) | Origin::Atoms(address) => {
                    length(self.containers.get(address).map(|line| line.length))
                }
                Origin::Longer { family, .. } => {
                    length(self.lengths.get(family).map(|line| line.length))
                }
                Origin::Counter(_) | Origin::State => f64::INFINITY,
                Origin::Other => 0.0,
            };
            let may_be_told_again = now > told.again_from;
            told.is_of(&found.diagnosis) && !(told.is_cleared && may_be_told_again)
        })
    }

    /// True for tensors of an owner whose objects were told: these are told no longer, as they are the same growth, unless
    /// the tensors are withdrawn.
    pub fn replaces_objects(&mut self, found: &Finding) -> bool {
        if !matches!(found.from, Origin::Group(_)) {
            return false;
        }
        let owner = &found.diagnosis.owner;
        let types = &mut self.types;
        let mut was_told = false;
        self.told.retain(|told| match &told.followed {
            Followed::Objects { ty, .. }
                if !told.is_cleared && same_owner(&told.growth.owner, owner) =>
            {
                types.set_told(ty, false);
                was_told |= told.limit.is_none();
                false
            }
            _ => true,
        });
        was_told
    }

    /// Takes note of a further group of an owner that was told, such as tensors of another dtype. What is told in this
    /// step tells of both.
    pub fn tell_part(&mut self, now: Moment, found: Finding) {
        let Origin::Group(due) = &found.from else {
            return;
        };
        let same = |told: &&Told| !told.is_cleared && told.is_of(&found.diagnosis);
        let is_known = |told: &Told| told.holder_in(&due.key).is_some();
        if !self.told.iter().any(|it| same(&it)) || self.told.iter().filter(same).any(is_known) {
            return;
        }
        let part = self.tell(now, found, None, true);
        let mut told = self.told.iter_mut();
        let whole = told.find(|it| !it.is_part && it.growth.is_same(&part));
        if let Some(Told { growth, .. }) = whole.filter(|it| it.growth.step == now.step) {
            growth.tensors += part.tensors;
            growth.bytes += part.bytes;
            growth.bytes_per_step += part.bytes_per_step;
        }
    }

    /// Takes note of what is told; of a part, which others are told before.
    pub fn tell(
        &mut self,
        now: Moment,
        found: Finding,
        line: Option<String>,
        is_part: bool,
    ) -> Growth {
        let Finding { diagnosis, from } = found;
        if !is_part {
            self.told.retain(|told| !told.is_of(&diagnosis));
        }
        // That a module keeps it is said with it.
        if matches!(from, Origin::State) {
            self.told.retain(|told| {
                told.growth.pattern != ACTIVATION_ON_MODULE.name
                    || !same_owner(&told.growth.owner, &diagnosis.owner)
            });
        }
        let pattern = diagnosis.pattern;
        let tensors = diagnosis.tensors as u64;
        let (steps, rate) = self.rate(now, &diagnosis, &from);
        let length = match &from {
            Origin::Atoms(address) | Origin::Arrays(address) => {
                self.containers.get(address).map_or(0, |line| line.length)
            }
            _ => 0,
        };
        let window = match &from {
            Origin::Longer { .. }
            | Origin::Arrays(_)
            | Origin::Group(_)
            | Origin::Objects { .. } => steps,
            _ => 0,
        };
        let followed = self.followed(now, &diagnosis, from, length);
        let growth = Growth {
            pattern: pattern.name.to_owned(),
            summary: pattern.summary(&diagnosis.owner, &diagnosis.hook, &diagnosis.evidence),
            owner: diagnosis.owner,
            advice: pattern.advice_for(diagnosis.beside.is_list),
            step: now.step,
            tensors,
            objects: diagnosis.objects,
            bytes: diagnosis.bytes,
            bytes_per_step: rate as f64 / steps.max(1) as f64,
            example: diagnosis.example,
            allocated_at: line.or(diagnosis.site),
            samples: self.groups.steps.len() as u64,
            added_at: Vec::new(),
            limited_at: Vec::new(),
        };
        self.told.push(Told {
            window,
            length,
            again_from: 0.0,
            limit: None,
            growth: growth.clone(),
            keeps_graphs: pattern.keeps_graphs,
            is_part,
            followed,
            is_cleared: false,
            has_stopped: false,
        });
        growth
    }
    /// The number of steps in which something has grown, and by how many bytes.
    fn rate(&self, now: Moment, diagnosis: &Diagnosis, from: &Origin) -> (u64, u64) {
        let since = |line: Option<&Line<_>>| now.step - line.map_or(0, |line| line.first_step);
        match from {
            Origin::Group(due) => {
                let steps = self.groups.steps_since(diagnosis.ages, due.length);
                let group = self.groups.groups.get(&due.key);
                let turnover = group.map(|it| self.groups.turnover(it, due.length, diagnosis.ages));
                let stays = match turnover {
                    // What goes is the owner's if what comes is.
                    Some((came, grown))
                        if grown < came && diagnosis.tensors as f64 >= ALL * came as f64 =>
                    {
                        grown as f64 / came as f64
                    }
                    _ => 1.0,
                };
                (steps, (diagnosis.bytes as f64 * stays) as u64)
            }
            Origin::Longer { family, share } => {
                let line = self.lengths.get(family);
                let grown = line.map_or(0, Line::grown);
                (since(line), (grown as f64 * share) as u64)
            }
            Origin::Arrays(address) => {
                let line = self.containers.get(address);
                let steps = line.map_or(1, |line| now.step - line.first_step);
                let added = line.map_or(0, |line| line.length - line.first_length);
                // An item may have several arrays.
                let items = line.map_or(1, |line| line.length);
                (steps, added * diagnosis.bytes / items.max(1))
            }
            Origin::Objects { ty, length } => {
                let steps = self.types.steps_since(ty, diagnosis.ages, *length);
                (steps, (diagnosis.bytes as f64 * diagnosis.lately) as u64)
            }
            Origin::Atoms(address) => {
                let line = self.containers.get(address);
                let steps = line.map_or(1, |line| now.step - line.first_step);
                let added = line.map_or(0, |line| line.length - line.first_length);
                (steps, added * diagnosis.bytes / diagnosis.objects.max(1))
            }
            Origin::Counter(_) => (1, 0),
            Origin::State | Origin::Other => (now.every, diagnosis.bytes_per_sample),
        }
    }

    /// How to go on following what is told; `length` is that of a container.
    fn followed(
        &mut self,
        now: Moment,
        diagnosis: &Diagnosis,
        from: Origin,
        length: u64,
    ) -> Followed {
        match from {
            Origin::Group(due) => Followed::Group {
                key: due.key,
                length: due.length,
                members: diagnosis.members.iter().copied().take(FOLLOWED).collect(),
                keeps: diagnosis.keeps,
                looked_at: self.groups.steps.len(),
                most: diagnosis.keeps.count,
                grew_at: now.step,
            },
            Origin::Longer { family, share } => Followed::Longer { family, share },
            Origin::Arrays(address) => {
                let of_each = |bytes: u64| bytes as f64 / length.max(1) as f64;
                Followed::Arrays {
                    address,
                    bytes: of_each(diagnosis.bytes),
                    hidden: of_each(diagnosis.hidden),
                }
            }
            Origin::Objects { ty, length } => {
                self.types.set_told(&ty, true);
                let members = diagnosis.members.iter().copied().take(FOLLOWED);
                Followed::Objects {
                    ty,
                    length,
                    members: members.map(|(address, _)| address).collect(),
                    found_at: now.step,
                }
            }
            Origin::Atoms(address) => Followed::Atoms(address),
            Origin::Counter(counter) => Followed::Counter(counter),
            Origin::State => Followed::State {
                bytes: diagnosis.kept as f64 / now.step.max(1) as f64,
                hidden: diagnosis.hidden as f64 / now.step.max(1) as f64,
                older: 0,
            },
            Origin::Other => Followed::Not,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_directly_in_the_container_is_one_of_them() {
        let told = "module `train` → `cache` (dict) → [each]";
        let is_one =
            |rest: &str| is_each(told, &format!("module `train` → `cache` (dict) → {rest}"));
        assert!(is_one("[Node3]") && is_one("['a']"));
        assert!(!is_one("['a'] → .log → ['b']") && !is_one(".log"));
        assert!(!is_each("module `train` → `cache` (dict)", told));
    }
}
