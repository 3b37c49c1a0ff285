//! The references between boxes that stand for several objects: one line for all between two boxes, and few lines.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use super::shape::{LABEL, TITLE};
use crate::model::report::EdgeRole;
use crate::model::words::{counted, grouped, name};

/// So many lines are drawn besides those that join each box to the others, those of most references first.
const MORE: usize = 8;
/// How many names a line has.
const NAMES: usize = 2;

/// The references from one box to another, drawn as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pub from: usize,
    pub to: usize,
    /// The first of them, by its index in the leak's graph.
    pub edge: usize,
    pub role: EdgeRole,
    pub label: String,
    pub title: String,
    count: u64,
}

/// All references between boxes of which one stands for several objects, by these two.
#[derive(Default)]
pub struct Bundles {
    all: BTreeMap<(usize, usize), Several>,
}

struct Several {
    edge: usize,
    role: EdgeRole,
    names: BTreeMap<String, u64>,
}

impl Bundles {
    /// Adds a reference with this name and this index in the leak's graph.
    pub fn add(&mut self, ends: (usize, usize), edge: usize, role: EdgeRole, name: String) {
        let several = self.all.entry(ends).or_insert_with(|| Several {
            edge,
            role: EdgeRole::Other,
            names: BTreeMap::new(),
        });
        if role == EdgeRole::Path {
            several.role = role;
        }
        *several.names.entry(name).or_default() += 1;
    }

    /// The names of the references among the objects of one box, and what else is to be said of them.
    pub fn within(&self, at: usize) -> Option<(String, String)> {
        let several = self.all.get(&(at, at))?;
        Some((several.some_names(), several.title()))
    }

    /// The lines to draw, and how many references they leave out. `links` are the lines that are drawn already between
    /// so many boxes.
    pub fn chosen(self, links: &[(usize, usize)], boxes: usize) -> (Vec<Bundle>, u64) {
        let apart = self.all.iter().filter(|((from, to), _)| from != to);
        let mut all: Vec<Bundle> = apart.map(|(&ends, it)| it.bundle(ends)).collect();
        all.sort_by_key(|bundle| Reverse(bundle.count));
        let joining = joining(&all, links, boxes);
        let mut more = 0;
        let mut left_out = 0;
        let chosen = all.into_iter().zip(joining).filter_map(|(bundle, joins)| {
            if !joins {
                more += 1;
            }
            if joins || more <= MORE {
                return Some(bundle);
            }
            left_out += bundle.count;
            None
        });
        (chosen.collect(), left_out)
    }
}

/// For each bundle whether it is the first on a shortest way from the leak to some box.
fn joining(all: &[Bundle], links: &[(usize, usize)], boxes: usize) -> Vec<bool> {
    let mut near: Vec<Vec<(usize, Option<usize>)>> = vec![Vec::new(); boxes];
    let drawn = links.iter().map(|&ends| (ends, None));
    let bundles = all.iter().enumerate();
    let bundles = bundles.map(|(number, it)| ((it.from, it.to), Some(number)));
    for ((from, to), bundle) in drawn.chain(bundles) {
        near[from].push((to, bundle));
        near[to].push((from, bundle));
    }
    let mut joins = vec![false; all.len()];
    let mut reached = vec![false; boxes];
    for start in 0..boxes {
        let mut open = VecDeque::from([start]);
        if std::mem::replace(&mut reached[start], true) {
            continue;
        }
        while let Some(at) = open.pop_front() {
            for &(next, bundle) in &near[at] {
                if !std::mem::replace(&mut reached[next], true) {
                    open.push_back(next);
                    if let Some(number) = bundle {
                        joins[number] = true;
                    }
                }
            }
        }
    }
    joins
}

impl Several {
    fn count(&self) -> u64 {
        self.names.values().sum()
    }

    /// The names, the most frequent first.
    fn sorted(&self) -> Vec<(&String, u64)> {
        let mut names: Vec<(&String, u64)> = self.names.iter().map(|(n, &c)| (n, c)).collect();
        names.sort_by_key(|&(_, count)| Reverse(count));
        names
    }

    fn some_names(&self) -> String {
        let sorted = self.sorted();
        let named: Vec<&str> = sorted.iter().take(NAMES).map(|(it, _)| &***it).collect();
        let more = if sorted.len() > NAMES { ", …" } else { "" };
        format!("{}{more}", named.join(", "))
    }

    fn title(&self) -> String {
        let named = self.sorted().into_iter().take(20);
        let named =
            named.map(|(it, count)| format!("\n{} × {}", name(it, TITLE / 20), grouped(count)));
        let all = counted(self.count(), "reference", "references");
        format!("{all}{}", named.collect::<String>())
    }

    fn bundle(&self, (from, to): (usize, usize)) -> Bundle {
        let count = self.count();
        let times = match count {
            1 => String::new(),
            count => format!(" × {}", grouped(count)),
        };
        Bundle {
            from,
            to,
            edge: self.edge,
            role: self.role,
            label: name(&self.some_names(), LABEL.saturating_sub(times.len())) + &times,
            title: self.title(),
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_between_two_boxes_are_one_line_with_their_names() {
        let mut bundles = Bundles::default();
        for (edge, name) in [".next", ".next", ".parent", "['a']", ".next"]
            .into_iter()
            .enumerate()
        {
            bundles.add((0, 1), 7 + edge, EdgeRole::Other, name.to_owned());
        }
        bundles.add((1, 1), 30, EdgeRole::Other, ".previous".to_owned());
        let within = bundles.within(1).expect("a reference among them");
        assert_eq!(within.0, ".previous");
        assert_eq!(bundles.within(0), None);
        let (lines, left_out) = bundles.chosen(&[], 2);
        assert_eq!((lines.len(), left_out, lines[0].edge), (1, 0, 7));
        assert_eq!(lines[0].label, ".next, .parent, … × 5");
        assert!(lines[0].title.starts_with("5 references\n.next × 3\n"));
    }

    #[test]
    fn every_box_is_joined_and_of_the_other_lines_few_are_drawn() {
        const BOXES: usize = 20;
        let mut bundles = Bundles::default();
        for from in 0..BOXES {
            for to in 0..BOXES {
                for edge in 0..=from {
                    bundles.add((from, to), edge, EdgeRole::Other, ".it".to_owned());
                }
            }
        }
        let all: u64 = (0..BOXES as u64)
            .map(|from| (from + 1) * (BOXES as u64 - 1))
            .sum();
        let (lines, left_out) = bundles.chosen(&[(0, 1)], BOXES);
        // One box is joined already.
        assert_eq!(lines.len(), BOXES - 2 + MORE);
        let drawn: u64 = lines.iter().map(|line| line.count).sum();
        assert_eq!(drawn + left_out, all);
    }
}
