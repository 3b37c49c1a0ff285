//! The drawing of what keeps objects alive: the roots to the left, the objects to the right, what the paths have in
//! common once, and the references to remove marked.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::alike::{Line, alike, count, keep, number};
use super::boxes::Link;
use super::canvas::{Canvas, Drawing, LABEL_HEIGHT, box_size, label_width, weight};
use super::column;
use super::labels::{Label, place_labels};
use super::layers::place;
use super::layout::{Side, Size, Spot};
use super::route::{Route, across};
use super::shape::{LABEL, Shape, ShapeKind, TITLE};
use crate::model::report::{EdgeRole, NodeKind};
use crate::model::retention::{Path, Retention, RootKind};
use crate::model::words::{counted, human_bytes, name, without_numbers};

/// With more boxes a drawing is no help.
const BOXES: usize = 48;
/// The paths of so many references to remove are drawn, or, where that takes too many boxes, of fewer.
const DRAWN: [usize; 3] = [256, 32, 16];
/// A chain of more objects is drawn as one box.
const CHAIN: usize = 2;

/// What is drawn of what keeps objects alive; nothing where no path is known, or there are too many.
pub fn plan(retention: &Retention) -> Option<Plan> {
    let mut plans = DRAWN.iter().map(|&keepers| {
        let mut plan = Plan::of(retention, keepers);
        plan.fold();
        plan.count_cuts();
        plan.merge();
        plan
    });
    plans.find(|plan| !plan.links.is_empty() && plan.boxes.len() <= BOXES)
}

/// The drawing, with this id, in a single column if it is `narrow`.
pub fn retaining(plan: &Plan, retention: &Retention, id: &str, narrow: bool) -> Drawing {
    let sizes: Vec<Size> = plan.boxes.iter().map(box_size).collect();
    let ends: Vec<(usize, usize)> = plan.links.iter().map(|it| (it.from, it.to)).collect();
    let names: Vec<f64> = plan.links.iter().map(label_width).collect();
    let mut spots = place(&sizes, &ends, &names);
    if narrow {
        let mut order: Vec<usize> = (0..spots.len()).collect();
        let place = |index: usize| (spots[index].x, spots[index].y);
        order.sort_by(|&a, &b| place(a).partial_cmp(&place(b)).unwrap_or(Ordering::Equal));
        spots = column::stacked(&sizes, &order);
    }
    let routes: Vec<Route> = plan
        .links
        .iter()
        .enumerate()
        .map(|(index, link)| {
            let beside = |other: &&Link| (other.from, other.to) == (link.from, link.to);
            let lane = plan.links[..index].iter().filter(beside).count();
            let lanes = plan.links.iter().filter(beside).count();
            let around = |spots: &[Spot]| {
                across(spots, ends[index], (lane, lanes), label_width(link), spots)
            };
            match narrow && lane == 0 {
                true => column::route(&spots, ends[index], Side::Right, around),
                false => around(&spots),
            }
        })
        .collect();
    let mut order: Vec<usize> = (0..plan.links.len()).collect();
    order.sort_by_key(|&index| weight(plan.links[index].role));
    let labels: Vec<Label> = order
        .iter()
        .rev()
        .map(|&index| Label {
            route: routes[index],
            width: label_width(&plan.links[index]),
            height: LABEL_HEIGHT,
            optional: false,
        })
        .collect();
    let places = place_labels(&labels, &spots);
    let mut canvas = Canvas::new(id, true);
    canvas.layer("lines", |canvas| {
        for &index in &order {
            canvas.line(&plan.links[index], &routes[index], false);
        }
    });
    canvas.layer("boxes", |canvas| {
        for (shape, spot) in plan.boxes.iter().zip(&spots) {
            // What was asked about, if its memory does not mark it.
            canvas.shape(shape, spot, shape.node.is_some() && shape.size.is_none());
        }
    });
    canvas.layer("names", |canvas| {
        for (&index, at) in order.iter().rev().zip(places).rev() {
            if let Some(at) = at {
                canvas.label(&plan.links[index], at);
            }
        }
    });
    canvas.legend(&plan.legend(retention), narrow);
    let about = format!(
        "What keeps {} alive",
        counted(retention.objects.len() as u64, "object", "objects")
    );
    canvas.finish(&about, None)
}

/// What stands for an object: its number in the retention, or the words of a root that is no object.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Object(u32),
    Root(String),
}

