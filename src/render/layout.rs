//! Where the boxes of a drawing stand.
//!
//! A layered layout draws a cycle as a line with one long arrow back, which no eye takes for a
//! cycle. So the cycle is laid out as a ring: one column of boxes down, one up. What hangs off the
//! ring is laid out in layers by layout-rs, to the right of the ring what its right column leads
//! to, to the left what its left column does, with the ring as the one large box of the first
//! layer.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::{Point as Vector, Position};
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

/// Space between the two columns of the ring, and between the boxes of a column, where the
/// references' names stand.
const RING_GAP: (f64, f64) = (90.0, 66.0);
/// How far the arcs that join the two columns reach above and below them.
pub const ARC: f64 = 76.0;
/// Space between boxes of a layer.
const BOX_GAP: f64 = 22.0;
/// layout-rs walks recursively and in quadratic time: more boxes stand in plain columns.
const LAYERED: usize = 600;

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
    let parents = hang(plan);
    let nowhere = Spot {
        x: 0.0,
        y: 0.0,
        size: Size {
            width: 0.0,
            height: 0.0,
        },
        side: Side::Right,
    };
    spots.resize(plan.sizes.len(), nowhere);
    for side in [Side::Right, Side::Left] {
        let tree = branches(plan, &spots, &parents, side);
        let places = layered(&tree).unwrap_or_else(|| columns(&tree));
        let shift = pull(&spots, &parents, &tree, &places);
        for (twig, (x, y)) in tree.twigs.iter().zip(places) {
            let y = y + shift;
            let size = plan.sizes[twig.index];
            // The name's space is on the ring's side of the box.
            let x = x + plan.label / 2.0;
            spots[twig.index] = match side {
                Side::Right => Spot { x, y, size, side },
                Side::Left => Spot {
                    x: -x,
                    y,
                    size,
                    side,
                },
            };
        }
    }
    spots
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

/// Width and height of the smallest rectangle around (0, 0) that holds the boxes.
fn extent(spots: &[Spot]) -> Size {
    let reach = |along: fn(&Spot) -> f64| spots.iter().map(along).fold(0.0, f64::max) * 2.0;
    Size {
        width: reach(|spot| spot.x.abs() + spot.size.width / 2.0),
        height: reach(|spot| spot.y.abs() + spot.size.height / 2.0),
    }
}

/// For each box the one it hangs on: a spanning forest with the ring's boxes as roots, in which
/// the links that come first in the plan are taken first. What the ring leads to hangs on what
/// leads there; the rest hangs on what it leads to.
fn hang(plan: &Plan) -> Vec<Option<usize>> {
    let count = plan.sizes.len();
    let mut forward = vec![vec![]; count];
    for &(from, to) in plan.links {
        forward[from].push(to);
    }
    let mut either_way = forward.clone();
    for &(from, to) in plan.links {
        either_way[to].push(from);
    }
    let mut parents = vec![None; count];
    let mut order: Vec<usize> = (0..plan.ring).collect();
    let mut reached = vec![false; count];
    reached[..plan.ring].fill(true);
    spread(&forward, &mut order, &mut reached, &mut parents);
    spread(&either_way, &mut order, &mut reached, &mut parents);
    // What no link joins to the ring is a tree of its own.
    for root in plan.ring..count {
        if !reached[root] {
            reached[root] = true;
            order = vec![root];
            spread(&either_way, &mut order, &mut reached, &mut parents);
        }
    }
    parents
}

/// Breadth first from the boxes in `order`; appends those it reaches.
fn spread(
    neighbours: &[Vec<usize>],
    order: &mut Vec<usize>,
    reached: &mut [bool],
    parents: &mut [Option<usize>],
) {
    let mut position = 0;
    while let Some(&index) = order.get(position) {
        for &next in &neighbours[index] {
            if !std::mem::replace(&mut reached[next], true) {
                parents[next] = Some(index);
                order.push(next);
            }
        }
        position += 1;
    }
}

