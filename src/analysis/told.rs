//! What a monitor has found and told, and by what it is followed on.

use rustc_hash::FxHashSet;

use super::grown::{Diagnosis, GroupKind, Kept, Name};
use super::objects::Grouped;
use crate::diagnose::cohorts::WINDOW;
use crate::diagnose::source::Limit;
use crate::model::growth::{Counters, Growth, are_told_together};
use crate::model::heap::same_owner;

/// What tensors are counted together by: what they are, device and dtype.
pub(super) type Key = (GroupKind, String, String);

pub(super) struct Told {
    pub growth: Growth,
    pub keeps_graphs: bool,
    pub followed: Followed,
    /// It is a group of another owner's, such as tensors of another dtype, and told with that one's.
    pub is_part: bool,
    /// It has given back most of what was told, or grows no longer.
    pub is_cleared: bool,
    pub has_stopped: bool,
    /// In so many steps it was seen to grow. It has stopped if it has not grown in as many.
    pub window: u64,
    /// How many items a container had when it was told.
    pub length: u64,
    /// Of what was withdrawn, there is to be more than this for it to be told again: bytes of the group, objects of the
    /// type or items of the container.
    pub again_from: f64,
    /// The program may keep it within a limit: until it is beyond, nothing is said of it.
    pub limit: Option<Limit>,
}

impl Told {
    /// True if a finding is what was told. What keeps models keeps their parameters and the state of their optimizers.
    pub fn is_of(&self, found: &Diagnosis) -> bool {
        are_told_together(&self.growth.pattern, found.pattern.name)
            && same_owner(&self.growth.owner, &found.owner)
    }

    /// The address of what keeps members of a group, if that was told.
    pub fn holder_in(&self, group: &Key) -> Option<usize> {
        match &self.followed {
            Followed::Group { key, keeps, .. } if key == group && !self.is_cleared => {
                Some(keeps.holder)
            }
            _ => None,
        }
    }
}

/// By what it is seen whether what was told goes on.
pub(super) enum Followed {
    Group {
        key: Key,
        /// The length of the intervals in which it grew.
        length: usize,
        /// Some of the members that the owner kept when it was told.
        members: FxHashSet<Name>,
        /// What the owner kept at the last look, and the number of the first sample behind that.
        keeps: Kept,
        looked_at: usize,
        /// The most that it kept at any look, and the step of the first look that saw as many.
        most: u64,
        grew_at: u64,
    },
    /// The family of tensors that become longer, and the part of these that the owner has.
    Longer {
        family: u64,
        share: f64,
    },
    /// The address of a container, and of each of its items the bytes that arrays have, and those that no tensor shows.
    Arrays {
        address: usize,
        bytes: f64,
        hidden: f64,
    },
    /// The objects of a type, by its address: some of those that the owner kept when it was told, and the
    /// length of the intervals in which they became more.
    Objects {
        ty: usize,
        length: usize,
        members: FxHashSet<usize>,
        /// The step of the last look that found it.
        found_at: u64,
    },
    /// The address of a container of strings and numbers.
    Atoms(usize),
    Counter(Counter),
    /// A tensor whose graph reaches further and further back.
    State {
        /// Bytes that a step adds, and how many of these no tensor of Python's shows.
        bytes: f64,
        hidden: f64,
        /// The most autograd functions of earlier steps that there were.
        older: u64,
    },
    /// Its amount does not grow, or is not known.
    Not,
}

/// Something to tell, and where it is from.
pub(super) struct Finding {
    pub diagnosis: Diagnosis,
    pub from: Origin,
}

pub(super) enum Origin {
    Group(Due),
    Longer {
        family: u64,
        share: f64,
    },
    Arrays(usize),
    /// The objects of a type, which has become more numerous in intervals of this length.
    Objects {
        ty: usize,
        length: usize,
    },
    Atoms(usize),
    Counter(Counter),
    State,
    Other,
}

/// Something that is counted of the whole process.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    Threads,
    Files,
}

impl Counter {
    pub fn of(self, counters: &Counters) -> u64 {
        match self {
            Self::Threads => counters.threads,
            Self::Files => counters.files,
        }
    }

    /// True if the process has no more of it than a window ago.
    pub fn has_stopped(self, samples: &[Counters]) -> bool {
        let before = samples.iter().rev().nth(WINDOW);
        let now = samples.last().map(|it| self.of(it));
        before.is_some_and(|before| now.is_some_and(|now| now <= self.of(before)))
    }
}

/// A type that has more and more objects, and the length of the intervals in which it does.
pub(super) struct DueObjects {
    pub group: Grouped,
    pub length: usize,
}

pub(super) fn other(diagnosis: Diagnosis) -> Finding {
    Finding {
        diagnosis,
        from: Origin::Other,
    }
}

/// A group that is to be diagnosed, with the length of the intervals in which it grows.
#[derive(Clone)]
pub(super) struct Due {
    pub key: Key,
    pub length: usize,
    /// False if it is looked at only to see whether who was told to keep some goes on.
    pub is_growing: bool,
}
