//! How the line of a reference runs from one box to another.

use super::layout::{ARC, Side, Spot};

/// A place in the drawing.
pub type Point = (f64, f64);

/// How long an arrow's head is.
pub const HEAD: f64 = 9.0;
/// How far apart lines between the same boxes run.
const LANE: f64 = 14.0;

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

    /// The middle of the curve, where the reference's name stands.
    pub fn middle(&self) -> Point {
        let [a, b] = self.controls;
        let at = |s: f64, a: f64, b: f64, e: f64| (s + 3.0 * a + 3.0 * b + e) / 8.0;
        (
            at(self.start.0, a.0, b.0, self.end.0),
            at(self.start.1, a.1, b.1, self.end.1),
        )
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

/// The way between any two boxes; `lane` counts the references between the same two.
pub fn across(from: &Spot, to: &Spot, lane: usize) -> Route {
    let shift = lane_shift(lane);
    let right = |s: &Spot| s.x + s.size.width / 2.0;
    let left = |s: &Spot| s.x - s.size.width / 2.0;
    let (from_y, to_y) = (port(from, shift), port(to, shift));
    let room = 24.0;
    if left(to) - right(from) > room {
        let swing = ((left(to) - right(from)) / 2.0).min(160.0);
        return Route::new(
            (right(from), from_y),
            (swing, 0.0),
            (left(to), to_y),
            (-swing, 0.0),
        );
    }
    if left(from) - right(to) > room {
        let swing = ((left(from) - right(to)) / 2.0).min(160.0);
        return Route::new(
            (left(from), from_y),
            (-swing, 0.0),
            (right(to), to_y),
            (swing, 0.0),
        );
    }
    // One above the other, or the same box: out on the outer side and in again.
    let swing = 46.0 + LANE * lane as f64 + ((from.y - to.y).abs() / 8.0).min(80.0);
    let apart = if from.y == to.y { 9.0 } else { 0.0 };
    let (start, tip) = ((0.0, from.y - apart), (0.0, to.y + apart));
    match from.side {
        Side::Right => Route::new(
            (right(from), start.1),
            (swing, 0.0),
            (right(to), tip.1),
            (swing, 0.0),
        ),
        Side::Left => Route::new(
            (left(from), start.1),
            (-swing, 0.0),
            (left(to), tip.1),
            (-swing, 0.0),
        ),
    }
}

/// 0, then alternately below and above: 1, -1, 2, -2 lanes.
fn lane_shift(lane: usize) -> f64 {
    let distance = lane.div_ceil(2) as f64 * LANE;
    if lane % 2 == 1 { distance } else { -distance }
}

/// Where on a box's side a line that is shifted by so much ends.
fn port(spot: &Spot, shift: f64) -> f64 {
    let reach = (spot.size.height / 2.0 - 6.0).max(0.0);
    spot.y + shift.clamp(-reach, reach)
}

#[cfg(test)]
mod tests {
    use super::super::layout::Size;
    use super::*;

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
    fn ring_lines_leave_and_enter_at_the_edges_of_their_boxes() {
        let (left, right) = (spot(-80.0, 0.0, Side::Left), spot(80.0, 0.0, Side::Right));
        let below = along_ring(&right, &left, false);
        assert_eq!((below.start, below.tip), ((80.0, 20.0), (-80.0, 20.0)));
        assert!(below.middle().1 > 60.0);
        let above = along_ring(&left, &right, false);
        assert_eq!((above.start, above.tip), ((-80.0, -20.0), (80.0, -20.0)));
        assert!(above.middle().1 < -60.0);
        let around = along_ring(&right, &right, true);
        assert!(around.start != around.tip && around.middle().1 < -60.0);
    }

    #[test]
    fn lines_between_the_same_boxes_run_apart() {
        let (a, b) = (spot(0.0, 0.0, Side::Right), spot(300.0, 0.0, Side::Right));
        let middles: Vec<f64> = (0..3).map(|lane| across(&a, &b, lane).middle().1).collect();
        assert_eq!(middles, [0.0, 14.0, -14.0]);
        assert!(across(&b, &a, 0).start.0 < b.x);
        let itself = across(&a, &a, 0);
        assert!(itself.start != itself.tip && itself.middle().0 > 50.0);
    }
}
