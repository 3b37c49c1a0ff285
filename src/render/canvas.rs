//! SVG elements: boxes, lines, names and the legend of a drawing.

use std::fmt::Write as _;

use maud::Render as _;

use super::boxes::Link;
use super::layout::{Size, Spot};
use super::route::{HEAD, Point, Route};
use super::shape::{Shape, ShapeKind};
use crate::model::report::{EdgeRole, NodeKind};
use crate::model::words::printable;

/// Width of a character of a box and of a reference's name: all are set in a monospaced font.
const CHAR: f64 = 7.25;
const LABEL_CHAR: f64 = 6.65;
/// Width of a character of the size of what a box holds.
const SIZE_CHAR: f64 = 9.7;
/// Space around text in a box, and between a drawing and its edge.
const PADDING: f64 = 14.0;
const MARGIN: f64 = 20.0;
const LINE_HEIGHT: f64 = 17.0;
/// Height of a reference's name.
pub const LABEL_HEIGHT: f64 = 19.0;
/// The scissors with the space after them.
const SCISSORS: f64 = 20.0;

/// A drawing and its size in pixels.
pub struct Drawing {
    pub svg: String,
    pub width: f64,
    pub height: f64,
}

/// The size of a box.
pub fn box_size(shape: &Shape) -> Size {
    Size {
        width: text_width(shape),
        height: text_height(shape),
    }
}

