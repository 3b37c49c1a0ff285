//! Trees of objects of one class that become larger: a search tree, a prefix cache. Each step adds objects below others.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::live::{Live, Root};
use crate::cpython::ObjectKind;
use crate::graph::ShortestPaths;

/// So many references up from an object one of the same class is looked for: a list or dictionary, that of attributes, the object.
const UP: usize = 4;
/// So many members at most an object of the tree has on average: one with a list that fills is no part of a tree that grows.
const MEMBERS_OF_EACH: usize = 4;

/// Of more heads than these each stays, and of more referrers the rest is not looked at.
const HEADS: usize = 64;
const REFERRERS: usize = 1000;
/// So many objects of a tree are looked at for references from another.
const LINKS: usize = 200;

/// A tree of objects of one class, with members of a group.
pub(super) struct Structure {
    /// The first of its objects on the way from a root.
    pub head: u32,
    /// The members, by position.
    pub members: Vec<usize>,
}

/// What was found below a head: the members, the objects that have them, and how deep these are.
#[derive(Default)]
struct Found {
    members: Vec<usize>,
    links: FxHashSet<u32>,
    depths: FxHashSet<usize>,
}

impl Found {
    fn is_tree(&self) -> bool {
        MEMBERS_OF_EACH * self.links.len() >= self.members.len()
            && 2 * self.depths.len() <= self.links.len()
    }
}

/// For each object of a class that was looked at, the head of its tree and how deep below it the object is.
type Heads = FxHashMap<u32, (u32, usize)>;

impl Live<'_> {
    /// The trees that have some members, those with most members first. A chain is none: it has one object at each depth.
    pub(super) fn structures(
        &self,
        inspector: &Inspector,
        paths: &ShortestPaths,
        members: &[u32],
    ) -> Vec<Structure> {
        let mut heads = Heads::default();
        let mut found: BTreeMap<u32, Found> = BTreeMap::new();
        for (at, &member) in members.iter().enumerate() {
            if let Some((link, head, depth)) = self.link_of(inspector, paths, member, &mut heads) {
                let tree = found.entry(head).or_default();
                tree.members.push(at);
                tree.links.insert(link);
                tree.depths.insert(depth);
            }
        }
        let found = self.without_inner(inspector, paths, found, &mut heads);
        let trees = found.into_iter().filter(|(_, it)| it.is_tree());
        let mut all: Vec<Structure> = trees
            .map(|(head, Found { members, .. })| Structure { head, members })
            .collect();
        all.sort_by_key(|it| std::cmp::Reverse(it.members.len()));
        all
    }

    /// All, with what is below the object of a variable added to another tree that refers to it: a variable may hold any
    /// object of a tree.
    fn without_inner(
        &self,
        inspector: &Inspector,
        paths: &ShortestPaths,
        mut found: BTreeMap<u32, Found>,
        heads: &mut Heads,
    ) -> BTreeMap<u32, Found> {
        let mut order: Vec<u32> = found.keys().copied().collect();
        if order.len() > HEADS {
            return found;
        }
        // Those of variables that last, then of objects and not of a variable itself, then with most members, stay.
        let ways: FxHashMap<u32, Vec<u32>> =
            order.iter().map(|&it| (it, paths.path_to(it))).collect();
        let shortest = ways.values().map(Vec::len).min();
        order.sort_by_key(|head| {
            let way = &ways[head];
            let root = way.first().map(|&it| self.root(it));
            let lasts = matches!(root, Some(Root::Module(_)));
            let is_variable = Some(way.len()) == shortest;
            (lasts, !is_variable, found[head].members.len())
        });
        for (at, &head) in order.iter().enumerate() {
            if Some(ways[&head].len()) != shortest {
                continue;
            }
            // Where objects refer to their parents, those above the head are nearer to it than to their own.
            let links = found[&head].links.iter().copied().take(LINKS);
            let some: Vec<u32> = std::iter::once(head).chain(links).collect();
            let outer = some.into_iter().find_map(|link| {
                let others = self.same_referrers(inspector, link);
                others.into_iter().find_map(|it| {
                    let (outer, _) = self.head_above(inspector, paths, it, heads);
                    order[at + 1..].contains(&outer).then_some(outer)
                })
            });
            if let Some(outer) = outer
                && let Some(inner) = found.remove(&head)
                && let Some(tree) = found.get_mut(&outer)
            {
                tree.members.extend(inner.members);
                tree.links.extend(inner.links);
                tree.depths.extend(inner.depths);
            }
        }
        found
    }

    /// The objects of the same class that refer to an object, through few others.
    fn same_referrers(&self, inspector: &Inspector, node: u32) -> Vec<u32> {
        let Some(object) = self.object(node) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut level = vec![node];
        for _ in 0..UP {
            let above: Vec<u32> = level
                .iter()
                .flat_map(|&it| self.graph().sources(it))
                .take(REFERRERS)
                .collect();
            let (same, others): (Vec<u32>, Vec<u32>) = above.into_iter().partition(|&it| {
                let other = self.object(it);
                other.is_some_and(|it| it.get_type_ptr() == object.get_type_ptr())
            });
            found.extend(same);
            level = others;
            level.retain(|&it| {
                use ObjectKind::{Dict, List, Set, Tuple};
                let other = self.object(it);
                other.is_some_and(|it| matches!(inspector.kind(&it), Dict | List | Set | Tuple))
            });
        }
        found
    }

    /// The object of a tree that has a member or is one, the head of the tree, and how deep the object is.
    fn link_of(
        &self,
        inspector: &Inspector,
        paths: &ShortestPaths,
        member: u32,
        heads: &mut Heads,
    ) -> Option<(u32, u32, usize)> {
        let mut node = Some(member);
        for _ in 0..=UP {
            let link = node?;
            let (head, depth) = self.head_above(inspector, paths, link, heads);
            if depth > 0 {
                return Some((link, head, depth));
            }
            node = paths.before(link);
        }
        None
    }

    /// The head of the tree that an object is in, and how deep; the object itself if it is in none.
    fn head_above(
        &self,
        inspector: &Inspector,
        paths: &ShortestPaths,
        link: u32,
        heads: &mut Heads,
    ) -> (u32, usize) {
        let mut way = Vec::new();
        let mut here = link;
        let (head, mut depth) = loop {
            if let Some(&known) = heads.get(&here) {
                break known;
            }
            way.push(here);
            match self.same_above(inspector, paths, here) {
                Some(above) => here = above,
                // The last of the way is the head, at depth 0.
                None => break (here, usize::MAX),
            }
        };
        for node in way.into_iter().rev() {
            depth = depth.wrapping_add(1);
            heads.insert(node, (head, depth));
        }
        (head, depth)
    }

    /// The nearest object of the same class on the way to an object.
    fn same_above(&self, inspector: &Inspector, paths: &ShortestPaths, node: u32) -> Option<u32> {
        let object = self.object(node)?;
        if inspector.kind(&object) != ObjectKind::Instance {
            return None;
        }
        let above = std::iter::successors(paths.before(node), |&it| paths.before(it));
        let is_same = |&it: &u32| {
            let other = self.object(it);
            other.is_some_and(|it| it.get_type_ptr() == object.get_type_ptr())
        };
        above.take(UP).find(is_same)
    }
}
