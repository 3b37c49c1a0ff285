//! Where the names of references stand: on their lines, and on nothing else.

use super::layout::Spot;
use super::route::{Point, Route};

/// Along its line a name is tried here, in this order.
const PLACES: [f64; 11] = [
    0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68, 0.26, 0.74, 0.2, 0.8,
];

/// Of more names than this none minds the lines of others.
const MINDFUL: usize = 150;

/// How far from its line a name stands that has no room on it.
const BESIDE: f64 = 6.0;

/// A place for a name: what it covers, whether it is beside the line, how much of other lines it hides, and where it is.
type Tried = (f64, bool, usize, Point, Area);

/// A name to place.
pub struct Label {
    /// The line of its reference.
    pub route: Route,
    pub width: f64,
    pub height: f64,
    /// True if it is better not shown than shown over something else.
    pub optional: bool,
}

/// The middle of each name, those that come first being placed first; `None` for an optional one
/// for which there is no room.
///
/// Of the places where a name covers no box and no other name it gets the one where it hides least
/// of the other references' lines.
pub fn place_labels(labels: &[Label], boxes: &[Spot]) -> Vec<Option<Point>> {
    let mut taken: Vec<Area> = boxes.iter().map(Area::of_box).collect();
    let lines: Vec<Vec<Point>> = match labels.len() {
        0..=MINDFUL => labels.iter().map(|label| label.route.points()).collect(),
        _ => vec![],
    };
    let place = |(index, label): (usize, &Label)| {
        // Beside its line only where there is no room on it.
        let beside = [0.0, label.width / 2.0 + BESIDE, -label.width / 2.0 - BESIDE];
        let places = beside
            .into_iter()
            .flat_map(|by| PLACES.map(|part| (by, part)));
        let tried = places.map(|(by, part)| {
            let (x, y) = label.route.at(part);
            let at = (x + by, y);
            let area = Area::around(at, label.width, label.height);
            let covered: f64 = taken.iter().map(|other| area.overlap(other)).sum();
            let others = lines
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let hidden: usize = others.map(|(_, line)| area.holds(line)).sum();
            (covered, by != 0.0, hidden, at, area)
        });
        // Of equal ones the first: that is the nearest to the middle.
        let order = |a: &Tried, b: &Tried| {
            let covered = a.0.total_cmp(&b.0);
            covered.then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
        };
        let (covered, _, _, at, area) = tried.min_by(order)?;
        if covered > 0.0 && label.optional {
            return None;
        }
        taken.push(area);
        Some(at)
    };
    labels.iter().enumerate().map(place).collect()
}

/// A rectangle.
struct Area {
    low: Point,
    high: Point,
}

impl Area {
    fn around((x, y): Point, width: f64, height: f64) -> Self {
        Self {
            low: (x - width / 2.0, y - height / 2.0),
            high: (x + width / 2.0, y + height / 2.0),
        }
    }

    fn of_box(spot: &Spot) -> Self {
        Self::around((spot.x, spot.y), spot.size.width, spot.size.height)
    }

    /// How many of the points lie in it.
    fn holds(&self, points: &[Point]) -> usize {
        let inside = |&&(x, y): &&Point| {
            (self.low.0..=self.high.0).contains(&x) && (self.low.1..=self.high.1).contains(&y)
        };
        points.iter().filter(inside).count()
    }

    fn overlap(&self, other: &Area) -> f64 {
        let along = |low: f64, high: f64, other_low: f64, other_high: f64| {
            (high.min(other_high) - low.max(other_low)).max(0.0)
        };
        along(self.low.0, self.high.0, other.low.0, other.high.0)
            * along(self.low.1, self.high.1, other.low.1, other.high.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::layout::{Side, Size};
    use crate::render::route::across;

    fn spot(x: f64, y: f64) -> Spot {
        let (width, height) = (100.0, 40.0);
        Spot {
            x,
            y,
            size: Size { width, height },
            side: Side::Right,
        }
    }

    fn label(route: Route, optional: bool) -> Label {
        Label {
            route,
            width: 60.0,
            height: 19.0,
            optional,
        }
    }

    #[test]
    fn names_keep_off_boxes_and_one_another() {
        let boxes = [spot(0.0, 0.0), spot(500.0, 0.0), spot(250.0, 0.0)];
        let route = across(&boxes, (0, 1), (0, 1), 60.0, &[]);
        let free = place_labels(&[label(route, false)], &boxes[..2])[0].expect("room");
        assert!((free.0 - 250.0).abs() < 10.0, "{free:?}");
        let moved = place_labels(&[label(route, false)], &boxes)[0].expect("room");
        assert!((moved.0 - 250.0).abs() >= 80.0, "{moved:?}");
        let twice = place_labels(&[label(route, false), label(route, false)], &boxes[..2]);
        let apart = twice[0].expect("room").0 - twice[1].expect("room").0;
        assert!(apart.abs() >= 60.0, "{apart}");
    }

    #[test]
    fn a_name_without_room_on_its_line_stands_beside_it() {
        let boxes = [spot(0.0, 0.0), spot(0.0, 86.0)];
        let down = Route::down((0.0, 20.0), (0.0, 66.0));
        let (x, _) = place_labels(&[label(down, false)], &boxes)[0].expect("room");
        assert_eq!(x, 0.0);
        let crowded = [boxes[0], boxes[1], spot(-60.0, 43.0)];
        let (x, _) = place_labels(&[label(down, false)], &crowded)[0].expect("room");
        assert!(x > 30.0, "{x}");
    }

    #[test]
    fn names_do_not_hide_the_lines_of_others() {
        let boxes = [
            spot(0.0, 0.0),
            spot(500.0, 0.0),
            spot(250.0, -200.0),
            spot(250.0, 200.0),
        ];
        let level = label(across(&boxes, (0, 1), (0, 1), 60.0, &[]), false);
        let mut upright = label(level.route, false);
        upright.route.start = (250.0, -180.0);
        upright.route.controls = [(250.0, -60.0), (250.0, 60.0)];
        upright.route.end = (250.0, 180.0);
        let places = place_labels(&[level, upright], &boxes);
        let (x, _) = places[0].expect("room");
        assert!((x - 250.0).abs() >= 30.0, "{x}");
    }

    #[test]
    fn without_room_only_what_matters_is_shown() {
        let boxes = [spot(0.0, 0.0), spot(160.0, 0.0)];
        let route = across(&boxes, (0, 1), (0, 1), 60.0, &[]);
        let wide = |optional| Label {
            width: 200.0,
            ..label(route, optional)
        };
        assert!(place_labels(&[wide(true)], &boxes)[0].is_none());
        assert!(place_labels(&[wide(false)], &boxes)[0].is_some());
    }
}
