//! Whose code made the references of a leak.

use crate::capture::{Made, Place, is_library_file};

/// The code that made the references of a leak.
#[derive(Clone, Debug)]
pub struct Maker {
    /// A function or class, or the file of a package.
    pub place: Place,
    /// True if it is a library's, and stores something that it may have been given by others.
    pub stores_given: bool,
}

/// The code that made the cycle, of which these are the references; `None` if that is not known.
///
/// The program's if any reference is of its making. A library's only if every reference is of the making of
/// libraries, and at least one of their own accord. `cut` are the positions of those to remove.
pub fn maker(made: &[Made], cut: &[usize]) -> Option<Place> {
    let own = made.iter().find_map(|made| match made {
        Made::By(place) | Made::Given(place) if !is_library_file(&place.file) => Some(place),
        _ => None,
    });
    if own.is_some() {
        return own.cloned();
    }
    if made.contains(&Made::Unknown) {
        return None;
    }
    let by = |made: &Made| match made {
        Made::By(place) => Some(place.clone()),
        _ => None,
    };
    let of_cut = cut.iter().filter_map(|&cut| made.get(cut));
    let all: Vec<Place> = of_cut.chain(made).filter_map(by).collect();
    let installed = all.iter().find(|place| is_installed(place));
    installed.or(all.first()).cloned()
}

/// True for a file of an installed package, and not of the standard library.
fn is_installed(place: &Place) -> bool {
    let file = place.file.replace('\\', "/");
    file.contains("/site-packages/") || file.contains("/dist-packages/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(file: &str) -> Place {
        Place {
            file: file.to_owned(),
            line: 1,
        }
    }

    const TORCH: &str = "env/lib/python3.12/site-packages/torch/nn/module.py";
    const HOOKS: &str = "env/lib/python3.12/site-packages/accelerate/hooks.py";
    const QUEUE: &str = "/usr/lib/python3.12/queue.py";

    fn of(made: &[Made], cut: &[usize]) -> Option<String> {
        maker(made, cut).map(|place| place.file)
    }

    #[test]
    fn what_libraries_made_alone_is_theirs() {
        let [torch, hooks, queue] = [TORCH, HOOKS, QUEUE].map(|file| Made::By(place(file)));
        let given = Made::Given(place(TORCH));
        assert_eq!(
            of(&[torch.clone(), Made::Inherent], &[]).as_deref(),
            Some(TORCH)
        );
        assert_eq!(
            of(&[given.clone(), hooks.clone()], &[0]).as_deref(),
            Some(HOOKS)
        );
        assert_eq!(of(&[torch.clone(), hooks], &[1]).as_deref(), Some(HOOKS));
        assert_eq!(of(&[queue.clone(), torch], &[0]).as_deref(), Some(TORCH));
        assert_eq!(of(&[queue], &[]).as_deref(), Some(QUEUE));
        assert_eq!(of(&[given, Made::Inherent], &[]), None);
    }

    #[test]
    fn what_another_may_have_made_is_not() {
        let torch = Made::By(place(TORCH));
        assert_eq!(of(&[torch.clone(), Made::Unknown], &[0]), None);
        let own = [torch, Made::Unknown, Made::Given(place("train.py"))];
        assert_eq!(of(&own, &[0]).as_deref(), Some("train.py"));
    }
}
