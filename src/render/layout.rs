//! Where the boxes of a drawing stand.
//!
//! A layered layout draws a cycle as a line with one long arrow back, which no eye takes for a
//! cycle. So the cycle is laid out as a ring: one column of boxes down, one up. What hangs off the
//! ring is laid out as trees in layers, to the right of the ring what its right column leads to, to
//! the left what its left column does.
//!
//! The trees are drawn as by E. M. Reingold and J. S. Tilford, "Tidier Drawings of Trees", IEEE
//! Transactions on Software Engineering 7 (1981): a box stands at the middle of its children, and
//! subtrees are moved together until their contours touch. Small subtrees between large ones are
//! spread as by C. Buchheim, M. Jünger and S. Leipert, "Improving Walker's Algorithm to Run in
//! Linear Time", Graph Drawing (2002). Time and memory are linear, and nothing recurses.

use std::mem::{replace, take};

/// Space between the two columns of the ring, and between the boxes of a column, where the
/// references' names stand.
const RING_GAP: (f64, f64) = (90.0, 66.0);
/// How far the arcs that join the two columns reach above and below them.
pub const ARC: f64 = 76.0;
/// Space between boxes of a layer.
const BOX_GAP: f64 = 22.0;

/// Width and height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub width: f64,
    pub height: f64,
}

/// Where a box stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spot {
    /// The middle of the box.
    pub x: f64,
    pub y: f64,
    pub size: Size,
    /// The side of the ring on which it hangs, or the column of the ring in which it stands.
    pub side: Side,
}

/// A half of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// What [`place`] needs to know of a drawing.
pub struct Plan<'a> {
    /// The sizes of all boxes, those of the ring first and in the cycle's order.
    pub sizes: &'a [Size],
    /// How many boxes are the ring.
    pub ring: usize,
    /// The box of the ring that is to stand in the right column.
    pub focus: usize,
    /// References between boxes, those that should be short and straight first.
    pub links: &'a [(usize, usize)],
    /// Space for a reference's name between two layers.
    pub label: f64,
}

/// Gives every box its place, in the order of [`Plan::sizes`].
pub fn place(plan: &Plan) -> Vec<Spot> {
    let mut spots = place_ring(plan);
    let ring = extent(&spots);
    spots.extend(plan.sizes[plan.ring..].iter().map(|&size| Spot {
        x: 0.0,
        y: 0.0,
        size,
        side: Side::Right,
    }));
    let forest = Forest::new(plan);
    let rows = forest.rows(&spots, ring.height);
    let mut depths = vec![0; spots.len()];
    let mut widths = [vec![ring.width], vec![ring.width]];
    for &index in &forest.order[plan.ring..] {
        spots[index].y = rows[index];
        if let Some(parent) = forest.parents[index] {
            depths[index] = depths[parent] + 1;
            spots[index].side = spots[parent].side;
        }
        let layers = &mut widths[spots[index].side as usize];
        layers.resize(layers.len().max(depths[index] + 1), 0.0);
        let width = &mut layers[depths[index]];
        *width = width.max(spots[index].size.width);
    }
    // Both sides begin beside the layer of the ring and of the trees of their own below it.
    widths[Side::Left as usize][0] = widths[Side::Right as usize][0];
    let [left, right] = widths.map(|layers| columns(&layers, plan.label));
    for &index in &forest.order[plan.ring..] {
        spots[index].x = match spots[index].side {
            Side::Left => -left[depths[index]],
            Side::Right => right[depths[index]],
        };
    }
    spots
}

/// The middles of layers of these widths beside each other, the first one's at 0.
fn columns(widths: &[f64], gap: f64) -> Vec<f64> {
    let mut edge = -widths[0] / 2.0;
    let column = |width: &f64| {
        let middle = edge + width / 2.0;
        edge += width + gap;
        middle
    };
    widths.iter().map(column).collect()
}

