//! The drawing of a leak: the cycle as a ring, and what it holds.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::layout::{Plan, Size, Spot, place};
use super::model::{EdgeRole, Leak, NodeKind, Report};
use super::route::{HEAD, Point, Route, across, along_ring};
use super::scene::{Link, Scene, Shape, ShapeKind, cut_meaning, scene};
use super::words::{counted, human_bytes, markup, name};

/// How the drawing looks, alone or in the page.
pub(super) const STYLE: &str = include_str!("assets/drawing.css");

/// Width of a character of a box and of a reference's name: all are set in a monospaced font.
const CHAR: f64 = 7.25;
const LABEL_CHAR: f64 = 6.65;
/// Space around text in a box, and between a drawing and its edge.
const PADDING: f64 = 14.0;
const MARGIN: f64 = 20.0;
const LINE_HEIGHT: f64 = 17.0;
/// With more references than this beside the cycle and the ways, those go without a name.
const NAMED_OTHERS: usize = 60;
/// How many leaks a sheet shows.
const SHEET_LIMIT: usize = 40;
/// The scissors with the space after them.
const SCISSORS: f64 = 20.0;

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
    draw(leak, &format!("leak-{id}"), Some(STYLE)).svg
}

/// The leaks of a report as one SVG image, one below the other.
pub fn sheet(report: &Report) -> String {
    let drawings: Vec<Drawing> = report
        .leaks
        .iter()
        .take(SHEET_LIMIT)
        .enumerate()
        .map(|(rank, leak)| draw(leak, &format!("leak-{rank}"), Some(STYLE)))
        .collect();
    let width = drawings.iter().map(|d| d.width).fold(0.0, f64::max);
    let height: f64 = drawings.iter().map(|drawing| drawing.height).sum();
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

/// A drawing and its size in pixels.
pub(super) struct Drawing {
    pub svg: String,
    width: f64,
    height: f64,
}

/// The drawing with this prefix of its elements' ids, and with a style of its own or without.
pub(super) fn draw(leak: &Leak, id: &str, style: Option<&str>) -> Drawing {
    let scene = scene(leak);
    let spots = spots(&scene);
    let routes = routes(&scene, &spots);
    let others = scene
        .links
        .iter()
        .filter(|link| link.role == EdgeRole::Other)
        .count();
    let crowded = others > NAMED_OTHERS;
    let mut canvas = Canvas::default();
    // What matters most is drawn last; names lie over all lines, so that no line hides one.
    let mut order: Vec<usize> = (0..scene.links.len()).collect();
    order.sort_by_key(|&index| weight(scene.links[index].role));
    for &index in &order {
        canvas.line(&scene.links[index], &routes[index], index < scene.ring);
    }
    for (index, (shape, spot)) in scene.boxes.iter().zip(&spots).enumerate() {
        canvas.shape(shape, spot, index < scene.ring, id);
    }
    let named = order
        .iter()
        .filter(|&&index| !crowded || scene.links[index].role != EdgeRole::Other);
    for &index in named {
        canvas.label(&scene.links[index], routes[index].middle());
    }
    canvas.legend(&scene, cut_meaning(leak));
    canvas.finish(leak, id, style)
}

fn spots(scene: &Scene) -> Vec<Spot> {
    // Boxes of a kind are equally wide, so that they stand in columns.
    let width_of = |shapes: &[Shape]| shapes.iter().map(text_width).fold(90.0, f64::max);
    let (ring, hung) = scene.boxes.split_at(scene.ring);
    let widths = (width_of(ring), width_of(hung));
    let size = |(index, shape): (usize, &Shape)| Size {
        width: if index < scene.ring {
            widths.0
        } else {
            widths.1
        },
        height: text_height(shape),
    };
    let sizes: Vec<Size> = scene.boxes.iter().enumerate().map(size).collect();
    let mut links: Vec<&Link> = scene.links[scene.ring..].iter().collect();
    links.sort_by_key(|link| match link.role {
        EdgeRole::Path => 0,
        EdgeRole::Cycle | EdgeRole::Cut => 1,
        EdgeRole::Other => 2,
    });
    let label = scene.links[scene.ring..]
        .iter()
        .map(label_width)
        .fold(40.0, f64::max)
        + 44.0;
    let links: Vec<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
    place(&Plan {
        sizes: &sizes,
        ring: scene.ring,
        focus: scene.focus,
        links: &links,
        label,
    })
}

fn routes(scene: &Scene, spots: &[Spot]) -> Vec<Route> {
    let mut lanes: HashMap<(usize, usize), usize> = HashMap::new();
    let route = |(index, link): (usize, &Link)| {
        let (from, to) = (&spots[link.from], &spots[link.to]);
        if index < scene.ring {
            return along_ring(from, to, scene.ring == 1);
        }
        let ends = (link.from.min(link.to), link.from.max(link.to));
        let lane = lanes.entry(ends).or_default();
        let route = across(from, to, *lane);
        *lane += 1;
        route
    };
    scene.links.iter().enumerate().map(route).collect()
}

fn text_width(shape: &Shape) -> f64 {
    let lines = shape.name.iter().chain(&shape.note).chain(&shape.size);
    lines.map(|line| columns(line)).fold(0.0, f64::max) * CHAR + 2.0 * PADDING
}

fn text_height(shape: &Shape) -> f64 {
    let lines = shape.name.len() + shape.note.iter().len();
    let size = if shape.size.is_some() {
        LINE_HEIGHT + 5.0
    } else {
        0.0
    };
    lines.max(1) as f64 * LINE_HEIGHT + size + 14.0
}

fn label_width(link: &Link) -> f64 {
    if link.label.is_empty() {
        return 0.0;
    }
    let scissors = if link.role == EdgeRole::Cut {
        SCISSORS
    } else {
        0.0
    };
    columns(&link.label) * LABEL_CHAR + scissors + 12.0
}

/// How many monospaced columns a text takes; East Asian characters and emoji take nearly two.
fn columns(text: &str) -> f64 {
    text.chars()
        .map(|c| if (c as u32) < 0x1100 { 1.0 } else { 1.7 })
        .sum()
}

/// How much a reference matters to the reader.
fn weight(role: EdgeRole) -> u8 {
    match role {
        EdgeRole::Other => 0,
        EdgeRole::Path => 1,
        EdgeRole::Cycle => 2,
        EdgeRole::Cut => 3,
    }
}

/// The class of a line and of its name.
fn role_class(role: EdgeRole) -> &'static str {
    match role {
        EdgeRole::Cycle => "cycle",
        EdgeRole::Cut => "cut",
        EdgeRole::Path => "path",
        EdgeRole::Other => "other",
    }
}

