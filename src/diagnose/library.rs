//! Attribution of a leak: to the program or to a library.
//!
//! Judged by files and names alone; nothing is imported and no code of the program runs. The version
//! comes from the metadata that installers leave beside a package (`NAME-VERSION.dist-info`, as
//! <https://packaging.python.org/en/latest/specifications/recording-installed-packages/> has it).

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::known::{known, normal};
use super::remedy::capitalized;
use crate::capture::is_library_file;
use crate::model::report::{Advice, Leak, Library, Location, Report};

/// Name of the interpreter's own modules in a report.
pub const STANDARD_LIBRARY: &str = "the standard library";

/// Folders of installed packages.
const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Maximum size of a list of installed files to read.
const RECORD_LIMIT: u64 = 4 << 20;
/// Patterns whose advice is for the user of a library, and not for those who write it.
const FOR_USERS: [&str; 3] = [
    "mock-keeps-arguments",
    "parametrized-module",
    "traced-graph-module",
];

/// Says of each leak whose it is; of those that are a library's, what its user can do.
///
/// Reads the metadata of installed packages, which may take a while: never call it while the program
/// waits for a collection.
pub fn say_whose(report: &mut Report) {
    for leak in &mut report.leaks {
        leak.library = library(leak);
        leak.known = known(leak);
        if let Some(advice) = advice_to_user(leak) {
            leak.advice = advice;
        }
    }
}

/// Advice for the user of a leaking library; `None` if the pattern's advice applies.
///
/// A pattern names the line that creates the cycle, but users do not edit installed libraries.
fn advice_to_user(leak: &Leak) -> Option<Advice> {
    if speaks_to_user(leak) {
        return None;
    }
    let text = match (&leak.known, &leak.library) {
        (Some(known), _) => known.remedy.clone(),
        (None, Some(library)) => {
            let version = library.version.as_ref();
            let version = version.map_or_else(String::new, |version| format!(" {version}"));
            let remedy = match is_of_exception(leak) {
                true => "run `gc.collect()` after handling the exception",
                false => {
                    "create such objects once and reuse them, run `gc.collect()` after dropping them"
                }
            };
            let name = &library.name;
            let begin = match leak.stores_given {
                true => format!(
                    "{name}{version} made the cycle, perhaps of what your code gave it: then give it nothing that leads \
                     back. Otherwise {remedy}"
                ),
                false => format!(
                    "The whole cycle is made by {name}{version}, not by your code. {}",
                    capitalized(remedy)
                ),
            };
            format!("{begin}, or check whether another version has fixed the leak.")
        }
        _ => return None,
    };
    Some(Advice {
        text,
        before: None,
        after: None,
    })
}

/// True if an exception is kept: it is made anew each time.
fn is_of_exception(leak: &Leak) -> bool {
    leak.pattern
        .as_ref()
        .is_some_and(|pattern| pattern.contains("exception"))
}

fn speaks_to_user(leak: &Leak) -> bool {
    leak.pattern
        .as_ref()
        .is_some_and(|pattern| FOR_USERS.contains(&pattern.as_str()))
}

/// The library whose code made the whole cycle; `None` if some of it is the program's making, or may be.
pub fn library(leak: &Leak) -> Option<Library> {
    let made_by = leak.made_by.as_ref()?;
    let (name, version) = Package::of(&made_by.file)?.distribution();
    Some(Library {
        name,
        version,
        your_line: nearest_own_line(leak),
    })
}

/// The place in the program's own code from which the fewest references lead to or from the cycle.
fn nearest_own_line(leak: &Leak) -> Option<Location> {
    let nodes = &leak.graph.nodes;
    let mut neighbours = vec![Vec::new(); nodes.len()];
    for edge in &leak.graph.edges {
        let (from, to) = (edge.from as usize, edge.to as usize);
        if from < nodes.len() && to < nodes.len() {
            neighbours[from].push(to);
            neighbours[to].push(from);
        }
    }
    let mut seen = vec![false; nodes.len()];
    let mut pending: VecDeque<usize> = VecDeque::new();
    for step in leak.cycle.iter().filter_map(|step| step.node) {
        let start = step as usize;
        if start < nodes.len() && !std::mem::replace(&mut seen[start], true) {
            pending.push_back(start);
        }
    }
    while let Some(node) = pending.pop_front() {
        if let Some(location) = &nodes[node].location
            && is_own_file(&location.file)
        {
            // A frame has gone on since.
            let is_frame = nodes[node].label.starts_with("frame of ");
            return (!is_frame).then(|| location.clone());
        }
        for &next in &neighbours[node] {
            if !std::mem::replace(&mut seen[next], true) {
                pending.push_back(next);
            }
        }
    }
    None
}

/// True for a file that a person can open and that no library brought: not `<string>`.
fn is_own_file(file: &str) -> bool {
    !is_library_file(file) && !file.starts_with('<')
}