/// The ring around (0, 0): the right column downwards, then the left one upwards.
fn place_ring(plan: &Plan) -> Vec<Spot> {
    let ring = &plan.sizes[..plan.ring];
    let count = ring.len();
    let on_right = count.div_ceil(2);
    let first = (plan.focus + count - on_right.saturating_sub(1) / 2) % count.max(1);
    let width = ring
        .iter()
        .fold(0.0, |width: f64, size| width.max(size.width));
    let pitch = ring.iter().fold(0.0, |h: f64, size| h.max(size.height)) + RING_GAP.1;
    let offset = if count > 1 {
        (width + RING_GAP.0) / 2.0
    } else {
        0.0
    };
    let spot = |index: usize| {
        let turn = (index + count - first) % count;
        let (side, row, rows) = if turn < on_right {
            (Side::Right, turn, on_right)
        } else {
            (Side::Left, count - 1 - turn, count - on_right)
        };
        let x = if side == Side::Right { offset } else { -offset };
        let y = (row as f64 - (rows as f64 - 1.0) / 2.0) * pitch;
        Spot {
            x,
            y,
            size: ring[index],
            side,
        }
    };
    (0..count).map(spot).collect()
}

/// Width and height of the smallest rectangle around (0, 0) that holds the ring with its arcs.
fn extent(ring: &[Spot]) -> Size {
    let reach = |along: fn(&Spot) -> f64| ring.iter().map(along).fold(0.0, f64::max) * 2.0;
    Size {
        width: reach(|spot| spot.x.abs() + spot.size.width / 2.0),
        height: reach(|spot| spot.y.abs() + spot.size.height / 2.0 + ARC),
    }
}

/// What hangs on what: a spanning forest with the ring's boxes as its first roots, in which the
/// links that come first in the plan are taken first. What the ring leads to hangs on what leads
/// there; the rest hangs on what it leads to.
struct Forest {
    ring: usize,
    /// `None` for the ring, and for what no link joins to it.
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    /// All boxes, each after its parent, the ring first.
    order: Vec<usize>,
}

impl Forest {
    fn new(plan: &Plan) -> Self {
        let count = plan.sizes.len();
        let mut forward = vec![vec![]; count];
        for &(from, to) in plan.links {
            forward[from].push(to);
        }
        let mut either_way = forward.clone();
        for &(from, to) in plan.links {
            either_way[to].push(from);
        }
        let mut forest = Self {
            ring: plan.ring,
            parents: vec![None; count],
            children: vec![vec![]; count],
            order: (0..plan.ring).collect(),
        };
        let mut reached = vec![false; count];
        reached[..plan.ring].fill(true);
        forest.spread(&forward, 0, &mut reached);
        forest.spread(&either_way, 0, &mut reached);
        // What no link joins to the ring is a tree of its own.
        for root in plan.ring..count {
            if !replace(&mut reached[root], true) {
                forest.order.push(root);
                forest.spread(&either_way, forest.order.len() - 1, &mut reached);
            }
        }
        for (index, parent) in forest.parents.iter().enumerate() {
            if let Some(parent) = parent {
                forest.children[*parent].push(index);
            }
        }
        forest
    }

    /// Breadth first from the boxes at this position of the order and after it.
    fn spread(&mut self, neighbours: &[Vec<usize>], mut position: usize, reached: &mut [bool]) {
        while let Some(&index) = self.order.get(position) {
            for &next in &neighbours[index] {
                if !replace(&mut reached[next], true) {
                    self.parents[next] = Some(index);
                    self.order.push(next);
                }
            }
            position += 1;
        }
    }

