//! How the line of a reference runs from one box to another.

use super::layout::{ARC, Side, Spot};

/// A place in the drawing.
pub type Point = (f64, f64);

/// How long an arrow's head is.
pub const HEAD: f64 = 9.0;
/// How far apart lines between the same boxes run.
const LANE: f64 = 20.0;
/// So many times that a line may swing out further to pass beside boxes.
const WIDER: u32 = 7;
/// How far a line may swing up or down to pass boxes, in the order in which that is tried.
const BENDS: [f64; 9] = [
    0.0, -50.0, 50.0, -100.0, 100.0, -170.0, 170.0, -260.0, 260.0,
];

/// A cubic curve with an arrow's head at its end.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub start: Point,
    pub controls: [Point; 2],
    /// Where the line ends and the head begins.
    pub end: Point,
    /// The tip of the head.
    pub tip: Point,
}

impl Route {
    /// A curve that leaves `start` towards the first direction and enters `tip` against the
    /// second; the directions' lengths say how far it swings out.
    fn new(start: Point, out: Point, tip: Point, back: Point) -> Route {
        let length = back.0.hypot(back.1).max(1.0);
        let end = (
            tip.0 + back.0 / length * HEAD,
            tip.1 + back.1 / length * HEAD,
        );
        let controls = [
            (start.0 + out.0, start.1 + out.1),
            (tip.0 + back.0, tip.1 + back.1),
        ];
        Route {
            start,
            controls,
            end,
            tip,
        }
    }

    /// Straight from one point to another below it.
    pub fn down(start: Point, tip: Point) -> Route {
        straight(start, tip)
    }

    /// The point at this part of the curve: 0 is its start, 1 its end.
    pub fn at(&self, part: f64) -> Point {
        let [a, b] = self.controls;
        let rest = 1.0 - part;
        let mix = |start: f64, a: f64, b: f64, end: f64| {
            rest.powi(3) * start
                + 3.0 * rest * rest * part * a
                + 3.0 * rest * part * part * b
                + part.powi(3) * end
        };
        (
            mix(self.start.0, a.0, b.0, self.end.0),
            mix(self.start.1, a.1, b.1, self.end.1),
        )
    }

    /// Points all along the curve.
    pub fn points(&self) -> Vec<Point> {
        (1..20).map(|i| self.at(f64::from(i) / 20.0)).collect()
    }

    /// How many of the boxes the line passes through.
    fn hits<'a>(&self, boxes: impl Iterator<Item = &'a Spot>) -> usize {
        let points = self.points();
        let inside = |spot: &Spot, (x, y): Point| {
            (x - spot.x).abs() < spot.size.width / 2.0 + 4.0
                && (y - spot.y).abs() < spot.size.height / 2.0 + 4.0
        };
        boxes
            .filter(|spot| points.iter().any(|&point| inside(spot, point)))
            .count()
    }

    /// Swung out further to its side, as far as it takes to pass beside these boxes; as it is if that is too far.
    pub fn beside<'a>(self, boxes: impl Iterator<Item = &'a Spot> + Clone) -> Route {
        let side = (self.controls[0].0 - self.start.0).signum();
        let swung = |by: f64| {
            let [one, other] = self.controls;
            let out = |(x, y): Point| (x + side * by, y);
            Route {
                controls: [out(one), out(other)],
                ..self
            }
        };
        let mut wider = (0..=WIDER).map(|lanes| swung(f64::from(lanes) * LANE));
        wider
            .find(|route| route.hits(boxes.clone()) == 0)
            .unwrap_or(self)
    }

    fn bent(mut self, by: f64) -> Route {
        // The curve reaches three quarters of what its controls do.
        for control in &mut self.controls {
            control.1 += by * 4.0 / 3.0;
        }
        self
    }
}

/// The way from one box of the ring to the next.
pub fn along_ring(from: &Spot, to: &Spot, alone: bool) -> Route {
    let (top, bottom) = (
        |s: &Spot| s.y - s.size.height / 2.0,
        |s: &Spot| s.y + s.size.height / 2.0,
    );
    if alone {
        let reach = from.size.width / 4.0;
        let (start, tip) = ((from.x + reach, top(from)), (from.x - reach, top(from)));
        return Route::new(start, (30.0, -ARC), tip, (-30.0, -ARC));
    }
    match (from.side, to.side) {
        // Down the right column, up the left one.
        (Side::Right, Side::Right) => straight((from.x, bottom(from)), (to.x, top(to))),
        (Side::Left, Side::Left) => straight((from.x, top(from)), (to.x, bottom(to))),
        // Below from right to left, above from left to right.
        (Side::Right, Side::Left) => {
            let (start, tip) = ((from.x, bottom(from)), (to.x, bottom(to)));
            let depth = start.1.max(tip.1) + ARC;
            Route::new(start, (0.0, depth - start.1), tip, (0.0, depth - tip.1))
        }
        (Side::Left, Side::Right) => {
            let (start, tip) = ((from.x, top(from)), (to.x, top(to)));
            let height = start.1.min(tip.1) - ARC;
            Route::new(start, (0.0, height - start.1), tip, (0.0, height - tip.1))
        }
    }
}

fn straight(start: Point, tip: Point) -> Route {
    let third = (tip.1 - start.1) / 3.0;
    Route::new(start, (0.0, third), tip, (0.0, -third))
}