fn kind_class(kind: ShapeKind) -> &'static str {
    match kind {
        ShapeKind::Gap => "gap",
        ShapeKind::Object(NodeKind::Object) => "object",
        ShapeKind::Object(NodeKind::Container) => "container",
        ShapeKind::Object(NodeKind::Function) => "function",
        ShapeKind::Object(NodeKind::Frame) => "frame",
        ShapeKind::Object(NodeKind::Class) => "class",
        ShapeKind::Object(NodeKind::Plumbing) => "plumbing",
        ShapeKind::Object(NodeKind::Buffer) => "buffer",
    }
}

/// SVG elements, and the rectangle that they fill. Writing to a `String` cannot fail, so the
/// results of `write!` are dropped.
#[derive(Default)]
struct Canvas {
    elements: String,
    bounds: Option<(Point, Point)>,
}

impl Canvas {
    fn cover(&mut self, (x, y): Point, half_width: f64, half_height: f64) {
        let (low, high) = self.bounds.unwrap_or(((x, y), (x, y)));
        self.bounds = Some((
            (low.0.min(x - half_width), low.1.min(y - half_height)),
            (high.0.max(x + half_width), high.1.max(y + half_height)),
        ));
    }

    fn line(&mut self, link: &Link, route: &Route, in_ring: bool) {
        let Route {
            start,
            controls: [a, b],
            end,
            tip,
        } = *route;
        self.cover(start, 0.0, 0.0);
        self.cover(route.middle(), 4.0, 4.0);
        let ring = if in_ring { " ring" } else { "" };
        let data = link
            .edge
            .map(|edge| format!(" data-edge=\"{edge}\""))
            .unwrap_or_default();
        _ = writeln!(
            self.elements,
            "<g class=\"edge {}{ring}\"{data}><title>{}</title><path class=\"line\" \
             d=\"M{:.1} {:.1}C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}\"/><path class=\"head\" d=\"{}\"/></g>",
            role_class(link.role),
            lines_markup(&link.title),
            start.0,
            start.1,
            a.0,
            a.1,
            b.0,
            b.1,
            end.0,
            end.1,
            head(end, tip, if in_ring { 6.0 } else { 4.5 }),
        );
    }