    /// Where the middle of each box stands in its layer; of a box of the ring, where the middle of
    /// its children does.
    fn rows(&self, spots: &[Spot], ring_height: f64) -> Vec<f64> {
        let mut rows = vec![0.0; spots.len()];
        let mut contours: Vec<Contour> = spots.iter().map(|_| Contour::default()).collect();
        for &index in self.order.iter().rev() {
            let mut contour = self.apportion(index, &mut contours, &mut rows);
            if index >= self.ring {
                contour.push(spots[index].size.height);
            }
            contours[index] = contour;
        }
        self.level(Side::Left, spots, &mut contours, &mut rows);
        let mut below = self.level(Side::Right, spots, &mut contours, &mut rows);
        if self.ring > 0 {
            below.push(ring_height);
        }
        for &root in &self.order[self.ring..] {
            if self.parents[root].is_none() {
                let tree = take(&mut contours[root]);
                rows[root] = below.separations(&tree).fold(0.0, f64::max);
                below.merge(tree, rows[root]);
            }
        }
        for &index in &self.order {
            if let Some(parent) = self.parents[index] {
                rows[index] += rows[parent];
            }
        }
        rows
    }

    /// Moves the subtrees of a box together, and around its own row. Sets the rows of its children,
    /// from that of the box.
    fn apportion(&self, index: usize, contours: &mut [Contour], rows: &mut [f64]) -> Contour {
        let children = &self.children[index];
        let mut contour = Contour::default();
        // The children that can be seen from below: how many layers each has, and its place.
        let mut lowest: Vec<(usize, usize)> = vec![];
        // By how much further each child is shifted than the one before it: how that changes, and
        // what is taken off.
        let mut shifts = vec![(0.0, 0.0); children.len()];
        for (place, &child) in children.iter().enumerate() {
            let subtree = take(&mut contours[child]);
            let layers = subtree.layers.len();
            for (layer, row) in contour.separations(&subtree).enumerate() {
                let way = row - rows[child];
                if way > 0.0 {
                    rows[child] = row;
                    while lowest.pop_if(|other| other.0 <= layer).is_some() {}
                    let above = lowest.last().map_or(0, |&(_, place)| place);
                    // Those in between, which are too small to be in the way, share the space.
                    let part = way / (place - above) as f64;
                    shifts[above + 1].0 += part;
                    shifts[place].0 -= part;
                    shifts[place].1 += way - part;
                }
            }
            contour.merge(subtree, rows[child]);
            while lowest.pop_if(|other| other.0 <= layers).is_some() {}
            lowest.push((layers, place));
        }
        let (mut step, mut shift) = (0.0, 0.0);
        for (&child, (change, less)) in children.iter().zip(shifts) {
            step += change;
            shift += step - less;
            rows[child] += shift;
        }
        let ends = children.first().zip(children.last());
        let middle = ends.map_or(0.0, |(&first, &last)| (rows[first] + rows[last]) / 2.0);
        children.iter().for_each(|&child| rows[child] -= middle);
        contour.shift -= middle;
        contour
    }

    /// Puts what hangs on the boxes of one column of the ring beside them, each as level as the
    /// ones above it allow, and all of them level on average: sets the rows of these boxes.
    fn level(
        &self,
        side: Side,
        spots: &[Spot],
        contours: &mut [Contour],
        rows: &mut [f64],
    ) -> Contour {
        let bears = |&root: &usize| spots[root].side == side && !self.children[root].is_empty();
        let mut roots: Vec<usize> = (0..self.ring).filter(bears).collect();
        roots.sort_by(|&a, &b| spots[a].y.total_cmp(&spots[b].y));
        let mut contour = Contour::default();
        let mut drop = 0.0;
        for &root in &roots {
            let twigs = take(&mut contours[root]);
            rows[root] = contour.separations(&twigs).fold(spots[root].y, f64::max);
            drop += (rows[root] - spots[root].y) / roots.len() as f64;
            contour.merge(twigs, rows[root]);
        }
        roots.iter().for_each(|&root| rows[root] -= drop);
        contour.shift -= drop;
        contour
    }
}

/// Where the boxes of a tree, or of several that stand below each other, begin and end.
#[derive(Default)]
struct Contour {
    /// The upper and the lower end in each layer, less the shift, the deepest layer first.
    layers: Vec<(f64, f64)>,
    shift: f64,
}

impl Contour {
    /// For each layer that both have, from the first one on, how far down the lower one must move
    /// for a gap between them.
    fn separations(&self, lower: &Self) -> impl Iterator<Item = f64> {
        let shift = self.shift - lower.shift + BOX_GAP;
        let layers = self.layers.iter().rev().zip(lower.layers.iter().rev());
        layers.map(move |(above, below)| above.1 - below.0 + shift)
    }