/// How far down the tree must move for its lines to the ring to run level, on average. Nothing
/// but the ring is in the way, and that only where there are boxes in its own layer.
fn pull(spots: &[Spot], parents: &[Option<usize>], tree: &Tree, places: &[(f64, f64)]) -> f64 {
    if tree.twigs.iter().any(|twig| twig.depth == 0) {
        return 0.0;
    }
    let drops: Vec<f64> = (tree.twigs.iter().zip(places))
        .filter(|(twig, _)| twig.on_core)
        .filter_map(|(twig, (_, y))| Some(spots[parents[twig.index]?].y - y))
        .collect();
    drops.iter().sum::<f64>() / drops.len().max(1) as f64
}

/// What hangs on one side of the ring, each box after the one it hangs on, those of a layer in
/// the order in which their lines do not cross.
struct Tree {
    /// The ring, with its arcs; `None` where there is none.
    core: Option<Size>,
    twigs: Vec<Twig>,
}

struct Twig {
    /// Index of the box in the plan.
    index: usize,
    /// Index in [`Tree::twigs`] of what it hangs on; `None` for the ring, or for nothing.
    parent: Option<usize>,
    /// True if it hangs on the ring itself.
    on_core: bool,
    /// How many layers lie between it and the first one.
    depth: usize,
    /// The size of the box with the space for a reference's name beside it.
    size: Size,
}

fn branches(plan: &Plan, spots: &[Spot], parents: &[Option<usize>], side: Side) -> Tree {
    let ring = extent(&spots[..plan.ring]);
    let core = (plan.ring > 0).then_some(Size {
        width: ring.width,
        height: ring.height + 2.0 * ARC,
    });
    let mut children = vec![vec![]; parents.len()];
    for (index, parent) in parents.iter().enumerate().skip(plan.ring) {
        if let Some(parent) = parent {
            children[*parent].push(index);
        }
    }
    let mut roots: Vec<usize> = (0..plan.ring).filter(|&i| spots[i].side == side).collect();
    roots.sort_by(|&a, &b| spots[a].y.total_cmp(&spots[b].y));
    let mut queue: VecDeque<(usize, Option<usize>, bool, usize)> = roots
        .iter()
        .flat_map(|&r| &children[r])
        .map(|&child| (child, None, true, 1))
        .collect();
    if side == Side::Right {
        let alone = (plan.ring..parents.len()).filter(|&index| parents[index].is_none());
        queue.extend(alone.map(|index| (index, None, false, 0)));
    }
    let mut twigs = vec![];
    while let Some((index, parent, on_core, depth)) = queue.pop_front() {
        let place = twigs.len();
        queue.extend(
            children[index]
                .iter()
                .map(|&c| (c, Some(place), false, depth + 1)),
        );
        let Size { width, height } = plan.sizes[index];
        let size = Size {
            width: width + plan.label,
            height,
        };
        twigs.push(Twig {
            index,
            parent,
            on_core,
            depth,
            size,
        });
    }
    Tree { core, twigs }
}

/// The middle of each twig's box by layout-rs, with the ring in the middle of the first layer at
/// (0, 0). `None` if the tree is too large for it or it fails.
///
/// Only the tree is handed to it, never the other links: its search for a way between two boxes
/// tries every one, and their number doubles with each layer of a graph that is not a tree.
fn layered(tree: &Tree) -> Option<Vec<(f64, f64)>> {
    if tree.twigs.is_empty() || tree.twigs.len() > LAYERED {
        return None;
    }
    quietly(|| {
        let mut graph = VisualGraph::new(Orientation::LeftToRight);
        graph.dag.set_validate(false);
        let mut add = |size: Size| {
            let look = StyleAttr::simple();
            let shape = ShapeKind::new_box("");
            let size = Vector::new(size.width, size.height);
            let mut element = Element::create(shape, look, Orientation::LeftToRight, size);
            let halo = Vector::new(0.0, BOX_GAP);
            element.pos = Position::new(Vector::zero(), size, Vector::zero(), halo);
            graph.add_node(element)
        };
        let core = tree.core.map(&mut add);
        let boxes: Vec<_> = tree.twigs.iter().map(|twig| add(twig.size)).collect();
        for (twig, &element) in tree.twigs.iter().zip(&boxes) {
            let parent = if twig.on_core {
                core
            } else {
                twig.parent.map(|index| boxes[index])
            };
            if let Some(parent) = parent {
                graph.add_edge(Arrow::invisible(), parent, element);
            }
        }
        // The order of the twigs is the one to keep: its optimiser need not search for another.
        graph.do_it(false, true, false, &mut NoCanvas);
        let origin = core.map_or(Vector::zero(), |core| graph.pos(core).middle());
        let places = boxes.iter().map(|&element| {
            let middle = graph.pos(element).middle();
            (middle.x - origin.x, middle.y - origin.y)
        });
        places.collect::<Vec<_>>()
    })
    .filter(|places| places.iter().all(|(x, y)| x.is_finite() && y.is_finite()))
}

