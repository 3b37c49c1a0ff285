//! What a change is, before it is written as a diff.

use super::edit::Edit;
use super::held::Link;
use super::unlike::Unlike;

/// A change that keeps what the program does and frees the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// In a sentence.
    pub summary: String,
    pub edits: Vec<Edit>,
    /// What other files must do no more with than call it.
    pub subject: Option<Subject>,
}

/// An attribute that gets a weak reference to its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub attribute: String,
    /// The class and those of this file that it is derived from, or that are derived from it.
    pub classes: Vec<String>,
    /// Bases of them that this file does not define.
    pub bases: Vec<String>,
    /// True if a decorator may give one of them methods that read all attributes.
    pub is_decorated: bool,
    /// The method, if the attribute is a bound one: a copy of it follows a copy of the object, and it can be pickled.
    pub method: Option<String>,
    /// The attributes by which this file reaches an object of which it calls the attribute.
    pub links: Vec<Link>,
    /// What this file does with objects that must have nothing to do with the class.
    pub unlike: Vec<Unlike>,
}

impl Subject {
    /// True if a base is the work of others, who may do more with all objects of it.
    pub fn has_bases(&self) -> bool {
        !self.bases.is_empty()
    }
}

/// Which file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The one that defines the class.
    Own,
    /// Another of the project.
    Other {
        /// True if it has the name of the attribute, the class or its module.
        is_related: bool,
    },
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
    /// The change; or why there is none, as a clause.
    pub change: Result<Change, String>,
}
