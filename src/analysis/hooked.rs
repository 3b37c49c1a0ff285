//! Containers that a hook of a module fills.

use rustc_hash::{FxHashMap, FxHashSet};

use super::grown::{Look, Module};
use crate::capture::may_fill;
use crate::cpython::dict_items;
use crate::cpython::instances::attributes;
use crate::model::words;

/// So many hooks are read, or more until one is found; and so many classes are named.
const HOOKS_READ: usize = 64;
const CLASSES: usize = 3;
const HOOKS: [&str; 4] = [
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
];

impl<'py> Look<'_, 'py> {
    /// The class of the module one of whose hooks has a container at hand, or what holds that, and in its code the
    /// name of it and something that adds to a container; of several modules, which it may be.
    pub fn module_whose_hook_fills(&self, container: u32, owner: &str) -> Option<String> {
        let mut hooks: Vec<(&Module<'py>, u32)> = Vec::new();
        for module in self.modules() {
            let attributes = attributes(&self.inspector.builtins.instances, &module.object);
            for (_, registry) in attributes
                .iter()
                .filter(|(name, _)| HOOKS.contains(&name.as_str()))
            {
                dict_items(registry, &mut |_, hook| {
                    hooks.extend(self.live.objects.number_of(hook).map(|it| (module, it)));
                    true
                });
            }
        }
        if hooks.is_empty() {
            return None;
        }
        let above = self
            .live
            .referrers(&self.ways, &FxHashMap::from_iter([(container, vec![0])]));
        let mut wanted: FxHashSet<u32> = above
            .into_keys()
            .filter(|&node| self.live.can_hold(self.inspector, node))
            .collect();
        wanted.insert(container);
        let names = last_names(owner);
        let may_fill = |hook: u32| {
            let callable = self.live.object(hook);
            callable.is_some_and(|it| may_fill(&self.inspector.builtins, &it, &names))
                && self.live.has_at_hand(self.inspector, hook, &wanted)
        };
        let mut classes: Vec<String> = Vec::new();
        for (read, &(module, hook)) in hooks.iter().enumerate() {
            if read >= HOOKS_READ && !classes.is_empty() {
                return one_of(&classes, false);
            }
            if may_fill(hook) {
                let class = self.inspector.type_name(&module.object);
                if !classes.contains(&class) {
                    classes.push(class);
                }
            }
        }
        one_of(&classes, true)
    }
}

/// Which of these classes of modules it is, if these are all there may be.
fn one_of(classes: &[String], are_all: bool) -> Option<String> {
    let quoted = |class: &String| format!("`{class}`");
    match (classes, are_all) {
        ([], _) => None,
        (_, true) if classes.len() <= CLASSES => {
            let quoted: Vec<String> = classes.iter().map(quoted).collect();
            Some(words::one_of(&quoted))
        }
        ([first, ..], _) => Some(format!("a module such as {}", quoted(first))),
    }
}

/// The names under which the program has an owner and what that is in: `module `train` → `net` (Net) → .seen` has
/// `net` and `seen`.
fn last_names(owner: &str) -> Vec<String> {
    let parts = owner
        .split(" → ")
        .filter(|part| !part.starts_with("module "));
    let first_word = |part: &str| {
        let name = part.trim_start_matches("local ");
        let name: String = name
            .trim_start_matches(['`', '.', '[', '\''])
            .chars()
            .take_while(|it| it.is_alphanumeric() || *it == '_')
            .collect();
        (!name.is_empty()).then_some(name)
    };
    parts.filter_map(first_word).collect()
}

#[cfg(test)]
mod tests {
    use super::{last_names, one_of};

    #[test]
    fn of_few_classes_each_is_named() {
        let classes = ["Conv1d", "ReLU", "Linear", "Net"].map(str::to_owned);
        let said = |count: usize, are_all| one_of(&classes[..count], are_all).unwrap_or_default();
        assert_eq!(said(0, true), "");
        assert_eq!(said(1, true), "`Conv1d`");
        assert_eq!(said(3, true), "`Conv1d`, `ReLU` or `Linear`");
        assert_eq!(said(4, true), "a module such as `Conv1d`");
        assert_eq!(said(1, false), "a module such as `Conv1d`");
    }

    #[test]
    fn an_owner_has_the_names_of_its_path() {
        let names = |owner| last_names(owner).join(" ");
        assert_eq!(names("module `train` → `net` (Net) → .seen"), "net seen");
        assert_eq!(names("local `kept` in `fit`, train.py:3"), "kept");
        assert_eq!(
            names("module `__main__` → `by_name` (dict) → ['conv1']"),
            "by_name conv1"
        );
    }
}