/// The boxes and lines of a drawing.
#[derive(Default)]
pub struct Plan {
    pub boxes: Vec<Shape>,
    pub links: Vec<Link>,
    box_of: HashMap<Key, usize>,
    /// The boxes that are roots or were asked about.
    ends: Vec<usize>,
    /// The paths of how many of the references to remove are drawn.
    pub keepers: usize,
    /// How many references are marked.
    cuts: usize,
}

impl Plan {
    fn of(retention: &Retention, keepers: usize) -> Self {
        let mut plan = Self {
            keepers: retention.keepers.len().min(keepers),
            ..Self::default()
        };
        for keeper in retention.keepers.iter().take(keepers) {
            // What goes by itself is not for anybody to remove.
            let cut = (!keeper.goes_by_itself).then_some(keeper.step as usize);
            plan.path(retention, &keeper.path, cut);
        }
        for path in &retention.paths {
            plan.path(retention, path, None);
        }
        plan
    }

    fn path(&mut self, retention: &Retention, path: &Path, cut: Option<usize>) {
        let mut from: Option<usize> = None;
        if !path.root.is_named() && path.root != RootKind::Unknown {
            from = Some(self.root(&path.root_words));
        }
        let last = path.steps.len().saturating_sub(1);
        for (index, step) in path.steps.iter().enumerate() {
            // Objects without a number cannot be told apart, and each would be a box of its own.
            let Some(number) = step.node else { return };
            let is_root = index == 0 && path.root.is_named();
            let label = if is_root {
                &path.root_words
            } else {
                &step.label
            };
            let to = match self.box_of.get(&Key::Object(number)) {
                Some(&known) => known,
                None => {
                    let kind = if is_root {
                        NodeKind::Frame
                    } else {
                        NodeKind::Object
                    };
                    let location = step.location.as_ref().filter(|_| !is_root);
                    self.add(
                        Key::Object(number),
                        Shape::of_object(label, &step.type_name, location, kind),
                    )
                }
            };
            if is_root || index == last {
                self.ends.push(to);
            }
            if let Some(from) = from {
                let edge = index
                    .checked_sub(1)
                    .map_or("", |before| path.steps[before].edge.as_str());
                let is_cut = cut.is_some_and(|cut| cut + 1 == index);
                self.link(from, to, edge, is_cut);
            }
            if index == last {
                self.asked(retention, path, to, number);
            }
            from = Some(to);
        }
    }

    fn add(&mut self, key: Key, shape: Shape) -> usize {
        let index = self.boxes.len();
        self.boxes.push(shape);
        self.box_of.insert(key, index);
        index
    }

    fn root(&mut self, words: &str) -> usize {
        let key = Key::Root(words.to_owned());
        let known = self.box_of.get(&key).copied();
        let index = known.unwrap_or_else(|| {
            self.add(key, Shape::of_object(words, "root", None, NodeKind::Frame))
        });
        self.ends.push(index);
        index
    }

    fn link(&mut self, from: usize, to: usize, edge: &str, is_cut: bool) {
        let title = name(edge, TITLE);
        let known = self
            .links
            .iter_mut()
            .find(|it| (it.from, it.to) == (from, to) && it.title == title);
        match known {
            Some(link) if is_cut => link.role = EdgeRole::Cut,
            Some(_) => {}
            None => self.links.push(Link {
                from,
                to,
                edge: None,
                label: name(edge, LABEL),
                title,
                role: if is_cut {
                    EdgeRole::Cut
                } else {
                    EdgeRole::Path
                },
            }),
        }
    }

    /// Says how much memory an object that was asked about holds.
    fn asked(&mut self, retention: &Retention, path: &Path, index: usize, number: u32) {
        let Some(kept) = path
            .leads_to
            .first()
            .and_then(|&it| retention.objects.get(it as usize))
        else {
            return;
        };
        let shape = &mut self.boxes[index];
        shape.node = Some(number);
        shape.kind = ShapeKind::Object(NodeKind::Buffer);
        shape.note = kept
            .device
            .as_ref()
            .map(|device| format!("on {}", name(device, 12)));
        shape.size = kept.bytes.map(human_bytes);
    }

