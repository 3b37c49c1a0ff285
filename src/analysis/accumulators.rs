//! The containers that keep what was made over many steps: each step adds some to them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::holding::Reaching;
use super::live::Live;
use super::naming::reference_names;
use crate::capture::function_code;
use crate::cpython::instances::instance_dict;
use crate::cpython::{ObjectKind, dict_items, find_item};
use crate::device::Frameworks;
use crate::graph::ShortestPaths;

/// How many references a accumulator may be away.
const LEVELS: usize = 8;
/// The part of the ages of which a accumulator must have some.
const MOST: f64 = 0.6;
/// Fewer ages than these are no growth.
const FEW: usize = 3;
/// So many objects that are alike and in one container are spoken of as one, if each has some ages, and the oldest is at
/// least this part of all ages away from the youngest: what an epoch adds for a while does not grow, but its container does.
const ALIKE: usize = 4;
const AGES_OF_EACH: usize = 2;
const SPAN: f64 = 0.5;
/// So many objects, and so far up, are looked at for a container that holds one on another way than the shortest.
const ABOVE: usize = 64;
const LEVELS_ABOVE: usize = 4;
/// A dictionary with no more items may be one of facts.
const FACTS: usize = 8;

/// An object that keeps members of most ages, or is known to have kept some.
pub(super) struct Accumulator {
    pub node: u32,
    /// Those members, by position.
    pub members: Vec<usize>,
    pub has_most_ages: bool,
    /// If it stands for all that are like it.
    pub alike: Option<Alike>,
    /// True for the head of a tree whose objects have the members.
    pub is_tree: bool,
    /// Of the head of a chain, the way from it to the link behind it.
    pub to_next: Option<Vec<u32>>,
}

/// Several objects in one container that are alike: the list `history` of each session in a list of sessions.
#[derive(Clone)]
pub(super) struct Alike {
    pub container: u32,
    pub nodes: Vec<u32>,
}

/// Members that are still to be attributed.
struct Open<'a> {
    /// Where each of them is in the heap, and its age.
    members: &'a [(u32, Option<usize>)],
    is_open: Vec<bool>,
    wanted: usize,
}

impl Accumulator {
    /// Takes what another object has.
    fn take(&mut self, other: Self) {
        self.members.extend(other.members);
        if let Some(alike) = self.alike.as_mut().filter(|_| self.node != other.node) {
            alike.nodes.push(other.node);
        }
    }
}

impl Open<'_> {
    fn of(&self, members: &[u32]) -> Vec<usize> {
        let members = members.iter().map(|&at| at as usize);
        members.filter(|&at| self.is_open[at]).collect()
    }

    fn ages(&self, members: impl Iterator<Item = usize>) -> usize {
        let ages: FxHashSet<usize> = members.filter_map(|at| self.members[at].1).collect();
        ages.len()
    }

    /// How far the oldest is away from the youngest.
    fn span(&self, members: impl Iterator<Item = usize>) -> usize {
        let ages: Vec<usize> = members.filter_map(|at| self.members[at].1).collect();
        let oldest = ages.iter().max().copied().unwrap_or_default();
        oldest - ages.iter().min().copied().unwrap_or_default()
    }

    fn are_of_most_ages(&self, members: &[usize]) -> bool {
        self.ages(members.iter().copied()) >= self.wanted
    }

    fn close(&mut self, node: u32, members: Vec<usize>) -> Accumulator {
        for &at in &members {
            self.is_open[at] = false;
        }
        Accumulator {
            node,
            has_most_ages: self.are_of_most_ages(&members),
            members,
            alike: None,
            is_tree: false,
            to_next: None,
        }
    }

    /// Adds the open members that other members of an accumulator hold, such as the lists in a list of lists.
    fn close_behind(&mut self, paths: &ShortestPaths, accumulators: &mut [Accumulator]) {
        // Which accumulator has the members that are on the way to an object.
        let mut of: FxHashMap<u32, Option<usize>> = FxHashMap::default();
        for (number, accumulator) in accumulators.iter().enumerate() {
            let nodes = accumulator.members.iter().map(|&at| self.members[at].0);
            of.extend(nodes.map(|node| (node, Some(number))));
        }
        for at in 0..self.members.len() {
            if !self.is_open[at] {
                continue;
            }
            let (way, known) = way_up(paths, self.members[at].0, &of);
            let number = known.flatten();
            of.extend(way.into_iter().map(|node| (node, number)));
            if let Some(number) = number {
                self.is_open[at] = false;
                accumulators[number].members.push(at);
            }
        }
    }
}