/// The same without layout-rs: each layer a plain column.
fn columns(tree: &Tree) -> Vec<(f64, f64)> {
    let width = tree
        .twigs
        .iter()
        .fold(0.0, |width: f64, twig| width.max(twig.size.width));
    let core = tree.core.map_or(width, |core| core.width);
    let layers = tree
        .twigs
        .iter()
        .map(|twig| twig.depth + 1)
        .max()
        .unwrap_or(0);
    let mut heights = vec![0.0; layers];
    for twig in &tree.twigs {
        heights[twig.depth] += twig.size.height + BOX_GAP;
    }
    let mut tops: Vec<f64> = heights.iter().map(|height| -height / 2.0).collect();
    if let (Some(core), Some(top)) = (tree.core, tops.first_mut()) {
        *top = core.height / 2.0;
    }
    let place = |twig: &Twig| {
        let x = match twig.depth {
            0 => 0.0,
            depth => core / 2.0 + (depth as f64 - 0.5) * width,
        };
        let y = tops[twig.depth] + (twig.size.height + BOX_GAP) / 2.0;
        tops[twig.depth] += twig.size.height + BOX_GAP;
        (x, y)
    };
    tree.twigs.iter().map(place).collect()
}

thread_local! {
    /// True while a panic on this thread is expected and handled.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs foreign code that asserts what it should check. `None` if it panicked; nothing is printed
/// then, and every other panic is reported as before.
fn quietly<T>(run: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                report(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    result.ok()
}

/// layout-rs hands out places by drawing; we draw ourselves.
struct NoCanvas;

impl RenderBackend for NoCanvas {
    fn draw_rect(
        &mut self,
        _: Vector,
        _: Vector,
        _: &StyleAttr,
        _: Option<String>,
        _: Option<ClipHandle>,
    ) {
    }
    fn draw_line(&mut self, _: Vector, _: Vector, _: &StyleAttr, _: Option<String>) {}
    fn draw_circle(&mut self, _: Vector, _: Vector, _: &StyleAttr, _: Option<String>) {}
    fn draw_text(&mut self, _: Vector, _: &str, _: &StyleAttr) {}
    fn draw_arrow(
        &mut self,
        _: &[(Vector, Vector)],
        _: bool,
        _: (bool, bool),
        _: &StyleAttr,
        _: Option<String>,
        _: &str,
    ) {
    }
    fn create_clip(&mut self, _: Vector, _: Vector, _: usize) -> ClipHandle {
        0
    }
}

#[cfg(test)]
mod tests {
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
                let clear = (a.x - b.x).abs() >= (a.size.width + b.size.width) / 2.0
                    || (a.y - b.y).abs() >= (a.size.height + b.size.height) / 2.0;
                assert!(clear, "{a:?} covers {b:?}");
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
        let start = std::time::Instant::now();
        assert_apart(&placed(500, 2, &links));
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn extreme_trees_are_placed_at_once() {
        let start = std::time::Instant::now();
        let star: Vec<_> = (1..500).map(|i| (0, i)).collect();
        assert_apart(&placed(500, 1, &star));
        let path: Vec<_> = (1..500).map(|i| (i - 1, i)).collect();
        assert_apart(&placed(500, 1, &path));
        assert!(start.elapsed().as_secs() < 40, "{:?}", start.elapsed());
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri hours")]
    fn plain_columns_serve_as_well() {
        let count = LAYERED + 10;
        let links: Vec<_> = (1..count).map(|i| (i / 10, i)).collect();
        assert_apart(&placed(count, 1, &links));
    }

    #[test]
    fn a_panic_is_caught_and_others_are_still_reported() {
        assert_eq!(quietly(|| 1), Some(1));
        assert_eq!(quietly(|| -> u32 { panic!("expected in this test") }), None);
        assert!(!QUIET.get());
    }
}
