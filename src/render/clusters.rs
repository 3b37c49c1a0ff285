//! Many objects as a few boxes: those of one type that are equally far from the leak are one.

use std::collections::HashMap;
use std::hash::Hash;

use crate::model::report::Leak;

/// Maximum number of clusters.
pub const CLUSTERS: usize = 16;

/// Divides objects into clusters, in the order in which they are given, each with its distance from the leak.
///
/// By distance and type; by type alone if these would be too many; of still too many, the smallest are one.
pub fn clusters(leak: &Leak, objects: &[(u32, u32)]) -> Vec<Vec<u32>> {
    let type_of = |index: u32| {
        let node = leak.graph.nodes.get(index as usize);
        node.map_or("", |node| &*node.type_name)
    };
    let by_level = grouped(objects, |&(index, distance)| (distance, type_of(index)));
    if by_level.len() <= CLUSTERS {
        return by_level;
    }
    let by_type = grouped(objects, |&(index, _)| type_of(index));
    if by_type.len() <= CLUSTERS {
        return by_type;
    }
    let mut largest: Vec<usize> = by_type.iter().map(Vec::len).collect();
    largest.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
    let least = largest[CLUSTERS - 1];
    let (mut kept, mut rest): (Vec<_>, Vec<_>) =
        by_type.into_iter().partition(|it| it.len() >= least);
    rest.splice(0..0, kept.drain(kept.len().min(CLUSTERS - 1)..));
    kept.push(rest.concat());
    kept
}

/// The objects with equal keys together, in the order of the first of each.
fn grouped<K: Eq + Hash>(objects: &[(u32, u32)], key: impl Fn(&(u32, u32)) -> K) -> Vec<Vec<u32>> {
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut places: HashMap<K, usize> = HashMap::new();
    for object in objects {
        let place = *places.entry(key(object)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(object.0);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    /// A leak whose objects have these types.
    fn typed(types: impl Iterator<Item = usize>) -> Leak {
        let mut leak = samples::callback().leaks.remove(0);
        let node = leak.graph.nodes[0].clone();
        let nodes = types.map(|ty| {
            let mut node = node.clone();
            node.type_name = format!("T{ty}");
            node
        });
        leak.graph.nodes = nodes.collect();
        leak
    }

    #[test]
    fn objects_of_a_type_and_a_distance_are_together() {
        let leak = typed([0, 1, 0, 0, 1].into_iter());
        let objects = [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)];
        let expected = [vec![0, 2], vec![1], vec![3], vec![4]];
        assert_eq!(clusters(&leak, &objects), expected);
    }

    #[test]
    fn of_many_distances_only_the_type_counts() {
        let leak = typed((0..100).map(|index| index % 2));
        let objects: Vec<(u32, u32)> = (0..100).map(|index| (index, index)).collect();
        let found = clusters(&leak, &objects);
        assert_eq!(found.len(), 2);
        assert!(found[0].iter().all(|index| index % 2 == 0));
    }

    #[test]
    fn of_many_types_the_smallest_are_one_and_no_object_is_lost() {
        for types in [CLUSTERS, CLUSTERS + 1, 40, 90] {
            let leak = typed((0..100).map(|index| index % types));
            let objects: Vec<(u32, u32)> = (0..100).map(|index| (index, index)).collect();
            let found = clusters(&leak, &objects);
            assert!(found.len() <= CLUSTERS, "{types}");
            let mut all = found.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..100), "{types}");
        }
    }
}
