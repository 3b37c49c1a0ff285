//! Which files of a project belong to one program: those that import each other, in whatever direction.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustc_hash::FxHasher;

use super::cache::Cache;
use super::files::{BYTES, FILES, modified, module_name, read, read_bytes, words};

/// What imports modules by the names in strings.
const BY_NAME: [&str; 5] = [
    "import_module",
    "__import__",
    "spec_from_file_location",
    "runpy",
    "pkgutil",
];

/// Those of the other files that a file leads to, or that lead to it, by way of imports.
pub fn connected(file: &Path, others: Vec<PathBuf>) -> Vec<PathBuf> {
    let names = |path: &Path| {
        let text = read_bytes(path).unwrap_or_default();
        imported(&text)
    };
    let files: Vec<&Path> = std::iter::once(file)
        .chain(others.iter().map(PathBuf::as_path))
        .collect();
    let mut by_module: HashMap<String, Vec<usize>> = HashMap::new();
    for (number, path) in files.iter().enumerate() {
        by_module.entry(module_name(path)).or_default().push(number);
    }
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); files.len()];
    for (number, path) in files.iter().enumerate() {
        for name in names(path) {
            for &other in by_module.get(&name).into_iter().flatten() {
                neighbours[number].push(other);
                neighbours[other].push(number);
            }
        }
    }
    let mut reached = reached(vec![0], &neighbours).into_iter().skip(1);
    let mut others = others;
    others.retain(|_| reached.next().unwrap_or_default());
    others
}

/// Which of some files imports which, and their words.
pub struct Imports {
    files: Vec<(String, Arc<Facts>)>,
    down: Vec<Vec<usize>>,
    up: Vec<Vec<usize>>,
}

/// What a file says of others.
struct Facts {
    size: u64,
    imports: HashSet<String>,
    /// Hashes of its words, in order.
    words: Vec<u32>,
}

/// Of each file as it was at a time.
static KNOWN: Cache<(String, Option<SystemTime>), Arc<Facts>> = Cache::new(2 * FILES);

impl Imports {
    /// Reads the files that are not known; `None` if they are too large in all. Of cells, which lead to each other, the
    /// text is given.
    pub fn of(files: &[String], cells: &BTreeMap<String, String>) -> Option<Self> {
        let mut size = 0;
        let facts = |file: &String| {
            let facts = match cells.get(file) {
                Some(text) => Arc::new(Facts::in_text(text)),
                None => Facts::of(file),
            };
            size += facts.size;
            (size <= BYTES).then(|| (file.clone(), facts))
        };
        let files: Vec<(String, Arc<Facts>)> = files.iter().map(facts).collect::<Option<_>>()?;
        let mut by_module: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, (file, _)) in files.iter().enumerate() {
            let name = module_name(Path::new(file));
            by_module.entry(name).or_default().push(number);
        }
        let (mut down, mut up) = (vec![Vec::new(); files.len()], vec![Vec::new(); files.len()]);
        for (number, (_, facts)) in files.iter().enumerate() {
            for name in &facts.imports {
                for &other in by_module.get(name).into_iter().flatten() {
                    down[number].push(other);
                    up[other].push(number);
                }
            }
        }
        let numbers = 0..files.len();
        let of_cells: Vec<usize> = numbers
            .filter(|&number| cells.contains_key(&files[number].0))
            .collect();
        for (&one, &next) in of_cells.iter().zip(of_cells.iter().cycle().skip(1)) {
            down[one].push(next);
            up[next].push(one);
        }
        Some(Self { files, down, up })
    }

    /// The files with a word among those that lead to one of the known ones by way of imports, and all that these lead to:
    /// who makes two objects belong together may be imported by neither's file.
    pub fn around(&self, known: &[String], word: &str) -> Vec<String> {
        let numbers = 0..self.files.len();
        let start = numbers.filter(|&number| known.contains(&self.files[number].0));
        let up = reached(start.collect(), &self.up);
        let leading = up.iter().enumerate().filter(|(_, is_reached)| **is_reached);
        let all = reached(leading.map(|(number, _)| number).collect(), &self.down);
        let found = self.files.iter().zip(all);
        let found = found.filter(|((_, facts), is_reached)| *is_reached && facts.may_have(word));
        found.map(|((file, _), _)| file.clone()).collect()
    }

    /// The files with some words.
    pub fn having(&self, words: &[&str]) -> Vec<String> {
        let files = self.files.iter();
        let found = files.filter(|(_, facts)| words.iter().all(|word| facts.may_have(word)));
        found.map(|(file, _)| file.clone()).collect()
    }
}