fn text_width(shape: &Shape) -> f64 {
    let lines = shape.name.iter().chain(&shape.note);
    let lines = lines.map(|line| columns(line)).fold(0.0, f64::max) * CHAR;
    let size = shape
        .size
        .as_ref()
        .map_or(0.0, |size| columns(size) * SIZE_CHAR);
    lines.max(size) + 2.0 * PADDING
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

/// The width of a reference's name; 0 if it has none.
pub fn label_width(link: &Link) -> f64 {
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
pub fn weight(role: EdgeRole) -> u8 {
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
        ShapeKind::More => "more",
        ShapeKind::Stack => "stack",
        ShapeKind::Cluster => "cluster",
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
pub struct Canvas<'a> {
    elements: String,
    bounds: Option<(Point, Point)>,
    /// Begins the ids of the boxes.
    id: &'a str,
    /// Whether what a box or a line is in full stands in hover texts.
    titles: bool,
}

impl<'a> Canvas<'a> {
    pub fn new(id: &'a str, titles: bool) -> Self {
        Self {
            elements: String::new(),
            bounds: None,
            id,
            titles,
        }
    }

    fn title(&self, text: &str) -> String {
        match self.titles {
            true => format!("<title>{}</title>", lines_markup(text)),
            false => String::new(),
        }
    }

    fn cover(&mut self, (x, y): Point, half_width: f64, half_height: f64) {
        let (low, high) = self.bounds.unwrap_or(((x, y), (x, y)));
        self.bounds = Some((
            (low.0.min(x - half_width), low.1.min(y - half_height)),
            (high.0.max(x + half_width), high.1.max(y + half_height)),
        ));
    }

    /// A group of elements of one kind, each on a line of its own, so that the page can draw a part
    /// of them at a time.
    pub fn layer(&mut self, class: &str, draw: impl FnOnce(&mut Self)) {
        _ = writeln!(self.elements, "<g class=\"{class}\">");
        draw(self);
        self.elements.push_str("</g>\n");
    }

    pub fn line(&mut self, link: &Link, route: &Route, in_ring: bool) {
        let Route {
            start,
            controls: [a, b],
            end,
            tip,
        } = *route;
        for point in route.points() {
            self.cover(point, 4.0, 4.0);
        }
        // What joins a box for several objects to its neighbour is no reference of one direction.
        let is_fold = link.edge.is_none() && link.role == EdgeRole::Other;
        let class = match (in_ring, is_fold) {
            (true, _) => " ring",
            (_, true) => " fold",
            _ => "",
        };
        let data = data_of(link);
        let end = if is_fold { tip } else { end };
        _ = write!(
            self.elements,
            "<g class=\"edge {}{class}\"{data}>{}<path class=\"line\" \
             d=\"M{:.1} {:.1}C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}\"/>",
            role_class(link.role),
            self.title(&link.title),
            start.0,
            start.1,
            a.0,
            a.1,
            b.0,
            b.1,
            end.0,
            end.1,
        );
        if !is_fold {
            let path = head(route.end, tip, if in_ring { 6.0 } else { 4.5 });
            _ = write!(self.elements, "<path class=\"head\" d=\"{path}\"/>");
        }
        self.elements.push_str("</g>\n");
    }

    pub fn shape(&mut self, shape: &Shape, spot: &Spot, in_ring: bool) {
        let Size { width, height } = spot.size;
        let (x, y) = (spot.x - width / 2.0, spot.y - height / 2.0);
        self.cover((spot.x, spot.y), width / 2.0, height / 2.0);
        let ring = if in_ring { " ring" } else { "" };
        // A ring that meets an object twice has its id twice; only the script cares.
        let mut data = String::new();
        let is_several = matches!(
            shape.kind,
            ShapeKind::Gap | ShapeKind::More | ShapeKind::Stack | ShapeKind::Cluster
        );
        if let Some(node) = shape.node.filter(|_| !is_several) {
            data = format!(" id=\"{}-n{node}\" data-node=\"{node}\"", self.id);
        }
        if is_several || !shape.hidden.is_empty() {
            data += &format!(" data-more=\"{}\"", runs(&shape.hidden));
        }
        if let Some(drawing) = &shape.opens {
            data += &format!(" data-opens=\"{drawing}\"");
        }
        let pile = match shape.kind {
            ShapeKind::Cluster => format!(
                "<path class=\"pile\" d=\"M{:.1} {y:.1}v-4h{width:.1}v{height:.1}h-4\"/>",
                x + 4.0
            ),
            _ => String::new(),
        };
        _ = writeln!(
            self.elements,
            "<g class=\"node {}{}{ring}\"{data}>{}{pile}\
             <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"7\"/>",
            kind_class(shape.kind),
            if shape.size.is_some() && shape.kind != ShapeKind::More {
                " held"
            } else {
                ""
            },
            self.title(&shape.title),
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

    pub fn label(&mut self, link: &Link, (x, y): Point) {
        if link.label.is_empty() {
            return;
        }
        let width = label_width(link);
        self.cover((x, y), width / 2.0, 10.0);
        let left = x - width / 2.0;
        let data = data_of(link);
        _ = write!(
            self.elements,
            "<g class=\"label {}\"{data}>{}\
             <rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"19\" rx=\"9.5\"/>",
            role_class(link.role),
            self.title(&link.title),
            y - LABEL_HEIGHT / 2.0,
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

    /// What the lines mean, and remarks, below the drawing: beside each other or, if it is narrow, one a line.
    pub fn legend(&mut self, entries: &[(Option<EdgeRole>, String)], narrow: bool) {
        let Some(((left, _), (right, bottom))) = self.bounds else {
            self.cover((0.0, 0.0), 120.0, 20.0);
            return self.text("note", (0.0, 4.0), "nothing to draw");
        };
        let (mut x, mut y) = (left, bottom + 34.0);
        for (role, text) in entries {
            let width = columns(text) * LABEL_CHAR;
            // What is said besides does not make the drawing wider.
            if role.is_none() && x > left && x + width > right {
                (x, y) = (left, y + LINE_HEIGHT);
            }
            if let Some(role) = *role {
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
            self.text("legend", (x, y), text);
            self.elements.push('\n');
            self.cover((x + width / 2.0, y), width / 2.0, 6.0);
            x += width + 26.0;
            if narrow {
                (x, y) = (left, y + LINE_HEIGHT);
            }
        }
    }

    /// The whole drawing; `title` is for who does not see it.
    pub fn finish(self, title: &str, style: Option<&str>) -> Drawing {
        let id = self.id;
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
             {}</svg>\n",
            markup(title),
            self.elements
        );
        Drawing {
            svg,
            width: width.round(),
            height: height.round(),
        }
    }
}

/// The attributes by which the script finds a line or its name: the reference, and the boxes that it joins, by their
/// places among the boxes.
fn data_of(link: &Link) -> String {
    let edge = link.edge.map(|edge| format!(" data-edge=\"{edge}\""));
    let edge = edge.unwrap_or_default();
    format!("{edge} data-ends=\"{} {}\"", link.from, link.to)
}

/// Numbers with those that follow each other as ranges: `1 4-90 7`.
fn runs(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let words = runs.map(|run| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    words.collect::<Vec<_>>().join(" ")
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

/// The text as the content of an element.
fn markup(text: &str) -> String {
    printable(text).render().into_string()
}

/// Hover text keeps its lines.
fn lines_markup(text: &str) -> String {
    text.split('\n').map(markup).collect::<Vec<_>>().join("\n")
}
