//! Selects the objects of a group to describe.

use std::cmp::Reverse;
use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::group::Group;
use crate::capture::Snapshot;
use crate::cpython::ObjectKind;

/// Maximum number of objects of one group to describe, draw and analyse by name.
pub const NODE_LIMIT: usize = 1000;
/// Maximum number of objects of a cycle, or of a path to the buffer, that are all selected. A recursion as deep as Python
/// allows by default, 1,000 calls, has an exception, a traceback and a frame for each.
const CHAIN_LIMIT: usize = 4000;
/// Number of objects to keep at either end of a cycle or path longer than [`CHAIN_LIMIT`].
const CYCLE_ENDS: usize = 8;

/// The objects of a group to describe.
#[derive(Debug, Default)]
pub struct Selection {
    /// Indices in the snapshot.
    pub nodes: Vec<u32>,
    /// The omitted middle of a long cycle, or of a long path to the buffer: the objects before and after it, and its length.
    pub gaps: Vec<(u32, u32, u64)>,
    /// The number of objects of the group that are not selected.
    pub omitted: u64,
}

/// Selects all of an ordinary group. Of a large one, selects a short cycle near the largest buffer,
/// the path to that buffer, and the objects nearest to them. `bytes_of` says how large the buffer is that an object holds.
pub fn select(snapshot: &Snapshot, group: &Group, bytes_of: impl Fn(u32) -> u64) -> Selection {
    if group.nodes.len() <= NODE_LIMIT {
        return Selection {
            nodes: group.nodes.clone(),
            gaps: Vec::new(),
            omitted: 0,
        };
    }
    // Of each object of the snapshot: the component it is in, if it is of the group at all.
    let mut component_of = vec![STRANGER; snapshot.len()];
    for &object in &group.nodes {
        component_of[object as usize] = NO_CYCLE;
    }
    for (number, component) in (0..).zip(&group.components) {
        for &object in component {
            component_of[object as usize] = number;
        }
    }
    let component_of = |object: u32| component_of[object as usize];
    let forth = |object: u32| {
        snapshot
            .targets(object as usize)
            .iter()
            .copied()
            .filter(|&target| component_of(target) != STRANGER)
    };
    let referrers = Referrers::new(snapshot.len(), &group.nodes, &forth);
    let back = |object: u32| referrers.of(object);

    let buffers = group.buffers.iter().copied();
    let Some(buffer) = buffers.min_by_key(|&it| (Reverse(bytes_of(it)), it)) else {
        return Selection::none_of(group);
    };
    let path = path_to(snapshot, buffer, &back, |object| {
        component_of(object) < NO_CYCLE
    });
    let Some(mut path) = path else {
        return Selection::none_of(group);
    };
    let anchor = path.last().copied().unwrap_or_default();
    let inside = |object: u32| component_of(object) == component_of(anchor);
    let step = |object: u32| forth(object).filter(|&next| inside(next));
    // The first object on a path from the anchor that refers to the anchor closes a shortest cycle.
    let closes = |object: u32| forth(object).any(|next| next == anchor);
    let mut cycle = path_to(snapshot, anchor, &step, closes).unwrap_or_default();
    if cycle.len() > CHAIN_LIMIT
        && let Some(short) = short_cycle_within(&cycle, &forth)
    {
        let members: FxHashSet<u32> = short.iter().copied().collect();
        cycle = short;
        path = path_to(snapshot, buffer, &back, |object| members.contains(&object)).unwrap_or(path);
    }
    // Its last object is of the cycle.
    path.pop();
    path.reverse();

    let mut selection = Selection::default();
    selection.add(snapshot, &cycle);
    selection.add(snapshot, &path);
    let centre = selection.nodes.clone();
    selection.nodes.extend(match selection.gaps.is_empty() {
        true => {
            let both = |object: u32| back(object).chain(forth(object)).collect::<Vec<_>>();
            let room = NODE_LIMIT.saturating_sub(centre.len());
            around(&centre, &both, room, |_| true)
        }
        false => around(&centre, &forth, 64, |object| !inside(object)),
    });
    selection.nodes.sort_unstable();
    selection.nodes.dedup();
    selection.omitted = (group.nodes.len() - selection.nodes.len()) as u64;
    selection
}

impl Selection {
    fn none_of(group: &Group) -> Self {
        Self {
            omitted: group.nodes.len() as u64,
            ..Self::default()
        }
    }

    /// Adds objects each of which refers to the next; of more than [`CHAIN_LIMIT`] only both ends.
    fn add(&mut self, snapshot: &Snapshot, chain: &[u32]) {
        if chain.len() <= CHAIN_LIMIT {
            self.nodes.extend(chain);
            return;
        }
        let (last, first) = ends_of(snapshot, chain);
        self.nodes
            .extend(chain[..=last].iter().chain(&chain[first..]));
        self.gaps
            .push((chain[last], chain[first], (first - last - 1) as u64));
    }
}

