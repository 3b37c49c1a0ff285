//! What keeps objects alive as lines of text below each other, each indented below what holds it: for screens on which a
//! drawing would be all crossings.

use super::retaining::Plan;
use super::shape::Shape;
use crate::model::report::EdgeRole;

/// So deep a line is indented at most.
const DEEP: usize = 9;
/// With more lines than this an outline is no help.
const ROWS: usize = 200;

/// A reference and what it leads to.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub depth: usize,
    /// The name of the reference; empty for a root.
    pub edge: String,
    pub is_cut: bool,
    pub label: String,
    /// The line of the code that it is of.
    pub place: String,
    pub end: End,
}

/// What follows a line of an outline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What it leads to, below it.
    Open,
    /// Nothing: this was asked about.
    Asked,
    /// Nothing: it stands in another line already.
    Above,
}

/// True if all stand in a single file.
pub fn is_chain(plan: &Plan) -> bool {
    let count = |at: usize, end: fn(&super::boxes::Link) -> usize| {
        plan.links.iter().filter(|link| end(link) == at).count()
    };
    (0..plan.boxes.len()).all(|at| count(at, |it| it.from) <= 1 && count(at, |it| it.to) <= 1)
}

/// The lines, each root with all that it leads to below it.
pub fn outline(plan: &Plan) -> Vec<Row> {
    let is_root = |at: &usize| !plan.links.iter().any(|link| link.to == *at);
    let roots = (0..plan.boxes.len()).filter(is_root);
    let mut open: Vec<(usize, usize, Option<usize>)> = roots.map(|at| (at, 0, None)).collect();
    open.reverse();
    let mut told = vec![false; plan.boxes.len()];
    let mut rows = Vec::new();
    while let Some((at, depth, link)) = open.pop() {
        if rows.len() == ROWS {
            break;
        }
        let shape = &plan.boxes[at];
        let link = link.and_then(|it| plan.links.get(it));
        let end = match (shape.node.is_some(), told[at]) {
            (true, _) => End::Asked,
            (false, true) => End::Above,
            (false, false) => End::Open,
        };
        rows.push(Row {
            depth: depth.min(DEEP),
            edge: link.map_or_else(String::new, |it| it.label.clone()),
            is_cut: link.is_some_and(|it| it.role == EdgeRole::Cut),
            label: label(shape),
            place: shape.note.clone().unwrap_or_default(),
            end,
        });
        if end == End::Open {
            told[at] = true;
            let leaving = plan.links.iter().enumerate();
            let mut leaving: Vec<_> = leaving.filter(|(_, link)| link.from == at).collect();
            // What ends at once comes first.
            leaving.sort_by_key(|(_, link)| plan.boxes[link.to].node.is_none());
            let below = leaving.into_iter().rev();
            open.extend(below.map(|(index, link)| (link.to, depth + 1, Some(index))));
        }
    }
    rows
}

fn label(shape: &Shape) -> String {
    let mut label = String::new();
    for line in &shape.name {
        // A name that takes several lines is broken at its dots, a sentence at its spaces.
        let is_name = line.starts_with('.') || label.is_empty();
        label += if is_name { "" } else { " " };
        label += line;
    }
    label
}