    fn shape(&mut self, shape: &Shape, spot: &Spot, in_ring: bool, id: &str) {
        let Size { width, height } = spot.size;
        let (x, y) = (spot.x - width / 2.0, spot.y - height / 2.0);
        self.cover((spot.x, spot.y), width / 2.0, height / 2.0);
        let ring = if in_ring { " ring" } else { "" };
        // A ring that meets an object twice has its id twice; only the script cares.
        let data = shape
            .node
            .map(|n| format!(" id=\"{id}-n{n}\" data-node=\"{n}\""));
        _ = writeln!(
            self.elements,
            "<g class=\"node {}{}{ring}\"{}><title>{}</title>\
             <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"7\"/>",
            kind_class(shape.kind),
            if shape.size.is_some() { " held" } else { "" },
            data.unwrap_or_default(),
            lines_markup(&shape.title),
        );
        let mut baseline = y + 7.0 + LINE_HEIGHT * 0.74;
        let lines = shape.name.iter().map(|line| ("name", line));
        for (class, line) in lines.chain(shape.note.iter().map(|line| ("note", line))) {
            self.text(class, (spot.x, baseline), line);
            baseline += LINE_HEIGHT;
        }
        if let Some(size) = &shape.size {
            self.text("size", (spot.x, baseline + 5.0), size);
        }
        self.elements.push_str("</g>\n");
    }

    fn label(&mut self, link: &Link, (x, y): Point) {
        if link.label.is_empty() {
            return;
        }
        let width = label_width(link);
        self.cover((x, y), width / 2.0, 10.0);
        let left = x - width / 2.0;
        let data = link
            .edge
            .map(|edge| format!(" data-edge=\"{edge}\""))
            .unwrap_or_default();
        _ = write!(
            self.elements,
            "<g class=\"label {}\"{data}><title>{}</title>\
             <rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"19\" rx=\"9.5\"/>",
            role_class(link.role),
            lines_markup(&link.title),
            y - 9.5,
        );
        let mut middle = x;
        if link.role == EdgeRole::Cut {
            self.scissors((left + 15.0, y));
            middle += SCISSORS / 2.0;
        }
        self.text("ref", (middle, y + 4.0), &link.label);
        self.elements.push_str("</g>\n");
    }

    /// Drawn, as few fonts have them.
    fn scissors(&mut self, (x, y): Point) {
        _ = write!(
            self.elements,
            "<path class=\"scissors\" transform=\"translate({x:.1} {y:.1})\" \
             d=\"M-2 -1.6L7 3.6M-2 1.6L7 -3.6M-1.8 -3.2a2.3 2.3 0 1 0 -4.6 0a2.3 2.3 0 1 0 4.6 0\
             M-1.8 3.2a2.3 2.3 0 1 0 -4.6 0a2.3 2.3 0 1 0 4.6 0\"/>"
        );
    }

    fn text(&mut self, class: &str, (x, y): Point, text: &str) {
        let text = markup(text);
        _ = write!(
            self.elements,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        );
    }

