//! The sentences about the live heap.

use std::collections::HashSet;

use crate::model::device_memory::on_device;
use crate::model::heap::Device;
use crate::model::retention::{Keeper, Kept, Retention, RootKind};
use crate::model::words::{counted, human_bytes};

/// The allocator's count beside what is visible; `None` where it does not say.
pub fn allocator(device: &Device) -> Option<String> {
    let allocated = device.allocated?;
    let mut words = format!(
        "{}: {} allocated, of which {} are visible from Python and {} are not \
         (rounding to whole blocks, workspaces, tensors that only C++ holds)",
        device.name,
        human_bytes(allocated),
        human_bytes(device.visible),
        human_bytes(device.remainder().unwrap_or(0)),
    );
    if let Some(reserved) = device.reserved {
        let cached = reserved.saturating_sub(allocated);
        words += &format!("; {} more reserved", human_bytes(cached));
    }
    Some(words + ".")
}

/// An object that was asked about, with its memory.
pub fn object(object: &Kept) -> String {
    match (&object.bytes, &object.device) {
        (Some(bytes), Some(device)) => {
            format!(
                "{} of {} {}",
                object.label,
                human_bytes(*bytes),
                on_device(device)
            )
        }
        _ => object.label.clone(),
    }
}

/// What keeps the objects alive, in half a sentence.
pub fn verdict(retention: &Retention) -> String {
    let Retention { loops, paths, .. } = retention;
    if retention.objects.is_empty() {
        return "no object was inspected".to_owned();
    }
    let number = keepers(retention);
    let is_named = paths.iter().any(|path| path.root.is_named());
    match (is_named, loops.is_empty()) {
        (false, false) if retention.passes_object() => {
            "no collection can free it: it keeps itself alive through C or C++".to_owned()
        }
        (false, false) => "garbage that no collection can free: a loop through C or C++, which \
                           the collector does not know, keeps it alive"
            .to_owned(),
        (false, true) if retention.is_uncollectable => {
            "garbage that no collection frees: gc.freeze() excluded it".to_owned()
        }
        (false, true) => match paths.first().map(|path| path.root) {
            None => "only this call keeps it alive".to_owned(),
            Some(RootKind::Garbage) => "garbage: only unreachable objects refer to it".to_owned(),
            Some(_) => format!("{} only", paths[0].root_words),
        },
        (true, true) => format!("kept alive by {number}"),
        (true, false) => {
            let by = match retention.passes_object() {
                true => "itself through C or C++",
                false => "a loop through C or C++",
            };
            format!("kept alive by {number}, and also by {by}, which no collection can free")
        }
    }
}

/// How many references and variables keep the objects alive.
fn keepers(retention: &Retention) -> String {
    let (by_itself, holding) = split(retention);
    let number = holding.len() as u64 + retention.keepers_omitted;
    let references = counted(number, "reference", "references");
    let mut words = by_itself.iter().map(|keeper| &keeper.words);
    let (one, more) = match words.all(|words| words.starts_with("local ")) {
        true => ("local variable", "local variables"),
        false => ("reference", "references"),
    };
    let of = match by_itself.len() {
        1 => "of a running function",
        _ => "of running functions",
    };
    let variables = format!("{} {of}", counted(by_itself.len() as u64, one, more));
    match (holding.len(), by_itself.len()) {
        (0, 0) => {
            let number = retention.paths.len() as u64 + retention.paths_omitted;
            format!("at least {}", counted(number, "reference", "references"))
        }
        (_, 0) if retention.is_enough => references,
        (_, 0) => format!("at least {references}"),
        (0, _) if retention.is_enough => format!("{variables} only"),
        (0, _) => format!("{variables}, and perhaps by something else"),
        _ if retention.is_enough => format!("{references} and {variables}"),
        _ => format!("at least {references} and {variables}"),
    }
}

/// So many references under a title are listed.
pub const LISTED: usize = 16;

/// References under a title.
pub struct Removal<'a> {
    pub title: String,
    pub keepers: Vec<&'a Keeper>,
    /// How many there are besides.
    pub omitted: u64,
}

impl Removal<'_> {
    /// How many there are besides the first so many.
    pub fn more(&self, shown: usize) -> u64 {
        self.keepers.len().saturating_sub(shown) as u64 + self.omitted
    }
}

/// What there is to remove, and what goes by itself.
pub fn removals(retention: &Retention) -> Vec<Removal<'_>> {
    let (by_itself, holding) = split(retention);
    let omitted = retention.keepers_omitted;
    let mut parts = Vec::new();
    let it = match retention.objects.len() {
        1 => "it",
        _ => "them",
    };
    if !holding.is_empty() {
        let title = match (retention.is_enough, holding.len() as u64 + omitted) {
            (true, 1) if retention.by_collection => {
                format!("Remove this, and the garbage collector frees {it}:")
            }
            (true, number) if retention.by_collection => {
                format!("Remove all of these {number}, and the garbage collector frees {it}:")
            }
            (true, 1) => format!("Remove this to free {it}:"),
            (true, number) => format!("Remove all of these {number} to free {it}:"),
            (false, 1) => {
                format!("This keeps {it} alive, and something else may too:")
            }
            (false, number) => {
                format!("Each of these {number} keeps {it} alive, and something else may too:")
            }
        };
        parts.push(Removal {
            title,
            keepers: holding,
            omitted,
        });
    }
    if !by_itself.is_empty() {
        let frame = |keeper: &&Keeper| keeper.path.steps.first().map(|step| step.node);
        let frames: HashSet<_> = by_itself.iter().map(frame).collect();
        let ends = match frames.len() {
            1 => "the function returns",
            _ => "the functions return",
        };
        let when = match retention.by_collection {
            true => format!("Released by the garbage collector after {ends}"),
            false => format!("Released when {ends}"),
        };
        let title = match retention.is_enough || parts.len() == 1 {
            true => format!("{when}:"),
            false => format!("{when}, but something else may keep {it} alive:"),
        };
        parts.push(Removal {
            title,
            keepers: by_itself,
            omitted: 0,
        });
    }
    parts
}

/// The variables that go by themselves, and the references that do not.
fn split(retention: &Retention) -> (Vec<&Keeper>, Vec<&Keeper>) {
    let all = retention.keepers.iter();
    all.partition(|keeper| keeper.goes_by_itself)
}

/// Words with a capital letter at the beginning, unless they begin with the name of a file, and a full stop.
pub fn sentence(words: &str) -> String {
    let first = words.split(' ').next().unwrap_or_default();
    if first
        .trim_end_matches([':', '.'])
        .contains(['.', '/', '\\', ':'])
    {
        return format!("{}.", words.trim_end_matches('.'));
    }
    let mut letters = words.chars();
    let first = letters.next().map(|it| it.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str().trim_end_matches('.') + "."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_says_what_more_it_has() {
        let device = Device {
            name: "cuda:0".to_owned(),
            visible: 600,
            allocated: Some(1024),
            reserved: Some(4096),
        };
        let words = allocator(&device).unwrap_or_default();
        assert!(words.contains("3.0 KiB more reserved"));
    }
}