impl Facts {
    fn of(file: &str) -> Arc<Self> {
        let state = (file.to_owned(), modified(file));
        if let Some(known) = KNOWN.get(&state) {
            return known;
        }
        let text = read(Path::new(file)).unwrap_or_default();
        let facts = Arc::new(Self::in_text(&text));
        KNOWN.insert(state, Arc::clone(&facts));
        facts
    }

    fn in_text(text: &str) -> Self {
        let mut hashes: Vec<u32> = words(text).map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.shrink_to_fit();
        Self {
            size: text.len() as u64,
            imports: in_statements(text),
            words: hashes,
        }
    }

    /// False for a word that the file has not; rarely true for one that it has not either.
    fn may_have(&self, word: &str) -> bool {
        self.words.binary_search(&hash(word)).is_ok()
    }
}

fn hash(word: &str) -> u32 {
    let mut hasher = FxHasher::default();
    hasher.write(word.as_bytes());
    let hash = hasher.finish();
    (hash >> 32) as u32 ^ hash as u32
}

/// Which of some numbered things can be reached from others.
fn reached(start: Vec<usize>, next: &[Vec<usize>]) -> Vec<bool> {
    let mut reached = vec![false; next.len()];
    let mut pending = start;
    while let Some(number) = pending.pop() {
        if !std::mem::replace(&mut reached[number], true) {
            pending.extend(&next[number]);
        }
    }
    reached
}

/// The names in the import statements of a file; all of its words if it imports by the names in strings.
pub fn imported(text: &str) -> HashSet<String> {
    if words(text).any(|word| BY_NAME.contains(&word)) {
        return words(text).map(str::to_owned).collect();
    }
    in_statements(text)
}

/// The names in the import statements of a file.
fn in_statements(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let (mut is_open, mut goes_on) = (false, false);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        // A statement may follow another, or the colon of one.
        let is_import = words(line).any(|word| matches!(word, "import" | "from"));
        let is_part = is_import || is_open || goes_on;
        if is_part {
            found.extend(words(line).map(str::to_owned));
        }
        is_open = is_part && !line.contains(')') && (is_open || line.contains('('));
        goes_on = is_part && line.trim_end().ends_with('\\');
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_wherever_they_stand() {
        let text = "import a.b as c\nif x: from .d import (\n    e,\n    f)\ng = 1\nfrom h import \\\n    i\nj()";
        let found = imported(text);
        for name in ["a", "b", "d", "e", "f", "h", "i"] {
            assert!(found.contains(name), "{name}");
        }
        assert!(!found.contains("g") && !found.contains("j"));
        assert!(imported("importlib.import_module('k' + name)").contains("k"));
    }

    #[test]
    fn files_are_connected_in_either_direction() {
        let folder = std::env::temp_dir().join(format!("imports-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("it can be made");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("it can be written");
            path
        };
        let file = write("model.py", "import helper\n");
        let helper = write("helper.py", "");
        let main = write("main.py", "from model import Model\nimport other\n");
        let other = write("other.py", "");
        let apart = write("apart.py", "import copy\n");
        let others = vec![apart, helper.clone(), main.clone(), other.clone()];
        assert_eq!(connected(&file, others), [helper, main, other]);
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
