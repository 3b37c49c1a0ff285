//! Attribution of a leak: to the program or to a library.
//!
//! Judged by files and names alone; nothing is imported and no code of the program runs. The version
//! comes from the metadata that installers leave beside a package (`NAME-VERSION.dist-info`, as
//! <https://packaging.python.org/en/latest/specifications/recording-installed-packages/> has it).

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::known::{known, normal};
use crate::capture::is_library_file;
use crate::model::report::{Advice, Leak, Library, Location, Node, NodeKind, Report};

/// Name of the interpreter's own modules in a report.
pub const STANDARD_LIBRARY: &str = "the standard library";

/// Folders of installed packages.
const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Maximum size of a list of installed files to read.
const RECORD_LIMIT: u64 = 4 << 20;
/// Modules of the interpreter whose types say nothing about whose code uses them.
const INTERPRETER: [&str; 5] = ["builtins", "collections", "functools", "types", "itertools"];
/// Types of `builtins` that may be on a cycle; a class of `__main__` has no module in its name either.
const BUILTIN_TYPES: &str = " dict list tuple set frozenset object type property classmethod \
    staticmethod function method cell frame traceback generator coroutine async_generator module \
    mappingproxy partial code super weakref BaseException Exception RuntimeError ValueError \
    TypeError KeyError IndexError AttributeError LookupError ArithmeticError ZeroDivisionError \
    OverflowError AssertionError NotImplementedError OSError FileNotFoundError ImportError \
    ModuleNotFoundError MemoryError StopIteration StopAsyncIteration TimeoutError EOFError \
    NameError UnicodeDecodeError ConnectionError BrokenPipeError PermissionError SystemExit \
    KeyboardInterrupt GeneratorExit ";

/// Patterns whose advice is for the user of a library, and not for those who write it.
const FOR_USERS: [&str; 2] = ["parametrized-module", "traced-graph-module"];

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
        (None, Some(library)) => format!(
            "The whole cycle is in {}{}, not in your code. Create such objects once and reuse them, \
             run `gc.collect()` after dropping them, or check whether another version has fixed \
             the leak.",
            library.name,
            library
                .version
                .as_ref()
                .map_or_else(String::new, |version| format!(" {version}"))
        ),
        _ => return None,
    };
    Some(Advice {
        text,
        before: None,
        after: None,
    })
}

fn speaks_to_user(leak: &Leak) -> bool {
    leak.pattern
        .as_ref()
        .is_some_and(|pattern| FOR_USERS.contains(&pattern.as_str()))
}

/// The library of a leak whose cycle is a library's own from end to end; `None` if some object of the
/// cycle is the program's, or may be.
pub fn library(leak: &Leak) -> Option<Library> {
    if leak.cycle_omitted > 0 {
        return None;
    }
    let nodes: Option<Vec<&Node>> = leak
        .cycle
        .iter()
        .map(|step| leak.graph.nodes.get(step.node? as usize))
        .collect();
    let nodes = nodes?;
    let mut packages = Vec::new();
    for location in nodes.iter().filter_map(|node| node.location.as_ref()) {
        packages.push(Package::of(&location.file)?);
    }
    if !nodes.iter().all(|node| is_accounted_for(node, &packages)) {
        return None;
    }
    let cut = leak
        .cuts
        .first()
        .and_then(|cut| leak.graph.nodes.get(cut.source as usize)?.location.as_ref())
        .and_then(|location| Package::of(&location.file));
    let package = cut
        .iter()
        .chain(&packages)
        .find(|package| package.folder.is_some())
        .or(packages.first())?;
    let (name, version) = package.distribution();
    Some(Library {
        name,
        version,
        your_line: nearest_own_line(leak),
    })
}

/// True for objects that have a place of their own, or whose type is the interpreter's or of one
/// of the packages.
fn is_accounted_for(node: &Node, packages: &[Package]) -> bool {
    let name = match node.kind {
        NodeKind::Function | NodeKind::Plumbing => return true,
        _ if node.location.is_some() => return true,
        NodeKind::Class => node.label.strip_prefix("class ").unwrap_or(&node.type_name),
        _ => &node.type_name,
    };
    match name.split_once('.') {
        None => BUILTIN_TYPES.split(' ').any(|builtin| builtin == name),
        Some((module, _)) => {
            INTERPRETER.contains(&module) || packages.iter().any(|package| package.import == module)
        }
    }
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
            return Some(location.clone());
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

    /// A two-step cycle of objects with these types and files.
    fn cycle(objects: [(&str, Option<&str>); 2]) -> Leak {
        let mut leak = samples::linked_nodes_and_exception().leaks.remove(0);
        for (index, (type_name, file)) in objects.into_iter().enumerate() {
            let node = &mut leak.graph.nodes[index];
            node.type_name = type_name.into();
            node.location = file.map(|file| Location {
                file: file.into(),
                line: 7,
            });
        }
        leak.cycle = samples::steps(&leak.graph, &[0, 1]);
        leak
    }

    const TORCH: Option<&str> = Some("env/lib/python3.12/site-packages/torch/nn/module.py");

    fn name_of(leak: &Leak) -> Option<String> {
        library(leak).map(|library| library.name)
    }

    #[test]
    fn a_cycle_of_library_objects_is_the_librarys() {
        let torch = Some("torch".to_owned());
        let whole = [("torch.nn.Module", TORCH), ("torch.fx.Graph", TORCH)];
        assert_eq!(name_of(&cycle(whole)), torch);
        let with_dict = [("torch.nn.Module", TORCH), ("dict", None)];
        assert_eq!(name_of(&cycle(with_dict)), torch);
        let made_by_it = [
            ("torch.nn.Module", TORCH),
            ("torch.fx.GraphModuleImpl", None),
        ];
        assert_eq!(name_of(&cycle(made_by_it)), torch);
        let queue = Some("/usr/lib/python3.12/queue.py");
        let standard = [("queue.Queue", queue), ("dict", None)];
        assert_eq!(name_of(&cycle(standard)).as_deref(), Some(STANDARD_LIBRARY));
        let both = [("queue.Queue", queue), ("torch.nn.Module", TORCH)];
        assert_eq!(name_of(&cycle(both)), torch);
        let windows = r"C:\env\Lib\site-packages\torch\nn\module.py";
        let both = [("torch.nn.Module", Some(windows)), ("list", None)];
        assert_eq!(name_of(&cycle(both)), torch);
    }

    #[test]
    fn what_may_be_the_programs_is_not_a_librarys() {
        let own = [
            ("torch.nn.Module", TORCH),
            ("train.Model", Some("train.py")),
        ];
        assert_eq!(name_of(&cycle(own)), None);
        // Classes without code have no place: of `__main__`, and of a module.
        for class in ["Model", "train.Model"] {
            assert_eq!(
                name_of(&cycle([("torch.nn.Module", TORCH), (class, None)])),
                None
            );
        }
        assert_eq!(name_of(&cycle([("dict", None), ("list", None)])), None);
        let mut long = cycle([("torch.nn.Module", TORCH), ("dict", None)]);
        long.cycle_omitted = 3;
        assert_eq!(name_of(&long), None);
        assert_eq!(name_of(&samples::dangling().leaks[0]), None);
    }
}
