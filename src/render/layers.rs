//! Where the boxes of a drawing without a ring stand: in layers, each reference leading to the right.
//!
//! As by K. Sugiyama, S. Tagawa and M. Toda, "Methods for Visual Understanding of Hierarchical System
//! Structures", IEEE Transactions on Systems, Man, and Cybernetics 11 (1981), for drawings of few boxes: references
//! that close a cycle are turned, a box stands as far to the right as what it leads to allows, and the
//! boxes of a layer are sorted by the middle of their neighbours.

use petgraph::algo::{greedy_feedback_arc_set, toposort};
use petgraph::graph::NodeIndex;
use petgraph::stable_graph::StableDiGraph;
use petgraph::visit::EdgeRef;

use super::layout::{Side, Size, Spot};

/// Space between boxes of a layer, and beside the name of a reference.
const BOX_GAP: f64 = 26.0;
const NAME_GAP: f64 = 64.0;
/// How often the boxes are moved towards their neighbours.
const ROUNDS: usize = 12;

/// The spots of boxes of these sizes. Right of each box there is room for the names of the references that leave it,
/// which are so wide.
pub fn place(sizes: &[Size], links: &[(usize, usize)], names: &[f64]) -> Vec<Spot> {
    let layers = layers(sizes.len(), links);
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); sizes.len()];
    for &(from, to) in links.iter().filter(|(from, to)| from != to) {
        neighbours[from].push(to);
        neighbours[to].push(from);
    }
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); layers.iter().max().map_or(0, |it| it + 1)];
    for (index, &layer) in layers.iter().enumerate() {
        columns[layer].push(index);
    }
    let mut y = vec![0.0; sizes.len()];
    for column in &columns {
        stack(column, sizes, &mut y, |at| at as f64);
    }
    for _ in 0..ROUNDS {
        for column in &mut columns {
            let wanted: Vec<f64> = (0..y.len())
                .map(|it| middle(&neighbours[it], y[it], &y))
                .collect();
            column.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
            stack(column, sizes, &mut y, |index| wanted[index]);
        }
    }
    let mut spots: Vec<Spot> = sizes
        .iter()
        .zip(&y)
        .map(|(&size, &y)| Spot {
            x: 0.0,
            y,
            size,
            side: Side::Right,
        })
        .collect();
    // The last layer is the rightmost.
    let mut right = 0.0;
    for (number, column) in columns.iter().enumerate() {
        let leaving = links
            .iter()
            .zip(names)
            .filter(|((from, _), _)| layers[*from] == number);
        let room = leaving.map(|(_, &name)| name).fold(0.0, f64::max);
        if number > 0 {
            right -= room + NAME_GAP;
        }
        let widths = column.iter().map(|&index| sizes[index].width);
        let width = widths.fold(0.0, f64::max);
        for &index in column {
            spots[index].x = right - width / 2.0;
        }
        right -= width;
    }
    spots
}

/// How many references lead from each box to the end of the longest way.
fn layers(boxes: usize, links: &[(usize, usize)]) -> Vec<usize> {
    let mut graph: StableDiGraph<(), ()> = StableDiGraph::new();
    let nodes: Vec<NodeIndex> = (0..boxes).map(|_| graph.add_node(())).collect();
    for &(from, to) in links.iter().filter(|(from, to)| from != to) {
        graph.add_edge(nodes[from], nodes[to], ());
    }
    let turned: Vec<_> = greedy_feedback_arc_set(&graph)
        .map(|edge| (edge.id(), edge.source(), edge.target()))
        .collect();
    for (edge, from, to) in turned {
        graph.remove_edge(edge);
        graph.add_edge(to, from, ());
    }
    let mut layers = vec![0; boxes];
    for node in toposort(&graph, None).unwrap_or_default().into_iter().rev() {
        let below = graph.neighbors(node).map(|next| layers[next.index()] + 1);
        layers[node.index()] = below.max().unwrap_or(0);
    }
    layers
}

fn middle(neighbours: &[usize], own: f64, y: &[f64]) -> f64 {
    match neighbours.len() {
        0 => own,
        number => neighbours.iter().map(|&it| y[it]).sum::<f64>() / number as f64,
    }
}

/// Puts the boxes of a layer one below the other, as near as that allows to where they are wanted.
fn stack(column: &[usize], sizes: &[Size], y: &mut [f64], wanted: impl Fn(usize) -> f64) {
    let mut below = f64::NEG_INFINITY;
    let mut pushed = 0.0;
    for &index in column {
        let half = sizes[index].height / 2.0;
        y[index] = wanted(index).max(below + BOX_GAP + half);
        pushed += y[index] - wanted(index);
        below = y[index] + half;
    }
    let shift = pushed / column.len().max(1) as f64;
    column.iter().for_each(|&index| y[index] -= shift);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        width: 100.0,
        height: 40.0,
    };

    fn placed(boxes: usize, links: &[(usize, usize)]) -> Vec<Spot> {
        place(&vec![SIZE; boxes], links, &vec![50.0; links.len()])
    }

    #[test]
    fn references_lead_to_the_right_and_boxes_do_not_touch() {
        let mut seed = 1u64;
        let mut random = move |below: usize| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        for boxes in 1..30 {
            // From lower to higher numbers, so that there is no cycle.
            let links: Vec<(usize, usize)> = (0..2 * boxes)
                .map(|_| (random(boxes), random(boxes)))
                .filter(|(from, to)| from < to)
                .collect();
            let spots = placed(boxes, &links);
            for &(from, to) in &links {
                assert!(spots[from].x + SIZE.width + 50.0 < spots[to].x, "{links:?}");
            }
            for (index, a) in spots.iter().enumerate() {
                for b in &spots[index + 1..] {
                    let apart = (a.x - b.x).abs() >= SIZE.width || (a.y - b.y).abs() >= SIZE.height;
                    assert!(apart, "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn cycles_and_loops_are_placed_too() {
        let spots = placed(4, &[(0, 1), (1, 2), (2, 0), (2, 2), (2, 3)]);
        assert!(
            spots
                .iter()
                .all(|spot| spot.x.is_finite() && spot.y.is_finite())
        );
        assert!(placed(0, &[]).is_empty());
    }

    #[test]
    fn what_one_box_leads_to_stands_around_it() {
        let spots = placed(4, &[(0, 1), (0, 2), (0, 3)]);
        let middle = (spots[1].y + spots[2].y + spots[3].y) / 3.0;
        assert!((spots[0].y - middle).abs() < 1.0, "{spots:?}");
    }
}
