//! The program's own source: the lines that make a reference, and a change of them.

use serde::{Deserialize, Serialize};

use crate::capture::{ClassSource, Place};

/// A place in source code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Location {
    /// Path of the file, from the code object.
    pub file: String,
    /// Line number, from 1; 0 if only the file is known.
    pub line: u32,
}

impl From<&Place> for Location {
    fn from(place: &Place) -> Self {
        Self {
            file: place.file.clone(),
            line: place.line,
        }
    }
}

impl std::fmt::Display for Location {
    /// `file:line`, or the file alone if the line is not known.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// What is known of where the reference to remove was made: the source to read for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// The class of the object that has the reference, and those that it derives from, but for those of C.
    pub owner: Vec<ClassSource>,
    /// True if an assignment to an attribute of that object may not store what is assigned.
    pub refuses_assignment: bool,
    /// Those of the object that the reference leads to.
    pub target: Vec<ClassSource>,
    /// Those of the object before the owner in the cycle.
    pub keeper: Vec<ClassSource>,
    /// By which reference that keeps the owner.
    pub kept_as: Option<String>,
    /// The files of the code and of the classes of all objects of the cycle, and those that allocated them.
    pub files: Vec<String>,
}

impl Origin {
    /// The same of the reference that keeps the owner.
    pub fn of_keeper(&self) -> Self {
        Self {
            owner: self.keeper.clone(),
            target: self.owner.clone(),
            files: self.files.clone(),
            ..Self::default()
        }
    }
}

/// Lines of a source file, and what stands out in one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct SourceLines {
    /// Path of the file.
    pub file: String,
    /// Number of the first line, from 1.
    pub line: u32,
    /// The lines, without their ends.
    pub lines: Vec<String>,
    /// Number of the line in which the expression stands out.
    pub marked: u32,
    /// The first character of the expression in the marked line, from 0.
    pub start: u32,
    /// The first character after the expression, from 0.
    pub end: u32,
}

/// A change of a source file that removes the reference; nothing was found in the project that could notice it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct Patch {
    /// Path of the file.
    pub file: String,
    /// The line for which `cyclescope fix FILE:LINE` makes this patch.
    pub line: u32,
    /// What the change does, in a sentence.
    pub summary: String,
    /// Lines that are replaced, from top to bottom, numbered as they are before the change.
    pub edits: Vec<LineEdit>,
    /// The change as a unified diff, without the names of files.
    pub diff: String,
}

/// Whole lines that take the place of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, module = "cyclescope")
)]
#[non_exhaustive]
pub struct LineEdit {
    /// The first line to remove, from 1, or the line before which others are inserted.
    pub line: u32,
    /// Number of lines to remove.
    pub removed: u32,
    /// The new lines, with their ends.
    pub inserted: String,
}