    /// Draws long chains as one box each.
    fn fold(&mut self) {
        let only = |links: Vec<&Link>| match links.as_slice() {
            [link] if link.role == EdgeRole::Path => Some((link.from, link.to)),
            _ => None,
        };
        let into = |index: usize| only(self.links.iter().filter(|it| it.to == index).collect());
        let out_of = |index: usize| only(self.links.iter().filter(|it| it.from == index).collect());
        let is_inner = |&index: &usize| {
            !self.ends.contains(&index) && into(index).is_some() && out_of(index).is_some()
        };
        let before = |index: usize| into(index).map(|(from, _)| from);
        let heads = (0..self.boxes.len()).filter(is_inner);
        let heads = heads.filter(|&index| !before(index).is_some_and(|it| is_inner(&it)));
        let chains: Vec<Vec<usize>> = heads
            .map(|head| {
                let next = |&index: &usize| out_of(index).map(|(_, to)| to).filter(is_inner);
                std::iter::successors(Some(head), next)
                    .take(self.boxes.len())
                    .collect()
            })
            .filter(|chain: &Vec<usize>| chain.len() > CHAIN)
            .collect();
        let mut gone: Vec<usize> = Vec::new();
        let mut folded: Vec<(usize, usize, String, Vec<usize>)> = Vec::new();
        for chain in chains {
            // Before its first and behind its last there is one each.
            let ends = (before(chain[0]), out_of(chain[chain.len() - 1]));
            let (Some(from), Some((_, to))) = ends else {
                continue;
            };
            let edge = self
                .links
                .iter()
                .find(|it| it.to == chain[0])
                .map(|it| it.title.clone());
            folded.push((from, to, edge.unwrap_or_default(), chain));
        }
        for (from, to, edge, chain) in folded {
            self.links
                .retain(|it| !chain.contains(&it.from) && !chain.contains(&it.to));
            let gap = self.boxes.len();
            self.boxes.push(Shape::gap(chain.len() as u64, "the path"));
            self.link(from, gap, &edge, false);
            self.link(gap, to, "", false);
            gone.extend(chain);
        }
        let stays: Vec<bool> = (0..self.boxes.len())
            .map(|it| !gone.contains(&it))
            .collect();
        self.keep(&stays);
    }

    /// Drops the boxes that do not stay, which no line joins any more.
    fn keep(&mut self, stays: &[bool]) {
        let places = keep(&mut self.boxes, &mut self.links, stays);
        self.ends.retain(|&it| stays[it]);
        for end in &mut self.ends {
            *end = places[*end];
        }
    }

    fn count_cuts(&mut self) {
        let cuts = self.links.iter().filter(|it| it.role == EdgeRole::Cut);
        self.cuts = cuts.count();
    }

    /// Draws objects that look the same and stand in the same place as one box, and references between the same boxes
    /// that differ in their numbers only as one line.
    fn merge(&mut self) {
        let look = |(index, shape): (usize, &Shape)| match self.ends.contains(&index) {
            true => format!("end {index}"),
            false => format!("{:?} {:?} {:?}", shape.name, shape.note, shape.kind),
        };
        let looks: Vec<String> = self.boxes.iter().enumerate().map(look).collect();
        let kind = |link: &Link| format!("{:?} {}", link.role, without_numbers(&link.label));
        let lines: Vec<Line> = self
            .links
            .iter()
            .map(|link| (link.from, link.to, kind(link)))
            .collect();
        let first = alike(&looks, &lines);
        let mut met: HashMap<(usize, usize, String), usize> = HashMap::new();
        let mut counts: Vec<u64> = Vec::new();
        for mut link in std::mem::take(&mut self.links) {
            (link.from, link.to) = (first[link.from], first[link.to]);
            let place = *met
                .entry((link.from, link.to, kind(&link)))
                .or_insert(counts.len());
            match self.links.get_mut(place) {
                Some(one) => {
                    counts[place] += 1;
                    one.label = without_numbers(&one.label);
                    one.title += &format!("\n{}", link.title);
                }
                None => {
                    counts.push(1);
                    self.links.push(link);
                }
            }
        }
        number(&mut self.links, &counts);
        for link in &mut self.links {
            link.title = name(&link.title, TITLE);
        }
        let stays = count(&mut self.boxes, &first);
        self.keep(&stays);
    }

