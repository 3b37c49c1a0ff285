//! How it is known who keeps what grows, and who else has it.

use rustc_hash::FxHashSet;

use super::words::with_more;
use super::{Diagnosis, Look};
use crate::analysis::accumulators::{Accumulator, Alike};
use crate::analysis::keepers::Search;
use crate::analysis::naming::Naming;
use crate::capture::ReferenceName;
use crate::diagnose::NamedRoot;
use crate::diagnose::growth;

impl Look<'_, '_> {
    /// Evidence, and how an accumulator keeps these members: as several that are alike, a tree, a chain, or together with
    /// others, for which not many are searched. What is said of it changes with that.
    pub(in crate::analysis) fn say_how(
        &self,
        accumulator: &Accumulator,
        evidence: String,
        members: &[u32],
        is_searched: bool,
        about: &mut Diagnosis,
    ) -> String {
        let holder = accumulator.node;
        if let Some(alike) = &accumulator.alike {
            let (owner, evidence) = self.in_words(alike, &evidence);
            about.owner = owner;
            return evidence;
        }
        if accumulator.is_tree {
            about.is_tree = true;
            return self.in_tree(holder, &evidence);
        }
        let link = accumulator.to_next.as_ref();
        if let Some(link) = link.and_then(|it| self.link(it)) {
            if about.pattern.name == growth::CONTAINER_GROWS.name {
                about.pattern = growth::variants::CHAIN_GROWS;
            }
            return with_more(format!("a chain, linked by {link}"), &evidence);
        }
        match is_searched {
            true => self.with_other_holder(&evidence, holder, members),
            false => evidence,
        }
    }

    /// What keeps the members of several objects that are alike, and evidence with their number.
    fn in_words(&self, alike: &Alike, evidence: &str) -> (String, String) {
        let way = self.way(alike.nodes[0]);
        let each = ReferenceName::Key("each".to_owned());
        let at = way.iter().position(|&it| it == alike.container);
        let ways = [way];
        let naming = Naming::new(self.inspector, self.frameworks, self.live, &ways);
        let [way] = &ways;
        let path = naming.path_by(way, &naming.root(way), at.map(|at| (at, &each)));
        let number = format!("in {} such containers", alike.nodes.len());
        (path.owner(), with_more(number, evidence))
    }

    /// The reference by which a link of a chain has the next, in words: `` `.prev` of `Step` ``.
    fn link(&self, to_next: &[u32]) -> Option<String> {
        let ways = [to_next.to_vec()];
        let naming = Naming::new(self.inspector, self.frameworks, self.live, &ways);
        let path = naming.path(to_next, &NamedRoot::Garbage).path;
        let link: String = path.steps.iter().map(|step| step.edge.as_str()).collect();
        let head = path.steps.first().filter(|_| !link.is_empty())?;
        let link = match link.contains(' ') {
            true => link,
            false => format!("`{link}`"),
        };
        Some(format!("{link} of {}", head.label))
    }

    /// Evidence, and of which objects the tree is that keeps the members.
    fn in_tree(&self, head: u32, evidence: &str) -> String {
        let class = self
            .live
            .object(head)
            .map(|it| self.inspector.type_name(&it));
        with_more(
            format!("a tree of objects of `{}`", class.unwrap_or_default()),
            evidence,
        )
    }

    /// Evidence, and what else holds some members of an accumulator.
    fn with_other_holder(&self, evidence: &str, accumulator: u32, members: &[u32]) -> String {
        let others = self.also_held_by(accumulator, members);
        let other = match others.as_slice() {
            [] => None,
            [one] => Some(format!("{one} holds at least some of them too")),
            [one, two] => Some(format!("{one} and {two} hold at least some of them too")),
            [one, two, rest @ ..] => Some(format!(
                "{one}, {two} and {} more hold at least some of them too",
                rest.len()
            )),
        };
        let evidence = (!evidence.is_empty()).then(|| evidence.to_owned());
        let parts: Vec<String> = evidence.into_iter().chain(other).collect();
        parts.join("; ")
    }

    /// What holds the oldest of some members beside what accumulates them, and the youngest but one: each object that
    /// has both, or a container of what has each, such as the timers of an event loop.
    fn also_held_by(&self, accumulator: u32, members: &[u32]) -> Vec<String> {
        let (Some(&young), Some(&old)) = (members.get(1), members.last()) else {
            return Vec::new();
        };
        let others = |member: u32| {
            let search = Search {
                inspector: self.inspector,
                frameworks: self.frameworks,
                live: self.live,
            };
            let keepers = search.keepers(&[member], &[]).found.into_iter();
            let keepers = keepers.filter(|it| it.at > 0 && !it.nodes.contains(&accumulator));
            let ways = keepers.map(|mut it| {
                // Of a module it is the variable, and not the dictionary of all.
                let variables = self.live.module_dicts.get(&it.nodes[0]);
                let is_variable = it.at == 1 && variables == Some(&it.nodes[1]);
                it.nodes.truncate(it.at + 1 + usize::from(is_variable));
                it.nodes
            });
            ways.collect::<Vec<_>>()
        };
        let of_young = others(young);
        let of_old = others(old);
        let holders: FxHashSet<u32> = of_young
            .iter()
            .filter_map(|it| it.last().copied())
            .collect();
        let on_the_way: FxHashSet<u32> = of_young.into_iter().flatten().collect();
        let last_of_both = |way: &Vec<u32>| {
            let at = way.iter().rposition(|it| on_the_way.contains(it))?;
            self.is_filled(way, at).then_some(way[at])
        };
        let holder = |way: &Vec<u32>| {
            let last = way.last().copied();
            last.filter(|it| holders.contains(it))
                .or_else(|| last_of_both(way))
        };
        let mut named: Vec<String> = Vec::new();
        for owner in of_old.iter().filter_map(holder).map(|it| self.owner(it)) {
            if !owner.is_empty() && !named.contains(&owner) {
                named.push(owner);
            }
        }
        named
    }
}
