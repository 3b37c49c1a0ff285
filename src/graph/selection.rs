//! Selects the objects of a group to describe.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::group::Group;
use crate::capture::Snapshot;
use crate::cpython::ObjectKind;

/// Maximum number of objects of one group to describe, draw and analyse by name.
pub const NODE_LIMIT: usize = 1000;
/// Number of objects to keep at either end of a cycle longer than [`NODE_LIMIT`].
const CYCLE_ENDS: usize = 8;

/// The objects of a group to describe.
#[derive(Debug, Default)]
pub struct Selection {
    /// Indices in the snapshot.
    pub nodes: Vec<u32>,
    /// The omitted middle of a long cycle: the objects before and after it, and its length.
    pub gap: Option<(u32, u32, u64)>,
    /// The number of objects of the group that are not selected.
    pub omitted: u64,
}

/// Selects all of an ordinary group. Of a large one, selects the shortest cycle near the first buffer,
/// the path to that buffer, and the objects nearest to them.
pub fn select(snapshot: &Snapshot, group: &Group) -> Selection {
    if group.nodes.len() <= NODE_LIMIT {
        return Selection {
            nodes: group.nodes.clone(),
            gap: None,
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

    let Some(path) = group.buffers.first().and_then(|&buffer| {
        path_to(snapshot, buffer, &back, |object| {
            component_of(object) < NO_CYCLE
        })
    }) else {
        return Selection {
            omitted: group.nodes.len() as u64,
            ..Selection::default()
        };
    };
    let anchor = path.last().copied().unwrap_or_default();
    let inside = |object: u32| component_of(object) == component_of(anchor);
    let step = |object: u32| forth(object).filter(|&next| inside(next));
    // The first object on a path from the anchor that refers to the anchor closes a shortest cycle.
    let closes = |object: u32| forth(object).any(|next| next == anchor);
    let cycle = path_to(snapshot, anchor, &step, closes).unwrap_or_default();

    let mut selection = Selection::default();
    if cycle.len() > NODE_LIMIT {
        let (last, first) = ends_of(snapshot, &cycle);
        selection
            .nodes
            .extend(cycle[..=last].iter().chain(&cycle[first..]));
        selection.gap = Some((cycle[last], cycle[first], (first - last - 1) as u64));
        selection
            .nodes
            .extend(path.iter().filter(|object| !cycle.contains(object)));
        selection
            .nodes
            .extend(around(&selection.nodes, &forth, 64, |object| {
                !inside(object)
            }));
    } else {
        selection.nodes.extend(&cycle);
        let taken: FxHashSet<u32> = cycle.iter().copied().collect();
        selection
            .nodes
            .extend(path.iter().filter(|object| !taken.contains(object)));
        let both = |object: u32| back(object).chain(forth(object)).collect::<Vec<_>>();
        let room = NODE_LIMIT.saturating_sub(selection.nodes.len());
        selection
            .nodes
            .extend(around(&selection.nodes, &both, room, |_| true));
    }
    selection.nodes.sort_unstable();
    selection.nodes.dedup();
    selection.omitted = (group.nodes.len() - selection.nodes.len()) as u64;
    selection
}

/// The last object of the beginning of a long cycle, and the first of its end, by their places in it.
/// Neither breaks off in the middle of an object's plumbing.
fn ends_of(snapshot: &Snapshot, cycle: &[u32]) -> (usize, usize) {
    let whole = |&object: &u32| {
        let kind = snapshot.objects[object as usize].kind;
        !matches!(
            kind,
            ObjectKind::Dict | ObjectKind::Tuple | ObjectKind::Cell
        )
    };
    let last = (0..CYCLE_ENDS)
        .rfind(|&i| whole(&cycle[i]))
        .unwrap_or(CYCLE_ENDS - 1);
    let from = cycle.len() - CYCLE_ENDS;
    let first = (from..cycle.len())
        .find(|&i| whole(&cycle[i]))
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
