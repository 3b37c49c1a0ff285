//! Reading source files, whatever a path turns out to be; and which others belong to the same project.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::fs::{File, metadata, read_dir};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::syntax::SIZE_LIMIT;

/// Files that mark the root of a project.
const ROOTS: [&str; 4] = [".git", "pyproject.toml", "setup.py", "setup.cfg"];
/// Folders that have nobody's own code.
const FOREIGN: [&str; 4] = [
    "site-packages",
    "node_modules",
    "__pycache__",
    "dist-packages",
];
/// Maximum number of entries of a project that are looked at.
const ENTRIES: usize = 20_000;
/// So many folders above that of a file may belong to a project that nothing marks.
const ABOVE: usize = 2;
/// Maximum number of bytes of a project that are read.
pub const BYTES: u64 = 32 << 20;

/// A program of more files is not searched.
pub const FILES: usize = 2000;

/// When a file was last changed; `None` if that is not known.
pub fn modified(file: &str) -> Option<SystemTime> {
    metadata(file).and_then(|facts| facts.modified()).ok()
}

/// The text of a source file; `None` if it is none: missing, too large, not a file, not UTF-8.
pub fn read(path: &Path) -> Option<String> {
    let facts = metadata(path).ok()?;
    if !facts.is_file() || facts.len() > SIZE_LIMIT as u64 {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(SIZE_LIMIT as u64 + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    (text.len() <= SIZE_LIMIT && !has_other_encoding(&text)).then_some(text)
}

/// What a file has that is too large or of another encoding, as far as it is UTF-8.
pub fn read_bytes(path: &Path) -> Option<String> {
    let facts = metadata(path).ok()?;
    if !facts.is_file() || facts.len() > BYTES {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// True if one of the first two lines declares another encoding than UTF-8 (PEP 263).
fn has_other_encoding(text: &str) -> bool {
    text.lines().take(2).any(|line| {
        let declared = line
            .trim_start()
            .strip_prefix('#')
            .and_then(|line| line.split_once("coding"))
            .and_then(|(_, rest)| rest.strip_prefix([':', '=']));
        declared.is_some_and(|name| {
            let name = name.trim_start().to_ascii_lowercase().replace('_', "-");
            !(name.starts_with("utf-8") || name.starts_with("utf8") || name.starts_with("ascii"))
        })
    })
}

/// The name by which other files import one.
pub fn module_name(file: &Path) -> String {
    let stem = |path: &Path| {
        path.file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
    };
    match stem(file) {
        Some(name) if name != "__init__" => name,
        _ => file.parent().and_then(stem).unwrap_or_default(),
    }
}

/// The other Python files of a project. If nothing marks one: those of the file's folder and of the two above, if a file
/// there names the folder below; and of the folders that a file in one of these names, all.
pub fn project(file: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = file.parent().filter(|folder| folder.is_dir());
    let Some(folder) = folder else {
        return Ok(Vec::new());
    };
    let is_root = |folder: &&Path| ROOTS.iter().any(|name| folder.join(name).exists());
    // Each with whether all folders in it are of the project.
    let mut pending = match folder.ancestors().find(is_root) {
        Some(root) => vec![(root.to_path_buf(), true)],
        None => unmarked(folder),
    };
    let (mut found, mut entries, mut bytes) = (Vec::new(), 0, 0);
    while let Some((folder, is_whole)) = pending.pop() {
        let named = LazyCell::new(|| names_in(&folder));
        for entry in read_dir(&folder).into_iter().flatten().flatten() {
            entries += 1;
            if entries > ENTRIES || bytes > BYTES {
                return Err("the project is too large to search for other uses; an empty pyproject.toml marks where it begins".into());
            }
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() {
                let is_own = !name.starts_with('.')
                    && !FOREIGN.contains(&&*name)
                    && !path.join("pyvenv.cfg").exists();
                if is_own && (is_whole || named.contains(&name)) {
                    pending.push((path, true));
                }
            } else if name.ends_with(".py") && path != file {
                bytes += entry.metadata().map_or(0, |facts| facts.len());
                found.push(path);
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Where a project that nothing marks begins; the folders of a file and those beside it that it names.
fn unmarked(folder: &Path) -> Vec<(PathBuf, bool)> {
    let above = folder.ancestors().zip(folder.ancestors().skip(1));
    let mut begins = vec![(folder.to_path_buf(), false)];
    let own = LazyCell::new(|| names_in(folder));
    for (inner, outer) in above.take(ABOVE) {
        let name = inner.file_name().map(|name| name.to_string_lossy());
        if name.is_some_and(|name| names_in(outer).contains(&*name)) {
            begins.push((outer.to_path_buf(), false));
            continue;
        }
        // As after `sys.path.insert(0, "..")`.
        let beside = read_dir(outer).into_iter().flatten().flatten();
        let beside = beside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let named = beside.filter(|entry| own.contains(&*entry.file_name().to_string_lossy()));
        begins.extend(named.map(|entry| (entry.path(), true)));
    }
    begins
}

fn python_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let files = read_dir(folder).into_iter().flatten().flatten();
    files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "py"))
}

/// The words of the Python files of a folder.
fn names_in(folder: &Path) -> HashSet<String> {
    python_files(folder)
        .filter_map(|path| read_bytes(&path))
        .flat_map(|text| words(&text).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The words of a text: names, keywords and those of its strings.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(move |c| !is_part(c))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf_8_is_read() {
        assert!(has_other_encoding("#!x\n# -*- coding: latin-1 -*-\n"));
        assert!(!has_other_encoding("# -*- coding: utf-8 -*-\n"));
        assert!(!has_other_encoding("# vim: set fileencoding=UTF8 :\n"));
        assert!(!has_other_encoding("# encoding is nothing here\n"));
        assert_eq!(read(Path::new("/")), None);
        assert_eq!(read(Path::new("/nowhere/at/all")), None);
    }

    #[test]
    fn words_are_whole() {
        let found: Vec<&str> = words("import view2; x.cb_(1) + 'é'").collect();
        assert_eq!(found, ["import", "view2", "x", "cb_", "1", "é"]);
    }
}
