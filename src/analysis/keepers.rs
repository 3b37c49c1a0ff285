//! The references that keep objects alive: each by itself, and all of them together.

use std::collections::BTreeMap;

use petgraph::algo::toposort;
use petgraph::graphmap::DiGraphMap;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::live::{Live, Root};
use super::naming::reference_names;
use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::cpython::instances::{inline_values, instance_dict};
use crate::device::Frameworks;
use crate::graph::ShortestPaths;

/// How many objects that hold one asked about, by references that nobody can remove, are followed.
const INSEPARABLE: usize = 4096;
/// How many times the holders of too many references are taken together.
const ROUNDS: usize = 8;
/// So many references are told one by one; if there are more, the references to a container for several of its own.
const FEW_REFERENCES: usize = 16;
const SEVERAL: usize = 5;
/// From so many objects on, one pass over all references finds who refers to them.
const FEW: usize = 4;

/// A reference that keeps an object alive: as long as it is there, the object is.
pub(super) struct Keeper {
    /// From a root to the object.
    pub nodes: Vec<u32>,
    /// The position of what has the reference.
    pub at: usize,
    pub name: ReferenceName,
}

impl Keeper {
    pub fn holder(&self) -> u32 {
        self.nodes[self.at]
    }

    /// What it refers to: the object, or what holds that for good.
    pub fn held(&self) -> u32 {
        self.nodes[self.at + 1]
    }
}

/// All references that keep some objects alive, the nearest that a program can remove.
///
/// From the objects upwards, the references that nobody can remove are followed (of a tuple to its items, of
/// a function to its variables) until those that can be. If an object reached so is no root, removing
/// all of the found references cuts the objects off, for every path to them comes in by one. And each is
/// needed, for its holder is reached without passing any of those objects.
pub(super) struct Keepers {
    pub found: Vec<Keeper>,
    /// Paths from roots that hold an object for good, such as C code: nothing can be removed there.
    pub fixed: Vec<Vec<u32>>,
    /// Nothing was left out.
    pub is_complete: bool,
    /// A cycle or garbage leads to an object too, so that it takes a collection to free it.
    pub in_cycle: bool,
}

impl Keepers {
    /// The references themselves: who has each, and what it refers to.
    pub fn references(&self) -> FxHashSet<(u32, u32)> {
        let found = self.found.iter();
        found
            .map(|keeper| (keeper.holder(), keeper.held()))
            .collect()
    }
}

/// What is asked: who looks, and where.
#[derive(Clone, Copy)]
pub(super) struct Search<'a, 'py> {
    pub inspector: &'a Inspector,
    pub frameworks: &'a Frameworks,
    pub live: &'a Live<'py>,
}

impl Search<'_, '_> {
    /// What keeps `targets`, not counting paths through `beyond`.
    pub fn keepers(self, targets: &[u32], beyond: &[u32]) -> Keepers {
        self.search(targets, beyond, &FxHashSet::default())
    }

    /// What keeps `targets`, given all. If there are more than [`FEW_REFERENCES`], those to a container that holds
    /// nothing else are taken instead of its own.
    pub fn few_keepers(self, targets: &[u32], mut keepers: Keepers) -> Keepers {
        let mut together = FxHashSet::default();
        for _ in 0..ROUNDS {
            if keepers.found.len() <= FEW_REFERENCES {
                break;
            }
            let before = together.len();
            together.extend(self.full_containers(&keepers.found));
            if together.len() == before {
                break;
            }
            let fewer = self.search(targets, &[], &together);
            if keepers.is_complete && !fewer.is_complete {
                break;
            }
            keepers = fewer;
        }
        keepers
    }

