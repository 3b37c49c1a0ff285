//! What `cyclescope explain` and `ignore` know by name.

use pyo3::prelude::*;

use crate::diagnose::known;
use crate::diagnose::pages::{self, Page};

/// `(name, page)` of every pattern of leaks.
#[pyfunction]
pub fn patterns() -> Vec<(&'static str, String)> {
    named(pages::of_patterns())
}

/// `(what it is about, [(name, page)])` of everything that `cyclescope explain` knows.
#[pyfunction]
pub fn explanations() -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    vec![
        ("Reference cycles", named(pages::of_patterns())),
        ("Memory that grows", named(pages::of_growth())),
        ("Out of memory", named(pages::of_verdicts())),
    ]
}

fn named(pages: Vec<Page>) -> Vec<(&'static str, String)> {
    pages
        .into_iter()
        .map(|page| (page.name, page.text))
        .collect()
}

/// `(name, page)` of the known leaks of libraries.
#[pyfunction]
pub fn known_leaks() -> Vec<(&'static str, String)> {
    known::pages()
}