/// Of a distribution.
type NameAndVersion = (String, String);
/// By folder and import name.
type Distributions = BTreeMap<(PathBuf, String), Option<NameAndVersion>>;

/// An installed package, or the standard library.
struct Package {
    /// The name that it is imported by; empty for the standard library.
    import: String,
    /// The folder that it is installed in; `None` for the standard library.
    folder: Option<PathBuf>,
}

impl Package {
    /// The package that a file belongs to; `None` if that is the program.
    fn of(file: &str) -> Option<Self> {
        if !is_library_file(file) {
            return None;
        }
        let file = file.replace('\\', "/");
        let installed = INSTALLED
            .iter()
            .filter_map(|folder| Some(file.rfind(folder)? + folder.len()))
            .max();
        let Some(end) = installed else {
            return Some(Self {
                import: String::new(),
                folder: None,
            });
        };
        let top = file[end..].split('/').next().unwrap_or_default();
        Some(Self {
            import: top.split('.').next().unwrap_or_default().to_owned(),
            folder: Some(PathBuf::from(&file[..end])),
        })
    }

    /// Name and version as installed; the import name and no version where no metadata tells.
    fn distribution(&self) -> (String, Option<String>) {
        let Some(folder) = &self.folder else {
            return (STANDARD_LIBRARY.to_owned(), None);
        };
        let key = (folder.clone(), self.import.clone());
        // Nobody is waited for: a child that was forked while another thread had the lock would wait for ever.
        let known = KNOWN
            .try_lock()
            .ok()
            .and_then(|known| known.get(&key).cloned());
        let found = known.unwrap_or_else(|| {
            let found = installed(folder, &self.import);
            if let Ok(mut known) = KNOWN.try_lock() {
                known.insert(key, found.clone());
            }
            found
        });
        match found {
            Some((name, version)) => (name, Some(version)),
            None => (self.import.clone(), None),
        }
    }
}

/// Read once a process: a leak may be found at every step of a training.
static KNOWN: Mutex<Distributions> = Mutex::new(BTreeMap::new());

/// Name and version of the distribution that brought a top-level package.
///
/// First by the names of the metadata folders; only if none is the package's, by what they list. Two
/// distributions that share a package, or two versions at once, leave it open: `None`.
fn installed(folder: &Path, import: &str) -> Option<NameAndVersion> {
    let mut metadata: Vec<(String, String, PathBuf)> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let stem = path.file_name()?.to_str()?.strip_suffix(".dist-info")?;
            let (name, version) = stem.split_once('-')?;
            Some((name.to_owned(), version.to_owned(), path.clone()))
        })
        .collect();
    metadata.sort();
    let by_name: Vec<_> = metadata
        .iter()
        .filter(|(name, _, _)| normal(name) == normal(import))
        .collect();
    let found = match by_name.as_slice() {
        [] => metadata
            .iter()
            .filter(|(_, _, path)| brings(path, import))
            .collect(),
        _ => by_name,
    };
    match found.as_slice() {
        [(name, version, _)] => Some((name.clone(), version.clone())),
        _ => None,
    }
}

/// True if the metadata folder lists the package among what it installed.
fn brings(metadata: &Path, import: &str) -> bool {
    let read = |name: &str| {
        let path = metadata.join(name);
        let size = std::fs::metadata(&path).ok()?.len();
        if size > RECORD_LIMIT {
            return None;
        }
        std::fs::read_to_string(path).ok()
    };
    if let Some(names) = read("top_level.txt") {
        return names.lines().any(|name| name.trim() == import);
    }
    read("RECORD").is_some_and(|record| {
        record.lines().any(|line| {
            line.strip_prefix(import)
                .is_some_and(|rest| rest.starts_with('/') || rest.starts_with(".py,"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    fn name_of(file: Option<&str>) -> Option<String> {
        let mut leak = samples::linked_nodes_and_exception().leaks.remove(0);
        leak.made_by = file.map(|file| Location {
            file: file.into(),
            line: 7,
        });
        library(&leak).map(|library| library.name)
    }

    #[test]
    fn a_leak_is_of_the_library_whose_code_made_it() {
        let torch = Some("torch");
        for file in [
            "env/lib/python3.12/site-packages/torch/nn/module.py",
            r"C:\env\Lib\site-packages\torch\nn\module.py",
        ] {
            assert_eq!(name_of(Some(file)).as_deref(), torch);
        }
        let queue = "/usr/lib/python3.12/queue.py";
        assert_eq!(name_of(Some(queue)).as_deref(), Some(STANDARD_LIBRARY));
    }

    #[test]
    fn a_leak_of_the_program_or_of_nobody_known_is_no_librarys() {
        assert_eq!(name_of(Some("train.py")), None);
        assert_eq!(name_of(None), None);
        assert_eq!(library(&samples::dangling().leaks[0]), None);
    }
}