    /// What the lines mean.
    fn legend(&self, retention: &Retention) -> Vec<(Option<EdgeRole>, String)> {
        let cut = match (retention.is_enough, self.cuts) {
            (_, 0) => None,
            (true, 1) => Some("the reference to remove"),
            (true, _) => Some("the references to remove, all of them"),
            (false, 1) => Some("a reference that keeps it alive"),
            (false, _) => Some("references that keep it alive"),
        };
        let cut = cut.map(|words| (Some(EdgeRole::Cut), words.to_owned()));
        let path = (Some(EdgeRole::Path), "leads to it".to_owned());
        cut.into_iter().chain([path]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Step;
    use crate::model::retention::{Keeper, Kept};

    fn path(root: &str, steps: &[(u32, &str, &str)]) -> Path {
        let step = |&(node, label, edge): &(u32, &str, &str)| Step {
            node: Some(node),
            label: label.to_owned(),
            type_name: label.to_owned(),
            edge: edge.to_owned(),
            ..Step::default()
        };
        Path {
            root: RootKind::Module,
            root_words: root.to_owned(),
            steps: steps.iter().map(step).collect(),
            leads_to: vec![0],
            ..Path::default()
        }
    }

    fn of(paths: Vec<Path>, cut: Option<u64>) -> Retention {
        let mut retention = Retention::about(vec![Kept {
            label: "Tensor".to_owned(),
            bytes: Some(1 << 20),
            device: Some("cpu".to_owned()),
            ..Kept::default()
        }]);
        retention.keepers = paths
            .iter()
            .filter_map(|path| {
                Some(Keeper {
                    path: path.clone(),
                    step: cut?,
                    ..Keeper::default()
                })
            })
            .collect();
        retention.paths = paths;
        retention
    }

    fn drawn(retention: &Retention) -> String {
        let plan = plan(retention).expect("a drawing");
        retaining(&plan, retention, "why", false).svg
    }

    fn boxes(svg: &str) -> usize {
        svg.matches("class=\"node ").count()
    }

    #[test]
    fn what_paths_have_in_common_is_drawn_once() {
        let best = path(
            "module `m`",
            &[(0, "m", ".t"), (1, "Trainer", ".best"), (2, "Tensor", "")],
        );
        let last = path(
            "module `m`",
            &[(0, "m", ".t"), (1, "Trainer", ".last"), (2, "Tensor", "")],
        );
        let drawing = drawn(&of(vec![best, last], Some(1)));
        assert_eq!(boxes(&drawing), 3);
        assert_eq!(
            drawing.matches("class=\"edge cut\"").count(),
            2 + 1,
            "and the legend"
        );
        assert_eq!(drawing.matches("class=\"edge path\"").count(), 1 + 1);
        assert_eq!(drawing.matches(">1.0 MiB<").count(), 1);
        assert!(drawing.contains(">module m<") && drawing.contains(".best"));
    }

    #[test]
    fn twenty_hooks_are_one_box_with_one_reference_to_remove_for_each() {
        let names: Vec<String> = (0..20).map(|it| format!("[{it}]")).collect();
        let hook = |(at, edge): (usize, &String)| {
            path(
                "module `m`",
                &[
                    (0, "m", ".hooks"),
                    (1, "dict", edge),
                    (10 + at as u32, "function hook", "default argument 'kept'"),
                    (2, "Tensor", ""),
                ],
            )
        };
        let drawing = drawn(&of(names.iter().enumerate().map(hook).collect(), Some(1)));
        assert_eq!(boxes(&drawing), 4, "{drawing}");
        assert!(drawing.contains(">20 × function hook<"), "{drawing}");
        assert!(drawing.contains(">[x] × 20<"), "{drawing}");
        assert!(drawing.contains("references that keep it alive"));
    }

    #[test]
    fn a_variable_that_goes_by_itself_is_not_marked() {
        let local = path(
            "frame of `f`",
            &[(0, "frame", "local 'x'"), (1, "Tensor", "")],
        );
        let mut retention = of(vec![local], Some(0));
        retention.keepers[0].goes_by_itself = true;
        let drawing = drawn(&retention);
        assert!(!drawing.contains("edge cut"));
    }

    #[test]
    fn a_long_chain_is_one_box() {
        let names: Vec<(u32, String)> = (0..40).map(|it| (it, format!("Node{it}"))).collect();
        let steps: Vec<(u32, &str, &str)> = names
            .iter()
            .map(|(it, label)| (*it, label.as_str(), ".next"))
            .collect();
        let drawing = drawn(&of(vec![path("module `m`", &steps)], Some(38)));
        // The root, the chain, who has the reference to remove, and the object.
        assert_eq!(boxes(&drawing), 4);
        assert!(drawing.contains(">⋮ 37 more objects<"), "{drawing}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing_or_of_too_much() {
        assert!(plan(&of(vec![], None)).is_none());
        let many = (0..80).map(|it| {
            path(
                &format!("module `m{it}`"),
                &[(it, "m", ".x"), (100, "Tensor", "")],
            )
        });
        assert!(plan(&of(many.collect(), None)).is_none());
        let unnumbered = Path {
            steps: vec![Step::default(), Step::default()],
            ..Path::default()
        };
        assert!(plan(&of(vec![unnumbered], None)).is_none());
    }
}
