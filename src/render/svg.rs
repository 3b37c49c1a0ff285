//! The drawing of a leak: the cycle as a ring, and what it holds.

use std::collections::HashMap;

use super::boxes::{Link, Scene};
use super::canvas::{Canvas, Drawing, LABEL_HEIGHT, box_size, label_width, weight};
use super::column;
use super::labels::{Label, place_labels};
use super::layout::{Plan, Side, Size, Spot, place};
use super::route::{Point, Route, across, along_ring};
use super::scene::{cut_meaning, scene};
use super::shape::{Shape, ShapeKind};
use super::subgraph::Detail;
use crate::model::report::{EdgeRole, Leak, Report};
use crate::model::words::{counted, grouped, human_bytes, name};

/// How the drawing looks, alone or in the page.
pub(super) const STYLE: &str = include_str!("assets/drawing.css");

/// Maximum number of named references beside those of the cycle and the paths.
const NAMED_OTHERS: usize = 60;
/// With more boxes than this, lines do not look for a way around them.
const ROUTED: usize = 120;
/// How many leaks a sheet shows.
const SHEET_LIMIT: usize = 40;

/// The leak as an SVG image that stands alone: no script, no font, no other file.
///
/// The boxes are groups with `data-node`, the index of the object in the leak's graph; the lines
/// are groups with `data-edge`, the index of the reference. An object stays readable whatever its
/// name: names are escaped, and shortened in the middle with the whole in the hover text.
pub fn svg(leak: &Leak) -> String {
    let id: String = leak
        .signature
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(40)
        .collect();
    draw(leak, &format!("leak-{id}"), &Look::ALONE).svg
}

/// The leaks of a report as one SVG image, one below the other.
pub fn sheet(report: &Report) -> String {
    let drawings: Vec<Drawing> = report
        .leaks
        .iter()
        .take(SHEET_LIMIT)
        .enumerate()
        .map(|(rank, leak)| draw(leak, &format!("leak-{rank}"), &Look::ALONE))
        .collect();
    let width = drawings.iter().map(|d| d.width).fold(0.0, f64::max);
    let height = drawings
        .iter()
        .fold(0.0, |sum, drawing| sum + drawing.height);
    let mut top = 0.0;
    let mut elements = String::new();
    for drawing in drawings {
        let placed = format!("<svg y=\"{top:.0}\" ");
        elements.push_str(&drawing.svg.replacen("<svg ", &placed, 1));
        top += drawing.height;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\">\n{elements}</svg>\n"
    )
}

/// What a drawing shows, and what it brings with it.
pub(super) struct Look {
    pub detail: Detail,
    /// A style of its own.
    pub style: Option<&'static str>,
    /// The whole names as hover texts.
    pub titles: bool,
    /// All boxes in one column.
    pub narrow: bool,
}

impl Look {
    pub const ALONE: Look = Look {
        detail: Detail::Leak,
        style: Some(STYLE),
        titles: true,
        narrow: false,
    };
}

/// The drawing with this prefix of its elements' ids.
pub(super) fn draw(leak: &Leak, id: &str, look: &Look) -> Drawing {
    let scene = scene(leak, look.detail);
    let spots = spots(&scene, look.narrow);
    let routes = routes(&scene, &spots, look.narrow);
    // What matters most is drawn last; names lie over all lines, so that no line hides one.
    let mut order: Vec<usize> = (0..scene.links.len()).collect();
    order.sort_by_key(|&index| weight(scene.links[index].role));
    let mut canvas = Canvas::new(id, look.titles);
    canvas.layer("lines", |canvas| {
        for &index in &order {
            canvas.line(&scene.links[index], &routes[index], index < scene.ring);
        }
    });
    canvas.layer("boxes", |canvas| {
        for (index, (shape, spot)) in scene.boxes.iter().zip(&spots).enumerate() {
            canvas.shape(shape, spot, index < scene.ring);
        }
    });
    canvas.layer("names", |canvas| {
        for (index, at) in names(&scene, &spots, &routes, &order) {
            canvas.label(&scene.links[index], at);
        }
    });
    let cuts = scene
        .links
        .iter()
        .filter(|link| link.role == EdgeRole::Cut)
        .count();
    let mut entries = legend(&scene, cut_meaning(leak, cuts));
    if leak.count > 1 {
        let count = grouped(leak.count);
        let words = match leak.first_seen_bytes() {
            None => format!("one of {count} similar cycles, with the memory of all"),
            Some(_) => format!("one of {count} similar cycles, with the memory first seen"),
        };
        entries.push((None, words));
    }
    canvas.legend(&entries, look.narrow);
    let held = human_bytes(leak.bytes_held);
    let title = format!("{held} held by {}", name(&leak.summary, 400));
    canvas.finish(&title, look.style)
}

