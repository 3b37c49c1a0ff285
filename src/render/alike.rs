//! Which boxes of a drawing look the same and stand in the same place.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use super::boxes::Link;
use super::shape::{LABEL, Shape};
use crate::model::words::{grouped, name};

/// A line of a drawing: from which box to which, and how it looks.
pub type Line = (usize, usize, String);

/// For each box the first that looks the same and is joined by such lines to such boxes: all of these can be one box.
pub fn alike(looks: &[String], lines: &[Line]) -> Vec<usize> {
    let mut near: Vec<Vec<(bool, usize, &str)>> = vec![Vec::new(); looks.len()];
    for (from, to, look) in lines {
        near[*from].push((true, *to, look));
        near[*to].push((false, *from, look));
    }
    let mut first = firsts(looks.iter());
    loop {
        let around = |index: usize| -> BTreeSet<(bool, usize, &str)> {
            let lines = near[index].iter();
            lines
                .map(|&(out, other, look)| (out, first[other], look))
                .collect()
        };
        let next = firsts((0..looks.len()).map(|index| (first[index], around(index))));
        if next == first {
            return first;
        }
        first = next;
    }
}

/// For each item the place of the first one that equals it.
fn firsts<T: Eq + Hash>(items: impl Iterator<Item = T>) -> Vec<usize> {
    let mut places = HashMap::new();
    let place = |(index, item)| *places.entry(item).or_insert(index);
    items.enumerate().map(place).collect()
}

/// Says in the label of each line how many it stands for.
pub fn number(links: &mut [Link], counts: &[u64]) {
    for (link, &count) in links.iter_mut().zip(counts) {
        if count > 1 && !link.label.is_empty() {
            let times = format!(" × {}", grouped(count));
            link.label = name(&link.label, LABEL.saturating_sub(times.len())) + &times;
        }
    }
}

/// Says in each box how many have it as their first; which boxes are their own.
pub fn count(boxes: &mut [Shape], first: &[usize]) -> Vec<bool> {
    for (index, shape) in boxes.iter_mut().enumerate() {
        let count = first.iter().filter(|&&one| one == index).count();
        if let (2.., Some(line)) = (count, shape.name.first_mut()) {
            *line = format!("{} × {line}", grouped(count as u64));
        }
    }
    (0..first.len()).map(|it| first[it] == it).collect()
}

/// Drops the boxes that do not stay, which no line joins any more; where each box is then.
pub fn keep(boxes: &mut Vec<Shape>, links: &mut [Link], stays: &[bool]) -> Vec<usize> {
    let places: Vec<usize> = stays
        .iter()
        .scan(0, |next, &stays| {
            let at = *next;
            *next += usize::from(stays);
            Some(at)
        })
        .collect();
    let mut each = stays.iter();
    boxes.retain(|_| each.next() == Some(&true));
    for link in links {
        (link.from, link.to) = (places[link.from], places[link.to]);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(from: usize, to: usize, look: &str) -> Line {
        (from, to, look.to_owned())
    }

    #[test]
    fn chains_that_look_the_same_are_one_and_what_is_held_otherwise_is_not() {
        let looks = ["m", "hook", "cell", "hook", "cell", "hook", "t"].map(str::to_owned);
        let mut lines = vec![];
        for (hook, end) in [(1, 2), (3, 4)] {
            lines.extend([
                line(0, hook, "[x]"),
                line(hook, end, "c"),
                line(end, 6, "v"),
            ]);
        }
        lines.extend([line(0, 5, ".other"), line(5, 6, "v")]);
        assert_eq!(alike(&looks, &lines), [0, 1, 2, 1, 2, 5, 6]);
        // What one of them is joined to as well tells them apart.
        lines.push(line(0, 4, ".more"));
        assert_eq!(alike(&looks, &lines), [0, 1, 2, 3, 4, 5, 6]);
    }
}