    /// The containers that have nothing but several of these references.
    fn full_containers(self, keepers: &[Keeper]) -> Vec<u32> {
        let mut counts: BTreeMap<u32, (usize, &Keeper)> = BTreeMap::new();
        for keeper in keepers.iter().filter(|keeper| !self.is_namespace(keeper)) {
            counts.entry(keeper.holder()).or_insert((0, keeper)).0 += 1;
        }
        let is_full = |&(holder, (count, keeper)): &(u32, (usize, &Keeper))| {
            let targets = self.live.graph().targets(holder).iter();
            let objects = &self.live.objects;
            let other = targets.filter(|&&to| !objects.is_type_reference(holder, to));
            // Each hook has a handle, and without their dictionary a module cannot be called.
            count >= SEVERAL && count == other.count() && !self.is_hook(keeper)
        };
        let full = counts.into_iter().filter(is_full);
        full.map(|(holder, _)| holder).collect()
    }

    /// True for a variable of a module or of a running function: nobody removes what has it.
    fn is_namespace(self, keeper: &Keeper) -> bool {
        match self.live.root(keeper.nodes[0]) {
            Root::Module(_) => keeper.at <= 1,
            Root::Library(_) => false,
            _ => keeper.at == 0,
        }
    }

    fn search(self, targets: &[u32], beyond: &[u32], together: &FxHashSet<u32>) -> Keepers {
        let live = self.live;
        // The objects that go with the targets only, each with the next on the way to one.
        let mut onwards: FxHashMap<u32, u32> = targets.iter().map(|&node| (node, node)).collect();
        let mut references: Vec<(u32, u32, ReferenceName)> = Vec::new();
        let mut is_complete = true;
        // Between objects that go together.
        let mut inside: Vec<(u32, u32)> = Vec::new();
        let mut level = targets.to_vec();
        // The objects of a class keep it. Those of other classes that go with the targets are not looked for.
        let mut is_first = true;
        while !level.is_empty() {
            let mut groups = self.referrers(&level, is_first, &mut is_complete);
            if is_first && groups.len() > INSEPARABLE {
                // Nobody deletes so many objects of a class one by one.
                let is_class = |from: u32, to: &u32| live.objects.is_type_reference(from, *to);
                let before = groups.len();
                groups.retain(|&from, tos| !tos.iter().all(|to| is_class(from, to)));
                is_complete &= groups.len() == before;
            }
            is_first = false;
            let internal = self.internal_containers(groups.keys().copied());
            let unchanging = self.dicts_of_unchanging(groups.keys().copied());
            level.clear();
            for (from, tos) in groups {
                if beyond.contains(&from) || live.is_own(from) {
                    continue;
                }
                inside.extend(tos.iter().map(|&to| (from, to)));
                if onwards.contains_key(&from) {
                    continue;
                }
                let names = reference_names(self.inspector, self.frameworks, live, from, &tos);
                let removable = |(to, name): (&u32, &ReferenceName)| {
                    live.can_be_removed(self.inspector, from, *to, name)
                };
                if together.contains(&from)
                    || internal.contains(&from)
                    || unchanging.contains(&from)
                    || !tos.iter().zip(&names).all(removable)
                {
                    onwards.insert(from, tos[0]);
                    level.push(from);
                } else {
                    let mut keys = FxHashSet::default();
                    let all = tos.into_iter().zip(names);
                    let all = all
                        .filter(|(to, name)| *name != ReferenceName::KeyItself || keys.insert(*to));
                    references.extend(all.map(|(to, name)| (from, to, name)));
                }
            }
            if onwards.len() > INSEPARABLE {
                is_complete = false;
                break;
            }
        }
        references.retain(|(from, ..)| !onwards.contains_key(from));
        inside.retain(|(from, _)| onwards.contains_key(from));
        let wanted: Vec<u32> = references.iter().map(|&(from, ..)| from).collect();
        let ends = onwards.keys().copied().chain(beyond.iter().copied());
        let paths = live.shortest_paths_to(&wanted, ends);
        let below = |node: u32| way_down(&onwards, node);
        let unreached = references.iter().filter(|(from, ..)| !paths.reaches(*from));
        let unreached: Vec<(u32, u32)> = unreached.map(|&(from, to, _)| (from, to)).collect();
        let in_cycle = self.in_cycle(inside, &unreached, &onwards);
        let found = self.found(references, &paths, &onwards);
        let mut fixed: Vec<u32> = onwards
            .keys()
            .copied()
            .filter(|&node| !live.is_own(node) && live.root(node) != Root::Nothing)
            .collect();
        fixed.sort_unstable();
        Keepers {
            found,
            fixed: fixed.into_iter().map(below).collect(),
            is_complete,
            in_cycle,
        }
    }