    /// Takes in what stands below, moved down, in as many steps as the shorter of them has layers.
    /// Each step hides a box from below for good: all merges together take linear time.
    fn merge(&mut self, mut lower: Self, down: f64) {
        lower.shift += down;
        let shift = self.shift - lower.shift;
        if self.layers.len() < lower.layers.len() {
            let layers = lower.layers.iter_mut().rev().zip(self.layers.iter().rev());
            layers.for_each(|(both, upper)| both.0 = upper.0 + shift);
            *self = lower;
        } else {
            let layers = self.layers.iter_mut().rev().zip(lower.layers.iter().rev());
            layers.for_each(|(both, lower)| both.1 = lower.1 - shift);
        }
    }

    /// Puts a box of this height, its middle at 0, into a new first layer.
    fn push(&mut self, height: f64) {
        self.layers
            .push((-height / 2.0 - self.shift, height / 2.0 - self.shift));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const BOX: Size = Size {
        width: 200.0,
        height: 50.0,
    };

    fn placed(boxes: usize, ring: usize, links: &[(usize, usize)]) -> Vec<Spot> {
        let sizes = vec![BOX; boxes];
        place(&Plan {
            sizes: &sizes,
            ring,
            focus: 0,
            links,
            label: 100.0,
        })
    }

    fn assert_apart(spots: &[Spot]) {
        for (i, a) in spots.iter().enumerate() {
            for b in &spots[..i] {
                let across = (a.x - b.x).abs() - (a.size.width + b.size.width) / 2.0;
                let down = (a.y - b.y).abs() - (a.size.height + b.size.height) / 2.0;
                assert!(across > 39.9 || down > BOX_GAP - 0.1, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn rings_of_every_length_go_round() {
        for count in 1..if cfg!(miri) { 8 } else { 40 } {
            let spots = placed(count, count, &[]);
            assert_apart(&spots);
            assert_eq!(spots[0].side, Side::Right);
            // Clockwise: down on the right, up on the left.
            for (from, spot) in spots.iter().enumerate() {
                let next = spots[(from + 1) % count];
                if spot.side == next.side && count > 2 {
                    assert_eq!(next.y > spot.y, spot.side == Side::Right);
                }
            }
        }
    }

    #[test]
    fn what_hangs_on_a_column_stands_on_its_side_in_layers() {
        let spots = placed(6, 2, &[(0, 1), (1, 0), (0, 2), (2, 3), (1, 4), (5, 4)]);
        assert_apart(&spots);
        assert!(spots[0].x < spots[2].x && spots[2].x < spots[3].x);
        assert!(spots[1].x > spots[4].x && spots[4].x > spots[5].x);
        assert!(
            spots[2].x - spots[0].x >= BOX.width + 100.0,
            "space for the name"
        );
    }

    #[test]
    fn a_single_way_out_of_a_tall_ring_runs_level() {
        let spots = placed(5, 4, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 4)]);
        assert!(
            spots[0].y != 0.0 && (spots[0].y - spots[4].y).abs() < 0.1,
            "{spots:?}"
        );
    }

    #[test]
    fn loops_parallels_and_strangers_find_a_place() {
        assert!(placed(0, 0, &[]).is_empty());
        assert_apart(&placed(1, 0, &[(0, 0), (0, 0)]));
        assert_apart(&placed(1, 1, &[(0, 0)]));
        assert_apart(&placed(7, 0, &[(0, 1), (0, 1), (1, 0), (5, 5)]));
        assert_apart(&placed(
            8,
            3,
            &[(0, 1), (1, 2), (2, 0), (6, 7), (7, 6), (3, 0), (3, 1)],
        ));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn a_graph_with_countless_ways_is_placed_at_once() {
        // Layers of ten, each box linked to the whole next layer: 10^49 ways through.
        let links: Vec<_> = (2..490)
            .flat_map(|i| (0..10).map(move |j| (i, (i / 10 + 1) * 10 + j)))
            .collect();
        assert_apart(&placed(500, 2, &links));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn large_trees_of_every_shape_are_placed_at_once() {
        let count = 100_000;
        let chain: fn(usize) -> usize = |i| i - 1;
        let caterpillar = |i| (i - 1) / 2 * 2;
        for parent in [chain, caterpillar, |_| 0, |i| i / 2, |i| i / 100] {
            let links: Vec<_> = (1..count).map(|i| (parent(i), i)).collect();
            let mut spots = placed(count, 1, &links);
            for (index, spot) in spots.iter().enumerate().skip(1) {
                assert!(spot.x >= spots[parent(index)].x + BOX.width, "{index}");
            }
            spots.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)));
            for pair in spots.windows(2) {
                let (across, down) = (pair[1].x - pair[0].x, pair[1].y - pair[0].y);
                assert!(across >= BOX.width || down >= BOX.height, "{pair:?}");
            }
        }
    }

    #[test]
    fn small_subtrees_are_spread_between_large_ones() {
        let mut links = vec![(0, 1), (0, 2), (0, 3), (0, 4)];
        links.extend((5..15).map(|leaf| (if leaf < 10 { 1 } else { 4 }, leaf)));
        let spots = placed(15, 1, &links);
        let gap = spots[4].y - spots[3].y;
        assert!(gap > 2.0 * BOX.height, "{spots:?}");
        for pair in spots[1..5].windows(2) {
            assert!((pair[1].y - pair[0].y - gap).abs() < 0.1, "{spots:?}");
        }
    }

    /// How many boxes are the ring, the sizes of all, and for each other one the earlier one that
    /// it is linked with, if any, and whether that is where the link begins.
    type Linked = (usize, Vec<Size>, Vec<Option<(usize, bool)>>);

    fn linked() -> impl Strategy<Value = Linked> {
        let size = (1.0..400.0, 1.0..200.0).prop_map(|(width, height)| Size { width, height });
        let most = if cfg!(miri) { 20 } else { 300 };
        // The nearer the first index is to the second, the deeper the tree.
        let link = (any::<Index>(), 1usize..300, any::<bool>());
        let boxes = vec((size, option::weighted(0.95, link)), 0..most);
        (0usize..7, boxes).prop_map(|(ring, boxes)| {
            let ring = ring.min(boxes.len());
            let (sizes, links): (Vec<Size>, Vec<_>) = boxes.into_iter().unzip();
            let link = |(index, link): (usize, Option<(Index, usize, bool)>)| {
                let (before, near, down) = link.filter(|_| index > 0)?;
                Some((index - 1 - before.index(near.min(index)), down))
            };
            let links = links.into_iter().enumerate().map(link).skip(ring);
            (ring, sizes, links.collect())
        })
    }

    proptest! {
        #[test]
        fn no_two_boxes_overlap_and_children_stand_outwards((ring, sizes, parents) in linked()) {
            let links: Vec<_> = (ring..).zip(&parents).filter_map(|(child, link)| match *link {
                Some((parent, true)) => Some((parent, child)),
                Some((parent, false)) => Some((child, parent)),
                None => None,
            }).collect();
            let plan = Plan { sizes: &sizes, ring, focus: ring / 2, links: &links, label: 40.0 };
            let spots = place(&plan);
            prop_assert_eq!(&place(&plan), &spots);
            prop_assert!(spots.iter().all(|spot| spot.x.is_finite() && spot.y.is_finite()));
            assert_apart(&spots);
            for (child, link) in (ring..).zip(&parents) {
                let Some((parent, _)) = *link else { continue };
                let (child, parent) = (spots[child], spots[parent]);
                prop_assert_eq!(child.side, parent.side);
                let apart = (child.x - parent.x).abs() - (child.size.width + parent.size.width) / 2.0;
                prop_assert!(apart > 39.9 && (child.x > parent.x) == (child.side == Side::Right));
            }
        }
    }
}
