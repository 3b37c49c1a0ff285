//! A drawing of the leak alone without what makes it hard to read: the same box many times, and lines that say nothing
//! of the leak.

use std::collections::HashMap;

use super::alike::{Line, alike, count, keep, number};
use super::boxes::{Link, Scene};
use super::shape::{Shape, ShapeKind};
use crate::model::report::EdgeRole;
use crate::model::words::without_numbers;

/// So many lines that are neither of the cycle nor on a way to the memory are drawn; of more, only those that join a box
/// to the others.
const OTHERS: usize = 6;

/// Objects that look the same and stand in the same place as one box, and few lines beside the leak's own.
pub fn simplified(mut scene: Scene) -> Scene {
    let counts = merge(&mut scene);
    thin(&mut scene, &counts);
    scene
}

/// How many references each line stands for.
fn merge(scene: &mut Scene) -> Vec<u64> {
    let may_merge = |(index, shape): (usize, &Shape)| {
        index >= scene.ring
            && matches!(shape.kind, ShapeKind::Object(_))
            && shape.node.is_some()
            && shape.size.is_none()
            && shape.hidden.is_empty()
    };
    let look = |(index, shape): (usize, &Shape)| match may_merge((index, shape)) {
        true => format!("{:?} {:?} {:?}", shape.name, shape.note, shape.kind),
        false => format!("alone {index}"),
    };
    let looks: Vec<String> = scene.boxes.iter().enumerate().map(look).collect();
    let kind = |link: &Link| format!("{:?} {}", link.role, without_numbers(&link.label));
    let line = |link: &Link| -> Line { (link.from, link.to, kind(link)) };
    let first = alike(&looks, &scene.links.iter().map(line).collect::<Vec<_>>());
    let is_moved = |link: &Link| {
        let stands_for_several =
            |it: usize| first.iter().filter(|&&other| other == first[it]).count() > 1;
        stands_for_several(link.from) || stands_for_several(link.to)
    };
    let mut met: HashMap<Line, usize> = HashMap::new();
    let mut links: Vec<Link> = Vec::new();
    let mut counts: Vec<u64> = Vec::new();
    for mut link in std::mem::take(&mut scene.links) {
        if is_moved(&link) {
            (link.from, link.to) = (first[link.from], first[link.to]);
            let place = *met.entry(line(&link)).or_insert(links.len());
            if let Some(one) = links.get_mut(place) {
                one.label = without_numbers(&one.label);
                counts[place] += 1;
                continue;
            }
        }
        links.push(link);
        counts.push(1);
    }
    number(&mut links, &counts);
    for (index, &one) in first
        .iter()
        .enumerate()
        .filter(|(index, one)| index != *one)
    {
        let node = scene.boxes[index].node;
        scene.boxes[one].hidden.extend(node);
    }
    let stays = count(&mut scene.boxes, &first);
    keep(&mut scene.boxes, &mut links, &stays);
    scene.links = links;
    counts
}

/// Drops lines that say nothing of the leak, if there are many.
fn thin(scene: &mut Scene, counts: &[u64]) {
    let is_other = |link: &Link| link.role == EdgeRole::Other && link.edge.is_some();
    if scene.links.iter().filter(|link| is_other(link)).count() <= OTHERS {
        return;
    }
    let mut group: Vec<usize> = (0..scene.boxes.len()).collect();
    let join = |group: &mut Vec<usize>, from: usize, to: usize| {
        let (from, to) = (group[from], group[to]);
        for each in group.iter_mut().filter(|each| **each == to) {
            *each = from;
        }
        from != to
    };
    for link in scene.links.iter().filter(|link| !is_other(link)) {
        join(&mut group, link.from, link.to);
    }
    let mut left_out = 0;
    let mut counts = counts.iter();
    scene.links.retain(|link| {
        let count = counts.next().copied().unwrap_or(1);
        let stays = !is_other(link) || join(&mut group, link.from, link.to);
        left_out += if stays { 0 } else { count };
        stays
    });
    scene.untold += left_out;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::{Cut, Edge, Leak, Node};
    use crate::render::samples;
    use crate::render::scene::scene;
    use crate::render::subgraph::Detail;

    fn add(leak: &mut Leak, label: &str) -> u32 {
        let first = leak.graph.nodes[0].clone();
        leak.graph.nodes.push(Node {
            label: label.to_owned(),
            in_cycle: false,
            ..first
        });
        leak.graph.nodes.len() as u32 - 1
    }

    fn refer(leak: &mut Leak, from: u32, to: u32, name: &str, role: EdgeRole) {
        let edge = Edge {
            from,
            to,
            name: name.to_owned(),
            role,
            through: vec![],
            ..leak.graph.edges[0].clone()
        };
        leak.graph.edges.push(edge);
    }

    #[test]
    fn five_children_with_a_reference_to_cut_each_are_one_box() {
        let mut report = samples::callback();
        let leak = &mut report.leaks[0];
        for number in 0..4 {
            let child = add(leak, "Vertex");
            refer(leak, 0, child, &format!("[{number}]"), EdgeRole::Other);
            refer(leak, child, 0, ".graph", EdgeRole::Cut);
            leak.cuts.push(Cut {
                source: child,
                target: 0,
                ..leak.cuts[0].clone()
            });
        }
        let scene = scene(leak, Detail::Leak);
        let children: Vec<&Shape> = scene
            .boxes
            .iter()
            .filter(|it| it.name[0].contains("Vertex"))
            .collect();
        assert_eq!(children.len(), 1);
        assert_eq!(children[0].name, ["4 × Vertex"]);
        assert_eq!(children[0].hidden.len(), 3);
        let labels: Vec<&str> = scene.links.iter().map(|it| &*it.label).collect();
        assert!(
            labels.contains(&".graph × 4") && labels.contains(&"[x] × 4"),
            "{labels:?}"
        );
    }

    #[test]
    fn of_many_lines_beside_the_leak_only_those_stay_that_join_a_box() {
        let mut report = samples::callback();
        let leak = &mut report.leaks[0];
        let before = scene(leak, Detail::Leak);
        for number in 0..20 {
            refer(
                leak,
                0,
                1,
                &format!(".more_{}", "x".repeat(number)),
                EdgeRole::Other,
            );
        }
        let after = scene(leak, Detail::Leak);
        assert_eq!(after.links.len(), before.links.len());
        assert_eq!(after.untold, before.untold + 20);
        assert!(scene(leak, Detail::All).untold < 20);
    }
}