    /// Those of some references to which a root leads, the ones that Python sees first, then by the length of the path.
    fn found(
        self,
        references: Vec<(u32, u32, ReferenceName)>,
        paths: &ShortestPaths,
        onwards: &FxHashMap<u32, u32>,
    ) -> Vec<Keeper> {
        let live = self.live;
        let reached = references
            .into_iter()
            .filter(|(from, ..)| paths.reaches(*from));
        let found = reached.map(|(from, to, name)| {
            let mut nodes = paths.path_to(from);
            let at = nodes.len() - 1;
            nodes.extend(way_down(onwards, to));
            Keeper { nodes, at, name }
        });
        let mut found: Vec<Keeper> = found.collect();
        found.sort_by_key(|keeper| {
            let root = live.root(keeper.nodes[0]);
            (
                matches!(root, Root::Outside | Root::Uncounted),
                keeper.nodes.len(),
            )
        });
        found
    }

    /// True if a cycle leads to objects that go together. `unreached` are references to them of what no root leads to:
    /// garbage, or what only these objects hold, such as a list among the variables of a generator.
    fn in_cycle(
        self,
        inside: Vec<(u32, u32)>,
        unreached: &[(u32, u32)],
        together: &FxHashMap<u32, u32>,
    ) -> bool {
        let mut edges = DiGraphMap::<u32, ()>::from_edges(inside);
        let mut level: Vec<u32> = unreached.iter().map(|&(from, _)| from).collect();
        let mut seen: FxHashSet<u32> = level.iter().chain(together.keys()).copied().collect();
        edges.extend(unreached);
        while !level.is_empty() {
            if seen.len() > INSEPARABLE {
                return true;
            }
            let holders = self.referrers(&level, false, &mut true);
            level.clear();
            for (from, tos) in holders {
                if self.live.is_own(from) {
                    continue;
                }
                edges.extend(tos.into_iter().map(|to| (from, to)));
                if seen.insert(from) {
                    level.push(from);
                }
            }
        }
        toposort(&edges, None).is_err()
    }

    /// What refers to some objects, with them in order, each as often as it does.
    pub(super) fn referrers(
        self,
        nodes: &[u32],
        of_classes: bool,
        is_complete: &mut bool,
    ) -> BTreeMap<u32, Vec<u32>> {
        let graph = self.live.graph();
        let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut add = |from: u32, to: u32| {
            if self.live.objects.is_type_reference(from, to) && !of_classes {
                *is_complete = false;
            } else {
                found.entry(from).or_default().push(to);
            }
        };
        if nodes.len() <= FEW {
            for &node in nodes {
                for from in graph.sources(node) {
                    let targets = graph.targets(from).iter().copied();
                    targets
                        .filter(|&to| to == node)
                        .for_each(|to| add(from, to));
                }
            }
        } else {
            let mut wanted = vec![false; graph.node_count()];
            for &node in nodes {
                wanted[node as usize] = true;
            }
            for from in 0..graph.node_count() as u32 {
                let targets = graph.targets(from).iter().copied();
                targets
                    .filter(|&to| wanted[to as usize])
                    .for_each(|to| add(from, to));
            }
        }
        let seen_twice: Vec<u32> = found
            .keys()
            .filter_map(|&node| self.dict_of_values(node))
            .collect();
        for dict in seen_twice {
            found.remove(&dict);
        }
        found
    }