    /// What the lines mean, below the drawing, with the number of what is not drawn.
    fn legend(&mut self, scene: &Scene, cut: &str) {
        let Some(((left, _), (_, bottom))) = self.bounds else {
            self.cover((0.0, 0.0), 120.0, 20.0);
            return self.text("note", (0.0, 4.0), "nothing to draw");
        };
        let has = |role| scene.links.iter().any(|link| link.role == role);
        let mut entries = vec![];
        for (role, text) in [
            (EdgeRole::Cycle, "the cycle"),
            (EdgeRole::Cut, cut),
            (EdgeRole::Path, "the way to the memory"),
        ] {
            if has(role) {
                entries.push((Some(role), text.to_owned()));
            }
        }
        if scene.omitted > 0 {
            let more = counted(scene.omitted, "more object is", "more objects are");
            entries.push((None, format!("{more} not drawn")));
        }
        let (mut x, y) = (left, bottom + 34.0);
        for (role, text) in entries {
            if let Some(role) = role {
                let (class, start, end) = (role_class(role), (x, y - 4.0), (x + 22.0, y - 4.0));
                _ = write!(
                    self.elements,
                    "<g class=\"edge {class}\"><path class=\"line\" d=\"M{:.1} {:.1}H{:.1}\"/>\
                     <path class=\"head\" d=\"{}\"/></g>",
                    start.0,
                    start.1,
                    end.0,
                    head(end, (end.0 + HEAD, end.1), 4.5)
                );
                x += 40.0;
            }
            let width = columns(&text) * LABEL_CHAR;
            self.text("legend", (x, y), &text);
            self.cover((x + width / 2.0, y), width / 2.0, 6.0);
            x += width + 26.0;
        }
    }

    fn finish(self, leak: &Leak, id: &str, style: Option<&str>) -> Drawing {
        let ((left, top), (right, bottom)) = self.bounds.unwrap_or_default();
        let (left, top) = (left - MARGIN, top - MARGIN);
        let (width, height) = (right - left + MARGIN, bottom - top + MARGIN);
        let style = style
            .map(|style| format!("<style>{style}</style>\n"))
            .unwrap_or_default();
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"leak-drawing\" id=\"{id}\" role=\"img\" \
             viewBox=\"{left:.1} {top:.1} {width:.1} {height:.1}\" \
             width=\"{width:.0}\" height=\"{height:.0}\">\n\
             <title>{}</title>\n{style}\
             <rect class=\"paper\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n\
             <g class=\"scene\">\n{}</g>\n</svg>\n",
            markup(&format!(
                "{} held by {}",
                human_bytes(leak.bytes_held),
                name(&leak.summary, 400)
            )),
            self.elements
        );
        Drawing {
            svg,
            width: width.round(),
            height: height.round(),
        }
    }
}

/// The head of an arrow, as path data.
fn head(end: Point, tip: Point, half: f64) -> String {
    let (dx, dy) = ((tip.0 - end.0) / HEAD * half, (tip.1 - end.1) / HEAD * half);
    format!(
        "M{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}Z",
        tip.0,
        tip.1,
        end.0 - dy,
        end.1 + dx,
        end.0 + dy,
        end.1 - dx
    )
}

/// Hover text keeps its lines.
fn lines_markup(text: &str) -> String {
    text.split('\n').map(markup).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn all_drawings() -> Vec<String> {
        let mut reports = vec![
            samples::callback(),
            samples::linked_nodes_and_exception(),
            samples::million_ring(),
            samples::hostile(),
            samples::dangling(),
            samples::dense(500),
        ];
        let mut empty = samples::callback();
        empty.leaks[0].graph = Default::default();
        reports.push(empty.clone());
        empty.leaks[0].cycle.clear();
        reports.push(empty);
        let mut alone = samples::dense(20);
        alone.leaks[0].cycle.truncate(1);
        reports.push(alone);
        let mut no_cycle = samples::dense(20);
        no_cycle.leaks[0].cycle.clear();
        reports.push(no_cycle);
        reports
            .iter()
            .flat_map(|report| &report.leaks)
            .map(svg)
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
        let drawing = svg(leak);
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
            .split("<g class=\"label cut\" data-edge=\"0\">")
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
    fn a_large_dense_graph_is_drawn_at_once() {
        let report = samples::dense(500);
        let start = std::time::Instant::now();
        let drawing = svg(&report.leaks[0]);
        // Well under a second when optimised; this is for a debug build on a busy machine.
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
        assert!(drawing.matches("<g class=\"node").count() == 500);
    }
}
