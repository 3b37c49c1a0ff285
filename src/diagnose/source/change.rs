//! What a change is, before it is written as a diff.

use super::edit::Edit;

/// A change that keeps what the program does and frees the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// In a sentence.
    pub summary: String,
    pub edits: Vec<Edit>,
    /// The attribute that other files must not use as a value, and the classes that may have it.
    pub shared: Option<(String, Vec<String>)>,
}

/// A reference that a file makes and that closes a cycle.
pub struct Candidate {
    /// The attribute or local variable that holds it.
    pub name: String,
    /// The line of the reference, from 1.
    pub line: usize,
    /// First and last line of what a line may name to mean it, the nearest first: the statement that makes the
    /// reference, the function that is kept or that keeps it, the class.
    pub places: Vec<Vec<(usize, usize)>>,
    /// The change; or why there is none that is certain, as a clause.
    pub change: Result<Change, String>,
}