    /// The `__dict__` of an instance that has its values itself, from 3.13 on: the dict has none of its own.
    fn dict_of_values(self, node: u32) -> Option<u32> {
        let object = self.live.object(node)?;
        let builtins = &self.inspector.builtins;
        if self.inspector.kind(&object) != ObjectKind::Instance {
            return None;
        }
        let dict = instance_dict(&builtins.instances, &object)?;
        let has_values = !inline_values(&builtins.instances, &object).is_empty();
        self.live.objects.number_at(dict).filter(|_| has_values)
    }

    /// The dicts that are the `__dict__` of an instance of which no attribute can be removed.
    fn dicts_of_unchanging(self, nodes: impl Iterator<Item = u32>) -> FxHashSet<u32> {
        let is_dict = |node: &u32| {
            let object = self
                .live
                .object(*node)
                .filter(|_| !self.live.is_frame(*node));
            object.is_some_and(|it| self.inspector.kind(&it) == ObjectKind::Dict)
        };
        let dicts: Vec<u32> = nodes.filter(is_dict).collect();
        if dicts.is_empty() {
            return FxHashSet::default();
        }
        let holders = self.referrers(&dicts, false, &mut true);
        let instances = &self.inspector.builtins.instances;
        let own = holders.into_keys().filter_map(|holder| {
            let dict = instance_dict(instances, &self.live.object(holder)?)?;
            let dict = self.live.objects.number_at(dict)?;
            self.live
                .keeps_attributes(self.inspector, holder)
                .then_some(dict)
        });
        own.collect()
    }

    /// Those that are a part of an object made in C, which nothing in Python leads to: the dict of a
    /// `functools.lru_cache`, and what the tuple has that an `itertools.chain` goes through.
    fn internal_containers(self, nodes: impl Iterator<Item = u32>) -> FxHashSet<u32> {
        use ObjectKind::{Deque, Dict, List, Set, Tuple};
        let containers = self.of_kinds(nodes, &[Dict, List, Set, Deque]);
        let holders = self.referrers(&containers, false, &mut true);
        let tuples = self.of_kinds(holders.keys().copied(), &[Tuple]);
        let nothing = FxHashSet::default();
        let hidden = match tuples.is_empty() {
            true => nothing,
            false => self.unnamed(self.referrers(&tuples, false, &mut true), &nothing),
        };
        self.unnamed(holders, &hidden)
    }

    /// Those objects of some that are of certain kinds.
    fn of_kinds(self, nodes: impl Iterator<Item = u32>, kinds: &[ObjectKind]) -> Vec<u32> {
        let is_one = |node: &u32| {
            let object = self
                .live
                .object(*node)
                .filter(|_| !self.live.is_frame(*node));
            object.is_some_and(|object| kinds.contains(&self.inspector.kind(&object)))
        };
        nodes.filter(is_one).collect()
    }

    /// Those objects that others refer to, but by no name, or that only hidden ones refer to.
    fn unnamed(self, holders: BTreeMap<u32, Vec<u32>>, hidden: &FxHashSet<u32>) -> FxHashSet<u32> {
        let mut is_named: FxHashMap<u32, bool> = FxHashMap::default();
        for (from, mut tos) in holders {
            tos.retain(|to| is_named.get(to) != Some(&true));
            let names = reference_names(self.inspector, self.frameworks, self.live, from, &tos);
            for (to, name) in tos.into_iter().zip(names) {
                *is_named.entry(to).or_default() |= !hidden.contains(&from)
                    && !matches!(name, ReferenceName::Unnamed | ReferenceName::Cached)
                    && !self.live.is_needed_by_ctypes(self.inspector, from, &name);
            }
        }
        let unnamed = is_named.into_iter().filter(|(_, named)| !named);
        unnamed.map(|(node, _)| node).collect()
    }
}

/// The objects on the way from one to a target, where each that goes with the targets has the next.
fn way_down(onwards: &FxHashMap<u32, u32>, node: u32) -> Vec<u32> {
    let next = |&node: &u32| onwards.get(&node).copied().filter(|&next| next != node);
    std::iter::successors(Some(node), next).collect()
}