/// What the lines mean, and the number of what is not drawn.
fn legend(scene: &Scene, cut: &str) -> Vec<(Option<EdgeRole>, String)> {
    let meanings = [
        (EdgeRole::Cycle, "the cycle"),
        (EdgeRole::Cut, cut),
        (EdgeRole::Path, "the path to the memory"),
    ];
    let is_drawn = |role| scene.links.iter().any(|link| link.role == role);
    let meant = meanings.into_iter().filter(|&(role, _)| is_drawn(role));
    let mut entries: Vec<(Option<EdgeRole>, String)> = meant
        .map(|(role, words)| (Some(role), words.to_owned()))
        .collect();
    if scene.omitted > 0 {
        let more = counted(scene.omitted, "more object is", "more objects are");
        entries.push((None, format!("{more} not drawn")));
    }
    if scene.untold > 0 {
        let more = counted(scene.untold, "more reference is", "more references are");
        entries.push((None, format!("{more} not drawn")));
    }
    entries
}

/// Where the references' names stand, the most important placed first and drawn last.
fn names(scene: &Scene, spots: &[Spot], routes: &[Route], order: &[usize]) -> Vec<(usize, Point)> {
    let is_other = |index: usize| scene.links[index].role == EdgeRole::Other;
    let crowded = order.iter().filter(|&&index| is_other(index)).count() > NAMED_OTHERS;
    let named: Vec<usize> = (order.iter().rev().copied())
        .filter(|&index| !(crowded && is_other(index)))
        .filter(|&index| !scene.links[index].label.is_empty())
        .collect();
    let labels: Vec<Label> = named
        .iter()
        .map(|&index| Label {
            route: routes[index],
            width: label_width(&scene.links[index]),
            height: LABEL_HEIGHT,
            optional: is_other(index),
        })
        .collect();
    let places = place_labels(&labels, spots);
    let mut placed: Vec<(usize, Point)> = named
        .into_iter()
        .zip(places)
        .filter_map(|(index, at)| Some((index, at?)))
        .collect();
    placed.reverse();
    placed
}

fn spots(scene: &Scene, narrow: bool) -> Vec<Spot> {
    // Boxes of a kind are equally wide, so that they stand in columns.
    let wide = |shape: &&Shape| shape.kind != ShapeKind::More;
    let width_of = |shapes: &[Shape]| {
        let widths = shapes
            .iter()
            .filter(wide)
            .map(|shape| box_size(shape).width);
        widths.fold(90.0, f64::max)
    };
    let (ring, hung) = scene.boxes.split_at(scene.ring);
    let widths = (width_of(ring), width_of(hung));
    let size = |(index, shape): (usize, &Shape)| {
        let Size { width, height } = box_size(shape);
        let width = match shape.kind {
            ShapeKind::More => width,
            _ if index < scene.ring => widths.0,
            _ => widths.1,
        };
        Size { width, height }
    };
    let sizes: Vec<Size> = scene.boxes.iter().enumerate().map(size).collect();
    let mut links: Vec<&Link> = scene.links[scene.ring..].iter().collect();
    // Of ways to memory that of the largest comes first, as its box does.
    links.sort_by_key(|link| match link.role {
        EdgeRole::Path => (0, link.to),
        EdgeRole::Cycle | EdgeRole::Cut => (1, 0),
        EdgeRole::Other => (2, 0),
    });
    let label = scene.links[scene.ring..]
        .iter()
        .map(label_width)
        .fold(40.0, f64::max)
        + 34.0;
    let links: Vec<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
    let plan = Plan {
        sizes: &sizes,
        ring: scene.ring,
        focus: scene.focus,
        links: &links,
        label,
    };
    match narrow {
        true => column::place(&plan),
        false => place(&plan),
    }
}