/// The shortest path to a node, from its end up to the first node of which something is known, and what that is.
fn way_up<T: Copy>(
    paths: &ShortestPaths,
    node: u32,
    known: &FxHashMap<u32, T>,
) -> (Vec<u32>, Option<T>) {
    let mut way = Vec::new();
    let mut next = Some(node);
    while let Some(node) = next {
        if let Some(&found) = known.get(&node) {
            return (way, Some(found));
        }
        way.push(node);
        next = paths.before(node);
    }
    (way, None)
}

impl Live<'_> {
    /// The nearest objects that keep members of most ages, each with those that none nearer keeps; and those that are
    /// known, with what they keep of whatever age.
    ///
    /// What one step makes belongs together: a list in which a step puts its results does not grow, but the
    /// list of these lists does, and has what is in them. Members that C++ alone holds are nobody's. Members
    /// without an age are attributed, and prove nothing.
    pub(super) fn accumulators(
        &self,
        inspector: &Inspector,
        frameworks: &Frameworks,
        paths: &ShortestPaths,
        members: &[(u32, Option<usize>)],
        known: &FxHashSet<u32>,
    ) -> Vec<Accumulator> {
        let mut reaching: Reaching = members
            .iter()
            .map(|it| it.0)
            .zip((0..).map(|at| vec![at]))
            .collect();
        let own: FxHashSet<u32> = reaching.keys().copied().collect();
        // What each object leads to, on ways of whatever length so far.
        let mut reached = Reaching::default();
        let mut open = Open {
            members,
            is_open: vec![false; members.len()],
            wanted: FEW,
        };
        let lengths = paths.lengths();
        let known_containers = self.containers_among(inspector, paths, known);
        let mut accumulators = Vec::new();
        for level in 0..LEVELS {
            let mut above = self.referrers(paths, &reaching);
            if level == 0 {
                let held: FxHashSet<u32> = above.values().flatten().copied().collect();
                held.iter().for_each(|&at| open.is_open[at as usize] = true);
                let ages = open.ages(held.iter().map(|&at| at as usize));
                open.wanted = ((MOST * ages as f64).ceil() as usize).max(FEW);
                let trees = self.trees(inspector, paths, known, &mut open);
                accumulators.extend(trees);
            }
            above.retain(|node, _| !own.contains(node) && self.may_lead_up(inspector, *node));
            for (&node, members) in &mut above {
                let known = reached.entry(node).or_default();
                members.retain(|it| known.binary_search(it).is_err());
                known.extend(members.iter());
                known.sort_unstable();
            }
            let order = self.most_first(inspector, &above, known, &lengths);
            // What was told to be in their container is told on.
            let mut told_by_container = FxHashSet::default();
            for alike in self.alike(inspector, frameworks, paths, &order, &above, &open) {
                if known.contains(&alike.container) {
                    told_by_container.extend(alike.nodes);
                    continue;
                }
                let members = alike.nodes.iter().flat_map(|it| open.of(&reached[it]));
                let members: FxHashSet<usize> = members.collect();
                let mut members: Vec<usize> = members.into_iter().collect();
                members.sort_unstable();
                if open.are_of_most_ages(&members) {
                    accumulators.push(Accumulator {
                        alike: Some(alike.clone()),
                        ..open.close(alike.nodes[0], members)
                    });
                }
            }
            // What was told to have more and more of these has what this one holds too.
            let is_told = |node| {
                told_by_container.contains(&node)
                    || self.container_above(node, &known_containers).is_some()
            };
            for (node, _) in order {
                // Those equally far away: an object of a chain leads to one more at each level.
                let has_most_ages = open.are_of_most_ages(&open.of(&above[&node]));
                let kept = open.of(&reached[&node]);
                let may_be_told = has_most_ages && !known.contains(&node);
                if let Some(at) =
                    self.place_of(inspector, frameworks, &accumulators, node, may_be_told)
                {
                    let more = open.close(node, kept);
                    accumulators[at].take(more);
                } else if may_be_told && !is_told(node) || known.contains(&node) && !kept.is_empty()
                {
                    accumulators.push(open.close(node, kept));
                }
            }
            reaching = above;
            reaching.retain(|_, it| {
                it.retain(|&at| open.is_open[at as usize]);
                !it.is_empty()
            });
            if reaching.is_empty() {
                break;
            }
        }
        open.close_behind(paths, &mut accumulators);
        accumulators.extend(self.common_origin(inspector, paths, &lengths, &mut open));
        accumulators
    }

    /// The heads of trees that keep open members of most ages, or are known.
    fn trees(
        &self,
        inspector: &Inspector,
        paths: &ShortestPaths,
        known: &FxHashSet<u32>,
        open: &mut Open<'_>,
    ) -> Vec<Accumulator> {
        let nodes: Vec<u32> = open.members.iter().map(|it| it.0).collect();
        let mut found = Vec::new();
        for tree in self.structures(inspector, paths, &nodes) {
            let mut members = tree.members;
            members.retain(|&at| open.is_open[at]);
            if open.are_of_most_ages(&members) || known.contains(&tree.head) {
                found.push(Accumulator {
                    is_tree: true,
                    ..open.close(tree.head, members)
                });
            }
        }
        found
    }

    /// Those of some objects that can hold others, with how many members each leads to, the most first.
    fn most_first(
        &self,
        inspector: &Inspector,
        reaching: &Reaching,
        known: &FxHashSet<u32>,
        lengths: &[u32],
    ) -> Vec<(u32, usize)> {
        let keepers = reaching
            .iter()
            .filter(|(node, _)| self.can_hold(inspector, **node));
        let mut order: Vec<(u32, usize)> = keepers.map(|(node, it)| (*node, it.len())).collect();
        // Of several with the same, such as the lists of a mock, the one that was told is told on.
        order.sort_by_cached_key(|&(node, count)| {
            let is_new = !known.contains(&node);
            (Reverse(count), is_new, lengths[node as usize], node)
        });
        order
    }

    /// Those of some objects that are alike and in one container: the largest groups first, each from the object with
    /// most members on.
    fn alike(
        &self,
        inspector: &Inspector,
        frameworks: &Frameworks,
        paths: &ShortestPaths,
        order: &[(u32, usize)],
        above: &Reaching,
        open: &Open<'_>,
    ) -> Vec<Alike> {
        let ty = |node: u32| self.object(node).map(|it| it.get_type().as_ptr() as usize);
        let whole = open.span((0..open.members.len()).filter(|&at| open.is_open[at]));
        let mut groups: BTreeMap<_, Vec<(u32, usize)>> = BTreeMap::new();
        for &(node, _) in order {
            let members = open.of(&above[&node]);
            let ages = open.ages(members.iter().copied());
            let span = open.span(members.into_iter());
            if ages < AGES_OF_EACH || (span as f64) < SPAN * whole as f64 {
                continue;
            }
            let mut below = node;
            for distance in 0..LEVELS {
                let Some(container) = paths.before(below) else {
                    break;
                };
                if !self.can_hold(inspector, container) {
                    break;
                }
                if self.has_items(inspector, paths, container) {
                    let group = groups.entry((container, distance, ty(node), ty(below)));
                    group.or_default().push((node, ages));
                }
                below = container;
            }
        }
        let mut found: Vec<Alike> = Vec::new();
        for ((container, ..), nodes) in groups {
            if nodes.len() < ALIKE {
                continue;
            }
            // The `losses` of each, and the `outputs` of each; but not those of each session's number.
            let mut by_way: BTreeMap<Vec<String>, Vec<(u32, usize)>> = BTreeMap::new();
            for (node, ages) in nodes {
                let way = self.names_from_item(inspector, frameworks, paths, container, node);
                by_way.entry(way).or_default().push((node, ages));
            }
            let (several, few): (Vec<_>, Vec<_>) =
                by_way.into_values().partition(|nodes| nodes.len() >= ALIKE);
            for mut nodes in several.into_iter().chain([few.concat()]) {
                let most = nodes.iter().map(|it| it.1).max().unwrap_or_default();
                nodes.retain(|(_, ages)| 2 * ages >= most);
                if nodes.len() >= ALIKE {
                    let nodes = nodes.into_iter().map(|it| it.0).collect();
                    found.push(Alike { container, nodes });
                }
            }
        }
        found.sort_by_key(|it| std::cmp::Reverse(it.nodes.len()));
        found
    }

    /// The references on the way from an item of a container to an object, but for the items of further containers: only a
    /// small dictionary may be one of facts, each by its name.
    fn names_from_item(
        &self,
        inspector: &Inspector,
        frameworks: &Frameworks,
        paths: &ShortestPaths,
        container: u32,
        node: u32,
    ) -> Vec<String> {
        let mut names = Vec::new();
        let mut below = node;
        while let Some(holder) = paths.before(below).filter(|&it| it != container) {
            let is_dict = self.is_kind(inspector, holder, ObjectKind::Dict);
            let is_small = is_dict && self.graph().targets(holder).len() <= 2 * FACTS;
            if is_small || !self.has_items(inspector, paths, holder) {
                let found = reference_names(inspector, frameworks, self, holder, &[below]);
                names.extend(found.into_iter().map(|name| name.to_string()));
            }
            below = holder;
        }
        names
    }

    /// True for a container of the program's, not for the dictionary of an object's attributes.
    fn has_items(&self, inspector: &Inspector, paths: &ShortestPaths, node: u32) -> bool {
        use ObjectKind::{Deque, Dict, List, Set, Tuple};
        let Some(object) = self.object(node) else {
            return false;
        };
        match inspector.kind(&object) {
            List | Set | Deque | Tuple => true,
            Dict => {
                let holder = paths.before(node).and_then(|it| self.object(it));
                let own = holder.and_then(|it| instance_dict(&inspector.builtins.instances, &it));
                own != Some(object.as_ptr() as usize)
            }
            _ => false,
        }
    }

    /// Those of some objects that are containers of the program's.
    fn containers_among(
        &self,
        inspector: &Inspector,
        paths: &ShortestPaths,
        known: &FxHashSet<u32>,
    ) -> FxHashSet<u32> {
        let known = known.iter().copied();
        let containers = known.filter(|&it| self.has_items(inspector, paths, it));
        containers.collect()
    }

    /// Of some containers the nearest that holds an object, on whatever way, and the object by which it does.
    fn container_above(&self, node: u32, containers: &FxHashSet<u32>) -> Option<(u32, u32)> {
        if containers.is_empty() {
            return None;
        }
        let above = |node: u32| {
            let sources = self.graph().sources(node).into_iter().take(ABOVE);
            sources.filter(|&it| !self.is_frame(it) && !self.is_own(it))
        };
        let mut level: Vec<(u32, u32)> = above(node).map(|it| (it, it)).collect();
        for _ in 0..LEVELS_ABOVE {
            if let Some(found) = level.iter().find(|it| containers.contains(&it.0)) {
                return Some(*found);
            }
            let next = level
                .iter()
                .flat_map(|&(node, first)| above(node).map(move |it| (it, first)));
            level = next.take(ABOVE).collect();
        }
        None
    }

    /// The number of the accumulator that has an object, or, if `may_be_like`, that stands for objects of which it is one more:
    /// of their type, in their container, by their name. A variable may refer to it as well.
    fn place_of(
        &self,
        inspector: &Inspector,
        frameworks: &Frameworks,
        accumulators: &[Accumulator],
        node: u32,
        may_be_like: bool,
    ) -> Option<usize> {
        let known = accumulators.iter().position(|it| it.node == node);
        if known.is_some() || !may_be_like {
            return known;
        }
        let ty = |node: u32| self.object(node).map(|it| it.get_type().as_ptr() as usize);
        let parts = accumulators.iter().enumerate();
        let mut parts = parts.filter_map(|(at, it)| Some((at, it.alike.as_ref()?)));
        parts.find_map(|(at, alike)| {
            let like = *alike.nodes.first()?;
            let container = FxHashSet::from_iter([alike.container]);
            let (_, holder) = self.container_above(node, &container)?;
            let (_, other) = self.container_above(like, &container)?;
            let name = |holder, node| match holder == alike.container {
                true => Vec::new(),
                false => reference_names(inspector, frameworks, self, holder, &[node]),
            };
            (ty(node) == ty(like) && name(holder, node) == name(other, like)).then_some(at)
        })
    }

    /// The last object on the way to all of the open members that one variable leads to, such as the head of a chain.
    fn common_origin(
        &self,
        inspector: &Inspector,
        paths: &ShortestPaths,
        lengths: &[u32],
        open: &mut Open<'_>,
    ) -> Option<Accumulator> {
        // By the first object on the way: the newest member may be another variable's too.
        let mut firsts: FxHashMap<u32, Option<u32>> = FxHashMap::default();
        let mut ways: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for at in (0..open.members.len()).filter(|&at| open.is_open[at]) {
            if let Some(first) =
                self.first_holder(inspector, paths, open.members[at].0, &mut firsts)
            {
                ways.entry(first).or_default().push(at);
            }
        }
        let left = ways.into_values().max_by_key(Vec::len)?;
        // In a chain each is further away than the one before; what is replaced is not.
        let with_age = left.iter().map(|&at| open.members[at]);
        let with_age = with_age.filter(|it| it.1.is_some());
        let nodes = || with_age.clone().map(|it| it.0);
        let different: FxHashSet<u32> = nodes().map(|node| lengths[node as usize]).collect();
        if !open.are_of_most_ages(&left) || different.len() < open.wanted {
            return None;
        }
        let node = paths.last_in_common(lengths, nodes())?;
        let node = self.can_hold(inspector, node).then_some(node)?;
        let chain = self.chain(inspector, paths.path_to(node));
        let head = chain.as_ref().and_then(|way| way.first().copied());
        Some(Accumulator {
            to_next: chain,
            ..open.close(head.unwrap_or(node), left)
        })
    }

    /// The part from the first link of a chain to the second of a way that leads along it, if it does: instances or exceptions of one class, tuples,
    /// functions of one code. The newest links have no age yet, so that the last that all have in common lies behind them.
    fn chain(&self, inspector: &Inspector, mut way: Vec<u32>) -> Option<Vec<u32>> {
        let kind_of_link = |node: &u32| {
            let object = self.object(*node)?;
            match inspector.kind(&object) {
                ObjectKind::Instance | ObjectKind::Tuple | ObjectKind::Exception => {
                    Some(object.get_type().as_ptr() as usize)
                }
                ObjectKind::Function => {
                    let code = function_code(&inspector.builtins, &object)?;
                    Some(code.as_ptr() as usize)
                }
                _ => None,
            }
        };
        // By kind: the positions of its links.
        let mut kinds: Vec<(usize, Vec<usize>)> = Vec::new();
        for (at, node) in way.iter().enumerate() {
            let Some(kind) = kind_of_link(node) else {
                continue;
            };
            match kinds.iter_mut().find(|it| it.0 == kind) {
                Some((_, positions)) => positions.push(at),
                None => kinds.push((kind, vec![at])),
            }
        }
        let most = kinds.into_iter().rev().max_by_key(|it| it.1.len());
        let &[first, second, ..] = &*most?.1 else {
            return None;
        };
        way.truncate(second + 1);
        Some(way.split_off(first))
    }

    /// The first object on the way to another that can hold something. `known` are those found already.
    fn first_holder(
        &self,
        inspector: &Inspector,
        paths: &ShortestPaths,
        node: u32,
        known: &mut FxHashMap<u32, Option<u32>>,
    ) -> Option<u32> {
        let (way, first) = way_up(paths, node, known);
        let mut first = first.flatten();
        for node in way.into_iter().rev() {
            first = first.or_else(|| self.can_hold(inspector, node).then_some(node));
            known.insert(node, first);
        }
        first
    }

    /// The dictionary of variables that a frame refers to as its namespace.
    pub(super) fn variables_of_module(&self, frame: u32) -> Option<u32> {
        let mut targets = self.graph().targets(frame).iter().copied();
        targets.find(|&target| {
            let object = self.object(target);
            object.is_some_and(|it| find_item("__builtins__", |f| dict_items(&it, f)).is_some())
        })
    }

    /// The memory that no root reaches without some objects, by index in [`Live::buffers`]; none if that is not
    /// known for certain.
    pub(super) fn memory_only_of(
        &self,
        paths: &ShortestPaths,
        objects: impl IntoIterator<Item = u32>,
    ) -> Vec<usize> {
        if !self.functions_are_complete {
            return Vec::new();
        }
        let going: FxHashSet<u32> = objects.into_iter().collect();
        let graph = self.graph();
        let mut roots = self.roots();
        roots.retain(|root| !going.contains(root));
        let mut rest = ShortestPaths::new(graph.node_count());
        rest.extend(graph, roots, |_, to| !going.contains(&to));
        let buffers = self.buffers.iter().enumerate();
        let only = buffers.filter(|(_, it)| paths.reaches(it.node) && !rest.reaches(it.node));
        only.map(|(index, _)| index).collect()
    }
}
