//! Which boxes of a drawing look the same and stand in the same place.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

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
