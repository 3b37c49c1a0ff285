//! Known leaks of libraries. Each was reproduced before it was listed.
//!
//! `known.json` lists them; `make test-known` installs the versions that it names and runs each entry's
//! program (`tests/long/known/`) with them. An entry is recognised by the whole cycle, object by object: that is
//! surer than a signature, which changes when a line of the library moves.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::model::report::{Known, Leak, Step};
use crate::model::words::all_of;

/// One entry of the list.
#[derive(Debug, Deserialize)]
struct Entry {
    name: String,
    library: String,
    /// The tested versions that leak; others may leak too.
    versions: Vec<String>,
    /// The first tested version without the leak.
    fixed_in: Option<String>,
    link: Option<String>,
    remedy: String,
    /// The cycle, begun at any of its objects.
    steps: Vec<Shape>,
    /// True if the cycle may go on after these steps, through modules of the program's own.
    #[serde(default)]
    goes_on: bool,
    /// True if the cycle is this one only where the code that made it is the library's, as objects of the
    /// program may be in it.
    #[serde(default)]
    made_by_library: bool,
}

/// The conditions on one object of the cycle and its reference to the next; `*` stands for any
/// characters, as of a generated name.
#[derive(Debug, Deserialize)]
struct Shape {
    r#type: Option<String>,
    label: Option<String>,
    edge: Option<String>,
    /// End of the path of the object's code.
    file: Option<String>,
}

static ENTRIES: LazyLock<Vec<Entry>> =
    LazyLock::new(|| serde_json::from_str(include_str!("known.json")).unwrap_or_default());

/// Reads the list, before any thread could be in the midst of that when the process is forked.
pub fn prepare() {
    LazyLock::force(&ENTRIES);
}

/// The name of each known leak, and what is known of it, as a page.
pub fn pages() -> Vec<(&'static str, String)> {
    let page = |entry: &'static Entry| {
        let mut text = format!(
            "# A known leak of {}: {}\n\n{}\n\nTested with {}",
            entry.library,
            entry.name,
            entry.remedy,
            all_of(&entry.versions)
        );
        if let Some(version) = &entry.fixed_in {
            text += &format!("; gone in {version}");
        }
        text += ".\n";
        if let Some(link) = &entry.link {
            text += &format!("\n{link}\n");
        }
        (&*entry.name, text)
    };
    ENTRIES.iter().map(page).collect()
}

/// The known leak that this one is; `None` if it is none, or if the library that is installed is of a
/// version at which the known one was gone.
pub fn known(leak: &Leak) -> Option<Known> {
    let entry = ENTRIES
        .iter()
        .find(|entry| entry.is(leak) && !entry.is_fixed(leak))?;
    Some(Known {
        name: entry.name.clone(),
        library: entry.library.clone(),
        versions: entry.versions.clone(),
        fixed_in: entry.fixed_in.clone(),
        link: entry.link.clone(),
        remedy: entry.remedy.clone(),
    })
}

impl Entry {
    fn is(&self, leak: &Leak) -> bool {
        let steps = &leak.cycle;
        let count = steps.len();
        let as_long = match self.goes_on {
            true => count >= self.steps.len(),
            false => count == self.steps.len(),
        };
        as_long
            && leak.cycle_omitted == 0
            && (!self.made_by_library || self.made(leak))
            && (0..count).any(|start| {
                let turned = steps.iter().cycle().skip(start);
                self.steps
                    .iter()
                    .zip(turned)
                    .all(|(shape, step)| shape.is(step))
            })
    }

    fn made(&self, leak: &Leak) -> bool {
        let library = leak.library.as_ref();
        library.is_some_and(|library| normal(&library.name) == normal(&self.library))
    }

    fn is_fixed(&self, leak: &Leak) -> bool {
        let library = leak.library.as_ref().filter(|_| self.made(leak));
        let installed = library.and_then(|library| library.version.as_deref());
        match (installed, &self.fixed_in) {
            (Some(installed), Some(fixed)) => release(installed) >= release(fixed),
            _ => false,
        }
    }
}

impl Shape {
    fn is(&self, step: &Step) -> bool {
        let file = step.location.as_ref().map(|at| at.file.replace('\\', "/"));
        agrees(&self.r#type, &step.type_name)
            && agrees(&self.label, &step.label)
            && agrees(&self.edge, &step.edge)
            && self
                .file
                .as_ref()
                .is_none_or(|end| file.is_some_and(|file| ends_with(&file, end)))
    }
}

/// True if the path has this end.
fn ends_with(path: &str, end: &str) -> bool {
    let folders = end.matches('/').count() + 1;
    let parts: Vec<&str> = path.rsplitn(folders + 1, '/').collect();
    if parts.len() <= folders {
        return false;
    }
    end.rsplit('/')
        .zip(parts)
        .all(|(end, name)| fits(name, end))
}

/// True if the name is the pattern, in which each `*` stands for any characters.
fn fits(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| fits(&rest[at..], after))
        }),
    }
}

/// True if nothing is asked, or what fits this, however it is quoted.
fn agrees(asked: &Option<String>, text: &str) -> bool {
    let bare = |text: &str| text.replace(['\'', '`'], "");
    asked
        .as_ref()
        .is_none_or(|asked| fits(&bare(text), &bare(asked)))
}