/// The way between any two boxes, around the obstacles if a small swing leads around them; of
/// `lane.1` references between the same two it is number `lane.0`. Its name is `label` wide.
pub fn across(
    spots: &[Spot],
    ends: (usize, usize),
    lane: (usize, usize),
    label: f64,
    obstacles: &[Spot],
) -> Route {
    let straight = direct(&spots[ends.0], &spots[ends.1], lane, label);
    let others = || {
        let others = obstacles.iter().enumerate();
        others
            .filter(|(index, _)| *index != ends.0 && *index != ends.1)
            .map(|(_, spot)| spot)
    };
    BENDS
        .iter()
        .map(|&bend| straight.bent(bend))
        .map(|route| (route.hits(others()), route))
        .min_by_key(|(hits, _)| *hits)
        .map_or(straight, |(_, route)| route)
}

fn direct(from: &Spot, to: &Spot, (lane, lanes): (usize, usize), label: f64) -> Route {
    let shift = (lane as f64 - (lanes.saturating_sub(1)) as f64 / 2.0) * LANE;
    let right = |s: &Spot| s.x + s.size.width / 2.0;
    let left = |s: &Spot| s.x - s.size.width / 2.0;
    let (from_y, to_y) = (port(from, shift), port(to, shift));
    let room = 24.0;
    if left(to) - right(from) > room {
        let swing = ((left(to) - right(from)) / 2.0).min(160.0);
        let (start, tip) = ((right(from), from_y), (left(to), to_y));
        return Route::new(start, (swing, 0.0), tip, (-swing, 0.0));
    }
    if left(from) - right(to) > room {
        let swing = ((left(from) - right(to)) / 2.0).min(160.0);
        let (start, tip) = ((left(from), from_y), (right(to), to_y));
        return Route::new(start, (-swing, 0.0), tip, (swing, 0.0));
    }
    // One above the other, or the same box: out on the outer side and in again.
    // The curve reaches three quarters of its swing, and half of the name is on the box's side.
    let room = (label / 2.0 + 6.0) * 4.0 / 3.0;
    let reach = 46.0 + LANE * lane as f64 + ((from.y - to.y).abs() / 8.0).min(80.0);
    let swing = reach.max(room);
    let apart = if from.y == to.y { 9.0 } else { 0.0 };
    let (start, tip) = (from.y - apart, to.y + apart);
    match from.side {
        Side::Right => Route::new(
            (right(from), start),
            (swing, 0.0),
            (right(to), tip),
            (swing, 0.0),
        ),
        Side::Left => Route::new(
            (left(from), start),
            (-swing, 0.0),
            (left(to), tip),
            (-swing, 0.0),
        ),
    }
}

/// Where on a box's side a line that is shifted by so much ends.
fn port(spot: &Spot, shift: f64) -> f64 {
    let reach = (spot.size.height / 2.0 - 6.0).max(0.0);
    spot.y + shift.clamp(-reach, reach)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::layout::Size;

    fn spot(x: f64, y: f64, side: Side) -> Spot {
        Spot {
            x,
            y,
            size: Size {
                width: 100.0,
                height: 40.0,
            },
            side,
        }
    }

    #[test]
    fn a_line_down_a_column_passes_beside_a_wider_box() {
        let (above, below) = (spot(0.0, 0.0, Side::Right), spot(0.0, 200.0, Side::Right));
        let mut wide = spot(0.0, 100.0, Side::Right);
        wide.size.width = 220.0;
        let line = across(&[above, wide, below], (0, 2), (0, 1), 20.0, &[]);
        assert_eq!(line.hits([wide].iter()), 1);
        assert_eq!(line.beside([wide].iter()).hits([wide].iter()), 0);
        wide.size.width = 2000.0;
        let kept = line.beside([wide].iter());
        assert_eq!(kept.controls, line.controls);
    }

    #[test]
    fn ring_lines_leave_and_enter_at_the_edges_of_their_boxes() {
        let (left, right) = (spot(-80.0, 0.0, Side::Left), spot(80.0, 0.0, Side::Right));
        let below = along_ring(&right, &left, false);
        assert_eq!((below.start, below.tip), ((80.0, 20.0), (-80.0, 20.0)));
        assert!(below.at(0.5).1 > 60.0);
        let above = along_ring(&left, &right, false);
        assert_eq!((above.start, above.tip), ((-80.0, -20.0), (80.0, -20.0)));
        assert!(above.at(0.5).1 < -60.0);
        let around = along_ring(&right, &right, true);
        assert!(around.start != around.tip && around.at(0.5).1 < -60.0);
    }

    #[test]
    fn lines_between_the_same_boxes_run_apart() {
        let (a, b) = (spot(0.0, 0.0, Side::Right), spot(300.0, 0.0, Side::Right));
        let spots = [a, b];
        let run = |ends, lane| across(&spots, ends, lane, 60.0, &[]);
        let middles = (0..3).map(|lane| run((0, 1), (lane, 3)).at(0.5).1);
        let middles: Vec<f64> = middles.map(f64::round).collect();
        assert!(
            middles.is_sorted() && middles[1] == 0.0 && middles[0] < -10.0,
            "{middles:?}"
        );
        assert!(run((1, 0), (0, 1)).start.0 < b.x);
        let itself = run((0, 0), (0, 1));
        assert!(itself.start != itself.tip && itself.at(0.5).0 > 50.0);
    }

    #[test]
    fn a_line_swings_around_a_box_in_its_way() {
        let spots = [
            spot(0.0, 0.0, Side::Right),
            spot(500.0, 0.0, Side::Right),
            spot(250.0, 0.0, Side::Right),
        ];
        let route = across(&spots, (0, 1), (0, 1), 60.0, &spots);
        assert_eq!(route.hits(spots[2..].iter()), 0);
        assert!(route.at(0.5).1.abs() > 20.0);
        assert_eq!(across(&spots, (0, 2), (0, 1), 60.0, &spots).at(0.5).1, 0.0);
    }
}