/// The shortest cycle of some objects of a long one that follow each other, if one has at most [`CHAIN_LIMIT`]: one of them
/// refers back to the first. In a deep recursion the exception, and the call that keeps it, are such.
fn short_cycle_within<I: IntoIterator<Item = u32>>(
    cycle: &[u32],
    forth: &impl Fn(u32) -> I,
) -> Option<Vec<u32>> {
    let step_of: FxHashMap<u32, usize> = cycle.iter().copied().zip(0..).collect();
    let closing = |(last, &object): (usize, &u32)| {
        let steps = forth(object).into_iter();
        let firsts = steps.filter_map(|next| step_of.get(&next).copied());
        let first = firsts.filter(|&first| first <= last).max()?;
        Some((last - first, first))
    };
    let (length, first) = cycle.iter().enumerate().filter_map(closing).min()?;
    (length < CHAIN_LIMIT).then(|| cycle[first..=first + length].to_vec())
}

/// The last object of the beginning of a long chain, and the first of its end, by their places in it.
/// Neither breaks off in the middle of an object's plumbing.
fn ends_of(snapshot: &Snapshot, chain: &[u32]) -> (usize, usize) {
    let whole = |&object: &u32| {
        let kind = snapshot.objects[object as usize].kind;
        !matches!(
            kind,
            ObjectKind::Dict | ObjectKind::Tuple | ObjectKind::Cell
        )
    };
    let last = (0..CYCLE_ENDS)
        .rfind(|&i| whole(&chain[i]))
        .unwrap_or(CYCLE_ENDS - 1);
    let from = chain.len() - CYCLE_ENDS;
    let first = (from..chain.len())
        .find(|&i| whole(&chain[i]))
        .unwrap_or(from);
    (last, first)
}

/// Component number of objects outside the group.
const STRANGER: u32 = u32::MAX;
/// Component number of objects of the group that are in no cycle.
const NO_CYCLE: u32 = u32::MAX - 1;

/// The reversed references of a group.
struct Referrers {
    /// Those of object `i` are `from[first[i]..first[i + 1]]`.
    first: Vec<u32>,
    from: Vec<u32>,
}

impl Referrers {
    fn new<I: IntoIterator<Item = u32>>(
        count: usize,
        nodes: &[u32],
        forth: &impl Fn(u32) -> I,
    ) -> Self {
        let mut first = vec![0; count + 2];
        for target in nodes.iter().flat_map(|&object| forth(object)) {
            first[target as usize + 2] += 1;
        }
        for i in 2..first.len() {
            first[i] += first[i - 1];
        }
        // While it is filled, `first[i + 1]` is where the next referrer of object `i` goes.
        let mut from = vec![0; first.last().copied().unwrap_or(0) as usize];
        for &object in nodes {
            for target in forth(object) {
                let place = &mut first[target as usize + 1];
                from[*place as usize] = object;
                *place += 1;
            }
        }
        Self { first, from }
    }

    fn of(&self, object: u32) -> impl Iterator<Item = u32> {
        let ends = [self.first[object as usize], self.first[object as usize + 1]];
        self.from[ends[0] as usize..ends[1] as usize]
            .iter()
            .copied()
    }
}

/// Breadth-first: the objects from `start` to the nearest that `is_end`, both included.
fn path_to<I: IntoIterator<Item = u32>>(
    snapshot: &Snapshot,
    start: u32,
    next: &impl Fn(u32) -> I,
    is_end: impl Fn(u32) -> bool,
) -> Option<Vec<u32>> {
    const UNSEEN: u32 = u32::MAX;
    let mut before = vec![UNSEEN; snapshot.len()];
    before[start as usize] = start;
    let mut pending = VecDeque::from([start]);
    while let Some(object) = pending.pop_front() {
        if is_end(object) {
            let mut path = vec![object];
            let mut here = object;
            while here != start {
                here = before[here as usize];
                path.push(here);
            }
            path.reverse();
            return Some(path);
        }
        for target in next(object) {
            if before[target as usize] == UNSEEN {
                before[target as usize] = object;
                pending.push_back(target);
            }
        }
    }
    None
}

/// Up to `room` objects nearest to `centre`, itself left out.
fn around<I: IntoIterator<Item = u32>>(
    centre: &[u32],
    next: &impl Fn(u32) -> I,
    room: usize,
    wanted: impl Fn(u32) -> bool,
) -> Vec<u32> {
    let mut seen: FxHashSet<u32> = centre.iter().copied().collect();
    let mut pending: VecDeque<u32> = centre.iter().copied().collect();
    let mut found = Vec::new();
    while let Some(object) = pending.pop_front() {
        for target in next(object) {
            if found.len() == room {
                return found;
            }
            if wanted(target) && seen.insert(target) {
                found.push(target);
                pending.push_back(target);
            }
        }
    }
    found
}
