//! A drawing for narrow screens: all boxes in one column, the cycle first, read from the top down.

use super::layout::{Plan, Side, Size, Spot};
use super::route::Route;

/// Space between two boxes, where the name of the reference stands.
const GAP: f64 = 46.0;

/// Gives every box its place, in the order of [`Plan::sizes`]: the cycle so that its last box is the one that the
/// memory hangs from, and below it what hangs on each, depth first.
pub fn place(plan: &Plan) -> Vec<Spot> {
    stacked(plan.sizes, &order(plan))
}

/// The boxes below each other in this order.
pub fn stacked(sizes: &[Size], order: &[usize]) -> Vec<Spot> {
    let spot = |&size| Spot {
        x: 0.0,
        y: 0.0,
        size,
        side: Side::Right,
    };
    let mut spots: Vec<Spot> = sizes.iter().map(spot).collect();
    let mut top = 0.0;
    for &index in order {
        let Size { height, .. } = sizes[index];
        spots[index].y = top + height / 2.0;
        top += height + GAP;
    }
    spots
}

/// The boxes from the top down.
fn order(plan: &Plan) -> Vec<usize> {
    let count = plan.sizes.len();
    let mut below = vec![vec![]; count];
    for &(from, to) in plan.links {
        below[from].push(to);
        below[to].push(from);
    }
    let ring = (1..=plan.ring).map(|turn| (plan.focus + turn) % plan.ring);
    let mut order: Vec<usize> = ring.collect();
    let mut placed = vec![false; count];
    placed[..plan.ring].fill(true);
    let rest = plan.ring..count;
    let mut open: Vec<usize> = rest.rev().chain(order.iter().copied()).collect();
    while let Some(index) = open.pop() {
        if index >= plan.ring && !std::mem::replace(&mut placed[index], true) {
            order.push(index);
        }
        let fresh = below[index].iter().rev().filter(|&&next| !placed[next]);
        open.extend(fresh);
        below[index].clear();
    }
    order
}

/// The way of a reference between two boxes: straight down to the one below, else around those between, on this side.
pub fn route(
    spots: &[Spot],
    (from, to): (usize, usize),
    side: Side,
    around: impl FnOnce(&[Spot]) -> Route,
) -> Route {
    let others = spots.iter().enumerate();
    let others = others.filter(|(index, _)| ![from, to].contains(index));
    let others = others.map(|(_, spot)| spot);
    let (from, to) = (&spots[from], &spots[to]);
    let bottom = from.y + from.size.height / 2.0;
    let top = to.y - to.size.height / 2.0;
    if (top - bottom - GAP).abs() < 1.0 {
        return Route::down((from.x, bottom), (to.x, top));
    }
    let turned: Vec<Spot> = spots.iter().map(|&spot| Spot { side, ..spot }).collect();
    around(&turned).beside(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_stands_above_what_it_holds_and_no_box_over_another() {
        let sizes = [Size {
            width: 200.0,
            height: 50.0,
        }; 6];
        let spots = place(&Plan {
            sizes: &sizes,
            ring: 3,
            focus: 1,
            links: &[(1, 3), (3, 4), (0, 5)],
            label: 100.0,
        });
        let mut order: Vec<usize> = (0..6).collect();
        order.sort_by(|&a, &b| spots[a].y.total_cmp(&spots[b].y));
        assert_eq!(order, [2, 0, 1, 3, 4, 5]);
        for pair in order.windows(2) {
            assert_eq!(spots[pair[1]].y - spots[pair[0]].y, 50.0 + GAP);
        }
    }
}