fn routes(scene: &Scene, spots: &[Spot], narrow: bool) -> Vec<Route> {
    let ends = |link: &Link| (link.from.min(link.to), link.from.max(link.to));
    let beside = || scene.links.iter().skip(scene.ring);
    let mut lanes: HashMap<(usize, usize), (usize, usize)> = HashMap::new();
    for link in beside() {
        lanes.entry(ends(link)).or_default().1 += 1;
    }
    let along = |(index, link): (usize, &Link)| {
        debug_assert!(index < scene.ring);
        let around = |spots: &[Spot]| {
            let ends = (link.from, link.to);
            across(spots, ends, (0, 1), label_width(link), &[])
        };
        match narrow && scene.ring > 1 {
            // The way back of the cycle is on the left.
            true => column::route(spots, (link.from, link.to), Side::Left, around),
            false => along_ring(&spots[link.from], &spots[link.to], scene.ring == 1),
        }
    };
    let ring: Vec<Route> = scene.links[..scene.ring]
        .iter()
        .enumerate()
        .map(along)
        .collect();
    let obstacles: &[Spot] = if spots.len() > ROUTED { &[] } else { spots };
    let others = beside().map(|link| {
        let (lane, count) = lanes.entry(ends(link)).or_default();
        let around = |spots: &[Spot]| {
            let ends = (link.from, link.to);
            across(spots, ends, (*lane, *count), label_width(link), obstacles)
        };
        let route = match narrow && *lane == 0 {
            true => column::route(spots, (link.from, link.to), Side::Right, around),
            false => around(spots),
        };
        *lane += 1;
        route
    });
    let others: Vec<Route> = others.collect();
    ring.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::clusters::CLUSTERS;
    use crate::render::samples;

    const ALL: Look = Look {
        detail: Detail::All,
        ..Look::ALONE
    };

    #[test]
    fn a_drawing_of_one_of_several_cycles_says_so() {
        let said = "one of 3 similar cycles, with the memory of all";
        let mut report = samples::linked_nodes_and_exception();
        assert!(svg(&report.leaks[0]).contains(said));
        report.leaks[0].count = 1;
        assert!(!svg(&report.leaks[0]).contains("similar cycles"));
    }

    fn all_drawings() -> Vec<String> {
        let (many, some) = if cfg!(miri) { (6, 6) } else { (500, 20) };
        let mut reports = vec![
            samples::callback(),
            samples::linked_nodes_and_exception(),
            samples::million_ring(),
            samples::hostile(),
            samples::dangling(),
            samples::dense(many),
        ];
        let mut empty = samples::callback();
        empty.leaks[0].graph = Default::default();
        reports.push(empty.clone());
        empty.leaks[0].cycle.clear();
        reports.push(empty);
        let mut alone = samples::dense(some);
        alone.leaks[0].cycle.truncate(1);
        reports.push(alone);
        let mut no_cycle = samples::dense(some);
        no_cycle.leaks[0].cycle.clear();
        reports.push(no_cycle);
        reports
            .iter()
            .flat_map(|report| &report.leaks)
            .flat_map(|leak| [svg(leak), draw(leak, "all", &ALL).svg])
            .collect()
    }

    #[test]
    fn every_drawing_is_well_formed_and_finite() {
        for drawing in all_drawings() {
            assert!(
                !drawing.contains("NaN") && !drawing.contains("inf "),
                "{drawing}"
            );
            assert_balanced(&drawing);
            assert!(drawing.ends_with("</svg>\n"));
        }
    }

    /// Each element that is opened is closed, in order.
    fn assert_balanced(xml: &str) {
        let mut open = vec![];
        for tag in xml.split('<').skip(1) {
            let tag = &tag[..tag.find('>').expect("a tag ends")];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(tag.split_whitespace().next().expect("a tag has a name"));
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn nothing_hostile_survives() {
        for leak in &samples::hostile().leaks {
            let drawing = svg(leak);
            for forbidden in ["<img", "<script", "</script", "\u{202e}", "\u{1b}", "\u{0}"] {
                assert!(!drawing.contains(forbidden), "{forbidden:?}");
            }
            assert!(drawing.len() < 200_000, "{}", drawing.len());
        }
    }

    #[test]
    fn nodes_and_references_can_be_found_by_their_index() {
        let report = samples::callback();
        let leak = &report.leaks[0];
        let drawing = draw(leak, "all", &ALL).svg;
        for node in 0..leak.graph.nodes.len() {
            assert_eq!(drawing.matches(&format!("data-node=\"{node}\"")).count(), 1);
        }
        for edge in 0..leak.graph.edges.len() {
            // The line and the name.
            assert_eq!(drawing.matches(&format!("data-edge=\"{edge}\"")).count(), 2);
        }
    }

    #[test]
    fn the_cut_and_only_the_cut_has_scissors() {
        let drawing = svg(&samples::callback().leaks[0]);
        assert_eq!(drawing.matches("class=\"scissors\"").count(), 1);
        let label = drawing
            .split("<g class=\"label cut\" data-edge=\"0\"")
            .nth(1)
            .unwrap();
        assert!(
            label
                .split("</g>")
                .next()
                .unwrap()
                .contains("._callback</text>")
        );
        assert!(!svg(&samples::million_ring().leaks[0]).contains("scissors\" "));
    }

    #[test]
    fn held_memory_shows_its_size_and_names_are_whole_on_hover() {
        let drawing = svg(&samples::callback().leaks[0]);
        let held = drawing.split("class=\"node buffer held\"").nth(1).unwrap();
        assert!(
            held.split("</g>")
                .next()
                .unwrap()
                .contains(">64.0 MiB</text>")
        );
        let full =
            "function AwaitableTensorWithViewCallBack.__init__.&lt;locals&gt;.&lt;lambda&gt;";
        assert!(drawing.contains(full));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn a_large_dense_graph_is_a_few_boxes_that_unfold() {
        let report = samples::dense(500);
        let drawing = draw(&report.leaks[0], "dense", &ALL).svg;
        let boxes = drawing.matches("<g class=\"node ").count();
        assert!((5..40).contains(&boxes), "{boxes} boxes");
        let labels = drawing.matches("<g class=\"label ").count();
        assert!((2..60).contains(&labels), "{labels} names");
        let opens = |number: &usize| drawing.contains(&format!("data-opens=\"all-{number}\""));
        let clusters: Vec<usize> = (0..CLUSTERS).filter(opens).collect();
        assert!(!clusters.is_empty());
        for number in clusters {
            let detail = Detail::Unfolded(number);
            let unfolded = draw(&report.leaks[0], "dense", &Look { detail, ..ALL }).svg;
            let objects = |drawing: &str| drawing.matches("data-node=").count();
            assert!(objects(&unfolded) > objects(&drawing) + 5);
        }
    }
}
