//! The files that are read for a report, each once.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use super::files::{FILES, modified, read};
use super::program::Imports;
use super::syntax::{SIZE_LIMIT, Syntax};
use crate::capture::is_library_file;

/// Maximum number of its files that are read for one reference.
const PARSED: usize = 100;

static LOADED: OnceLock<SystemTime> = OnceLock::new();

/// Remembers that the program runs: a source file that is changed later is not the one that it has read.
pub fn remember_start() {
    LOADED.get_or_init(SystemTime::now);
}

/// A file that was read.
#[derive(Clone, Copy)]
pub struct Source<'s> {
    pub file: &'s str,
    pub syntax: &'s Syntax,
    /// True for the code of a cell: it is in no file that could be changed.
    pub is_cell: bool,
}

/// The source of a program.
#[derive(Debug, Default)]
pub struct Program {
    /// The files of the imported modules that are no library's.
    pub files: Vec<String>,
    /// The text of each cell of a notebook, by the name of a file that its code has. All share one namespace.
    pub cells: BTreeMap<String, String>,
    /// True if some of its code cannot be read, as what was typed into a terminal.
    pub is_typed_in: bool,
    /// The file of `__main__`, if it has one that can be read.
    pub main: Option<String>,
}

/// The files that were read, by their paths.
#[derive(Default)]
pub struct Sources {
    cells: BTreeMap<String, String>,
    read: BTreeMap<String, Option<Syntax>>,
    files: Vec<String>,
    /// Which of them imports which; `None` if they are too large.
    imports: OnceCell<Option<Imports>>,
    is_typed_in: bool,
}

impl Sources {
    pub fn new(program: &Program) -> Self {
        Self {
            files: program
                .files
                .iter()
                .chain(program.cells.keys())
                .cloned()
                .collect(),
            cells: program.cells.clone(),
            is_typed_in: program.is_typed_in,
            ..Self::default()
        }
    }

    /// Reads a file, if it is as it was when the program began.
    pub fn load(&mut self, file: &str) -> Option<&Syntax> {
        if !self.read.contains_key(file) {
            let read = match self.cells.get(file) {
                Some(text) => parsed(text.clone()),
                None => unchanged(file),
            };
            self.read.insert(file.to_owned(), read);
        }
        self.get(file)
    }

    pub fn is_cell(&self, file: &str) -> bool {
        self.cells.contains_key(file)
    }

    pub fn get(&self, file: &str) -> Option<&Syntax> {
        self.read.get(file)?.as_ref()
    }

    /// Of some files, those that could be read.
    pub fn of<'s>(&'s self, files: &'s [String]) -> Vec<Source<'s>> {
        let known = files.iter().filter_map(|file| {
            Some(Source {
                file,
                syntax: self.get(file)?,
                is_cell: self.is_cell(file),
            })
        });
        known.collect()
    }

    /// Reads the files of the program that have a word and belong together with some known ones, and names them. `None` if
    /// that is not all that may be: if none of the known ones is of the program, if that has code in no file, if one cannot
    /// be read as it was, or if there are too many.
    pub fn load_having(&mut self, word: &str, known: &[String]) -> Option<Vec<String>> {
        let files = match self.has_one_of(known) && !self.is_typed_in {
            true => self.imports()?.around(known, word),
            false => return None,
        };
        self.load_few(files)
    }

    /// True if a file of the program is among some.
    pub fn has_one_of(&self, files: &[String]) -> bool {
        self.files.iter().any(|file| files.contains(file))
    }

    /// Reads all files of the program that have some words, and names them; `None` if one cannot be read as it was, or if
    /// there are too many.
    pub fn load_all_having(&mut self, words: &[&str]) -> Option<Vec<String>> {
        let files = self.imports()?.having(words);
        self.load_few(files)
    }

    /// As [`Sources::load_all_having`] of one word; `None` too if there are more than `most`.
    pub fn load_few_having(&mut self, word: &str, most: usize) -> Option<Vec<String>> {
        let files = self.imports()?.having(&[word]);
        (files.len() <= most).then(|| self.load_few(files))?
    }

    /// True if a file of the program is not as it was when the program began.
    pub fn have_changed(&self) -> bool {
        let mut files = self.files.iter().filter(|it| !self.is_cell(it));
        let is_changed = |file: &String| {
            let changed = modified(file);
            changed.is_none_or(|changed| LOADED.get().is_some_and(|&loaded| changed > loaded))
        };
        self.is_typed_in || files.any(is_changed)
    }

    /// False if no file of the program has a word.
    pub fn may_have(&self, word: &str) -> bool {
        self.imports()
            .is_none_or(|imports| !imports.having(&[word]).is_empty())
    }

    fn imports(&self) -> Option<&Imports> {
        let files = &self.files;
        let imports = || (files.len() <= FILES).then(|| Imports::of(files, &self.cells))?;
        self.imports.get_or_init(imports).as_ref()
    }

    fn load_few(&mut self, files: Vec<String>) -> Option<Vec<String>> {
        let are_read = files.len() <= PARSED && files.iter().all(|file| self.load(file).is_some());
        are_read.then_some(files)
    }
}

fn unchanged(file: &str) -> Option<Syntax> {
    if file.starts_with('<') {
        return None;
    }
    let changed = modified(file)?;
    if !is_library_file(file) && LOADED.get().is_some_and(|&loaded| changed > loaded) {
        return None;
    }
    parsed(read(Path::new(file))?)
}

fn parsed(text: String) -> Option<Syntax> {
    (text.len() <= SIZE_LIMIT)
        .then(|| Syntax::parse(text))
        .flatten()
}
