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

/// The other Python files of a project. If nothing marks one: those of the folder, of the folders in it that a file of it
/// names, and of the folders around it as far as it is a package's, and of one more.
pub fn project(file: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = file.parent().filter(|folder| folder.is_dir());
    let Some(folder) = folder else {
        return Ok(Vec::new());
    };
    let is_root = |folder: &&Path| ROOTS.iter().any(|name| folder.join(name).exists());
    let root = folder.ancestors().find(is_root);
    let mut pending = vec![root.unwrap_or(folder).to_path_buf()];
    let mut above = Vec::new();
    if root.is_none() {
        let is_packages = |folder: &&Path| folder.join("__init__.py").exists();
        let packages = folder.ancestors().take_while(is_packages).count();
        above.extend(folder.ancestors().skip(1).take(packages + 1));
        pending.extend(above.iter().map(|folder| folder.to_path_buf()));
    }
    let (mut found, mut entries, mut bytes) = (Vec::new(), 0, 0);
    while let Some(folder) = pending.pop() {
        let named = LazyCell::new(|| names_in(&folder));
        for entry in read_dir(&folder).into_iter().flatten().flatten() {
            entries += 1;
            if entries > ENTRIES || bytes > BYTES {
                return Err("the project is too large to search for other uses".into());
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
                let is_above = above.contains(&&*folder);
                let is_named = || is_own && !is_above && named.contains(&name);
                if root.is_some() && is_own || root.is_none() && is_named() {
                    pending.push(path);
                }
            } else if name.ends_with(".py") && path != file {
                bytes += entry.metadata().map_or(0, |facts| facts.len());
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The words of the Python files of a folder.
fn names_in(folder: &Path) -> HashSet<String> {
    let files = read_dir(folder).into_iter().flatten().flatten();
    files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "py"))
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