/// The numbers of a version, without what follows them: `2.11.0+cu130` is 2, 11, 0.
fn release(version: &str) -> Vec<u64> {
    version
        .split(|c: char| c != '.' && !c.is_ascii_digit())
        .next()
        .unwrap_or_default()
        .split('.')
        .map_while(|number| number.parse().ok())
        .collect()
}

/// A name as the package index compares names: `Typing_Extensions` is `typing-extensions`.
pub fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::{Library, Location};
    use crate::render::samples;

    /// A stand-in: the cycle that jaxtyping 0.2.34 made when it was run, written down by hand.
    fn decorated(edge: &str, version: &str) -> Leak {
        let mut leak = samples::callback().leaks.remove(0);
        leak.cycle.truncate(1);
        leak.cycle[0] = Step {
            node: Some(1),
            type_name: "function".into(),
            allocated_at: None,
            label: "function main.<locals>.step".into(),
            location: Some(Location {
                file: "env/site-packages/jaxtyping/_decorator.py".into(),
                line: 503,
            }),
            edge: edge.into(),
        };
        leak.library = Some(Library {
            name: "jaxtyping".into(),
            version: Some(version.into()),
            your_line: None,
        });
        leak
    }

    #[test]
    fn the_list_can_be_read() {
        assert!(!ENTRIES.is_empty());
        assert!(ENTRIES.iter().all(|entry| !entry.steps.is_empty()));
    }

    #[test]
    fn a_known_cycle_is_recognised_and_another_of_the_same_file_is_not() {
        let found = known(&decorated("closure variable 'wrapped_fn'", "0.2.34")).unwrap();
        assert_eq!(found.name, "jaxtyping-decorated-function");
        assert_eq!(found.fixed_in.as_deref(), Some("0.2.35"));
        assert_eq!(known(&decorated("closure variable 'fn'", "0.2.34")), None);
        assert_eq!(known(&samples::callback().leaks[0]), None);
    }

    #[test]
    fn what_a_later_version_leaks_is_not_what_it_fixed() {
        let edge = "closure variable 'wrapped_fn'";
        assert!(known(&decorated(edge, "0.2.9")).is_some());
        assert_eq!(known(&decorated(edge, "0.2.35")), None);
        assert_eq!(known(&decorated(edge, "0.10.0")), None);
    }

    #[test]
    fn what_may_be_the_programs_is_known_only_where_the_library_made_it() {
        let mut leak = decorated("['callback']", "2.9.2");
        leak.cycle[0].type_name = "dict".into();
        let callback = Step {
            type_name: "train.Count".into(),
            edge: ".locals".into(),
            ..leak.cycle[0].clone()
        };
        leak.cycle.push(callback);
        assert_eq!(known(&leak), None);
        leak.library.as_mut().unwrap().name = "stable-baselines3".into();
        let found = known(&leak).unwrap();
        assert_eq!(found.name, "stable-baselines3-callback-locals");
        leak.library = None;
        assert_eq!(known(&leak), None);
    }

    #[test]
    fn a_file_is_told_by_the_end_of_its_path() {
        let generated = "torch_geometric.*_propagate_*.py";
        let file = "/tmp/torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_pvvpo6gr.py";
        assert!(ends_with(file, generated));
        assert!(!ends_with("/src/my_propagate_it.py", generated));
        assert!(!ends_with(
            "/torch_geometric.nn/my_propagate_it.py",
            generated
        ));
        assert!(ends_with(
            "/env/monai/networks/unet.py",
            "monai/networks/unet.py"
        ));
        assert!(!ends_with(
            "/env/mymonai/networks/unet.py",
            "monai/networks/unet.py"
        ));
        assert!(!ends_with("unet.py", "unet.py"));
    }

    #[test]
    fn a_cycle_may_go_on_only_where_its_entry_says_so() {
        let mut leak = decorated("closure variable 'wrapped_fn'", "0.2.34");
        let further = Step {
            location: None,
            ..leak.cycle[0].clone()
        };
        leak.cycle.push(further);
        assert_eq!(known(&leak), None);
        let mut entry = Entry {
            goes_on: true,
            steps: vec![Shape {
                r#type: None,
                label: None,
                edge: Some("closure variable 'wrapped_fn'".into()),
                file: Some("jaxtyping/_decorator.py".into()),
            }],
            ..serde_json::from_str(
                r#"{"name": "", "library": "", "versions": [], "remedy": "", "steps": []}"#,
            )
            .unwrap()
        };
        assert!(entry.is(&leak));
        entry.goes_on = false;
        assert!(!entry.is(&leak));
    }

    #[test]
    fn a_cycle_is_recognised_from_whichever_object_it_begins() {
        let mut leak = decorated("", "1.9.0");
        let file = |file: &str| {
            Some(Location {
                file: file.into(),
                line: 1,
            })
        };
        let metric = Step {
            location: file("env/site-packages/torchmetrics/aggregation.py"),
            edge: ".update".into(),
            type_name: "torchmetrics.aggregation.CatMetric".into(),
            ..leak.cycle[0].clone()
        };
        let wrapped = Step {
            location: file("env/site-packages/torchmetrics/metric.py"),
            edge: "closure variable 'self'".into(),
            ..leak.cycle[0].clone()
        };
        leak.cycle = vec![metric.clone(), wrapped.clone()];
        assert!(known(&leak).is_some());
        leak.cycle = vec![wrapped, metric];
        assert!(known(&leak).is_some());
        leak.cycle[0].location = file("mymetrics/metric.py");
        assert_eq!(known(&leak), None);
    }
}
